-- Malformed config.json files, folders of families that nnlua does not have, and folders without a
-- model: the error names the file, what was given and what is needed. tests/lua/files/fuzz.lua
-- has random damage.
local files = require "nn.io.files"
local hugging_face = require "nn.models.hugging_face"
local lib = require "nn.base.capi"
local nn = require "nn"
local t = require "nn.test"
local golden = require("nn.host").root .. "/tests/golden/decoders/"
local folder = t.folder()
local path = folder .. "/config.json"

-- The message for config.json with these contents.
local function message_for(config)
  files.write(path, type(config) == "string" and config or files.json(config))
  local good, problem = pcall(hugging_face.outline, folder)
  t.check(not good, "it is refused")
  t.check(lib.is_error(problem), tostring(problem))
  return problem.message
end

-- The config of a family with entries changed; "nil" removes one.
local function changed(name, changes)
  local config = files.parse_json(files.read(golden .. name .. "/config.json"))
  for key, value in pairs(changes) do
    if value == "nil" then config[key] = nil else config[key] = value end
  end
  return config
end

local function refused(name, changes, expected)
  local message = message_for(changed(name, changes))
  t.check(message:find(path .. ": ", 1, true), message)
  t.check(message:find(expected, 1, true), ("expected: %s\n  found: %s"):format(expected, message))
end

t.case("an entry of a wrong type is refused by name, with its value", function()
  refused("llama", {hidden_size = "32"}, "hidden_size is '32'; a whole number from 1 to")
  refused("llama", {num_key_value_heads = {}}, "num_key_value_heads is a table; a number is needed")
  refused("llama", {rms_norm_eps = "1e-6"}, "rms_norm_eps is '1e-6'; a number is needed")
  refused("llama", {tie_word_embeddings = 1}, "tie_word_embeddings is 1; a boolean is needed")
  refused("llama", {attention_bias = "no"}, "attention_bias is 'no'; true or false is needed")
  refused("llama", {hidden_act = true}, "hidden_act is true; a text is needed")
  refused("llama", {rope_parameters = 8}, "rope_parameters is 8; an object is needed")
  refused("llama", {rope_parameters = {rope_theta = "x"}},
          "rope_parameters.rope_theta is 'x'; a finite number is needed")
  refused("mistral", {sliding_window = "7"}, "sliding_window is '7'; a whole number from 0 to")
  refused("gpt_neox", {use_parallel_residual = "yes"}, "use_parallel_residual is 'yes'; a boolean")
  refused("gpt_neox", {rope_parameters = "nil", rotary_pct = {}}, "rotary_pct is a table; a finite")
  refused("gpt_neo", {attention_layers = {"global", 5}}, "attention_layers[1] is 5; a text is")
  refused("gpt_neo", {attention_layers = "nil", attention_types = {"global"}},
          "attention_types[0] must be [[kind, ...], times]")
end)

t.case("a missing size has transformers' default, and an error on it says so", function()
  files.write(path, files.json(changed("qwen3", {vocab_size = "nil", intermediate_size = "nil"})))
  local _, settings = hugging_face.outline(folder)
  t.same({settings.vocab, settings.inner}, {151936, 22016})
  nn.save_safetensors(folder .. "/model.safetensors",
                      {["model.embed_tokens.weight"] = nn.ones(61, 32)})
  t.fails(function() nn.load_hf(folder) end, "config.json implies (151936,32); vocab_size = "
          .. "151936 is transformers' default, since config.json states none")
  files.remove(folder .. "/model.safetensors")
end)

t.case("entries that transformers does not read are left out with one warning that names them",
       function()
  local warnings, write = {}, lib.warn_once
  lib.warn_once = function(text) warnings[#warnings + 1] = text end
  files.write(path, files.json(changed("llama", {rope_teta = 500, fp16 = true, bf16 = false,
                                                 max_window_layers = 28, prefix = "x"})))
  local good, _, settings = pcall(hugging_face.outline, folder)
  lib.warn_once = write
  t.check(good, settings)
  t.same(warnings, {path .. ": entries that transformers' llama does not read, and so are not "
                    .. "used: fp16, max_window_layers, rope_teta (is it rope_theta?)"})
  refused("llama", {attention_chunk_size = 4}, "attention_chunk_size is 4, which nnlua's Llama")
  refused("llama", {per_layer_config = {["1"] = {head_dim = 4}}}, "per_layer_config is an object")
  refused("llama", {attribute_map = {hidden_size = "x"}}, "attribute_map is an object")
end)

t.case("a missing entry of a rotary embedding is refused by name", function()
  refused("llama3", {rope_parameters = {rope_type = "llama3", low_freq_factor = 1,
                                        high_freq_factor = 4}},
          "factor is missing in rope_parameters or rope_scaling of rope_type llama3; a number")
end)

t.case("sizes that no model can have are refused", function()
  refused("llama", {hidden_size = -32}, "hidden_size is -32; a whole number from 1 to 268435456")
  refused("llama", {vocab_size = 1e300}, "vocab_size is 1e+300; a whole number")
  refused("llama", {num_hidden_layers = 1e9}, "num_hidden_layers is 1000000000; a whole number "
          .. "from 1 to 10000 is needed")
  refused("llama", {num_key_value_heads = -2}, "num_key_value_heads must be at least 0, not '-2'")
  refused("llama", {head_dim = 1e15}, "head_dim is 1e+15; a whole number from 0 to")
  refused("mistral", {sliding_window = -7}, "sliding_window is -7; a whole number from 0 to")
end)

t.case("heads that do not divide are refused, in the names of the file", function()
  refused("llama", {head_dim = "nil", num_attention_heads = 5, num_key_value_heads = "nil"},
          "hidden_size = 32 is not a multiple of num_attention_heads = 5")
  refused("llama", {num_key_value_heads = 3},
          "num_attention_heads = 4 is not a multiple of num_key_value_heads = 3")
  refused("gpt_neox", {num_attention_heads = 3}, "is not a multiple of num_attention_heads = 3")
  refused("gpt_neo", {num_heads = 64}, "hidden_size = 32 is not a multiple of num_heads = 64")
end)

t.case("heads that cannot rotate are refused", function()
  refused("llama", {head_dim = 7}, "7 of the 7 components of a head cannot rotate; an even number")
  refused("gpt_neox", {rope_parameters = {rope_theta = 1e4, partial_rotary_factor = 0.1}},
          "0 of the 8 components of a head cannot rotate; an even number of at least 2 is needed")
  refused("llama", {rope_parameters = {rope_theta = 0.5}}, "rope_theta = 0.5; more than 1 is")
  refused("olmo2", {rope_parameters = "nil", rope_theta = -3}, "rope_theta = -3; more than 1 is")
  refused("gpt_neox", {rope_parameters = "nil", rotary_emb_base = 1}, "rotary_emb_base = 1; more")
  refused("llama3", {rope_parameters = {rope_type = "llama3", factor = 2, low_freq_factor = 8,
                                        high_freq_factor = 1}},
          "low_freq_factor = 8 and high_freq_factor = 1; 0 < low_freq_factor < high_freq_factor is")
  refused("llama_yarn", {rope_parameters = {rope_type = "yarn", factor = 2, attention_factor = -1}},
          "attention_factor = -1; at least 0 is needed")
  refused("llama_linear", {rope_parameters = {rope_type = "linear", factor = 0}},
          "factor = 0; more than 0 is needed")
  refused("llama_yarn", {rope_parameters = {rope_type = "yarn", factor = 2, beta_slow = 40}},
          "beta_slow = 40 and beta_fast = 32; 0 < beta_slow < beta_fast is needed")
  refused("llama", {rope_parameters = {rope_type = "longrope"}}, "rope_type is longrope; default,")
end)

t.case("kinds of attention that the model does not have are refused by block", function()
  refused("qwen2", {layer_types = {"full_attention", "sliding"}},
          "layer_types[1] is 'sliding'; nnlua's Llama has sliding_attention there")
  refused("qwen2", {layer_types = {"full_attention"}},
          "layer_types has the length 1; the model has 2 layers")
  refused("qwen2", {layer_types = {"sliding_attention", "full_attention"}},
          "layer_types[0] is 'sliding_attention'; nnlua's Llama has full_attention there")
  refused("qwen2", {layer_types = "full_attention"}, "layer_types is 'full_attention'; a list is")
  refused("gpt_neo", {attention_layers = {"global", "sliding"}},
          "block 1 has sliding attention, in attention_layers or attention_types; global or")
  refused("gpt_neo", {attention_layers = {"global"}},
          "kinds of attention are given for 1 of 2 blocks")
  refused("gpt_neo", {attention_layers = "nil", attention_types = {{{"global", "local"}, 1e9}}},
          "attention_types[0] must be [[kind, ...], times]")
end)

t.case("folders of other families are refused with what they are and how they differ", function()
  local function expect(config, ...)
    local message = message_for(config)
    for _, text in ipairs {path, ...} do
      t.check(message:find(text, 1, true), ("expected: %s\n  found: %s"):format(text, message))
    end
  end
  expect({model_type = "mixtral", architectures = {"MixtralForCausalLM"}},
         "model_type is 'mixtral' (MixtralForCausalLM), which no model in models/ has: its MLPs "
         .. "are mixtures of experts", "choose one of")
  expect({model_type = "mamba"}, "it has state-space layers instead of attention")
  expect({model_type = "whisper", architectures = 3}, "it reads sound")
  expect({model_type = "strange"}, "model_type is 'strange', which no model in models/ has; choose")
  expect({model_type = {1}}, "model_type is a table; a text is needed")
  expect("[1]", "is a list, not an object")
  expect("7", "is not a JSON object")
  expect("{", "is not JSON")
  expect(changed("llama", {quantization_config = {quant_method = "awq"}}),
         "has a quantization_config (awq); nnlua reads weights that are not quantized")
  expect(changed("llama", {quantization_config = 8}), "has a quantization_config; nnlua reads")
end)

t.case("folders without a config.json are refused with what they contain", function()
  local contents = {["adapter_config.json"] = "an adapter (adapter_config.json); merge it into its",
                    ["model_index.json"] = "a pipeline of diffusers (model_index.json)",
                    ["small.Q4_0.gguf"] = "GGUF files; convert them to safetensors",
                    ["params.json"] = "a checkpoint in Meta's own format (params.json)",
                    ["notes.txt"] = "neither config.json"}
  for name, expected in pairs(contents) do
    local other = folder .. "/" .. name:gsub("%W", "_")
    files.make_folder(other)
    files.write(other .. "/" .. name, "{}")
    for _, load in ipairs {nn.load_hf, nn.load_model} do
      t.fails(function() load(other) end, expected)
    end
  end
end)

t.finish()
