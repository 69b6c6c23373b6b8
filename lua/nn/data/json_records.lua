-- Records of JSON in a file: an object a line (JSON lines), or one list of objects. Both are read
-- in chunks, whatever the size of the file.
local chunks = require "nn.data.chunks"
local cjson = require "cjson"
local ffi = require "ffi"
local lib = require "nn.base.capi"

local M = {}
local QUOTE, BACKSLASH, COMMA, COLON, NEWLINE = 0x22, 0x5C, 0x2C, 0x3A, 10
local OPEN, CLOSE, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D

--- described(value) -> a decoded value in a few words, for errors.
function M.described(value)
  if type(value) == "userdata" then return "null" end       -- of cjson
  if type(value) == "string" then return "'" .. lib.shortened(value, 60) .. "'" end
  if type(value) ~= "table" then return tostring(value) end
  return #value > 0 and "a list" or "an object"
end

-- The object in a JSON text; nil and what is wrong.
local function object_of(text)
  if text:find("\0", 1, true) then return nil, "is not a JSON object (it has a zero byte)" end
  local good, value = pcall(cjson.decode, text)
  if not good then
    return nil, ("is not a JSON object (%s)"):format(lib.shortened(tostring(value), 150))
  end
  if type(value) == "table" and not text:find "^%s*%[" then return value end
  return nil, ("is %s, not a JSON object"):format(type(value) == "table" and "a list"
                                                  or M.described(value))
end

-- The position after the string that begins at p[at]; nil if it does not end.
local function after_string(p, at, size)
  at = at + 1
  while at < size and p[at] ~= QUOTE do at = at + (p[at] == BACKSLASH and 2 or 1) end
  return at < size and at + 1 or nil
end

-- The position of the comma or bracket that ends the value which begins at p[at]; nil if the bytes
-- end before.
local function value_end(p, at, size)
  local depth = 0
  while at and at < size do
    local c = p[at]
    if c == QUOTE then
      at = after_string(p, at, size)
    else
      if c == OPEN or c == OPEN_LIST then depth = depth + 1 end
      if depth == 0 and (c == COMMA or c == CLOSE or c == CLOSE_LIST) then return at end
      if c == CLOSE or c == CLOSE_LIST then depth = depth - 1 end
      at = at + 1
    end
  end
end

-- The names in an object that begins at p[0], as far as they are in these bytes.
local function names_in(p, size)
  local names, at = {}, 1
  while at and at < size and #names < 10 do
    while at < size and p[at] ~= QUOTE do at = at + 1 end
    local stop = at < size and after_string(p, at, size)
    if not stop then break end
    names[#names + 1] = lib.shortened(ffi.string(p + at + 1, stop - at - 2), 30)
    while stop < size and p[stop] ~= COLON do stop = stop + 1 end
    at = value_end(p, stop + 1, size)
    if at then at = at + 1 end
  end
  return table.concat(names, ", ")
end

-- The position of the first byte at or after p[at] that is no white space, or `size`.
local function skip_space(p, at, size)
  while at < size and (p[at] == 32 or p[at] >= 9 and p[at] <= 13) do at = at + 1 end
  return at
end

--- convert(name) -> how to take the records out of the field `name` of a file's object.
function M.convert(name)
  return ("convert it: python3 -c \"import json; json.dump(json.load(open('FILE'))['%s'], "
          .. "open('NEW.json', 'w'))\""):format(name)
end

-- Whether the bytes have more than one object, as far as they show it.
local function has_several(p, size)
  local stop = value_end(p, 1, size)
  while stop and p[stop] == COMMA do stop = value_end(p, stop + 1, size) end
  local at = stop and skip_space(p, stop + 1, size) or size
  return at < size and p[at] == OPEN
end

-- For the first line of a file in which an object has several lines.
local function hint(p, size)
  local reads = "nnlua reads an object a line, or a list of objects"
  if has_several(p, size) then
    return ("; its objects have several lines each: %s; convert it: jq -c . FILE > NEW.jsonl")
      :format(reads)
  end
  return ("; the file seems to be one object (with %s): %s; %s"):format(names_in(p, size), reads,
                                                                       M.convert "NAME")
end

-- A reader of lines. give(text, place, hint): hint() says more about a text that is no object.
local function lines_of(give)
  local number = 0
  local function cut(p, size)
    for i = size - 1, 0, -1 do
      if p[i] == NEWLINE then return i + 1 end
    end
  end
  local function take(p, size)
    local text, from = ffi.string(p, size), 1
    while from <= size do
      local stop = text:find("\n", from, true) or size + 1
      local line = text:sub(from, stop - 1)
      number = number + 1
      if line:find "%S" then
        give(line, "line " .. number, number == 1 and line:find "^%s*{%s*$"
             and function() return hint(p, size) end)
      end
      from = stop + 1
    end
  end
  return {cut = cut, take = take, finish = function() end, unit = "line"}
end

-- A reader of the elements of a list. refuse(format, ...): for what is wrong with the list.
local function list_of(give, refuse)
  local number, began, ended = 0, false, false
  local function first_of(p, size) return began and 0 or skip_space(p, 0, size) + 1 end
  local function cut(p, size)
    local at, last = first_of(p, size), nil
    if ended then return size end
    while true do
      at = value_end(p, at, size)
      if not at then return last end
      if p[at] ~= COMMA then return size end
      at = at + 1
      last = at
    end
  end
  local function take_element(p, at, stop)
    local blank = skip_space(p, at, stop) == stop
    if blank and number == 0 and p[stop] == CLOSE_LIST then return end
    number = number + 1
    if blank then return refuse("record %d is missing: two commas, or one at the end", number) end
    give(ffi.string(p + at, stop - at), "record " .. number)
  end
  local function take(p, size)
    local at = first_of(p, size)
    began = true
    while not ended do
      local stop = value_end(p, at, size)
      if not stop then return end
      take_element(p, at, stop)
      ended = p[stop] ~= COMMA
      if p[stop] == CLOSE then return refuse("after record %d there is a '}'", number) end
      at = stop + 1
    end
    if skip_space(p, at, size) < size then
      refuse("after record %d, the end of the list, there is more; it is left out", number)
    end
  end
  return {cut = cut, take = take, unit = "record", finish = function()
    if not ended then refuse("the list ends within record %d: the file is cut off", number + 1) end
  end}
end

--- each(path, visit, moved, bad, convert): calls visit(object, place) for the object in every line,
--- or for every element of a list; place: "line 3", "record 3". Skips blank lines. moved(bytes): of
--- the file read so far. convert(text): changes the text of an object before it is decoded. Errors:
--- another value, with its place; bad: see texts.lua.
function M.each(path, visit, moved, bad, convert)
  local function refuse(format, ...) chunks.refuse(bad, "'%s', " .. format, path, ...) end
  local function give(text, place, more)
    local object, wrong = object_of(convert and convert(text) or text)
    if object then return visit(object, place) end
    refuse("%s %s%s", place, wrong, more and more() or "")
  end
  local reader
  local function chosen(p, size)
    if not reader then
      local is_list = p[math.min(skip_space(p, 0, size), size - 1)] == OPEN_LIST
      reader = is_list and list_of(give, refuse) or lines_of(give)
    end
    return reader
  end
  chunks.each(path, {
    cut = function(p, size) return size > 0 and chosen(p, size).cut(p, size) or nil end,
    take = function(p, size) chosen(p, size).take(p, size) end, unit = "line or record",
  }, moved, bad)
  if reader then reader.finish() end
end

return M
