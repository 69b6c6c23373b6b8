-- What the classes of models share that read a text in both directions, with a head that predicts
-- masked tokens, one that classifies the text, or none. Logits, loss and FLOPs follow from the
-- parts of a model:
--
--   model:embed(ids, types)     -> x (B,T,C); types: of the tokens, (B,T) or nil
--   model.blocks[i](x, mask)    -> x; mask: for nn.attend, or nil
--   model:transform(h)          -> h (B,T,C), which the token embedding turns into logits
--   model.tok, model.bias       the token embedding, and the bias (V) of the logits
--   model:classify(h)           -> logits (B,labels), instead of these two if labels > 0;
--                               labels < 0: there is no head
--   config                      layers, heads, embd, context, vocab, labels
-- Shapes: B sequences, T tokens each, C = embd, V = vocab.
local arguments = require "nn.base.arguments"
local base = require "nn.models.class"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"

local M = {}
local Encoder = {kind = "encoder"}      -- the methods of all classes

-- (B,T,C), the output of the last block.
local function hidden(self, ids, mask, types)
  base.need(self, ids, 2, "the ids are", "(batch, tokens)")
  base.need_context(self, ids:dim(2))
  if mask then base.need(self, mask, 2, "the mask is", "(batch, tokens)") end
  if types then base.need(self, types, 2, "the types are", "(batch, tokens)") end
  local x = self:embed(ids, types)
  for _, block in ipairs(self.blocks) do x = block(x, mask) end
  return x
end

local options_of = arguments.names "mask types scale ignore_index"

--- model(ids, nil, {mask, types}) -> logits for ids (B,T): (B,T,V), or (B,labels) of a model that
--- classifies; of a model without a head h (B,T,C) of the last block. mask (B,T) i32: 0 for
--- padding, which no token sees; types (B,T) i32: 0 for the first text, 1 for the second.
--- model(ids, targets, {mask, types, scale=1, ignore_index=-100}) -> scale * mean cross-entropy
--- over the targets (B,T), or (B) of a model that classifies, that are not ignore_index. Errors:
--- more tokens than the context; ids outside the vocabulary; targets without a head.
---     local bert = require "models.bert" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     local ids = nn.tensor({{2, 4, 5, 3}}, {dtype = "i32"})
---     bert(ids):dims()  --> 1, 4, 20
function Encoder:forward(ids, targets, options)
  local o = arguments.options(base.who(self), options, options_of)
  local h = hidden(self, ids, o.mask, o.types)
  if self.config.labels < 0 then
    if targets then lib.misuse("%s: targets are given, but it has no head", base.who(self)) end
    return h
  end
  if self.config.labels > 0 then
    local logits = self:classify(h)
    if not targets then return logits end
    local kind = self.config.problem_type or "single_label_classification"
    if kind ~= "single_label_classification" then
      lib.misuse("%s: targets are given, but its problem_type is %s, which has no loss here",
                 base.who(self), kind)
    end
    local loss = ops.call("cross_entropy", logits, targets, {ignore_index = o.ignore_index})
    return o.scale and loss * o.scale or loss
  end
  h = self:transform(h)
  if not targets then return (ops.call("linear", h, self.tok.weight, self.bias)) end
  return (ops.call("linear_cross_entropy", h, self.tok.weight, targets, {
    bias = self.bias, scale = o.scale, ignore_index = o.ignore_index,
    gradient = tape.grad_enabled(),
  }))
end

--- model:flops_per_token(T) -> FLOPs per token, forward and backward: 6 N + 12 layers embd T; N:
--- the number of elements of the matrices (a tied head once; divided by T those that multiply the
--- first token only).
---     local bert = require "models.bert" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     bert:flops_per_token(4)  --> 6336
function Encoder:flops_per_token(time)
  local c = self.config
  base.need_tokens(self, time)
  local matrices = base.sizes(getmetatable(self), c).matrices + (c.labels < 0 and 0 or c.embd ^ 2)
  if c.labels > 0 then
    matrices = matrices - (c.vocab + c.embd) * c.embd + (c.embd + c.labels) * c.embd / time
  end
  return 6 * matrices + 12 * c.layers * c.embd * time
end

--- nn.encoder(name, fields) -> a class of models that read a text in both directions, as BERT does,
--- for models/NAME.lua. It has forward and all else that training uses, except init and its parts,
--- see lua/nn/models/encoder.lua. fields() -> the settings, as for nn.decoder.
---     local fields = function() return {layers = nn.field(1, "blocks", {needed = true})} end
---     nn.encoder("Tiny", fields).class_name  --> "Tiny"
function M.encoder(name, fields)
  arguments.need(type(name) == "string", "encoder", "the name", name, "a text is needed")
  arguments.callable("encoder", fields)
  local class = base.class(name, fields, {"layers", "heads", "embd", "context", "vocab"})
  for key, method in pairs(Encoder) do class[key] = method end
  return class
end

return M
