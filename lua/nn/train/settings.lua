-- The settings and the folder of a run, also of one that is resumed.
local checkpoint = require "nn.models.checkpoint"
local cluster = require "nn.base.cluster"
local config = require "nn.io.config"
local files = require "nn.io.files"
local first = require "nn.io.first"
local lib = require "nn.base.capi"
local locks = require "nn.io.lock"
local memory = require "nn.train.memory"
local temporary = require "nn.io.temporary"
local verify = require "nn.train.verify"

local M = {}

local LOCK = "run.lock"

-- runs/NAME, runs/NAME-2, ...: the default folders of runs.
local function folder(cfg, number)
  local base = "runs/" .. (cfg.preset or "run")
  return number == 1 and base or base .. "-" .. number
end

-- Whether a folder contains more than the lock of a run that has not begun.
local function used(out)
  local names = files.list(out) or {}
  return #names > 1 or #names == 1 and names[1] ~= LOCK
end

--- default_folder(cfg) -> the default folder of a new run: the first of runs/NAME, runs/NAME-2, ...
--- that is not used; with resume=auto, the newest used one.
function M.default_folder(cfg)
  local number = 1
  while used(folder(cfg, number)) do number = number + 1 end
  return folder(cfg, cfg.resume == "auto" and math.max(1, number - 1) or number)
end

-- Locks a run's folder, which it creates -> a lock whose release removes an empty folder; nil and
-- the process that runs there.
local function lock(out)
  local made = files.make_folder(out, "the output folder")
  for _, path in ipairs(made) do temporary.claim(path) end
  local good, held, process = lib.protected(locks.lock, files.join(out, LOCK))
  if good and held and not held.made then
    held.made = made
  else
    temporary.keep(unpack(made))
  end
  if not good then
    if files.exists(out) then error(held, 0) end
    return lock(out)                               -- another process ended and removed the folder
  end
  return held, process
end

local function claim_folder(cfg)
  local out, number = cfg.out, 1
  while out == "" and cfg.resume ~= "auto" do
    local free = folder(cfg, number)
    local held = not used(free) and lock(free)
    if held and not used(free) then return free, held end
    if held then held:release() end                -- a run there just ended
    number = number + 1
  end
  if out == "" then out = M.default_folder(cfg) end
  local held, process = lock(out)
  if not held then
    lib.fail("%s is using '%s'; wait until it ends, or choose another out=",
             process > 0 and "process " .. process
             or "a process in another container or on another machine", out)
  end
  local saved = cfg.resume == "none" and checkpoint.list(out) or {}
  if #saved > 0 then
    held:release()
    lib.fail("'%s' already contains a run, up to step %d; resume it with resume=auto, or choose "
             .. "another out=", out, saved[#saved].step)
  end
  return out, held
end

--- trains(cfg) -> whether the run trains, and so needs its folder.
function M.trains(cfg) return not cfg.plan and cfg.verify == 0 end

--- claim_folder(cfg) -> the folder of a run and, if it trains, its lock. No other process can claim
--- the folder until lock:release() or the end of this process. With several ranks, rank 0 has the
--- lock. Errors: the folder cannot be created or written; another process runs there; it already
--- contains a run, and resume is "none".
function M.claim_folder(cfg)
  if not M.trains(cfg) then return cfg.out ~= "" and cfg.out or M.default_folder(cfg) end
  local held
  local out = first.on_first("the folder of the run", function()
    local path, lock_of_path = claim_folder(cfg)
    held = lock_of_path
    return path
  end)
  return out, held
end

--- write(cfg, model_file): writes config.json to the folder of a run. model_file: of the model,
--- if it is not nnlua's own.
function M.write(cfg, model_file)
  if not cluster.is_first() then return end
  files.make_folder(cfg.out, "the output folder")
  local out = {model_file = model_file}
  for name, value in pairs(cfg) do out[name] = value end
  files.write(files.join(cfg.out, "config.json"), files.json(out, "") .. "\n")
end

--- use_ranks(cfg): sets the shards of nn.cluster by the setting cluster.shards. If that is 0 or, in
--- a resumed run, too few for the ranks, each rank gets one.
function M.use_ranks(cfg)
  local ranks, shards = cluster.planned(), cfg.cluster.shards
  if not cfg.plan and ranks ~= cluster.ranks().ranks then
    lib.fail("the machine is described with ranks=%d (NNLUA_MACHINE), but %d run%s; add --plan, or "
             .. "describe it without ranks", ranks, cluster.ranks().ranks,
             cluster.several() and "" or "s")
  end
  if shards < ranks and (shards == 0 or not config.given(cfg, "cluster.shards")) then
    shards = ranks
    if cluster.several() then cfg.cluster.shards = shards end
  end
  if shards < ranks then
    lib.fail("cluster.shards=%d is too few for %d ranks; each needs at least one", shards, ranks)
  end
  if shards > 1 then cluster.cluster {shards = shards, shard = cfg.cluster.shard} end
end

-- Settings of one start of a run, which a resumed run does not inherit.
local of_start = {out = true, resume = true, plan = true, verify = true, checks = true,
                  profile = true, profile_steps = true, plot = true}

-- The folder of the run that the setting resume names; nil if it is a checkpoint.
local function run_folder(resume)
  return #checkpoint.list(resume) > 0 and resume:gsub("(.)/+$", "%1") or nil
end

--- saved(given, values) -> a function from a path to its value in the run to resume, or nil. given:
--- the settings on the command line as texts by path; values: all other settings. A run resumes in
--- its folder. If another preset than the run's is given, nothing else is inherited.
function M.saved(given, values)
  local function setting(name) return given[name] or values[name] end
  local resume = setting "resume"
  local from = resume
  if resume == "auto" then
    from = setting "out"
    if from == "" then from = M.default_folder {preset = setting "preset", resume = resume} end
  end
  local found = resume ~= "none" and first.on_first("the settings of the run to resume", function()
    return {config = checkpoint.config(from), out = resume ~= "auto" and run_folder(resume) or nil}
  end) or {}
  local saved = found.config
  local inherits = saved and not (given.preset and given.preset ~= saved.preset)
  return function(path)
    if path == "out" then return found.out end
    if inherits and not of_start[path] then return config.get(saved, path) end
  end
end

--- nn.run_fields{steps=2000, ...} -> the settings of nn.run, for a recipe's schema; the table
--- overrides defaults. Errors: an unknown name, a default that the setting does not allow.
---     nn.config({nn.run_fields {steps = 50}}, {"keep=1"}).steps  --> 50
function M.run_fields(defaults)
  local field = config.field
  local fields = memory.memory_fields()
  for name, value in pairs {
    steps = field(2000, "steps to train", {min = 1}),
    stop_at = field(0, "val_loss at which training ends early; 0: never",
                    {min = 0, real = true}),
    seed = field(1, "seed of weights, dropout, data order and samples", {min = 0}),
    out = field("", "folder of this run, by default that of the resumed run; empty: runs/PRESET, "
                .. "then runs/PRESET-2, ...", {path = true}),
    resume = field("none", "none, the folder of a run (its newest checkpoint), a checkpoint, or "
                   .. "auto (the newest checkpoint in out; without one, training begins anew); its "
                   .. "settings apply unless others are given", {inherits = M.saved, path = true}),
    save_every = field(500, "steps between checkpoints; 0: only the last", {min = 0}),
    keep = field(2, "number of newest checkpoints to keep", {min = 1}),
    keep_best = field(true, "also keep that with the lowest val_loss, as OUT/best"),
    eval_every = field(250, "steps between validations; 0: only the last", {min = 0}),
    eval_batches = field(50, "batches per validation; 0: all", {min = 0}),
    final_batches = field(0, "batches of the last validation; 0: all", {min = 0}),
    sample_every = field(0, "steps between samples; 0: only the last", {min = 0}),
    log_every = field(10, "steps between lines of metrics.jsonl", {min = 1}),
    on_nan = field("stop", "reaction to a loss or gradient that is NaN or infinite",
                   {choices = {"stop", "skip"}}),
    plot = field(false, "draw the curve of the loss while it trains, on a terminal"),
    plan = field(false, "only report what a step would cost and whether it fits"),
    verify = field(0, "instead of training, train so many steps of as many layers as fit into "
                   .. "memory.ram, with memory.disk and without, and compare all bits; 0: train",
                   {min = 0}),
    profile = field("", "profile some steps: true (trace in OUT/trace.json) or a file",
                    {path = true}),
    profile_steps = field("", "steps to profile, such as 10-12; empty: 4 to 6"),
    cluster = {shards = field(0, "parts of a batch that several ranks share; the number alone "
                              .. "decides the order of sums; 0: one per rank", {min = 0}),
               shard = field("optimizer", "what each rank keeps a part of: the optimizer's state, "
                             .. "or the weights too, which are sent whenever they are used",
                             {choices = {"optimizer", "weights"}})},
  } do
    fields[name] = value
  end
  return config.override("run_fields", fields, defaults)
end

--- need(cfg): raises an error if a setting of run_fields is missing, or if verify has a value that
--- cannot be.
function M.need(cfg)
  for name in pairs(M.run_fields()) do
    if type(cfg) ~= "table" or cfg[name] == nil then
      lib.misuse("run: the settings have no '%s'; create them with nn.config({nn.run_fields {}, "
                 .. "...}, arg)", name)
    end
  end
  verify.need(cfg)
end

--- compare(cfg, found, say): compares the settings with those of a checkpoint: a difference is an
--- error for a model setting, else a message.
function M.compare(cfg, found, say)
  local old = found.state.config
  for _, setting in ipairs(config.settings(cfg)) do
    local before = config.get(old, setting.path)
    if before ~= setting.value and before ~= nil and setting.path ~= "preset"
       and not of_start[setting.path] then
      local text = ("%s=%s (it was %s)"):format(setting.path, setting.text, tostring(before))
      if setting.path:find "^model%." then
        lib.fail("'%s' belongs to another model: %s", found.path, text)
      end
      say("resuming with " .. text)
    end
  end
end

return M
