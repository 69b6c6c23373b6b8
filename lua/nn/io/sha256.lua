-- SHA-256 (FIPS 180-4) of a short text, such as the file of a model, as sha256sum prints it.
local bit = require "bit"

local band, bnot, bxor, ror, rshift = bit.band, bit.bnot, bit.bxor, bit.ror, bit.rshift

-- The first 32 bits of the fractions of square and cube roots of the first primes.
local start, round_constants = {}, {}
do
  local function bits(root) return bit.tobit(math.floor(root % 1 * 2 ^ 32)) end
  local primes, candidate = {}, 2
  while #primes < 64 do
    local is_prime = true
    for _, prime in ipairs(primes) do is_prime = is_prime and candidate % prime ~= 0 end
    if is_prime then primes[#primes + 1] = candidate end
    candidate = candidate + 1
  end
  for i, prime in ipairs(primes) do round_constants[i] = bits(prime ^ (1 / 3)) end
  for i = 1, 8 do start[i] = bits(primes[i] ^ 0.5) end
end

-- The 64 words of a block's schedule, of the 64 bytes of `text` from `at` on.
local function schedule(text, at)
  local w = {}
  for i = 1, 16 do
    local a, b, c, d = text:byte(at + 4 * i - 4, at + 4 * i - 1)
    w[i] = bit.bor(bit.lshift(a, 24), bit.lshift(b, 16), bit.lshift(c, 8), d)
  end
  for i = 17, 64 do
    local x, y = w[i - 15], w[i - 2]
    w[i] = bit.tobit(w[i - 16] + bxor(ror(x, 7), ror(x, 18), rshift(x, 3)) + w[i - 7]
                     + bxor(ror(y, 17), ror(y, 19), rshift(y, 10)))
  end
  return w
end

local function add_block(hash, w)
  local a, b, c, d, e, f, g, h = unpack(hash)
  for i = 1, 64 do
    local choice = bxor(band(e, f), band(bnot(e), g))
    local majority = bxor(band(a, b), band(a, c), band(b, c))
    local first = h + bxor(ror(e, 6), ror(e, 11), ror(e, 25)) + choice + round_constants[i] + w[i]
    local second = bxor(ror(a, 2), ror(a, 13), ror(a, 22)) + majority
    a, b, c, d, e, f, g, h = bit.tobit(first + second), a, b, c, bit.tobit(d + first), e, f, g
  end
  for i, word in ipairs {a, b, c, d, e, f, g, h} do hash[i] = bit.tobit(hash[i] + word) end
end

--- (text) -> 64 hexadecimal digits.
return function(text)
  local length = 8 * #text
  local padded = text .. "\128" .. ("\0"):rep((55 - #text) % 64)
  for shift = 7, 0, -1 do
    padded = padded .. string.char(math.floor(length / 256 ^ shift) % 256)
  end
  local hash, words = {unpack(start)}, {}
  for at = 1, #padded, 64 do add_block(hash, schedule(padded, at)) end
  for i, word in ipairs(hash) do words[i] = bit.tohex(word) end
  return table.concat(words)
end
