-- Writes report.html: a self-contained page with the curves, samples and settings of one or several
-- runs. The template is report_page.html; this file inserts the data.
local files = require "nn.io.files"
local metrics = require "nn.train.metrics"
local tables = require "nn.base.tables"

local M = {}
local POINTS = 600               -- the most points per curve; a screen shows fewer
local shares = {mfu = true, disk_busy = true, stalled = true}      -- shown in percent

-- A series of at most POINTS points, each the mean of equally many steps.
local function thinned(series, scale)
  local count = #series.step
  local out = {step = {}, seconds = {}, value = {}}
  local groups = math.min(count, POINTS)
  for group = 1, groups do
    local first = math.floor((group - 1) * count / groups) + 1
    local final, sum = math.floor(group * count / groups), 0
    for i = first, final do sum = sum + series.value[i] end
    out.step[group], out.seconds[group] = series.step[final], series.seconds[final]
    out.value[group] = tonumber(("%.6g"):format(sum / (final - first + 1) * (scale or 1)))
  end
  return out
end

-- {{"optim.lr", "0.001"}, ...} of a nested table, sorted.
local function flat(config, prefix, list)
  for _, name in ipairs(tables.sorted_keys(config)) do
    local value, path = config[name], prefix .. name
    if type(value) == "table" then
      flat(value, path .. ".", list)
    else
      list[#list + 1] = {path, type(value) == "number" and files.number_text(value)
                               or tostring(value)}
    end
  end
  return list
end

local function page_data(run)
  local series = {}
  for name, one in pairs(run.series) do
    if #one.step > 0 then series[name] = thinned(one, shares[name] and 100 or 1) end
  end
  local samples = {}
  for i = #run.samples, math.max(1, #run.samples - 9), -1 do
    samples[#samples + 1] = run.samples[i]
  end
  return {name = run.name, state = run.state, facts = metrics.facts(run), series = series,
          config = flat(run.config, "", {}), samples = samples}
end

local function escaped(text)
  return (text:gsub("[&<>]", {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;"}))
end

-- JSON without "<", so that no text can end the surrounding script element.
local function list_json(list)
  local parts = {}
  for i, item in ipairs(list) do parts[i] = files.json(item) end
  return "[" .. table.concat(parts, ",") .. "]"
end
local function run_json(run)
  local text = ('{"name":%s,"state":%s,"facts":%s,"series":%s,"config":%s,"samples":%s}'):format(
    files.json(run.name), files.json(run.state), list_json(run.facts), files.json(run.series),
    list_json(run.config), list_json(run.samples))
  return (text:gsub("<", "\\u003c"))
end

--- page(runs, title) -> the text of the page, for runs of metrics.read().
function M.page(runs, title)
  local root = package.loaded["nn.host"].root
  local template = files.read(root .. "/lua/nn/train/report_page.html")
  local parts = {}
  for i, run in ipairs(runs) do parts[i] = run_json(page_data(run)) end
  local fill = {TITLE = escaped(title), DATA = "[" .. table.concat(parts, ",\n") .. "]"}
  return (template:gsub("%$(%u+)", fill))
end

--- write(path, folders, title): writes the page of these runs; the default title is their names.
--- Errors: a folder without a run.
function M.write(path, folders, title)
  local runs, names = {}, {}
  for i, folder in ipairs(folders) do
    runs[i] = metrics.read(folder)
    names[i] = runs[i].name
  end
  files.write(path, M.page(runs, title or table.concat(names, ", ")))
end

return M
