-- The memory that tensors use, and its budgets, in RAM and on GPUs.

local arguments = require "nn.base.arguments"
local ffi = require "ffi"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {}

--- nn.memory() -> {budget, in_use, cached, peak, tensors, available, nodes, gpus, moved} in bytes.
--- `budget`: the most that tensors may use, 0 if the limits of the process leave nothing;
--- `cached`: freed blocks kept for reuse; `peak`: the largest in_use since nn.reset_peak();
--- `available`: RAM that the system can still provide;
--- `nodes`: {name, used, limit} of each memory node, RAM first; `gpus`: those of GPUs, whose limit
--- nn.devices sets; `moved`: all bytes copied between memory nodes so far.
---     nn.memory().budget > 0, nn.memory().nodes[1].name  --> true, "RAM"
function M.memory()
  local m, out = ffi.new "nn_memory_info_t", {nodes = {}, gpus = {}}
  check(C.nn_memory(m))
  for _, name in ipairs {"budget", "in_use", "cached", "peak", "tensors", "available"} do
    out[name] = tonumber(m[name])
  end
  local room = 64
  local used, limit = ffi.new("int64_t[?]", room), ffi.new("int64_t[?]", room)
  local count, name = ffi.new("int32_t[1]", room), ffi.new "const char *[1]"
  check(C.nn_node_memory(used, limit, count))
  for i = 0, count[0] - 1 do
    check(C.nn_node_name(i, name))
    local node = {name = ffi.string(name[0]), used = tonumber(used[i]), limit = tonumber(limit[i])}
    table.insert(out.nodes, node)
    if node.name:find "^GPU" then table.insert(out.gpus, node) end
  end
  check(C.nn_bytes_moved(used))
  out.moved = tonumber(used[0])
  return out
end

--- nn.memory_budget(bytes) limits the memory of tensors; a tensor that does not fit is an error.
--- `bytes` may not exceed the memory that the process can use; 0 sets the default, measured again.
--- The default is 90 % of the available memory, within the limits of the process (ulimit -v,
--- control group). Errors: these limits leave no memory.
---     nn.memory_budget(nn.memory().budget)
function M.memory_budget(bytes)
  arguments.need(type(bytes) == "number" and math.abs(bytes) < 2 ^ 62, "memory_budget",
                 "the argument", bytes, "a number of bytes is needed")
  check(C.nn_memory_budget(bytes))
end

--- nn.reset_peak() sets nn.memory().peak to the bytes in use now.
---     nn.reset_peak()
---     nn.memory().peak == nn.memory().in_use  --> true
function M.reset_peak() check(C.nn_reset_peak()) end

return M
