-- Access to the C API: passes the declarations in bindings/*.h and kernels/params/ (the text
-- between their markers) to ffi.cdef unchanged. Also raises user-facing
-- errors, and counts tensor memory, which LuaJIT's collector cannot see.

local ffi = require "ffi"
local blame = require "nn.base.blame"
local hints = require "nn.base.hints"
local host = require "nn.host"

local M = {}

local declared = {}

-- Declares a header after those of kernels/params/ that it includes.
local function declare(file)
  if declared[file] then return end
  declared[file] = true
  local path = host.root .. "/" .. file
  local f = assert(io.open(path),
                   "nnlua: " .. path .. " is missing; the installation is incomplete")
  local text = f:read("*a")
  f:close()
  for included in text:gmatch '#include "(kernels/params/[^"]+)"' do declare(included) end
  if file == "kernels/params.h" then return end  -- the list of the others
  ffi.cdef((assert(text:match("// <cdef>\n(.-)// </cdef>"), path .. " has no <cdef> markers")))
end
declare("kernels/params.h")
declare("bindings/nn.h")
declare("bindings/nn_plan.h")
declare("bindings/nn_text.h")
declare("bindings/nn_data.h")
ffi.cdef "int isatty(int fd);"

local C = ffi.C
M.C = C

-- An error behaves as its text: e:find "...", e .. "...".
local Error = {}
Error.__index = Error
Error.__tostring = function(e)
  local text = e.where and (e.where .. ": " .. e.message) or e.message
  return e.trace and text .. "\n" .. e.trace or text
end
Error.__concat = function(a, b) return tostring(a) .. tostring(b) end
for name, f in pairs(string) do
  Error[name] = function(e, ...) return f(tostring(e), ...) end
end

-- Raises an error with a text made by string.format.
local function raise(where, format, ...)
  local message = select("#", ...) > 0 and format:format(...) or format
  error(setmetatable({message = message, where = where}, Error), 0)
end

--- nn.fail(format, ...) raises a user-facing error with a text made by string.format. It prints
--- without position and traceback.
---     nn.fail("%d is too many", 7)  --> error: 7 is too many
function M.fail(format, ...) raise(nil, format, ...) end

--- Raises an error for a mistake in the calling script, with the position in the script and the
--- path of the module.
function M.misuse(format, ...)
  local where, path = blame.place(), blame.module()
  raise(where, "%s%s", format:format(...), path)
end

local warned = {}

--- warn_once(text): writes a warning to stderr, with the position in the script. The same text is
--- written once only.
function M.warn_once(text)
  if warned[text] then return end
  warned[text] = true
  local where = blame.place()
  io.stderr:write("warning: ", where and where .. ": " or "", text, "\n")
end

--- Raises an error for what a script names: a file, the settings of a model. It has the position in
--- the script, unless that is one of nnlua's recipes: what is wrong there is on the command line.
function M.deny(format, ...)
  local where, source = blame.place(true)
  if source and blame.in_recipe(source) then where = nil end
  raise(where, format, ...)
end

--- shortened(text, most) -> the text, or its first `most` (300) bytes and "...": for errors that
--- quote a file.
function M.shortened(text, most)
  most = most or 300
  if #text <= most then return text end
  return text:sub(1, most):gsub("[\192-\255]?[\128-\191]*$", "") .. "..."
end

--- Whether a caught error was raised by the library.
function M.is_error(e) return getmetatable(e) == Error end

--- Whether a caught error was raised by a stop signal.
function M.is_interrupt(e)
  if M.is_error(e) then return e.interrupted or false end
  return type(e) == "string" and (e == "interrupted" or e:find ": interrupted$" ~= nil)
end

-- Lines of a traceback that do not help: functions of C and LuaJIT, this file, calls of modules and
-- the prompt.
local function is_noise(line)
  for _, text in ipairs {"[C]:", "[builtin#", "lua/nn/base/capi.lua:", "lua/nn/core/iterate.lua:",
                         "lua/nn/core/module.lua:", "lua/nn/core/layer_path.lua:", "lua/repl",
                         "\trepl:1:"} do
    if line:find(text, 1, true) then return true end
  end
end

--- traced(e) -> the error text e with a traceback from here, for xpcall. User-facing errors and
--- other error values are returned unchanged.
function M.traced(e)
  if type(e) ~= "string" or M.is_interrupt(e) then return e end
  local advice = hints.advice(e, blame.variables())
  local where = advice ~= "" and blame.in_library() and blame.place()    -- of a user's mistake
  if where then e = e:gsub("^.-:%d+", function() return where end, 1) end
  e = e .. advice .. blame.module()
  local lines = {}
  for line in debug.traceback("", 2):gmatch "[^\n]+" do
    if not is_noise(line) then lines[#lines + 1] = line end
  end
  local trace = #lines > 1 and table.concat(lines, "\n") or nil
  return setmetatable({message = e, trace = trace}, Error)
end

host.traced = M.traced         -- for scripts that the program runs

-- The error of a stop signal says nothing about f, and a run that caught it would train on.
local function unless_interrupt(good, ...)
  if not good and M.is_interrupt((...)) then error((...), 0) end
  return good, ...
end

--- attempt(f, ...): pcall(f, ...) that raises the error of a stop signal again.
function M.attempt(f, ...) return unless_interrupt(pcall(f, ...)) end

--- protected(f, ...) -> true and f's results, or false and the error with its traceback. Raises the
--- error of a stop signal again.
function M.protected(f, ...) return unless_interrupt(xpcall(f, M.traced, ...)) end

local function finish(after, good, ...)
  after(good)
  if not good then error((...), 0) end
  return ...
end

--- finally(after, f, ...) -> f(...). Then calls after(good), and raises f's error again if any.
function M.finally(after, f, ...) return finish(after, xpcall(f, M.traced, ...)) end
blame.finally = M.finally

--- guarded(clean, f, ...) -> f(...). If f fails, calls clean() and raises the error again.
function M.guarded(clean, f, ...)
  return M.finally(function(good) return good or clean() end, f, ...)
end

local function raise_status(status)
  local message = ffi.string(C.nn_error())
  local interrupted = status == C.NN_INTERRUPTED
  if interrupted then
    C.nn_clear_interrupt()
    error(setmetatable({message = message, interrupted = true}, Error), 0)
  end
  local where, path = blame.place(), blame.module()       -- of the mistake
  raise(where, "%s%s", message, path)
end

--- Raises if a C call failed.
function M.check(status)
  if status < 0 then raise_status(status) end
  return status
end

M.CHECK_EVERY = 2 ^ 12         -- steps of a short loop between calls of check_interrupt()

--- check_interrupt(): raises "interrupted" after Ctrl-C. Long loops of the library call it, because
--- LuaJIT's machine code calls no hook.
function M.check_interrupt() M.check(C.nn_check_interrupt()) end

-- Bytes of tensors created since the last collection. To LuaJIT a tensor of megabytes is a handle
-- of 16 bytes, so the library starts collections by tensor bytes.
local created = 0
local collect_after = 512e6

--- Calls a C function that creates tensors. If memory is short, collects garbage, waits for all
--- tasks, and tries again.
function M.check_creating(call, ...)
  local status = call(...)
  if status == C.NN_OUT_OF_MEMORY then
    collectgarbage()
    collectgarbage()
    C.nn_sync()
    created = 0
    status = call(...)
  end
  if status < 0 then raise_status(status) end
end

--- Counts bytes of created tensors, and collects garbage when they exceed a limit.
function M.count_bytes(bytes)
  created = created + bytes
  if created > collect_after then
    created = 0
    collectgarbage()
  end
end

M.dtypes = {[0] = "f32", "f64", "bf16", "i32", "i64", "u8", "bool"}
M.dtype_number = {}
for number, name in pairs(M.dtypes) do M.dtype_number[name] = number end
M.dtype_size = {f32 = 4, f64 = 8, bf16 = 2, i32 = 4, i64 = 8, u8 = 1, bool = 1}
M.host_type = {
  f32 = "float", f64 = "double", bf16 = "uint16_t", i32 = "int32_t", i64 = "int64_t",
  u8 = "uint8_t", bool = "uint8_t",
}

return M
