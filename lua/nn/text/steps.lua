-- The normalizers and pre-tokenizers of tokenizer.json, as steps of engine/text.
local base64 = require "nn.base.base64"
local lib = require "nn.base.capi"

local M = {}

--- is_set(value) -> whether a file sets a value: it is not missing, and not null.
function M.is_set(value) return value ~= nil and type(value) ~= "userdata" end

-- The steps in a step of type Sequence, and in those within it, in their order.
local function flatten(step, key, list, path)
  if not M.is_set(step) then return list end
  if type(step) ~= "table" then
    lib.deny("%s: a step is %s; an object with a type is needed", path, tostring(step))
  end
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

-- Whether a setting is true; `default` if the file has none.
local function truth(step, name, default)
  if not M.is_set(step[name]) then return default end
  return step[name] == true
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

function normalizers.Strip(step)
  return {flags = flags {truth(step, "strip_left", true), truth(step, "strip_right", true)}}
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

function normalizers.BertNormalizer(step)
  local lower = truth(step, "lowercase", true)
  return {flags = flags {truth(step, "clean_text", true), truth(step, "handle_chinese_chars", true),
                         truth(step, "strip_accents", lower), lower}}
end

local splitters = {BertPreTokenizer = no_settings, Whitespace = no_settings,
                   WhitespaceSplit = no_settings}

function splitters.ByteLevel(step)
  return {flags = flags {truth(step, "add_prefix_space", true), truth(step, "use_regex", true)}}
end

function splitters.Split(step, need)
  local text, is_regex = pattern(step, need)
  need(type(step.behavior) == "string", "behavior")
  return {text = text, content = step.behavior,
          flags = flags {is_regex, truth(step, "invert", false)}}
end

function splitters.Metaspace(step, need)
  need(type(step.replacement) == "string", "replacement")
  local scheme = M.is_set(step.prepend_scheme) and step.prepend_scheme or "always"
  if step.add_prefix_space == false then scheme = "never" end
  need(type(scheme) == "string", "prepend_scheme")
  return {text = step.replacement, content = scheme, flags = flags {truth(step, "split", true)}}
end

function splitters.Digits(step)
  return {flags = flags {truth(step, "individual_digits", false)}}
end

function splitters.Punctuation(step)
  return {content = M.is_set(step.behavior) and tostring(step.behavior) or "Isolated"}
end

function splitters.CharDelimiterSplit(step, need)
  need(type(step.delimiter) == "string", "delimiter")
  return {text = step.delimiter}
end

local function translated(list, makers, what, path, splits)
  local out = {}
  for i, step in ipairs(list) do
    local name = tostring(step.type)
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
