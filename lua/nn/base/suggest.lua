-- "did you mean ...?" for unknown names.

local pytorch = require "nn.base.pytorch"
local tables = require "nn.base.tables"

local M = {}

-- Edit distance (insertions, deletions, replacements, swaps of neighbours).
local function distance(a, b)
  local rows = {}
  for i = 0, #a do rows[i] = {[0] = i} end
  for j = 0, #b do rows[0][j] = j end
  for i = 1, #a do
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      local replaced = rows[i - 1][j - 1] + (same and 0 or 1)
      local best = math.min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, replaced)
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        best = math.min(best, rows[i - 2][j - 2] + 1)
      end
      rows[i][j] = best
    end
  end
  return rows[#a][#b]
end

--- The key of `names` (a table with string keys) nearest to `name`; nil if none is near, or if
--- `name` is a single letter. Near is a difference of one letter in every four, and of no first
--- letter in names of up to four, which are often other words (any, var).
function M.nearest(name, names)
  local best, best_distance
  for candidate in pairs(names) do
    if type(candidate) == "string" and candidate:sub(1, 2) ~= "__" then
      local d = distance(name, candidate)
      if not best or d < best_distance or (d == best_distance and candidate < best) then
        best, best_distance = candidate, d
      end
    end
  end
  if not best or #name < 2 or best_distance > math.max(1, math.floor(#name / 4)) then return end
  local swapped = name:sub(1, 2):reverse() == best:sub(1, 2)
  if #name > 4 or name:sub(1, 1) == best:sub(1, 1) or swapped then return best end
end

--- "; did you mean 'x'?" or "".
function M.suggestion(name, names)
  local near = type(name) == "string" and M.nearest(name, names)
  return near and ("; did you mean '" .. near .. "'?") or ""
end

--- The same for a short list of names, of which PyTorch has others: "; use axis". Without a near
--- name, lists all: "; choose one of a, b".
function M.choices(name, names)
  local known = pytorch.option[name]
  if known and names[known:match "^%w+"] then return "; use " .. known end
  local hint, list = M.suggestion(name, names), tables.sorted_keys(names)
  if hint ~= "" then return hint end
  return #list == 0 and "; it has none" or "; choose one of " .. table.concat(list, ", ")
end

return M
