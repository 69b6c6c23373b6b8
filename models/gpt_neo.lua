-- GPT-Neo (Black et al. 2021): GPT-2's blocks with separate projections without biases, scores that
-- are not scaled, and a window in some blocks, usually every second.
-- Shapes: B sequences, T tokens each, C = embd, V = vocab.

local nn = require "nn"
local field = nn.field

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"

--- GPTNeo{layers, heads, embd, inner=4 embd, context=2048, vocab=50257, window=256,
--- pattern="global,local", dropout=0, dtype="f32"} -> a model with random weights. The pattern
--- repeats over the blocks; those that are local see the newest `window` tokens. Errors: missing,
--- unknown or invalid settings.
---     GPTNeo({layers = 1, heads = 2, embd = 16, context = 8, vocab = 65}):count()  --> 4432
local GPTNeo = nn.decoder("GPTNeo", function()
  return {
    layers = field(4, "transformer blocks", {min = 1, needed = true}),
    heads = field(4, "attention heads; embd must be a multiple", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    inner = field(0, "hidden size of the MLP; 0: 4 embd", {min = 0}),
    context = field(2048, "context length in tokens", {min = 1}),
    vocab = field(50257, "vocabulary size", {min = 1}),
    window = field(256, "tokens that local blocks see; 0: all", {min = 0}),
    pattern = field("global,local", "kinds of the blocks, global or local, repeated over them"),
    eps = field(1e-5, "added to the variance in norms", {min = 0}),
    dropout = field(0, "dropout of attention in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

local known = {}                                       -- the last pattern, and its kinds

-- The kinds in a pattern, "global" or "local". Errors: another kind.
local function kinds_in(pattern)
  if known.pattern == pattern then return known.kinds end
  local list = {}
  for kind in (pattern .. ","):gmatch "(.-)," do
    if kind ~= "global" and kind ~= "local" then
      nn.fail("gptneo: pattern = %s has the kind '%s'; global and local are known", pattern, kind)
    end
    list[#list + 1] = kind
  end
  known = {pattern = pattern, kinds = list}
  return list
end

-- How many tokens a token sees in a block (from 1); 0: all.
function GPTNeo.window(c, layer)
  local kinds = kinds_in(c.pattern)
  return kinds[(layer - 1) % #kinds + 1] == "local" and c.window or 0
end

function Attention:init(c, layer)
  self.shape = {heads = c.heads, dropout = c.dropout, scale = 1, window = GPTNeo.window(c, layer)}
  self.qkv = nn.Linear(c.embd, 3 * c.embd, {bias = false, dtype = c.dtype})
  self.proj = nn.Linear(c.embd, c.embd, {dtype = c.dtype})
end

-- (B,T,C) -> (B,T,C). past: see nn.attend.
function Attention:forward(x, past)
  return self.proj(nn.attend(self.qkv(x), past, self.shape))
end

function MLP:init(c)
  self.up = nn.Linear(c.embd, c.inner, {gelu = true, dtype = c.dtype})
  self.down = nn.Linear(c.inner, c.embd, {dtype = c.dtype})
end

function MLP:forward(x) return self.down(self.up(x)) end

function Block:init(c, layer)
  local norm = {eps = c.eps, dtype = c.dtype}
  self.norm1, self.attn = nn.LayerNorm(c.embd, norm), Attention(c, layer)
  self.norm2, self.mlp = nn.LayerNorm(c.embd, norm), MLP(c)
end

-- x: the residual stream, delta: the output of the previous layer, which norm1 adds to x.
function Block:forward(x, delta, past)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  x, h = self.norm2(x, self.attn(h, past))
  return x, self.mlp(h)
end

function GPTNeo:init(config)
  local c = self:configure(config)
  if c.inner == 0 then c.inner = 4 * c.embd end
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.pos = nn.Embedding(c.context, c.embd, {dtype = c.dtype})
  self.blocks = nn.list(c.layers, function(layer) return Block(c, layer) end)
  self.norm = nn.LayerNorm(c.embd, {eps = c.eps, dtype = c.dtype})
end

function GPTNeo:embed(ids, start)
  if not start then return self.tok(ids, self.pos) end
  local positions = start:reshape(ids:dim(1), 1) + nn.arange(ids:dim(2), {dtype = "i32"})
  return self.tok(ids) + self.pos(positions)
end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

GPTNeo.hugging_face = {
  types = {gpt_neo = "GPTNeoForCausalLM"}, prefix = "transformer.",
  settings = {layers = "num_layers", heads = "num_heads", embd = "hidden_size",
              context = "max_position_embeddings", vocab = "vocab_size"},
  optional = {inner = "intermediate_size", eps = "layer_norm_epsilon",
              dropout = "attention_dropout"},
  fixed = {activation_function = "gelu_new", embed_dropout = 0, resid_dropout = 0,
           tie_word_embeddings = true},
  entries = {attention_layers = "texts", attention_types = "list", window_size = "whole"},
  aliases = {num_attention_heads = "num_heads", num_hidden_layers = "num_layers"},
  repeats = {["lm_head.weight"] = "wte.weight"},
  unused = {"%.attention%.bias$"},
}
local format = GPTNeo.hugging_face

local outside = {["tok.weight"] = "wte.weight", ["pos.weight"] = "wpe.weight",
                 ["norm.weight"] = "ln_f.weight", ["norm.bias"] = "ln_f.bias"}
local inside = {norm1 = "ln_1", norm2 = "ln_2", ["attn.proj"] = "attn.attention.out_proj",
                ["mlp.up"] = "mlp.c_fc", ["mlp.down"] = "mlp.c_proj"}

function format.name(path, c)
  if outside[path] then return outside[path] end
  local block, layer, kind = path:match "^blocks%.(%d+)%.(.+)%.(%w+)$"
  local function their(name) return ("h.%d.%s.%s"):format(block - 1, name, kind) end
  if layer ~= "attn.qkv" then return inside[layer] and their(inside[layer]) end
  return {{their "attn.attention.q_proj", c.embd}, {their "attn.attention.k_proj", c.embd},
          {their "attn.attention.v_proj", c.embd}}
end

-- The kinds of attention in each block, of as many blocks as there are; or nil and the problem.
-- attention_types is {{{kind, ...}, times}, ...}.
local function kinds_of(config)
  local kinds, count = config.attention_layers, config.num_layers
  if not kinds then
    kinds = {}
    for i, group in ipairs(config.attention_types or {{{"global", "local"}, 12}}) do
      local list, times = unpack(type(group) == "table" and group or {})
      if type(list) ~= "table" or type(times) ~= "number" or times > count or times % 1 ~= 0 then
        return nil, ("attention_types[%d] must be [[kind, ...], times]"):format(i - 1)
      end
      for _ = 1, times do
        for _, kind in ipairs(list) do kinds[#kinds + 1] = kind end
      end
    end
  end
  if #kinds == count then return kinds end
  return nil, ("kinds of attention are given for %d of %d blocks, in attention_layers or "
               .. "attention_types (which is [[[global, local], 12]] by default)"):format(#kinds,
                                                                                        count)
end

-- The shortest pattern that gives these kinds when it repeats.
local function pattern_of(kinds)
  for length = 1, #kinds do
    local repeats = true
    for i = length + 1, #kinds do repeats = repeats and kinds[i] == kinds[i - length] end
    if repeats then return table.concat(kinds, ",", 1, length) end
  end
end

function format.read(config)
  local kinds, problem = kinds_of(config)
  for i, kind in ipairs(kinds or {}) do
    if kind ~= "global" and kind ~= "local" then
      return nil, ("block %d has %s attention, in attention_layers or attention_types; global or "
                   .. "local is needed"):format(i - 1, type(kind) == "string" and kind
                                                or "an unknown kind of")
    end
  end
  if not kinds then return nil, problem end
  if config.window_size == 0 then return nil, "window_size is 0; at least 1 is needed" end
  return {window = config.window_size, pattern = pattern_of(kinds)}
end

function format.write(c)
  local pattern, kinds = kinds_in(c.pattern), {}
  for i = 1, c.layers do kinds[i] = pattern[(i - 1) % #pattern + 1] end
  return {attention_layers = kinds, attention_types = {{kinds, 1}},
          window_size = c.window > 0 and c.window or c.context}
end

return GPTNeo
