-- GPT-2 (Radford et al. 2019): pre-LayerNorm blocks, learned positions, tanh GELU, head tied to the
-- token embedding. Shapes: B sequences, T tokens each, C = embd, V = vocab.

local nn = require "nn"
local field = nn.field

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"

--- GPT2{layers, heads, embd, context=1024, vocab=50257, dropout=0, dtype="f32"} -> a model with
--- random weights; see also GPT2.size. dtype "bf16" stores weights and activations in 16 bits; sums
--- stay in f32. Errors: missing or unknown settings; embd is not a multiple of heads.
---     GPT2({layers = 2, heads = 2, embd = 32, context = 64, vocab = 65}):count()  --> 29600
local GPT2 = nn.decoder("GPT2", function()
  return {
    layers = field(4, "transformer blocks", {min = 1, needed = true}),
    heads = field(4, "attention heads; embd must be a multiple", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    context = field(1024, "context length in tokens", {min = 1}),
    vocab = field(50257, "vocabulary size", {min = 1}),
    dropout = field(0, "dropout probability in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

-- The initial scale of projections onto the residual stream decreases with their number.
local function residual_std(c) return 0.02 / math.sqrt(2 * c.layers) end

function Attention:init(c)
  self.heads, self.dropout = c.heads, c.dropout
  self.qkv = nn.Linear(c.embd, 3 * c.embd, {dtype = c.dtype})
  self.proj = nn.Linear(c.embd, c.embd, {std = residual_std(c), dtype = c.dtype})
end

-- (B,T,C) -> (B,T,C). past: see nn.attend.
function Attention:forward(x, past)
  return self.proj(nn.attend(self.qkv(x), past, {heads = self.heads, dropout = self.dropout}))
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
function Block:forward(x, delta, past)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  x, h = self.norm2(x, self.drop(self.attn(h, past)))
  return x, self.drop(self.mlp(h))
end

local sizes = {
  ["gpt2"] = {layers = 12, heads = 12, embd = 768},
  ["gpt2-medium"] = {layers = 24, heads = 16, embd = 1024},
  ["gpt2-large"] = {layers = 36, heads = 20, embd = 1280},
  ["gpt2-xl"] = {layers = 48, heads = 25, embd = 1600},
  -- GPT-3 (Brown et al. 2020, table 2.1), with dense attention in every layer
  ["gpt3-2.7b"] = {layers = 32, heads = 32, embd = 2560, context = 2048},
  ["gpt3-6.7b"] = {layers = 32, heads = 32, embd = 4096, context = 2048},
  ["gpt3-175b"] = {layers = 96, heads = 96, embd = 12288, context = 2048},
}

function GPT2:init(config)
  local c = self:configure(config)
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.pos = nn.Embedding(c.context, c.embd, {dtype = c.dtype})
  self.drop = nn.Dropout(c.dropout)
  self.blocks = nn.list(c.layers, function() return Block(c) end)
  self.norm = nn.LayerNorm(c.embd, {dtype = c.dtype})
end

--- model:embed(ids, start) -> (B,T,C) for ids (B,T): the sums of token and position embeddings. The
--- first position of each sequence is 0, or start (B).
---     model:embed((data.train:batch())):dims()  --> 2, 16, 16
function GPT2:embed(ids, start)
  if not start then return self.drop(self.tok(ids, self.pos)) end
  local positions = start:reshape(ids:dim(1), 1) + nn.arange(ids:dim(2), {dtype = "i32"})
  return self.tok(ids) + self.pos(positions)
end

--- GPT2.size(name) -> the settings of a published size: "gpt2", "gpt2-medium", "gpt2-large",
--- "gpt2-xl", "gpt3-2.7b", "gpt3-6.7b", "gpt3-175b". Errors: another name.
---     GPT2.size("gpt2").layers  --> 12
function GPT2.size(name)
  local size = sizes[name]
  if not size then
    nn.fail("gpt2: unknown size '%s'; choose one of gpt2, gpt2-medium, gpt2-large, gpt2-xl, "
            .. "gpt3-2.7b, gpt3-6.7b, gpt3-175b", tostring(name))
  end
  local out = {context = 1024, vocab = 50257}
  for key, value in pairs(size) do out[key] = value end
  return out
end

-- The variable `model` of examples in docs.
GPT2.example = "GPT2 {layers = 1, heads = 2, embd = 16, context = 16, vocab = 256}"

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

local outside = {["tok.weight"] = "wte.weight", ["pos.weight"] = "wpe.weight",
                 ["norm.weight"] = "ln_f.weight", ["norm.bias"] = "ln_f.bias"}
local inside = {norm1 = "ln_1", norm2 = "ln_2", ["attn.qkv"] = "attn.c_attn",
                ["attn.proj"] = "attn.c_proj", ["mlp.up"] = "mlp.c_fc", ["mlp.down"] = "mlp.c_proj"}

GPT2.hugging_face = {
  types = {gpt2 = "GPT2LMHeadModel"}, prefix = "transformer.",
  settings = {layers = "n_layer", heads = "n_head", embd = "n_embd", context = "n_positions",
              vocab = "vocab_size"},
  fixed = {activation_function = "gelu_new", layer_norm_epsilon = 1e-5, scale_attn_weights = true,
           scale_attn_by_inverse_layer_idx = false, reorder_and_upcast_attn = false,
           add_cross_attention = false, tie_word_embeddings = true},
  entries = {n_inner = "whole"},
  aliases = {hidden_size = "n_embd", max_position_embeddings = "n_positions",
             num_attention_heads = "n_head", num_hidden_layers = "n_layer"},
  repeats = {["lm_head.weight"] = "wte.weight"},
  unused = {"%.attn%.bias$"},
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
  local inner, embd = config.n_inner, config.n_embd
  if inner and inner ~= 4 * embd then
    return nil, ("n_inner is %d; nnlua's GPT2 has 4 n_embd = %d"):format(inner, 4 * embd)
  end
  return {}
end

function format.write(c)
  return {attn_pdrop = c.dropout, embd_pdrop = c.dropout, resid_pdrop = c.dropout}
end

return GPT2
