-- Token files: those of llm.c (a header of 256 int32, then ids of 16 or 32 bits; see
-- dev/data/data_common.py in llm.c), numpy's .npy, and numbers without a header, as of nanoGPT. A
-- file of any other kind is refused by its name.
local ffi = require "ffi"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local known_ids = require "nn.text.known_ids"
local lib = require "nn.base.capi"
local npy = require "nn.data.npy"
local plausible = require "nn.data.plausible"
local progress = require "nn.data.progress"
local signatures = require "nn.io.signatures"
local temporary = require "nn.io.temporary"

-- Elements of 64 bits read as numbers of Lua.
ffi.cdef [[
  typedef struct { const int64_t *at; } nn_ids_int64;
  typedef struct { const uint64_t *at; } nn_ids_uint64;
]]
for _, name in ipairs {"nn_ids_int64", "nn_ids_uint64"} do
  ffi.metatype(name, {__index = function(self, i) return tonumber(self.at[i]) end})
end

local M = {}
local HEADER = 256                                     -- int32 numbers: magic, version, tokens, ...
local kinds = {
  {magic = 20240520, version = 1, type = "uint16_t", bytes = 2, dtype = "uint16"},
  {magic = 20240801, version = 7, type = "uint32_t", bytes = 4, dtype = "uint32"},
}
-- Other files of llm.c.
local others = {[20240326] = "a model of llm.c", [20240803] = "a model of llm.c",
                [20240522] = "an evaluation set of llm.c", [20240328] = "a tokenizer of llm.c",
                [20240327] = "a debug state of llm.c", [20240527] = "a training state of llm.c"}
local bytes_of = {uint8 = 1, uint16 = 2, uint32 = 4, uint64 = 8, int8 = 1, int16 = 2, int32 = 4,
                  int64 = 8}

--- dtypes: the choices of the setting that states the dtype of a file without a header.
M.dtypes = {"auto", "uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64"}

-- The ids from byte `at` of a map.
local function pointer(map, at, dtype)
  local p = ffi.cast(("const %s_t *"):format(dtype), map.data + at)
  return bytes_of[dtype] == 8 and ffi.new("nn_ids_" .. dtype, p) or p
end

-- A header of llm.c -> {dtype=, count=, at=}; nil if the file has none.
local function llmc_header(map, name)
  local header = ffi.cast("const int32_t *", map.data)
  local magic = map.size >= 12 and header[0] or 0
  local month, day = math.floor(magic / 100) % 100, magic % 100
  local is_date = magic > 20240000 and magic < 20400000 and month >= 1 and month <= 12 and day >= 1
    and day <= 31 and header[1] >= 0 and header[1] < 100
  if not is_date then return nil end
  for _, kind in ipairs(kinds) do
    if magic == kind.magic then
      local count = header[2]
      if header[1] ~= kind.version then
        lib.deny("%s has version %d in its header; nnlua reads version %d", name, header[1],
                 kind.version)
      end
      if count < 0 or 4 * HEADER + count * kind.bytes ~= map.size then
        lib.deny("%s has %.0f bytes, but its header says %d tokens of %d bytes", name, map.size,
                 count, kind.bytes)
      end
      return {dtype = kind.dtype, count = count, at = 4 * HEADER}
    end
  end
  lib.deny("%s is %s (its first number is %d), not training data; give a token file", name,
           others[magic] or "a file of a kind that nnlua does not know", magic)
end

-- Whether tokens.json beside a file of tokens_prepare.lua states so many 16-bit ids for it.
local function is_own(path, count)
  local folder, part = path:match "^(.-)([^/]*)%.bin$"
  local summary = folder and folder .. "tokens.json"
  if not summary or not files.exists(summary) then return false end
  local stated = files.parse_json(files.read(summary))
  return type(stated) == "table" and stated.format == "nanogpt" and stated[part] == count
end

-- What nothing but the dtype describes. dtype: as the user states it, or nil.
local function headerless(map, name, dtype, setting)
  local bytes = bytes_of[dtype or "uint16"]
  if map.size % bytes ~= 0 then
    lib.deny("%s has %.0f bytes, %s; %s", name, map.size,
             bytes == 2 and "an odd number" or ("no multiple of %d"):format(bytes),
             dtype and ("%s is %s"):format(setting, dtype)
             or "it must contain uint16 token ids, or have a header")
  end
  local guessed = not dtype and not is_own(map.path, map.size / 2)
  if guessed then plausible.need(map.data, map.size, name, setting) end
  return {dtype = dtype or "uint16", count = map.size / bytes, at = 0, guessed = guessed}
end

local function layout_of(map, name, dtype, setting)
  if npy.is_npy(map.data, map.size) then
    local header = npy.header(map.data, map.size, name)
    header.numpy = true
    return header
  end
  local header = llmc_header(map, name)
  if header then return header end
  local what, advice = signatures.of(map.data, map.size)
  if what then lib.deny("%s is %s, not a token file; %s", name, what, advice) end
  local encoding = signatures.utf16(map.data, math.min(map.size, 4))       -- by its mark
  if encoding or signatures.is_text(map.data, map.size) then
    lib.deny("%s is a text%s, not a token file; give it as %s", name,
             encoding and " in " .. encoding or "",
             setting:find "^data%." and "data.text=FILE" or "text=FILE")
  end
  return headerless(map, name, dtype, setting)
end

--- open(path, what, dtype) -> {tokens=, count=, name=, map=, dtype=, guessed=, numpy=, note=}: a
--- mapped token file. tokens[i] is id i, from 0, valid as long as map is referenced; guessed:
--- nothing says that the numbers are 16-bit ids; note: about its shape. `what`: the setting, for
--- errors. dtype: of a file without a header; nil or "auto": 16 bits if they can be token ids.
--- Errors: a file that is missing, empty, of another kind, does not match its header or dtype, or
--- does not look like token ids.
function M.open(path, what, dtype)
  local name = ("%s '%s'"):format(what or "the token file", path)
  local setting = (what and what:match "^.*%." or "") .. "dtype"
  if dtype == "auto" then dtype = nil end
  if dtype and not bytes_of[dtype] then
    lib.deny("%s is '%s'; it must be one of %s", setting, dtype, table.concat(M.dtypes, ", "))
  end
  local map = files.map(path, what)
  if map.size == 0 then lib.deny("%s is empty", name) end
  local good, layout = lib.protected(layout_of, map, name, dtype, setting)
  files.check(map)
  if not good then error(layout, 0) end
  if dtype and layout.dtype ~= dtype then
    lib.deny("%s has ids of %s, as its header says; leave out %s=%s", name, layout.dtype, setting,
             dtype)
  end
  return {tokens = pointer(map, layout.at, layout.dtype), count = layout.count, name = name,
          map = map, dtype = layout.dtype, bytes = bytes_of[layout.dtype],
          guessed = layout.guessed, numpy = layout.numpy, setting = setting, note = layout.rows
          and ("%s has rows (%s); they follow each other"):format(name, layout.rows)}
end

-- What to do about an id beyond the vocabulary. A recipe that trains has a vocabulary to set; one
-- that evaluates a model has not.
local function advice_of(file)
  local trains = file.setting:find "^data%."
  if file.guessed then
    return ("nothing in the file says that it has 16-bit ids; %sstate the dtype of its ids (%s)")
      :format(trains and "give its tokenizer (data.vocabulary), or " or "", file.setting)
  end
  return trains and "set model.vocab to the vocabulary size of the file"
    or "give a file of the model's tokenizer"
end

-- The least and the largest id, and their positions.
local function extremes(file, shown)
  local tokens, count = file.tokens, file.count
  local least, least_at, most, most_at, at = math.huge, 0, -math.huge, 0, 0
  while at < count do
    local stop = math.min(count, at + 2 ^ 22)
    for i = at, stop - 1 do
      local id = tokens[i]
      if id > most then most, most_at = id, i end
      if id < least then least, least_at = id, i end
    end
    at = stop
    lib.check_interrupt()
    shown:show(at * file.bytes)
  end
  return least, least_at, most, most_at
end

--- check_ids(file, vocab, words): raises an error if an id of the file is negative, or not below
--- `vocab`. words: the tokenizer, or nil. It reads the file once, about a billion ids per second,
--- and shows its progress.
function M.check_ids(file, vocab, words)
  if file.dtype:find "^u" and 2 ^ (8 * file.bytes) <= vocab then return end
  local shown = progress.new(file.count * file.bytes, "checking " .. file.name)
  local least, least_at, most, most_at = lib.finally(function() shown:clear() end, extremes, file,
                                                     shown)
  files.check(file.map)
  if least < 0 then
    lib.deny("%s: token %.0f at position %.0f (from 0) is negative; token ids count from 0",
             file.name, least, least_at)
  elseif most >= vocab then
    local place = (" at position %.0f (from 0), the largest one,"):format(most_at)
    if words and most < words.size then
      known_ids.refuse(file.name, most, vocab, words, place)
    end
    lib.deny("%s: token %.0f at position %.0f (from 0), the largest one, is outside the vocabulary "
             .. "of %d; %s", file.name, most, most_at, vocab, advice_of(file))
  end
end

local Writer = {}
Writer.__index = Writer

--- check_format(format, vocab): raises an error if files of this format cannot hold the ids.
function M.check_format(format, vocab)
  if format == "nanogpt" and vocab > 65536 then
    lib.deny("nanoGPT's token files need ids below 65536, but the vocabulary has %d; use "
             .. "format=llmc", vocab)
  end
end

--- create(path, format, vocab) -> writer with :write(ids, count), :close() -> tokens. format:
--- "nanogpt" or "llmc". `ids` is an array of writer.id_type, which depends on `vocab`. The file is
--- PATH.tmp until close() renames it; discard(path) removes it. writer:complete() does all of
--- close() that can fail on a full disk. A link at `path` stays, and where it leads is written.
--- Errors: something else than a file has that name; a vocabulary of more than 65536 in nanoGPT's
--- format; 2^31 tokens or more in llm.c's; failures of the disk.
function M.create(path, format, vocab)
  local kind = kinds[vocab > 65536 and 2 or 1]
  M.check_format(format, vocab)
  path = file_type.replaced(path)
  local self = setmetatable({path = path, kind = kind, id_type = kind.type, count = 0,
                             header = format == "llmc",
                             file = files.create(temporary.begin(path))}, Writer)
  if self.header then self.file:write(ffi.new("int32_t[?]", HEADER), 4 * HEADER) end
  return self
end

function Writer:write(ids, count)
  self.count = self.count + count
  if self.header and self.count >= 2 ^ 31 then
    lib.deny("llm.c's token files have fewer than 2^31 tokens, but '%s' would have more; split the "
             .. "input", self.path)
  end
  self.file:write(ids, count * self.kind.bytes)
end

function Writer:complete()
  if self.completed then return end
  if self.header then
    local header = ffi.new("int32_t[?]", 3, self.kind.magic, self.kind.version, self.count)
    self.file:overwrite(0, header, 12)
  end
  self.file:close()
  temporary.keep(self.file.path)                       -- before any file of the set is renamed
  self.completed = true
end

function Writer:close()
  self:complete()
  files.rename(self.file.path, self.path)
  return self.count
end

--- discard(path): removes what an interrupted or failed writer of this path has left.
function M.discard(path)
  local new = file_type.replaced(path) .. ".tmp"
  if file_type.of(new) == "file" then temporary.discard(new) end
end

return M
