-- What the classes of language models that read from left to right share. Their loss, generation
-- with caches, FLOPs and requirements follow from the parts of a model:
--
--   model:embed(ids, start)         -> x (B,T,C); start: as in model:next, nil in training
--   model.blocks[i](x, delta, past) -> x, delta: the residual stream and what to add to it;
--                                   past: for nn.attend, nil in training
--   model.norm(x, delta)            -> x, h: the last norm
--   model.tok, model.head           the token embedding, and the head (nil: tied to tok)
--   config                          layers, heads, embd, context, vocab; kv_heads and head_dim if
--                                   they differ from heads and embd / heads
--   Model.window(config, i)         optional: how many tokens block i (from 1) sees; 0: all
-- Shapes: B sequences, T tokens each, C = embd, V = vocab.
local arguments = require "nn.base.arguments"
local base = require "nn.models.class"
local cached = require "nn.models.cached"
local lib = require "nn.base.capi"
local need, need_whole, who = base.need, base.need_whole, base.who

local M = {}
local Decoder = {kind = "decoder"}      -- the methods of all classes

local function head_dim(c) return c.head_dim or c.embd / c.heads end

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

local loss_options = arguments.names "scale ignore_index"

--- model(ids) -> logits (B,T,V).
--- model(ids, targets, {scale=1, ignore_index=-100}) -> scale * mean cross-entropy; all logits are
--- never in memory at once. Errors: more tokens than the context; ids outside the vocabulary.
---     local ids, targets = data.train:batch()
---     model(ids):dims()  --> 2, 16, 256
---     model(ids, targets):item()  --> 5.6
function Decoder:forward(ids, targets, options)
  local h = self:hidden(ids)
  if not targets then return cached.head(self, h) end
  return cached.loss(self, h, targets, arguments.options(who(self), options, loss_options))
end

--- model:caches(batch, tokens) -> the caches for model:next: for each block a tensor of keys and
--- values, (batch, 2 kv_heads, tokens, head_dim), for sequences of up to `tokens` tokens (default:
--- the context).
---     model:caches(3)[1]:dims()  --> 3, 4, 16, 8
function Decoder:caches(batch, tokens)
  local c = self.config
  tokens = tokens == nil and c.context or tokens
  need_whole(who(self), "tokens", tokens)
  if tokens > c.context then
    lib.deny("%s: caches of %.0f tokens are longer than the model's context of %d", who(self),
             tokens, c.context)
  end
  return cached.caches(self, batch, tokens, c.layers)
end

--- model:next(ids, caches, start, last, behind) -> logits (B,V) of the token after ids. ids (B,T)
--- i32: the next tokens of each sequence; start (B) i32: the number of its tokens in the caches.
--- T > 1 is for prompts, which need last (B) i32: the row, of B x T, in which each prompt ends; and
--- start = 0, unless `behind` is true: then the prompts follow the tokens in the caches.
---     local caches, i32 = model:caches(1), {dtype = "i32"}
---     local start, last = nn.tensor({0}, i32), nn.tensor({2}, i32)
---     local ids = nn.tensor({{7, 8, 9}}, i32)
---     nn.no_grad(model.next, model, ids, caches, start, last):dims()  --> 1, 256
function Decoder:next(ids, caches, start, last, behind)
  cached.check_next(self, ids, caches, start, last, self.config.layers)
  local x, delta = self:embed(ids, start), nil
  local first = last ~= nil and not behind
  for i, block in ipairs(self.blocks) do
    x, delta = block(x, delta, {cache = caches[i], start = start, first = first})
  end
  local _, h = self.norm(x, delta)
  return cached.logits(self, h, last)
end

--- model:flops_per_token(T) -> FLOPs per token, forward and backward: 6 N + 12 layers heads
--- head_dim T; N: the number of elements of the matrices (a tied head once). In blocks with a
--- window, T is at most the window.
---     GPT2(GPT2.size "gpt2"):flops_per_token(1024)  --> 854438400
function Decoder:flops_per_token(time)
  local c = self.config
  base.need_tokens(self, time)
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
