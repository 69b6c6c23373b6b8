-- Sequential reading in bounded memory of a plain, gzip or zstd file; the first bytes distinguish
-- them. zlib reads plain and gzip files, and the compressed bytes of zstd files.
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

ffi.cdef [[
  typedef struct nn_gz *nn_gz_file;
  nn_gz_file gzopen(const char *path, const char *mode);
  int gzbuffer(nn_gz_file file, unsigned size);
  int gzread(nn_gz_file file, void *out, unsigned size);
  long gzoffset(nn_gz_file file);
  int gzrewind(nn_gz_file file);
  int gzdirect(nn_gz_file file);
  const char *gzerror(nn_gz_file file, int *number);
  int gzclose(nn_gz_file file);
  typedef struct { const void *data; size_t size, at; } nn_zstd_in;
  typedef struct { void *data; size_t size, at; } nn_zstd_out;
  void *ZSTD_createDStream(void);
  size_t ZSTD_freeDStream(void *stream);
  size_t ZSTD_decompressStream(void *stream, nn_zstd_out *out, nn_zstd_in *in);
  unsigned ZSTD_isError(size_t code);
  const char *ZSTD_getErrorName(size_t code);
]]

local M = {}
local loaded, zlib = pcall(ffi.load, "libz.so.1")
if not loaded then zlib = ffi.load "z" end

-- ### gzip and plain files

local Gzip = {}
Gzip.__index = Gzip

local function open_gzip(path, size)
  local file = zlib.gzopen(path, "rb")
  if file == nil then lib.deny("cannot read '%s'", path) end
  zlib.gzbuffer(file, 2 ^ 18)
  return setmetatable({path = path, size = size, file = ffi.gc(file, zlib.gzclose),
                       number = ffi.new "int[1]"}, Gzip)
end

-- What was decompressed before the damage is returned first; the next read() fails.
local function damaged(self, reason, count)
  self.damage = self.damage or reason
  if count > 0 then return count end
  lib.deny("cannot decompress '%s': %s", self.path, self.damage)
end

function Gzip:read(out, room)
  if self.damage then return damaged(self, nil, 0) end
  local count = zlib.gzread(self.file, out, room)
  local text = zlib.gzerror(self.file, self.number)
  if count < room and (count < 0 or self.number[0] < 0) then
    return damaged(self, self.number[0] == -5 and "it ends too early" or ffi.string(text), count)
  end
  return count
end

-- Whether the file is not gzip.
function Gzip:plain() return zlib.gzdirect(self.file) == 1 end

function Gzip:position() return tonumber(zlib.gzoffset(self.file)) end

function Gzip:close()
  zlib.gzclose(ffi.gc(self.file, nil))
  self.file = nil
end

-- ### zstd

local Zstd = {}
Zstd.__index = Zstd

local ZSTD_ROOM = 2 ^ 17          -- compressed bytes that are read at a time
local zstd                        -- a global reference: the library must outlive its streams

local function open_zstd(packed)
  if not zstd then
    local found, library = pcall(ffi.load, "libzstd.so.1")
    zstd = found and library or lib.deny("cannot decompress '%s': libzstd.so.1 is missing; on "
                                         .. "Debian: apt install libzstd1", packed.path)
  end
  local stream = ffi.gc(zstd.ZSTD_createDStream(), zstd.ZSTD_freeDStream)
  local buffer = ffi.new("uint8_t[?]", ZSTD_ROOM)
  return setmetatable({path = packed.path, size = packed.size, packed = packed, stream = stream,
                       buffer = buffer, input = ffi.new("nn_zstd_in", buffer, 0, 0),
                       output = ffi.new "nn_zstd_out", within = false}, Zstd)
end

function Zstd:read(out, room)
  if self.damage then return damaged(self, nil, 0) end
  local input, output = self.input, self.output
  output.data, output.size, output.at = out, room, 0
  while output.at < room do
    if input.at == input.size then
      input.size, input.at = self.packed:read(self.buffer, ZSTD_ROOM), 0
    end
    local ended = input.size == 0
    if ended and not self.within then break end
    local before = output.at
    local code = zstd.ZSTD_decompressStream(self.stream, output, input)
    if zstd.ZSTD_isError(code) ~= 0 then
      return damaged(self, ffi.string(zstd.ZSTD_getErrorName(code)), tonumber(output.at))
    end
    self.within = code ~= 0                          -- in the middle of a frame
    if self.within and ended and output.at == before then
      return damaged(self, "it ends too early", tonumber(output.at))
    end
  end
  return tonumber(output.at)
end

function Zstd:plain() return false end
function Zstd:position() return self.packed:position() end

function Zstd:close()
  self.packed:close()
  self.stream = nil
end

--- open(path) -> stream with size (bytes on disk), :plain() (whether it is not compressed),
--- :read(out, room) -> bytes read (0 at the end; fewer than `room` there, or before damage, which
--- the next read() reports), :position() (bytes on disk
--- read so far), :close(). Errors: a missing file; compressed data that is damaged or incomplete.
function M.open(path)
  local packed, head = open_gzip(path, files.size(path)), ffi.new "uint8_t[4]"
  local is_zstd = packed:plain() and packed:read(head, 4) == 4
    and ffi.string(head, 4) == "\40\181\47\253"
  zlib.gzrewind(packed.file)
  return is_zstd and open_zstd(packed) or packed
end

local spare                       -- a buffer for all files

--- unpacked_size(path) -> bytes of the text; reads all of a compressed file.
function M.unpacked_size(path)
  local stream = M.open(path)
  local total, room = 0, 2 ^ 20
  if stream:plain() then
    total = stream.size
  else
    spare = spare or ffi.new("uint8_t[?]", room)
    repeat
      local count = stream:read(spare, room)
      total = total + count
    until count == 0
  end
  stream:close()
  return total
end

return M
