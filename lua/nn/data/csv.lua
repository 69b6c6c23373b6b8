-- Comma-separated values as RFC 4180 defines them: cells in quotes may contain separators, line
-- ends, and quotes written twice. Lines end with LF, CR LF or CR.
local lib = require "nn.base.capi"

local M = {}
local QUOTE, CR, LF = 34, 13, 10

-- The cell in quotes that begins at `at` -> its text and the position after it.
local function quoted_cell(text, at, name, line)
  local parts, from = {}, at + 1
  while true do
    local stop = text:find('"', from, true)
    if not stop then lib.deny("'%s', line %d: a quote opens and does not close", name, line) end
    local twice = text:byte(stop + 1) == QUOTE
    parts[#parts + 1] = text:sub(from, twice and stop or stop - 1)
    if not twice then return table.concat(parts), stop + 1 end
    from = stop + 2
  end
end

local function count_lines(cell) return select(2, cell:gsub("\r\n?", "\n"):gsub("\n", "")) end

--- each_row(text, name, separator, visit): calls visit(cells, line, at) for each row, with the
--- number of its first line and the position of its end in the text; skips blank lines and a byte
--- order mark. name: of the file, for errors.
--- Errors: a quote that does not close, or that something follows.
function M.each_row(text, name, separator, visit)
  local between, size, line = separator:byte(), #text, 1
  local at, ends = text:find "^\239\187\191" and 4 or 1, "[" .. separator .. "\r\n]"
  while at <= size do
    local cells, first, blank = {}, line, text:find("^[\r\n]", at)
    local next_byte
    repeat
      local cell
      if text:byte(at) == QUOTE then
        cell, at = quoted_cell(text, at, name, line)
        line = line + count_lines(cell)
      else
        local stop = text:find(ends, at) or size + 1
        cell, at = text:sub(at, stop - 1), stop
      end
      cells[#cells + 1] = cell
      next_byte, at = text:byte(at), at + 1
      if next_byte and next_byte ~= between and next_byte ~= CR and next_byte ~= LF then
        lib.deny("'%s', line %d: '%s' follows a quoted cell; a quote inside a cell is written "
                 .. "twice", name, line, text:sub(at - 1, at - 1))
      end
    until next_byte ~= between
    if next_byte == CR and text:byte(at) == LF then at = at + 1 end
    if not blank then visit(cells, first, at - 1) end
    line = line + 1
  end
end

local function check_header(header, name)
  local seen = {}
  for i, column in ipairs(header) do
    if column == "" then lib.deny("'%s': column %d has no name in the first line", name, i) end
    if seen[column] then lib.deny("'%s': two columns have the name '%s'", name, column) end
    seen[column] = true
  end
end

--- each_record(text, name, separator, begin, visit): calls begin(names) with the first row, the
--- names of the columns, then visit(cells, line, at) for each further row; line, at: as each_row().
--- Errors: as each_row(); rows of another number of cells; columns without a name of their own.
function M.each_record(text, name, separator, begin, visit)
  local header
  M.each_row(text, name, separator, function(cells, line, at)
    if not header then
      header = cells
      check_header(header, name)
      return begin(header)
    end
    if #cells ~= #header then
      lib.deny("'%s', line %d has %d cells; the first line has %d", name, line, #cells, #header)
    end
    visit(cells, line, at)
  end)
  if not header then lib.deny("'%s' is empty", name) end
end

--- each_object(text, name, separator, visit): calls visit({column = cell}, line) for each row after
--- the first one. Errors: as each_record().
function M.each_object(text, name, separator, visit)
  local names
  M.each_record(text, name, separator, function(header) names = header end, function(cells, line)
    local object = {}
    for i, column in ipairs(names) do object[column] = cells[i] end
    visit(object, line)
  end)
end

return M
