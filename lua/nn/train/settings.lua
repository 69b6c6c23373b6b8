-- The settings of a run, its folder, and what a checkpoint says of both.
local checkpoint = require "nn.models.checkpoint"
local config = require "nn.io.config"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local M = {}

--- default_folder(cfg) -> the folder of a run that was given none: runs/NAME, runs/NAME-2, ...;
--- resume=auto: the newest.
function M.default_folder(cfg)
  local base, number = "runs/" .. (cfg.preset or "run"), 1
  local function name(i) return i == 1 and base or base .. "-" .. i end
  local function used(i) return #(files.list(name(i)) or {}) > 0 end
  while used(number) do number = number + 1 end
  return name(cfg.resume == "auto" and math.max(1, number - 1) or number)
end

--- check_folder(out, resume): whether a run's folder can be made and written to; a run that is
--- then refused for other reasons leaves none. Errors: one that cannot, or that holds a run already
--- while nothing is to be resumed.
function M.check_folder(out, resume)
  local made = files.make_folder(out, "the output folder")
  local probe = files.join(out, ".probe")
  files.create(probe):close()
  files.remove(probe)
  files.remove_empty(made)
  if resume == "none" then
    local saved = checkpoint.list(out)
    if #saved > 0 then
      lib.fail("'%s' holds a run already, up to step %d; go on with resume=auto, or choose "
               .. "another out=", out, saved[#saved].step)
    end
  end
end

-- Settings of one start of a run, not of the run.
local of_start = {out = true, resume = true, plan = true, profile = true, profile_steps = true}

--- saved(given, values) -> path -> its value in the run that is to be resumed, or nil. given: the
--- command line's settings as texts by path; values: the recipe's others. A preset that is given
--- and is not the run's means other settings: then there are none.
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

--- nn.run_fields{steps=2000, ...} -> the settings that nn.run reads, for a recipe's schema; the
--- table gives other defaults.
---     nn.config({nn.run_fields {steps = 50}}, {"keep=1"}).steps  --> 50
function M.run_fields(defaults)
  local own = defaults or {}
  local function field(name, default, ...)
    if own[name] ~= nil then default = own[name] end
    return config.field(default, ...)
  end
  return {
    steps = field("steps", 2000, "steps to train", {min = 1}),
    stop_at = field("stop_at", 0, "val_loss at which training ends before; 0: never",
                    {min = 0, real = true}),
    seed = field("seed", 1, "of weights, dropout, data order and samples", {min = 0}),
    out = field("out", "", "folder of this run; empty: runs/PRESET, then runs/PRESET-2, ..."),
    resume = field("resume", "none", "none, auto (newest checkpoint in out), or a checkpoint: with "
                   .. "its settings, but for those that are given", {inherits = M.saved}),
    save_every = field("save_every", 500, "steps between checkpoints; 0: only the last", {min = 0}),
    keep = field("keep", 2, "newest checkpoints that are kept", {min = 1}),
    keep_best = field("keep_best", true, "keep the one with the lowest val_loss too, as OUT/best"),
    eval_every = field("eval_every", 250, "steps between validations; 0: only the last", {min = 0}),
    eval_batches = field("eval_batches", 50, "batches of such a validation; 0: all", {min = 0}),
    final_batches = field("final_batches", 0, "batches of the last validation; 0: all", {min = 0}),
    sample_every = field("sample_every", 0, "steps between samples; 0: only the last", {min = 0}),
    log_every = field("log_every", 10, "steps between lines of metrics.jsonl", {min = 1}),
    on_nan = field("on_nan", "stop", "where loss or gradient is NaN or infinite",
                   {choices = {"stop", "skip"}}),
    memory_gb = field("memory_gb", 0, "memory to use; 0: what is free", {min = 0, real = true}),
    plan = field("plan", false, "only tell what a step would cost, and whether it fits"),
    profile = field("profile", "",
                    "where the time of some steps goes: true (a trace OUT/trace.json) or a file"),
    profile_steps = field("profile_steps", "", "which, as 10-12; empty: the fourth to the sixth"),
  }
end

--- need(cfg): an error where a setting of run_fields is missing.
function M.need(cfg)
  for name in pairs(M.run_fields()) do
    if type(cfg) ~= "table" or cfg[name] == nil then
      lib.misuse("run: the settings have no '%s'; nn.config({nn.run_fields {}, ...}, arg) makes "
                 .. "them", name)
    end
  end
end

--- compare(cfg, found, say): settings that differ from those of a checkpoint: an error for the
--- model's, else a remark.
function M.compare(cfg, found, say)
  local old = found.state.config
  for _, setting in ipairs(config.settings(cfg)) do
    local before = config.get(old, setting.path)
    if before ~= setting.value and before ~= nil and setting.path ~= "preset"
       and not of_start[setting.path] then
      local text = ("%s=%s (it was %s)"):format(setting.path, setting.text, tostring(before))
      if setting.path:find "^model%." then
        lib.fail("'%s' is of another model: %s", found.path, text)
      end
      say("going on with " .. text)
    end
  end
end

return M
