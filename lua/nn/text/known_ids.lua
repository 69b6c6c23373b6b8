-- Ids of a tokenizer that a model lacks. A tokenizer may have more tokens than the model has rows,
-- such as a padding token that was added later: only ids that occur count.
local lib = require "nn.base.capi"

local M = {}

--- refuse(name, id, vocab, words, place) raises the error for the id of a token without a row in
--- the model. name: of the text; vocab: the rows of the model; words: the tokenizer; place: where
--- the token is, or nil.
function M.refuse(name, id, vocab, words, place)
  local text = words.symbols and words.symbols[id + 1]
  text = text and (" ('%s')"):format(text) or ""
  lib.deny("%s: token %d%s%s has no row in the model, which has %d; the tokenizer (%s) is that of "
           .. "another model, or has tokens that this one lacks: leave the token out of the text, "
           .. "or give the model's own tokenizer", name, id, text, place or "", vocab,
           tostring(words))
end

--- check(name, ids, vocab, words) -> ids, a list. Errors: one that is not below `vocab`.
function M.check(name, ids, vocab, words)
  for _, id in ipairs(ids) do
    if id >= vocab then M.refuse(name, id, vocab, words) end
  end
  return ids
end

return M
