-- Texts in files: plain ones, JSON (lines or a list), tables of comma-separated values, each also
-- compressed. A reader that takes `bad` calls bad(message) for what it cannot read and goes on;
-- without it, that is an error.
local chunks = require "nn.data.chunks"
local csv = require "nn.data.csv"
local cuts = require "nn.text.cuts"
local ffi = require "ffi"
local files = require "nn.io.files"
local json_records = require "nn.data.json_records"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"
local utf8 = require "nn.base.utf8"

local M = {}

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

--- each_text(path, each, moved, bad, cut): calls each(p, size) for the chunks of a text, which end
--- where `cut` says (see cuts.lua), moved(bytes) with the bytes of the file read so far.
function M.each_text(path, each, moved, bad, cut)
  chunks.each(path, {cut = cut or cuts.any, take = each, unit = "piece without a place to cut"},
              moved, bad)
end

--- read_all(path, bad) -> the whole text of a file, also of a compressed one.
function M.read_all(path, bad)
  local parts = {}
  chunks.each(path, {cut = function(_, size) return size end,
                     take = function(p, size) parts[#parts + 1] = ffi.string(p, size) end},
              function() end, bad)
  return table.concat(parts)
end

-- The text in a field of a record; nil and what is wrong. setting: that chooses the field.
local function document_of(object, field, setting)
  local text = object[field]
  if type(text) == "string" then
    local at = utf8.invalid(text)
    if not at then return text end
    return nil, (": '%s' is not UTF-8 text (byte %d of it)"):format(field, at)
  end
  if text ~= nil then
    return nil, (": '%s' is %s; a text is needed"):format(field, json_records.described(text))
  end
  local names = tables.sorted_keys(object)
  local what = (" has no field '%s'; it has %s; "):format(field,
                                                          lib.shortened(table.concat(names, ", ")))
  for _, name in ipairs(names) do
    local value = object[name]
    if type(value) == "table" and type(value[1]) == "table" and #value[1] == 0 then
      return nil, ("%sthe records seem to be in '%s'; %s"):format(what, lib.shortened(name, 60),
        json_records.convert(lib.shortened(name, 60)))
    end
  end
  return nil, ("%schoose one with %s="):format(what, setting or "field")
end

--- separator(path) -> what separates the cells of a table: a tab in .tsv files, else a comma.
function M.separator(path) return extension_of(path) == "tsv" and "\t" or "," end

--- each_document(source, field, each, moved, options): calls each(p, size) for the text in this
--- field of every JSON object, or in this column of every row of a table. options.setting: the name
--- of the one that chooses the field, for errors; options.bad: as at the head of this file.
function M.each_document(source, field, each, moved, options)
  local path, bad = source.path, options and options.bad
  local function give(object, place)
    local text, wrong = document_of(object, field, options and options.setting)
    if text then return each(ffi.cast("const uint8_t *", text), #text) end
    chunks.refuse(bad, "'%s', %s%s", path, place, wrong)
  end
  if source.kind == "json" then return json_records.each(path, give, moved, bad) end
  csv.each_object(M.read_all(path, bad), path, M.separator(path), give, bad)
  moved(source.size)
end

--- texts(sources, field, bad) -> function(visit), which calls visit(p, size) for all texts in
--- chunks: the input of nn.train_tokenizer.
function M.texts(sources, field, bad)
  local function ignore() end
  return function(visit)
    for _, source in ipairs(sources) do
      if source.kind == "text" then
        M.each_text(source.path, visit, ignore, bad)
      else
        M.each_document(source, field, visit, ignore, {bad = bad})
      end
    end
  end
end

--- read(list, field, what) -> the text of files separated by commas, with a line end between them
--- and between documents; and the list of documents: files, or the texts in `field` of JSON and
--- tables; nil for one plain text. what: the setting, for errors. Errors: missing files, folders,
--- Parquet files.
function M.read(list, field, what)
  local parts, setting, records = {}, (what:match "^.*%." or "") .. "field", false
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
      M.each_document(source, field, add, function() end, {setting = setting})
      records = true
    end
  end
  return table.concat(parts, "\n"), (records or #parts > 1) and parts or nil
end

return M
