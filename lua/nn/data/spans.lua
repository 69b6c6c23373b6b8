-- Span corruption (Raffel et al. 2020, section 3.1.4): spans of a window are replaced by one
-- sentinel each, and the model writes them. What is hidden depends only on the seed and the number
-- of the window, so a resumed run hides the same. Lengths and spans are those of T5's
-- random_spans_helper and random_spans_noise_mask.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local random = require("nn.data.random").random

local M = {}
local STREAM = 2 ^ 41            -- separates these random numbers from others

local function round(x) return math.floor(x + 0.5) end

-- How many of `length` tokens are hidden, and in how many spans.
local function noise_of(length, share, mean)
  local hidden = math.min(math.max(round(length * share), 1), length - 1)
  return hidden, math.min(math.max(round(hidden / mean), 1), hidden, length - hidden)
end

-- The lengths of the text and the answer, with their ends, for windows of `length` tokens.
local function lengths_of(length, share, mean)
  local hidden, spans = noise_of(length, share, mean)
  return length - hidden + spans + 1, hidden + spans + 1
end

--- span_lengths(context, share, mean) -> the length of windows whose text has `context` tokens
--- after corruption, or fewer, and the lengths of text and answer.
function M.span_lengths(context, share, mean)
  local length = 2
  while lengths_of(length + 1, share, mean) <= context do length = length + 1 end
  return length, lengths_of(length, share, mean)
end

-- Divides `items` into `parts` of at least one, at random; draw() -> a number in [0,1).
local function divide(items, parts, draw)
  local sizes, needed = {}, parts - 1
  local size = 1
  for i = 1, items - 1 do                    -- all choices of ends are equally likely
    if draw() * (items - i) < needed then
      sizes[#sizes + 1], size, needed = size, 1, needed - 1
    else
      size = size + 1
    end
  end
  sizes[#sizes + 1] = size
  return sizes
end

-- corrupt(tokens, ids, targets, number): the text and the answer of window `number`; all are arrays
-- from 0. sentinel(k): the id of sentinel k, from 0.
local function corrupter(length, share, mean, seed, sentinel, last)
  local hidden, spans = noise_of(length, share, mean)
  return function(tokens, ids, targets, number)
    local drawn = number * length
    local function draw()
      drawn = drawn + 1
      return random(seed + STREAM, drawn)
    end
    local noise, text = divide(hidden, spans, draw), divide(length - hidden, spans, draw)
    local at, read, written = 0, 0, 0
    for k = 1, spans do
      ffi.copy(ids + read, tokens + at, 4 * text[k])
      at, read = at + text[k], read + text[k]
      ids[read], targets[written] = sentinel(k - 1), sentinel(k - 1)
      ffi.copy(targets + written + 1, tokens + at, 4 * noise[k])
      at, read, written = at + noise[k], read + 1, written + 1 + noise[k]
    end
    ids[read], targets[written] = last, last
  end
end

-- The function from the number of a sentinel to its id, the id of the end, and the vocabulary size
-- that they need.
local function sentinels_of(words, spans, name)
  local special = words.special or {}
  local last, size = words.eos or special["</s>"], words.size
  if not last then last, size = size, size + 1 end
  if not special["<extra_id_0>"] then
    return function(k) return size + k end, last, size + spans
  end
  if not special[("<extra_id_%d>"):format(spans - 1)] then
    lib.deny("%s: windows have %d spans, but the tokenizer has no <extra_id_%d>; set a smaller "
             .. "data.context", name, spans, spans - 1)
  end
  local function sentinel(k) return special[("<extra_id_%d>"):format(k)] end
  local largest = last
  for k = 0, spans - 1 do largest = math.max(largest, sentinel(k)) end
  return sentinel, last, largest + 1
end

local known = arguments.names "share span"

local function number_above(name, value, low, high)
  arguments.need(type(value) == "number" and value > low and value < high, "corrupt_spans", name,
                 value, ("a number above %g, below %g, is needed"):format(low, high))
end

--- nn.corrupt_spans(data, {share=0.15, span=3}) -> the vocabulary size that the model needs, and
--- the id that ends texts and answers. Lets the loaders of `data` (a result of nn.data) give
--- batches for span corruption: this share of the tokens of each window is hidden, in spans of
--- `span` tokens on average; ids (rows,T) are the rest, with a sentinel in place of each span,
--- targets (rows,S) the sentinels, each with its span. Both end with </s>. A window has as many
--- tokens as give T of at most the context. The sentinels are <extra_id_0>, ...; a vocabulary
--- without these or without </s> gets ids for them. Errors: data without a vocabulary; fewer tokens
--- than a window.
---     local d = nn.data({text = "input.txt", batch = 4}, {context = 20})
---     nn.corrupt_spans(d)  --> 32, 30
---     local ids, targets = d.train:batch()
---     ids:dim(2), targets:dim(2)  --> 20, 5
function M.corrupt_spans(data, options)
  arguments.need(type(data) == "table" and type(data.train) == "table", "corrupt_spans", "the data",
                 data, "a result of nn.data is needed")
  options = arguments.options("corrupt_spans", options, known)
  local share, mean = options.share or 0.15, options.span or 3
  number_above("share", share, 0, 1)
  number_above("span", mean, 0, math.huge)
  local words = data.vocabulary
  if not words then
    lib.deny("%s has no tokenizer; give data.vocabulary=FOLDER, so that the sentinels are known",
             data.name)
  end
  arguments.need(data.train.context >= 4, "corrupt_spans", "the context", data.train.context,
                 "at least 4 is needed")
  local length, context, answer = M.span_lengths(data.train.context, share, mean)
  local _, spans = noise_of(length, share, mean)
  local sentinel, last, vocab = sentinels_of(words, spans, data.name)
  for _, loader in ipairs {data.train, data.val} do
    if loader.count < length + 1 then
      lib.deny("%s: %.0f tokens are too few for windows of %d tokens; give more data or a smaller "
               .. "data.context", loader.name, loader.count, length)
    end
    loader.context, loader.answer, loader.length = context, answer, length
    loader.corrupt = corrupter(length, share, mean, loader.seed, sentinel, last)
  end
  return math.max(data.vocab, vocab), last
end

return M
