-- Runs a command in which the system refuses some calls, as a container may:
--   nnlua deny.lua ERRNO NUMBER,NUMBER,... COMMAND ARGUMENTS
-- Ends with status 77 where the system has no filters for that.
local ffi = require "ffi"
ffi.cdef [[
  typedef struct { uint16_t code; uint8_t yes, no; uint32_t value; } nn_filter;
  typedef struct { uint16_t count; nn_filter *filters; } nn_filter_program;
  int prctl(int option, ...);
  int execvp(const char *file, const char *const *arguments);
]]
local LOAD, IF_EQUAL, RETURN = 0x20, 0x15, 0x06      -- linux/bpf_common.h
local ERROR, ALLOW = 0x00050000, 0x7FFF0000          -- linux/seccomp.h

local filters = {{LOAD, 0, 0, 0}}                    -- the number of the call
for number in arg[2]:gmatch "%d+" do
  filters[#filters + 1] = {IF_EQUAL, 0, 1, tonumber(number)}
  filters[#filters + 1] = {RETURN, 0, 0, ERROR + tonumber(arg[1])}
end
filters[#filters + 1] = {RETURN, 0, 0, ALLOW}

local program = ffi.new "nn_filter_program"
local list = ffi.new("nn_filter[?]", #filters, filters)
program.count, program.filters = #filters, list
local function long(x) return ffi.cast("long", x) end
ffi.C.prctl(38, long(1), long(0), long(0), long(0))  -- PR_SET_NO_NEW_PRIVS
if ffi.C.prctl(22, long(2), program) ~= 0 then os.exit(77) end   -- PR_SET_SECCOMP, with a filter
local words = {unpack(arg, 3)}
local arguments = ffi.new("const char *[?]", #words + 1, words)
arguments[#words] = nil                              -- what a table does not fill is not 0
ffi.C.execvp(words[1], arguments)
error("cannot run " .. words[1])
