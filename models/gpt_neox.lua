-- GPT-NeoX (Black et al. 2022), such as Pythia: LayerNorm blocks whose attention and MLP both read
-- the block's input (or one after the other), rotary positions in a part of each head, exact GELU.
-- Shapes: B sequences, T tokens each, C = embd, V = vocab; H heads of D.

local nn, rotary = require "nn", require "nn.models.rotary"
local field = nn.field

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"

--- GPTNeoX{layers, heads, embd, inner=4 embd, context=2048, vocab=50432, parallel=true,
--- rotated=0.25, theta=10000, ...} -> a model with random weights. `nnlua recipes/train.lua
--- model=gpt_neox --help` lists all settings. Errors: missing, unknown or invalid settings.
---     GPTNeoX({layers = 1, heads = 2, embd = 16, vocab = 65}):count()  --> 5392
local GPTNeoX = nn.decoder("GPTNeoX", function()
  return {
    layers = field(4, "transformer blocks", {min = 1, needed = true}),
    heads = field(4, "attention heads; embd must be a multiple", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    inner = field(0, "hidden size of the MLP; 0: 4 embd", {min = 0}),
    context = field(2048, "context length in tokens", {min = 1}),
    vocab = field(50432, "vocabulary size", {min = 1}),
    parallel = field(true, "attention and MLP both read the block's input"),
    tied = field(false, "the head is the token embedding"),
    bias = field(true, "attention has biases"),
    rotated = field(0.25, "share of a head that rotates", {min = 0, max = 1}),
    theta = field(10000, "base of the rotary frequencies", {min = 1, real = true}),
    eps = field(1e-5, "added to the variance in norms", {min = 0}),
    dropout = field(0, "dropout of attention in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

function Attention:init(c)
  local plain = {bias = c.bias, dtype = c.dtype}
  self.shape = {heads = c.heads, dropout = c.dropout}
  self.rope = rotary.options(c, math.floor(c.embd / c.heads * c.rotated))
  self.qkv = nn.Linear(c.embd, 3 * c.embd, plain)
  self.proj = nn.Linear(c.embd, c.embd, plain)
end

-- (B,T,C) -> (B,T,C). past: see nn.attend.
function Attention:forward(x, past)
  local turned = rotary.rotate(self.qkv(x), past, self.rope)
  return self.proj(nn.attend(turned, past, self.shape))
end

function MLP:init(c)
  self.up = nn.Linear(c.embd, c.inner, {dtype = c.dtype})
  self.down = nn.Linear(c.inner, c.embd, {dtype = c.dtype})
end

function MLP:forward(x) return self.down(nn.gelu_exact(self.up(x))) end

function Block:init(c)
  local norm = {eps = c.eps, dtype = c.dtype}
  self.parallel = c.parallel
  self.norm1, self.attn = nn.LayerNorm(c.embd, norm), Attention(c)
  self.norm2, self.mlp = nn.LayerNorm(c.embd, norm), MLP(c)
end

-- x: the residual stream, delta: the output of the previous layer, which norm1 adds to x.
function Block:forward(x, delta, past)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  local attended = self.attn(h, past)
  if self.parallel then return x, attended + self.mlp(self.norm2(x)) end
  x, h = self.norm2(x, attended)
  return x, self.mlp(h)
end

function GPTNeoX:init(config)
  local c = self:configure(config)
  if c.inner == 0 then c.inner = 4 * c.embd end
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.blocks = nn.list(c.layers, function() return Block(c) end)
  self.norm = nn.LayerNorm(c.embd, {eps = c.eps, dtype = c.dtype})
  if not c.tied then self.head = nn.Linear(c.embd, c.vocab, {bias = false, dtype = c.dtype}) end
end

function GPTNeoX:embed(ids) return self.tok(ids) end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

GPTNeoX.hugging_face = {
  types = {gpt_neox = "GPTNeoXForCausalLM"}, prefix = "gpt_neox.",
  settings = {layers = "num_hidden_layers", heads = "num_attention_heads", embd = "hidden_size",
              inner = "intermediate_size", context = "max_position_embeddings",
              vocab = "vocab_size"},
  optional = {eps = "layer_norm_eps", dropout = "attention_dropout", tied = "tie_word_embeddings",
              parallel = "use_parallel_residual", bias = "attention_bias"},
  fixed = {hidden_act = "gelu", hidden_dropout = 0},
  entries = rotary.with_entries {rotary_emb_base = "number", rotary_pct = "number"},
  repeats = {["embed_out.weight"] = "embed_in.weight"}, unused = {"%.attention%.bias$"},
}
local format = GPTNeoX.hugging_face

local outside = {["tok.weight"] = "embed_in.weight", ["head.weight"] = "/embed_out.weight",
                 ["norm.weight"] = "final_layer_norm.weight",
                 ["norm.bias"] = "final_layer_norm.bias"}
local inside = {norm1 = "input_layernorm", norm2 = "post_attention_layernorm",
                ["attn.proj"] = "attention.dense", ["mlp.up"] = "mlp.dense_h_to_4h",
                ["mlp.down"] = "mlp.dense_4h_to_h"}

-- Files store query, key and value head by head; qkv has all queries, then all keys, then values.
function format.name(path, c)
  if outside[path] then return outside[path] end
  local block, layer, kind = path:match "^blocks%.(%d+)%.(.+)%.(%w+)$"
  local function their(name) return ("layers.%d.%s.%s"):format(block - 1, name, kind) end
  if layer ~= "attn.qkv" then return inside[layer] and their(inside[layer]) end
  local parts, size = {}, c.embd / c.heads
  for which = 0, 2 do
    for head = 0, c.heads - 1 do
      parts[#parts + 1] = {their "attention.query_key_value", size, (3 * head + which) * size}
    end
  end
  return parts
end

-- transformers reads rope_theta and partial_rotary_factor in the parameters only.
function format.read(config)
  local p, kind = rotary.parameters(config)
  if not p then return nil, kind end
  if kind ~= "default" then return nil, ("rope_type is %s, not default"):format(kind) end
  local theta = p.rope_theta or config.rotary_emb_base
  local part = p.partial_rotary_factor or config.rotary_pct
  for name, used in pairs {rope_theta = theta, partial_rotary_factor = part} do
    if config[name] ~= nil and config[name] ~= used then
      return nil, ("%s is %g, but transformers takes %g from rope_parameters, rotary_emb_base and "
                   .. "rotary_pct"):format(name, config[name], used)
    end
  end
  local problem = rotary.problem({theta = theta}, {theta = p.rope_theta and "rope_theta"
                                                   or "rotary_emb_base"})
  if problem then return nil, problem end
  return {theta = theta, rotated = part}
end

function format.write(c) return {rotary_emb_base = c.theta, rotary_pct = c.rotated} end

return GPTNeoX
