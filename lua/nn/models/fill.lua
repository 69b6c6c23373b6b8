-- What a model that reads in both directions says of a text, for recipes/gpt2_generate.lua: the
-- likeliest tokens in place of masked ones, or the classes.
local arguments = require "nn.base.arguments"
local creation = require "nn.core.creation"
local eval_mode = require("nn.models.evaluate").eval_mode
local known_ids = require "nn.text.known_ids"
local lib = require "nn.base.capi"
local mask_of = require("nn.data.masking").mask_of
local ops = require "nn.core.op"
local sample = require "nn.models.sample"

local M = {}

-- The ids of a text. A vocabulary without a mask token has one more id for the text [MASK].
local function ids_of(words, text, mask)
  if mask < words.size then return words:ids(text, {special = true}) end
  local ids = {}
  for part, found in (text .. "[MASK]"):gmatch "(.-)(%[MASK%])" do
    local own = #part > 0 and words:ids(part, {add_special = false}) or {}
    for _, id in ipairs(own) do ids[#ids + 1] = id end
    if found then ids[#ids + 1] = mask end
  end
  ids[#ids] = nil                                      -- that of the added mask
  return ids
end

-- The `count` likeliest of these logits, {id=, probability=}, the likeliest first. independent: of
-- classes of which a text can have several.
local function likeliest(logits, count, independent)
  local probabilities = ops.call(independent and "sigmoid" or "softmax", logits)
  local values, size = probabilities:numbers()
  local out = {}
  for i, id in ipairs(sample.largest(values, size, math.min(count, size))) do
    out[i] = {id = id, probability = values[id]}
  end
  return out
end

--- nn.fill(model, words, text, {top=5}) -> for each [MASK] or <mask> in the text the `top`
--- likeliest tokens, {id=, probability=}, the likeliest first; of a model that classifies, one such
--- list of classes, from 0. words: its tokenizer or vocabulary. Errors: a model of another kind; a
--- text without a masked token; ids that the model does not have.
---     local words = nn.vocabulary("char", "hello")
---     local bert = require "models.bert" {layers = 1, heads = 2, embd = 8, vocab = words.size + 1}
---     #nn.fill(bert, words, "h[MASK]llo", {top = 2})[1]  --> 2
function M.fill(model, words, text, options)
  local class = type(model) == "table" and getmetatable(model)
  arguments.need(class and class.kind == "encoder", "fill", "the model", model,
                 "a model of nn.encoder, such as BERT, is needed")
  arguments.need(type(words) == "table" and words.ids, "fill", "the tokenizer", words,
                 "a result of nn.tokenizer or nn.vocabulary is needed")
  arguments.need(type(text) == "string", "fill", "the text", text, "a text is needed")
  options = arguments.options("fill", options, arguments.names "top")
  local top = arguments.whole("fill", "top", options.top or 5, 1)
  if model.config.labels < 0 then lib.deny "fill: the model has no head" end
  local kind = model.config.problem_type
  if kind == "regression" then lib.deny "fill: the model's problem_type is regression" end
  local mask, vocab = mask_of(words), model.config.vocab
  local ids, places = known_ids.check("fill: the text", ids_of(words, text, mask), vocab, words), {}
  if #ids == 0 then lib.deny "fill: the text is empty" end
  for i, id in ipairs(ids) do
    if id == mask then places[#places + 1] = i end
  end
  local classifies = model.config.labels > 0
  if not classifies and #places == 0 then
    lib.deny("fill: the text has no masked token; write %s for it",
             mask < words.size and words:decode {mask} or "[MASK]")
  end
  local logits = eval_mode(model, creation.tensor({ids}, {dtype = "i32"}))
  if classifies then return {likeliest(logits:reshape(logits:dim(2)), top,
                                      kind == "multi_label_classification")} end
  local out = {}
  for i, place in ipairs(places) do
    out[i] = likeliest(logits:slice(2, place, place):reshape(vocab), top)
  end
  return out
end

return M
