-- File locks, which the system releases when their process ends. A run locks its folder.
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local temporary = require "nn.io.temporary"

ffi.cdef [[
  int fcntl(int fd, int command, ...);
  typedef struct {
    int16_t type, whence;
    int64_t start, length;
    int32_t process;
  } nn_file_lock;
]]

local M = {}
local C = ffi.C
local O_LOCK = 2 + 64 + 524288                     -- O_RDWR | O_CREAT | O_CLOEXEC
local AGAIN, DENIED = 11, 13                       -- EAGAIN, EACCES
local GET_LOCK, SET_LOCK = 5, 6                    -- F_GETLK, F_SETLK
local WRITE_LOCK, NO_LOCK = 1, 2                   -- F_WRLCK, F_UNLCK
local RETRIES = 100                                -- after which a lock counts as held

local Lock = {}
Lock.__index = Lock
local held = {}                                    -- locks of this process by key

-- The same for all spellings of a path.
local function key_of(path)
  local folder, name = path:match "^(.*)/([^/]*)$"
  return (files.real_path(folder or ".") or folder or "") .. "/" .. (name or path)
end

-- Whether an open file was deleted after it was opened.
local function deleted(fd)
  local target = ffi.new "char[4096]"
  local size = C.readlink("/proc/self/fd/" .. fd, target, 4096)
  return size > 0 and ffi.string(target, size):find " %(deleted%)$" ~= nil
end

--- lock(path) -> a lock; creates the file. If another process holds the lock: nil and the ID of
--- that process (0: unknown). The lock ends with lock:release() or with the process. A process can
--- lock a file several times. On a file system without locks, every call succeeds. Errors: the
--- system's.
function M.lock(path, retries)
  local key = key_of(path)
  local lock = held[key]
  if not lock then
    local fd = C.open(path, O_LOCK, ffi.cast("int", 420))
    if fd < 0 then lib.deny("cannot write '%s': %s", path, ffi.string(C.strerror(ffi.errno()))) end
    local wanted = ffi.new("nn_file_lock", {type = WRITE_LOCK})
    if C.fcntl(fd, SET_LOCK, wanted) ~= 0 and (ffi.errno() == AGAIN or ffi.errno() == DENIED) then
      C.fcntl(fd, GET_LOCK, wanted)
      C.close(fd)
      if wanted.type == NO_LOCK and (retries or 0) < RETRIES then     -- released in the meantime
        return M.lock(path, (retries or 0) + 1)
      end
      return nil, wanted.type == WRITE_LOCK and math.max(0, wanted.process) or 0
    end
    if deleted(fd) then                            -- by the process that had the lock
      C.close(fd)
      return M.lock(path)
    end
    temporary.claim(key)
    lock = setmetatable({path = path, key = key, fd = fd, count = 0}, Lock)
    lock.guard = newproxy(true)
    getmetatable(lock.guard).__gc = function() lock.count = 1 lock:release() end
    held[key] = lock
  end
  lock.count = lock.count + 1
  return lock
end

--- lock:release(): the last release deletes the file, and the folders `lock.made` if empty.
function Lock:release()
  self.count = self.count - 1
  if self.count > 0 or held[self.key] ~= self then return end
  held[self.key] = nil
  temporary.keep(self.key)                         -- first: another process may lock a new file
  if not deleted(self.fd) then C.unlink(self.key) end      -- else the end of the process did that
  C.close(self.fd)
  files.remove_empty(self.made or {})
  temporary.keep(unpack(self.made or {}))
end

return M
