-- The methods of Python's texts, lists and dicts that chat templates call: methods[kind][name].
local checks = require "nn.chat.checks"
local lib = require "nn.base.capi"
local values = require "nn.chat.values"
local writing = require "nn.chat.writing"

local M = {string = {}, list = {}, mapping = {}}
local texts, lists, dicts = M.string, M.list, M.mapping
local NONE = values.NONE
local text_of, whole = checks.text, checks.whole

-- An argument that may be missing or none.
local function given(value)
  if value == NONE then return nil end
  return value
end

-- ### Texts

-- The characters that strip() removes: nil for white space.
local function set_of(need, set, who) return given(set) and text_of(need, set, who) end

function texts.strip(need, text, set)
  return values.strip(text, true, true, set_of(need, set, "strip"))
end
function texts.lstrip(need, text, set)
  return values.strip(text, true, false, set_of(need, set, "lstrip"))
end
function texts.rstrip(need, text, set)
  return values.strip(text, false, true, set_of(need, set, "rstrip"))
end
function texts.upper(need, text) return checks.ascii(need, text, "upper"):upper() end
function texts.lower(need, text) return checks.ascii(need, text, "lower"):lower() end
function texts.title(need, text)
  return (checks.ascii(need, text, "title"):lower():gsub("%a+", function(word)
    return word:sub(1, 1):upper() .. word:sub(2)
  end))
end
function texts.capitalize(need, text)
  text = checks.ascii(need, text, "capitalize")
  return text:sub(1, 1):upper() .. text:sub(2):lower()
end
function texts.isdigit(_, text) return text:find "^%d+$" ~= nil end
function texts.islower(need, text)
  return checks.ascii(need, text, "islower"):find "%l" ~= nil and not text:find "%u"
end
function texts.isupper(need, text)
  return checks.ascii(need, text, "isupper"):find "%u" ~= nil and not text:find "%l"
end

local function has_end(need, text, what, who, matches)
  for _, one in ipairs(values.is_tuple(what) and what or {what}) do
    if matches(text, text_of(need, one, who)) then return true end
  end
  return false
end

local function starts(text, prefix) return text:sub(1, #prefix) == prefix end
local function ends(text, suffix) return suffix == "" or text:sub(-#suffix) == suffix end

function texts.startswith(need, text, what)
  return has_end(need, text, what, "startswith", starts)
end
function texts.endswith(need, text, what) return has_end(need, text, what, "endswith", ends) end
function texts.removeprefix(need, text, prefix)
  return starts(text, text_of(need, prefix, "removeprefix")) and text:sub(#prefix + 1) or text
end
function texts.removesuffix(need, text, suffix)
  return ends(text, text_of(need, suffix, "removesuffix")) and text:sub(1, #text - #suffix) or text
end

-- The places of a text in another, from left to right; at most `most`, unless that is negative.
local function places(need, text, wanted, who, most)
  need(text_of(need, wanted, who) ~= "", "%s needs a text that is not empty", who)
  local out, at = {}, 1
  while #out ~= most do
    lib.check_interrupt()
    local first = text:find(wanted, at, true)
    if not first then break end
    need(#out < values.MOST, "%s of a text in more than %d places", who, values.MOST)
    out[#out + 1], at = first, first + #wanted
  end
  return out
end

function texts.replace(need, text, from, to, count)
  count = given(count) and whole(need, count, "replace")
  local all, parts, at = places(need, text, from, "replace", count), {}, 1
  checks.size(need, #text + #all * (#text_of(need, to, "replace") - #from))
  for _, first in ipairs(all) do
    parts[#parts + 1], parts[#parts + 2] = text:sub(at, first - 1), to
    at = first + #from
  end
  return table.concat(parts) .. text:sub(at)
end

-- The parts of a text between white space: at most `most` splits, from its left or its right.
local function words_of(text, most, from_right)
  local words, inside, at = {}, nil, 1
  for _, c in ipairs(values.characters(text)) do
    if values.is_space(c) then
      inside = nil
    else
      inside = inside or {first = at}
      inside.last = at + #c - 1
      if inside ~= words[#words] then words[#words + 1] = inside end
    end
    at = at + #c
  end
  local cut = most and most >= 0 and math.min(most, #words) or #words
  local left, out = #words - cut, values.list {}
  if left > 0 and from_right then out[1] = text:sub(1, words[left].last) end
  for i = from_right and left + 1 or 1, from_right and #words or cut do
    out[#out + 1] = text:sub(words[i].first, words[i].last)
  end
  if left > 0 and not from_right then out[#out + 1] = text:sub(words[cut + 1].first) end
  return out
end

local function split(need, text, separator, most, from_right)
  most = most ~= nil and whole(need, most, "split") or nil
  if not given(separator) then return words_of(text, most, from_right) end
  local all, out, at = places(need, text, separator, "split"), values.list {}, 1
  local limit = most and most >= 0 and math.min(most, #all) or #all
  local skipped = from_right and #all - limit or 0
  for i = 1 + skipped, limit + skipped do
    out[#out + 1] = text:sub(at, all[i] - 1)
    at = all[i] + #separator
  end
  out[#out + 1] = text:sub(at)
  return out
end

function texts.split(need, text, separator, most) return split(need, text, separator, most) end
function texts.rsplit(need, text, separator, most)
  return split(need, text, separator, most, true)
end

function texts.splitlines(need, text, keep)
  need(not values.is_true(keep), "splitlines with line ends is not supported")
  local out = values.list {}
  text = text:gsub("\r\n?", "\n"):gsub("[\11\12\28-\30]", "\n"):gsub("\194\133", "\n")
  text = text:gsub("\226\128[\168\169]", "\n"):gsub("([^\n])$", "%1\n")
  for line in text:gmatch "([^\n]*)\n" do out[#out + 1] = line end
  need(#out <= values.MOST, "a text of %d lines; %d are possible", #out, values.MOST)
  return out
end

local function part(need, text, separator, who, at_last)
  local all = places(need, text, separator, who)
  local found = all[at_last and #all or 1]
  if not found then return values.tuple(at_last and {"", "", text} or {text, "", ""}) end
  return values.tuple {text:sub(1, found - 1), separator, text:sub(found + #separator)}
end

function texts.partition(need, text, separator) return part(need, text, separator, "partition") end
function texts.rpartition(need, text, separator)
  return part(need, text, separator, "rpartition", true)
end

function texts.find(need, text, what)
  local first = text:find(text_of(need, what, "find"), 1, true)
  return first and #values.characters(text:sub(1, first - 1)) or -1
end
function texts.count(need, text, what) return #places(need, text, what, "count") end
function texts.join(need, separator, list)
  local out, size = {}, 0
  for i, item in ipairs(checks.items(need, list, "join")) do
    out[i] = text_of(need, item, "join")
    size = size + #item + #separator
  end
  checks.size(need, size)
  return table.concat(out, separator)
end

-- "{} {0} {name}"; the values are written as {{ value }} writes them.
function texts.format(need, text, list, named)
  local next_place, size, has_numbers = 0, #text, false
  return (text:gsub("([{}])([^{}]*)([{}]?)", function(open, name, close)
    if name == "" and open == close then return open end
    need(open == "{" and close == "}", "format has a single '%s'", open)
    local place = name == "" and next_place or tonumber(name:match "^%d+$")
    next_place = name == "" and next_place + 1 or next_place
    has_numbers = has_numbers or place and name ~= ""
    need(not has_numbers or next_place == 0, "format has '{}' and places with numbers")
    local value = place and list[place + 1]
    if not place then value = named[name] end
    need(value ~= nil, "format has no value for '{%s}'", name)
    value = writing.shown(need, value)
    size = size + #value
    checks.size(need, size)
    return value
  end))
end

-- ### Lists and dicts

function lists.count(_, list, wanted)
  local count = 0
  for _, item in ipairs(list) do count = count + (values.equal(item, wanted) and 1 or 0) end
  return count
end
function lists.index(need, list, wanted)
  for i, item in ipairs(list) do
    if values.equal(item, wanted) then return i - 1 end
  end
  need(false, "index: the list has no such value")
end

function dicts.items(_, dict)
  local out = values.view {}
  for i, key in ipairs(values.keys(dict)) do out[i] = values.tuple {key, dict[key]} end
  return out
end
function dicts.keys(_, dict) return values.view(values.keys(dict)) end
function dicts.values(_, dict)
  local out = values.view {}
  for i, key in ipairs(values.keys(dict)) do out[i] = dict[key] end
  return out
end
function dicts.get(need, dict, key, default)
  key = values.key(key)
  need(key ~= nil, "get needs a value that can be a key")
  local value = dict[key]
  if value == nil then value = default end
  if value == nil then return NONE end
  return value
end
function dicts.copy(_, dict)
  local out = values.dict()
  for _, key in ipairs(values.keys(dict)) do values.put(out, key, dict[key]) end
  return out
end

--- find(value, name) -> the method of a value, or nil.
function M.find(value, name)
  local kind = values.kind(value)
  if values.is_view(value) then return nil end
  if kind == "empty" then return dicts[name] or lists[name] end
  return (M[kind] or {})[name]
end

return M
