-- The logits that values_of of tests/golden/make_odd_configs.py chooses, and the norm of all.
local M = {}

--- values(logits) -> a list of numbers.
function M.values(logits)
  local flat, count = logits:numbers()
  local out, sum = {}, 0
  for i = 0, 7 do out[#out + 1] = flat[(i * 2654435761 + 12345) % count] end
  for i = math.max(0, count - 4), count - 1 do out[#out + 1] = flat[i] end
  for i = 0, count - 1 do sum = sum + flat[i] ^ 2 end
  out[#out + 1] = math.sqrt(sum)
  return out
end

--- distance(logits, expected) -> the largest difference of these values, as part of the largest.
function M.distance(logits, expected)
  local values, worst, most = M.values(logits), 0, 1e-30
  for i = 1, #values - 1 do
    worst, most = math.max(worst, math.abs(values[i] - expected[i])), math.max(most,
                                                                             math.abs(expected[i]))
  end
  local norm = math.abs(values[#values] / expected[#expected] - 1)
  local d = math.max(worst / most, norm)
  return d == d and d or math.huge
end

return M
