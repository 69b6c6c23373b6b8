-- Numbers in texts: cells of tables and literals of JSON. A double has 53 bits; a number that it
-- cannot keep is no number here, but a text of digits.
local M = {}
local names = {nan = 0 / 0, inf = math.huge, ["+inf"] = math.huge, ["-inf"] = -math.huge}

--- is_lost(literal) -> whether a double loses digits of a whole number in decimal digits, or is
--- infinite.
function M.is_lost(literal)
  local digits = literal:match "^%s*[-+]?0*(%d+)%s*$"
  if digits then return #digits > 15 and ("%.0f"):format(tonumber(digits)) ~= digits end
  local number = literal:find "%d" and tonumber(literal)          -- and not inf as such
  return number ~= nil and math.abs(number) == math.huge
end

--- of_cell(cell) -> the number that a cell states in decimal digits, or as nan or inf; nil if none.
function M.of_cell(cell)
  return cell:find "^%s*[-+]?%.?%d[%d.eE+-]*%s*$" and tonumber(cell) or names[cell:lower()]
end

--- is_code(cell) -> whether a cell of digits begins with a zero that a number would lose, as in the
--- postal code 01234.
function M.is_code(cell) return cell:find "^%s*[-+]?0%d+%s*$" ~= nil end

-- The position after the JSON string that begins at text[at].
local function after_string(text, at)
  repeat
    at = text:find('["\\]', at + 1)
    if not at then return #text + 1 end
    local escaped = text:byte(at) == 92
    if escaped then at = at + 1 end
  until not escaped
  return at + 1
end

--- keep_digits(text) -> a JSON text in which numbers that a double cannot keep are strings.
function M.keep_digits(text)
  if not text:find(("%d"):rep(16)) and not text:find "[eE]%+?%d%d%d" then return text end
  local parts, at, from = {}, 1, 1
  while true do
    at = text:find('["%d]', at)
    if not at then break end
    if text:byte(at) == 34 then
      at = after_string(text, at)
    else
      if text:sub(at - 1, at - 1) == "-" then at = at - 1 end
      local literal = text:match("^-?%d[%d.eE+-]*", at)
      if M.is_lost(literal) then
        parts[#parts + 1] = text:sub(from, at - 1) .. '"' .. literal .. '"'
        from = at + #literal
      end
      at = at + #literal
    end
  end
  return table.concat(parts) .. text:sub(from)
end

return M
