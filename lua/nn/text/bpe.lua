-- Tokenizers of GPT-2's kind, byte-level BPE (Sennrich et al. 2016; Radford et al. 2019): text is
-- split into pieces, and in every piece the pair of adjacent tokens with the lowest rank is merged
-- until no known pair is left. bpe_files.lua reads and writes their files, bpe_train.lua trains.
local decoders = require "nn.text.decoders"
local encoder = require "nn.text.encoder"
local lib = require "nn.base.capi"
local native = require "nn.text.native"

local M = {}
local SPECIAL, BYTES = 1, 4                -- flags of added tokens, of a model

--- new(symbols, merges, special, name) -> tokenizer. symbols[id + 1]: the bytes of a token; merges:
--- {left id, right id, merged id, left id, ...} in the order of training; special: ids by text;
--- name: the file, for errors. Errors: a byte that is not a symbol.
function M.new(symbols, merges, special, name)
  name = name or "the tokenizer"
  local known = {}
  for _, symbol in ipairs(symbols) do known[symbol] = not special[symbol] end
  for byte = 0, 255 do
    if not known[string.char(byte)] then
      lib.deny("%s: the vocabulary has no token for byte %d", name, byte)
    end
  end
  local ref = native.new({kind = "bpe", symbols = symbols, merges = merges, flags = BYTES}, name)
  native.gpt2_step(ref, name)
  for text, id in pairs(special) do native.added(ref, text, id, SPECIAL, name) end
  return encoder.new {kind = "bpe", of_bytes = true, symbols = symbols, merges = merges,
                      special = special, ref = ref, trained = true,
                      decoder = decoders.new({{type = "ByteLevel"}}, name),
                      template = {single = {{text = "A", type = 0}},
                                  pair = {{text = "A", type = 0}, {text = "B", type = 1}}}}
end

return M
