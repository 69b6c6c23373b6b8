-- Tables in files as sources of examples: comma-separated values and JSON objects. They are read as
-- a whole into columns.
local arguments = require "nn.base.arguments"
local column = require "nn.data.column"
local csv = require "nn.data.csv"
local files = require "nn.io.files"
local json_records = require "nn.data.json_records"
local lib = require "nn.base.capi"
local numbers = require "nn.data.numbers"
local progress = require "nn.data.progress"
local sources = require "nn.data.sources"
local tables = require "nn.base.tables"
local texts = require "nn.data.texts"

local M = {}
local MOST_FIELDS = 4096         -- a batch returns one tensor for each

-- The cells of a column, as numbers if the first one is a number, or if a dtype is given; and
-- their dtype, nil for texts.
local function to_numbers(cells, name, dtype, place)
  local function number_of(cell)
    if dtype or not numbers.is_code(cell) then return numbers.of_cell(cell) end
  end
  if dtype == "text" or not dtype and not number_of(cells[1]) then return cells end
  local out = {}
  for i, cell in ipairs(cells) do
    if i % lib.CHECK_EVERY == 0 then lib.check_interrupt() end
    out[i] = number_of(cell)
    if not out[i] then
      lib.deny("%s: '%s' is '%s'; a number is needed%s", place(i), name, lib.shortened(cell, 60),
               dtype and "" or (" as in the rows before (dtypes = {%s = \"text\"} reads texts)")
               :format(name))
    elseif numbers.is_lost(cell) then
      lib.deny("%s: '%s' is %s, of which a number loses digits; dtypes = {%s = \"text\"} reads "
               .. "texts", place(i), name, lib.shortened(cell, 60), name)
    elseif not dtype and cell:find "^%s*[-+]?%d+%s*$" then
      column.need_f32(out[i], name, place, i)
    end
  end
  return out, dtype or "f32"
end

-- The values of a JSON field as texts. Whole numbers have all their digits.
local function to_texts(values, name, place)
  local out = {}
  for i, value in ipairs(values) do
    out[i] = type(value) == "number" and value % 1 == 0 and ("%.0f"):format(value) or value
    if type(out[i]) ~= "string" then
      lib.deny("%s: field '%s' is %s, not a text or a whole number", place(i), name,
               lib.shortened(json_records.described(value), 60))
    end
  end
  return out
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

-- is_all: each column is a field.
local function need_fields(count, path, is_all)
  if is_all and count > MOST_FIELDS then
    lib.deny("'%s' has %d columns, and at most %d can be fields of their own; choose some, and put "
             .. "many into one: columns = {x = {\"NAME\", \"NAME\", ...}, y = \"NAME\"}", path,
             count, MOST_FIELDS)
  end
end

-- The cells of a file of comma-separated values by column, and the place of each row. is_all: all
-- columns are wanted, so each must have a name.
local function csv_columns(path, is_all)
  local text, columns, lists, lines, count = texts.read_all(path), {}, {}, {}, 0
  with_progress(path, #text, function(shown)
    csv.each_record(text, path, texts.separator(path), function(header)
      need_fields(#header, path, is_all)
      for i, name in ipairs(header) do
        if name == "" and is_all then csv.need_name(path, i) end
        columns[i] = {}
        lists[name] = name ~= "" and columns[i] or nil
      end
    end, function(cells, line, at)
      count = count + 1
      lines[count] = "line " .. line
      for i = 1, #cells do columns[i][count] = cells[i] end
      if count % lib.CHECK_EVERY == 0 then
        lib.check_interrupt()
        shown:show(at)
      end
    end)
  end)
  return lists, lines
end

-- The values of a file of JSON objects by field, and the place of each object. is_all: as in
-- csv_columns().
local function json_columns(path, is_all)
  local lists, lines = {}, {}
  local function add(object, place)
    local count = #lines + 1
    lines[count] = place
    if count == 1 then
      local fields = #tables.sorted_keys(object)
      csv.need_columns(fields, ("'%s', %s"):format(path, place))
      need_fields(fields, path, is_all)
    end
    for name, value in pairs(object) do
      if count == 1 then lists[name] = {} end
      if not lists[name] then
        lib.deny("'%s', %s has a field '%s', which %s lacks", path, place,
                 lib.shortened(name, 60), lines[1])
      end
      lists[name][count] = value
    end
    for name, list in pairs(lists) do
      if list[count] == nil then
        lib.deny("'%s', %s has no field '%s'", path, place, lib.shortened(name, 60))
      end
    end
  end
  with_progress(path, files.size(path), function(shown)
    json_records.each(path, add, function(bytes) shown:show(bytes) end, nil, numbers.keep_digits)
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
                 lib.shortened(table.concat(tables.sorted_keys(lists), ", ")))
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
  local function place(i) return ("'%s', %s"):format(path, lines[i]) end
  for field, names in pairs(wanted_columns(given.columns, lists)) do
    local parts, dtype = {}, dtypes[field]
    local grouped = type(given.columns and given.columns[field]) == "table"
    if grouped and not dtype then dtype = "f32" end
    for i, name in ipairs(names) do
      local list, kind = lists[name], dtype
      if is_csv then
        list, kind = to_numbers(list, name, dtype, place)
      elseif dtype == "text" then
        list, kind = to_texts(list, name, place), nil
      end
      parts[i] = column.new(name, list, kind, place)
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
  local lists, lines = csv_columns(path, given.columns == nil)
  return source_of(given, path, lists, lines, true)
end

--- jsonl(given) -> the source of a file of JSON objects, one a line or a list of them, given.jsonl;
--- see csv().
function M.jsonl(given)
  local path = path_of(given, "jsonl")
  local lists, lines = json_columns(path, given.columns == nil)
  return source_of(given, path, lists, lines, false)
end

return M
