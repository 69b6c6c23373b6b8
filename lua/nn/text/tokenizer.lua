-- Loads tokenizers and vocabularies of any kind from folders and checkpoints.
local arguments = require "nn.base.arguments"
local bpe_files = require "nn.text.bpe_files"
local chat = require "nn.text.chat"
local files = require "nn.io.files"
local folder_settings = require "nn.text.folder_settings"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local reader = require "nn.text.reader"
local sentencepiece = require "nn.text.sentencepiece"
local token_names = require "nn.text.token_names"
local vocab_txt = require "nn.text.vocab_txt"
local vocabulary = require "nn.text.vocabulary"

-- SAVED: the names of files of which a saved tokenizer has one.
local M = {SAVED = {"tokenizer.json", unpack(sentencepiece.NAMES)}}

--- from_state(state) -> tokenizer or vocabulary: the inverse of its state(). Errors: another value.
function M.from_state(state)
  arguments.need(type(state) == "table", "vocabulary", "the state", state, "{kind=, ...} is needed")
  local name = "the checkpoint's tokenizer"
  if state.model ~= nil then return sentencepiece.from_state(state, name) end
  if state.json == nil and state.kind ~= "bpe" then
    return vocabulary.vocabulary(state.kind, state.symbols, "the vocabulary")
  end
  arguments.need(type(state.json) == "string", "vocabulary", "json", state.json,
                 "the text of a tokenizer.json is needed")
  local tokenizer = reader.from_json(json.object(state.json, name), name, state.json)
  return (chat.configure(tokenizer, state.config, state.chat_template, name, nil, state.map))
end

local function from_characters(path)
  local state = json.read(path)
  if state.kind ~= "char" or type(state.symbols) ~= "string" then
    lib.deny("%s is not a char vocabulary of nnlua", path)
  end
  return vocabulary.vocabulary("char", state.symbols, path)
end

-- A tokenizer.json, with the settings and the chat template beside it.
local function from_tokenizer_json(file)
  local source = files.read(file)
  local content = json.object(source, file)
  local tokenizer = reader.from_json(content, file, source)
  local folder = file:match "^(.*)/[^/]*$" or "."
  local function beside(name)
    local path = files.join(folder, name)
    return files.exists(path) and files.read(path) or nil
  end
  local _, settings = chat.configure(tokenizer, beside "tokenizer_config.json",
                                     beside "chat_template.jinja",
                                     files.join(folder, "tokenizer_config.json"), nil,
                                     beside "special_tokens_map.json")
  local added = beside "added_tokens.json"
  token_names.warn(settings, added and json.object(added, files.join(folder, "added_tokens.json"))
                   or {}, content.added_tokens or {}, file)
  return tokenizer
end

-- Files that hold a vocabulary in a format that nnlua does not read.
local function is_unknown_format(name)
  return name == "vocab.json" or name == "tekken.json" or name:find "%.tiktoken$"
    or name:find "%.spm$"
end

--- in_folder(folder) -> the tokenizer or vocabulary in a folder; nil if it has none. Errors: as
--- nn.tokenizer().
function M.in_folder(folder)
  local function path(...)
    for _, name in ipairs {...} do
      if not files.exists(files.join(folder, name)) then return nil end
    end
    return files.join(folder, (...))
  end
  local file = path "tokenizer.json"
  if file then return from_tokenizer_json(file) end
  file = path "vocabulary.json"
  if file then return from_characters(file) end
  file = path("vocab.json", "merges.txt")
  if file then return bpe_files.from_two_files(file, path "merges.txt") end
  for _, name in ipairs(sentencepiece.NAMES) do
    file = path(name)
    if file then
      return sentencepiece.new(files.read(file), name, folder_settings.read(folder))
    end
  end
  if path "vocab.txt" then return vocab_txt.read(folder) end
  for _, name in ipairs(files.list(folder) or {}) do
    if is_unknown_format(name) then
      lib.deny("%s: nnlua cannot read this tokenizer%s. If transformers has a fast class for it, "
               .. "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes a "
               .. "tokenizer.json", files.join(folder, name),
               name == "vocab.json" and " without a merges.txt" or "")
    end
  end
end

--- nn.tokenizer(path) -> tokenizer with :encode(text), :ids(text), :decode(ids), :save(folder),
--- :chat(messages), .size, .special (ids by text), .bos, .eos, .pad, .unk (ids, or nil). `path`: a
--- folder with tokenizer.json; with GPT-2's vocab.json and merges.txt; with SentencePiece's
--- tokenizer.model, spiece.model or sentencepiece.bpe.model; or with BERT's vocab.txt; or the path
--- of a tokenizer.json. nnlua reads the models BPE (byte-level, as of GPT-2, Llama 3 and Qwen; and
--- SentencePiece's, as of Llama 2), Unigram (T5) and WordPiece (BERT). It gives the ids of Hugging
--- Face's library tokenizers, and for a model file of SentencePiece those of the library
--- sentencepiece. Such a folder's tokenizer_config.json (tokenizer_class, add_bos_token, ...) and
--- added_tokens.json set the special tokens as transformers 5 does. For a folder with a saved
--- vocabulary, returns the vocabulary. Errors: missing or malformed files; what is not supported,
--- by name.
---     nn.train_tokenizer("hello hello", {size = 262}):save "words"
---     local tokenizer = nn.tokenizer "words"
---     tokenizer:decode(tokenizer:ids "hello")  --> "hello"
function M.tokenizer(path)
  arguments.need(type(path) == "string", "tokenizer", "the path", path, "a text is needed")
  if path:find "%.json$" then return from_tokenizer_json(path) end
  local tokenizer = M.in_folder(path)
  if tokenizer then return tokenizer end
  lib.deny("'%s' has no tokenizer: none of tokenizer.json, vocab.json and merges.txt, %s, "
           .. "vocab.txt%s", path, table.concat(sentencepiece.NAMES, ", "),
           files.list(path) and "" or "; there is no such folder")
end

local GPT2_SIZE = 50257

-- Folders that may contain GPT-2's tokenizer: `near`, gpt2 in it and in the working folder, and
-- Hugging Face's cache.
local function gpt2_folders(near)
  local list = {near, files.join(near, "gpt2"), "gpt2"}
  local cache = os.getenv "HF_HOME" or files.join(os.getenv "HOME" or "", ".cache/huggingface")
  for _, name in ipairs {"models--openai-community--gpt2", "models--gpt2"} do
    local snapshots = files.join(cache, "hub/" .. name .. "/snapshots")
    for _, snapshot in ipairs(files.list(snapshots) or {}) do
      list[#list + 1] = files.join(snapshots, snapshot)
    end
  end
  return list
end

-- Whether a folder may contain a tokenizer, and not a vocabulary of nnlua.
local function is_candidate(folder)
  return files.list(folder) and not files.exists(files.join(folder, "vocabulary.json"))
end

--- find_gpt2(near) -> the folder with GPT-2's tokenizer that is found first: `near` or gpt2 in it,
--- gpt2 in the working folder, Hugging Face's cache; nil if none.
function M.find_gpt2(near)
  for _, folder in ipairs(gpt2_folders(near)) do
    if is_candidate(folder) then
      local good, tokenizer = lib.attempt(M.tokenizer, folder)
      if good and tokenizer.size == GPT2_SIZE then return folder end
    end
  end
end

return M
