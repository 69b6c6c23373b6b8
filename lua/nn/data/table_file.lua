-- Tables in files as sources of examples: comma-separated values and JSON lines. They are read as a
-- whole into columns.
local arguments = require "nn.base.arguments"
local column = require "nn.data.column"
local csv = require "nn.data.csv"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local progress = require "nn.data.progress"
local sources = require "nn.data.sources"
local tables = require "nn.base.tables"
local texts = require "nn.data.texts"

local M = {}
local words = {nan = 0 / 0, inf = math.huge, ["+inf"] = math.huge, ["-inf"] = -math.huge}

-- The number that a cell states in decimal digits; nil if none.
local function number_of(cell)
  return cell:find "^%s*[-+]?%.?%d[%d.eE+-]*%s*$" and tonumber(cell) or words[cell:lower()]
end

-- The cells of a column, as numbers if the first one is a number, or if a dtype is given.
local function to_numbers(cells, name, dtype, place)
  if not dtype and not number_of(cells[1]) then return cells end
  local numbers = {}
  for i, cell in ipairs(cells) do
    if i % lib.CHECK_EVERY == 0 then lib.check_interrupt() end
    numbers[i] = number_of(cell) or lib.deny(
      "%s: '%s' is '%s'; a number is needed%s", place(i), name, cell, dtype and "" or
      (" as in the rows before (dtypes = {%s = \"text\"} reads texts)"):format(name))
  end
  return numbers
end

-- The file that the option `kind` names.
local function path_of(given, kind)
  arguments.need(type(given[kind]) == "string", "data", kind, given[kind], "a file is needed")
  return texts.source(given[kind], kind).path
end

-- Calls read(shown), where `shown` is the progress of reading `bytes` of the file.
local function with_progress(path, bytes, read)
  local shown = progress.new(bytes, "reading " .. path:match "[^/]*$")
  return lib.finally(function() shown:clear() end, read, shown)
end

-- The cells of a file of comma-separated values by column, and the line of each row.
local function csv_columns(path)
  local text, columns, lists, lines, count = texts.read_all(path), {}, {}, {}, 0
  with_progress(path, #text, function(shown)
    csv.each_record(text, path, texts.separator(path), function(header)
      for i, name in ipairs(header) do
        columns[i] = {}
        lists[name] = columns[i]
      end
    end, function(cells, line, at)
      count = count + 1
      lines[count] = line
      for i = 1, #cells do columns[i][count] = cells[i] end
      if count % lib.CHECK_EVERY == 0 then
        lib.check_interrupt()
        shown:show(at)
      end
    end)
  end)
  return lists, lines
end

-- The values of a file of JSON lines by field, and the line of each object.
local function json_columns(path)
  local lists, lines = {}, {}
  local function add(object, line)
    local count = #lines + 1
    lines[count] = line
    for name, value in pairs(object) do
      if count == 1 then lists[name] = {} end
      if not lists[name] then
        lib.deny("'%s', line %d has a field '%s', which line %d lacks", path, line, name, lines[1])
      end
      lists[name][count] = value
    end
    for name, list in pairs(lists) do
      if list[count] == nil then
        lib.deny("'%s', line %d has no field '%s'", path, line, tostring(name))
      end
    end
  end
  with_progress(path, files.size(path), function(shown)
    texts.each_object(path, add, function(bytes) shown:show(bytes) end)
  end)
  return lists, lines
end

-- The names of the file's columns that each field takes, as a list; one_name: it is a single one.
local function wanted_columns(given, lists)
  local wanted = {}
  arguments.need(given == nil or type(given) == "table", "data", "columns", given,
                 'names of columns by field are needed, {x = {"width", "height"}, y = "kind"}')
  for field, names in pairs(given or {}) do
    wanted[field] = type(names) == "table" and names or {names}
    for _, name in ipairs(wanted[field]) do
      if not lists[name] then
        lib.deny("data: there is no column '%s'; the file has %s", tostring(name),
                 table.concat(tables.sorted_keys(lists), ", "))
      end
    end
  end
  if given then return wanted end
  for name in pairs(lists) do wanted[name] = {name} end
  return wanted
end

-- The source of the columns in `lists`. is_csv: numbers are texts.
local function source_of(given, path, lists, lines, is_csv)
  if #lines == 0 then lib.deny("'%s' has no examples", path) end
  local columns, dtypes = {}, given.dtypes or {}
  local function place(i) return ("'%s', line %d"):format(path, lines[i]) end
  for field, names in pairs(wanted_columns(given.columns, lists)) do
    local parts, dtype = {}, dtypes[field]
    local grouped = type(given.columns and given.columns[field]) == "table"
    if grouped and not dtype then dtype = "f32" end
    for i, name in ipairs(names) do
      local list = lists[name]
      if is_csv and dtype ~= "text" then list = to_numbers(list, name, dtype, place) end
      parts[i] = column.new(name, list, dtype ~= "text" and dtype or nil, place)
    end
    columns[field] = grouped and column.group(field, parts) or parts[1]
  end
  return sources.columns(columns, path:match "[^/]*$", given.classes)
end

--- csv(given) -> the source of a file of comma-separated values, given.csv. A column is of numbers
--- if its first cell is one. given.columns: {field = column or list of columns}; a list gives a
--- tensor (batch, columns); default: each column is a field. given.classes: a field of texts that
--- become numbers.
function M.csv(given)
  local path = path_of(given, "csv")
  local lists, lines = csv_columns(path)
  return source_of(given, path, lists, lines, true)
end

--- jsonl(given) -> the source of a file of JSON objects, one a line, given.jsonl; see csv().
function M.jsonl(given)
  local path = path_of(given, "jsonl")
  local lists, lines = json_columns(path)
  return source_of(given, path, lists, lines, false)
end

return M
