-- BERT (Devlin et al. 2018), RoBERTa (Liu et al. 2019), and XLM-R and CamemBERT, which are RoBERTas
-- with other vocabularies: encoders that see the text in both directions, with a head that predicts
-- masked tokens, one that classifies the text, or none.
-- Post-LayerNorm blocks, learned positions and token types, exact GELU, head tied to the token
-- embedding. Shapes: B sequences, T tokens each, C = embd, V = vocab.
local nn, field, entries = require "nn", require("nn").field, require "nn.models.config_entries"

local Attention, MLP, Block = nn.module "Attention", nn.module "MLP", nn.module "Block"
local problems = {choices = entries.problem_types}

--- Bert{layers, heads, embd, inner=4 embd, context=512, vocab=30522, types=2, labels=0,
--- problem_type="single_label_classification", family="bert", pad=0, eps=1e-12, dropout=0,
--- dtype="f32"} -> a model with random weights. labels: 0 for a head that predicts masked tokens,
--- else the number of classes of a head that classifies by the first token; -1 for no head: the
--- result is h (B,T,C) of the last block, for embeddings.
--- RoBERTa has family "roberta" and pad 1, and "xlm-roberta" and "camembert" as well; its positions
--- count the tokens that are not `pad`. Errors: missing or invalid settings.
---     Bert({layers = 2, heads = 2, embd = 32, context = 64, vocab = 65}):count()  --> 30849
local Bert = nn.encoder("Bert", function()
  return {
    layers = field(4, "blocks", {min = 1, needed = true}),
    heads = field(4, "attention heads; embd must be a multiple", {min = 1, needed = true}),
    embd = field(128, "hidden size", {min = 1, needed = true}),
    inner = field(0, "hidden size of the MLP; 0: 4 embd", {min = 0}),
    context = field(512, "context length in tokens", {min = 1}),
    vocab = field(30522, "vocabulary size", {min = 1}),
    types = field(2, "token types, such as the first and the second text", {min = 1}),
    labels = field(0, "classes of texts; 0: predict masked tokens; -1: no head", {min = -1}),
    problem_type = field("single_label_classification", "of texts; others have no loss", problems),
    family = field("bert", "of the weights' names and positions",
                   {choices = {"bert", "roberta", "xlm-roberta", "camembert"}}),
    pad = field(0, "id of padding; RoBERTa's positions begin after row `pad`", {min = 0}),
    eps = field(1e-12, "added to the variance in norms", {min = 0}),
    dropout = field(0, "dropout probability in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end)

function Attention:init(c)
  self.heads, self.dropout = c.heads, c.dropout
  self.qkv = nn.Linear(c.embd, 3 * c.embd, {dtype = c.dtype})
  self.proj = nn.Linear(c.embd, c.embd, {dtype = c.dtype})
end

-- (B,T,C) -> (B,T,C). mask: (B,T), 0 for padding, or nil.
function Attention:forward(x, mask)
  return self.proj(nn.attend(self.qkv(x), nil, {
    heads = self.heads, causal = false, mask = mask, dropout = self.dropout,
  }))
end

function MLP:init(c)
  self.up = nn.Linear(c.embd, c.inner, {dtype = c.dtype})
  self.down = nn.Linear(c.inner, c.embd, {dtype = c.dtype})
end

function MLP:forward(x) return self.down(nn.gelu_exact(self.up(x))) end

local function norm_of(c) return nn.LayerNorm(c.embd, {eps = c.eps, dtype = c.dtype}) end

function Block:init(c)
  self.attn, self.norm1 = Attention(c), norm_of(c)
  self.mlp, self.norm2 = MLP(c), norm_of(c)
  self.drop = nn.Dropout(c.dropout)
end

function Block:forward(x, mask)
  local _, h = self.norm1(x, self.drop(self.attn(x, mask)))      -- the norm of the sum
  local _, y = self.norm2(h, self.drop(self.mlp(h)))
  return y
end

-- Rows of the table of positions that RoBERTa does not use.
local function first_row(c) return c.family ~= "bert" and c.pad + 1 or 0 end

function Bert:init(config)
  local c = self:configure(config)
  if c.inner == 0 then c.inner = 4 * c.embd end
  self.tok = nn.Embedding(c.vocab, c.embd, {axes = "vocab,embd", dtype = c.dtype})
  self.pos = nn.Embedding(first_row(c) + c.context, c.embd, {dtype = c.dtype})
  self.type = nn.Embedding(c.types, c.embd, {dtype = c.dtype})
  self.norm, self.drop = norm_of(c), nn.Dropout(c.dropout)
  self.blocks = nn.list(c.layers, function() return Block(c) end)
  if c.labels >= 0 then self.dense = nn.Linear(c.embd, c.embd, {dtype = c.dtype}) end
  if c.labels > 0 then
    self.head = nn.Linear(c.embd, c.labels, {dtype = c.dtype})
  elseif c.labels == 0 then
    self.head_norm, self.bias = norm_of(c), nn.parameter({c.vocab}, {dtype = c.dtype})
  end
end

-- The positions of RoBERTa count the tokens that are not padding, which has row `pad`.
function Bert:embed(ids, types)
  local counted = self.config.family ~= "bert" and ids:ne(self.config.pad):to "i32"
  local x = not counted and self.tok(ids, self.pos)
    or self.tok(ids) + self.pos(counted:cumsum {axis = 2} * counted + self.config.pad)
  x = x + (types and self.type(types) or self.type.weight:slice(1, 1, 1))
  return self.drop(self.norm(x))
end

function Bert:transform(h) return self.head_norm(nn.gelu_exact(self.dense(h))) end

function Bert:classify(h)
  local batch, _, embd = h:dims()
  local first = h:slice(2, 1, 1):reshape(batch, embd)
  return self.head(self.drop(self.dense(first):tanh()))
end

-- ### The format of Hugging Face's transformers (see lua/nn/models/hugging_face.lua)

Bert.hugging_face = {
  types = {bert = "BertForMaskedLM", roberta = "RobertaForMaskedLM",
           ["xlm-roberta"] = "XLMRobertaForMaskedLM", camembert = "CamembertForMaskedLM"},
  heads = {"ForMaskedLM", "ForPreTraining", "ForSequenceClassification", "Model"},
  variants = {roberta = "model.family=roberta", camembert = "model.family=camembert",
              ["xlm-roberta"] = "model.family=xlm-roberta"},
  settings = {layers = "num_hidden_layers", heads = "num_attention_heads", embd = "hidden_size",
              inner = "intermediate_size", vocab = "vocab_size", types = "type_vocab_size"},
  optional = {eps = "layer_norm_eps"},
  fixed = {hidden_act = "gelu", position_embedding_type = "absolute", is_decoder = false,
           add_cross_attention = false, tie_word_embeddings = true},
  entries = {num_labels = "whole", pad_token_id = "whole", id2label = "any", problem_type = "text",
             max_position_embeddings = "whole"},
  repeats = {["cls.predictions.decoder.weight"] = "bert.embeddings.word_embeddings.weight",
             ["cls.predictions.decoder.bias"] = "cls.predictions.bias",
             ["lm_head.decoder.weight"] = "roberta.embeddings.word_embeddings.weight",
             ["lm_head.decoder.bias"] = "lm_head.bias"},
  unused = {"^%a+%.pooler%.", "^pooler%.", "^cls%.seq_relationship%."},  -- for classes of texts
}
local format = Bert.hugging_face

local outside = {tok = "embeddings.word_embeddings", pos = "embeddings.position_embeddings",
                 type = "embeddings.token_type_embeddings", norm = "embeddings.LayerNorm"}
local inside = {["attn.proj"] = "attention.output.dense", norm1 = "attention.output.LayerNorm",
                ["mlp.up"] = "intermediate.dense", ["mlp.down"] = "output.dense",
                norm2 = "output.LayerNorm"}
local heads = {
  bert = {dense = "cls.predictions.transform.dense", bias = "cls.predictions.bias",
          head_norm = "cls.predictions.transform.LayerNorm"},
  roberta = {dense = "lm_head.dense", bias = "lm_head.bias", head_norm = "lm_head.layer_norm"},
}
local classifiers = {bert = {dense = "bert.pooler.dense", head = "classifier"},
                     roberta = {dense = "classifier.dense", head = "classifier.out_proj"}}

function format.name(path, c)
  local family = c.family == "bert" and "bert" or "roberta"
  local head = c.labels < 0 and {} or (c.labels > 0 and classifiers or heads)[family]
  local prefix = c.labels < 0 and "" or family .. "."             -- a BertModel has none
  if path == "bias" then return head.bias end
  local layer, kind = path:match "^(.+)%.(%w+)$"
  if head[layer] then return head[layer] .. "." .. kind end
  if outside[layer] then return ("%s%s.%s"):format(prefix, outside[layer], kind) end
  local block, within = layer:match "^blocks%.(%d+)%.(.+)$"
  local function their(name)
    return ("%sencoder.layer.%d.%s.%s"):format(prefix, block - 1, name, kind)
  end
  if within ~= "attn.qkv" then return inside[within] and their(inside[within]) end
  return {{their "attention.self.query", c.embd}, {their "attention.self.key", c.embd},
          {their "attention.self.value", c.embd}}
end

-- Released files of BERT have the names of TensorFlow.
function format.old_name(name)
  return (name:gsub("LayerNorm%.weight$", "LayerNorm.gamma"):gsub("LayerNorm%.bias$",
                                                                  "LayerNorm.beta"))
end

function format.read(config)
  local out = {family = config.model_type, pad = config.pad_token_id or 0}
  local labels, problem = entries.labels(config, format.types[out.family])
  if out.family ~= "bert" and not config.pad_token_id then problem = "pad_token_id is null" end
  out.labels, out.problem_type = labels, config.problem_type or labels == 1 and "regression" or nil
  out.context = config.max_position_embeddings - first_row(out)
  if out.context < 1 then problem = "max_position_embeddings leaves no positions to tokens" end
  if problem then return nil, problem end
  return out
end

function format.write(c)
  local out = {model_type = c.family, max_position_embeddings = first_row(c) + c.context,
               pad_token_id = c.pad,
               hidden_dropout_prob = c.dropout, attention_probs_dropout_prob = c.dropout}
  if c.labels == 0 then return out end
  local ending = c.labels < 0 and "Model" or "ForSequenceClassification"
  out.architectures = {(format.types[c.family]:gsub("ForMaskedLM", ending))}
  return c.labels > 0 and entries.add_labels(out, c) or out
end

return Bert
