-- What the classes of language models that read from left to right share. Their loss, generation
-- with caches, FLOPs and requirements follow from the parts of a model:
--
--   model:embed(ids, start)         -> x (B,T,C); start: as in model:next, nil in training
--   model.blocks[i](x, delta, memory) -> x, delta: the residual stream and what to add to it;
--                                   memory: for nn.attend, nil in training
--   model.norm(x, delta)            -> x, h: the last norm
--   model.tok, model.head           the token embedding, and the head (nil: tied to tok)
--   config                          layers, heads, embd, context, vocab; kv_heads and head_dim if
--                                   they differ from heads and embd / heads
--   Model.window(config, i)         optional: how many tokens block i (from 1) sees; 0: all
-- Shapes: B sequences, T tokens each, C = embd, V = vocab.
local arguments = require "nn.base.arguments"
local base = require "nn.models.class"
local creation = require "nn.core.creation"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor
local need, need_whole, who = base.need, base.need_whole, base.who

local M = {}
local Decoder = {kind = "decoder"}      -- the methods of all classes

local function kv_heads(c) return c.kv_heads or c.heads end
local function head_dim(c) return c.head_dim or c.embd / c.heads end

local attend_options = arguments.names "heads kv_heads causal window scale dropout mask"

--- nn.attend(qkv, memory, {heads, kv_heads, causal=true, window=0, scale, dropout=0, mask}) -> o:
--- nn.attention, with dropout in training only; in model:next, with `memory`, also of the tokens in
--- the cache. Error: a memory without causal, or with a mask.
---     nn.attend(nn.randn(2, 5, 12), nil, {heads = 2}):dims()  --> 2, 5, 4
function M.attend(qkv, memory, o)
  o = arguments.options("attend", o, attend_options)
  arguments.need(memory == nil or type(memory) == "table", "attend", "the memory", memory,
                 "that of a block in model:next, or nil, is needed")
  arguments.need(not memory or o.causal ~= false and not o.mask, "attend", "the memory", memory,
                 "nil is needed with causal = false or a mask")
  if memory and not memory.first then
    local _, out = ops.call("attention_cached_", memory.cache, qkv, memory.start,
                            {heads = o.heads, window = o.window, scale = o.scale})
    return out
  end
  if memory then ops.call("cache_write_", memory.cache, qkv, memory.start, {heads = o.heads}) end
  return (ops.call("attention", qkv, {
    heads = o.heads, kv_heads = o.kv_heads, causal = o.causal, window = o.window,
    scale = o.scale, mask = o.mask,
    dropout = layers.training() and o.dropout or 0,
  }))
end

--- model:hidden(ids) -> (B,T,C), the output of the last norm, for ids (B,T).
---     model:hidden(data.train:batch()):dims()  --> 2, 16, 16
function Decoder:hidden(ids)
  need(self, ids, 2, "the ids are", "(batch, tokens)")
  base.need_context(self, ids:dim(2))
  local x, delta = self:embed(ids), nil
  for _, block in ipairs(self.blocks) do x, delta = block(x, delta) end
  local _, h = self.norm(x, delta)
  return h
end

-- The matrix (V,C) that turns hidden states into logits.
local function head_of(self) return (self.head or self.tok).weight end

local loss_options = arguments.names "scale ignore_index"

--- model(ids) -> logits (B,T,V).
--- model(ids, targets, {scale=1, ignore_index=-100}) -> scale * mean cross-entropy; all logits are
--- never in memory at once. Errors: more tokens than the context; ids outside the vocabulary.
---     local ids, targets = data.train:batch()
---     model(ids):dims()  --> 2, 16, 256
---     model(ids, targets):item()  --> 5.6
function Decoder:forward(ids, targets, options)
  local h = self:hidden(ids)
  if not targets then return (ops.call("linear", h, head_of(self))) end
  options = arguments.options(who(self), options, loss_options)
  return (ops.call("linear_cross_entropy", h, head_of(self), targets, {
    scale = options.scale, ignore_index = options.ignore_index, gradient = tape.grad_enabled(),
  }))
end

--- model:caches(batch, tokens) -> the caches for model:next: for each block a tensor of keys and
--- values, (batch, 2 kv_heads, tokens, head_dim), for sequences of up to `tokens` tokens (default:
--- the context).
---     model:caches(3)[1]:dims()  --> 3, 4, 16, 8
function Decoder:caches(batch, tokens)
  local c = self.config
  tokens = tokens == nil and c.context or tokens
  need_whole(who(self), "batch", batch)
  need_whole(who(self), "tokens", tokens)
  if tokens > c.context then
    lib.fail("%s: caches of %.0f tokens are longer than the model's context of %.0f", who(self),
             tokens, c.context)
  end
  return module.list(c.layers, function()
    return creation.zeros({batch, 2 * kv_heads(c), tokens, head_dim(c)}, {dtype = c.dtype})
  end)
end

local function check_next(self, ids, caches, start, last)
  need(self, ids, 2, "the ids are", "(batch, tokens)")
  need(self, start, 1, "start is", "(batch)")
  if last ~= nil then need(self, last, 1, "last is", "(batch)") end
  local batch, count = ids:dim(1), self.config.layers
  if start:dim(1) ~= batch or last and last:dim(1) ~= batch then
    lib.fail("%s: ids has %d sequences, but start or last has another length", who(self), batch)
  end
  if not last and ids:dim(2) ~= 1 then
    lib.fail("%s: %d tokens per sequence need last, the row in which each prompt ends", who(self),
             ids:dim(2))
  end
  local first = type(caches) == "table" and not is_tensor(caches) and caches[1]
  if not is_tensor(first) or #caches ~= count or first:dim(1) ~= batch then
    lib.fail("%s: the caches must be those of model:caches(%d), a list of %d tensors", who(self),
             batch, count)
  end
end

--- model:next(ids, caches, start, last) -> logits (B,V) of the token after ids. ids (B,T) i32: the
--- next tokens of each sequence; start (B) i32: the number of its tokens in the caches. T > 1 is
--- for prompts, which need start = 0 and last (B) i32: the row, of B x T, in which each prompt
--- ends.
---     local caches, i32 = model:caches(1), {dtype = "i32"}
---     local start, last = nn.tensor({0}, i32), nn.tensor({2}, i32)
---     local ids = nn.tensor({{7, 8, 9}}, i32)
---     nn.no_grad(model.next, model, ids, caches, start, last):dims()  --> 1, 256
function Decoder:next(ids, caches, start, last)
  check_next(self, ids, caches, start, last)
  local batch, time = ids:dim(1), ids:dim(2)
  local x, delta = self:embed(ids, start), nil
  for i, block in ipairs(self.blocks) do
    x, delta = block(x, delta, {cache = caches[i], start = start, first = last ~= nil})
  end
  local _, h = self.norm(x, delta)
  h = h:reshape(batch * time, self.config.embd)
  if last then h = (ops.call("embedding", last, h)) end
  return (ops.call("linear", h, head_of(self)))
end

--- model:flops_per_token(T) -> FLOPs per token, forward and backward: 6 N + 12 layers heads
--- head_dim T; N: the number of elements of the matrices (a tied head once). In blocks with a
--- window, T is at most the window.
---     GPT2(GPT2.size "gpt2"):flops_per_token(1024)  --> 854438400
function Decoder:flops_per_token(time)
  local c = self.config
  if type(time) ~= "number" then
    lib.fail("%s: flops_per_token: the number of tokens is %s; a number is needed", who(self),
             tostring(time))
  end
  local seen = 0
  for i = 1, c.layers do
    local window = self.window and self.window(c, i) or 0
    seen = seen + (window > 0 and math.min(window, time) or time)
  end
  return 6 * base.sizes(getmetatable(self), c).matrices + 12 * c.heads * head_dim(c) * seen
end

--- nn.decoder(name, fields) -> a class of language models, for models/NAME.lua. It has forward,
--- caches, next and all else that training and generation use, except init and embed, see
--- lua/nn/models/decoder.lua. fields() -> the settings as a table of nn.field; `needed` ones have
--- no default.
---     local fields = function() return {layers = nn.field(1, "blocks", {needed = true})} end
---     nn.decoder("Tiny", fields).class_name  --> "Tiny"
function M.decoder(name, fields)
  arguments.need(type(name) == "string", "decoder", "the name", name, "a text is needed")
  arguments.callable("decoder", fields)
  local class = base.class(name, fields, {"layers", "heads", "embd", "context", "vocab"})
  for key, method in pairs(Decoder) do class[key] = method end
  return class
end

return M
