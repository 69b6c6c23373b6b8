-- Generation with caches, which decoder.lua and encoder_decoder.lua share: attention that reads and
-- writes a cache, the caches of a model, the logits after the newest token, and the loss.
-- Shapes: B sequences, T tokens each, C = embd, V = vocab.
local arguments = require "nn.base.arguments"
local base = require "nn.models.class"
local creation = require "nn.core.creation"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local is_tensor = require("nn.core.tensor").is_tensor
local need, who = base.need, base.who

local M = {}

local attend_options = arguments.names [[heads kv_heads causal window scale dropout mask bias
                                         max_distance]]

--- nn.attend(qkv, past, {heads, kv_heads, causal=true, window=0, scale, dropout=0, mask, bias,
--- max_distance=128}) -> o: nn.attention, with dropout in training only; in model:next, with
--- `past`, also of the tokens in the cache. Error: a past without causal, or with a mask.
---     nn.attend(nn.randn(2, 5, 12), nil, {heads = 2}):dims()  --> 2, 5, 4
function M.attend(qkv, past, o)
  o = arguments.options("attend", o, attend_options)
  arguments.need(past == nil or type(past) == "table", "attend", "the past", past,
                 "that of a block in model:next, or nil, is needed")
  arguments.need(not past or o.causal ~= false and not o.mask, "attend", "the past", past,
                 "nil is needed with causal = false or a mask")
  if past and not past.first then
    local _, out = ops.call("attention_cached_", past.cache, qkv, past.start, {
      heads = o.heads, window = o.window, scale = o.scale, bias = o.bias,
      max_distance = o.max_distance,
    })
    return out
  end
  if past then ops.call("cache_write_", past.cache, qkv, past.start, {heads = o.heads}) end
  return (ops.call("attention", qkv, {
    heads = o.heads, kv_heads = o.kv_heads, causal = o.causal, window = o.window,
    scale = o.scale, mask = o.mask, bias = o.bias, max_distance = o.max_distance,
    prompt = past ~= nil, dropout = layers.training() and o.dropout or 0,
  }))
end

--- caches(model, batch, tokens, count) -> a list of `count` tensors of keys and values, (batch, 2
--- kv_heads, tokens, head_dim).
function M.caches(self, batch, tokens, count)
  local c = self.config
  base.need_whole(who(self), "batch", batch)
  return module.list(count, function()
    return creation.zeros({batch, 2 * (c.kv_heads or c.heads), tokens,
                           c.head_dim or c.embd / c.heads}, {dtype = c.dtype})
  end)
end

--- check_next(model, ids, caches, start, last, count): raises an error unless these are arguments
--- of model:next, with `count` caches.
function M.check_next(self, ids, caches, start, last, count)
  need(self, ids, 2, "the ids are", "(batch, tokens)")
  need(self, start, 1, "start is", "(batch)")
  if last ~= nil then need(self, last, 1, "last is", "(batch)") end
  local batch = ids:dim(1)
  if start:dim(1) ~= batch or last and last:dim(1) ~= batch then
    lib.deny("%s: ids has %d sequences, but start or last has another length", who(self), batch)
  end
  if not last and ids:dim(2) ~= 1 then
    lib.deny("%s: %d tokens per sequence need last, the row in which each prompt ends", who(self),
             ids:dim(2))
  end
  local first = type(caches) == "table" and not is_tensor(caches) and caches[1]
  if not is_tensor(first) or #caches ~= count or first:dim(1) ~= batch then
    lib.deny("%s: the caches must be those of model:caches(%d), a list of %d tensors", who(self),
             batch, count)
  end
end

--- head(model, h) -> logits (..., V) of hidden states (..., C).
function M.head(self, h)
  if self.head then return self.head(h) end
  return (ops.call("linear", h, self.tok.weight))
end

--- loss(model, h, targets, {scale=1, ignore_index=-100}) -> scale * mean cross-entropy. All logits
--- are never in memory at once, unless the head is quantized.
function M.loss(self, h, targets, options)
  local ignored = options.ignore_index
  if self.quantized then
    local loss = ops.call("cross_entropy", M.head(self, h), targets, {ignore_index = ignored})
    return loss * (options.scale or 1)
  end
  return (ops.call("linear_cross_entropy", h, (self.head or self.tok).weight, targets, {
    scale = options.scale, ignore_index = ignored, gradient = tape.grad_enabled(),
  }))
end

--- logits(model, h, last) -> logits (B,V) of the rows `last` of h (B,T,C), or of all if it is nil.
function M.logits(self, h, last)
  local batch, time, embd = h:dims()
  h = h:reshape(batch * time, embd)
  if last then h = (ops.call("embedding", last, h)) end
  return M.head(self, h)
end

return M
