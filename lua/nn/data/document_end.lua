-- The token that ends a document in training data: a record of JSON lines or a table, or a file.
-- Without it, a model never learns to stop.
local lib = require "nn.base.capi"

local M = {}
local common = {"<|endoftext|>", "</s>", "[SEP]"}       -- of tokenizers that do not name theirs

--- of(words, wanted, setting) -> the id and the text of the token after each document; nil: none.
--- words: a tokenizer or vocabulary. wanted: "auto", the tokenizer's end of text (eos_token in its
--- tokenizer_config.json), else one of <|endoftext|>, </s> and [SEP]; the text of a special token;
--- "": none. Errors, naming `setting`: a token that the tokenizer lacks.
function M.of(words, wanted, setting)
  local special = words and words.special or {}
  if wanted == "" then return nil end
  if wanted ~= "auto" then
    local id = special[wanted] or words and words.eos and words.symbols[words.eos + 1] == wanted
      and words.eos
    if id then return id, wanted end
    lib.deny("the tokenizer has no special token '%s'; give one of its special tokens, or %s= for "
             .. "none", wanted, setting)
  end
  if words and words.eos then return words.eos, words.symbols[words.eos + 1] end
  for _, text in ipairs(common) do
    if special[text] then return special[text], text end
  end
end

--- size_without(text, size, last) -> the size of a document, or its size without the text `last` at
--- its end, which the token replaces: a document that ends with it must not end twice.
function M.size_without(text, size, last)
  local at = size - #last
  return at >= 0 and text:sub(at + 1, size) == last and at or size
end

return M
