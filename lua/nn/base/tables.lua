-- Helpers for tables.
local M = {}

--- sorted_keys(t) -> the keys of a table: numbers by value, other keys by their text.
function M.sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b)
    if type(a) == "number" and type(b) == "number" then return a < b end
    return tostring(a) < tostring(b)
  end)
  return keys
end

return M
