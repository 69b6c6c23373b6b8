-- How families of models that nnlua does not have differ from those it has, by model_type, for the
-- error on their folders. A family that a file in models/ describes needs no entry.
local M = {}

local experts = "its MLPs are mixtures of experts"
local state_space = "it has state-space layers instead of attention"
local images = "it reads images"
local sound = "it reads sound"
local encoder = "it is an encoder, but neither a BERT nor a RoBERTa"
local pair = "its encoder and decoder have position embeddings, not T5's bias by distance"

local differences = {
  distilbert = encoder, electra = encoder, albert = encoder,
  modernbert = encoder, mpnet = encoder,
  deberta = "it is an encoder with disentangled attention",
  ["deberta-v2"] = "it is an encoder with disentangled attention",
  bart = pair, pegasus = pair, mbart = pair, marian = pair,
  mt5 = "it is a T5 1.1 for many languages, which is not tested",
  mixtral = experts, qwen2_moe = experts, qwen3_moe = experts, olmoe = experts, dbrx = experts,
  phimoe = experts, gpt_oss = experts .. ", and its attention has sinks",
  deepseek_v2 = experts .. ", and its keys and values are compressed",
  deepseek_v3 = experts .. ", and its keys and values are compressed",
  gemma = "its norms scale by 1 + weight, and its embeddings are scaled",
  gemma2 = "it has norms before and after each layer, and caps scores and logits",
  gemma3 = images .. ", and has two bases of rotary frequencies",
  gemma3_text = "it has two bases of rotary frequencies, by layer",
  phi = "its head has a bias, and it rotates a part of each head",
  phi3 = "its projections are stored as one tensor, and its rotary scaling is longrope",
  falcon = "attention and MLP share one norm, with one key/value head",
  bloom = "it has ALiBi instead of rotary positions",
  mpt = "it has ALiBi instead of rotary positions",
  opt = "its positions begin at 2, and its MLP uses ReLU",
  gptj = "it rotates pairs of neighbouring components",
  cohere = "attention and MLP share one norm, and its logits are scaled",
  cohere2 = "attention and MLP share one norm, and its logits are scaled",
  stablelm = "its norms are LayerNorms, and it rotates a part of each head",
  starcoder2 = "it has LayerNorms and a GELU MLP with rotary positions",
  granite = "its residuals, scores, embeddings and logits are scaled",
  smollm3 = "some of its layers have no rotary positions",
  nemotron = "its norms scale by 1 + weight, and its MLP squares a ReLU",
  olmo = "its norms have no weights",
  mamba = state_space, mamba2 = state_space, falcon_mamba = state_space,
  jamba = "some of its layers are state-space layers",
  rwkv = "it is recurrent and has no attention",
  recurrent_gemma = "some of its layers are recurrent",
  llava = images, qwen2_vl = images, qwen2_5_vl = images, mllama = images, idefics = images,
  idefics3 = images, paligemma = images, clip = images, siglip = images, vit = images,
  llama4 = images .. ", and " .. experts, mistral3 = images,
  whisper = sound, wav2vec2 = sound,
}

--- difference(model_type) -> how a family differs from those in models/, or nil if it is unknown.
function M.difference(model_type) return differences[model_type] end

return M
