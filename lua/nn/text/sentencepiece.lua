-- Tokenizers of SentencePiece's model files, which give the ids of the library sentencepiece. What
-- a folder adds to the model are the tokens and settings of a tokenizer_class of transformers.
local base64 = require "nn.base.base64"
local chat = require "nn.text.chat"
local decoders = require "nn.text.decoders"
local encoder = require "nn.text.encoder"
local folder_settings = require "nn.text.folder_settings"
local lib = require "nn.base.capi"
local native = require "nn.text.native"
local sentencepiece_file = require "nn.text.sentencepiece_file"

local M = {NAMES = {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"}}
local TYPES = sentencepiece_file.TYPES
local FALLBACK = 2                                 -- a flag of models (bindings/nn_text.h)
local ADDED_FLAGS = {special = 1, single_word = 4, lstrip = 8, rstrip = 16}
local WORD_MARK = "\226\150\129"

local function need(condition, path, text, ...)
  if not condition then lib.deny("%s: " .. text, path, ...) end
end

-- ### Classes of tokenizers

-- T5's: sentinels for spans behind the tokens of the model, the last one first.
local function add_sentinels(model, config, path)
  local count = config.extra_ids == nil and 100 or config.extra_ids
  need(type(count) == "number" and count % 1 == 0 and count >= 0 and count < 1e5, path,
       "extra_ids is %s; a whole number is needed", tostring(count))
  for i = count - 1, 0, -1 do
    local name = ("<extra_id_%d>"):format(i)
    table.insert(model.symbols, name)
    table.insert(model.scores, 0)
    table.insert(model.types, TYPES.control)
  end
end

-- Numbers tokens as fairseq does: tokens of its own instead of the first `count`, and <mask> at the
-- end. The token 3 is the unknown one.
local function renumbered(count, first)
  return function(model, _, path)
    need(model.unknown < count and #model.symbols >= count, path,
         "<unk> is the token %d of the model; this tokenizer_class needs one before %d",
         model.unknown, count)
    local new = {symbols = {}, scores = {}, types = {}}
    local function add(symbol, score, type)
      local id = #new.symbols + 1
      new.symbols[id], new.scores[id], new.types[id] = symbol, score, type
    end
    for i, symbol in ipairs(first) do add(symbol, 0, i == 4 and TYPES.unknown or TYPES.control) end
    for i = count + 1, #model.symbols do add(model.symbols[i], model.scores[i], model.types[i]) end
    add("<mask>", 0, TYPES.control)
    for name, list in pairs(new) do model[name] = list end
    model.unknown = 3
  end
end

local function t5_template(ids)
  local last = {ids = {ids.eos}, type = 0}
  return {single = {{text = "A", type = 0}, last},
          pair = {{text = "A", type = 0}, last, {text = "B", type = 0}, last}}
end

local function fairseq_template(ids)
  local first, last = {ids = {ids.bos}, type = 0}, {ids = {ids.eos}, type = 0}
  local a, b = {text = "A", type = 0}, {text = "B", type = 0}
  return {single = {first, a, last}, pair = {first, a, last, last, b, last}}
end

-- Those tokens around a text for which tokenizer_config.json asks.
local function plain_template(ids, config)
  local function around(name, number)
    local first = config.add_bos_token == true and ids.bos
    local last = config.add_eos_token == true and ids.eos
    return {ids = first and {first} or {}, type = number}, {text = name, type = number},
           {ids = last and {last} or {}, type = number}
  end
  local first, a, last = around("A", 0)
  local pair = {first, a, last, around("B", 1)}
  return {single = {first, a, last}, pair = pair}
end

local fairseq_names = {bos_token = "<s>", eos_token = "</s>", unk_token = "<unk>",
                       sep_token = "</s>", pad_token = "<pad>", cls_token = "<s>",
                       mask_token = {content = "<mask>", lstrip = true}}

-- change(model, config, path): of the vocabulary; names: of special tokens; template(ids, config):
-- as processors.new() makes it.
local classes = {
  Llama = {names = {bos_token = "<s>", eos_token = "</s>", unk_token = "<unk>"},
           template = plain_template},
  Gemma = {names = {bos_token = "<bos>", eos_token = "<eos>", unk_token = "<unk>",
                    pad_token = "<pad>", mask_token = "<mask>"}, template = plain_template},
  T5 = {names = {eos_token = "</s>", unk_token = "<unk>", pad_token = "<pad>"},
        change = add_sentinels, template = t5_template},
  XLMRoberta = {names = fairseq_names, template = fairseq_template,
                change = renumbered(3, {"<s>", "<pad>", "</s>", "<unk>"})},
  Camembert = {names = fairseq_names, template = fairseq_template, change = renumbered(1, {
    "<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"})},
  Generic = {names = {}, template = plain_template},
}
local class_names = {LlamaTokenizer = "Llama", GemmaTokenizer = "Gemma", T5Tokenizer = "T5",
                     MT5Tokenizer = "T5", XLMRobertaTokenizer = "XLMRoberta",
                     CamembertTokenizer = "Camembert",
                     PreTrainedTokenizer = "Generic", TokenizersBackend = "Generic"}
local model_types = {llama = "Llama", mistral = "Llama", mixtral = "Llama", gemma = "Gemma",
                     gemma2 = "Gemma", t5 = "T5", mt5 = "T5", umt5 = "T5",
                     ["xlm-roberta"] = "XLMRoberta", camembert = "Camembert"}
local written_names = {Generic = "PreTrainedTokenizerFast"}

-- The name in `classes`. The class is that of tokenizer_config.json, or the one of the model_type
-- in config.json; else Llama's for BPE, and none for a unigram model.
local function class_of(settings, model, path)
  local given, model_type = settings.class, settings.model_type
  if given then
    local name = class_names[given:gsub("Fast$", "")]
    need(name, path, "the tokenizer_class %s may give the tokens of a SentencePiece model other "
         .. "ids, and nnlua knows only those of Llama, Gemma, T5, XLM-R and CamemBERT; "
         .. "let AutoTokenizer of transformers read the folder, and save_pretrained() write "
         .. "tokenizer.json", given)
    return name
  end
  if not model_type then return model.kind == "bpe" and "Llama" or "Generic" end
  need(model_types[model_type], path, "config.json has the model_type %s, whose tokenizer nnlua "
       .. "does not know; set tokenizer_class in tokenizer_config.json to the tokenizer's class, "
       .. "such as LlamaTokenizer", model_type)
  return model_types[model_type]
end

-- ### Native parts

local function flags(...)
  local sum = 0
  for i = 1, select("#", ...) do sum = sum + (select(i, ...) and 2 ^ (i - 1) or 0) end
  return sum
end

-- The native tokenizer. Special tokens are not found in ordinary text, also where the model has
-- them as user-defined ones.
local function native_of(model, added, first_only, path)
  local symbols, types, scores, kept = {}, {}, {}, {}
  for id = 1, #added.symbols do
    local text, type = model.symbols[id], model.types[id]
    local entry = added.by_text[added.symbols[id]]
    if type == TYPES.user_defined and entry and entry.special then type = TYPES.control end
    if type == TYPES.user_defined then kept[#kept + 1] = text .. "\0" end
    symbols[id], types[id], scores[id] = text or "", type or TYPES.control, model.scores[id] or 0
  end
  local ref = native.new({kind = "sentencepiece_" .. model.kind, symbols = symbols, types = types,
                          scores = scores, unknown = model.unknown,
                          flags = model.trainer.byte_fallback and FALLBACK or 0}, path)
  local how = model.normalizer
  native.step(ref, {kind = "SentencePiece", text = how.precompiled_charsmap,
                    content = table.concat(kept),
                    flags = flags(how.add_dummy_prefix, how.remove_extra_whitespaces,
                                  how.escape_whitespaces, model.trainer.treat_whitespace_as_suffix,
                                  first_only)}, path)
  for _, token in ipairs(added.list) do
    local sum = 0
    for name, flag in pairs(ADDED_FLAGS) do sum = sum + (token[name] and flag or 0) end
    native.added(ref, token.content, token.id, sum, path)
  end
  return ref
end

local function decoder_of(model, path)
  local how, steps = model.normalizer, {}
  if how.escape_whitespaces then
    steps[1] = {type = "Replace", pattern = {String = WORD_MARK}, content = " "}
  end
  if model.trainer.byte_fallback then steps[#steps + 1] = {type = "ByteFallback"} end
  steps[#steps + 1] = {type = "Fuse"}
  local trims = how.remove_extra_whitespaces
  if how.add_dummy_prefix or trims then
    steps[#steps + 1] = {type = "Strip", content = " ", start = trims and 99 or 1, stop = 0}
  end
  return decoders.new(steps, path)
end

-- ### The whole

--- new(bytes, name, settings) -> tokenizer of the bytes of a model file. name: of the file;
--- settings: of the files beside it (folder_settings.lua). Errors: damaged files; what is not
--- supported.
function M.new(bytes, name, settings)
  local path, config = settings.path(name), settings.config
  local config_path = settings.path "tokenizer_config.json"
  local model = sentencepiece_file.parse(bytes, path)
  local class_name = class_of(settings, model, path)
  local class = classes[class_name]
  if class.change then class.change(model, config, config_path) end
  local added = folder_settings.added_tokens(config_path, model.symbols)
  for id, type in ipairs(model.types) do
    if type == TYPES.control or type == TYPES.unknown then
      added:declare(model.symbols[id], id - 1, true)
    end
  end
  added:declare_all(settings, class.names)
  if config.add_prefix_space == false then model.normalizer.add_dummy_prefix = false end
  local first_only = class_name == "Llama" and config.legacy ~= true
  local self = encoder.new {
    kind = model.kind, symbols = added.symbols, special = added:special(),
    ref = native_of(model, added, first_only, path), decoder = decoder_of(model, path)}
  -- With the class, so that a folder without config.json gives the same tokenizer.
  local written = written_names[class_name] or class_name .. "Tokenizer"
  chat.configure(self, folder_settings.completed(settings, {tokenizer_class = written}),
                 settings.texts["chat_template.jinja"], config_path,
                 folder_settings.texts_of(settings, class.names))
  self.template = class.template(self, config)
  self.model_file = {name = name, bytes = bytes, texts = settings.texts}
  return self
end

-- Files beside the model that add_files() and state() keep as they are.
local kept = {map = "special_tokens_map.json", added = "added_tokens.json"}

--- add_files(tokenizer, texts): adds the model file and the files of added tokens to the texts by
--- name, as they were read.
function M.add_files(self, texts)
  local file = self.model_file
  texts[file.name] = file.bytes
  for _, name in pairs(kept) do texts[name] = file.texts[name] end
end

--- state(tokenizer) -> {kind=, model=, name=, map=, added=, config=, chat_template=}, for
--- checkpoints: the model file in base64, its name, and the texts of the files beside it.
function M.state(self)
  local file = self.model_file
  local state = {kind = self.kind, model = base64.encode(file.bytes), name = file.name,
                 config = self.config_source, chat_template = self.template_source}
  for key, name in pairs(kept) do state[key] = file.texts[name] end
  return state
end

--- from_state(state, name) -> tokenizer. name: for errors.
function M.from_state(state, name)
  local bytes = type(state.model) == "string" and base64.decode(state.model)
  local is_known = false
  for _, known in ipairs(M.NAMES) do is_known = is_known or known == state.name end
  need(bytes and is_known, name, "its SentencePiece model is damaged")
  local texts = {["tokenizer_config.json"] = state.config,
                 ["chat_template.jinja"] = state.chat_template}
  for key, file in pairs(kept) do texts[file] = state[key] end
  return M.new(bytes, state.name, folder_settings.parsed(texts, function() return name end))
end

return M
