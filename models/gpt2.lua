-- GPT-2 (Radford et al. 2019): pre-LayerNorm blocks, learned positions, tanh GELU, head tied to the
-- token embedding. Shapes: B sequences, T tokens each, C = embd, V = vocab.

local nn = require "nn"

local Attention, MLP = nn.module "Attention", nn.module "MLP"
local Block, GPT2 = nn.module "Block", nn.module "GPT2"

-- The initial scale of projections onto the residual stream decreases with their number.
local function residual_std(c) return 0.02 / math.sqrt(2 * c.layers) end

function Attention:init(c)
  self.heads, self.dropout = c.heads, c.dropout
  self.qkv = nn.Linear(c.embd, 3 * c.embd, {dtype = c.dtype})
  self.proj = nn.Linear(c.embd, c.embd, {std = residual_std(c), dtype = c.dtype})
end

-- (B,T,C) -> (B,T,C). memory: {cache=, start=, first=} during generation, see GPT2:next.
function Attention:forward(x, memory)
  local qkv, dropout = self.qkv(x), nn.training() and self.dropout or 0
  if memory and not memory.first then
    local _, o = nn.attention_cached_(memory.cache, qkv, memory.start, {heads = self.heads})
    return self.proj(o)
  end
  if memory then nn.cache_write_(memory.cache, qkv, memory.start, {heads = self.heads}) end
  return self.proj((nn.attention(qkv, {heads = self.heads, dropout = dropout})))
end

function MLP:init(c)
  self.up = nn.Linear(c.embd, 4 * c.embd, {gelu = true, dtype = c.dtype})
  self.down = nn.Linear(4 * c.embd, c.embd, {std = residual_std(c), dtype = c.dtype})
end

function MLP:forward(x) return self.down(self.up(x)) end

function Block:init(c)
  self.norm1, self.attn = nn.LayerNorm(c.embd, {dtype = c.dtype}), Attention(c)
  self.norm2, self.mlp = nn.LayerNorm(c.embd, {dtype = c.dtype}), MLP(c)
  self.drop = nn.Dropout(c.dropout)
end

-- x: the residual stream, delta: the output of the previous layer, which norm1 adds to x.
function Block:forward(x, delta, memory)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  x, h = self.norm2(x, self.drop(self.attn(h, memory)))
  return x, self.drop(self.mlp(h))
end

local sizes = {
  ["gpt2"] = {layers = 12, heads = 12, embd = 768},
  ["gpt2-medium"] = {layers = 24, heads = 16, embd = 1024},
  ["gpt2-large"] = {layers = 36, heads = 20, embd = 1280},
  ["gpt2-xl"] = {layers = 48, heads = 25, embd = 1600},
}

-- The settings that determine the shapes of the parameters, and defaults.
GPT2.dimensions = {"layers", "heads", "embd", "context", "vocab"}
local defaults = {context = 1024, vocab = 50257, dropout = 0, dtype = "f32"}
local settings = {dropout = true, dtype = true}
for _, name in ipairs(GPT2.dimensions) do settings[name] = true end

local function need_whole(name, value)
  if type(value) ~= "number" or value < 1 or value % 1 ~= 0 then
    nn.fail("gpt2: %s is %s; a whole number of at least 1 is needed", name, tostring(value))
  end
end

local function with_defaults(given)
  local c = {}
  for name, value in pairs(defaults) do c[name] = value end
  for name, value in pairs(given) do c[name] = value end
  return c
end

--- GPT2{layers, heads, embd, context=1024, vocab=50257, dropout=0, dtype="f32"} -> a model with
--- random weights; see also GPT2.size. dtype "bf16" stores weights and activations in 16 bits; sums
--- stay in f32. Errors: missing or unknown settings; embd is not a multiple of heads.
---     GPT2({layers = 2, heads = 2, embd = 32, context = 64, vocab = 65}):count()  --> 29600
function GPT2:init(config)
  local c = with_defaults(nn.options("gpt2", config, settings))
  for _, name in ipairs(GPT2.dimensions) do
    local value = c[name]
    if value == nil then nn.fail("gpt2: '%s' is missing; GPT2{%s = 4, ...}", name, name) end
    need_whole(name, value)
  end
  if c.embd % c.heads ~= 0 then
    nn.fail("gpt2: embd = %d is not a multiple of heads = %d; choose one, such as %d",
            c.embd, c.heads, math.ceil(c.embd / c.heads) * c.heads)
  end
  self.config = c
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.pos = nn.Embedding(c.context, c.embd, {dtype = c.dtype})
  self.drop = nn.Dropout(c.dropout)
  self.blocks = nn.list(c.layers, function() return Block(c) end)
  self.norm = nn.LayerNorm(c.embd, {dtype = c.dtype})
end

-- Raises an error unless x is a tensor of so many axes.
local function need(x, axes, what, shape)
  if nn.is_tensor(x) and #x.shape == axes then return end
  local given = nn.is_tensor(x) and "(" .. table.concat(x.shape, ",") .. ")"
    or x == nil and "nil" or "a " .. type(x)
  nn.fail("gpt2: %s %s; a tensor %s of i32 is needed", what, given, shape)
end

--- model:hidden(ids) -> (B,T,C), the output of the last norm, for ids (B,T).
---     model:hidden(data.train:batch()):dims()  --> 2, 16, 16
function GPT2:hidden(ids)
  need(ids, 2, "the ids are", "(batch, tokens)")
  local time, context = ids:dim(2), self.config.context
  if time > context then
    nn.fail("gpt2: %d tokens are more than the model's context of %d", time, context)
  end
  local x, delta = self.drop(self.tok(ids, self.pos)), nil
  for _, block in ipairs(self.blocks) do x, delta = block(x, delta) end
  local _, h = self.norm(x, delta)
  return h
end

local loss_options = {scale = true, ignore_index = true}

--- model(ids) -> logits (B,T,V).
--- model(ids, targets, {scale=1, ignore_index=-100}) -> scale * mean cross-entropy; all logits are
--- never in memory at once. Errors: more tokens than the context; ids outside the vocabulary.
---     local ids, targets = data.train:batch()
---     model(ids):dims()  --> 2, 16, 256
---     model(ids, targets):item()  --> 5.6
function GPT2:forward(ids, targets, options)
  local h = self:hidden(ids)
  if not targets then return (nn.linear(h, self.tok.weight)) end
  options = nn.options("gpt2", options, loss_options)
  return (nn.linear_cross_entropy(h, self.tok.weight, targets,
    {scale = options.scale, ignore_index = options.ignore_index, gradient = nn.grad_enabled()}))
end

--- model:caches(batch) -> the caches for model:next: for each block a tensor of keys and values,
--- (batch, 2 heads, context, embd / heads).
---     model:caches(3)[1]:dims()  --> 3, 4, 16, 8
function GPT2:caches(batch)
  local c = self.config
  need_whole("batch", batch)
  return nn.list(c.layers, function()
    return nn.zeros({batch, 2 * c.heads, c.context, c.embd / c.heads}, {dtype = c.dtype})
  end)
end

local function check_next(self, ids, caches, start, last)
  need(ids, 2, "the ids are", "(batch, tokens)")
  need(start, 1, "start is", "(batch)")
  if last ~= nil then need(last, 1, "last is", "(batch)") end
  local batch, layers = ids:dim(1), self.config.layers
  if start:dim(1) ~= batch or last and last:dim(1) ~= batch then
    nn.fail("gpt2: ids has %d sequences, but start or last has another length", batch)
  end
  if not last and ids:dim(2) ~= 1 then
    nn.fail("gpt2: %d tokens per sequence need last, the row in which each prompt ends", ids:dim(2))
  end
  local first = type(caches) == "table" and not nn.is_tensor(caches) and caches[1]
  if not nn.is_tensor(first) or #caches ~= layers or first:dim(1) ~= batch then
    nn.fail("gpt2: the caches must be those of model:caches(%d), a list of %d tensors", batch,
            layers)
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
function GPT2:next(ids, caches, start, last)
  check_next(self, ids, caches, start, last)
  local batch, time = ids:dim(1), ids:dim(2)
  local positions = start:reshape(batch, 1) + nn.arange(time, {dtype = "i32"})
  local x, delta = self.tok(ids) + self.pos(positions), nil
  for i, block in ipairs(self.blocks) do
    x, delta = block(x, delta, {cache = caches[i], start = start, first = last ~= nil})
  end
  local _, h = self.norm(x, delta)
  h = h:reshape(batch * time, self.config.embd)
  if last then h = (nn.embedding(last, h)) end
  return (nn.linear(h, self.tok.weight))
end

--- model:flops_per_token(T) -> FLOPs per token, forward and backward: 6 N + 12 layers embd T; N:
--- the number of elements of the matrices (the tied head once).
---     GPT2(GPT2.size "gpt2"):flops_per_token(1024)  --> 854438400
function GPT2:flops_per_token(time)
  local c = self.config
  if type(time) ~= "number" then
    nn.fail("gpt2: flops_per_token: the number of tokens is %s; a number is needed",
            tostring(time))
  end
  return 6 * (12 * c.layers * c.embd ^ 2 + c.vocab * c.embd) + 12 * c.layers * c.embd * time
end

--- GPT2.requirements(settings, tokens) -> {parameters=, tiles=, bytes=}. Creates nothing.
--- parameters: their number; tiles: the approximate number of their tiles; bytes: a lower bound of
--- the memory of a training step with AdamW and microbatches of `tokens` tokens.
---     GPT2.requirements(GPT2.size "gpt2", 1024).parameters  --> 124439808
function GPT2.requirements(config, tokens)
  local c, layers = config.embd, config.layers
  local parameters = (config.vocab + config.context) * c + layers * (12 * c ^ 2 + 13 * c) + 2 * c
  local size = config.dtype == "bf16" and 2 or 4
  -- The moments are two f32. The backward pass reads at least 12 C values per token and layer; all
  -- but x and delta, 2 C, can be recomputed.
  local kept = nn.activations() == "keep" and 12 or 2
  local bytes = parameters * (size + 8) + kept * tokens * layers * c * size
  local tiles = 12 * layers + 3 + math.ceil(config.vocab / 8192)
  return {parameters = parameters, tiles = tiles, bytes = bytes}
end

--- GPT2.size(name) -> the settings of a released size: "gpt2", "gpt2-medium", "gpt2-large",
--- "gpt2-xl". Errors: another name.
---     GPT2.size("gpt2").layers  --> 12
function GPT2.size(name)
  local size = sizes[name]
  if not size then
    nn.fail("gpt2: unknown size '%s'; choose one of gpt2, gpt2-medium, gpt2-large, gpt2-xl",
            tostring(name))
  end
  local out = {context = 1024, vocab = 50257}
  for key, value in pairs(size) do out[key] = value end
  return out
end

-- The variable `model` of examples in docs.
GPT2.example = "GPT2 {layers = 1, heads = 2, embd = 16, context = 16, vocab = 256}"

--- GPT2.shapes(settings) -> {path = shape} of some parameters, including one of the last layer.
--- Loading checks them in the file before it creates a model.
---     GPT2.shapes({layers = 2, embd = 8, vocab = 9})["tok.weight"]  --> {9, 8}
function GPT2.shapes(given)
  local c = with_defaults(given)
  if not c.layers or not c.embd then return {} end
  return {["tok.weight"] = {c.vocab, c.embd}, ["pos.weight"] = {c.context, c.embd},
          [("blocks.%.0f.norm1.weight"):format(c.layers)] = {c.embd}}
end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

local outside = {["tok.weight"] = "wte.weight", ["pos.weight"] = "wpe.weight",
                 ["norm.weight"] = "ln_f.weight", ["norm.bias"] = "ln_f.bias"}
local inside = {norm1 = "ln_1", norm2 = "ln_2", ["attn.qkv"] = "attn.c_attn",
                ["attn.proj"] = "attn.c_proj", ["mlp.up"] = "mlp.c_fc", ["mlp.down"] = "mlp.c_proj"}

GPT2.hugging_face = {
  model_type = "gpt2", architecture = "GPT2LMHeadModel", prefix = "transformer.",
  settings = {layers = "n_layer", heads = "n_head", embd = "n_embd", context = "n_positions",
              vocab = "vocab_size"},
  fixed = {activation_function = "gelu_new", layer_norm_epsilon = 1e-5, scale_attn_weights = true,
           scale_attn_by_inverse_layer_idx = false, reorder_and_upcast_attn = false,
           add_cross_attention = false, tie_word_embeddings = true},
}
local format = GPT2.hugging_face

-- The Conv1D of transformers stores weights as (in, out), nnlua's Linear as (out, in).
function format.name(path)
  if outside[path] then return outside[path], false end
  local block, layer, kind = path:match "^blocks%.(%d+)%.(.+)%.(%w+)$"
  if not inside[layer] then return nil end
  return ("h.%d.%s.%s"):format(block - 1, inside[layer], kind),
         kind == "weight" and layer:find "%." ~= nil
end

function format.read(config)
  local inner, embd, heads = config.n_inner, config.n_embd, config.n_head
  if type(inner) == "number" and inner ~= 4 * embd then
    return nil, ("n_inner is %s; nnlua's GPT2 has 4 n_embd = %.0f"):format(inner, 4 * embd)
  end
  if embd % heads ~= 0 then
    return nil, ("n_embd = %.0f is not a multiple of n_head = %.0f"):format(embd, heads)
  end
  return {}
end

function format.write(c)
  return {attn_pdrop = c.dropout, embd_pdrop = c.dropout, resid_pdrop = c.dropout}
end

return GPT2
