-- The types and stamps of files, and which paths a new file may take, from statx(2), whose
-- structure is the same on all processors. Opening a pipe waits for its writer, and a device may
-- have no end, so the library reads and writes regular files only.
local bit = require "bit"
local ffi = require "ffi"
local lib = require "nn.base.capi"

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
  long readlink(const char *path, char *target, size_t size);
  int unlink(const char *path);
]]

local M = {}
local HERE, TYPE, BASIC = -100, 1, 0x7ff           -- AT_FDCWD, STATX_TYPE, STATX_BASIC_STATS
local NO_FOLLOW, PATH_MAX = 0x100, 4096            -- AT_SYMLINK_NOFOLLOW
local MOST_LINKS = 40                              -- in a row, as in Linux
local names = {[0x1000] = "pipe", [0x2000] = "device", [0x4000] = "folder", [0x6000] = "device",
               [0x8000] = "file", [0xA000] = "link", [0xC000] = "socket"}
local out = ffi.new "nn_statx"

--- link(path) -> what a symbolic link contains; nil if it is none.
function M.link(path)
  local text = ffi.new("char[?]", PATH_MAX)
  local size = ffi.C.readlink(path, text, PATH_MAX)
  return size >= 0 and ffi.string(text, size) or nil
end

--- of(path) -> "file" (a regular one), "folder", "pipe", "device" or "socket", after following
--- links; nil if it cannot be determined, such as for a missing file.
function M.of(path)
  if ffi.C.statx(HERE, path, 0, TYPE, out) ~= 0 then return nil end
  return names[bit.band(out.mode, 0xF000)]
end

local function need_file(kind, path)
  if kind and kind ~= "file" then
    lib.deny("cannot write '%s': it is a %s; give the path of a file", path, kind)
  end
end

--- replaced(path) -> the path of the file that a writer replaces: where the links at `path` lead,
--- which stay. Errors: it is not a regular file, and writing would destroy it.
function M.replaced(path)
  local at = path
  for _ = 1, MOST_LINKS do
    need_file(M.of(at), path)
    local target = M.link(at)
    if not target then return at end
    at = target:sub(1, 1) == "/" and target or (at:match "^.*/" or "") .. target
  end
  lib.deny("cannot write '%s': its links lead in a circle", path)
end

--- make_way(path): removes an earlier file, or a link, from the path of a new file. Errors: it is
--- neither.
function M.make_way(path)
  local is_there = ffi.C.statx(HERE, path, NO_FOLLOW, TYPE, out) == 0
  local kind = is_there and names[bit.band(out.mode, 0xF000)] or nil
  if kind ~= "link" then need_file(kind, path) end
  if kind then ffi.C.unlink(path) end
end

--- stamp(path) -> a text that is another one after the file has changed; nil if there is no file.
function M.stamp(path)
  if ffi.C.statx(HERE, path, 0, BASIC, out) ~= 0 then return nil end
  return ("%s %s %s.%d"):format(out.inode, out.size, out.modified, out.modified_nanoseconds)
end

return M
