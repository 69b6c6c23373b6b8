-- The random texts of tests/golden/make_bpe.py and make_tokenizers.py.
local utf8 = require "nn.base.utf8"

local M = {}

--- generator(seed) -> below; below(n) -> the next random integer in [0, n).
function M.generator(seed)
  local state = seed
  return function(n)
    state = (1664525 * state + 1013904223) % 2 ^ 32
    return math.floor(state * n / 2 ^ 32)
  end
end

--- text(below, alphabet) -> up to 39 characters: any of Unicode, those below U+3000, code points of
--- the alphabet, or mostly small letters.
function M.text(below, alphabet)
  local kind, characters = below(4), {}
  for i = 1, below(40) do
    local code
    if kind < 2 then
      code = below(kind == 0 and 0x110000 - 0x800 or 0x3000)
      if code >= 0xD800 then code = code + 0x800 end
    elseif kind == 3 and below(3) > 0 then
      code = 97 + below(26)
    else
      code = alphabet[below(#alphabet) + 1]
    end
    characters[i] = utf8.encode(code)
  end
  return table.concat(characters)
end

return M
