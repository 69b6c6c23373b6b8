-- What the classes of models share whose encoder reads a text in both directions and whose decoder
-- writes an answer to it. Logits and loss follow from the parts of a model:
--
--   model:encode(ids, mask)           -> text (B,T,C); mask: (B,T), 0 for padding, or nil
--   model.decoder[i].cross.kv(text)   -> the keys and values of the text that a block sees
--   model:decode(inputs, text, mask, past)  -> (B,S,C), which the head turns into logits. text: a
--                                     list of these for all blocks; past: a list of those for
--                                     nn.attend, in model:next only
--   model.blocks, model.decoder       the blocks of both
--   model.tok, model.head             the token embedding, and the head (nil: tied to tok)
--   config                            layers, decoder_layers, heads, embd, vocab; start: the id
--                                     before the first one of an answer; pad
-- Shapes: B texts of T tokens, S tokens of their answers, C = embd, V = vocab.
local arguments = require "nn.base.arguments"
local base = require "nn.models.class"
local cached = require "nn.models.cached"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"

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
  if targets then
    base.need(self, targets, 2, "the targets are", "(batch, tokens)")
    if inputs then lib.deny("%s: the decoder's inputs follow from the targets", who) end
    inputs = shifted(self, targets, o.ignore_index or -100)
  end
  base.need(self, inputs, 2, "the decoder's inputs are", "(batch, tokens)")
  local h = self:decode(inputs, self:read(ids, o.mask), o.mask)
  if not targets then return cached.head(self, h) end
  return cached.loss(self, h, targets, o)
end

--- model:read(ids, mask) -> a list of what the blocks of the decoder see of texts ids (B,T), for
--- model:next. mask: as for model(ids).
---     local t5 = require "models.t5" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     #nn.no_grad(t5.read, t5, nn.tensor({{2, 4, 5, 1}}, {dtype = "i32"}))  --> 1
function EncoderDecoder:read(ids, mask)
  base.need(self, ids, 2, "the ids are", "(batch, tokens)")
  local text, seen = self:encode(ids, mask), {}
  for i, block in ipairs(self.decoder) do seen[i] = block.cross.kv(text) end
  return seen
end

--- model:caches(batch, tokens) -> the caches for model:next: for each block of the decoder a
--- tensor of keys and values, (batch, 2 heads, tokens, head_dim), for answers of up to `tokens`
--- tokens.
---     local t5 = require "models.t5" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     t5:caches(3, 7)[1]:dims()  --> 3, 4, 7, 4
function EncoderDecoder:caches(batch, tokens)
  base.need_whole(base.who(self), "tokens", tokens)
  return cached.caches(self, batch, tokens, self.config.decoder_layers)
end

--- model:next(ids, caches, start, last, text, mask) -> logits (B,V) of the token of the answers
--- after ids. ids, start and last: as of a decoder's model:next; an answer begins with config.start
--- at 0. text: the result of model:read; mask: that of the texts, or nil.
---     local t5 = require "models.t5" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     local i32 = {dtype = "i32"}
---     local text = nn.no_grad(t5.read, t5, nn.tensor({{2, 4, 5, 1}}, i32))
---     local ids, start = nn.tensor({{0}}, i32), nn.tensor({0}, i32)
---     nn.no_grad(t5.next, t5, ids, t5:caches(1, 9), start, nil, text):dims()  --> 1, 20
function EncoderDecoder:next(ids, caches, start, last, text, mask)
  local count, past = self.config.decoder_layers, {}
  cached.check_next(self, ids, caches, start, last, count)
  arguments.need(type(text) == "table" and #text == count, base.who(self), "the text", text,
                 "the result of model:read is needed")
  for i = 1, count do
    past[i] = {cache = caches[i], start = start, first = last ~= nil}
  end
  return cached.logits(self, self:decode(ids, text, mask, past), last)
end

--- model:flops_per_token(T, S) -> FLOPs per token of a text of T tokens with an answer of S tokens
--- (default T), forward and backward: (6 (E T + D S) + 12 heads head_dim (layers T^2 +
--- decoder_layers (S^2 + S T))) / T; E: the number of elements of the matrices that read the text,
--- of the encoder and of the decoder; D: of all others, with the head.
---     local t5 = require "models.t5" {layers = 1, heads = 2, embd = 8, vocab = 20}
---     t5:flops_per_token(4, 2)  --> 9216
function EncoderDecoder:flops_per_token(time, answer)
  local c, class = self.config, getmetatable(self)
  answer = answer or time
  base.need_tokens(self, time)
  base.need_tokens(self, answer)
  local matrices, shapes = base.sizes(class, c).matrices_of, class.shapes(c)
  local reading = shapes[("decoder.%d.cross.kv.weight"):format(c.decoder_layers)]
  local of_text = c.decoder_layers * reading[1] * reading[2]
  local width = c.heads * (c.head_dim or c.embd / c.heads)
  local products = 6 * ((matrices.blocks + of_text) * time
                        + (matrices.decoder - of_text + c.vocab * c.embd) * answer)
  local attention = c.layers * time ^ 2 + c.decoder_layers * (answer ^ 2 + answer * time)
  return (products + 12 * width * attention) / time
end

--- nn.encoder_decoder(name, fields) -> a class of models that read a text and write another one, as
--- T5 does, for models/NAME.lua. It has forward, read, caches, next and all else that training and
--- generation use; init and the parts are the model's, see lua/nn/models/encoder_decoder.lua.
--- fields() -> the settings, as for nn.decoder.
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
