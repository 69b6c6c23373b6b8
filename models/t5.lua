-- T5 (Raffel et al. 2019) and T5 1.1: an encoder reads a text in both directions, a decoder writes
-- another one. Pre-RMSNorm blocks without biases, attention without a scale but with a bias by the
-- distance of tokens. Shapes: B texts of T tokens, S tokens of their answers, C = embd, V = vocab.
local nn, field, entries = require "nn", require("nn").field, require "nn.models.config_entries"

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"

--- T5{layers, heads, embd, decoder_layers=layers, head_dim=embd/heads, inner=4 embd, vocab=32128,
--- buckets=32, max_distance=128, activation="relu", tied=true, dropout=0, ...} -> a model with
--- random weights, see nn.encoder_decoder. Errors: missing or invalid settings.
---     T5({layers = 2, heads = 2, embd = 32, inner = 64, vocab = 65}):count()  --> 43552
local T5 = nn.encoder_decoder("T5", function()
  return {
    layers = field(4, "blocks of the encoder", {min = 1, needed = true}),
    heads = field(4, "attention heads", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    decoder_layers = field(0, "blocks of the decoder; 0: as many as the encoder's", {min = 0}),
    head_dim = field(0, "size of a head; 0: embd / heads", {min = 0}),
    inner = field(0, "hidden size of the MLP; 0: 4 embd", {min = 0}),
    vocab = field(32128, "vocabulary size", {min = 1}),
    buckets = field(32, "buckets of distances", {min = 4, max = 128}),
    max_distance = field(128, "larger distances share a bucket", {min = 2}),
    activation = field("relu", "of the MLP; gelu and silu have a gate",
                       {choices = {"relu", "gelu", "silu"}}),
    tied = field(true, "the head is the token embedding"),
    scale_head = field("tied", "when the head divides by sqrt(embd): if it is tied, always, never",
                       {choices = {"tied", "always", "never"}}),
    start = field(0, "first input of the decoder (an id)", {min = 0}),
    pad = field(0, "id in place of ignored targets", {min = 0}),
    eps = field(1e-6, "added to the mean square in norms", {min = 0}),
    dropout = field(0, "dropout probability in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

local function linear(c, inputs, outputs, glu)
  return nn.Linear(inputs, outputs, {bias = false, glu = glu, dtype = c.dtype})
end
local function norm_of(c) return nn.RMSNorm(c.embd, {eps = c.eps, dtype = c.dtype}) end

-- kind: "encoder", "decoder", or "cross", in which x sees the text, by kv(text).
function Attention:init(c, kind)
  local width = c.heads * c.head_dim
  self.c, self.causal, self.proj = c, kind == "decoder", linear(c, width, c.embd)
  if kind ~= "cross" then self.qkv = linear(c, c.embd, 3 * width) return end
  self.q, self.kv = linear(c, c.embd, width), linear(c, c.embd, 2 * width)
end

-- past: see nn.attend. seen: kv(text).
function Attention:forward(x, bias, mask, past, seen)
  local c = self.c
  local o = {heads = c.heads, scale = 1, mask = mask, dropout = nn.training() and c.dropout or 0}
  if seen then return self.proj((nn.cross_attention(self.q(x), seen, o))) end
  o.causal, o.bias, o.max_distance = self.causal, bias, c.max_distance
  return self.proj(nn.attend(self.qkv(x), past, o))
end

function MLP:init(c)
  local gated = c.activation ~= "relu"
  self.relu, self.drop = not gated, nn.Dropout(c.dropout)      -- else `up` has a gate
  self.up = linear(c, c.embd, gated and 2 * c.inner or c.inner, gated and c.activation or nil)
  self.down = linear(c, c.inner, c.embd)
end

function MLP:forward(x)
  local h = self.up(x)
  return self.down(self.drop(self.relu and h:relu() or h))
end

-- decodes: in the decoder, where it also sees the text.
function Block:init(c, decodes)
  self.norm1, self.attn = norm_of(c), Attention(c, decodes and "decoder" or "encoder")
  if decodes then self.cross_norm, self.cross = norm_of(c), Attention(c, "cross") end
  self.norm2, self.mlp, self.drop = norm_of(c), MLP(c), nn.Dropout(c.dropout)
end

-- x: the residual stream, delta: what a norm adds to it. mask: that of the text.
function Block:forward(x, delta, bias, mask, seen, past)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  delta = self.drop(self.attn(h, bias, not seen and mask or nil, past))
  if seen then
    x, h = self.cross_norm(x, delta)
    delta = self.drop(self.cross(h, nil, mask, nil, seen))
  end
  x, h = self.norm2(x, delta)
  return x, self.drop(self.mlp(h))
end

function T5:init(config)
  local c = self:configure(config)
  if c.inner == 0 then c.inner = 4 * c.embd end
  if c.decoder_layers == 0 then c.decoder_layers = c.layers end
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.encoder_bias = nn.parameter({c.buckets, c.heads}, {std = 0.02, dtype = c.dtype})
  self.decoder_bias = nn.parameter({c.buckets, c.heads}, {std = 0.02, dtype = c.dtype})
  self.blocks = nn.list(c.layers, function() return Block(c, false) end)
  self.decoder = nn.list(c.decoder_layers, function() return Block(c, true) end)
  self.encoder_norm, self.norm, self.drop = norm_of(c), norm_of(c), nn.Dropout(c.dropout)
  if not c.tied then self.head = linear(c, c.embd, c.vocab) end
end

local function run(self, blocks, norm, ids, bias, mask, text, past)
  local x, delta = self.drop(self.tok(ids)), nil
  for i, b in ipairs(blocks) do x, delta = b(x, delta, bias, mask, text[i], past[i]) end
  return self.drop((select(2, norm(x, delta))))
end

local function is_scaled(c) return c.scale_head == "tied" and c.tied or c.scale_head == "always" end

function T5:encode(ids, mask)
  return run(self, self.blocks, self.encoder_norm, ids, self.encoder_bias, mask, {}, {})
end

function T5:decode(inputs, text, mask, past)
  local h = run(self, self.decoder, self.norm, inputs, self.decoder_bias, mask, text, past or {})
  return is_scaled(self.config) and h * self.config.embd ^ -0.5 or h
end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

T5.hugging_face = {
  types = {t5 = "T5ForConditionalGeneration"}, fixed = {is_encoder_decoder = true},
  settings = {layers = "num_layers", heads = "num_heads", embd = "d_model", head_dim = "d_kv",
              inner = "d_ff", vocab = "vocab_size", buckets = "relative_attention_num_buckets"},
  optional = {decoder_layers = "num_decoder_layers", eps = "layer_norm_epsilon",
              max_distance = "relative_attention_max_distance", pad = "pad_token_id",
              start = "decoder_start_token_id"},
  entries = {scale_decoder_outputs = "boolean", tie_word_embeddings = "boolean",
             feed_forward_proj = "text", dense_act_fn = "text", is_gated_act = "boolean"},
  aliases = {hidden_size = "d_model", num_attention_heads = "num_heads", head_dim = "d_kv",
             num_hidden_layers = "num_layers"},
  repeats = {["lm_head.weight"] = "shared.weight", ["encoder.embed_tokens.weight"] =
             "shared.weight", ["decoder.embed_tokens.weight"] = "shared.weight"},
  unused = {"^decoder%.block%.0%.layer%.1%.EncDecAttention%.relative_attention_bias%.weight$"},
}
local format = T5.hugging_face
local outside = {
  ["tok.weight"] = "shared.weight", ["head.weight"] = "lm_head.weight",
  ["encoder_norm.weight"] = "encoder.final_layer_norm.weight",
  ["norm.weight"] = "decoder.final_layer_norm.weight",
  encoder_bias = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
  decoder_bias = "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
}

-- The number of the sublayer in a block, and the name. The last is 1 in the encoder, else 2.
local inside = {
  norm1 = {0, "layer_norm"}, ["attn.proj"] = {0, "SelfAttention.o"},
  cross_norm = {1, "layer_norm"}, ["cross.q"] = {1, "EncDecAttention.q"},
  ["cross.proj"] = {1, "EncDecAttention.o"}, norm2 = {"last", "layer_norm"},
  ["mlp.up"] = {"last", "DenseReluDense.wi"}, ["mlp.down"] = {"last", "DenseReluDense.wo"},
}

function format.name(path, c)
  if outside[path] then return outside[path] end
  local stack, block, layer, kind = path:match "^(%w+)%.(%d+)%.([%w._]+)%.(%w+)$"
  local width, encodes = c.heads * c.head_dim, stack == "blocks"
  local function their(number, name)
    if number == "last" then number = encodes and 1 or 2 end
    return ("%s.block.%d.layer.%d.%s.%s"):format(encodes and "encoder" or "decoder", block - 1,
                                                number, name, kind)
  end
  local function parts(number, name, endings, rows)
    local out = {}
    for ending in endings:gmatch "." do out[#out + 1] = {their(number, name .. ending), rows} end
    return out
  end
  if layer == "attn.qkv" then return parts(0, "SelfAttention.", "qkv", width) end
  if layer == "cross.kv" then return parts(1, "EncDecAttention.", "kv", width) end
  local gated = layer == "mlp.up" and c.activation ~= "relu"
  if gated then return parts("last", "DenseReluDense.wi_", "01", c.inner) end
  return inside[layer] and their(unpack(inside[layer]))
end

-- transformers 5 writes tie_word_embeddings = true in all folders; older versions decided by it.
function format.read(config)
  local activation, problem = entries.of_t5(config)
  if not activation then return nil, problem end
  local tied, scaled = config.tie_word_embeddings ~= false, config.scale_decoder_outputs
  if scaled == nil then scaled = tied end
  return {activation = activation, tied = tied, scale_head = scaled and "always" or "never"}
end

function format.write(c)
  return {dropout_rate = c.dropout, scale_decoder_outputs = is_scaled(c),
          tie_word_embeddings = c.tied,
          feed_forward_proj = (c.activation == "relu" and "" or "gated-") .. c.activation}
end

return T5
