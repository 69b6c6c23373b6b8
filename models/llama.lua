-- Llama (Touvron et al. 2023) and the models built like it, by settings: Llama 2 and 3, TinyLlama,
-- SmolLM, Mistral, Qwen 2, 2.5, 3. Pre-RMSNorm blocks, rotary positions, grouped queries, SwiGLU.
-- Shapes: B sequences, T tokens each, C = embd, V = vocab; H query and K key/value heads of D.
local nn, rotary = require "nn", require "nn.models.rotary"
local entries, field = require "nn.models.config_entries", nn.field

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"

--- Llama{layers, heads, embd, kv_heads=heads, head_dim=embd/heads, inner=8/3 embd, context=2048,
--- vocab=32000, tied=false, bias="none", qk_norm=false, window=0, theta=10000, ...} -> a model with
--- random weights. `nnlua recipes/train.lua model=llama --help` lists all. Error: invalid settings.
---     Llama({layers = 2, heads = 4, kv_heads = 2, embd = 32, vocab = 65}):count()  --> 28896
local Llama = nn.decoder("Llama", function()
  return rotary.with_fields {
    layers = field(4, "transformer blocks", {min = 1, needed = true}),
    heads = field(4, "query heads", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    kv_heads = field(0, "key/value heads, a divisor of heads; 0: as many as heads", {min = 0}),
    head_dim = field(0, "size of a head, even; 0: embd / heads", {min = 0}),
    inner = field(0, "hidden size of the MLP; 0: 8/3 embd, in steps of 32", {min = 0}),
    context = field(2048, "context length in tokens", {min = 1}),
    vocab = field(32000, "vocabulary size", {min = 1}),
    tied = field(false, "the head is the token embedding"),
    bias = field("none", "layers with a bias", {choices = {"none", "qkv", "attention", "all"}}),
    qk_norm = field(false, "RMSNorm of each query and key head"),
    window = field(0, "a token sees the newest `window` tokens; 0: all", {min = 0}),
    window_from = field(0, "the blocks before this one (from 0) have no window", {min = 0}),
    activation = field("silu", "of the MLP's gate", {choices = {"silu", "gelu", "gelu_exact"}}),
    eps = field(1e-5, "added to the mean square in norms", {min = 0}),
    dropout = field(0, "dropout of attention in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

-- How many tokens a token sees in a block (from 1); 0: all.
function Llama.window(c, layer) return layer > c.window_from and c.window or 0 end

function Attention:init(c, layer)
  local width, biased = (c.heads + 2 * c.kv_heads) * c.head_dim, c.bias ~= "none"
  self.shape = {heads = c.heads, kv_heads = c.kv_heads, dropout = c.dropout,
                window = Llama.window(c, layer)}
  self.rope = rotary.options(c)
  self.qkv = nn.Linear(c.embd, width, {bias = biased, dtype = c.dtype})
  self.proj = nn.Linear(c.heads * c.head_dim, c.embd,
                        {bias = biased and c.bias ~= "qkv", dtype = c.dtype})
  if not c.qk_norm then return end
  self.q_norm = nn.RMSNorm(c.head_dim, {eps = c.eps, dtype = c.dtype})
  self.k_norm = nn.RMSNorm(c.head_dim, {eps = c.eps, dtype = c.dtype})
end

-- Normalises the heads of queries and keys in qkv (B,T,(H+2K)D).
function Attention:normalised(qkv)
  local batch, time, width = qkv:dims()
  local heads, kv_heads, dim = self.shape.heads, self.shape.kv_heads, self.q_norm.size
  local x = qkv:reshape(batch, time, width / dim, dim)
  local q, k = x:slice(3, 1, heads), x:slice(3, heads + 1, heads + kv_heads)
  local v = x:slice(3, heads + kv_heads + 1, heads + 2 * kv_heads)
  return nn.cat({self.q_norm(q), self.k_norm(k), v}, 3):reshape(batch, time, width)
end

-- (B,T,C) -> (B,T,C). past: see nn.attend.
function Attention:forward(x, past)
  local qkv = self.q_norm and self:normalised(self.qkv(x)) or self.qkv(x)
  return self.proj(nn.attend(rotary.rotate(qkv, past, self.rope), past, self.shape))
end

function MLP:init(c)
  local bias = c.bias == "all"
  self.up = nn.Linear(c.embd, 2 * c.inner, {glu = c.activation, bias = bias, dtype = c.dtype})
  self.down = nn.Linear(c.inner, c.embd, {bias = bias, dtype = c.dtype})
end

function MLP:forward(x) return self.down(self.up(x)) end

function Block:init(c, layer)
  local norm = {eps = c.eps, dtype = c.dtype}
  self.norm1, self.attn = nn.RMSNorm(c.embd, norm), Attention(c, layer)
  self.norm2, self.mlp = nn.RMSNorm(c.embd, norm), MLP(c)
end

-- x: the residual stream, delta: the output of the previous layer, which norm1 adds to x.
function Block:forward(x, delta, past)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  x, h = self.norm2(x, self.attn(h, past))
  return x, self.mlp(h)
end

function Llama:init(config)
  local c = self:configure(config)
  if c.inner == 0 then c.inner = math.ceil(c.embd / 12) * 32 end
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.blocks = nn.list(c.layers, function(layer) return Block(c, layer) end)
  self.norm = nn.RMSNorm(c.embd, {eps = c.eps, dtype = c.dtype})
  if not c.tied then self.head = nn.Linear(c.embd, c.vocab, {bias = false, dtype = c.dtype}) end
end

function Llama:embed(ids) return self.tok(ids) end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

Llama.hugging_face = {
  prefix = "model.",
  repeats = {["lm_head.weight"] = "embed_tokens.weight"},
  types = {llama = "LlamaForCausalLM", mistral = "MistralForCausalLM", qwen2 = "Qwen2ForCausalLM",
           qwen3 = "Qwen3ForCausalLM"},
  variants = {mistral = "model.window=4096", qwen2 = "model.bias=qkv",
              qwen3 = "model.qk_norm=true"},
  settings = {layers = "num_hidden_layers", heads = "num_attention_heads", embd = "hidden_size",
              inner = "intermediate_size", context = "max_position_embeddings",
              vocab = "vocab_size"},
  optional = {kv_heads = "num_key_value_heads", head_dim = "head_dim", eps = "rms_norm_eps",
              tied = "tie_word_embeddings", dropout = "attention_dropout"},
  entries = rotary.with_entries {
    hidden_act = "text", attention_bias = "boolean", mlp_bias = "boolean",
    use_sliding_window = "boolean", sliding_window = "whole", max_window_layers = "whole"},
}
local format = Llama.hugging_face
local theirs = {silu = "silu", gelu = "gelu_pytorch_tanh", gelu_exact = "gelu"}

local outside = {["tok.weight"] = "embed_tokens.weight", ["norm.weight"] = "norm.weight",
                 ["head.weight"] = "/lm_head.weight"}
local inside = {norm1 = "input_layernorm", norm2 = "post_attention_layernorm",
                ["attn.proj"] = "self_attn.o_proj", ["mlp.down"] = "mlp.down_proj",
                ["attn.q_norm"] = "self_attn.q_norm", ["attn.k_norm"] = "self_attn.k_norm"}

function format.name(path, c)
  if outside[path] then return outside[path] end
  local block, layer, kind = path:match "^blocks%.(%d+)%.(.+)%.(%w+)$"
  local function their(name) return ("layers.%d.%s.%s"):format(block - 1, name, kind) end
  local query, key = c.heads * c.head_dim, c.kv_heads * c.head_dim
  if layer == "attn.qkv" then
    return {{their "self_attn.q_proj", query}, {their "self_attn.k_proj", key},
            {their "self_attn.v_proj", key}}
  elseif layer == "mlp.up" then
    return {{their "mlp.gate_proj", c.inner}, {their "mlp.up_proj", c.inner}}
  end
  return inside[layer] and their(inside[layer])
end

-- Adds the settings that depend on the type -> out; or nil and the problem.
local function read_type(config, out)
  local kind, qwen = config.model_type, config.model_type:find "^qwen" ~= nil
  out.qk_norm = kind == "qwen3"
  out.bias = kind == "qwen2" and "qkv" or config.attention_bias and "attention" or "none"
  if kind == "llama" and config.mlp_bias then out.bias = config.attention_bias and "all" end
  if not out.bias then return nil, "mlp_bias is true, attention_bias is not" end
  local slides = kind == "mistral" or qwen and config.use_sliding_window
  if slides and config.sliding_window == 0 then
    return nil, "sliding_window is 0; null, or at least 1, is needed"
  end
  out.window = slides and config.sliding_window or 0
  out.window_from = qwen and slides and config.max_window_layers or 0
  return out
end

function format.read(config)
  local out, problem = rotary.read(config)
  if not out then return nil, problem end
  out.activation = entries.activation(config.hidden_act)
  if out.activation and out.activation ~= "relu" then return read_type(config, out) end
  return nil, ("hidden_act is %s; silu or gelu is needed"):format(config.hidden_act)
end

-- The type of transformers that computes the same function, or false.
local function type_of(c)
  if c.qk_norm then return (c.bias == "none" or c.bias == "attention") and "qwen3" end
  if c.bias == "qkv" or c.window == 0 then return c.bias == "qkv" and "qwen2" or "llama" end
  return c.bias == "none" and c.window_from == 0 and "mistral"
end

function format.write(c)
  local kind, out = type_of(c), rotary.write(c)
  if not kind then nn.fail "save_hf: transformers has no model of this bias, qk_norm and window" end
  out.model_type, out.hidden_act = kind, theirs[c.activation]
  out.use_sliding_window = kind:find "^qwen" and c.window > 0 or nil
  out.max_window_layers = kind:find "^qwen" and c.window_from or nil
  out.sliding_window = c.window > 0 and c.window or nil
  out.attention_bias, out.mlp_bias = c.bias == "attention" or c.bias == "all", c.bias == "all"
  return out
end

return Llama
