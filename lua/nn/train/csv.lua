-- The curves of runs as CSV (RFC 4180), with a row per step: for spreadsheets and pandas.
local metrics = require "nn.train.metrics"

local M = {}

local function field(value)
  if value == nil then return "" end
  local text = type(value) == "number" and ("%.9g"):format(value) or value
  return text:find '[",\r\n]' and '"' .. text:gsub('"', '""') .. '"' or text
end

-- The rows of a run: {step =, seconds =, NAME = value, ...}, in the order of the steps.
local function rows_of(run, names)
  local rows, of_step = {}, {}
  for _, name in ipairs(names) do
    local series = run.series[name] or {step = {}}
    for i, step in ipairs(series.step) do
      local row = of_step[step] or {step = step, seconds = series.seconds[i]}
      if not of_step[step] then rows[#rows + 1], of_step[step] = row, row end
      row[name] = series.value[i]
    end
  end
  table.sort(rows, function(a, b) return a.step < b.step end)
  return rows
end

--- text(runs) -> the text, for runs of metrics.read(): columns run, step, seconds (of training) and
--- the curves that a run has; a value that a step lacks is empty.
function M.text(runs)
  local names, lines = {}, {}
  for _, name in ipairs {"loss", "val_loss", unpack(metrics.curves, 2)} do
    local used = false
    for _, run in ipairs(runs) do used = used or run.series[name] ~= nil end
    if used then names[#names + 1] = name end
  end
  lines[1] = table.concat({"run", "step", "seconds", unpack(names)}, ",")
  for _, run in ipairs(runs) do
    for _, row in ipairs(rows_of(run, names)) do
      local fields = {field(run.name), field(row.step), field(row.seconds)}
      for i, name in ipairs(names) do fields[i + 3] = field(row[name]) end
      lines[#lines + 1] = table.concat(fields, ",")
    end
  end
  return table.concat(lines, "\n") .. "\n"
end

return M
