-- Printed forms of Lua values at the prompt: tables nested and indented, without long or cyclic
-- parts; strings quoted; functions with their arguments and source line.
local terminal = require "nn.base.terminal"
local text_of = require "repl.text"

local M = {}

local most_items, most_depth, most_text = {[0] = 40, 20, 10}, 5, 2000     -- items by depth
local keywords = require("repl.lexer").keywords

local escapes = {["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r", ["\\"] = "\\\\", ['"'] = '\\"'}

-- A string as a Lua literal on one line, without the middle of a long one.
local function quoted(s)
  local cut = #s - most_text
  if cut > 0 then
    local half = math.floor(most_text / 2)
    return ("%s ... %d bytes ... %s"):format(quoted(s:sub(1, half)), cut, quoted(s:sub(-half)))
  end
  s = s:gsub('[%z\1-\31\\"\127]', function(c)
    return escapes[c] or ("\\%03d"):format(c:byte())
  end)
  return '"' .. s .. '"'
end

-- "function(a, b) at file.lua:12", or "a built-in function".
local function signature(f)
  local info, names = debug.getinfo(f, "Su"), {}
  if info.what == "C" or info.source:find "^=%[builtin" then return "a built-in function" end
  for i = 1, info.nparams do names[i] = debug.getlocal(f, i) end
  if info.isvararg then names[#names + 1] = "..." end
  return ("function(%s) at %s:%d"):format(table.concat(names, ", "), info.short_src,
                                          info.linedefined)
end

local function has_text(value)
  local class = getmetatable(value)
  return type(class) == "table" and rawget(class, "__tostring") ~= nil
end

-- A value on one line; nil for a plain table.
local function short(value)
  local kind = type(value)
  if kind == "string" then return quoted(value) end
  if kind == "function" then return signature(value) end
  if kind ~= "table" then return tostring(value) end
  local tensor, module = require "nn.core.tensor", require "nn.core.module"
  if tensor.is_tensor(value) then
    if value:count() == 1 then return tostring(value) end
    return require("nn.core.show").tensor_title(value)
  end
  if module.is_module(value) then return require("nn.core.show").module_title(value) end
  if has_text(value) then return (tostring(value):gsub("\n.*", " ...")) end
  return nil
end

--- sorted_keys(value, listed) -> the keys of a table: numbers, strings, then the rest; without
--- those from 1 to `listed` if given.
function M.sorted_keys(value, listed)
  local keys, rank = {}, {number = 1, string = 2}
  for key in pairs(value) do
    local in_list = listed and type(key) == "number" and key >= 1 and key <= listed and key % 1 == 0
    if not in_list then keys[#keys + 1] = key end
  end
  table.sort(keys, function(a, b)
    local ra, rb = rank[type(a)] or 3, rank[type(b)] or 3
    if ra ~= rb then return ra < rb end
    if ra == 3 then return tostring(a) < tostring(b) end
    return a < b
  end)
  return keys
end

local function key_text(key)
  if type(key) == "string" and key:find "^[%a_][%w_]*$" and not keywords[key] then return key end
  return "[" .. (type(key) == "table" and tostring(key) or short(key)) .. "]"
end

local render

-- The texts of the first items of a table, and how many items are left.
local function items_of(value, state, depth)
  local listed, items, most = #value, {}, most_items[depth - 1] or 6
  local keys = M.sorted_keys(value, listed)
  for i = 1, math.min(listed, most) do items[i] = render(value[i], state, depth) end
  for i = 1, math.min(#keys, most - #items) do
    local key = keys[i]
    items[#items + 1] = key_text(key) .. " = " .. render(rawget(value, key), state, depth)
  end
  return items, listed + #keys - #items
end

-- Lists of short items share lines.
local function fill(items, indent, width)
  local lines, line = {}, ""
  for _, item in ipairs(items) do
    if line ~= "" and indent + #line + #item + 2 > width then
      lines[#lines + 1], line = line, ""
    end
    line = line .. (line ~= "" and " " or "") .. item .. ","
  end
  lines[#lines + 1] = line
  return lines
end

local function shown_table(value, state, depth)
  if next(value) == nil then return "{}" end
  if state.path[value] then return "{<cycle>}" end
  if depth > most_depth then return "{...}" end
  state.path[value] = true
  local items, left = items_of(value, state, depth + 1)
  state.path[value] = nil
  if left > 0 then items[#items + 1] = ("... %d more"):format(left) end
  local line, longest = "{" .. table.concat(items, ", ") .. "}", 0
  for _, item in ipairs(items) do longest = math.max(longest, item:find "\n" and 99 or #item) end
  local indent = ("  "):rep(depth)
  if longest < 99 and #indent + #line <= state.width then return line end
  local inner = "\n" .. indent .. "  "
  local text = longest <= 16 and table.concat(fill(items, #inner - 1, state.width), inner)
    or table.concat(items, "," .. inner) .. ","
  return "{" .. inner .. text .. "\n" .. indent .. "}"
end

function render(value, state, depth) return short(value) or shown_table(value, state, depth) end

--- line(x) -> x on one line.
function M.line(x)
  return (render(x, {path = {}, width = math.huge}, 0):gsub("\n.*", " ..."))
end

-- The lines that fit the screen. note: follows the number of the others.
local function cut_lines(text, note)
  local _, rows = terminal.size()
  local at = 0
  for _ = 1, math.max(5, rows - 3) do
    at = text:find("\n", at + 1, true)
    if not at then return text end
  end
  local left = select(2, text:sub(at + 1):gsub("\n", "\n")) + 1
  return text:sub(1, at) .. ("... %d more lines%s"):format(left, note or "")
end

--- value(x, width) -> x as the prompt shows it, in lines of at most `width` columns (default: the
--- terminal's) where possible.
function M.value(x, width)
  if type(x) ~= "table" then return short(x) end
  if require("nn.core.module").is_module(x) then
    local columns = width or (terminal.size()) - 1
    local text = tostring(x):gsub("[^\n]+", function(line) return text_of.clip(line, columns) end)
    return cut_lines(text, "; print(ans) shows all")
  end
  if has_text(x) then return tostring(x) end
  return cut_lines(render(x, {path = {}, width = width or (terminal.size()) - 1}, 0))
end

return M
