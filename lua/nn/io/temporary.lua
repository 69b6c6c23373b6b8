-- Temporary files: what is written under another name is renamed when it is complete. They go when
-- the process ends, also at once (engine/base/exit_files.h).
local file_type = require "nn.io.file_type"
local lib = require "nn.base.capi"

local M = {}

--- claim(path): this file or folder goes when the process ends, a folder only if it is empty then.
--- What is claimed last goes first.
function M.claim(path) lib.check(lib.C.nn_remove_at_exit(path, 1)) end

--- keep(path): it stays. Comes before the file is renamed.
function M.keep(path) lib.check(lib.C.nn_remove_at_exit(path, 0)) end

--- begin(path) -> the name of the new file that shall replace the one at `path`; removes an earlier
--- one of that name, or a link. Errors: it is neither.
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
