-- The settings and special tokens of tokenizers whose folder has no tokenizer.json: those in the
-- files that transformers writes beside a vocabulary.
local encoder = require "nn.text.encoder"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"

local M = {}

local NAMES = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
               "config.json", "chat_template.jinja"}
local token_names = {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
                     "mask_token"}

local function need(condition, path, text, ...)
  if not condition then lib.deny("%s: " .. text, path, ...) end
end

--- parsed(texts, path) -> {texts=, path=, config=, map=, added=, class=, model_type=}: the contents
--- of tokenizer_config.json, special_tokens_map.json and added_tokens.json, empty tables for
--- missing ones; the tokenizer_class of the first or of config.json, and the model_type of the
--- latter, each nil if it is no text. texts: of these files by name; path(name): of a file, for
--- errors.
function M.parsed(texts, path)
  local function object(name) return texts[name] and json.object(texts[name], path(name)) or {} end
  local function text(value) return type(value) == "string" and value or nil end
  local config, model = object "tokenizer_config.json", object "config.json"
  return {texts = texts, path = path, config = config, map = object "special_tokens_map.json",
          added = object "added_tokens.json", model_type = text(model.model_type),
          class = text(config.tokenizer_class) or text(model.tokenizer_class)}
end

--- read(folder) -> settings as parsed() returns them.
function M.read(folder)
  local texts = {}
  for _, name in ipairs(NAMES) do
    local path = files.join(folder, name)
    texts[name] = files.exists(path) and files.read(path) or nil
  end
  return M.parsed(texts, function(name) return files.join(folder, name) end)
end

local function is_set(value) return value ~= nil and type(value) ~= "userdata" end

local function text_of(token) return type(token) == "table" and token.content or token end

-- The named special token of the settings, or of a class's defaults {bos_token = token}; nil: none.
local function named(settings, defaults, name)
  for _, from in ipairs {settings.config, settings.map} do
    local token = from[name]
    if is_set(token) then
      -- The class knows more about its token than its text.
      return text_of(defaults[name]) == token and defaults[name] or token
    end
  end
  return defaults[name]
end

--- texts_of(settings, defaults) -> the texts of the named special tokens by name (bos_token, ...).
--- defaults: those of the tokenizer's class, texts or {content=, lstrip=}.
function M.texts_of(settings, defaults)
  local texts = {}
  for _, name in ipairs(token_names) do texts[name] = text_of(named(settings, defaults, name)) end
  return texts
end

--- completed(settings, fields) -> the text of tokenizer_config.json with those of `fields` (texts
--- by name) that it does not set.
function M.completed(settings, fields)
  local source = settings.texts["tokenizer_config.json"] or "{}"
  local missing = {}
  for _, name in ipairs(tables.sorted_keys(fields)) do
    if not is_set(settings.config[name]) then
      local field = ('"%s": %s'):format(name, files.json(fields[name])):gsub("%%", "%%%%")
      local changed, count = source:gsub('"' .. name .. '"%s*:%s*null', field, 1)
      source = changed
      if count == 0 then missing[#missing + 1] = field end
    end
  end
  if #missing == 0 then return source end
  local rest = next(settings.config) == nil and "" or ", "
  return (source:gsub("{", "{" .. table.concat(missing, ", ") .. rest, 1))
end

-- ### Tokens that are cut out of a text

local Added = {}
Added.__index = Added

--- added_tokens(path, symbols) -> added: {list= tokens {content=, id=, special=, lstrip=, rstrip=,
--- single_word=}, by_text=, symbols= texts of all tokens by id + 1}, at first none besides
--- `symbols`. path: for errors.
function M.added_tokens(path, symbols)
  local self = setmetatable({path = path, list = {}, by_text = {}, symbols = {}, ids = {}}, Added)
  for id, text in ipairs(symbols) do self.symbols[id], self.ids[text] = text, id - 1 end
  return self
end

--- added:declare(token, id, is_special): token: a text or {content=, special=, lstrip=, ...}; id:
--- nil for that of the vocabulary, or the next one. Flags of a later call hold, but a token stays
--- special. As in transformers, a new token gets the next id, also where the files state a later
--- one, with a warning. Errors: an id that contradicts the vocabulary.
function Added:declare(token, id, is_special)
  if type(token) == "string" then token = {content = token} end
  local text = type(token) == "table" and token.content
  need(type(text) == "string" and text ~= "", self.path, "a special token has no content")
  id = id or self.ids[text] or #self.symbols
  need(id % 1 == 0 and id >= 0 and id < encoder.LARGEST, self.path,
       "the added token '%s' has the id %s; a whole number below 2^20 is needed", text,
       tostring(id))
  if id > #self.symbols then
    lib.warn_once(("%s: the added token '%s' has the id %d there, but %d in transformers, which "
                   .. "counts on from the vocabulary"):format(self.path, text, id, #self.symbols))
    id = #self.symbols
  end
  need((self.ids[text] or id) == id, self.path, "the added token '%s' has the id %d, but %d in "
       .. "the vocabulary", text, id, self.ids[text])
  need((self.symbols[id + 1] or text) == text, self.path, "'%s' and '%s' have the id %d", text,
       self.symbols[id + 1], id)
  self.symbols[id + 1], self.ids[text] = text, id
  local entry = self.by_text[text]
  if not entry then
    entry = {content = text, id = id}
    self.list[#self.list + 1], self.by_text[text] = entry, entry
  end
  entry.special = entry.special or is_special or token.special == true
  for _, name in ipairs {"lstrip", "rstrip", "single_word"} do
    if token[name] ~= nil then entry[name] = token[name] == true end
  end
end

-- The tokens of tokenizer_config.json's added_tokens_decoder and of added_tokens.json, by id.
local function numbered(settings, path)
  local list, given = {}, settings.config.added_tokens_decoder
  for id, token in pairs(type(given) == "table" and given or {}) do
    list[#list + 1] = {tonumber(id), token}
  end
  for text, id in pairs(settings.added) do list[#list + 1] = {tonumber(id), text} end
  for i = 1, #list do
    need(type(list[i][1]) == "number", path, "the id of an added token is no number")
  end
  table.sort(list, function(a, b) return a[1] < b[1] end)
  return list
end

--- added:declare_all(settings, defaults): the tokens of the files, then the named special tokens
--- that these or the class have.
function Added:declare_all(settings, defaults)
  for _, pair in ipairs(numbered(settings, self.path)) do self:declare(pair[2], pair[1]) end
  for _, name in ipairs(token_names) do
    local token = named(settings, defaults, name)
    if is_set(token) then self:declare(token, nil, true) end
  end
  for _, from in ipairs {settings.config, settings.map} do
    for _, key in ipairs {"additional_special_tokens", "extra_special_tokens"} do
      for _, token in ipairs(type(from[key]) == "table" and from[key] or {}) do
        self:declare(token, nil, true)
      end
    end
  end
end

--- added:special() -> the ids of the special tokens by text.
function Added:special()
  local ids = {}
  for _, token in ipairs(self.list) do
    if token.special then ids[token.content] = token.id end
  end
  return ids
end

return M
