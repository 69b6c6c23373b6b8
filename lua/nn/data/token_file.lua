-- Files of token ids: nanoGPT's (uint16 and nothing else) and llm.c's (a header of 256 int32, then
-- uint16 ids, or uint32 ids for vocabularies of more than 65536; dev/data/data_common.py there).
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local M = {}
local HEADER = 256                                     -- int32 numbers: magic, version, tokens, ...
local kinds = {
  {magic = 20240520, version = 1, type = "uint16_t", bytes = 2},
  {magic = 20240801, version = 7, type = "uint32_t", bytes = 4},
}

-- Whether the bytes are a text: then nothing but printable ASCII, which as uint16 would be ids from
-- 2336 on and never a frequent token.
local function looks_like_text(map)
  local bytes, count = ffi.cast("const uint8_t *", map.data), math.min(map.size, 4096)
  for i = 0, count - 1 do
    local byte = bytes[i]
    local printed = byte >= 32 and byte < 127 or byte == 9 or byte == 10 or byte == 13
    if not printed then return false end
  end
  return count >= 32
end

--- open(path, what) -> {tokens=, count=, name=, map=}: a mapped file of ids; tokens is a pointer to
--- uint16_t or uint32_t and valid while map is kept. `what` names the setting in errors.
--- Errors: a file that is missing, empty, a text, or shorter than its header says.
function M.open(path, what)
  local name = ("%s '%s'"):format(what or "the token file", path)
  local map = files.map(path, what)
  if map.size == 0 then lib.fail("%s is empty", name) end
  local header = ffi.cast("const int32_t *", map.data)
  for _, kind in ipairs(kinds) do
    if map.size >= 4 * HEADER and header[0] == kind.magic then
      local count = header[2]
      if header[1] ~= kind.version then
        lib.fail("%s has version %d in its header; %d is known", name, header[1], kind.version)
      end
      if count < 0 or 4 * HEADER + count * kind.bytes ~= map.size then
        lib.fail("%s has %.0f bytes, but its header says %d tokens of %d bytes", name, map.size,
                 count, kind.bytes)
      end
      return {tokens = ffi.cast("const " .. kind.type .. " *", map.data + 4 * HEADER),
              count = count, name = name, map = map}
    end
  end
  if looks_like_text(map) then
    lib.fail("%s is a text and no token file; give it as %s", name,
             what and what:find "^data%." and "data.text=FILE" or "text=FILE")
  end
  if map.size % 2 ~= 0 then
    lib.fail("%s has %.0f bytes, an odd number; it must hold uint16 token ids", name, map.size)
  end
  return {tokens = ffi.cast("const uint16_t *", map.data), count = map.size / 2, name = name,
          map = map}
end

local Writer = {}
Writer.__index = Writer

--- create(path, format, vocab) -> writer with :write(ids, count), :close() -> tokens. format:
--- "nanogpt" or "llmc". `ids` is an array of writer.id_type, which `vocab` decides. The file has
--- its name only after close(); until then it is PATH.tmp, and writer:discard() removes it;
--- writer:complete() is the part of close() that may fail for want of room.
--- Errors: a vocabulary of more than 65536 in nanoGPT's format; 2^31 tokens or more in llm.c's;
--- what the disk refuses.
function M.create(path, format, vocab)
  local kind = kinds[vocab > 65536 and 2 or 1]
  if format == "nanogpt" and vocab > 65536 then
    lib.fail("nanoGPT's token files hold ids below 65536, the vocabulary has %d; use format=llmc",
             vocab)
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
    lib.fail("llm.c's token files hold less than 2^31 tokens, '%s' would have more; split the "
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
