-- Comma-separated values as RFC 4180 defines them: cells in quotes may contain separators, line
-- ends, and quotes written twice. Lines end with LF, CR LF or CR. `bad`: see texts.lua.
local lib = require "nn.base.capi"
local number_of = require("nn.data.numbers").of_cell
local refuse = require("nn.data.chunks").refuse

local M = {}
local QUOTE, CR, LF = 34, 13, 10

M.MOST_COLUMNS = 2 ^ 16          -- of a table, also of JSON objects

--- need_columns(count, where): raises an error if a row has too many; where: the file and line.
function M.need_columns(count, where)
  if count > M.MOST_COLUMNS then
    lib.deny("%s has more than %d columns; no more can be read", where, M.MOST_COLUMNS)
  end
end

-- The cell in quotes that begins at `at` -> its text and the position after it; nil if the quote
-- does not close.
local function quoted_cell(text, at)
  local parts, from = {}, at + 1
  while true do
    local stop = text:find('"', from, true)
    if not stop then return nil end
    local twice = text:byte(stop + 1) == QUOTE
    parts[#parts + 1] = text:sub(from, twice and stop or stop - 1)
    if not twice then return table.concat(parts), stop + 1 end
    from = stop + 2
  end
end

local function count_lines(cell) return select(2, cell:gsub("\r\n?", "\n"):gsub("\n", "")) end

--- each_row(text, name, separator, visit, bad): calls visit(cells, line, at) for each row, with the
--- number of its first line and the position of its end in the text; skips blank lines and a byte
--- order mark. name: of the file, for errors.
--- Errors: a quote that does not close, or that something follows; too many columns.
function M.each_row(text, name, separator, visit, bad)
  local between, size, line = separator:byte(), #text, 1
  local at, ends = text:find "^\239\187\191" and 4 or 1, "[" .. separator .. "\r\n]"
  while at <= size do
    local cells, first, blank = {}, line, text:find("^[\r\n]", at)
    local next_byte
    repeat
      local cell
      if text:byte(at) == QUOTE then
        cell, at = quoted_cell(text, at)
        if not cell then
          return refuse(bad, "'%s', line %d: a quote opens and does not close", name, line)
        end
        line = line + count_lines(cell)
      else
        local stop = text:find(ends, at) or size + 1
        cell, at = text:sub(at, stop - 1), stop
      end
      cells[#cells + 1] = cell
      if #cells % lib.CHECK_EVERY == 0 then lib.check_interrupt() end
      if #cells > M.MOST_COLUMNS then
        M.need_columns(#cells, ("'%s', line %d"):format(name, first))
      end
      next_byte, at = text:byte(at), at + 1
      if next_byte and next_byte ~= between and next_byte ~= CR and next_byte ~= LF then
        return refuse(bad, "'%s', line %d: '%s' follows a quoted cell; a quote inside a cell is "
                      .. "written twice", name, line, text:sub(at - 1, at - 1))
      end
    until next_byte ~= between
    if next_byte == CR and text:byte(at) == LF then at = at + 1 end
    if not blank then visit(cells, first, at - 1) end
    line = line + 1
  end
end

-- Whether a first line is a row of numbers: some have a fraction, or all are numbers. Years one
-- after the other are the names of columns in many tables.
local function is_data(cells)
  local all, are_years = true, #cells > 1
  for i, cell in ipairs(cells) do
    local number = number_of(cell)
    if number and number % 1 ~= 0 then return true end
    all = all and number ~= nil
    are_years = are_years and all and cell:find "^[12]%d%d%d$"
      and (i == 1 or number == number_of(cells[i - 1]) + 1)
  end
  return all and not are_years
end

--- need_name(name, i): raises the error about column i, which has no name. name: of the file.
function M.need_name(name, i)
  lib.deny("'%s': column %d has no name in the first line; name it, or choose others (columns, "
           .. "data.field)", name, i)
end

local function check_header(header, name, separator)
  local seen = {}
  for i, column in ipairs(header) do
    if seen[column] and column ~= "" then
      lib.deny("'%s': two columns have the name '%s'", name, lib.shortened(column, 60))
    end
    seen[column] = i
  end
  if #header == 1 and seen[""] then M.need_name(name, 1) end
  local other = #header == 1 and header[1]:match "[;\t|,]"
  if other then
    lib.deny("'%s': the first line has one column, '%s', as %s separates its cells; nnlua reads "
             .. "commas in .csv and tabs in .tsv files", name, lib.shortened(header[1], 60),
             separator == "\t" and "a tab" or "'" .. separator .. "'")
  end
  if is_data(header) then
    lib.deny("'%s': the first line has numbers, '%s'; it must have the names of the columns", name,
             lib.shortened(table.concat(header, separator), 60))
  end
end

--- each_record(text, name, separator, begin, visit, bad): calls begin(names) with the first row,
--- the names of the columns, then visit(cells, line, at) for each further row; line, at: as
--- each_row(). Errors: as each_row(); rows of another number of cells; two columns of one name; a
--- first line that is a row of numbers, or has another separator. Columns without a name are "".
function M.each_record(text, name, separator, begin, visit, bad)
  local header
  M.each_row(text, name, separator, function(cells, line, at)
    if not header then
      header = cells
      check_header(header, name, separator)
      return begin(header)
    end
    if #cells == #header then return visit(cells, line, at) end
    refuse(bad, "'%s', line %d has %d cells; the first line has %d", name, line, #cells, #header)
  end, bad)
  if not header then refuse(bad, "'%s' is empty", name) end
end

--- each_object(text, name, separator, visit, bad): calls visit({column = cell}, place) for each row
--- after the first one; place: "line 3". Leaves out columns without a name. Errors: as
--- each_record().
function M.each_object(text, name, separator, visit, bad)
  local names
  M.each_record(text, name, separator, function(header) names = header end, function(cells, line)
    local object = {}
    for i, column in ipairs(names) do object[column] = column ~= "" and cells[i] or nil end
    visit(object, "line " .. line)
  end, bad)
end

return M
