-- Files through libc, for checkpoints, data and logs: mapped reading, durable writing (fsync),
-- folders, CRC-32, JSON. Every failure is a one-line error with the path and the system's reason.
local arguments = require "nn.base.arguments"
local cjson = require "cjson"
local ffi = require "ffi"
local file_type = require "nn.io.file_type"
local home = require "nn.io.home"
local host = require "nn.host"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"
local temporary = require "nn.io.temporary"

ffi.cdef [[
  int open(const char *path, int flags, ...);
  int close(int fd);
  long write(int fd, const void *data, size_t size);
  long lseek(int fd, long offset, int whence);
  void *mmap(void *address, size_t size, int protection, int flags, int fd, long offset);
  int munmap(void *address, size_t size);
  int madvise(void *address, size_t size, int advice);
  int fsync(int fd);
  int rename(const char *from, const char *to);
  int mkdir(const char *path, unsigned mode);
  int rmdir(const char *path);
  int symlink(const char *target, const char *path);
  char *realpath(const char *path, char *out);
  void free(void *memory);
  char *strerror(int number);
  typedef struct {
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    uint8_t type;
    char name[256];
  } nn_dirent;
  void *opendir(const char *path);
  nn_dirent *readdir(void *folder);
  int closedir(void *folder);
  typedef struct {
    unsigned long block, fragment, blocks, free, available, inodes, inodes_free, inodes_available;
    unsigned long id, flags, name_length;
    int spare[6];
  } nn_statvfs;
  int statvfs(const char *path, nn_statvfs *out);
]]

local M = {}
local C = ffi.C
local O_READ = 2048 + 524288                       -- O_RDONLY | O_NONBLOCK | O_CLOEXEC on Linux
local O_NEW = 1 + 64 + 128 + 524288                -- O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC
local NOT_THERE, EXISTS, TOO_LARGE = 2, 17, 27     -- ENOENT, EEXIST, EFBIG

-- The system's message for the last failure, and errno.
local function reason()
  local number = ffi.errno()
  local hint = number == TOO_LARGE and " (see ulimit -f)" or ""
  return ffi.string(C.strerror(number)) .. hint, number
end

-- A valid path for C: nil would be a null pointer, and a zero byte would end the path.
local function checked(path)
  arguments.need(type(path) == "string", "files", "the path", path, "a text is needed")
  if path:find("\0", 1, true) then
    lib.deny("'%s' is not a valid path: it contains a zero byte", (path:gsub("%z", "\\0")))
  end
  return path
end

local function open(path, flags)
  return C.open(checked(path), flags, ffi.cast("int", 420))  -- rw-r--r--
end

--- join(folder, name) -> path
function M.join(folder, name)
  return (folder:gsub("/+$", "")) .. "/" .. name
end

--- exists(path) -> whether the path is a file or folder that can be opened.
function M.exists(path)
  local fd = open(path, O_READ)
  if fd >= 0 then C.close(fd) end
  return fd >= 0
end

--- free_bytes(path) -> bytes that may be written to the disk of a path that exists; else nil.
function M.free_bytes(path)
  local info = ffi.new "nn_statvfs"
  if C.statvfs(path, info) ~= 0 then return nil end
  return tonumber(info.available) * tonumber(info.fragment)
end

--- list(folder) -> sorted names without "." and ".."; nil and the reason if `folder` is not a
--- readable folder.
function M.list(folder)
  local handle = C.opendir(checked(folder))
  if handle == nil then return nil, (reason()) end
  local names = {}
  while true do
    local entry = C.readdir(handle)
    if entry == nil then break end
    local name = ffi.string(entry.name)
    if name ~= "." and name ~= ".." then names[#names + 1] = name end
  end
  C.closedir(handle)
  table.sort(names)
  return names
end

--- is_link(path) -> whether it is a symbolic link.
function M.is_link(path) return file_type.link(checked(path)) ~= nil end

--- real_path(path) -> the absolute path without symbolic links; nil if there is no such file.
function M.real_path(path)
  local found = C.realpath(checked(path), nil)
  if found == nil then return nil end
  local text = ffi.string(found)
  C.free(found)
  return text
end

--- make_folder(path, what): creates a folder and its parents -> the list of created folders,
--- outermost first. Errors: the system's, naming `what`.
function M.make_folder(path, what)
  home.refuse(checked(path))
  local made, new = path:sub(1, 1) == "/" and "/" or "", {}
  for part in path:gmatch("[^/]+") do
    made = made .. part .. "/"
    if C.mkdir(made, 493) == 0 then                 -- rwxr-xr-x
      new[#new + 1] = made
    else
      local text, number = reason()
      if number ~= EXISTS and not M.list(made) then
        lib.deny("cannot create %s '%s': %s", what or "the folder", path, text)
      end
    end
  end
  if not M.list(path) then lib.deny("%s '%s' is not a folder", what or "the path", path) end
  return new
end

--- remove_empty(folders): removes folders that make_folder() created, as far as they are empty.
function M.remove_empty(folders)
  for i = #folders, 1, -1 do
    if C.rmdir(folders[i]) ~= 0 then return end
  end
end

--- remove(path): removes a file, or a folder with its contents, if it exists.
function M.remove(path)
  if C.unlink(path) == 0 then return end
  local text, number = reason()
  if number == NOT_THERE then return end
  for _, name in ipairs(M.list(path) or {}) do M.remove(M.join(path, name)) end
  if C.rmdir(path) ~= 0 then lib.deny("cannot remove '%s': %s", path, text) end
end

--- rename(from, to): renames a file, and replaces `to`. Errors: the system's.
function M.rename(from, to)
  if C.rename(from, to) ~= 0 then
    lib.deny("cannot rename '%s' to '%s': %s", from, to, (reason()))
  end
end

--- link(target, path): creates or replaces the symbolic link `path`; does nothing on file systems
--- without symbolic links. Errors: `path` is a folder.
function M.link(target, path)
  local new = path .. ".tmp"
  C.unlink(new)
  while C.symlink(target, new) ~= 0 do
    if ffi.errno() ~= EXISTS then return end
    new = new .. ".tmp"                            -- the user has a folder of that name
  end
  M.rename(new, path)
end

--- sync_folder(path): makes the names in a folder durable.
function M.sync_folder(path)
  local fd = open(path, O_READ)
  if fd < 0 then return end
  C.fsync(fd)
  C.close(fd)
end

--- crc32(data, size, crc) -> CRC-32 of a string, or of `size` bytes at a pointer; `crc` continues
--- an earlier one.
function M.crc32(data, size, crc)
  local out = ffi.new "uint32_t[1]"
  lib.check(lib.C.nn_crc32(data, size or #data, crc or 0, out))
  return out[0]
end

local Writer = {}
Writer.__index = Writer

--- create(path) -> writer with :write(data, size), :close() -> bytes, crc32. The file is new: an
--- earlier one is removed, as is a link, which is not followed. close() makes the file durable.
--- Errors: something else has that name; the file and the system's reason (no space left, ...).
function M.create(path)
  file_type.make_way(checked(path))
  local fd = open(path, O_NEW)
  if fd < 0 then lib.deny("cannot write '%s': %s", path, (reason())) end
  return setmetatable({path = path, fd = fd, bytes = 0, crc = 0}, Writer)
end

function Writer:fail()
  local text = reason()
  C.close(self.fd)
  lib.deny("cannot write '%s': %s", self.path, text)
end

function Writer:write(data, size)
  size = size or #data
  self.crc = M.crc32(data, size, self.crc)
  self.bytes = self.bytes + size
  local at = ffi.cast("const char *", data)
  while size > 0 do
    local done = tonumber(C.write(self.fd, at, size))
    if done < 0 then
      if ffi.errno() ~= 4 then self:fail() end       -- EINTR: try again
    else
      at, size = at + done, size - done
    end
  end
end

--- writer:overwrite(offset, data, size): replaces bytes written before; the crc32 of close() is
--- then invalid.
function Writer:overwrite(offset, data, size)
  C.lseek(self.fd, offset, 0)
  self:write(data, size)
  self.bytes = self.bytes - size
  C.lseek(self.fd, 0, 2)
end

function Writer:close()
  if C.fsync(self.fd) ~= 0 then self:fail() end
  C.close(self.fd)
  return self.bytes, self.crc
end

-- A regular file opened for reading, and its size. Errors: as map().
local function open_sized(path, what)
  local kind = file_type.of(checked(path))
  if kind and kind ~= "file" then
    lib.deny("cannot read %s '%s': it is a %s%s", what or "the file", path, kind,
             kind ~= "folder" and "; a regular file is needed" or "")
  end
  local fd = open(path, O_READ)
  if fd < 0 then lib.deny("cannot read %s '%s': %s", what or "the file", path, (reason())) end
  return fd, math.max(0, tonumber(C.lseek(fd, 0, 2)))   -- SEEK_END
end

--- size(path, what) -> bytes of a file. Errors: as map().
function M.size(path, what)
  local fd, size = open_sized(path, what)
  C.close(fd)
  return size
end

local function address_of(data) return tonumber(ffi.cast("uintptr_t", data)) end

--- map(path, what) -> {data=, size=}: the bytes of a file (uint8_t*), mapped into memory as long as
--- `data` is referenced. Errors: an unreadable file, named by `what` (such as "data.bin") and path.
function M.map(path, what)
  local fd, size = open_sized(path, what)
  local map = {path = path, what = what or "the file", size = size, fd = fd}
  if size == 0 then
    C.close(fd)
    map.data = ffi.new "uint8_t[1]"
    return map
  end
  local address = C.mmap(nil, size, 1, 2, fd, 0)   -- PROT_READ, MAP_PRIVATE
  if ffi.cast("intptr_t", address) == -1 then
    local text = reason()
    C.close(fd)
    lib.deny("cannot read %s '%s': %s", map.what, path, text)
  end
  host.watch(address_of(address), size)
  map.data = ffi.gc(ffi.cast("uint8_t *", address), function(at)
    host.unwatch(address_of(at))
    C.munmap(at, size)
    C.close(fd)
  end)
  return map
end

--- check(map): call it after reading: raises an error if the file was truncated since map(), or
--- could not be read. The missing bytes read as zeros.
function M.check(map)
  if map.size == 0 then return end
  local now = tonumber(C.lseek(map.fd, 0, 2))
  if now < map.size then
    lib.deny("%s '%s' was truncated while it was read: it has %.0f bytes now and had %.0f",
             map.what, map.path, now, map.size)
  end
  if host.damaged(address_of(map.data)) then
    lib.deny("cannot read %s '%s': a read error occurred, or the file was truncated temporarily",
             map.what, map.path)
  end
end

--- unmap(map): ends the mapping; nothing may use its data afterwards.
function M.unmap(map)
  if map.size == 0 then return end
  local release = ffi.gc(map.data, nil)
  host.unwatch(address_of(release))
  C.munmap(release, map.size)
  C.close(map.fd)
  map.data, map.size = ffi.new "uint8_t[1]", 0
end

--- forget(map, first, bytes): removes these bytes from this process's memory; later accesses read
--- them from the file again.
function M.forget(map, first, bytes)
  local page = 4096
  local from = math.floor(first / page) * page
  if map.size > 0 and bytes > 0 then C.madvise(map.data + from, first + bytes - from, 4) end
end                                                -- MADV_DONTNEED

--- read(path, what) -> string: a whole file. Errors: as map().
function M.read(path, what)
  local map = M.map(path, what)
  local text = ffi.string(map.data, map.size)
  lib.finally(function() M.unmap(map) end, M.check, map)
  return text
end

--- replace(path, f, in_folder) -> f(new), which writes the file `new`. It then replaces the file
--- at `path`, or the one to which links there lead; in_folder: see write_in(). Readers see the old
--- or the new file, even after a crash. A failure or an interrupt leaves the old one. Errors: what
--- is at `path` is not a regular file.
function M.replace(path, f, in_folder)
  local replaced = file_type.replaced(checked(path))
  if in_folder then replaced = path end
  local new = temporary.begin(replaced)
  return lib.guarded(function() temporary.discard(new) end, function()
    local results = {f(new)}
    temporary.keep(new)
    M.rename(new, replaced)
    return unpack(results)
  end)
end

local function writing(text)
  return function(new)
    local writer = M.create(new)
    writer:write(text)
    writer:close()
  end
end

--- write(path, text): replaces a file by a text, as replace() does.
function M.write(path, text) M.replace(path, writing(text)) end

--- write_in(folder, name, text): the same in a model's folder. A link there is itself replaced: it
--- may lead to a file that other folders share.
function M.write_in(folder, name, text) M.replace(M.join(folder, name), writing(text), true) end

--- number_text(x) -> x with the fewest digits (15 to 17) that read back as x.
function M.number_text(x)
  for digits = 15, 17 do
    local text = ("%." .. digits .. "g"):format(x)
    if tonumber(text) == x then return text end
  end
  return tostring(x)                                -- NaN
end

local function json_text(value) return (cjson.encode(value):gsub("\\/", "/")) end

--- json(value, indent) -> text. Names are sorted and numbers are exact, so that equal values give
--- equal texts; NaN and infinities become null. With an `indent` (""), one member per line.
function M.json(value, indent)
  if type(value) == "number" then
    local finite = value == value and math.abs(value) ~= math.huge
    return finite and M.number_text(value) or "null"
  end
  if type(value) ~= "table" then return json_text(value) end
  local parts, inner = {}, indent and indent .. "  "
  if #value > 0 then
    for i, element in ipairs(value) do parts[i] = M.json(element) end
    return "[" .. table.concat(parts, ",") .. "]"
  end
  for i, name in ipairs(tables.sorted_keys(value)) do
    parts[i] = json_text(name) .. (indent and ": " or ":") .. M.json(value[name], inner)
  end
  if not indent or #parts == 0 then return "{" .. table.concat(parts, ",") .. "}" end
  local line = "\n" .. inner
  return "{" .. line .. table.concat(parts, "," .. line) .. "\n" .. indent .. "}"
end

--- parse_json(text) -> value, or nil and the reason.
function M.parse_json(text)
  local good, value = pcall(cjson.decode, text)
  if good then return value end
  return nil, tostring(value)
end

return M
