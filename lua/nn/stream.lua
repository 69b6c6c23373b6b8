-- Reading a file from its beginning on in bounded memory: plain, gzip or zstd, told apart by the
-- first bytes. zlib reads both plain and gzip files; zstd's input is mapped.
local ffi = require "ffi"
local files = require "nn.files"
local lib = require "nn.ffi"

ffi.cdef [[
  typedef struct nn_gz *nn_gz_file;
  nn_gz_file gzopen(const char *path, const char *mode);
  int gzbuffer(nn_gz_file file, unsigned size);
  int gzread(nn_gz_file file, void *out, unsigned size);
  long gzoffset(nn_gz_file file);
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
  if file == nil then lib.fail("cannot read '%s'", path) end
  zlib.gzbuffer(file, 2 ^ 18)
  return setmetatable({path = path, size = size, file = ffi.gc(file, zlib.gzclose),
                       number = ffi.new "int[1]"}, Gzip)
end

function Gzip:read(out, room)
  local count = zlib.gzread(self.file, out, room)
  local text = zlib.gzerror(self.file, self.number)
  if count < 0 or self.number[0] < 0 then
    local reason = self.number[0] == -5 and "it ends too early" or ffi.string(text)
    lib.fail("cannot unpack '%s': %s", self.path, reason)
  end
  return count
end

function Gzip:position() return tonumber(zlib.gzoffset(self.file)) end

function Gzip:close()
  zlib.gzclose(ffi.gc(self.file, nil))
  self.file = nil
end

-- ### zstd

local Zstd = {}
Zstd.__index = Zstd

local zstd                        -- kept: the library must outlive its streams

local function open_zstd(path, map)
  if not zstd then
    local found, library = pcall(ffi.load, "libzstd.so.1")
    zstd = found and library or lib.fail("cannot unpack '%s': there is no libzstd.so.1; on Debian: "
                                         .. "apt install libzstd1", path)
  end
  local stream = ffi.gc(zstd.ZSTD_createDStream(), zstd.ZSTD_freeDStream)
  return setmetatable({path = path, size = map.size, map = map, stream = stream,
                       input = ffi.new("nn_zstd_in", map.data, map.size, 0),
                       output = ffi.new "nn_zstd_out", within = false}, Zstd)
end

function Zstd:read(out, room)
  local input, output = self.input, self.output
  output.data, output.size, output.at = out, room, 0
  while output.at < room and (input.at < input.size or self.within) do
    local before = output.at
    local code = zstd.ZSTD_decompressStream(self.stream, output, input)
    if zstd.ZSTD_isError(code) ~= 0 then
      lib.fail("cannot unpack '%s': %s", self.path,
               ffi.string(zstd.ZSTD_getErrorName(code)))
    end
    self.within = code ~= 0                          -- in the middle of a frame
    if self.within and input.at == input.size and output.at == before then
      lib.fail("cannot unpack '%s': it ends too early", self.path)
    end
  end
  return tonumber(output.at)
end

function Zstd:position() return tonumber(self.input.at) end
function Zstd:close() self.stream, self.map = nil, nil end

--- open(path) -> stream with size (bytes on disk), :read(out, room) -> bytes read (fewer than
--- `room` only at the end), :position() (bytes on disk that were read), :close().
--- Errors: no such file; packed data that is damaged or ends too early.
function M.open(path)
  local map = files.map(path)
  local is_zstd = map.size >= 4 and ffi.string(map.data, 4) == "\40\181\47\253"
  return is_zstd and open_zstd(path, map) or open_gzip(path, map.size)
end

--- unpacked_size(path) -> bytes of the text; reads all of a packed file.
function M.unpacked_size(path)
  local stream, room = M.open(path), 2 ^ 20
  local buffer, total = ffi.new("uint8_t[?]", room), 0
  while true do
    local count = stream:read(buffer, room)
    total = total + count
    if count < room then break end
  end
  stream:close()
  return total
end

return M
