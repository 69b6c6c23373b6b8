-- The normalizers and pre-tokenizers of tokenizer.json, as steps of engine/text.
local base64 = require "nn.base.base64"
local lib = require "nn.base.capi"

local M = {}

--- is_set(value) -> whether a file sets a value: it is not missing, and not null.
function M.is_set(value) return value ~= nil and type(value) ~= "userdata" end

--- shown(value) -> the text of a value in a JSON file, for errors.
function M.shown(value)
  return type(value) == "userdata" and "null" or value == nil and "missing" or tostring(value)
end

local kinds = {normalizers = "normalizer", pretokenizers = "pre_tokenizer",
               processors = "post_processor", decoders = "decoder"}

-- The steps in a step of type Sequence, and in those within it, in their order.
local function flatten(step, key, list, path)
  if not M.is_set(step) then return list end
  if type(step) ~= "table" then
    lib.deny("%s: a step is %s; an object with a type is needed", path, M.shown(step))
  end
  if not M.is_set(step.type) then lib.deny("%s: a %s has no type", path, kinds[key]) end
  if step.type ~= "Sequence" then
    list[#list + 1] = step
    return list
  end
  if type(step[key]) ~= "table" then lib.deny("%s: a Sequence has no list '%s'", path, key) end
  for _, inner in ipairs(step[key]) do flatten(inner, key, list, path) end
  return list
end

--- flat(step, key, path) -> the list of the steps in `step` (nil or null: none). key: the name of
--- the list in a Sequence. Errors, with `path`: a step that is no object.
function M.flat(step, key, path) return flatten(step, key, {}, path) end

local function flags(values)
  local sum = 0
  for i, value in ipairs(values) do sum = sum + (value and 2 ^ (i - 1) or 0) end
  return sum
end

-- Whether a setting is true; `default`, unless that is nil, if the file has none.
local function truth(step, need, name, default)
  local value = step[name]
  if value == nil then value = default end
  need(type(value) == "boolean", name .. " = true or false")
  return value
end

-- The text of a pattern, and whether it is a regular expression.
local function pattern(step, need)
  local given = type(step.pattern) == "table" and step.pattern or {}
  local text = given.String or given.Regex
  need(type(text) == "string", "pattern")
  return text, given.Regex ~= nil
end

local no_settings = function() return {} end

local normalizers = {NFC = no_settings, NFD = no_settings, NFKC = no_settings, NFKD = no_settings,
                     Lowercase = no_settings, StripAccents = no_settings, Nmt = no_settings}

function normalizers.Strip(step, need)
  return {flags = flags {truth(step, need, "strip_left"), truth(step, need, "strip_right")}}
end

function normalizers.Prepend(step, need)
  need(type(step.prepend) == "string", "prepend")
  return {text = step.prepend}
end

function normalizers.Replace(step, need)
  local text, is_regex = pattern(step, need)
  need(type(step.content) == "string", "content")
  return {text = text, content = step.content, flags = flags {is_regex}}
end

function normalizers.Precompiled(step, need)
  local map = type(step.precompiled_charsmap) == "string"
    and base64.decode(step.precompiled_charsmap)
  need(map and map ~= "", "precompiled_charsmap in base64")
  return {text = map}
end

function normalizers.BertNormalizer(step, need)
  local lower, strip = truth(step, need, "lowercase"), step.strip_accents
  if not M.is_set(strip) then strip = lower end
  need(type(strip) == "boolean", "strip_accents = true, false or null")
  return {flags = flags {truth(step, need, "clean_text"),
                         truth(step, need, "handle_chinese_chars"), strip, lower}}
end

local splitters = {BertPreTokenizer = no_settings, Whitespace = no_settings,
                   WhitespaceSplit = no_settings}

function splitters.ByteLevel(step, need)
  return {flags = flags {truth(step, need, "add_prefix_space"),
                         truth(step, need, "use_regex", true)}}
end

function splitters.Split(step, need)
  local text, is_regex = pattern(step, need)
  need(type(step.behavior) == "string", "behavior")
  return {text = text, content = step.behavior,
          flags = flags {is_regex, truth(step, need, "invert")}}
end

function splitters.Metaspace(step, need)
  need(type(step.replacement) == "string", "replacement")
  local scheme = step.prepend_scheme == nil and "always" or step.prepend_scheme
  need(type(scheme) == "string", "prepend_scheme")
  need(step.add_prefix_space ~= false or scheme == "never",
       "prepend_scheme = never, since add_prefix_space is false")
  return {text = step.replacement, content = scheme,
          flags = flags {truth(step, need, "split", true)}}
end

function splitters.Digits(step, need)
  return {flags = flags {truth(step, need, "individual_digits")}}
end

function splitters.Punctuation(step, need)
  need(step.behavior == nil or type(step.behavior) == "string", "behavior")
  return {content = step.behavior or "Isolated"}
end

function splitters.CharDelimiterSplit(step, need)
  need(type(step.delimiter) == "string", "delimiter")
  return {text = step.delimiter}
end

local function translated(list, makers, what, path, splits)
  local out = {}
  for i, step in ipairs(list) do
    local name = M.shown(step.type)
    local maker = makers[step.type]
    if not maker then lib.deny("%s: the %s '%s' is not supported", path, what, name) end
    out[i] = maker(step, function(good, setting)
      if not good then lib.deny("%s: the %s %s needs %s", path, what, name, setting) end
    end)
    out[i].kind, out[i].splits = name, splits
  end
  return out
end

--- normalizers(step, path), splitters(step, path) -> a list of steps for native.step(). step: a
--- parsed normalizer or pre_tokenizer of a tokenizer.json, or nil. Errors, with `path`: a kind that
--- is not supported; missing settings.
function M.normalizers(step, path)
  return translated(M.flat(step, "normalizers", path), normalizers, "normalizer", path)
end

function M.splitters(step, path)
  return translated(M.flat(step, "pretokenizers", path), splitters, "pre_tokenizer", path, true)
end

return M
