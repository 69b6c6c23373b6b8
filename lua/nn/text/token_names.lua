-- The special tokens that the files beside a tokenizer.json name, as transformers reads them.
local json = require "nn.io.json"
local lib = require "nn.base.capi"

local M = {}
local token_names = {"bos_token", "eos_token", "pad_token", "unk_token", "cls_token", "sep_token",
                     "mask_token"}
local list_names = {"additional_special_tokens", "extra_special_tokens"}

-- The text of a token, a text or {content=}; nil: it is neither.
local function text_of(token)
  if type(token) == "table" then token = token.content end
  return type(token) == "string" and token or nil
end

local function is_null(value) return value == nil or type(value) == "userdata" end

local function shown(value)
  if type(value) ~= "table" then return tostring(value) end
  return #value > 0 and "a list" or "an object without content"
end

local function object(text, path)
  local value = json.object(text, path)
  if #value > 0 then lib.deny("%s: it is a list; an object is needed", path) end
  return value
end

-- Errors: added_tokens_decoder is not {id = {content=}}.
local function check_decoder(decoder, path)
  if type(decoder) ~= "table" then
    lib.deny("%s: added_tokens_decoder is %s; an object is needed", path, is_null(decoder)
             and "null" or tostring(decoder))
  end
  for id, token in pairs(decoder) do
    if type(token) ~= "table" or not text_of(token) then
      lib.deny("%s: token %s of added_tokens_decoder is no object with a text as its content", path,
               tostring(id))
    end
  end
end

--- settings(config, map, path) -> the entries of tokenizer_config.json with those of
--- special_tokens_map.json, which replace them, null too; but only added_tokens_decoder counts
--- where the first has it. config, map: the texts of the files, or nil; path: of the first. Errors:
--- entries of the wrong kind.
function M.settings(config, map, path)
  local map_path = path:gsub("tokenizer_config%.json$", "special_tokens_map.json")
  local all, from = config and object(config, path) or {}, {}
  local decoder = all.added_tokens_decoder
  if decoder ~= nil then check_decoder(decoder, path) end
  for name, value in pairs(map and decoder == nil and object(map, map_path) or {}) do
    all[name], from[name] = value, map_path
  end
  for _, name in ipairs(token_names) do
    local value = all[name]
    if not is_null(value) and not text_of(value) then
      lib.deny("%s: %s is %s; a text, or an object with a text as its content, is needed",
               from[name] or path, name, shown(value))
    end
  end
  for _, name in ipairs(list_names) do
    local value = all[name]
    if not is_null(value) and type(value) ~= "table" then
      lib.deny("%s: %s is %s; a list is needed", from[name] or path, name, shown(value))
    end
  end
  return all
end

--- texts(settings) -> the texts of the special tokens by name, such as {bos_token = "<s>"}.
function M.texts(settings)
  local texts = {}
  for _, name in ipairs(token_names) do texts[name] = text_of(settings[name]) end
  return texts
end

-- The texts of all tokens that the files name.
local function all_texts(settings, added)
  local texts = {}
  local function add(token)
    local text = text_of(token)
    if text and text ~= "" then texts[#texts + 1] = text end
  end
  for name, value in pairs(settings) do
    if name:find "_token$" then add(value) end
  end
  for _, name in ipairs(list_names) do
    local list = settings[name]
    for _, token in pairs(type(list) == "table" and list or {}) do add(token) end
  end
  for _, token in pairs(settings.added_tokens_decoder or {}) do add(token) end
  for text in pairs(settings.added_tokens_decoder and {} or added) do add(text) end
  table.sort(texts)
  return texts
end

-- The name of a flag that added_tokens_decoder sets otherwise for a token of tokenizer.json.
local function other_flag(token, known)
  for _, flag in ipairs {"lstrip", "rstrip", "single_word", "normalized"} do
    if token[flag] ~= nil and token[flag] ~= known[flag] then return flag end
  end
end

--- warn(settings, added, tokens, path): warns once if these files change the added tokens, and so
--- the ids of texts, in transformers. added: the ids of added_tokens.json by text; tokens: the
--- added_tokens of tokenizer.json; path: of that.
function M.warn(settings, added, tokens, path)
  local known, what = {}, nil
  for _, token in ipairs(tokens) do known[token.content] = token end
  for _, text in ipairs(all_texts(settings, added)) do
    if not known[text] then
      what = ("'%s', which is not among its added_tokens"):format(lib.shortened(text, 60))
      break
    end
  end
  for _, token in pairs(settings.added_tokens_decoder or {}) do
    local flag = known[token.content] and other_flag(token, known[token.content])
    if flag and not what then
      what = ("'%s' with another %s"):format(lib.shortened(token.content, 60), flag)
    end
  end
  if what then
    lib.warn_once(("%s: the files beside it name %s; transformers adds it, so its ids can differ "
                   .. "from those here; AutoTokenizer.from_pretrained(FOLDER).save_pretrained("
                   .. "FOLDER) writes it into tokenizer.json"):format(path, what))
  end
end

return M
