-- The table `nn`: everything a script uses. Ops come from the engine's registry (op.lua), the rest
-- from the files beside this one, loaded when first asked for.

local ffi = require "ffi"
local arguments = require "nn.arguments"
local elsewhere = require "nn.elsewhere"
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
nn.scalar = ops.scalar
--- nn.fail(format, ...) raises an error for people, its text made as by string.format: it is shown
--- without position and traceback.
---     nn.fail("%d is too many", 7)  --> error: 7 is too many
nn.fail = lib.fail
--- nn.options(who, given, known) -> given (a table of options), or {} for nil. Errors: a name that
--- is no key of `known`, with the nearest; `who` is the function in that error.
---     nn.options("rotate", {angel = 1}, {angle = true})  --> error: ...did you mean 'angle'?
nn.options = arguments.options
nn.no_grad, nn.grad, nn.gradient_rule = grad.no_grad, grad.grad, grad.gradient_rule
nn.grad_enabled, nn.custom = grad.enabled, grad.custom
nn.module, nn.is_module = module.module, module.is_module
nn.parameter, nn.list = module.parameter, module.list
for name, value in pairs(layers) do nn[name] = value end

--- nn.ops() -> the registry: a sorted list of {name, doc, inputs, outputs, attributes, samples,
--- no_gradient, gradient_of, category, kernels, cuda}. kernels: names of those that the op's tasks
--- run; cuda: whether this build has all of them for GPUs.
---     nn.ops()[1].name  --> "abs"
function nn.ops()
  local out, kernels = {}, nn.kernels()
  for i, name in ipairs(ops.names) do
    local op = ops.ops[name]
    op.cuda = true
    for _, kernel in ipairs(op.kernels) do op.cuda = op.cuda and kernels[kernel].cuda end
    out[i] = op
  end
  return out
end

-- (3, 4, {dtype="i32"}) or ({3, 4}, {dtype="i32"}) -> a list of sizes, the options or nil.
local function split_shape(who, ...)
  local given, n, options = {...}, select("#", ...), nil
  local last = given[n]
  if type(last) == "table" and getmetatable(last) == nil and last[1] == nil then
    given[n], n, options = nil, n - 1, last
  end
  if n == 1 and type(given[1]) == "table" then
    arguments.list(who, "the shape", given[1])
    return given[1], options
  end
  for i = 1, n do arguments.whole(who, "size " .. i, given[i]) end
  return given, options
end

local function creator(name, op, value, known)
  known = arguments.names(known)
  return function(...)
    local shape, options = split_shape(name, ...)
    options = arguments.options(name, options, known)
    local all = {value = value}
    for key, v in pairs(options) do if key ~= "grad" then all[key] = v end end
    local y = ops.call(op, shape, all)
    y.requires_grad = options.grad or nil
    return y
  end
end

-- ## Making tensors

--- nn.zeros(3, 4, {dtype="f32", axes, grad=false}) or nn.zeros({3, 4}, {...}) -> a tensor of zeros.
--- dtype: f32, f64, bf16, i32, i64, u8 or bool; axes: names that nn.tiles knows; grad: its gradient
--- is wanted. Errors: sizes that are no whole numbers from 1 on.
---     nn.zeros(2, 3, {dtype = "i32"})  --> {{0, 0, 0}, {0, 0, 0}}
nn.zeros = creator("zeros", "full", 0, "dtype axes grad")
--- nn.ones(3, 4, {dtype="f32", axes, grad=false}) -> a tensor of ones; see nn.zeros.
---     nn.ones(2, 3):sum()  --> 6
nn.ones = creator("ones", "full", 1, "dtype axes grad")
--- nn.rand(3, 4, {low=0, high=1, dtype="f32", axes, grad=false}) -> independent values, uniform in
--- [low, high); see nn.zeros, and nn.seed for what decides them.
---     nn.rand(2, 3):lt(1):sum()  --> 6
nn.rand = creator("rand", "uniform", nil, "dtype axes grad low high")
--- nn.randn(3, 4, {mean=0, std=1, dtype="f32", axes, grad=false}) -> independent normal values; see
--- nn.zeros, and nn.seed for what decides them.
---     nn.randn(100, 100, {std = 0.02}):square():mean():sqrt()  --> 0.02
nn.randn = creator("randn", "normal", nil, "dtype axes grad mean std")
-- The op, which further numbers are refused to: many expect them from PyTorch.
function nn.arange(count, options, ...)
  if type(options) == "number" or select("#", ...) > 0 then
    lib.misuse("arange: takes how many numbers, not first and last: nn.arange(count, {start = %s, "
               .. "step = ...})", tostring(count))
  end
  return ops.call("arange", arguments.whole("arange", "the count", count), options or {})
end
--- nn.zeros_like(x) -> zeros of x's shape, dtype and tiling.
---     nn.zeros_like(x):dims()  --> 2, 3
function nn.zeros_like(x) return nn.full_like(x, 0) end
--- nn.ones_like(x) -> ones of x's shape, dtype and tiling.
---     nn.ones_like(x):sum()  --> 6
function nn.ones_like(x) return nn.full_like(x, 1) end


-- ## Shapes

local Tensor = tensor.Tensor
--- x:transpose(a, b) swaps two axes.
---     x:transpose(1, 2)  --> {{1, 4}, {2, 5}, {3, 6}}
function Tensor:transpose(a, b)
  local order, n = {}, #self.shape
  for i = 1, n do order[i] = i end
  a, b = arguments.axis("transpose", a, n), arguments.axis("transpose", b, n)
  order[a], order[b] = order[b], order[a]
  return self:permute(order)
end
--- x:t() swaps the last two axes.
---     x:t():dims()  --> 3, 2
function Tensor:t() return self:transpose(-2, -1) end
--- x:view(shape) is x:reshape(shape).
---     x:view(-1)  --> {1, 2, 3, 4, 5, 6}
Tensor.view = Tensor.reshape
--- x:unsqueeze(axis) adds an axis of size 1 there.
---     x:unsqueeze(1):dims()  --> 1, 2, 3
function Tensor:unsqueeze(axis)
  local shape = {unpack(self.shape)}
  table.insert(shape, arguments.axis("unsqueeze", axis, #shape + 1), 1)
  return self:reshape(shape)
end
--- x:squeeze(axis) takes an axis of size 1 away, x:squeeze() all of them. Errors: another size.
---     nn.zeros(1, 3, 1):squeeze():dims()  --> 3
function Tensor:squeeze(axis)
  local shape = {}
  axis = axis and arguments.axis("squeeze", axis, #self.shape)
  if axis and self.shape[axis] ~= 1 then
    lib.misuse("squeeze: axis %d has size %d, not 1", axis, self.shape[axis])
  end
  for i, size in ipairs(self.shape) do
    local dropped = size == 1 and (axis == nil or axis == i)
    if not dropped then shape[#shape + 1] = size end
  end
  return self:reshape(shape)
end
--- x:split(parts, axis=-1) -> that many tensors of equal size along an axis; parts may also be a
--- list of sizes. Errors: parts that do not add up to the axis.
---     local a, b = x:split({1, 2})
---     b  --> {{2, 3}, {5, 6}}
function Tensor:split(parts, axis)
  axis = axis or -1
  local size, sizes = self:dim(axis), parts
  if type(parts) ~= "table" then
    arguments.whole("split", "the number of parts", parts)
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
--- x:masked_fill(mask, value): value where the mask is true, x elsewhere. The mask broadcasts.
---     x:masked_fill(x:gt(4), 0)  --> {{1, 2, 3}, {4, 0, 0}}
function Tensor:masked_fill(mask, value)
  arguments.need(tensor.is_tensor(mask), "masked_fill", "the mask", mask, "a tensor is needed")
  return mask:where(value, self)
end
--- nn.masked_fill(x, mask, value) is x:masked_fill(mask, value).
---     nn.masked_fill(nn.ones(2), nn.tensor{true, false}, 5)  --> {5, 1}
function nn.masked_fill(x, mask, value) return x:masked_fill(mask, value) end
--- nn.stack{a, b, ...} joins tensors of one shape along a new first axis. Errors: other shapes.
---     nn.stack{nn.zeros(2), nn.ones(2)}  --> {{0, 0}, {1, 1}}
function nn.stack(list)
  if tensor.is_tensor(list) then lib.misuse("stack: takes a list of tensors, {a, b, ...}") end
  local out = {}
  for i = 1, arguments.list("stack", "the argument", list) do
    local t = list[i]
    arguments.need(tensor.is_tensor(t), "stack", "element " .. i, t, "a tensor is needed")
    out[i] = t:unsqueeze(1)
  end
  return nn.cat(out, 1)
end
--- nn.mse(x, y) -> mean of (x - y)^2 over all elements; shapes broadcast.
---     nn.mse(x, 0):item()  --> 15.1667
function nn.mse(x, y) return (x - y):square():mean() end


-- ## The session

--- nn.seed(n) starts the random sequence again. Random numbers depend on the seed, on how many
--- random ops came before, and on the element: not on tiling or workers.
---     nn.seed(7)
---     local a = nn.rand(3)
---     nn.seed(7)
---     nn.rand(3):eq(a):sum()  --> 3
function nn.seed(seed) check(C.nn_seed(arguments.whole("seed", "the seed", seed, 0))) end
--- nn.random_state() -> {seed=, counter=}, which nn.set_random_state takes.
---     nn.random_state().seed  --> 1
function nn.random_state()
  local seed, counter = ffi.new "uint64_t[1]", ffi.new "uint64_t[1]"
  check(C.nn_random_state(seed, counter))
  return {seed = tonumber(seed[0]), counter = tonumber(counter[0])}
end
--- nn.set_random_state(state) goes back to where nn.random_state() was called.
---     local before, a = nn.random_state(), nn.rand(3)
---     nn.set_random_state(before)
---     nn.rand(3):eq(a):sum()  --> 3
function nn.set_random_state(state)
  check(C.nn_seed(state.seed))
  check(C.nn_set_random_counter(state.counter))
end

--- nn.devices{cpus=4, scheduler="prio", gpus=1, gpu_memory=8e9, streams=1} chooses the workers,
--- before the first tensor is computed: how many CPU cores (0: all), which of StarPU's schedulers,
--- how many GPUs (all unless given), how many bytes of each GPU's memory tensors may take (0: 90 %
--- of it), and how many streams (1 to 4) of each run kernels beside each other. What does not fit
--- stays in RAM and is copied when a task needs it, so a smaller budget costs time and nothing
--- else; the tiles of any one task must fit. Errors: when it is too late; more GPUs than there are.
---     nn.zeros(1):item()
---     nn.devices{cpus = 2}  --> error: ...
function nn.devices(options)
  options = arguments.options("devices", options,
                              arguments.names "cpus scheduler gpus gpu_memory streams")
  local cpus = arguments.whole("devices", "cpus", options.cpus or 0, 0)
  local gpus = options.gpus and arguments.whole("devices", "gpus", options.gpus, 0) or -1
  local memory = arguments.whole("devices", "gpu_memory", options.gpu_memory or 0, 0)
  local streams = options.streams and arguments.whole("devices", "streams", options.streams, 1)
  check(C.nn_configure(cpus, options.scheduler, gpus, memory, streams or 0))
end
--- nn.workers() -> the number of CPU cores and of GPUs that compute.
---     nn.workers() >= 1  --> ...
function nn.workers()
  local cpus, gpus = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
  check(C.nn_workers(cpus, gpus))
  return cpus[0], gpus[0]
end

local places = {any = 0, cpu = 1, gpu = 2}
--- nn.place(where) says where tasks run from now on: "any" (as at the start), "cpu" or "gpu", for
--- tests and measurements. Errors: a kind of worker that there is not.
---     nn.place "cpu"
---     nn.ones(2):sum():item()  --> 2
---     nn.place "any"
function nn.place(where)
  if not places[where] then
    lib.misuse('place: "any", "cpu" or "gpu" is needed, not %s', arguments.describe(where))
  end
  check(C.nn_place(places[where]))
end

local precisions = {highest = 0, high = 1}
--- nn.matmul_precision(precision) says how GPUs multiply f32 matrices from now on: "highest" (as at
--- the start) in f32, "high" with operands rounded to TF32 (10 bits of mantissa), several times
--- faster. Sums are f32 in both. CPUs always multiply in f32. Returns what held before; without an
--- argument it changes nothing.
---     nn.matmul_precision()  --> "highest"
function nn.matmul_precision(precision)
  if precision ~= nil and not precisions[precision] then
    lib.misuse('matmul_precision: "highest" or "high" is needed, not %s',
               arguments.describe(precision))
  end
  local was = ffi.new "int32_t[1]"
  check(C.nn_matmul_tf32(precisions[precision] or -1, was))
  return was[0] == 1 and "high" or "highest"
end

local backends = {auto = 0, cudnn = 1, nnlua = 2}
local backend_names = {[0] = "auto", "cudnn", "nnlua"}
--- nn.attention_backend(which) says who computes attention on GPUs in bf16 with heads of 64 or 128,
--- in what is recorded or run from now on: "auto" (as at the start) cuDNN where it is installed,
--- with kernels that give the same bits each time, "cudnn" its fastest kernels, whose gradient of
--- the queries is summed in an order of chance, "nnlua" our own. Ours also take over, and say so
--- once, where cuDNN refuses a shape, and always with dropout, in other dtypes, and where tiles cut
--- sequences. "cudnn" without cuDNN is an error of the first such task on a GPU. Returns what held
--- before; without an argument it changes nothing.
---     nn.attention_backend()  --> "auto"
function nn.attention_backend(which)
  if which ~= nil and not backends[which] then
    lib.misuse('attention_backend: "auto", "cudnn" or "nnlua" is needed, not %s',
               arguments.describe(which))
  end
  local was = ffi.new "int32_t[1]"
  check(C.nn_attention_backend(backends[which] or -1, was))
  return backend_names[was[0]]
end

--- nn.tiles{tokens=1024, vocab=8192}: tile sizes by axis name, for tensors made from now on; 0 is
--- automatic. A schedule, not a part of the model: results do not depend on it beyond rounding.
---     nn.tiles{rows = 4}
---     nn.zeros(10, 3, {axes = "rows,cols"}):cuts(1)  --> {0, 4, 8, 10}
function nn.tiles(sizes)
  for axis, size in pairs(sizes) do
    arguments.need(type(axis) == "string", "tiles", "an axis", axis, "write {tokens = 1024}")
    check(C.nn_tile_size(axis, arguments.whole("tiles", axis, size, 0)))
  end
end

--- nn.scope(f, ...) -> f(...). Every tensor made inside is freed at the end, except those that f
--- returns.
---     nn.scope(function() return x:square():sum() end)  --> 91
function nn.scope(f, ...)
  arguments.callable("scope", f)
  check(C.nn_scope_begin())
  local results = {lib.protected(f, ...)}
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

--- nn.sync() waits until everything submitted is done. Errors: of tasks that failed.
---     local y = nn.randn(100, 100):matmul(nn.randn(100, 100))
---     nn.sync()
function nn.sync() check(C.nn_sync()) end
--- nn.interrupted() -> whether a signal to stop (Ctrl-C, SIGTERM) came and was not dealt with.
---     nn.interrupted()  --> false
function nn.interrupted()
  local flag = ffi.new "int32_t[1]"
  C.nn_interrupted(flag)
  return flag[0] ~= 0
end
--- nn.clear_interrupt() forgets such a signal.
---     nn.clear_interrupt()
function nn.clear_interrupt() C.nn_clear_interrupt() end
--- nn.defer_interrupts(deferred): with true, signals to stop raise no error; the script looks at
--- nn.interrupted() where it can stop. With false they raise "interrupted" again.
---     nn.defer_interrupts(false)
function nn.defer_interrupts(deferred) C.nn_defer_interrupts(deferred and 1 or 0) end
--- nn.version() -> what nnlua was built from, in lines.
---     nn.version():match "^nnlua"  --> "nnlua"
function nn.version() return ffi.string(C.nn_version()) end
--- nn.is_tty(fd) -> whether file descriptor 0, 1 or 2 is a terminal.
---     nn.is_tty(2)  --> ...
function nn.is_tty(fd) return C.isatty(fd) == 1 end

ffi.cdef [[
typedef struct { long sec, nsec; } nn_timespec;
int clock_gettime(int clock, nn_timespec *t);
]]
local now = ffi.new "nn_timespec"
--- nn.now() -> seconds of a clock that never jumps; only differences mean something.
---     local start = nn.now()
---     nn.now() - start < 60  --> true
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
  hf = "load_hf save_hf", memory = "memory memory_budget reset_peak", model_file = "load_model",
  optim = "AdamW SGD", profile = "profile trace sgemm_gflops", run = "run",
  accumulate = "accumulate", run_settings = "run_fields", step_plan = "plan_step",
  safetensors = "load_safetensors save_safetensors", schedule = "schedule schedules",
  task = "task kernels", vocabulary = "vocabulary",
} do
  for name in names:gmatch "%S+" do lazy[name] = "nn." .. file end
end
setmetatable(nn, {
  names = function() return lazy end,      -- for completion at the prompt
  __index = function(_, name)
    local file = lazy[name]
    if not file then
      lib.misuse("nn has no '%s'%s", tostring(name),
                 elsewhere.here("library", name) or require("nn.near").suggestion(name, nn))
    end
    nn[name] = require(file)[name]
    return nn[name]
  end,
  __tostring = function() return "the library nn, " .. nn.version():match "^[^\n]*" end,
})
require "nn.task"   -- adds Tensor:tile

return nn
