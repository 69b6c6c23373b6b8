-- BERT's WordPiece from vocab.txt, one token a line; tokenizer_config.json has its settings. It
-- becomes the tokenizer.json that transformers makes of it.
local chat = require "nn.text.chat"
local files = require "nn.io.files"
local folder_settings = require "nn.text.folder_settings"
local lib = require "nn.base.capi"
local reader = require "nn.text.reader"

local M = {}

local defaults = {unk_token = "[UNK]", sep_token = "[SEP]", pad_token = "[PAD]",
                  cls_token = "[CLS]", mask_token = "[MASK]"}
-- Classes of transformers with BERT's steps, and the types of models that have one of them.
local classes = {BertTokenizer = true, DistilBertTokenizer = true, ElectraTokenizer = true,
                 MobileBertTokenizer = true, ConvBertTokenizer = true, PreTrainedTokenizer = true,
                 TokenizersBackend = true}
local model_types = {bert = true, distilbert = true, electra = true, mobilebert = true,
                     convbert = true}

local function need(condition, path, text, ...)
  if not condition then lib.deny("%s: " .. text, path, ...) end
end

local function tokens_of(path)
  local symbols, lines, text = {}, {}, files.read(path)
  if text ~= "" and text:sub(-1) ~= "\n" then text = text .. "\n" end
  for line in text:gmatch "([^\n]*)\n" do
    local token = line:gsub("%s+$", "")
    need(not lines[token], path, "the lines %d and %d are the same token '%s'", lines[token] or 0,
         #symbols + 1, token)
    symbols[#symbols + 1] = token
    lines[token] = #symbols
  end
  need(#symbols > 0, path, "it has no tokens")
  return symbols
end

-- Whether a setting is true; `default` if the file has none.
local function truth(config, name, default)
  if type(config[name]) == "boolean" then return config[name] end
  return default
end

local function template(texts, added)
  local function token(name, kind)
    return {SpecialToken = {id = texts[name], type_id = kind}}
  end
  local function sequence(name, kind) return {Sequence = {id = name, type_id = kind}} end
  local cls, a, sep = token("cls_token", 0), sequence("A", 0), token("sep_token", 0)
  local special = {}
  for _, name in ipairs {"cls_token", "sep_token"} do
    local text = texts[name]
    special[text] = {id = text, ids = {added.by_text[text].id}, tokens = {text}}
  end
  return {type = "TemplateProcessing", single = {cls, a, sep},
          pair = {cls, a, sep, sequence("B", 1), token("sep_token", 1)}, special_tokens = special}
end

-- A parsed tokenizer.json.
local function content_of(symbols, settings, path)
  local config, texts = settings.config, folder_settings.texts_of(settings, defaults)
  local added = folder_settings.added_tokens(path, symbols)
  added:declare_all(settings, defaults)
  local vocab = {}
  for id, text in ipairs(symbols) do vocab[text] = id - 1 end
  for _, token in ipairs(added.list) do
    for _, name in ipairs {"special", "lstrip", "rstrip", "single_word"} do
      token[name] = token[name] == true
    end
    token.normalized = not token.special
  end
  table.sort(added.list, function(a, b) return a.id < b.id end)
  return {version = "1.0", added_tokens = added.list,
          normalizer = {type = "BertNormalizer", clean_text = true,
                        handle_chinese_chars = truth(config, "tokenize_chinese_chars", true),
                        strip_accents = truth(config, "strip_accents"),
                        lowercase = truth(config, "do_lower_case", true)},
          pre_tokenizer = {type = "BertPreTokenizer"},
          post_processor = template(texts, added),
          decoder = {type = "WordPiece", prefix = "##", cleanup = true},
          model = {type = "WordPiece", unk_token = texts.unk_token,
                   continuing_subword_prefix = "##", max_input_chars_per_word = 100,
                   vocab = vocab}}
end

--- read(folder) -> tokenizer of the folder's vocab.txt. Errors: a token twice; a tokenizer_class,
--- or without one a model_type, with other steps than BERT's.
function M.read(folder)
  local path, settings = files.join(folder, "vocab.txt"), folder_settings.read(folder)
  local config_path = settings.path "tokenizer_config.json"
  local class, model_type = settings.class, settings.model_type
  if class then
    need(classes[class:gsub("Fast$", "")], path, "the tokenizer_class is %s; nnlua reads a "
         .. "vocab.txt as that of a BertTokenizer", class)
  elseif model_type then
    need(model_types[model_type], path, "the model_type in config.json is %s; nnlua reads a "
         .. "vocab.txt as that of BERT", model_type)
  end
  local content = content_of(tokens_of(path), settings, config_path)
  local tokenizer = reader.from_json(content, path, files.json(content) .. "\n")
  local texts = folder_settings.texts_of(settings, defaults)
  texts.tokenizer_class = "BertTokenizer"
  local config = folder_settings.completed(settings, texts)
  return (chat.configure(tokenizer, config, settings.texts["chat_template.jinja"], config_path))
end

return M
