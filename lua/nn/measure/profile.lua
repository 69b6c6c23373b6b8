-- Profiles: time by kernel, op and layer, and the causes of idle time; also the machine's
-- matrix-product rate for comparison. The engine records every task (engine/profile/records.h);
-- trace.lua writes the tasks to a file.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local budget = require "nn.base.budget"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local units = require "nn.base.units"
local C, check = lib.C, lib.check

local M = {}
local Profile = {}

-- The causes of idle time, in the order of the summary.
M.idle = {
  {"data", "waiting for data to be copied"}, {"disk", "waiting for the disk"},
  {"dependencies", "waiting for tasks before"}, {"nothing", "nothing submitted"},
  {"engine", "the engine"},
}

local function groups(by, count)
  local out, group = {}, ffi.new "nn_profile_group_t"
  for i = 0, count - 1 do
    check(C.nn_profile_group(by, i, group))
    out[i + 1] = {name = ffi.string(group.name), calls = tonumber(group.calls),
                  seconds = group.seconds, flops = group.flops, bytes = group.bytes}
  end
  return out
end

local function worker_times(count)
  local out, w = {}, ffi.new "nn_profile_worker_t"
  for i = 0, count - 1 do
    check(C.nn_profile_worker(i, w))
    out[i + 1] = {name = ffi.string(w.name), gpu = w.gpu ~= 0, tasks = tonumber(w.tasks),
                  busy = w.busy, data = w.data, disk = w.disk,
                  dependencies = w.dependencies, nothing = w.nothing, engine = w.engine}
  end
  return out
end

-- The seconds in which the submitting thread submitted and waited.
local function submitter(count)
  local out, span = {submitting = 0, waiting = 0}, ffi.new "nn_profile_span_t"
  for i = 0, count - 1 do
    check(C.nn_profile_span(i, span))
    local name = ffi.string(span.what) == "submit" and "submitting" or "waiting"
    out[name] = out[name] + span["end"] - span.start
  end
  return out
end

-- The transfers from and to the lower tiers of memory; empty if there were none.
local function links_of(transfers)
  local out, link = {}, ffi.new "nn_profile_link_t"
  for i = 2, transfers > 0 and #budget.tiers or 0 do
    local tier = budget.tiers[i]
    for writes, name in ipairs {"read", "write"} do
      check(C.nn_profile_link(tier == "disk" and 1 or 0, writes - 1, link))
      out[#out + 1] = {name = tier .. " " .. name,
                       transfers = tonumber(link.transfers), bytes = tonumber(link.bytes),
                       busy = link.busy, waited = link.waited}
    end
  end
  return out
end

-- Everything but kernels, ops and layers.
local function totals(info)
  local stats = ffi.new "nn_stats_t"
  check(C.nn_stats(stats))
  local out = {
    seconds = info.seconds, lost = tonumber(info.lost), recorded = tonumber(info.tasks),
    workers = worker_times(info.workers), busy = 0, main = submitter(tonumber(info.spans)),
    spans = tonumber(info.spans), transfers = tonumber(info.transfers),
    links = links_of(tonumber(info.transfers)), tasks = tonumber(stats.tasks),
    replayed_tasks = tonumber(stats.replayed_tasks),
    replay_seconds = stats.replay_seconds, starpu_seconds = stats.starpu_seconds, idle = {},
  }
  for _, reason in ipairs(M.idle) do out.idle[reason[1]] = 0 end
  for _, w in ipairs(out.workers) do
    out.busy = out.busy + w.busy
    for name, seconds in pairs(out.idle) do out.idle[name] = seconds + w[name] end
  end
  return out
end

local running   -- the result of layer.start() while a profile is on

--- start(owner): starts a profile. If a profile is already on, this is an error, unless it has the
--- same owner: then an error left it on, and it is cancelled.
function M.start(owner)
  if running and owner and running.owner == owner then M.cancel() end
  if running then lib.misuse "profile: a profile is already on; profiles cannot be nested" end
  check(C.nn_profile(1))
  running = layer.start()
  running.owner = owner
end

--- cancel(): discards the profile that is on, if any.
function M.cancel()
  if not running then return end
  layer.stop(running)
  running = nil
  C.nn_profile(0)
end

--- finish(file) -> profile: ends the profile that is on, and writes its trace if a file is given.
function M.finish(file)
  return lib.finally(M.cancel, function()
    local info = ffi.new "nn_profile_info_t"
    check(C.nn_profile_stop(info))
    local profile = totals(info)
    profile.kernels, profile.ops = groups(0, info.groups[0]), groups(1, info.groups[1])
    profile.layers = groups(2, info.groups[2])
    if file then require("nn.measure.trace").write(file, profile) end
    return setmetatable(profile, Profile)
  end)
end

-- Profiles f, and writes the trace if a file is given.
local function measure(file, f, ...)
  M.start()
  lib.guarded(M.cancel, f, ...)
  return M.finish(file)
end

--- nn.profile(f, ...) -> profile. Runs f, and accounts for the time of the workers until all tasks
--- of f are done. It prints as a table by op. Fields, in seconds: seconds (elapsed); busy and idle
--- = {data, disk, dependencies, nothing, engine}, which add up to seconds times the number of
--- workers; ops, kernels and layers = {{name, calls, seconds, flops, bytes}, ...}, most seconds
--- first; workers = {{name, gpu, tasks, busy, data, ...}, ...}; main = {submitting, waiting} of the
--- main thread; links = {{name, transfers, bytes, busy, waited}, ...} of "disk read" and "disk
--- write", of "RAM read" and "RAM write" below a GPU, or of all four, if nn.memory_tiers moved
--- tiles: seconds with a transfer under way, and the sum of those that transfers waited to begin.
--- Further fields: tasks; replayed_tasks; replay_seconds, the CPU time of the main thread to submit
--- replayed tasks; starpu_seconds, StarPU's share of it. Causes of idle time: data: the data of the
--- worker's next task is being copied; dependencies: no submitted task can start yet; disk: the
--- same while a transfer waits or is under way; nothing: no task is submitted; engine: a task is
--- ready, so this is the overhead of the scheduler and StarPU. A function compiled earlier keeps
--- its layer names. At most 1,048,576 tasks are recorded (`recorded`); the profile ends with the
--- next one, and `lost` counts the others. Errors: those of f; nested profiles.
---     local p = nn.profile(function() return x:matmul(x:t()) end)
---     p.seconds > 0, p.ops[1].calls >= 1  --> true, true
function M.profile(f, ...)
  arguments.callable("profile", f)
  return measure(nil, f, ...)
end

--- nn.trace(file, f, ...) -> the result of nn.profile(f, ...). Also writes a trace: a JSON file for
--- https://ui.perfetto.dev or chrome://tracing, with a row for each worker and for the submitting
--- thread, a bar for each task, named by op and layer, and arrows from each task to those that
--- depended on it; also rows of the transfers from and to the disk, named by kind of tensor.
--- Errors: those of nn.profile; a file that cannot be written.
---     nn.trace("trace.json", function() return nn.Linear(3, 2)(x) end).recorded > 2  --> true
function M.trace(file, f, ...)
  arguments.need(type(file) == "string" and file ~= "", "trace", "the file", file,
                 "a name is needed: nn.trace(\"trace.json\", f); x:trace() sums a diagonal")
  arguments.callable("trace", f)
  require("nn.measure.trace").check(file)
  return measure(file, f, ...)
end

local header = "%-30s %8s %10s %7s %9s %7s\n"
local row = "%-30s %8d %10s %6.1f%% %9s %7s\n"
local MOST = 20   -- ops that are listed by name

local function per_second(amount, seconds)
  if amount == 0 or seconds == 0 then return "" end
  return ("%.1f"):format(amount / seconds / 1e9)
end

local function add_ops(out, ops, all)
  local rest = {name = "", calls = 0, seconds = 0, flops = 0, bytes = 0}
  local function add(g)
    out[#out + 1] = row:format(g.name, g.calls, units.seconds(g.seconds), 100 * g.seconds / all,
                               per_second(g.flops, g.seconds), per_second(g.bytes, g.seconds))
  end
  for i, group in ipairs(ops) do
    if i <= MOST or #ops == MOST + 1 then
      add(group)
    else
      for _, name in ipairs {"calls", "seconds", "flops", "bytes"} do
        rest[name] = rest[name] + group[name]
      end
    end
  end
  rest.name = ("%d more"):format(#ops - MOST)
  if rest.calls > 0 then add(rest) end
end

local function link_text(link, seconds)
  if link.transfers == 0 then return link.name .. ": none" end
  return ("%s: %s of %s, %s/s, %.2f of the time, each after waiting %s"):format(
    link.name, units.count(link.transfers, "transfer"), units.bytes(link.bytes),
    units.bytes(link.bytes / link.busy), link.busy / seconds,
    units.seconds(link.waited / link.transfers))
end

function Profile.__tostring(self)
  local all = self.seconds * #self.workers
  local out = {header:format("op", "tasks", "time", "share", "GFLOP/s", "GB/s")}
  add_ops(out, self.ops, all)
  local function line(name, seconds, remark)
    out[#out + 1] = ("%-30s %8s %10s %6.1f%%%s\n"):format(
      name, "", units.seconds(seconds), 100 * seconds / all, remark or "")
  end
  for _, reason in ipairs(M.idle) do
    local name, about = reason[1], reason[2]
    local seconds = self.idle[name]
    if name == "disk" and budget.on_gpu() then about = "waiting for copies from RAM" end
    if name ~= "disk" or #self.links > 0 then
      line(about, seconds, name == "engine" and self.recorded > 0
        and ("  %s a task"):format(units.seconds(seconds / self.recorded)))
    end
  end
  local busy = {}
  for i, w in ipairs(self.workers) do
    busy[i] = ("%s %.0f%%"):format(w.name, 100 * w.busy / self.seconds)
  end
  out[#out + 1] = ("%s on %d worker%s, busy: %s\n"):format(
    units.seconds(self.seconds), #self.workers, #self.workers == 1 and "" or "s",
    table.concat(busy, ", "))
  out[#out + 1] = ("main thread: submitting %s, waiting %s"):format(
    units.seconds(self.main.submitting), units.seconds(self.main.waiting))
  for _, link in ipairs(self.links) do out[#out + 1] = "\n" .. link_text(link, self.seconds) end
  if self.lost > 0 then
    out[#out + 1] = ("\nthe profile ends after %d tasks, its limit; %d more followed"):format(
      self.recorded, self.lost)
  end
  return table.concat(out)
end

--- nn.product_gflops(size=2048, dtype="f32") -> GFLOP/s of products of size x size matrices in f32
--- or bf16, on all CPU workers at once: the best of five after a warm-up, as in the cost model. If
--- tasks run on GPUs, the sum of their rates for products of 4096 x 4096 matrices, which are
--- measured when the engine starts.
---     nn.product_gflops(256) > 0  --> true
function M.product_gflops(size, dtype)
  local rate = ffi.new "double[1]"
  size = arguments.whole("product_gflops", "the size", size or 2048, 1, 32768)
  arguments.need(dtype == nil or dtype == "f32" or dtype == "bf16", "product_gflops", "the dtype",
                 dtype, "f32 or bf16 is needed")
  lib.check(lib.C.nn_product_rate(size, lib.dtype_number[dtype or "f32"], rate))
  return rate[0] / 1e9
end

--- reference_gflops(size, dtype, achieved) -> the highest result of nn.product_gflops(size, dtype).
--- Repeats the measurement up to 3 times while it is below `achieved` GFLOP/s: other programs may
--- have slowed it down.
function M.reference_gflops(size, dtype, achieved)
  local best = M.product_gflops(size, dtype)
  for _ = 1, 3 do
    if best >= (achieved or 0) then break end
    best = math.max(best, M.product_gflops(size, dtype))
  end
  return best
end

return M
