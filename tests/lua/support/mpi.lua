-- For tests with several ranks: the program, and whether it can start them.
local ffi = require "ffi"
local files = require "nn.io.files"
local t = require "nn.test"
ffi.cdef "int getpid(void);"

local M = {}
M.program = files.real_path(("/proc/%d/exe"):format(ffi.C.getpid()))

--- missing() -> why several ranks cannot start here, or nil.
function M.missing()
  local mpirun = os.execute "command -v mpirun >/dev/null 2>&1"
  if mpirun ~= 0 and mpirun ~= true then return "mpirun is not installed" end
  if not files.exists(M.program:match "^(.*)/" .. "/libnnlua_mpi.so") then
    return "this build has no MPI"
  end
end

--- need(): skips the case where MPI is not installed or not built in.
function M.need()
  local missing = M.missing()
  if missing then t.skip(missing) end
end

return M
