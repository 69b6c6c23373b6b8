-- The settings and the folder of a run, also of one that is resumed.
local checkpoint = require "nn.models.checkpoint"
local config = require "nn.io.config"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local M = {}

--- default_folder(cfg) -> the default folder of a new run: runs/NAME, runs/NAME-2, ...; with
--- resume=auto, the newest existing one.
function M.default_folder(cfg)
  local base, number = "runs/" .. (cfg.preset or "run"), 1
  local function name(i) return i == 1 and base or base .. "-" .. i end
  local function used(i) return #(files.list(name(i)) or {}) > 0 end
  while used(number) do number = number + 1 end
  return name(cfg.resume == "auto" and math.max(1, number - 1) or number)
end

--- check_folder(out, resume): checks that a run's folder can be created and written, and leaves no
--- new folder behind. Errors: it cannot; it already contains a run, and resume is "none".
function M.check_folder(out, resume)
  local made = files.make_folder(out, "the output folder")
  local probe = files.join(out, ".probe")
  files.create(probe):close()
  files.remove(probe)
  files.remove_empty(made)
  if resume == "none" then
    local saved = checkpoint.list(out)
    if #saved > 0 then
      lib.fail("'%s' already contains a run, up to step %d; resume it with resume=auto, or choose "
               .. "another out=", out, saved[#saved].step)
    end
  end
end

-- Settings of one start of a run, which a resumed run does not inherit.
local of_start = {out = true, resume = true, plan = true, profile = true, profile_steps = true}

--- saved(given, values) -> a function from a path to its value in the run to resume, or nil. given:
--- the settings on the command line as texts by path; values: all other settings. If another preset
--- than the run's is given, nothing is inherited.
function M.saved(given, values)
  local function setting(name) return given[name] or values[name] end
  local resume = setting "resume"
  local from = resume
  if resume == "auto" then
    from = setting "out"
    if from == "" then from = M.default_folder {preset = setting "preset", resume = resume} end
  end
  local found = resume ~= "none" and checkpoint.config(from)
  if not found or given.preset and given.preset ~= found.preset then
    return function() return nil end
  end
  return function(path)
    if not of_start[path] then return config.get(found, path) end
  end
end

--- nn.run_fields{steps=2000, ...} -> the settings of nn.run, for a recipe's schema; the table
--- overrides defaults.
---     nn.config({nn.run_fields {steps = 50}}, {"keep=1"}).steps  --> 50
function M.run_fields(defaults)
  local own = defaults or {}
  local function field(name, default, ...)
    if own[name] ~= nil then default = own[name] end
    return config.field(default, ...)
  end
  return {
    steps = field("steps", 2000, "steps to train", {min = 1}),
    stop_at = field("stop_at", 0, "val_loss at which training ends early; 0: never",
                    {min = 0, real = true}),
    seed = field("seed", 1, "seed of weights, dropout, data order and samples", {min = 0}),
    out = field("out", "", "folder of this run; empty: runs/PRESET, then runs/PRESET-2, ..."),
    resume = field("resume", "none", "none, auto (the newest checkpoint in out), or a checkpoint; "
                   .. "its settings apply unless others are given", {inherits = M.saved}),
    save_every = field("save_every", 500, "steps between checkpoints; 0: only the last", {min = 0}),
    keep = field("keep", 2, "number of newest checkpoints to keep", {min = 1}),
    keep_best = field("keep_best", true, "also keep that with the lowest val_loss, as OUT/best"),
    eval_every = field("eval_every", 250, "steps between validations; 0: only the last", {min = 0}),
    eval_batches = field("eval_batches", 50, "batches per validation; 0: all", {min = 0}),
    final_batches = field("final_batches", 0, "batches of the last validation; 0: all", {min = 0}),
    sample_every = field("sample_every", 0, "steps between samples; 0: only the last", {min = 0}),
    log_every = field("log_every", 10, "steps between lines of metrics.jsonl", {min = 1}),
    on_nan = field("on_nan", "stop", "reaction to a loss or gradient that is NaN or infinite",
                   {choices = {"stop", "skip"}}),
    memory_gb = field("memory_gb", 0, "memory budget in GB; 0: the free RAM",
                      {min = 0, real = true}),
    plan = field("plan", false, "only report what a step would cost and whether it fits"),
    profile = field("profile", "", "profile some steps: true (trace in OUT/trace.json) or a file"),
    profile_steps = field("profile_steps", "", "steps to profile, such as 10-12; empty: 4 to 6"),
  }
end

--- need(cfg): raises an error if a setting of run_fields is missing.
function M.need(cfg)
  for name in pairs(M.run_fields()) do
    if type(cfg) ~= "table" or cfg[name] == nil then
      lib.misuse("run: the settings have no '%s'; create them with nn.config({nn.run_fields {}, "
                 .. "...}, arg)", name)
    end
  end
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
