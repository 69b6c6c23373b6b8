-- The settings beside a tokenizer.json: the names of special tokens, and the chat template, which
-- writes a conversation as the text that a model was trained on.
local json = require "nn.io.json"
local lib = require "nn.base.capi"

local M = {}
local token_names = {"bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token",
                     "mask_token"}

-- The texts of the special tokens that tokenizer_config.json names, such as {bos_token = "<s>"}.
local function token_texts(config)
  local texts = {}
  for _, name in ipairs(token_names) do
    local value = config[name]
    if type(value) == "table" then value = value.content end
    texts[name] = type(value) == "string" and value or nil
  end
  return texts
end

-- The templates in tokenizer_config.json by name: a text, or a list of {name=, template=}.
local function templates_in(config, path)
  local given, out = config.chat_template, {}
  if type(given) == "string" then return {default = given} end
  if type(given) ~= "table" then return out end
  for _, entry in ipairs(given) do
    local good = type(entry) == "table" and type(entry.name) == "string"
      and type(entry.template) == "string"
    if not good then
      lib.fail("%s: an entry of chat_template is not {name, template}", path)
    end
    out[entry.name] = entry.template
  end
  return out
end

--- configure(tokenizer, config, template, path) -> tokenizer with the settings of a
--- tokenizer_config.json and a chat_template.jinja (texts, or nil). path: of the first, for errors.
function M.configure(tokenizer, config, template, path)
  tokenizer.config_source, tokenizer.template_source = config, template
  local parsed = config and json.object(config, path) or {}
  local texts = token_texts(parsed)
  tokenizer.token_texts, tokenizer.chat_templates = texts, templates_in(parsed, path)
  if template then tokenizer.chat_templates.default = template end
  local ids = {}
  for i, symbol in ipairs(tokenizer.symbols) do ids[symbol] = ids[symbol] or i - 1 end
  for name, id in pairs(tokenizer.special) do ids[name] = id end
  for _, name in ipairs {"bos", "eos", "pad", "unk"} do
    local text = texts[name .. "_token"]
    tokenizer[name] = text and ids[text] or nil
  end
  return tokenizer
end

return M
