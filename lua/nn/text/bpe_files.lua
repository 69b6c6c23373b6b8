-- Writes the files of all tokenizers, and reads GPT-2's vocab.json and merges.txt. reader.lua reads
-- tokenizer.json.
local byte_names = require "nn.text.byte_names"
local encoder = require "nn.text.encoder"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local reader = require "nn.text.reader"
local sentencepiece = require "nn.text.sentencepiece"
local tables = require "nn.base.tables"

local M = {}
local Tokenizer = encoder.Tokenizer
local name_of = byte_names.of

-- ### Writing

-- Joins JSON entries with one per line, so that editors can show files of 50,000 tokens.
local function json_lines(open, entries, close)
  return open .. "\n" .. table.concat(entries, ",\n") .. "\n" .. close
end

local function added_token(text, id)
  return ('{"id":%d,"content":%s,"single_word":false,"lstrip":false,"rstrip":false,'
          .. '"normalized":false,"special":true}'):format(id, files.json(text))
end

-- Vocabulary and merges as lists of JSON texts, and special tokens sorted by id.
local function json_parts(self)
  local vocab, merges, added = {}, {}, {}
  for i, symbol in ipairs(self.symbols) do
    local name = self.special[symbol] == i - 1 and symbol or name_of(symbol)
    vocab[i] = files.json(name) .. ":" .. i - 1
  end
  for i = 1, #self.merges / 3 do
    local left, right = self.merges[3 * i - 2], self.merges[3 * i - 1]
    merges[i] = name_of(self.symbols[left + 1]) .. " " .. name_of(self.symbols[right + 1])
  end
  for text, id in pairs(self.special) do added[#added + 1] = {text = text, id = id} end
  table.sort(added, function(a, b) return a.id < b.id end)
  for i, token in ipairs(added) do added[i] = added_token(token.text, token.id) end
  return vocab, merges, added
end

local BYTE_LEVEL = '{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,'
  .. '"use_regex":true}'

-- The text of a tokenizer.json of GPT-2's kind.
local function generated(self)
  local vocab, merges, added = json_parts(self)
  for i, line in ipairs(merges) do merges[i] = files.json(line) end
  return table.concat {
    '{"version":"1.0","truncation":null,"padding":null,\n"added_tokens":[',
    table.concat(added, ","), '],\n"normalizer":null,\n"pre_tokenizer":', BYTE_LEVEL,
    ',\n"post_processor":', BYTE_LEVEL, ',\n"decoder":', BYTE_LEVEL, ',\n"model":',
    '{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",',
    '"end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":false,\n',
    json_lines('"vocab":{', vocab, "},\n"), json_lines('"merges":[', merges, "]}}\n")}
end

--- tokenizer:json() -> the text of a tokenizer.json for the library tokenizers. Errors: the
--- tokenizer was read from a model file of SentencePiece, which save() writes again.
---     #nn.train_tokenizer("aaaa", {size = 258}):json() > 1000  --> true
function Tokenizer:json()
  if self.model_file then
    lib.misuse("json: this tokenizer was read from %s, which save() writes again",
               self.model_file.name)
  end
  return self.source or generated(self)
end

-- Adds vocab.json and merges.txt to the texts by name, for a tokenizer of GPT-2's kind; returns the
-- entries of tokenizer_config.json.
local function gpt2_files(self, texts)
  local vocab, merges = json_parts(self)
  texts["vocab.json"] = json_lines("{", vocab, "}\n")
  texts["merges.txt"] = "#version: 0.2\n" .. table.concat(merges, "\n") .. "\n"
  local config = {tokenizer_class = "GPT2Tokenizer", add_prefix_space = false}
  local last = self.special["<|endoftext|>"] and "<|endoftext|>"
  config.bos_token, config.eos_token, config.unk_token = last, last, last
  return config
end

local NAMES = {"tokenizer.json", "vocabulary.json", "vocab.json", "merges.txt", "vocab.txt",
               "added_tokens.json", "special_tokens_map.json", "chat_template.jinja",
               unpack(sentencepiece.NAMES)}

-- The texts of the tokenizer's files by name.
local function contents(self)
  local out, config = {["chat_template.jinja"] = self.template_source,
                       ["special_tokens_map.json"] = self.map_source}, nil
  if self.model_file then
    sentencepiece.add_files(self, out)
  else
    out["tokenizer.json"] = self:json()
    config = self.source and {tokenizer_class = "PreTrainedTokenizerFast"} or gpt2_files(self, out)
  end
  out["tokenizer_config.json"] = self.config_source or files.json(config, "") .. "\n"
  return out
end

--- tokenizer:save(folder): writes tokenizer.json and tokenizer_config.json, for AutoTokenizer of
--- transformers; for a tokenizer of GPT-2's kind also vocab.json and merges.txt. A tokenizer that
--- was read from tokenizer.json or from a model file of SentencePiece is written as it was; the
--- latter without a tokenizer.json. Errors: failures of the disk.
---     nn.train_tokenizer("to be or not to be", {size = 260}):save "my-tokenizer"
---     nn.tokenizer("my-tokenizer").size  --> 260
function Tokenizer:save(folder)
  local texts = contents(self)
  files.make_folder(folder, "the tokenizer's folder")
  local order = tables.sorted_keys(texts)
  if texts["tokenizer.json"] then table.insert(order, 1, "tokenizer.json") end  -- read first
  for i, name in ipairs(order) do
    if i == 1 or name ~= order[1] then files.write_in(folder, name, texts[name]) end
  end
  for _, name in ipairs(NAMES) do                                -- of another tokenizer
    if not texts[name] then files.remove(files.join(folder, name)) end
  end
end

--- tokenizer:state() -> {kind="bpe", json=}: the tokenizer as a checkpoint stores it.
---     nn.train_tokenizer("aaaa", {size = 258}):state().kind  --> "bpe"
function Tokenizer:state()
  if self.model_file then return sentencepiece.state(self) end
  return {kind = self.kind, json = self:json(), config = self.config_source,
          chat_template = self.template_source, map = self.map_source}
end

-- ### Reading

local BYTES = {type = "ByteLevel", add_prefix_space = false, use_regex = true}

local function need(condition, path, text, ...)
  if not condition then lib.deny("%s: " .. text, path, ...) end
end

--- from_two_files(vocab_path, merges_path) -> tokenizer of a vocab.json and a merges.txt.
function M.from_two_files(vocab_path, merges_path)
  local vocab, list, number = json.read(vocab_path), {}, 0
  for line in files.read(merges_path):gmatch "([^\r\n]*)\r?\n?" do
    number = number + 1
    if line ~= "" and not (number == 1 and line:find "^#version") then
      local left, right = line:match "^(%S+) (%S+)$"
      need(left, merges_path, "line %d is not a pair of tokens", number)
      list[#list + 1] = {left, right}
    end
  end
  local added = {}
  for name, id in pairs(vocab) do
    if type(name) == "string" and name:find "^<|.*|>$" then
      added[#added + 1] = {content = name, id = id}
    end
  end
  local added_path = vocab_path:gsub("vocab%.json$", "added_tokens.json")
  if files.exists(added_path) then
    for name, id in pairs(json.read(added_path)) do
      need(type(name) == "string" and name ~= "", added_path, "it is a list, not an object")
      added[#added + 1] = {content = name, id = id}
    end
  end
  for _, token in ipairs(added) do
    token.special = true
    token.single_word, token.lstrip, token.rstrip, token.normalized = false, false, false, false
  end
  local function id_of(token) return tonumber(token.id) or 0 end
  table.sort(added, function(a, b) return id_of(a) < id_of(b) end)
  return reader.from_json({added_tokens = added, pre_tokenizer = BYTES, decoder = BYTES,
                           model = {type = "BPE", vocab = vocab, merges = list}}, vocab_path)
end

return M
