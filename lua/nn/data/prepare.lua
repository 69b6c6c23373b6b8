-- Converts texts to token files, for recipes/tokens_prepare.lua. Input is read in chunks of some
-- megabytes, so memory does not grow with it; output files get their final names at the end.
local cjson = require "cjson"
local ffi = require "ffi"
local data = require "nn.data.loader"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local units = require "nn.base.units"
local stream = require "nn.io.stream"
local tables = require "nn.base.tables"
local token_file = require "nn.data.token_file"

local M = {}
local CHUNK = 2 ^ 22               -- bytes that are read and encoded at a time
local LONGEST = 2 ^ 28             -- bytes of a JSON line, or of text without white space

-- ### Finding input files

local function plain_name(name) return (name:gsub("%.gz$", ""):gsub("%.zst$", "")) end
local function is_json(name)
  name = plain_name(name)
  return name:find "%.jsonl$" ~= nil or name:find "%.ndjson$" ~= nil or name:find "%.json$" ~= nil
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
    elseif wanted[plain_name(name):match "%.(%w+)$" or ""] then
      out[#out + 1] = path
    end
  end
end

--- sources(input, extensions) -> list of {path=, json=, size=}. `input`: files and folders,
--- separated by commas; from a folder, all files with one of the extensions ("txt,md,jsonl"), also
--- followed by .gz or .zst, sorted by path; a folder that several links reach is read once.
--- size: bytes on the disk. Errors: missing files; no file found.
function M.sources(input, extensions)
  local wanted, paths, out = {}, {}, {}
  for extension in extensions:gmatch "[^,%s]+" do wanted[extension] = true end
  for path in input:gmatch "[^,]+" do
    if files.list(path) then
      add_folder(path, wanted, paths, {})
    else
      paths[#paths + 1] = path
    end
  end
  if #paths == 0 then
    lib.fail("input '%s' contains no file with an extension of %s", input, extensions)
  end
  for i, path in ipairs(paths) do
    out[i] = {path = path, json = is_json(path), size = files.size(path, "input")}
  end
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
      lib.fail("'%s': no line end or space in %d bytes; is it a text?", path, room)
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

local function document_of(line, source, number, field)
  local good, value = pcall(cjson.decode, line)
  if not good or type(value) ~= "table" then
    lib.fail("'%s', line %d is not a JSON object (%s)", source.path, number, tostring(value))
  end
  local text = value[field]
  if type(text) == "string" then return text end
  if text ~= nil then
    lib.fail("'%s', line %d: '%s' is %s; a text is needed", source.path, number, field,
             files.json(text))
  end
  lib.fail("'%s', line %d has no field '%s'; it has %s; choose one with field=", source.path,
           number, field, table.concat(tables.sorted_keys(value), ", "))
end

-- Calls each(p, size) for the text of every JSON line; skips blank lines.
local function each_document(source, field, each, moved)
  local number = 0
  each_chunk(source.path, last_line_end, function(p, size)
    for line in ffi.string(p, size):gmatch "([^\n]*)\n?" do
      number = number + 1
      if number == 1 then line = line:gsub("^\239\187\191", "") end      -- a byte order mark
      if line:find "%S" then
        local text = document_of(line, source, number, field)
        each(ffi.cast("const uint8_t *", text), #text)
      end
    end
  end, moved)
end

--- texts(sources, field) -> function(visit), which calls visit(p, size) for all texts in chunks:
--- the input of nn.train_tokenizer.
function M.texts(sources, field)
  local function ignore() end
  return function(visit)
    for _, source in ipairs(sources) do
      if source.json then
        each_document(source, field, visit, ignore)
      else
        each_chunk(source.path, last_cut, visit, ignore)
      end
    end
  end
end

-- ### Writing

local Output = {}
Output.__index = Output

-- Appends the ids of p[0 .. size - 1] to a writer.
function Output:text(writer, p, size)
  if size == 0 then return end
  self.has_text[writer] = true
  if self.tokenizer.kind ~= "byte" then
    return writer:write(self.tokenizer:encode_bytes(p, size))
  end
  if size > self.room then
    self.room = size
    self.ids = ffi.new(writer.id_type .. "[?]", size)
  end
  for i = 0, size - 1 do self.ids[i] = p[i] end
  writer:write(self.ids, size)
end

function Output:separator(writer)
  if self.separator_id then
    writer:write(ffi.new(writer.id_type .. "[1]", self.separator_id), 1)
  end
end

-- A text is one document. The end of it, a fraction `val` of its bytes from a line start, is for
-- validation.
local function write_text(self, source, moved)
  local total = stream.unpacked_size(source.path)
  local target, done, validating = total * (1 - self.val), 0, self.val == 0 and -1 or 0
  each_chunk(source.path, last_cut, function(p, size)
    local from = 0
    if validating == 0 and done + size >= target then
      local at = math.max(1, math.floor(target - done))
      while at < size and p[at - 1] ~= 10 do at = at + 1 end
      if at < size then
        self:text(self.train, p, at)
        from, validating = at, 1
      end
    end
    self:text(validating == 1 and self.validation or self.train, p + from, size - from)
    done = done + size
  end, moved)
  self:separator(self.train)
  if validating == 1 then self:separator(self.validation) end
end

-- Each line is a document; a fraction `val` of them, drawn at random, is for validation.
local function write_json_lines(self, source, moved)
  each_document(source, self.field, function(p, size)
    self.documents = self.documents + 1
    local validating = data.random(self.seed, self.documents) < self.val
    local writer = validating and self.validation or self.train
    self:text(writer, p, size)
    self:separator(writer)
  end, moved)
end

local function progress_of(sources)
  local total, before, start = 0, 0, engine.now()
  local shown = start
  for _, source in ipairs(sources) do total = total + source.size end
  local tty = engine.is_tty(2)
  local function show(bytes, last)
    local now = engine.now()
    if now - shown < (tty and 0.2 or 10) and not (last and tty) then return end
    shown = now
    local rate = bytes / math.max(1e-9, now - start)
    local text = ("%3.0f%%  %s of %s  %s/s  eta %s"):format(100 * bytes / math.max(1, total),
      units.bytes(bytes), units.bytes(total), units.bytes(rate),
      units.duration((total - bytes) / math.max(1, rate)))
    io.stderr:write(tty and "\r" or "", text, tty and "\27[K" or "\n")
    if last and tty then io.stderr:write "\n" end
  end
  return function(bytes)
    if engine.interrupted() then lib.fail "interrupted; no file was written" end
    show(before + bytes)
  end, function(source) before = before + source.size end, function() show(total, true) end
end

local function write_all(self, sources)
  local moved, finished, done = progress_of(sources)
  for _, source in ipairs(sources) do
    (source.json and write_json_lines or write_text)(self, source, moved)
    finished(source)
  end
  done()
end

-- Both files must contain text; training on them would fail otherwise.
local function need_text(self)
  if not self.has_text[self.train] then lib.fail "the input has no text; no file was written" end
  if self.validation and not self.has_text[self.validation] then
    lib.fail("val=%g leaves no text for validation: %s; give more text, a larger val, or val=0 "
             .. "for no validation; no file was written", self.val, self.documents == 0
             and "no line of a file begins in that fraction at its end"
             or ("none of the %d documents was drawn"):format(self.documents))
  end
end

-- Writes the tokenizer's files, renames the token files, and writes tokens.json.
local function publish(self, cfg)
  need_text(self)
  self.train:complete()
  if self.validation then self.validation:complete() end
  cfg.tokenizer:save(cfg.out)
  local counts = {val = self.validation and self.validation:close() or 0,
                  train = self.train:close()}
  files.write(files.join(cfg.out, "tokens.json"), files.json({
    train = counts.train, val = counts.val, vocab = cfg.tokenizer.size, format = cfg.format,
    separator = self.separator_id and cfg.separator or nil}, "") .. "\n")
  return counts
end

--- prepare(cfg) -> {train=, val=}, the numbers of tokens. Writes train.bin, val.bin (unless val is
--- 0), the tokenizer, and tokens.json (a summary) to cfg.out. cfg: sources (see sources()),
--- tokenizer (of nn.tokenizer, or a "byte" vocabulary), out, format, val, seed, field, separator.
--- Errors: no text for training or for validation; failures of the disk. They leave no file and no
--- new folder.
function M.prepare(cfg)
  local made, tokenizer = files.make_folder(cfg.out, "the output folder"), cfg.tokenizer
  local self = setmetatable({tokenizer = tokenizer, val = cfg.val, seed = cfg.seed, has_text = {},
                             field = cfg.field, documents = 0, room = 0}, Output)
  local function discard()
    if self.train then self.train:discard() end
    if self.validation then self.validation:discard() end
    files.remove_empty(made)
  end
  return lib.guarded(discard, function()
    if cfg.separator ~= "" and tokenizer.special then
      self.separator_id = tokenizer.special[cfg.separator]
        or lib.fail("the tokenizer has no special token '%s'; set separator=", cfg.separator)
    end
    local function create(name)
      return token_file.create(files.join(cfg.out, name), cfg.format, tokenizer.size)
    end
    self.train = create "train.bin"
    self.validation = cfg.val > 0 and create "val.bin"
    write_all(self, cfg.sources)
    return publish(self, cfg)
  end)
end

return M
