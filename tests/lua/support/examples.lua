-- Runs the examples of docs: Lua code in which `code  --> value` states what the code gives. See
-- lua/nn/help/docs.lua for how they are written.

local tensor = require "nn.core.tensor"

local M = {}
local Digits = {}   -- a number of a stated value, as written

-- "2.5" -> half a unit of its last digit; 0 for a whole number, which is exact.
local function rounding(text)
  local mantissa, exponent = text:match "^([^eE]*)[eE]?(.*)$"
  local decimals = mantissa:match "%.(%d*)"
  if not decimals and exponent == "" then return 0 end
  return 0.51 * 10 ^ ((tonumber(exponent) or 0) - #(decimals or ""))
end

local function digits(text) return setmetatable({text = text}, Digits) end

-- The stated text as a list of Lua values and their count, with numbers as Digits; nil: invalid.
local function parse(text)
  local marked = text:gsub('()("[^"]*")', "%2")
  local parts, at = {}, 1
  for before, quoted, after in marked:gmatch '([^"]*)("[^"]*")()' do
    parts[#parts + 1], parts[#parts + 2], at = before, quoted, after
  end
  parts[#parts + 1] = marked:sub(at)
  for i = 1, #parts, 2 do
    parts[i] = (" " .. parts[i]):gsub("([^%w_.])(%-?%d+%.?%d*[eE]?[-+]?%d*)", '%1digits("%2")')
  end
  local chunk = loadstring("return " .. table.concat(parts))
  if not chunk then return nil end
  local names = setmetatable({digits = digits, inf = math.huge}, {__index = function(_, name)
    error("the name " .. name, 0)
  end})
  local results = {pcall(setfenv(chunk, names))}
  if not results[1] then return nil end
  return {unpack(results, 2, table.maxn(results))}, math.max(1, table.maxn(results) - 1)
end

local function agrees(value, stated)
  if tensor.is_tensor(value) then return agrees(value:table(), stated) end
  if getmetatable(stated) == Digits then
    local wanted = tonumber(stated.text)
    return type(value) == "number" and math.abs(value - wanted) <= rounding(stated.text)
  end
  if type(value) ~= "table" or type(stated) ~= "table" then return value == stated end
  for key, v in pairs(stated) do
    if not agrees(value[key], v) then return false end
  end
  for key in pairs(value) do
    if stated[key] == nil then return false end
  end
  return true
end

-- The text as a Lua pattern in which `...` matches anything.
local function pattern_of(text)
  return "^" .. text:gsub("%p", "%%%0"):gsub("%%%.%%%.%%%.", ".-") .. "$"
end

local function written(value)
  if tensor.is_tensor(value) then value = value:table() end
  if type(value) == "number" then return ("%.6g"):format(value) end
  if type(value) == "string" then return ("%q"):format(value) end
  if type(value) ~= "table" or getmetatable(value) then return tostring(value) end
  local parts, listed = {}, {}
  for i, v in ipairs(value) do parts[i], listed[i] = written(v), true end
  for k, v in pairs(value) do
    if not listed[k] then parts[#parts + 1] = tostring(k) .. " = " .. written(v) end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- Raises an error unless code() returns, prints or raises what is stated.
local function expect(printed, stated, code)
  for i = #printed, 1, -1 do printed[i] = nil end
  local results = {pcall(code)}
  local given
  if not results[1] then
    given = "error: " .. tostring(results[2]):gsub("^[^\n]-:%d+: ", "")
  elseif #printed > 0 then
    given = table.concat(printed, "\n")
  end
  if given then
    if given:find(pattern_of(stated)) then return end
    error(("gives %s, not %s"):format(given, stated), 0)
  end
  local values, count = parse(stated)
  local n = math.max(1, table.maxn(results) - 1)
  local good = values ~= nil and n == count
  for i = 1, values and count or 0 do good = good and agrees(results[i + 1], values[i]) end
  if good or (n == 1 and tostring(results[2]):find(pattern_of(stated))) then return end
  for i = 1, n do results[i] = written(results[i + 1]) end
  error(("gives %s, not %s"):format(table.concat(results, ", ", 1, n), stated), 0)
end

-- The example as one Lua chunk that calls __expect(stated, function) for each stated value, and the
-- number of those.
local function translate(text)
  local out, pending, checks = {}, nil, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local code, stated = line:match "^(.-)%s*%-%->%s*(.-)%s*$"
    pending = (pending and pending .. "\n" or "") .. (code or line)
    local expression = loadstring("return " .. pending)
    if stated then
      assert(expression or loadstring(pending), "no complete piece of code: " .. pending)
      out[#out + 1] = ("__expect(%q, function() %s%s\nend)"):format(
        stated, expression and "return " or "", pending)
      pending, checks = nil, checks + 1
    elseif expression and pending:find "%S" then
      out[#out + 1], pending = "__run(" .. pending .. "\n)", nil
    elseif loadstring(pending) then
      out[#out + 1], pending = pending, nil
    end
  end
  assert(not pending, "the code does not end: " .. tostring(pending))
  return table.concat(out, "\n"), checks
end

-- A table of globals that defines the names of the preamble when they are first used.
local function environment(printed, preamble)
  local sources = {}
  for _, name in ipairs(preamble) do sources[name[1]] = name[2] end
  local globals = {}
  function globals.print(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    printed[#printed + 1] = table.concat(words, "\t")
  end
  return setmetatable(globals, {__index = function(self, name)
    if not sources[name] then return _G[name] end
    local chunk = assert(loadstring("return " .. sources[name], "=" .. name))
    self[name] = setfenv(chunk, self)()
    return self[name]
  end})
end

--- run(text, preamble) -> the number of stated values that were checked. preamble: that of
--- nn.help.docs, which this file does not load: an example must work without what it loads. Errors:
--- the code's own, or a value that differs from the stated one.
function M.run(text, preamble)
  local nn = require "nn"
  local printed = {}
  local globals = environment(printed, preamble)
  globals.__expect = function(stated, code) expect(printed, stated, code) end
  globals.__run = function() end
  local source, checks = translate(text)
  nn.seed(1)
  setfenv(assert(loadstring(source, "=example")), globals)()
  nn.sync()
  return checks
end

--- the same for the code blocks of a document, in order, with shared globals: see
--- tests/lua/project/tutorial.lua.
M.environment, M.pattern_of = environment, pattern_of

return M
