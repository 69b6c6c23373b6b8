-- Whether a file without a header can consist of 16-bit token ids. Nothing in it says so, hence its
-- numbers must look like it, or the user states their dtype.
local ffi = require "ffi"
local lib = require "nn.base.capi"

local M = {}
local WHOLE, BLOCKS, BLOCK = 2 ^ 19, 128, 4096     -- words: all up to WHOLE, else BLOCKS of BLOCK
local LEAST = 1024                                 -- words below which shares say nothing
local FREQUENT = 2313                              -- ids of frequent tokens are below it

-- Counts of a sample of 16-bit words. In wider numbers the words at odd positions are upper halves:
-- small, or 65535 if negative. `large` counts words of 16 and more; low, high: the bytes of words
-- other than 0.
ffi.cdef [[
  typedef struct {
    double words, some[4], large[4], small, swapped, nonzero, low_zero, low[256], high[256];
    double even[16], odd[16];
  } nn_word_counts;
]]

local function count_words(c, p, first, last)
  for i = first, last do
    local word, at = p[i], i % 4
    local low = word % 256
    local high = (word - low) / 256
    c.words = c.words + 1
    local nibble, halves = (high - high % 16) / 16, i % 2 == 0 and c.even or c.odd
    halves[nibble] = halves[nibble] + 1
    if word ~= 0 then
      c.low[low], c.high[high] = c.low[low] + 1, c.high[high] + 1
      if word < FREQUENT then c.small = c.small + 1 end
      if 256 * low + high < FREQUENT then c.swapped = c.swapped + 1 end
      c.nonzero = c.nonzero + 1
      if low == 0 then c.low_zero = c.low_zero + 1 end
      if word ~= 65535 then c.some[at] = c.some[at] + 1 end
      if word >= 16 and word ~= 65535 then c.large[at] = c.large[at] + 1 end
    end
  end
end

local function sample(data, size)
  local c, p = ffi.new "nn_word_counts", ffi.cast("const uint16_t *", data)
  local count = math.floor(size / 8) * 4            -- whole numbers of 64 bits
  if count <= WHOLE then
    count_words(c, p, 0, count - 1)
  else
    for block = 0, BLOCKS - 1 do
      local at = math.floor((count - BLOCK) / (BLOCKS - 1) * block / 4) * 4
      count_words(c, p, at, at + BLOCK - 1)
    end
  end
  return c
end

-- Whether `upper` halves are nearly never there and the `lower` ones are. With 16-bit ids, where
-- both are alike, this has a probability below 2^-3 in the shortest file, of 24 bytes; an id of 0
-- is rare, so it is far less with those of a tokenizer.
local function is_half(lower, upper) return lower >= 3 and upper * 64 <= lower end

-- The bits of the numbers if they are wider than 16.
local function width(c)
  local some, large = c.some, c.large
  if is_half(some[0] + some[1], some[2] + some[3]) and (is_half(some[0], some[1])
     or is_half(large[0], large[1])) then
    return 64
  end
  return (is_half(some[0] + some[2], some[1] + some[3])
          or is_half(large[0] + large[2], large[1] + large[3])) and 32
end

-- Whether the upper and the lower bytes of the words have the same distribution, of 3 values or
-- more: the file consists of bytes, or is compressed. Chance makes them differ by at most
-- sqrt(4 values / (pi words)) on average. Ids of texts differ by 1.4 of 2 and more, random ones
-- below 50257, which have nearly all values, by 0.47.
local function is_bytes(c)
  local apart, values = 0, 0
  for byte = 0, 255 do
    apart = apart + math.abs(c.low[byte] - c.high[byte])
    if c.low[byte] > 0 then values = values + 1 end
  end
  local chance = math.sqrt(4 * values / math.pi / c.nonzero)
  local limit = math.min(values > 128 and 0.4 or 1, 0.2 + chance)
  return values >= 3 and c.nonzero >= 32 and apart < limit * c.nonzero
end

-- Whether the frequent ids are small with the bytes of each word exchanged.
local function is_big_endian(c)
  return c.nonzero >= 32 and c.low_zero == c.nonzero
    or c.nonzero >= LEAST and c.swapped > 0.1 * c.nonzero and c.swapped > 2 * c.small
end

-- Whether the words at even and odd positions have different distributions, as the halves of floats
-- and of big-endian 32-bit numbers have. Their distance is from 0 to c.words. By chance, 512 words
-- each of one distribution are about 0.1 * c.words apart.
local function is_in_parts(c)
  local apart = 0
  for nibble = 0, 15 do apart = apart + math.abs(c.even[nibble] - c.odd[nibble]) end
  return c.words >= LEAST and apart > 0.3 * c.words
end

--- need(data, size, name, setting): raises an error unless the bytes can be 16-bit token ids; it
--- says what they look like, and that `setting` can state their dtype. name: of the file.
function M.need(data, size, name, setting)
  local c = sample(data, size)
  local bits = width(c)
  local function deny(what, advice)
    lib.deny("%s has no header, and %s; %s", name, what, advice)
  end
  local function stated(dtype) return ("%s=%s"):format(setting, dtype) end
  if bits then
    deny(("its numbers look like ids of %d bits, not of 16"):format(bits),
         ("if they are, give %s; if not, %s"):format(stated("uint" .. bits), stated "uint16"))
  elseif is_in_parts(c) then
    deny("its numbers look wider than 16 bits, such as floats or big-endian numbers",
         ("convert them, from '>u4' or '<f4': np.fromfile(FILE, '>u4').astype('<u4').tofile(NEW), "
          .. "and give %s; if they are 16-bit ids, %s"):format(stated "uint32", stated "uint16"))
  elseif is_big_endian(c) then
    deny("its numbers look like 16-bit ids in big-endian order", "convert it: np.fromfile(FILE, "
         .. "'>u2').astype('<u2').tofile(NEW); if they are not, give " .. stated "uint16")
  elseif is_bytes(c) then
    deny("its bytes look like 8-bit or compressed data, not like 16-bit token ids",
         ("if they are token ids, give %s or %s"):format(stated "uint8", stated "uint16"))
  elseif c.nonzero >= LEAST and c.small < 0.01 * c.nonzero then
    deny(("fewer than 1%% of its 16-bit numbers are below %d, as ids of frequent tokens are")
         :format(FREQUENT), ("if they are token ids, give %s"):format(stated "uint16"))
  end
end

return M
