-- Lists runs with their state, the newest last.
--   nnlua recipes/runs.lua                 the runs in runs/
--   nnlua recipes/runs.lua FOLDER          the runs in another folder
local nn = require "nn"
local files, metrics = require "nn.io.files", require "nn.train.metrics"
local units = require "nn.base.units"

local words = {unpack(arg)}
if words[1] and not words[1]:find "^%-" and not words[1]:find "=" then
  words[1] = "folder=" .. words[1]
end
local field = nn.field("runs", "folder that contains the runs", {path = true})
local folder = nn.config({folder = field}, words, {usage = "[FOLDER]"}).folder
local names, reason = files.list(folder)
if not names then
  nn.fail("cannot list '%s': %s%s", folder, reason,
          arg[1] and "" or "; give the folder that contains the runs, or start a run")
end

local runs = {}
for _, name in ipairs(names) do
  local path = files.join(folder, name)
  if files.exists(files.join(path, "metrics.jsonl")) then
    local run = metrics.read(path)
    run.name = name
    runs[#runs + 1] = run
  end
end
if #runs == 0 then nn.fail("'%s' contains no runs", folder) end
table.sort(runs, function(a, b) return (a.time or "") < (b.time or "") end)

local rows = {{"run", "state", "step", "loss", "best val_loss", "parameters", "training", "began"}}
for _, run in ipairs(runs) do
  local loss = run.series.loss
  rows[#rows + 1] = {
    run.name, run.state, run.steps and ("%d/%d"):format(run.step, run.steps) or tostring(run.step),
    loss and ("%.4f"):format(loss.value[#loss.value]) or "-",
    run.best and ("%.4f at %d"):format(run.best.value, run.best.step) or "-",
    run.parameters and units.number(run.parameters) or "-", units.duration(run.seconds),
    run.time and run.time:gsub("T", " "):sub(1, 16) or "-",
  }
end
local widths = {}
for _, row in ipairs(rows) do
  for i, text in ipairs(row) do widths[i] = math.max(widths[i] or 0, #text) end
end
for _, row in ipairs(rows) do
  for i, text in ipairs(row) do row[i] = text .. (" "):rep(widths[i] - #text) end
  print((table.concat(row, "  "):gsub("%s+$", "")))
end
