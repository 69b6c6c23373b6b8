-- What the classes of models share whose encoder reads a text in both directions and whose decoder
-- writes an answer to it. Logits and loss follow from the parts of a model:
--
--   model:encode(ids, mask)           -> text (B,T,C); mask: (B,T), 0 for padding, or nil
--   model:decode(inputs, text, mask)  -> (B,S,C), which the head turns into logits
--   model.blocks, model.decoder       the blocks of both
--   model.tok, model.head             the token embedding, and the head (nil: tied to tok)
--   config                            layers, decoder_layers, heads, embd, vocab; start: the id
--                                     before the first one of an answer; pad
-- Shapes: B texts of T tokens, S tokens of their answers, C = embd, V = vocab.
local arguments = require "nn.base.arguments"
local base = require "nn.models.class"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"

local M = {}
local EncoderDecoder = {kind = "encoder_decoder"}      -- the methods of all classes

-- The decoder's inputs (B,S) for targets (B,S): these one position later.
local function shifted(self, targets, ignored)
  local c, batch, time = self.config, targets:dims()
  local first = ops.call("full", {batch, 1}, c.start, {dtype = targets.dtype})
  if time == 1 then return first end
  local before = targets:slice(2, 1, time - 1)
  return ops.call("cat", {first, before:masked_fill(before:eq(ignored), c.pad)}, 2)
end

local options_of = arguments.names "mask inputs scale ignore_index"

--- model(ids, nil, {mask, inputs}) -> logits (B,S,V) after each of the decoder's inputs (B,S), for
--- texts ids (B,T). mask (B,T) i32: 0 for padding, which no token sees.
--- model(ids, targets, {mask, scale=1, ignore_index=-100}) -> scale * mean cross-entropy over the
--- tokens of the answers (B,S) that are not ignore_index. Errors: ids outside the vocabulary.
---     local t5 = require "models.t5" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     local ids = nn.tensor({{2, 4, 5, 1}}, {dtype = "i32"})
---     t5(ids, nil, {inputs = ids:slice(2, 1, 3)}):dims()  --> 1, 3, 20
function EncoderDecoder:forward(ids, targets, options)
  local who = base.who(self)
  local o = arguments.options(who, options, options_of)
  local inputs = o.inputs
  base.need(self, ids, 2, "the ids are", "(batch, tokens)")
  if targets then
    base.need(self, targets, 2, "the targets are", "(batch, tokens)")
    if inputs then lib.fail("%s: the decoder's inputs follow from the targets", who) end
    inputs = shifted(self, targets, o.ignore_index or -100)
  end
  base.need(self, inputs, 2, "the decoder's inputs are", "(batch, tokens)")
  local h, head = self:decode(inputs, self:encode(ids, o.mask), o.mask), self.head or self.tok
  if not targets then return (ops.call("linear", h, head.weight)) end
  return (ops.call("linear_cross_entropy", h, head.weight, targets, {
    scale = o.scale, ignore_index = o.ignore_index, gradient = tape.grad_enabled(),
  }))
end

--- nn.encoder_decoder(name, fields) -> a class of models that read a text and write another one, as
--- T5 does, for models/NAME.lua. It has forward, requirements and shapes; init and the parts are
--- the model's, see lua/nn/models/encoder_decoder.lua. fields() -> the settings, as for nn.decoder.
--- nn.generate and the recipes do not support these models.
---     local fields = function() return {layers = nn.field(1, "blocks", {needed = true})} end
---     nn.encoder_decoder("Tiny", fields).class_name  --> "Tiny"
function M.encoder_decoder(name, fields)
  arguments.need(type(name) == "string", "encoder_decoder", "the name", name, "a text is needed")
  arguments.callable("encoder_decoder", fields)
  local class = base.class(name, fields, {"layers", "heads", "embd", "vocab"})
  for key, method in pairs(EncoderDecoder) do class[key] = method end
  class.stacks = {blocks = "layers", decoder = "decoder_layers"}
  return class
end

return M
