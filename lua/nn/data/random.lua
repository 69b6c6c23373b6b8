-- Random numbers that depend only on a seed and a counter, so that loaders store nothing else.
local bit = require "bit"
local ffi = require "ffi"

local M = {}

local function mix(z)
  z = bit.bxor(z, bit.rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
  z = bit.bxor(z, bit.rshift(z, 27)) * 0x94d049bb133111ebULL
  return bit.bxor(z, bit.rshift(z, 31))
end

--- random(seed, counter) -> a number in [0,1) that depends only on these whole numbers: SplitMix64
--- (Steele et al. 2014) as a counter-based generator.
function M.random(seed, counter)
  local z = mix(ffi.cast("uint64_t", seed) + 0x9e3779b97f4a7c15ULL)
  z = mix(z + ffi.cast("uint64_t", counter + 1) * 0x9e3779b97f4a7c15ULL)
  return tonumber(bit.rshift(z, 11)) * 2 ^ -53
end

--- order(seed, epoch, count) -> an int32_t array with the numbers 0 to count - 1 in random order:
--- another one in each epoch.
function M.order(seed, epoch, count)
  local order = ffi.new("int32_t[?]", count)
  for i = 0, count - 1 do
    local j = math.floor(M.random(seed, epoch * count + i) * (i + 1))
    order[i] = order[j]
    order[j] = i
  end
  return order
end

return M
