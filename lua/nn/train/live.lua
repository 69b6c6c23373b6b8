-- The curves of a run in progress: its loss and its validations, as a plot of few lines.
local curves = require "nn.plot.curves"
local files = require "nn.io.files"
local metrics = require "nn.train.metrics"
local terminal = require "nn.base.terminal"

local M = {}
local Live = {}
Live.__index = Live

local MOST_POINTS = 2000           -- of a series; beyond, every second one is dropped
local HIGHEST, AROUND = 10, 9      -- rows of the plot; other rows of the screen
local LOWEST = 3

--- new(folder) -> the curves of the run in this folder, with those of the steps before a resume.
function M.new(folder)
  local self = setmetatable({points = {}}, Live)
  local has_run = files.exists(files.join(folder, "metrics.jsonl"))
  local before = has_run and metrics.read(folder).series or {}
  for _, name in ipairs {"loss", "val_loss"} do
    for i, step in ipairs(before[name] and before[name].step or {}) do
      self:add(name, step, before[name].value[i])
    end
  end
  return self
end

local function thin(list)
  local out = {}
  for i = 2, #list, 2 do out[i / 2] = list[i] end
  return out
end

--- live:add(name, step, value): a point of "loss" or "val_loss".
function Live:add(name, step, value)
  local points = self.points[name] or {x = {}, y = {}}
  self.points[name] = points
  if step == points.x[#points.x] then return end
  table.insert(points.x, step)
  table.insert(points.y, value)
  if #points.x > MOST_POINTS then points.x, points.y = thin(points.x), thin(points.y) end
end

--- live:lines() -> the plot; none if there is one point only, or no room.
function Live:lines()
  local loss, val = self.points.loss, self.points.val_loss
  local _, rows = terminal.size()
  local height = math.min(HIGHEST, rows - AROUND)
  if not loss or #loss.x < 2 or height < LOWEST then return {} end
  return curves.plot {loss = {loss.x, loss.y}, val_loss = val and {val.x, val.y}, height = height}
    :lines()
end

return M
