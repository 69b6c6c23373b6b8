-- Masked language modelling (Devlin et al. 2018, section 3.1): some tokens of a window are hidden,
-- and the model predicts them. What is hidden depends only on the seed and the window's number, so
-- a resumed run hides the same.
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local random = require("nn.data.random").random

local M = {}
local IGNORED = -100             -- the target of tokens that are not predicted
local STREAM = 2 ^ 40            -- separates these random numbers from those that draw windows

-- The id of the first of these special tokens that the vocabulary has, or nil.
local function find(words, ...)
  for _, text in ipairs {...} do
    if words.special and words.special[text] then return words.special[text] end
  end
end

--- mask_of(words) -> the id of the mask token; words.size if the vocabulary has none.
function M.mask_of(words) return find(words, "[MASK]", "<mask>") or words.size end

-- hide(ids, targets, number): masks window `number` of `context` tokens at `ids`, and sets their
-- targets at `targets`; both are arrays from 0.
-- below: the ids that a random token may have.
local function masker(words, context, share, seed, below)
  local mask = M.mask_of(words)
  local first, last = find(words, "[CLS]", "<s>"), find(words, "[SEP]", "</s>")
  local special, places = {}, {}
  for _, id in pairs(words.special or {}) do special[id] = true end
  return function(ids, targets, number)
    local drawn = number * 4 * context
    local function draw()
      drawn = drawn + 1
      return random(seed + STREAM, drawn)
    end
    if first then ids[0] = first end
    if last then ids[context - 1] = last end
    local count = 0
    for t = 0, context - 1 do
      targets[t] = IGNORED
      if not special[ids[t]] then count, places[count + 1] = count + 1, t end
    end
    for i = 1, math.min(count, math.max(1, math.floor(share * context + 0.5))) do
      local k = i + math.floor(draw() * (count - i + 1))         -- one of those that are left
      local t, kind = places[k], draw()
      places[k] = places[i]
      targets[t] = ids[t]
      if kind < 0.8 then ids[t] = mask
      elseif kind < 0.9 then ids[t] = math.floor(draw() * below) end
    end
  end, math.max(mask, first or 0, last or 0)
end

local known = arguments.names "share"

--- nn.mask_tokens(data, {share=0.15}) -> the vocabulary size that the model needs. Lets the loaders
--- of `data` (a result of nn.data) give batches for masked language modelling: this share of the
--- tokens of each window is predicted, of which 80 % are replaced by the mask token, 10 % by a
--- random token, 10 % by themselves; the targets of all others are -100. Windows begin with the
--- vocabulary's [CLS] or <s> and end with its [SEP] or </s>, if it has them; special tokens are not
--- predicted. The mask token is [MASK] or <mask>; a vocabulary without it gets one more id. Errors:
--- data without a vocabulary.
---     local d = nn.data({text = "input.txt", batch = 4}, {context = 20})
---     nn.mask_tokens(d)  --> 31
---     local ids, targets = d.train:batch()
---     targets:ne(-100):sum()  --> 12
function M.mask_tokens(data, options)
  arguments.need(type(data) == "table" and type(data.train) == "table", "mask_tokens", "the data",
                 data, "a result of nn.data is needed")
  local share = arguments.options("mask_tokens", options, known).share or 0.15
  arguments.need(type(share) == "number" and share > 0 and share <= 1, "mask_tokens", "share",
                 share, "a number above 0, up to 1, is needed")
  local words = data.vocabulary
  if not words then
    lib.deny("%s has no tokenizer; give data.vocabulary=FOLDER, so that the mask token is known",
             data.name)
  end
  local needed = data.vocab
  for _, loader in ipairs {data.train, data.val} do
    local hide, largest = masker(words, loader.context, share, loader.seed,
                                 math.min(words.size, data.vocab))
    loader.hide, needed = hide, math.max(needed, largest + 1)
  end
  return needed
end

return M
