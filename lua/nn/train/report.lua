-- Writes report.html: a self-contained page with the curves, samples and settings of one or several
-- runs. The template is report_page.html; this file inserts the data.
local csv = require "nn.train.csv"
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

-- The names of runs without what all of them begin with, up to a separator that is not within a
-- number: "a" and "b" of runs/a and runs/b.
local function short_names(runs)
  local names, common = {}, runs[1] and runs[1].name or ""
  for i, run in ipairs(runs) do
    while run.name:sub(1, #common) ~= common do common = common:sub(1, -2) end
    names[i] = run.name
  end
  if #names < 2 then return names end
  local cut = #(common:gsub("%de%-[^/_-]*$", ""):match "^.*[/_-]" or "")
  for i, name in ipairs(names) do names[i] = #name > cut and name:sub(cut + 1) or name end
  return names
end

-- Makes the MFU of runs that began the same way on one machine relative to one rate, the highest.
local function align_rates(runs)
  local highest = {}
  local function key(run)
    local about = run.about
    return run.gflops and run.gflops > 0 and about.dtype
      and table.concat({about.host or "", about.processor or "", about.workers or "",
                        about.dtype}, "\n")
  end
  for _, run in ipairs(runs) do
    local machine = key(run)
    if machine then highest[machine] = math.max(highest[machine] or 0, run.gflops) end
  end
  for _, run in ipairs(runs) do
    local most, mfu = highest[key(run) or 0], run.series.mfu
    for i, value in ipairs(most and mfu and mfu.value or {}) do
      mfu.value[i] = value * run.gflops / most
    end
    run.gflops = most or run.gflops
  end
end

local function page_data(run, short)
  local series = {}
  for name, one in pairs(run.series) do
    if #one.step > 0 then series[name] = thinned(one, shares[name] and 100 or 1) end
  end
  local samples = {}
  for i = #run.samples, math.max(1, #run.samples - 9), -1 do
    samples[#samples + 1] = run.samples[i]
  end
  return {name = run.name, short = short, state = run.state, facts = metrics.facts(run),
          about = metrics.about(run), series = series,
          config = flat(run.config, "", {}), samples = samples, in_folder = run.in_folder}
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
  local parts = {}
  for _, name in ipairs {"name", "short", "state", "series", "in_folder"} do
    parts[#parts + 1] = ('"%s":%s'):format(name, files.json(run[name]))
  end
  for _, name in ipairs {"facts", "about", "config", "samples"} do
    parts[#parts + 1] = ('"%s":%s'):format(name, list_json(run[name]))
  end
  local text = "{" .. table.concat(parts, ",") .. "}"
  return (text:gsub("<", "\\u003c"))
end

--- page(runs, title) -> the text of the page, for runs of metrics.read().
function M.page(runs, title)
  local root = package.loaded["nn.host"].root
  local template = files.read(root .. "/lua/nn/train/report_page.html")
  local parts, short = {}, short_names(runs)
  align_rates(runs)
  for i, run in ipairs(runs) do parts[i] = run_json(page_data(run, short[i])) end
  local fill = {TITLE = escaped(title), DATA = "[" .. table.concat(parts, ",\n") .. "]"}
  return (template:gsub("%$(%u+)", fill))
end

--- write(path, folders, title): writes the page of these runs, or their curves if the path ends in
--- .csv; the default title is their names. Errors: a folder without a run.
function M.write(path, folders, title)
  local runs, names = {}, {}
  for i, folder in ipairs(folders) do
    runs[i] = metrics.read(folder)
    names[i] = runs[i].name
    runs[i].in_folder = path == files.join(folder, "report.html")      -- beside its metrics.csv
  end
  if path:find "%.csv$" then return files.write(path, csv.text(runs)) end
  files.write(path, M.page(runs, title or table.concat(names, ", ")))
end

return M
