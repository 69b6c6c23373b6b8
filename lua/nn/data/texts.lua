-- Texts in files: plain ones, JSON lines, tables of comma-separated values, each also compressed.
-- Plain texts and JSON lines are read in chunks of some megabytes.
local cjson = require "cjson"
local csv = require "nn.data.csv"
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local stream = require "nn.io.stream"
local tables = require "nn.base.tables"

local M = {}
local CHUNK = 2 ^ 22               -- bytes that are read and encoded at a time
local LONGEST = 2 ^ 28             -- bytes of a JSON line, or of text without white space

-- ### Finding files

local kinds = {jsonl = "json", ndjson = "json", json = "json", csv = "csv", tsv = "csv",
               parquet = "parquet"}

local function extension_of(path)
  return path:gsub("%.gz$", ""):gsub("%.zst$", ""):match "%.(%w+)$" or ""
end

--- source(path, what) -> {path=, kind=, size=} of a file; kind: "json", "csv" or "text". what: for
--- errors. Errors: a missing file; Parquet.
function M.source(path, what)
  local kind = kinds[extension_of(path)] or "text"
  if kind == "parquet" then
    lib.deny("%s '%s' is a Parquet file, which nnlua does not read; convert it: python3 -c "
             .. "\"import pandas; pandas.read_parquet('%s').to_json('%s', orient='records', "
             .. "lines=True)\"", what, path, path, (path:gsub("%.parquet$", ".jsonl")))
  end
  return {path = path, kind = kind, size = files.size(path, what)}
end

-- `seen`: the folders so far, by real path; a link to one of them adds nothing.
local function add_folder(folder, wanted, out, seen)
  local real = files.real_path(folder)
  if seen[real] then return end
  seen[real] = true
  for _, name in ipairs(files.list(folder)) do
    local path = files.join(folder, name)
    if files.list(path) then
      add_folder(path, wanted, out, seen)
    elseif wanted[extension_of(name)] then
      out[#out + 1] = path
    end
  end
end

-- The paths in a list with commas; a file whose name contains a comma is one path.
local function paths_in(list)
  if files.exists(list) then return {list} end
  local paths = {}
  for path in list:gmatch "[^,]+" do paths[#paths + 1] = path end
  return paths
end

--- sources(input, extensions) -> list of {path=, kind=, size=}. `input`: files and folders,
--- separated by commas; from a folder, all files with one of the extensions ("txt,md,jsonl"), also
--- followed by .gz or .zst, sorted by path; a folder that several links reach is read once. kind:
--- "json", "csv" or "text"; size: bytes on the disk. Errors: missing files; no file found; Parquet.
function M.sources(input, extensions)
  local wanted, paths, out = {}, {}, {}
  for extension in extensions:gmatch "[^,%s]+" do wanted[extension] = true end
  for _, path in ipairs(paths_in(input)) do
    if files.list(path) then
      add_folder(path, wanted, paths, {})
    else
      paths[#paths + 1] = path
    end
  end
  if #paths == 0 then
    lib.deny("input '%s' contains no file with an extension of %s", input, extensions)
  end
  for i, path in ipairs(paths) do out[i] = M.source(path, "input") end
  return out
end

-- ### Reading

-- The last position in p[0 .. size - 1] where a cut does not change the tokens: before white space
-- that follows a printable ASCII character; nil if none.
local function last_cut(p, size)
  for i = size - 1, 1, -1 do
    local byte, before = p[i], p[i - 1]
    if (byte == 32 or byte >= 9 and byte <= 13) and before > 32 and before < 127 then return i end
  end
end

local function last_line_end(p, size)
  for i = size - 1, 0, -1 do
    if p[i] == 10 then return i + 1 end
  end
end

local spare      -- the buffer of the previous file, for reuse

-- Calls each(p, size) for consecutive chunks of a file, which end at the positions that
-- cut(p, size) returns. Calls moved(bytes) with the bytes of the file read so far.
local function each_chunk(path, cut, each, moved)
  local input, room, filled = stream.open(path), CHUNK, 0
  local buffer = spare or ffi.new("uint8_t[?]", room)
  spare = nil
  while true do
    local count = input:read(buffer + filled, room - filled)
    local ended = filled + count < room
    filled = filled + count
    moved(input:position())
    local stop = ended and filled or cut(buffer, filled)
    if stop then
      if stop > 0 then each(buffer, stop) end
      ffi.copy(buffer, buffer + stop, filled - stop)
      filled = filled - stop
    elseif room >= LONGEST then
      lib.deny("'%s': no line end or space in %d bytes; is it a text?", path, room)
    else
      local larger = ffi.new("uint8_t[?]", 2 * room)
      ffi.copy(larger, buffer, filled)
      buffer, room = larger, 2 * room
    end
    if ended then break end
  end
  input:close()
  if room == CHUNK then spare = buffer end
end

--- each_text(path, each, moved): calls each(p, size) for the chunks of a text, moved(bytes) with
--- the bytes of the file read so far.
function M.each_text(path, each, moved) each_chunk(path, last_cut, each, moved) end

--- each_object(path, each, moved): calls each(object, number) for the object in every JSON line;
--- skips blank lines. Errors: another line, with its number.
function M.each_object(path, each, moved)
  local number = 0
  each_chunk(path, last_line_end, function(p, size)
    for line in ffi.string(p, size):gmatch "([^\n]*)\n?" do
      number = number + 1
      if number == 1 then line = line:gsub("^\239\187\191", "") end      -- a byte order mark
      if line:find "%S" then
        local good, value = pcall(cjson.decode, line)
        if not good or type(value) ~= "table" then
          lib.deny("'%s', line %d is not a JSON object (%s)", path, number, tostring(value))
        end
        each(value, number)
      end
    end
  end, moved)
end

--- read_all(path) -> the whole text of a file, also of a compressed one.
function M.read_all(path)
  local parts = {}
  each_chunk(path, function(_, size) return size end,
             function(p, size) parts[#parts + 1] = ffi.string(p, size) end, function() end)
  return table.concat(parts)
end

local function document_of(object, path, number, field, setting)
  local text = object[field]
  if type(text) == "string" then return text end
  if text ~= nil then
    lib.deny("'%s', line %d: '%s' is %s; a text is needed", path, number, field, files.json(text))
  end
  lib.deny("'%s', line %d has no field '%s'; it has %s; choose one with %s=", path, number,
           field, table.concat(tables.sorted_keys(object), ", "), setting or "field")
end

--- separator(path) -> what separates the cells of a table: a tab in .tsv files, else a comma.
function M.separator(path) return extension_of(path) == "tsv" and "\t" or "," end

--- each_document(source, field, each, moved, setting): calls each(p, size) for the text in this
--- field of every JSON line, or in this column of every row of a table. setting: the name of the
--- one that chooses the field, for errors.
function M.each_document(source, field, each, moved, setting)
  local function give(object, number)
    local text = document_of(object, source.path, number, field, setting)
    each(ffi.cast("const uint8_t *", text), #text)
  end
  if source.kind == "json" then return M.each_object(source.path, give, moved) end
  csv.each_object(M.read_all(source.path), source.path, M.separator(source.path), give)
  moved(source.size)
end

--- texts(sources, field) -> function(visit), which calls visit(p, size) for all texts in chunks:
--- the input of nn.train_tokenizer.
function M.texts(sources, field)
  local function ignore() end
  return function(visit)
    for _, source in ipairs(sources) do
      if source.kind == "text" then
        M.each_text(source.path, visit, ignore)
      else
        M.each_document(source, field, visit, ignore)
      end
    end
  end
end

--- read(list, field, what) -> the text of files separated by commas, with a line end between them
--- and between documents: the texts in `field` of JSON lines and tables. what: the setting, for
--- errors. Errors: missing files, folders, Parquet files.
function M.read(list, field, what)
  local parts, setting = {}, (what:match "^.*%." or "") .. "field"
  for _, path in ipairs(paths_in(list)) do
    if files.list(path) then
      lib.deny("%s '%s' is a folder; convert its files: nnlua recipes/tokens_prepare.lua input=%s "
               .. "out=data; then use data.bin=data/train.bin data.val=data/val.bin", what, path,
               path)
    end
    local source = M.source(path, what)
    if source.kind == "text" then
      parts[#parts + 1] = M.read_all(path)
    else
      local function add(p, size) parts[#parts + 1] = ffi.string(p, size) end
      M.each_document(source, field, add, function() end, setting)
    end
  end
  return table.concat(parts, "\n")
end

return M
