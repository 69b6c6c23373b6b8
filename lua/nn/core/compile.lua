-- nn.compile: records a function once per shape of its arguments; then the engine replays it
-- without Lua. A compiled function keeps the programs of its most recently used shapes, and records
-- again if a Lua value that it read has changed.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local budget = require "nn.base.budget"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local guards = require "nn.core.guards"
local lib = require "nn.base.capi"
local kind = require "nn.core.kind"
local tape = require "nn.core.tape"
local layer = require "nn.core.layer_path"
local leaves = require "nn.core.leaf_gradients"
local layers = require "nn.core.layers"
local recordings = require "nn.core.recordings"
local tensor = require "nn.core.tensor"
local unrepeatable = require "nn.core.unrepeatable"
local C, check = lib.C, lib.check
local is_tensor = tensor.is_tensor

local M = {}
local Compiled = {type_name = "compiled function"}
Compiled.__index = Compiled
local PROGRAMS = 32              -- default of the option `programs`

-- The key of a program: shapes, dtypes and tilings of its arguments, and whether dropout is on.
local function key_of(given, n)
  local parts = {tostring(layers.training())}
  for i = 1, n do
    local x = given[i]
    if not is_tensor(x) then
      lib.misuse("compiled function: argument %d is a %s; only tensors can be passed (a number "
                 .. "that changes between calls is an nn.scalar that the function uses)",
                 i, type(x))
    end
    parts[#parts + 1] = x.dtype
    for axis = 1, #x.shape do parts[#parts + 1] = table.concat(x:cuts(axis), ",") end
    parts[#parts + 1] = "/"
  end
  return table.concat(parts, " ")
end

local function refs_of(list, n)
  local refs = ffi.new("nn_ref[?]", math.max(1, n))
  for i = 1, n do refs[i - 1] = list[i].ref end
  return refs
end

-- The results of f. With memory tiers, profiles report transfers by kind, so activations and
-- gradients get theirs.
local function results_of(f, inputs, n)
  if not budget.tiers then return {f(unpack(inputs, 1, n))} end
  local results
  tape.watch(function(found, count, on_tape)
    for i = 1, on_tape and count or 0 do
      if found[i] then kind.set(found[i], "activations") end
    end
  end, function() results = {f(unpack(inputs, 1, n))} end)
  leaves.each_private(function(grad) kind.set(grad, "gradients") end)
  return results
end

local inputs                     -- of the recording under way

--- argument(x) -> the copy of x with which a call of a compiled function works, for plans. Such a
--- copy takes memory beside x.
function M.argument(x)
  local out = ffi.new "nn_ref[1]"
  check(C.nn_record_input(x.ref, out))
  inputs[#inputs + 1] = tensor.wrap(out[0].index, out[0].generation)
  return inputs[#inputs]
end

-- Records f. returns_list: f returns one list of tensors, which may exceed Lua's limit of results.
local function record(f, given, n, returns_list)
  check(C.nn_record_begin())
  local around = layer.start()
  return lib.finally(function(good)
    layer.stop(around)
    inputs = nil
    if not good then C.nn_record_abort() end
  end, function()
    inputs = {}
    for i = 1, n do M.argument(given[i]) end
    return leaves.private(function()
      local results = returns_list and f() or results_of(f, inputs, n)
      local count = table.maxn(results)
      for i = 1, count do
        if not is_tensor(results[i]) then
          lib.misuse("compiled function: result %d is a %s; only tensors can be returned", i,
                     type(results[i]))
        end
      end
      local out = ffi.new "nn_ref[1]"
      check(C.nn_record_end(refs_of(inputs, #inputs), #inputs, refs_of(results, count), count, out))
      local ref = ffi.gc(ffi.new("nn_ref", out[0].index, out[0].generation), C.nn_release)
      return {ref = ref, results = count}
    end)
  end)
end

local function info_of(program)
  local info = ffi.new "nn_program_info_t"
  check(C.nn_program_info(program.ref, info))
  return {tasks = tonumber(info.tasks), tiles = tonumber(info.tiles), flops = info.flops,
          persistent_bytes = tonumber(info.persistent_bytes),
          peak_bytes = tonumber(info.peak_bytes)}
end

--- nn.plan(f) records f without computing anything, so that even a large model takes neither memory
--- nor time, and returns its cost: {tasks, tiles, flops, peak_bytes, persistent_bytes}. Tensors
--- that f returns (parameters, optimizer state) are counted to the end, others only until their
--- last use.
---     nn.plan(function()
---       local big = GPT2(GPT2.size "gpt2-xl")
---       return big:parameters()[1].tensor
---     end).persistent_bytes > 1e9  --> ...
function M.plan(f)
  return info_of(record(arguments.callable("plan", f), {}, 0))
end

-- Bytes by kind -> {kind = bytes, ...} with `total`.
local function by_kind(bytes)
  local out = {total = 0}
  for number, name in ipairs(kind.names) do
    out[name] = tonumber(bytes[number - 1])
    out.total = out.total + out[name]
  end
  return out
end

-- The plan of a program with the tiers of nn.memory_tiers, or nil without them: see nn_tier_plan_t
-- and, for its `levels`, nn_tier_level_t. loaded, stored: of the first level; in_store: `stored`.
local function tier_plan(program, times)
  if not budget.tiers then return nil end
  local plan, count = ffi.new "nn_tier_plan_t", ffi.new("int32_t[1]", #budget.tiers - 1)
  local found = ffi.new("nn_tier_level_t[?]", count[0])
  check(C.nn_program_tiers(program.ref, times, plan, found, count))
  local levels = {}
  for i = 1, count[0] do
    local of = found[i - 1]
    levels[i] = {loaded = by_kind(of.loaded), stored = by_kind(of.stored)}
    for _, name in ipairs {"slots", "reserved", "busy", "least_moved", "lru_moved"} do
      levels[i][name] = tonumber(of[name])
    end
  end
  -- Lua's heap doubles before its garbage is collected.
  return {levels = levels, loaded = levels[1].loaded, stored = levels[1].stored,
          kept = tonumber(plan.kept), in_store = tonumber(plan.stored), seconds = plan.seconds,
          computing = plan.computing, rest = tonumber(plan.rest) + 1024 * collectgarbage "count"}
end

--- simulated(f, measured, alone) -> {tasks=, flops=, seconds=, busy=, peak=, lasting=, kinds=,
--- workers=, tiers=, recomputed=, recomputing=, ranks=} of the tasks that f records after it calls
--- step_begins(): see nn_program_plan_t in nn_plan.h; ranks: a list of the fields of
--- nn_rank_plan_t. f returns a list of the step's results. measured: true for kernel times measured
--- now, "known" for those measured before, else nominal times. alone: each step ends before the
--- next one is submitted.
function M.simulated(f, measured, alone)
  local program = record(f, {}, 0, true)
  local plan = ffi.new "nn_program_plan_t"
  local times = measured == "known" and 2 or measured and 1 or 0
  local count = ffi.new("int32_t[1]", cluster.parts())
  local of_ranks = ffi.new("nn_rank_plan_t[?]", count[0])
  check(C.nn_program_plan(program.ref, times, alone and 1 or 3, plan, of_ranks, count))
  local out = {tasks = tonumber(plan.tasks), recorded = tonumber(plan.recorded),
               flops = plan.flops, seconds = plan.seconds,
               busy = plan.busy, peak = tonumber(plan.peak), lasting = tonumber(plan.lasting),
               workers = plan.workers, on_gpus = plan.on_gpus ~= 0, kinds = {},
               assumed_rates = plan.assumed_rates ~= 0,
               recomputed = tonumber(plan.recomputed), recomputing = plan.recomputing}
  for number, name in ipairs(kind.names) do out.kinds[name] = tonumber(plan.kinds[number - 1]) end
  out.tiers = tier_plan(program, times)
  out.assumed_link, out.link_rate, out.ranks = plan.assumed_link ~= 0, plan.link_rate, {}
  for i = 1, count[0] do
    local rank, of = {}, of_ranks[i - 1]
    for _, name in ipairs {"peak", "tasks", "flops", "busy", "sending", "sent", "received"} do
      rank[name] = tonumber(of[name])
    end
    out.ranks[i] = rank
  end
  return out
end

--- gpu_costs(f) -> {{kernel=, tasks=, flops=, bytes=, seconds=}, ...}, {groups=, freed=, hops=} of
--- the tasks that f records after it calls step_begins(): see nn_kernel_cost_t in nn_plan.h.
function M.gpu_costs(f)
  local program, most = record(f, {}, 0, true), 256
  local list, count = ffi.new("nn_kernel_cost_t[?]", most), ffi.new("int32_t[1]", most)
  local step, out = ffi.new "nn_gpu_step_t", {}
  check(C.nn_program_gpu_costs(program.ref, list, count, step))
  for i = 1, count[0] do
    local cost = list[i - 1]
    out[i] = {kernel = ffi.string(cost.kernel), tasks = tonumber(cost.tasks), flops = cost.flops,
              bytes = cost.bytes, seconds = cost.seconds}
  end
  return out, {groups = tonumber(step.groups), freed = tonumber(step.freed), hops = step.hops}
end

--- step_begins(lasting): the step that simulated() simulates begins here. lasting: a list of the
--- tensors that exist before and after it.
function M.step_begins(lasting) check(C.nn_record_step(refs_of(lasting, #lasting), #lasting)) end

--- microbatch_begins(ids): marks the beginning of a microbatch in a compiled step. Only as many are
--- in memory at once as keep the workers busy.
function M.microbatch_begins(ids)
  if not engine.recording() then return end
  local tiles = 1
  for axis = 1, #ids.shape do tiles = tiles * (#ids:cuts(axis) - 1) end
  check(C.nn_record_microbatch(tiles))
end

--- loop(iterations, feed, body) -> the number of iterations recorded: records a loop of a compiled
--- step. feed(i) records what differs in iteration i, from 1: it fills tensors from before the
--- loop. body() records the rest, and returns whether it would do the same again. It is called
--- twice: if what it records differs, only two iterations are recorded.
function M.loop(iterations, feed, body)
  check(C.nn_record_loop(iterations))
  for i = 1, iterations do
    check(C.nn_record_iteration(i - 1))
    feed(i)
  end
  local repeats, done = true, ffi.new "int32_t[1]"
  for _ = 1, 2 do
    check(C.nn_record_body())
    repeats = body() and repeats
  end
  check(C.nn_record_loop_end(repeats and 1 or 0, done))
  return done[0]
end

--- shard_begins(shard, shards): the following tasks of a compiled step belong to this shard of the
--- batch, from 0; -1: to none. Ranks compute different shards.
function M.shard_begins(shard, shards)
  if engine.recording() then check(C.nn_record_shard(shard, shards)) end
end

-- Records the function for these arguments, with guards for the Lua values that it read.
local function guarded_recording(self, given, n)
  local before = guards.of(self.f)
  unrepeatable.refuse(before)
  local program = unrepeatable.watch(function() return record(self.f, given, n) end)
  recordings.check_writes(self, before)
  program.guards = guards.of(self.f)
  recordings.warn_left_out(self, program.guards)
  return program
end

local function program_for(self, given, n)
  local key = key_of(given, n)
  local program = recordings.find(self, key)
  if not program then
    program = guarded_recording(self, given, n)
    recordings.add(self, key, program)
  end
  return recordings.use(self, program)
end

local compile_options = arguments.names "programs"

--- nn.compile(f, {programs=32}) -> a function of tensors that returns tensors. The first call with
--- new shapes records f: it runs only to emit its tasks, so it cannot read values. Every call
--- submits the recorded tasks without Lua. It returns at once; item() or host() of a result waits
--- for it. The function keeps the recordings of its `programs` most recently used shapes; a new
--- shape frees the least recently used one. Pad data of many lengths to a few lengths.
--- Lua values are constants of the recording. Every call compares those that f read with the values
--- then: upvalues, globals, fields of tables and modules (numbers, strings, booleans, functions,
--- tensors by identity, elements of lists), metatables, the bytes of arrays and structures of ffi,
--- and those of the Lua functions that it called. If one differs, f is recorded again, which takes
--- time, so a value that changes often should be an argument (a tensor) or an nn.scalar. A warning
--- names what is too large to compare. Not compared: what pointers of ffi point to, what a
--- coroutine yields, and t[name] of a parameter t. Gradients are local to a call: each call starts
--- without gradients, as after zero_grad(), and does not change .grad outside. So backward() and
--- the optimizer's step() belong in the same function (with nn.accumulate for microbatches).
--- Errors: arguments or results that are not tensors; a call of math.random or of a function that
--- reads a file or the clock, whose result would be a constant.
---     local f = nn.compile(function(a, b) return (a * b):sum() end)
---     f(x, x):item()  --> 91
---     local k = 1
---     local scaled = nn.compile(function(a) return a * k end)
---     scaled(x)
---     k = 2
---     scaled(x):at(1, 1)  --> 2
function M.compile(f, options)
  arguments.callable("compile", f)
  local limit = arguments.options("compile", options, compile_options).programs or PROGRAMS
  arguments.whole("compile", "programs", limit)
  return setmetatable(recordings.new(f, limit), Compiled)
end

function Compiled:__call(...)
  if engine.recording() then return self.f(...) end   -- becomes part of the current recording
  local given, n = {...}, select("#", ...)
  local program = program_for(self, given, n)
  local out = ffi.new("nn_ref[?]", math.max(1, program.results))
  if layer.named then layer.send() end
  lib.check_creating(C.nn_program_run, program.ref, refs_of(given, n), n, out, program.results)
  local results = {}
  for i = 1, program.results do
    results[i] = tensor.wrap(out[i - 1].index, out[i - 1].generation)
  end
  return unpack(results, 1, program.results)
end

--- f:plan(x, ...) records for these arguments without running and returns the cost of a run: tasks,
--- tiles, flops, persistent_bytes (tensors that exist before and after), peak_bytes (the largest
--- total of temporaries).
---     nn.compile(function(a) return a:matmul(a:t()) end):plan(x).flops > 0  --> true
function Compiled:plan(...)
  return info_of(program_for(self, {...}, select("#", ...)))
end

function Compiled:__tostring()
  return ("compiled function of %s, recorded for %d shapes of its arguments"):format(
    recordings.place(self), recordings.shapes(self))
end

--- f:info() -> the result of f:plan() for the shapes of the last call.
---     step(data.train:batch())
---     step:info().tasks > 50  --> true
function Compiled:info()
  return info_of(self.last or lib.misuse("info: the function was not called yet"))
end

return M
