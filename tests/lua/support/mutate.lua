-- Damaged copies of files, for tests/lua/files/fuzz.lua: changes of bytes, as by a disk or a
-- broken connection, and changes of JSON, as by a careless or hostile writer. All choices come from
-- math.random, which the caller seeds.
local M = {}
local random = math.random

local function pick(list) return list[random(#list)] end

-- ### JSON: spans of values and members in valid text

-- The position behind the string that begins at text[at].
local function behind_string(text, at)
  local c, _
  repeat
    at, _, c = text:find('(["\\])', at + 1)
    if c == "\\" then at = at + 1 end
  until c ~= "\\"
  if not c then error "no end" end
  return at + 1
end

-- {first, last, comma = whether one follows} of every value, member and element of a JSON text;
-- nil where it is invalid.
local function spans(text)
  local values, members, at = {}, {}, 1
  local function skip() at = text:find("[^ \t\r\n]", at) or #text + 1 end
  local value

  local function members_until(close, named)
    at = at + 1
    skip()
    while text:sub(at, at) ~= close do
      local member = {at}
      if named then
        at = behind_string(text, at)
        skip()
        if text:sub(at, at) ~= ":" then error "colon" end
        at = at + 1
        skip()
      end
      value()
      member[2] = at - 1
      members[#members + 1] = member
      skip()
      local c = text:sub(at, at)
      if c == "," then
        member.comma = at
        at = at + 1
        skip()
      elseif c ~= close then
        error "comma"
      end
    end
    at = at + 1
  end

  function value()
    local first, c = at, text:sub(at, at)
    if c == "{" then
      members_until("}", true)
    elseif c == "[" then
      members_until("]", false)
    elseif c == '"' then
      at = behind_string(text, at)
    else
      at = select(2, text:find("^[%w%.%-+]+", at))
      if not at then error "literal" end
      at = at + 1
    end
    values[#values + 1] = {first, at - 1}
  end

  skip()
  local good = pcall(value)
  return good and values or nil, members
end

local odd_values = {
  "-1", "0", "1", "2", "4", "0.5", "1e999", "-1e999", "1e308", "9007199254740993", "4294967296",
  "1e15", "1000000",
  "18446744073709551616", "-9223372036854775808", "NaN", "-Infinity", "0x10", "null", "true",
  "false", '""', '"x"', '"F32"', '"BF16"', '"F8_E4M3"', "[]", "{}", "[0]", "[1,2]", "[[1,2]]",
  '{"a":1}', "[null]", '["a","b"]', "[0,0,0,0,0,0,0,0,0]", '"\\u0000"', '"\\ud800"', '"\255\254"',
  '"a\nb"', '"%s%n"', '"../../etc/passwd"', "",
}

local function splice(text, first, last, by)
  return text:sub(1, first - 1) .. by .. text:sub(last + 1)
end

local json_changes = {
  function(text, values)                                   -- another value
    local at = pick(values)
    return splice(text, at[1], at[2], pick(odd_values))
  end,
  function(text, values)                                   -- a slightly different number
    local at
    for _ = 1, 20 do
      at = pick(values)
      local number = tonumber(text:sub(at[1], at[2]))
      if number then
        return splice(text, at[1], at[2], ("%.0f"):format(number + pick {-8, -4, -1, 1, 4, 8, 64}))
      end
    end
    return text
  end,
  function(text, _, members)                               -- a member or element twice
    local from, to = pick(members), pick(members)
    return splice(text, to[1], to[1] - 1, text:sub(from[1], from[2]) .. ",")
  end,
  function(text, _, members)                               -- one removed
    local at = pick(members)
    return splice(text, at[1], at.comma or at[2], "")
  end,
  function(text, values)                                   -- two values swapped
    local a, b = pick(values), pick(values)
    if a[1] > b[1] then a, b = b, a end
    if b[1] <= a[2] then return text end
    return text:sub(1, a[1] - 1) .. text:sub(b[1], b[2]) .. text:sub(a[2] + 1, b[1] - 1)
      .. text:sub(a[1], a[2]) .. text:sub(b[2] + 1)
  end,
  function(text, values)                                   -- nested
    local at, depth = pick(values), pick {1, 2, 10, 999, 1001, 5000}
    local open, close = "[", "]"
    if random(2) == 1 then open, close = '{"a":', "}" end
    return splice(text, at[1], at[2],
                  open:rep(depth) .. text:sub(at[1], at[2]) .. close:rep(depth))
  end,
  function(text, values)                                   -- an inserted text
    for _ = 1, 20 do
      local at = pick(values)
      if text:sub(at[1], at[1]) == '"' and at[2] > at[1] then
        local place = random(at[1] + 1, at[2])
        return splice(text, place, place - 1, pick {"\\", "\0", "\255", "\\u00", "\\ud834", "\195",
                                                    "\237\160\128", '\\"', "\\u0120", " ", "/"})
      end
    end
    return text
  end,
}

--- forged(text) -> iterator over forged texts, and how each was forged: for each value in a JSON
--- text, with that value replaced by each odd value; and without each member and element.
function M.forged(text)
  local values, members = spans(text)
  local list = {}
  for _, at in ipairs(values) do
    local before = text:sub(math.max(1, at[1] - 40), at[1] - 1)
    for _, by in ipairs(odd_values) do
      list[#list + 1] = {at[1], at[2], by, before .. by}
    end
  end
  for _, at in ipairs(members) do
    list[#list + 1] = {at[1], at.comma or at[2], "", "without " .. text:sub(at[1], at[1] + 40)}
  end
  local i = 0
  return function()
    i = i + 1
    local one = list[i]
    if one then return splice(text, one[1], one[2], one[3]), one[4] end
  end
end

local known = {}                     -- the spans of the last text

--- json(text) -> the text with one or two changes to its values, names or structure. Where the
--- first makes it invalid JSON, the second changes bytes.
function M.json(text)
  if known.text ~= text then
    known = {text = text}
    known.values, known.members = spans(text)
  end
  local values, members = known.values, known.members
  for time = 1, random(4) == 1 and 2 or 1 do
    if time == 2 then values, members = spans(text) end
    if not values or #members == 0 then return M.bytes(text) end
    text = pick(json_changes)(text, values, members)
  end
  return text
end

local byte_changes = {
  function(text, at)                                       -- a bit
    local byte = text:byte(at)
    local bit = 2 ^ random(0, 7)
    local has = math.floor(byte / bit) % 2 == 1
    return splice(text, at, at, string.char(has and byte - bit or byte + bit))
  end,
  function(text, at) return splice(text, at, at, string.char(random(0, 255))) end,
  function(text, at) return text:sub(1, at - 1) end,       -- truncated
  function(text, at) return splice(text, at, at + random(0, 16), "") end,
  function(text, at)                                       -- a run repeated
    return splice(text, at, at - 1, text:sub(at, at + random(0, 100)))
  end,
  function(text, at)                                       -- bytes inserted
    return splice(text, at, at - 1, string.char(random(0, 255)):rep(random(9)))
  end,
}

--- bytes(text) -> the text with one to four changes to its bytes.
function M.bytes(text)
  for _ = 1, random(4) do
    if #text == 0 then return text end
    text = pick(byte_changes)(text, random(#text))
  end
  return text
end

--- lines(text) -> the text with lines swapped, repeated or removed, or with bytes changed.
function M.lines(text)
  if random(2) == 1 then return M.bytes(text) end
  local list = {}
  for line in text:gmatch "[^\n]*\n" do list[#list + 1] = line end
  local a, b = random(#list), random(#list)
  local how = random(3)
  if how == 1 then list[a], list[b] = list[b], list[a] end
  if how == 2 then table.insert(list, a, list[b]) end
  if how == 3 then table.remove(list, a) end
  return table.concat(list)
end

return M
