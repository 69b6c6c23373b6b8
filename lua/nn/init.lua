-- The table `nn`: everything a script uses. Ops come from the engine's registry (op.lua), the rest
-- from the files beside this one, loaded when first asked for.

local ffi = require "ffi"
local lib = require "nn.ffi"
local ops = require "nn.op"
local tensor = require "nn.tensor"
local grad = require "nn.grad"
local module = require "nn.module"
local layers = require "nn.layers"
local C, check = lib.C, lib.check

local nn = {}
package.loaded["nn"] = nn

ops.install(nn)
nn.tensor, nn.from_host = tensor.tensor, tensor.from_host
nn.is_tensor, nn.Tensor = tensor.is_tensor, tensor.Tensor
nn.scalar, nn.fail = ops.scalar, lib.fail
nn.no_grad, nn.grad, nn.gradient_rule = grad.no_grad, grad.grad, grad.gradient_rule
nn.grad_enabled = grad.enabled
nn.module, nn.is_module = module.module, module.is_module
nn.parameter, nn.list = module.parameter, module.list
for name, value in pairs(layers) do nn[name] = value end

--- nn.ops() -> the registry: a sorted list of {name, doc, inputs, attributes, samples, no_gradient,
--- category}.
function nn.ops()
  local out = {}
  for i, name in ipairs(ops.names) do out[i] = ops.ops[name] end
  return out
end

local function split_shape(...)
  local shape, options = {}, nil
  for _, value in ipairs {...} do
    if type(value) == "table" and #value == 0 then options = value
    elseif type(value) == "table" then shape = value
    else shape[#shape + 1] = value end
  end
  return shape, options or {}
end

local function creator(name, fixed)
  return function(...)
    local shape, options = split_shape(...)
    local all = {dtype = options.dtype, axes = options.axes}
    for key, value in pairs(options) do if key ~= "grad" then all[key] = value end end
    for key, value in pairs(fixed) do all[key] = value end
    local y = ops.call(name, shape, all)
    y.requires_grad = options.grad or nil
    return y
  end
end
--- nn.zeros(3, 4, {dtype="f32", grad=false}), and likewise nn.ones, nn.rand (uniform in [0,1)) and
--- nn.randn (normal).
nn.zeros, nn.ones = creator("full", {value = 0}), creator("full", {value = 1})
nn.rand, nn.randn = creator("uniform", {}), creator("normal", {})
--- nn.zeros_like(x), nn.ones_like(x).
function nn.zeros_like(x) return nn.full_like(x, 0) end
function nn.ones_like(x) return nn.full_like(x, 1) end

local Tensor = tensor.Tensor
--- x:transpose(a, b) swaps two axes; x:t() the last two.
function Tensor:transpose(a, b)
  local order, n = {}, #self.shape
  for i = 1, n do order[i] = i end
  a, b = a < 0 and n + 1 + a or a, b < 0 and n + 1 + b or b
  if not order[a] or not order[b] then
    lib.misuse("transpose: axes %d and %d of a tensor of %d", a, b, n)
  end
  order[a], order[b] = order[b], order[a]
  return self:permute(order)
end
function Tensor:t() return self:transpose(-2, -1) end
Tensor.view = Tensor.reshape
--- x:unsqueeze(axis) adds an axis of size 1 there; x:squeeze(axis) takes one away.
function Tensor:unsqueeze(axis)
  local shape = {unpack(self.shape)}
  table.insert(shape, axis < 0 and #shape + 2 + axis or axis, 1)
  return self:reshape(shape)
end
function Tensor:squeeze(axis)
  local shape = {unpack(self.shape)}
  axis = axis < 0 and #shape + 1 + axis or axis
  if shape[axis] ~= 1 then
    lib.misuse("squeeze: axis %d has size %s, not 1", axis, tostring(shape[axis]))
  end
  table.remove(shape, axis)
  return self:reshape(shape)
end
--- x:split(parts, axis=-1) -> that many tensors of equal size along an axis; parts may also be a
--- list of sizes.
function Tensor:split(parts, axis)
  axis = axis or -1
  local size, sizes = self:dim(axis), parts
  if type(parts) == "number" then
    if size % parts ~= 0 then
      lib.misuse("split: size %d does not divide into %d parts", size, parts)
    end
    sizes = {}
    for i = 1, parts do sizes[i] = size / parts end
  end
  local out, at = {}, 1
  for i, n in ipairs(sizes) do
    out[i] = self:slice(axis, at, at + n - 1)
    at = at + n
  end
  if at ~= size + 1 then
    lib.misuse("split: the sizes add up to %d, the axis has %d", at - 1, size)
  end
  return unpack(out)
end
--- x:masked_fill(mask, value): value where the mask is true, x elsewhere.
function Tensor:masked_fill(mask, value) return mask:where(value, self) end
function nn.masked_fill(x, mask, value) return x:masked_fill(mask, value) end
--- nn.stack{a, b, ...} joins tensors of one shape along a new first axis.
function nn.stack(list)
  local out = {}
  for i, t in ipairs(list) do out[i] = t:unsqueeze(1) end
  return nn.cat(out, 1)
end
--- nn.mse(x, y) -> mean of (x - y)^2.
function nn.mse(x, y) return (x - y):square():mean() end

--- nn.seed(n) starts the random sequence again.
function nn.seed(seed) check(C.nn_seed(seed)) end
--- nn.random_state() -> {seed, counter}; nn.set_random_state(t) goes back there.
function nn.random_state()
  local seed, counter = ffi.new "uint64_t[1]", ffi.new "uint64_t[1]"
  check(C.nn_random_state(seed, counter))
  return {seed = tonumber(seed[0]), counter = tonumber(counter[0])}
end
function nn.set_random_state(state)
  check(C.nn_seed(state.seed))
  check(C.nn_set_random_counter(state.counter))
end

--- nn.devices{cpus=4, scheduler="prio"} chooses the workers, before the first tensor is computed.
--- nn.workers() -> cpus, gpus.
function nn.devices(options) check(C.nn_configure(options.cpus or 0, options.scheduler)) end
function nn.workers()
  local cpus, gpus = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
  check(C.nn_workers(cpus, gpus))
  return cpus[0], gpus[0]
end

--- nn.tiles{tokens=1024, vocab=8192}: tile sizes by axis name, for tensors made from now on; 0 is
--- automatic. A schedule, not a part of the model: results do not depend on it beyond rounding.
function nn.tiles(sizes)
  for axis, size in pairs(sizes) do check(C.nn_tile_size(axis, size)) end
end

--- nn.memory() -> {budget, in_use, cached, peak, tensors, available} in bytes.
--- nn.memory_budget(bytes) sets the budget.
function nn.memory()
  local m = ffi.new "nn_memory_info_t"
  check(C.nn_memory(m))
  return {budget = tonumber(m.budget), in_use = tonumber(m.in_use), cached = tonumber(m.cached),
          peak = tonumber(m.peak), tensors = tonumber(m.tensors),
          available = tonumber(m.available)}
end
function nn.memory_budget(bytes) check(C.nn_memory_budget(bytes)) end
function nn.reset_peak() check(C.nn_reset_peak()) end

--- nn.scope(f, ...) -> f(...). Every tensor made inside is freed at the end, except those that f
--- returns.
function nn.scope(f, ...)
  check(C.nn_scope_begin())
  local results = {pcall(f, ...)}
  local count, kept = table.maxn(results), {}
  for i = 2, count do
    if tensor.is_tensor(results[i]) then kept[#kept + 1] = results[i] end
  end
  local refs = ffi.new("nn_ref[?]", math.max(1, #kept))
  for i, t in ipairs(kept) do refs[i - 1] = t.ref end
  check(C.nn_scope_end(refs, #kept))
  if not results[1] then error(results[2], 0) end
  return unpack(results, 2, count)
end

--- nn.sync() waits until everything submitted is done.
function nn.sync() check(C.nn_sync()) end
function nn.interrupted()
  local flag = ffi.new "int32_t[1]"
  C.nn_interrupted(flag)
  return flag[0] ~= 0
end
function nn.clear_interrupt() C.nn_clear_interrupt() end
function nn.defer_interrupts(deferred) C.nn_defer_interrupts(deferred and 1 or 0) end
function nn.version() return ffi.string(C.nn_version()) end
function nn.is_tty(fd) return C.isatty(fd) == 1 end

ffi.cdef [[
typedef struct { long sec, nsec; } nn_timespec;
int clock_gettime(int clock, nn_timespec *t);
]]
local now = ffi.new "nn_timespec"
--- nn.now() -> seconds of a clock that never jumps.
function nn.now()
  C.clock_gettime(1, now)
  return tonumber(now.sec) + tonumber(now.nsec) * 1e-9
end

-- Files that are loaded at the first use of one of their names.
local lazy = {}
for file, names in pairs {
  bpe_files = "tokenizer", bpe_train = "train_tokenizer",
  checkpoint = "open_checkpoint save_checkpoint", compile = "compile plan",
  config = "config field", data = "data data_fields", generate = "generate evaluate",
  hf = "load_hf save_hf", model_file = "load_model",
  optim = "AdamW SGD", profile = "profile sgemm_gflops", run = "run run_fields accumulate",
  safetensors = "load_safetensors save_safetensors", schedule = "schedule schedules",
  task = "task kernels", vocabulary = "vocabulary",
} do
  for name in names:gmatch "%S+" do lazy[name] = "nn." .. file end
end
setmetatable(nn, {
  __index = function(_, name)
    local file = lazy[name]
    if not file then
      lib.misuse("nn has no '%s'%s", tostring(name), require("nn.near").suggestion(name, nn))
    end
    nn[name] = require(file)[name]
    return nn[name]
  end,
})
require "nn.task"   -- adds Tensor:tile

return nn
