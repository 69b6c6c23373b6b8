-- What a run says and writes when its training begins: the line with the model, the workers and the
-- ranks, the first event of metrics.jsonl, and warnings about a start that is not what it seems.
local cluster = require "nn.base.cluster"
local command = require "nn.train.command"
local computer = require "nn.measure.computer"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local metrics = require "nn.train.metrics"
local registry = require "nn.models.registry"
local units = require "nn.base.units"

local M = {}
local MOST_NAMED = 4             -- runs that a message names

-- The runs beside a folder.
local function runs_beside(out)
  local folder, found = out:match "^(.*)/[^/]*$" or ".", {}
  for _, name in ipairs(files.list(folder) or {}) do
    local path = folder == "." and name or files.join(folder, name)
    if files.exists(files.join(path, "metrics.jsonl")) then found[#found + 1] = path end
  end
  return found
end

--- nothing_to_resume(out) -> what to say if resume=auto finds no checkpoint in a folder.
function M.nothing_to_resume(out)
  if files.exists(files.join(out, "metrics.jsonl")) then
    return ("there is no checkpoint in %s yet: starting at step 1"):format(out)
  end
  local text, others = ("resume=auto: there is no run in %s yet; starting at step 1"):format(out),
    runs_beside(out)
  if #others == 0 then return text end
  local named = table.concat(others, ", ", 1, math.min(#others, MOST_NAMED))
  return ("%s. Runs beside it: %s%s (resume=RUN resumes one)"):format(
    text, named, #others > MOST_NAMED and ", ..." or "")
end

--- crowded(places) -> a warning if ranks share a core, else nil. places: {"HOST CORES", ...}, a
--- text for each rank, with the cores on which it may run as /proc writes them.
function M.crowded(places)
  local hosts, seen = {}, {}
  for _, place in ipairs(places) do
    local name = place:match "^%S+"
    local host = hosts[name] or {ranks = 0, shares = 0}
    hosts[name], host.ranks = host, host.ranks + 1
    if not seen[place] then host.shares = host.shares + 1 end
    seen[place] = true
  end
  for _, place in ipairs(places) do
    local name = place:match "^%S+"
    local host = hosts[name]
    if host.shares < host.ranks then
      return ("%d ranks share %s on %s, and a rank that waits keeps another one from computing; "
              .. "start at most %d there"):format(host.ranks, units.count(host.shares, "core"),
                                                  name, host.shares)
    end
  end
end

-- Warns about ranks that share cores. Every rank calls it.
local function warn_of_crowd(run)
  if not cluster.several() then return end
  local cores = computer.text_of("/proc/self/status"):match "Cpus_allowed_list:%s*(%S+)"
  local text = M.crowded(cluster.gather("the cores of ranks", ("%s %s"):format(computer.name(),
                                                                               cores or "?")))
  if text then run:say("warning: " .. text) end
end

-- "2 ranks, 4 shards, each rank with 1 CPU and 0 GPU workers"
local function workers_text(cpus, gpus)
  local workers = ("%d CPU and %d GPU workers"):format(cpus, gpus)
  local ranks, shards = cluster.ranks().ranks, cluster.shards()
  if ranks == 1 and shards == 1 then return workers end
  return ("%s, %s, %s%s"):format(units.count(ranks, "rank"), units.count(shards, "shard"),
                                 ranks > 1 and "each rank with " or "", workers)
end

--- file_of_model(model) -> {path=, sha256=} of its file models/NAME.lua; nil if that is nnlua's
--- own. Every rank calls it. Errors: ranks with different files.
function M.file_of_model(model)
  local name = registry.name_of(model)
  local file = registry.file_of(name)
  local mine = file and file.sha256 or "none"
  for rank, other in ipairs(cluster.several() and cluster.gather("the file of the model", mine)
                            or {}) do
    if other ~= mine then
      lib.deny("rank %d has another file models/%s.lua than this rank, whose file is %s; all hosts "
               .. "need the same", rank - 1, name or "NAME",
               file and registry.described(file, name) or "missing")
    end
  end
  return file and file.path and file or nil
end

--- begin(run): writes the first event of a run that trains now, and prints its start.
function M.begin(run)
  local model, data = run.parts.model, run.parts.data
  local cpus, gpus = engine.workers()
  local version = engine.version()
  warn_of_crowd(run)
  local workers = workers_text(cpus, gpus)
  run.log:event(run.checkpoint and "resume" or "start", {
    step = run.step, parameters = model:count(), cpus = cpus, gpus = gpus,
    product_gflops = run.rate.gflops, time = os.date "!%Y-%m-%dT%H:%M:%SZ",
    version = version:match "^[^\n]*", process = metrics.process(),
    planned = run.traffic:begin(run.step),
    about = {command = command.typed(), host = computer.name(),
             processor = computer.processor()["model name"], workers = workers,
             starpu = version:match "StarPU ([^\n]*)", blas = version:match "BLAS ([^\n]*)",
             dtype = run.rate.gflops and run.rate.dtype}})
  if run.model_file then
    run:say("the model is defined by " .. registry.described(run.model_file))
  end
  local _, limit = engine.host_limits()
  if not limit:find "^all " then
    run:say(("%s: %s"):format(units.count(cpus, "CPU worker"), limit))
  end
  local steps = ("steps %d to %d"):format(run.first, run.cfg.steps)
  if run.first > run.cfg.steps then steps = "no steps left" end
  run:say(("%s parameters, %s, %s, %s: %s"):format(
    units.number(model:count()), data and data.name or "no data", workers, run.out, steps))
  for _, text in ipairs(run.traffic:plan_lines()) do run:say(text) end
end

return M
