-- Folders of Hugging Face models whose tensors and config.json do not fit: no tensor is ignored in
-- silence, and the error names it. tests/lua/models/configs.lua has malformed config.json files.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small = require "small_models"
local folder = t.folder()
local groups = {bert = "encoders", roberta = "encoders", bert_classes = "encoders",
                xlm_roberta = "encoders", t5 = "encoder_decoders", t5_gated = "encoder_decoders"}

-- The folder of a model in tests/golden, after change(config, tensors).
local count = 0
local function changed(name, change)
  local config, tensors = small.read(("%s/tests/golden/%s/%s"):format(
    root, groups[name] or "decoders", name))
  config = files.parse_json(config)
  change(config, tensors)
  count = count + 1
  local path = ("%s/%s_%d"):format(folder, name, count)
  small.write_folder(path, config, tensors)
  return path
end

local function refused(name, expected, change)
  local path = changed(name, change)
  t.fails(function() nn.load_hf(path) end, expected)
  return path
end

local function loads(name, change) return nn.load_hf(changed(name, change)) end

-- Checksums of the parameters.
local function sums(model)
  local out = {}
  for _, p in ipairs(model:parameters()) do
    out[p.path] = files.crc32(p.tensor:host(), p.tensor:bytes())
  end
  return out
end

-- A change that adds tensors of ones.
local function adds(...)
  local names = {...}
  return function(_, tensors)
    for _, name in ipairs(names) do tensors[name] = nn.ones(3) end
  end
end

t.case("tensors that the model does not read are refused by name", function()
  local added = {
    llama = {"model.layers.0.self_attn.q_proj.bias", "model.layers.1.mlp.up_proj.bias",
             "model.layers.2.input_layernorm.weight", "model.norm.bias", "score.weight",
             "model.layers.0.self_attn.q_norm.weight", "lm_head.bias"},
    qwen2 = {"model.layers.0.self_attn.o_proj.bias", "model.layers.0.self_attn.k_norm.weight"},
    qwen3 = {"model.layers.1.self_attn.v_proj.bias"},
    mistral = {"model.layers.0.block_sparse_moe.gate.weight"},
    olmo2 = {"model.layers.0.input_layernorm.weight"},
    gpt2 = {"v_head.summary.weight", "transformer.h.0.crossattention.c_attn.weight",
            "transformer.h.2.ln_1.weight", "transformer.h.0.attn.c_attn.lora_A.weight"},
    gpt_neo = {"transformer.h.0.attn.attention.q_proj.bias"},
    gpt_neox = {"gpt_neox.layers.0.attention.query_key_value.scale"},
    bert = {"classifier.weight", "bert.encoder.layer.0.intermediate.dense.scale"},
    roberta = {"roberta.encoder.layer.2.output.dense.bias"},
    xlm_roberta = {"classifier.dense.weight"},
    bert_classes = {"cls.predictions.bias"},
    t5 = {"encoder.block.0.layer.1.DenseReluDense.wi_0.weight", "classification_head.dense.bias",
          "decoder.block.1.layer.0.layer_norm.weight"},
  }
  for name, list in pairs(added) do
    local expected = sums(loads(name, function() end))
    for _, tensor in ipairs(list) do
      local path = refused(name, "has 1 tensor that nnlua's", adds(tensor))
      t.fails(function() nn.load_model(path) end, ("does not read, so it would compute something "
              .. "else: '%s' (3). nn.load_hf(FOLDER, {unread"):format(tensor))
      t.same(sums(nn.load_hf(path, {unread = "ignore"})), expected, tensor)
    end
  end
  local path = changed("llama", adds("a", "b", "c", "d", "e", "f"))
  t.fails(function() nn.load_hf(path) end, "has 6 tensors that nnlua's Llama with this config.json")
  t.fails(function() nn.load_hf(path) end, "'a' (3), 'b' (3), 'c' (3), 'd' (3) and 2 more.")
  t.fails(function() nn.load_hf(path, {unread = true}) end, "unread is true; refuse or ignore")
end)

t.case("layers that config.json does not count are refused", function()
  refused("llama", "has 9 tensors", function(config) config.num_hidden_layers = 1 end)
  refused("llama", "'model.layers.1.input_layernorm.weight'", function(config)
    config.num_hidden_layers = 1
  end)
  refused("gpt2", "'transformer.h.1.attn.c_attn.bias'", function(c) c.n_layer = 1 end)
  refused("bert", "'bert.encoder.layer.1.", function(c) c.num_hidden_layers = 1 end)
  refused("t5", "'encoder.block.1.", function(c) c.num_layers = 1 end)
end)

t.case("tensors that a model does without are accepted", function()
  loads("llama", adds("model.layers.0.self_attn.rotary_emb.inv_freq"))
  loads("gpt2", adds("transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias"))
  loads("gpt_neo", adds("transformer.h.0.attn.attention.bias",
                        "transformer.h.1.attn.attention.masked_bias"))
  loads("gpt_neox", adds("gpt_neox.layers.0.attention.bias", "gpt_neox.layers.0.attention."
                         .. "masked_bias", "gpt_neox.layers.1.attention.rotary_emb.inv_freq"))
  loads("bert", adds("bert.embeddings.position_ids", "bert.pooler.dense.weight",
                     "cls.seq_relationship.weight", "cls.seq_relationship.bias"))
  loads("roberta", adds("roberta.pooler.dense.bias"))
  loads("t5", adds("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"))
end)

t.case("a second copy of a tensor must equal it", function()
  local copies = {
    gpt2 = {"lm_head.weight", "transformer.wte.weight"},
    gpt_neo = {"lm_head.weight", "transformer.wte.weight"},
    bert = {"cls.predictions.decoder.bias", "cls.predictions.bias"},
    roberta = {"lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"},
    t5 = {"encoder.embed_tokens.weight", "shared.weight"},
  }
  for name, pair in pairs(copies) do
    local copy, original = unpack(pair)
    loads(name, function(_, tensors) tensors[copy] = tensors[original] end)
    refused(name, ("'%s' differs from '%s', which nnlua's"):format(copy, original),
            function(_, tensors) tensors[copy] = tensors[original] + 1 end)
    refused(name, ("'%s' differs from '%s', which nnlua's"):format(copy, original),
            function(_, tensors) tensors[copy] = tensors[original]:to "bf16" end)
    local model = loads(name, function(_, tensors)       -- transformers takes it then
      tensors[copy], tensors[original] = tensors[original], nil
    end)
    t.same(sums(model), sums(loads(name, function() end)), copy)
  end
end)

t.case("a prefix that a wrapper has put before all names is left out", function()
  local function prefixed(prefix, but)
    return function(_, tensors)
      local all = {}
      for name, x in pairs(tensors) do all[name] = x end
      for name, x in pairs(all) do
        tensors[name] = nil
        tensors[name == but and name or prefix .. name] = x
      end
    end
  end
  for name, last in pairs {llama = "model.norm.weight", gpt2 = "transformer.ln_f.weight",
                           gpt_neox = "gpt_neox.final_layer_norm.weight",
                           bert = "cls.predictions.bias", t5 = "encoder.final_layer_norm.weight",
                           roberta = "lm_head.bias"} do
    local expected = sums(loads(name, function() end))
    for _, prefix in ipairs {"_orig_mod.", "module.", "model.", "base_model.model.",
                             "0.auto_model.", "_orig_mod.module."} do
      t.same(sums(loads(name, prefixed(prefix))), expected, name .. prefix)
      if last:sub(1, #prefix) ~= prefix then
        refused(name, ("it would fit behind the prefix '%s', but not all names have that; it has '")
                :format(prefix), prefixed(prefix, last))
      end
    end
  end
  local path = refused("llama", "has no tensor 'layers.1.mlp.up_proj.weight'", function(_, tensors)
    tensors["model.layers.1.mlp.up_proj.weight"] = nil
    prefixed "module."(_, tensors)
  end)
  local _, problem = pcall(nn.load_hf, path)
  t.check(not problem.message:find "would fit", problem.message)
  refused("llama", "has no tensor 'embed_tokens.weight' (61,32) (nor with the prefix 'model.'); "
          .. "it has 'x' (3)", function(_, tensors)
    for name in pairs(tensors) do tensors[name] = nil end
    tensors.x = nn.ones(3)
  end)
end)

t.case("a model without a head gives what the head reads, with or without a prefix", function()
  t.same(loads("bert", function(c) c.architectures = {"BertLMHeadModel"} end).config.labels, 0)
  for name, architecture in pairs {bert = "BertModel", roberta = "RobertaModel"} do
    local ids = nn.tensor({{5, 6, 7, 8, 9}, {9, 8, 7, 6, 5}}, {dtype = "i32"})
    local whole = loads(name, function() end)
    for _, keeps_prefix in ipairs {true, false} do
      local model = loads(name, function(config, tensors)
        config.architectures = {architecture}
        local all = {}
        for full, x in pairs(tensors) do all[full] = x end
        for full, x in pairs(all) do
          local inner = full:match("^" .. name .. "%.(.*)$")
          tensors[full] = nil
          if inner then tensors[keeps_prefix and full or inner] = x end
        end
        tensors[(keeps_prefix and name .. "." or "") .. "pooler.dense.weight"] = nn.ones(3)
      end)
      local logits = nn.linear(whole:transform(model(ids)), whole.tok.weight, whole.bias)
      t.near(logits, whole(ids), {abs = 1e-5})
      t.fails(function() model(ids, ids) end, "it has no head")
      t.fails(function() nn.fill(model, nn.vocabulary "byte", "a") end, "the model has no head")
      local path = ("%s/headless_%s_%s"):format(folder, name, tostring(keeps_prefix))
      nn.save_hf(path, model)
      t.same(files.parse_json(files.read(path .. "/config.json")).architectures, {architecture})
      t.same(sums(nn.load_hf(path)), sums(model))
      t.check(model:flops_per_token(4) < whole:flops_per_token(4), "without a head")
    end
  end
end)

t.case("the head is tied where the files tie it", function()
  local function set_tie(value)
    return function(config) config.tie_word_embeddings = value end
  end
  for name, embedding in pairs {llama = "model.embed_tokens.weight", t5_gated = "shared.weight",
                                gpt_neox = "gpt_neox.embed_in.weight"} do
    local path = changed(name, set_tie(true))
    local model, tied = nn.load_hf(path), require("nn.models.load").outline(path)
    t.same({model.config.tied, tied.config.tied, model.head ~= nil}, {false, false, true})
    t.same(loads(name, set_tie(false)).config.tied, false)
    local head = name == "gpt_neox" and "embed_out.weight" or "lm_head.weight"
    model = loads(name, function(config, tensors)
      config.tie_word_embeddings, tensors[head] = true, tensors[embedding]
    end)
    t.same({model.config.tied, model.head}, {true, nil})
    refused(name, ", which tie_word_embeddings = false needs; it has", function(config, tensors)
      config.tie_word_embeddings, tensors[head] = false, nil
    end)
  end
  local config = nn.load_hf(changed("t5_gated", function(c)          -- as before transformers 5
    c.tie_word_embeddings, c.scale_decoder_outputs = false, nil
  end)).config
  t.same({config.tied, config.scale_head}, {false, "never"})
  refused("t5", "scale_decoder_outputs is 'no'; true or false is needed", function(c)
    c.scale_decoder_outputs = "no"
  end)
end)

t.case("models with another head are refused by their architecture", function()
  local function has(architecture)
    return function(config) config.architectures = {architecture} end
  end
  for name, architecture in pairs {
    llama = "LlamaForSequenceClassification", qwen2 = "Qwen2ForRewardModel",
    mistral = "MistralForTokenClassification", gpt2 = "GPT2ForQuestionAnswering",
    gpt_neo = "GPTNeoForSequenceClassification", gpt_neox = "GPTNeoXForTokenClassification",
    t5 = "T5ForSequenceClassification", bert = "BertForTokenClassification",
    roberta = "RobertaForMultipleChoice", xlm_roberta = "XLMRobertaForQuestionAnswering",
  } do
    refused(name, ("architectures is %s; nnlua's"):format(architecture), has(architecture))
  end
  refused("llama", "needs a name that ends in ForCausalLM or Model", has "LlamaForCausalLMEagle3")
  refused("llama", "architectures is 'LlamaForCausalLM'; a list is needed", function(config)
    config.architectures = "LlamaForCausalLM"
  end)
  loads("gpt2", has "GPT2Model")
  loads("t5", has "T5WithLMHeadModel")
end)

t.case("frequencies that the model does not have are refused", function()
  local parameters = {rope_type = "default", rope_theta = 1e4}
  refused("llama", "rope_parameters.full_attention: frequencies by kind of layer", function(c)
    c.rope_parameters = {full_attention = parameters, sliding_attention = parameters}
  end)
  refused("llama", "rope_parameters is a list; an object is needed", function(c)
    c.rope_parameters = {parameters}
  end)
  refused("qwen2", "rope_scaling.sliding_attention: frequencies by kind of layer", function(c)
    c.rope_parameters, c.rope_scaling = nil, {sliding_attention = parameters}
  end)
  refused("llama", "partial_rotary_factor is 0.5; nnlua's model rotates whole heads", function(c)
    c.partial_rotary_factor = 0.5
  end)
  refused("olmo2", "partial_rotary_factor is 0.25", function(c)
    c.rope_parameters = {rope_type = "default", rope_theta = 1e4, partial_rotary_factor = 0.25}
  end)
  for _, kind in ipairs {"dynamic", "longrope", "proportional"} do
    refused("llama", "rope_type is " .. kind, function(c)
      c.rope_parameters = {rope_type = kind}
    end)
  end
end)

t.case("missing tensors and other shapes are refused by name", function()
  local function without(name) return function(_, tensors) tensors[name] = nil end end
  refused("qwen2", "has no tensor 'layers.1.self_attn.q_proj.bias'",
          without "model.layers.1.self_attn.q_proj.bias")
  refused("llama", "has no tensor 'layers.1.self_attn.q_proj.bias'", function(config)
    config.attention_bias = true
  end)
  refused("t5", "has no tensor 'decoder.final_layer_norm.weight'",
          without "decoder.final_layer_norm.weight")
  refused("gpt2", "'transformer.h.1.mlp.c_fc.weight' is (128,32); config.json implies (32,128)",
          function(_, tensors)
    tensors["transformer.h.1.mlp.c_fc.weight"] = nn.zeros(128, 32)
  end)
  refused("gpt2", "has no tensor 'h.1.", function(_, tensors)
    for name, x in pairs(tensors) do
      if name:find "^transformer%.h%.1" then
        tensors[name], tensors["model." .. name] = nil, x
        return
      end
    end
  end)
end)

t.case("files that are not weights of transformers are named", function()
  local function with(from, to, message)
    local path = changed("llama", function() end)
    files.rename(path .. "/" .. from, path .. "/" .. to)
    t.fails(function() nn.load_hf(path) end, message)
  end
  with("model.safetensors", "consolidated.safetensors",
       "; transformers uses no file of the name consolidated.safetensors")
  with("model.safetensors", "pytorch_model-00001-of-00002.bin",
       "pytorch_model-00001-of-00002.bin can run any code and is not read")
  with("config.json", "configuration.json", "neither config.json")
  local path, model = folder .. "/shards", nn.load_hf(changed("llama", function() end))
  nn.save_hf(path, model, nil, {shard_bytes = 20000})
  local index = path .. "/model.safetensors.index.json"
  local map = files.parse_json(files.read(index))
  local shard = map.weight_map["model.norm.weight"]
  map.weight_map["model.norm.weight"] = nil
  files.write(index, files.json(map, ""))
  t.same(sums(nn.load_hf(path)), sums(model))               -- transformers reads it too
  nn.save_safetensors(path .. "/more.safetensors",
                      {["model.norm.weight"] = nn.ones(32), x = nn.ones(2)})
  map.weight_map["model.norm.weight"], map.weight_map.x = shard, "more.safetensors"
  files.write(index, files.json(map, ""))
  t.fails(function() nn.load_hf(path) end,
          ("'model.norm.weight' is in both %s and more.safetensors"):format(shard))
end)

t.case("T5's embeddings are read from copies where there is no original", function()
  for name, tied in pairs {t5 = true, t5_gated = false} do
    local model = loads(name, function(_, tensors)
      tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"]
      tensors["decoder.embed_tokens.weight"] = tensors["shared.weight"]
      tensors["shared.weight"] = nil
    end)
    t.same({model.config.tied, sums(model)}, {tied, sums(loads(name, function() end))})
  end
end)

t.case("every kind of GPT-Neo's blocks is read, and others are refused", function()
  local model = loads("gpt_neo", function(c) c.attention_layers = {"local", "local"} end)
  t.same({model.config.pattern, model.window(model.config, 1)}, {"local", 7})
  t.same(loads("gpt_neo", function(c)
    c.attention_layers = {"global", "global"}
  end).config.pattern, "global")
  t.fails(function()
    require "models.gpt_neo" {layers = 2, heads = 2, embd = 8, pattern = "global,near"}
  end, "pattern = global,near has the kind 'near'; global and local are known")
end)

t.finish()
