-- Settings of the engine: workers, random numbers, the machine's description, devices, precision,
-- tile sizes; and the signals that stop it.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local host = require "nn.host"
local lib = require "nn.base.capi"
local terminal = require "nn.base.terminal"
local C, check = lib.C, lib.check

local M = {}

--- nn.seed(n) restarts the random sequence. A random number depends only on the seed, the number of
--- random ops before, and the element's index; not on tiling or workers.
---     nn.seed(7)
---     local a = nn.rand(3)
---     nn.seed(7)
---     nn.rand(3):eq(a):sum()  --> 3
function M.seed(seed) check(C.nn_seed(arguments.whole("seed", "the seed", seed, 0))) end
--- nn.random_state() -> {seed=, counter=}, which nn.set_random_state takes.
---     nn.random_state().seed  --> 1
function M.random_state()
  local seed, counter = ffi.new "uint64_t[1]", ffi.new "uint64_t[1]"
  check(C.nn_random_state(seed, counter))
  return {seed = tonumber(seed[0]), counter = tonumber(counter[0])}
end
--- nn.set_random_state(state) restores a state that nn.random_state() returned.
---     local before, a = nn.random_state(), nn.rand(3)
---     nn.set_random_state(before)
---     nn.rand(3):eq(a):sum()  --> 3
function M.set_random_state(state)
  arguments.need(type(state) == "table", "set_random_state", "the state", state,
                 "a result of nn.random_state() is needed")
  local seed = arguments.whole("set_random_state", "seed", state.seed, 0)
  local counter = arguments.whole("set_random_state", "counter", state.counter, 0)
  check(C.nn_seed(seed))
  check(C.nn_set_random_counter(counter))
end

--- nn.devices{cpus=4, scheduler="prio", gpus=1, gpu_memory=8e9, streams=1, cuda_graphs=false}
--- chooses the workers. It must be called before the first tensor is computed. cpus: number of CPU
--- workers (0: one per core); scheduler: a scheduler of StarPU; gpus: number of GPUs (default:
--- all); gpu_memory: bytes of each GPU's memory for tiles (0: 90 % of it); streams: concurrent
--- streams per GPU (1 to 4); cuda_graphs: start the kernels of a compiled function as CUDA graphs.
--- Tiles beyond gpu_memory are evicted to RAM and copied back when a task needs them, so a smaller
--- budget only costs time; but the tiles of any single task must fit. Errors: the engine has
--- already started; more GPUs than the machine has.
---     nn.zeros(1):item()
---     nn.devices{cpus = 2}  --> error: ...
function M.devices(options)
  options = arguments.options("devices", options,
                              arguments.names
                              "cpus scheduler gpus gpu_memory streams cuda_graphs")
  local cpus = arguments.whole("devices", "cpus", options.cpus or 0, 0)
  local gpus = options.gpus and arguments.whole("devices", "gpus", options.gpus, 0) or -1
  local memory = arguments.whole("devices", "gpu_memory", options.gpu_memory or 0, 0)
  local streams = options.streams and arguments.whole("devices", "streams", options.streams, 1)
  check(C.nn_configure(cpus, options.scheduler, gpus, memory, streams or 0,
                       options.cuda_graphs and 1 or 0))
end
--- nn.workers() -> the numbers of CPU workers and of GPUs.
---     nn.workers() >= 1  --> ...
function M.workers()
  local cpus, gpus = ffi.new "int32_t[1]", ffi.new "int32_t[1]"
  check(C.nn_workers(cpus, gpus))
  return cpus[0], gpus[0]
end
--- host_limits() -> the cores that this process may use; the text that says what decides this; why
--- no GPU is used although there seem to be some, or "".
function M.host_limits()
  local cores, why = ffi.new "int32_t[1]", ffi.new "const char *[1]"
  local problem = ffi.new "const char *[1]"
  check(C.nn_host_limits(cores, why, problem))
  return cores[0], ffi.string(why[0]), ffi.string(problem[0])
end

--- nn.machine{cpus=64, ram="512GB", gpus=8, gpu_memory="80GB", ...} describes the machine for which
--- tilings and plans are made; it may differ from this machine. nn.machine "FILE" reads settings
--- NAME=VALUE from a file, nn.machine "" returns to this machine, and nn.machine() changes nothing.
--- Further settings: ranks, disk; and rates, which plans then use instead of measurements:
--- gflops, bf16_gflops and bandwidth of a CPU worker; gpu_gflops (large bf16 products),
--- gpu_bandwidth (a copy in its memory, read and written), gpu_multiprocessors (132), gpu_link;
--- disk_read, disk_write, rank_link (of a rank, each way). The environment variable NNLUA_MACHINE
--- accepts the same settings. Returns {ranks=, cpus=, gpus=, ram=, gpu_memory=, disk=, described=}.
--- Errors: unknown settings and units.
---     nn.machine{cpus = 64, ram = "512GB"}.cpus  --> 64
---     nn.machine("").described  --> false
function M.machine(description)
  if type(description) == "table" then
    local words = {}
    for name, value in pairs(description) do words[#words + 1] = name .. "=" .. tostring(value) end
    description = table.concat(words, " ")
  end
  if description ~= nil then
    arguments.need(type(description) == "string", "machine", "the description", description,
                   "a table of settings, or a text or file with them, is needed")
    check(C.nn_machine_describe(description))
  end
  local info, out = ffi.new "nn_machine_info_t", {}
  check(C.nn_machine_info(info))
  for _, name in ipairs {"ranks", "cpus", "gpus", "ram", "gpu_memory", "disk"} do
    out[name] = tonumber(info[name])
  end
  out.described = info.described ~= 0
  return out
end

--- device_kinds: the numbers in the C API of the device kinds a task can be restricted to.
M.device_kinds = {any = 0, cpu = 1, gpu = 2}

--- nn.run_tasks_on(where) restricts later tasks to a device kind: "auto" (the default: GPUs if
--- there are any, else CPUs), "cpu", "gpu", or "any". With "any" the scheduler places each task on
--- the device that is predicted to end it first, so results may depend on timing in the last bits.
--- Errors: a device kind without workers.
---     nn.run_tasks_on "cpu"
---     nn.ones(2):sum():item()  --> 2
---     nn.run_tasks_on "auto"
function M.run_tasks_on(where)
  local kind = where == "auto" and 3 or M.device_kinds[where]
  if not kind then
    lib.misuse('run_tasks_on: "auto", "cpu", "gpu" or "any" is needed, not %s',
               arguments.describe(where))
  end
  check(C.nn_run_tasks_on(kind))
end

-- Sets a setting of the engine by name (nil: leaves it); returns its value before. names: the
-- values by number, from 0; set: the C function.
local function choose(who, names, chosen, set)
  local number = -1
  for i = 0, #names do
    if names[i] == chosen then number = i end
  end
  if chosen ~= nil and number < 0 then
    lib.misuse('%s: %s is needed, not %s', who, names.text, arguments.describe(chosen))
  end
  local was = ffi.new "int32_t[1]"
  check(set(number, was))
  return names[was[0]]
end

local kinds_of_checks = {[0] = "off", "tiles", text = '"off" or "tiles"'}
--- nn.checks(what) chooses what the engine checks while it computes: "off" (the default), or
--- "tiles": whatever reads a tile (a task, a transfer to or from a disk, a GPU or another rank, a
--- checkpoint) compares the value's number and its CRC-32 with those of the write that it depends
--- on. A difference is an error that names the tile, what wrote it and what reads it. Results have
--- the same bits; a step takes longer by the time to read each tile twice more. Call it before the
--- first tensor is computed; NNLUA_CHECKS=tiles in the environment does the same. Returns the
--- previous choice; without an argument it changes nothing. Errors: other words; the engine has
--- already started.
---     nn.checks()  --> "off"
function M.checks(what) return choose("checks", kinds_of_checks, what, C.nn_check_tiles) end

local precisions = {[0] = "highest", "high", text = '"highest" or "high"'}
--- nn.matmul_precision(precision) sets how GPUs multiply f32 matrices: "highest" (the default) in
--- f32; "high" with operands rounded to TF32 (10 bits of mantissa), which is several times faster.
--- Both sum in f32. CPUs always multiply in f32. Returns the previous setting; without an argument
--- it changes nothing.
---     nn.matmul_precision()  --> "highest"
function M.matmul_precision(precision)
  return choose("matmul_precision", precisions, precision, C.nn_matmul_tf32)
end

local backends = {[0] = "auto", "cudnn", "nnlua", text = '"auto", "cudnn" or "nnlua"'}
--- nn.attention_backend(which) selects the attention kernels on GPUs for bf16 and heads of 64 or
--- 128, in tasks that are submitted or recorded later. "auto" (the default): deterministic kernels
--- of cuDNN if it is installed, else nnlua's; "cudnn": its fastest kernels, which sum the gradient
--- of the queries in a varying order; "nnlua": nnlua's kernels. nnlua's kernels always compute
--- attention with dropout, in other dtypes, and over sequences that span several tiles. They also
--- replace cuDNN, with a message once, for shapes that it rejects, and with "auto" for prompts
--- whose length is no multiple of 64, because cuDNN compiles for each length. With "cudnn" but
--- without cuDNN, the first such task on a GPU fails. Returns the previous setting; without an
--- argument it changes nothing.
---     nn.attention_backend()  --> "auto"
function M.attention_backend(which)
  return choose("attention_backend", backends, which, C.nn_attention_backend)
end

local gradient_dtypes = {[0] = "f32", "bf16", text = '"f32" or "bf16"'}
--- nn.gradient_dtype(dtype) sets the dtype of the gradients of bf16 weights in linear layers: "f32"
--- (the default), or "bf16", which is half as much memory to write, keep and read. They are summed
--- in f32 and then rounded once, as in PyTorch. It has an effect only where one product computes a
--- gradient: where the tokens of a step are one tile, as on one GPU. nn.accumulate with several
--- microbatches keeps f32 sums. Returns the previous setting; without an argument it changes
--- nothing.
---     nn.gradient_dtype()  --> "f32"
function M.gradient_dtype(dtype)
  return choose("gradient_dtype", gradient_dtypes, dtype, C.nn_bf16_gradients)
end

local tile_sizes = {}

--- nn.tiles{tokens=1024, vocab=8192} sets tile sizes by axis name for tensors created later; 0:
--- automatic. Tile sizes affect speed, and results only by rounding.
---     nn.tiles{rows = 4}
---     nn.zeros(10, 3, {axes = "rows,cols"}):cuts(1)  --> {0, 4, 8, 10}
function M.tiles(sizes)
  arguments.need(type(sizes) == "table", "tiles", "the argument", sizes, "write {tokens = 1024}")
  for axis, size in pairs(sizes) do
    arguments.need(type(axis) == "string", "tiles", "an axis", axis, "write {tokens = 1024}")
    check(C.nn_tile_size(axis, arguments.whole("tiles", axis, size, 0)))
    tile_sizes[axis] = size > 0 and size or nil
  end
end

--- tile_size(axis) -> the size that nn.tiles set for an axis name, or nil.
function M.tile_size(axis) return tile_sizes[axis] end

--- recording() -> whether a compiled function is being recorded.
function M.recording() return C.nn_recording() == 1 end

--- nn.sync() waits until all submitted tasks are done. Errors: those of failed tasks.
---     local y = nn.randn(100, 100):matmul(nn.randn(100, 100))
---     nn.sync()
function M.sync() check(C.nn_sync()) end
--- nn.interrupted() -> whether a stop signal (Ctrl-C, SIGTERM, SIGHUP) has arrived and is not
--- handled yet.
---     nn.interrupted()  --> false
function M.interrupted()
  local flag = ffi.new "int32_t[1]"
  C.nn_interrupted(flag)
  return flag[0] ~= 0
end
--- nn.clear_interrupt() marks the stop signal as handled. A script that catches the error
--- "interrupted" and continues must call it; otherwise pcall cannot catch the error of the next
--- signal, and a later error ends the program with the status of this signal.
---     nn.clear_interrupt()
M.clear_interrupt = host.forget_signals
--- nn.defer_interrupts(deferred): with true, stop signals raise no error; the script checks
--- nn.interrupted() at points where it can stop. With "runs", they still raise it while a compiled
--- function is recorded and planned. With false, they raise "interrupted" again.
---     nn.defer_interrupts(false)
function M.defer_interrupts(deferred)
  C.nn_defer_interrupts(deferred == "runs" and 2 or deferred and 1 or 0)
end
--- nn.version() -> the versions of nnlua and of its libraries, one per line.
---     nn.version():match "^nnlua"  --> "nnlua"
function M.version() return ffi.string(C.nn_version()) end
--- nn.is_tty(fd) -> whether file descriptor 0, 1 or 2 is a terminal.
---     nn.is_tty(2)  --> ...
function M.is_tty(fd) return terminal.is_terminal(arguments.whole("is_tty", "fd", fd, 0)) end

ffi.cdef [[
typedef struct { long sec, nsec; } nn_timespec;
int clock_gettime(int clock, nn_timespec *t);
]]
local now = ffi.new "nn_timespec"
--- nn.now() -> seconds of a monotonic clock; only differences are meaningful.
---     local start = nn.now()
---     nn.now() - start < 60  --> true
function M.now()
  C.clock_gettime(1, now)
  return tonumber(now.sec) + tonumber(now.nsec) * 1e-9
end

return M
