-- docs/waits.md lists every call of the sources that can wait, by file, with their number: a new
-- one needs a line that says who ends it.
local files = require "nn.io.files"
local root = require("nn.host").root
local t = require "nn.test"
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local sources = require "sources"

local calls = {
  "%.wait%(", "%.wait_for%(", "sem_timedwait%(", "nanosleep%(", "usleep%(", "sleep_for%(",
  "%.join%(%)", "[^:%w]poll%(", "flock%(", "waitpid%(", "EventSynchronize%(", "acquire_on_node%(",
  "starpu_pause%(", "starpu_shutdown%(", "MPI_Allgather%(", "MPI_Finalize%(",
  "MPI_Init_thread%(", "mpi_init_comm%(", "mpi_shutdown%(", "data_unregister%(",
  "StreamSynchronize%(", "sem_wait%(", "fsync%(", "yield%(%)",
}

-- The number of calls that can wait in a file, without comments and declarations for LuaJIT.
local function waits_in(path, text)
  local count, comment = 0, path:find "%.lua$" and "%-%-.*" or "//.*"
  for line in text:gmatch "[^\n]+" do
    line = line:gsub(comment, "")
    if not line:find "^%s*int %w+%(" and not line:find "cdef" then
      for _, call in ipairs(calls) do count = count + select(2, line:gsub(call, "")) end
    end
  end
  return count
end

local function listed(text)
  local out = {}
  for path, count in text:gmatch "\n| `([^`]+)` %((%d+)%) |" do out[path] = tonumber(count) end
  return out
end

t.case("docs/waits.md lists every call that can wait", function()
  local found = {}
  for path, text in pairs(sources.copy()) do
    local is_product = not path:find "^tests/" and not path:find "^recipes/"
    local count = is_product and waits_in(path, text) or 0
    if count > 0 then found[path] = count end
  end
  t.same(listed(files.read(root .. "/docs/waits.md")), found)
end)

t.case("calls that can wait are recognised", function()
  t.same(waits_in("a.cc", "changed.wait(lock, [&] { return done; });  // .wait(\n  a.join();\n"), 2)
  t.same(waits_in("a.cc", "for (--waiting; waiting > 0;) std::this_thread::yield();"), 1)
  t.same(waits_in("a.lua", "  int poll(nn_pollfd *files, unsigned long count, int timeout);\n"), 0)
  t.same(waits_in("a.lua", "  ffi.C.usleep(1000)  -- usleep(1)\n  saver:poll(1)"), 1)
end)

t.finish()
