-- Token files: nanoGPT's (uint16 ids only) and llm.c's (a header of 256 int32, then uint16 ids, or
-- uint32 ids for vocabularies of more than 65536; see dev/data/data_common.py in llm.c).
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local M = {}
local HEADER = 256                                     -- int32 numbers: magic, version, tokens, ...
local kinds = {
  {magic = 20240520, version = 1, type = "uint16_t", bytes = 2},
  {magic = 20240801, version = 7, type = "uint32_t", bytes = 4},
}

-- Whether the file begins with printable ASCII only. As uint16 ids this would be ids of 2313 and
-- more only, without any frequent token.
local function looks_like_text(map)
  local bytes, count = ffi.cast("const uint8_t *", map.data), math.min(map.size, 4096)
  for i = 0, count - 1 do
    local byte = bytes[i]
    local printed = byte >= 32 and byte < 127 or byte == 9 or byte == 10 or byte == 13
    if not printed then return false end
  end
  return count >= 32
end

--- open(path, what) -> {tokens=, count=, name=, map=}: a mapped token file. tokens points to
--- uint16_t or uint32_t and is valid as long as map is referenced. `what`: the setting, for errors.
--- Errors: a file that is missing, empty, a text, or does not match its header.
function M.open(path, what)
  local name = ("%s '%s'"):format(what or "the token file", path)
  local map = files.map(path, what)
  if map.size == 0 then lib.deny("%s is empty", name) end
  local header, is_text = ffi.cast("const int32_t *", map.data), looks_like_text(map)
  files.check(map)
  for _, kind in ipairs(kinds) do
    if map.size >= 4 * HEADER and header[0] == kind.magic then
      local count = header[2]
      if header[1] ~= kind.version then
        lib.deny("%s has version %d in its header; nnlua reads version %d", name, header[1],
                 kind.version)
      end
      if count < 0 or 4 * HEADER + count * kind.bytes ~= map.size then
        lib.deny("%s has %.0f bytes, but its header says %d tokens of %d bytes", name, map.size,
                 count, kind.bytes)
      end
      return {tokens = ffi.cast("const " .. kind.type .. " *", map.data + 4 * HEADER),
              count = count, name = name, map = map}
    end
  end
  if is_text then
    lib.deny("%s is a text, not a token file; give it as %s", name,
             what and what:find "^data%." and "data.text=FILE" or "text=FILE")
  end
  if map.size % 2 ~= 0 then
    lib.deny("%s has %.0f bytes, an odd number; it must contain uint16 token ids", name, map.size)
  end
  return {tokens = ffi.cast("const uint16_t *", map.data), count = map.size / 2, name = name,
          map = map}
end

local Writer = {}
Writer.__index = Writer

--- create(path, format, vocab) -> writer with :write(ids, count), :close() -> tokens. format:
--- "nanogpt" or "llmc". `ids` is an array of writer.id_type, which depends on `vocab`. The file is
--- PATH.tmp until close() renames it; writer:discard() removes it. writer:complete() does all of
--- close() that can fail on a full disk. Errors: a vocabulary of more than 65536 in nanoGPT's
--- format; 2^31 tokens or more in llm.c's; failures of the disk.
function M.create(path, format, vocab)
  local kind = kinds[vocab > 65536 and 2 or 1]
  if format == "nanogpt" and vocab > 65536 then
    lib.deny("nanoGPT's token files need ids below 65536, but the vocabulary has %d; use "
             .. "format=llmc", vocab)
  end
  local self = setmetatable({path = path, kind = kind, id_type = kind.type, count = 0,
                             header = format == "llmc",
                             file = files.create(path .. ".tmp")}, Writer)
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
  self.completed = true
end

function Writer:close()
  self:complete()
  files.rename(self.path .. ".tmp", self.path)
  return self.count
end

function Writer:discard() files.remove(self.path .. ".tmp") end

return M
