-- OLMo 2 (OLMo team 2024): Llama's blocks with the norms behind attention and MLP instead of before
-- them, and with norms of all queries and all keys.
-- Shapes: B sequences, T tokens each, C = embd, V = vocab; H query and K key/value heads of D.
local nn, rotary = require "nn", require "nn.models.rotary"
local field = nn.field

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"

--- OLMo2{layers, heads, embd, kv_heads=heads, inner=8/3 embd, context=4096, vocab=100352, ...} -> a
--- model with random weights. `nnlua recipes/train.lua model=olmo2 --help` lists all settings.
--- Errors: missing, unknown or invalid settings.
---     OLMo2({layers = 2, heads = 4, kv_heads = 2, embd = 32, vocab = 65}):count()  --> 28992
local OLMo2 = nn.decoder("OLMo2", function()
  return rotary.with_fields {
    layers = field(4, "transformer blocks", {min = 1, needed = true}),
    heads = field(4, "query heads; embd must be a multiple", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    kv_heads = field(0, "key/value heads, a divisor of heads; 0: as many as heads", {min = 0}),
    inner = field(0, "hidden size of the MLP; 0: 8/3 embd, in steps of 32", {min = 0}),
    context = field(4096, "context length in tokens", {min = 1}),
    vocab = field(100352, "vocabulary size", {min = 1}),
    tied = field(false, "the head is the token embedding"),
    bias = field(false, "attention has biases"),
    eps = field(1e-5, "added to the mean square in norms", {min = 0}),
    dropout = field(0, "dropout of attention in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

function Attention:init(c)
  local dim, norm = c.embd / c.heads, {eps = c.eps, dtype = c.dtype}
  self.query, self.key = c.heads * dim, c.kv_heads * dim            -- widths
  self.shape = {heads = c.heads, kv_heads = c.kv_heads, dropout = c.dropout}
  self.rope = rotary.options(c)
  self.qkv = nn.Linear(c.embd, self.query + 2 * self.key, {bias = c.bias, dtype = c.dtype})
  self.q_norm, self.k_norm = nn.RMSNorm(self.query, norm), nn.RMSNorm(self.key, norm)
  self.proj = nn.Linear(self.query, c.embd, {bias = c.bias, dtype = c.dtype})
end

-- (B,T,C) -> (B,T,C). past: see nn.attend.
function Attention:forward(x, past)
  local qkv, query, key = self.qkv(x), self.query, self.key
  local q, k = qkv:slice(3, 1, query), qkv:slice(3, query + 1, query + key)
  local v = qkv:slice(3, query + key + 1, query + 2 * key)
  local normed = nn.cat({self.q_norm(q), self.k_norm(k), v}, 3)
  return self.proj(nn.attend(rotary.rotate(normed, past, self.rope), past, self.shape))
end

function MLP:init(c)
  self.up = nn.Linear(c.embd, 2 * c.inner, {glu = "silu", bias = false, dtype = c.dtype})
  self.down = nn.Linear(c.inner, c.embd, {bias = false, dtype = c.dtype})
end

function MLP:forward(x) return self.down(self.up(x)) end

function Block:init(c)
  local norm = {eps = c.eps, dtype = c.dtype}
  self.attn, self.norm1 = Attention(c), nn.RMSNorm(c.embd, norm)
  self.mlp, self.norm2 = MLP(c), nn.RMSNorm(c.embd, norm)
end

-- x: the residual stream, delta: the output of the previous block, to be added to x.
function Block:forward(x, delta, past)
  if delta then x = x + delta end
  x = x + self.norm1(self.attn(x, past))
  return x, self.norm2(self.mlp(x))
end

function OLMo2:init(config)
  local c = self:configure(config)
  if c.inner == 0 then c.inner = math.ceil(c.embd / 12) * 32 end
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.blocks = nn.list(c.layers, function() return Block(c) end)
  self.norm = nn.RMSNorm(c.embd, {eps = c.eps, dtype = c.dtype})
  if not c.tied then self.head = nn.Linear(c.embd, c.vocab, {bias = false, dtype = c.dtype}) end
end

function OLMo2:embed(ids) return self.tok(ids) end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

OLMo2.hugging_face = {
  types = {olmo2 = "Olmo2ForCausalLM"}, prefix = "model.",
  settings = {layers = "num_hidden_layers", heads = "num_attention_heads", embd = "hidden_size",
              inner = "intermediate_size", context = "max_position_embeddings",
              vocab = "vocab_size"},
  optional = {kv_heads = "num_key_value_heads", eps = "rms_norm_eps", bias = "attention_bias",
              tied = "tie_word_embeddings", dropout = "attention_dropout"},
  fixed = {hidden_act = "silu"}, entries = rotary.with_entries {}, read = rotary.read,
  write = rotary.write,
  repeats = {["lm_head.weight"] = "embed_tokens.weight"},
}

local outside = {["tok.weight"] = "embed_tokens.weight", ["norm.weight"] = "norm.weight",
                 ["head.weight"] = "/lm_head.weight"}
local inside = {norm1 = "post_attention_layernorm", norm2 = "post_feedforward_layernorm",
                ["attn.proj"] = "self_attn.o_proj", ["mlp.down"] = "mlp.down_proj",
                ["attn.q_norm"] = "self_attn.q_norm", ["attn.k_norm"] = "self_attn.k_norm"}

function OLMo2.hugging_face.name(path, c)
  if outside[path] then return outside[path] end
  local block, layer, kind = path:match "^blocks%.(%d+)%.(.+)%.(%w+)$"
  local function their(name) return ("layers.%d.%s.%s"):format(block - 1, name, kind) end
  if layer == "mlp.up" then
    return {{their "mlp.gate_proj", c.inner}, {their "mlp.up_proj", c.inner}}
  elseif layer ~= "attn.qkv" then
    return inside[layer] and their(inside[layer])
  end
  local key = c.embd / c.heads * c.kv_heads
  return {{their "self_attn.q_proj", c.embd}, {their "self_attn.k_proj", key},
          {their "self_attn.v_proj", key}}
end

return OLMo2
