-- Temporary files: a new file has another name until it is complete. If the process ends before
-- that, even at once, it removes the file (engine/base/exit_files.h).
local ffi = require "ffi"
local file_type = require "nn.io.file_type"
local lib = require "nn.base.capi"

local M = {}

--- claim(path): the process removes this file or empty folder when it ends. What is claimed last
--- goes first.
function M.claim(path) lib.check(lib.C.nn_remove_at_exit(path)) end

--- keep(path, ...): these stay, or none of them if the process ends now. Call it before they are
--- renamed.
function M.keep(...)
  local paths = {...}
  lib.check(lib.C.nn_keep_at_exit(ffi.new("const char *[?]", #paths, paths), #paths))
end

--- begin(path) -> the name of the new file that shall replace the one at `path`. Removes a file or
--- link of that name. Errors: something else has it.
function M.begin(path)
  local temporary = path .. ".tmp"
  file_type.make_way(temporary)
  M.claim(temporary)
  return temporary
end

--- discard(temporary): removes the new file.
function M.discard(temporary)
  lib.C.unlink(temporary)
  M.keep(temporary)
end

return M
