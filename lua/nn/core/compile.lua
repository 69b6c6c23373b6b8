-- nn.compile: a function recorded once per shape of its arguments, then run by the engine alone.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"
local tape = require "nn.core.tape"
local layer = require "nn.core.layer_path"
local layers = require "nn.core.layers"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check
local is_tensor = tensor.is_tensor

local M = {}
local Compiled = {type_name = "compiled function"}
Compiled.__index = Compiled

-- Arguments that make another program: shapes, dtypes, tiling, whether dropout is on.
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

-- takes_list: f returns a list of tensors, which may be longer than what a function can return.
local function record(f, given, n, takes_list)
  check(C.nn_record_begin())
  local around = layer.start()
  return lib.finally(function(good)
    layer.stop(around)
    if not good then C.nn_record_abort() end
  end, function()
    local out = ffi.new "nn_ref[1]"
    local inputs = {}
    for i = 1, n do
      check(C.nn_record_input(given[i].ref, out))
      inputs[i] = tensor.wrap(out[0].index, out[0].generation)
    end
    return tape.with_private_grads(function()
      local results = takes_list and f() or {f(unpack(inputs, 1, n))}
      local count = table.maxn(results)
      for i = 1, count do
        if not is_tensor(results[i]) then
          lib.misuse("compiled function: result %d is a %s; only tensors can be returned", i,
                     type(results[i]))
        end
      end
      check(C.nn_record_end(refs_of(inputs, n), n, refs_of(results, count), count, out))
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

--- nn.plan(f) runs f without computing anything, so that a model of any size costs neither memory
--- nor time, and tells what it would take: {tasks, tiles, flops, peak_bytes, ...}. Tensors that f
--- returns count to the end (parameters, optimizer state); all others only while they are needed.
---     nn.plan(function()
---       local big = GPT2(GPT2.size "gpt2-xl")
---       return big:parameters()[1].tensor
---     end).persistent_bytes > 1e9  --> ...
function M.plan(f)
  local program = record(arguments.callable("plan", f), {}, 0)
  return info_of(program)
end

local kinds = {"other", "weights", "gradients", "optimizer", "activations", "cache"}

--- kind(tensor, name): what a tensor is, for simulated(): "weights", "gradients", "optimizer",
--- "activations", "cache" (of keys and values) or "other".
function M.kind(x, name)
  for number, known in ipairs(kinds) do
    if known == name then check(C.nn_tensor_kind(x.ref, number - 1)) end
  end
end

--- simulated(f, measured, alone) -> {tasks=, flops=, seconds=, busy=, peak=, lasting=, kinds=,
--- workers=} of what f records behind its call of step_begins(): see nn_program_plan_t in nn.h. f
--- returns a list of the tensors that last. measured: true for times of kernels on this machine,
--- "known" for those that were measured before, else guesses. alone: each step is waited for before
--- the next is submitted.
function M.simulated(f, measured, alone)
  local program = record(f, {}, 0, true)
  local plan = ffi.new "nn_program_plan_t"
  local times = measured == "known" and 2 or measured and 1 or 0
  check(C.nn_program_plan(program.ref, times, alone and 1 or 3, plan))
  local out = {tasks = tonumber(plan.tasks), flops = plan.flops, seconds = plan.seconds,
               busy = plan.busy, peak = tonumber(plan.peak), lasting = tonumber(plan.lasting),
               workers = plan.workers, kinds = {}}
  for number, name in ipairs(kinds) do out.kinds[name] = tonumber(plan.kinds[number - 1]) end
  return out
end

--- step_begins(): for simulated().
function M.step_begins() check(C.nn_record_step()) end

--- microbatch_begins(ids): where a compiled step begins with a microbatch. Workers take no more of
--- them at once than they need to be busy, so that not all are in memory.
function M.microbatch_begins(ids)
  if not engine.recording() then return end
  local tiles = 1
  for axis = 1, #ids.shape do tiles = tiles * (#ids:cuts(axis) - 1) end
  check(C.nn_record_microbatch(tiles))
end

local function program_for(self, given, n)
  local key = key_of(given, n)
  local program = self.programs[key]
  if not program then
    program = record(self.f, given, n)
    self.programs[key] = program
  end
  self.last = program
  return program
end

--- nn.compile(f) -> a function of tensors that returns tensors. The first call with new shapes
--- records f (which then runs only to emit its tasks: values cannot be read inside); every call
--- submits the recorded tasks without Lua. Results come back at once and are computed in the
--- background; item() or host() waits. Numbers are frozen at recording; what changes is an argument
--- (a tensor) or an nn.scalar. Gradients live within a call: each begins without any, as after
--- zero_grad(), and leaves .grad outside as it was, so backward() and the optimizer's step() go
--- into one function (nn.accumulate for microbatches). Errors: arguments or results that are no
--- tensors.
---     local f = nn.compile(function(a, b) return (a * b):sum() end)
---     f(x, x):item()  --> 91
function M.compile(f)
  return setmetatable({f = arguments.callable("compile", f), programs = {}}, Compiled)
end

function Compiled:__call(...)
  if engine.recording() then return self.f(...) end   -- becomes a part of what is being recorded
  local given, n = {...}, select("#", ...)
  local program = program_for(self, given, n)
  local out = ffi.new("nn_ref[?]", math.max(1, program.results))
  if layer.named then layer.tell() end
  lib.check_making(C.nn_program_run, program.ref, refs_of(given, n), n, out, program.results)
  local results = {}
  for i = 1, program.results do
    results[i] = tensor.wrap(out[i - 1].index, out[i - 1].generation)
  end
  return unpack(results, 1, program.results)
end

--- f:plan(x, ...) records for these arguments without running and tells what a run takes: tasks,
--- tiles, flops, persistent_bytes (tensors that exist before and after), peak_bytes (temporaries at
--- their largest).
---     nn.compile(function(a) return a:matmul(a:t()) end):plan(x).flops > 0  --> true
function Compiled:plan(...)
  return info_of(program_for(self, {...}, select("#", ...)))
end

function Compiled:__tostring()
  local count = 0
  for _ in pairs(self.programs) do count = count + 1 end
  local info = debug.getinfo(type(self.f) == "function" and self.f or 1, "S")
  return ("compiled function of %s:%d, recorded for %d shapes of its arguments"):format(
    info.short_src, info.linedefined, count)
end

--- f:info() -> what f:plan() tells, for the shapes of the last call.
---     step(data.train:batch())
---     step:info().tasks > 50  --> true
function Compiled:info()
  return info_of(self.last or lib.misuse("info: the function was not called yet"))
end

return M
