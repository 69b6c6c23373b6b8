-- The types and stamps of files, from statx(2), whose structure is the same on all processors.
-- Opening a pipe waits for its writer, and a device may have no end, so the library reads regular
-- files only.
local bit = require "bit"
local ffi = require "ffi"

ffi.cdef [[
  typedef struct {
    uint8_t before[28];
    uint16_t mode, spare;
    uint64_t inode, size;
    uint8_t between[64];
    int64_t modified;
    uint32_t modified_nanoseconds;
    uint8_t rest[132];
  } nn_statx;
  int statx(int folder, const char *path, int flags, unsigned mask, nn_statx *out);
]]

local M = {}
local HERE, TYPE, BASIC = -100, 1, 0x7ff           -- AT_FDCWD, STATX_TYPE, STATX_BASIC_STATS
local names = {[0x1000] = "pipe", [0x2000] = "device", [0x4000] = "folder", [0x6000] = "device",
               [0x8000] = "file", [0xC000] = "socket"}
local out = ffi.new "nn_statx"

--- of(path) -> "file" (a regular one), "folder", "pipe", "device" or "socket", after following
--- links; nil if it cannot be determined, such as for a missing file.
function M.of(path)
  if ffi.C.statx(HERE, path, 0, TYPE, out) ~= 0 then return nil end
  return names[bit.band(out.mode, 0xF000)]
end

--- stamp(path) -> a text that is another one after the file has changed; nil if there is no file.
function M.stamp(path)
  if ffi.C.statx(HERE, path, 0, BASIC, out) ~= 0 then return nil end
  return ("%s %s %s.%d"):format(out.inode, out.size, out.modified, out.modified_nanoseconds)
end

return M
