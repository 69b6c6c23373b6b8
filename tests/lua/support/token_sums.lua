-- Sums of the ids of texts, as make_tokenizers.py and make_sentencepiece.py in tests/golden write
-- them.
local ffi = require "ffi"
local files = require "nn.io.files"
local random_texts = require "random_texts"
local utf8 = require "nn.base.utf8"

local M = {}

--- summary(ids, count) -> {the number of ids, their CRC-32 as uint16}.
function M.summary(ids, count) return {count, files.crc32(ids, 2 * count)} end

--- text_crc(text) -> the CRC-32 of a text.
function M.text_crc(text) return files.crc32(ffi.cast("const char *", text), #text) end

--- unicode_chunks(count, chunk) -> `count` texts with all code points of a chunk between letters
--- and digits.
function M.unicode_chunks(count, chunk)
  local chunks = {}
  for i = 1, count do
    local lines = {}
    for code = (i - 1) * chunk, i * chunk - 1 do
      if code < 0xD800 or code >= 0xE000 then
        local c = utf8.encode(code)
        lines[#lines + 1] = "a" .. c .. c .. " " .. c .. "1\n"
      end
    end
    chunks[i] = table.concat(lines)
  end
  return chunks
end

--- random(count, alphabet) -> the random texts of make_tokenizers.py.
function M.random(count, alphabet)
  local below, texts = random_texts.generator(3), {}
  for i = 1, count do texts[i] = random_texts.text(below, alphabet) end
  return texts
end

--- sum_of(tokenizer, texts, first, last) -> the summary of the ids of texts together.
function M.sum_of(tokenizer, texts, first, last)
  local all, count = ffi.new "uint16_t[400000]", 0
  for i = first or 1, last or #texts do
    local ids, n = tokenizer:encode(texts[i])
    ffi.copy(all + count, ids, 2 * n)
    count = count + n
  end
  return M.summary(all, count)
end

return M
