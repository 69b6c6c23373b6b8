-- What the entries of a config.json stand for, by model_type: absent, null and given are three
-- things. An absent entry has transformers' default; null is accepted where transformers gives it a
-- meaning. Of the entries that the model here does not use, those that transformers does not read
-- either are left out with a warning; others must be known to be harmless, or are refused.
local arguments = require "nn.base.arguments"
local cjson = require "cjson"
local defaults = require "nn.models.config_defaults"
local suggest = require "nn.base.suggest"

local M = {problem_types = {"single_label_classification", "multi_label_classification",
                            "regression"}}
local null = cjson.null

-- Entries that do not change what a model computes, by the reason; patterns for whole names.
local harmless_names = {
  -- where the file comes from, and which program wrote it
  "_name_or_path name_or_path architectures model_type transformers_version _commit_hash "
  .. "auto_map unsloth_.* task_specific_params finetuning_task prefix",
  -- tokens, which tokenizers and generation_config.json know
  ".*_token_ids? .*_token tokenizer_class model_max_length max_sequence_length "
  .. "tokenizer_.* n_ctx n_positions",
  -- how the library computes the same function
  "dtype torch_dtype use_cache cache_implementation torchscript use_bfloat16 return_dict "
  .. "output_.* chunk_size_feed_forward pretraining_tp gradient_checkpointing "
  .. "_?attn_implementation.* use_flash_attn.* _flash_attn_2_enabled tf_legacy_loss "
  .. "is_encoder_decoder keys_to_ignore_at_inference base_model_.*_plan",
  -- training only
  "initializer_range initializer_factor init_std .*dropout.* .*_pdrop",
  -- heads for other tasks, and names of classes
  "summary_.* id2label label2id num_labels embedding_size",
  -- defaults of generation, see generation_config.lua
  "max_new_tokens min_new_tokens max_time stop_strings",
}

-- Entries in which null is the same as absent, though they are no fields of a config class.
local null_is_absent = arguments.names("rope_scaling partial_rotary_factor problem_type "
  .. "id2label tie_word_embeddings num_labels architectures quantization_config")

-- Names of one activation function.
local activations = {
  gelu = "gelu_exact", gelu_python = "gelu_exact", gelu_new = "gelu", gelu_pytorch_tanh = "gelu",
  gelu_python_tanh = "gelu", gelu_accurate = "gelu", gelu_fast = "gelu", silu = "silu",
  swish = "silu", relu = "relu",
}

--- activation(name) -> "gelu_exact", "gelu" (of tanh), "silu" or "relu" for a name of transformers,
--- or nil.
function M.activation(name) return activations[name] end

local function is_harmless(name)
  if defaults.generation[name] ~= nil then return true end
  for _, group in ipairs(harmless_names) do
    for pattern in group:gmatch "%S+" do
      if name:find("^" .. pattern .. "$") then return true end
    end
  end
end

-- The set of all entries that transformers reads for a type; nil for one that it does not have.
local function read_by(kind)
  if not defaults.reads[kind] then return nil end
  local names = arguments.names(defaults.reads.all .. " " .. defaults.reads[kind])
  for name in pairs(defaults[kind]) do names[name] = true end
  return names
end

-- The default of a type for an entry (nil: none), and whether null is accepted.
local function default_of(kind, name)
  local default = (defaults[kind] or {})[name]
  if type(default) == "table" then return default.default, default.takes_null end
  return default, default == nil and null_is_absent[name] ~= nil
end

-- The set of the entries that a class reads for a type: not those that only others of its types
-- have.
local function used_entries(described, kind)
  local names, used = {}, {layer_types = true, quantization_config = true}
  for _, list in ipairs {described.settings, described.optional or {}} do
    for _, name in pairs(list) do names[#names + 1] = name end
  end
  for _, list in ipairs {described.fixed or {}, described.entries or {}} do
    for name in pairs(list) do names[#names + 1] = name end
  end
  for _, name in ipairs(names) do
    local of_others = false
    for other in pairs(described.types) do
      of_others = of_others or (defaults[other] or {})[name] ~= nil
    end
    used[name] = not of_others or (defaults[kind] or {})[name] ~= nil or nil
  end
  return used
end

-- Whether an entry that is not used says that something is off: null, false, "", {} or []. That
-- attention is causal cannot be off.
local function is_off(name, value)
  if name == "is_causal" then return value == true end
  return value == null or value == false or value == ""
    or type(value) == "table" and next(value) == nil
end

local function shown(value)
  return value == null and "null" or type(value) == "table" and "an object or a list"
    or arguments.describe(value)
end

-- The problem with an entry that the class does not use, or nil.
local function unused_problem(described, class, kind, config, name)
  local value, default, nullable = config[name], default_of(kind, name)
  local same = (described.aliases or {})[name]
  if same then
    local other = config[same]
    if other == nil then other = default_of(kind, same) end
    if value == other then return nil end
    return ("%s is %s, but %s is %s; transformers uses one name for both: remove one"):format(
      name, shown(value), same, shown(other))
  end
  local refuses_null = value == null and (defaults[kind] or {})[name] ~= nil and not nullable
  if not refuses_null and (is_off(name, value) or is_harmless(name)
                           or default ~= nil and value == default) then
    return nil
  end
  return ("%s is %s, which nnlua's %s does not use; if the model computes the same without this "
          .. "entry, remove it from the file"):format(name, shown(value), class.class_name)
end

-- Whether an entry that the class does not use has no effect in transformers either: a typing
-- error, or the note of another program.
local function is_left_out(described, known, name, value)
  return known and not known[name] and not (described.aliases or {})[name]
    and not is_off(name, value) and not is_harmless(name)
end

--- left_out(class, kind, config) -> the entries of config.json that neither transformers nor the
--- class reads for a type, for a warning: "fp16, rope_teta (is it rope_theta?)"; nil if there are
--- none.
function M.left_out(class, kind, config)
  local described, known, names = class.hugging_face, read_by(kind), {}
  local used = used_entries(described, kind)
  for name, value in pairs(config) do
    if not used[name] and is_left_out(described, known, name, value) then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  for i, name in ipairs(names) do
    local near = suggest.nearest(name, used)
    names[i] = near and not config[near] and ("%s (is it %s?)"):format(name, near) or name
  end
  return #names > 0 and table.concat(names, ", ") or nil
end

--- resolve(class, kind, config) -> the entries of config.json that the class uses for a type, with
--- the defaults of transformers for absent ones and without null; or nil and the problem. The
--- objects in it may contain null.
function M.resolve(class, kind, config)
  local described, out, names = class.hugging_face, {}, {}
  local used, known = used_entries(described, kind), read_by(kind)
  for name in pairs(config) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local value, default, nullable = config[name], default_of(kind, name)
    local problem
    if used[name] and value == null then
      problem = defaults[kind] and not nullable
        and ("%s is null, which transformers does not accept; give a value, or remove the entry%s")
          :format(name, default ~= nil and (" for its default, %s"):format(shown(default)) or "")
    elseif used[name] then
      out[name] = value
    elseif not is_left_out(described, known, name, value) then
      problem = unused_problem(described, class, kind, config, name)
    end
    if problem then return nil, problem end
  end
  for name in pairs(used) do
    if config[name] == nil then out[name] = (default_of(kind, name)) end
  end
  out.model_type, out.architectures = kind, config.architectures
  if out.architectures == null then out.architectures = nil end
  return out
end

--- assumed(class, kind, config) -> {name = default} of the sizes that config.json does not state,
--- for errors.
function M.assumed(class, kind, config)
  local sizes = {}
  for _, name in pairs(class.hugging_face.settings) do
    if config[name] == nil then sizes[name] = (default_of(kind, name)) end
  end
  return sizes
end

--- labels(config, expected) -> the number of classes of texts in resolved entries, 0 for a model
--- with another head, -1 for one without; or nil and the problem. expected: its architecture, if
--- the file has none.
function M.labels(config, expected)
  local architecture = (config.architectures or {})[1] or expected
  if architecture:find "Model$" and not architecture:find "HeadModel$" then return -1 end
  if not architecture:find "ForSequenceClassification$" then return 0 end
  local names, labels = config.id2label or {}, 0
  if type(names) ~= "table" then return nil, "id2label is no list of labels" end
  for _ in pairs(names) do labels = labels + 1 end
  return labels > 0 and labels or config.num_labels or 2
end

--- add_labels(out, settings) -> out, with the entries of a model that classifies texts.
function M.add_labels(out, settings)
  out.problem_type, out.id2label, out.label2id = settings.problem_type, {}, {}
  for i = 0, settings.labels - 1 do
    out.id2label[tostring(i)], out.label2id["LABEL_" .. i] = "LABEL_" .. i, i
  end
  return out
end

--- of_t5(config) -> the activation of T5's MLP in resolved entries, relu, or gelu or
--- silu with a gate; or nil and the problem. dense_act_fn and is_gated_act come before
--- feed_forward_proj, from which transformers derives them.
function M.of_t5(config)
  local buckets = config.relative_attention_num_buckets
  local most = config.relative_attention_max_distance
  if type(most) == "number" and most <= buckets / 2 then
    return nil, ("relative_attention_max_distance is %g; more than half of %d, "
                 .. "relative_attention_num_buckets, is needed"):format(most, buckets)
  end
  local kind = config.feed_forward_proj
  local gated, name = kind:match "^gated%-" ~= nil, kind:match "([^-]*)$"
  if kind == "gated-gelu" then name = "gelu_new" end
  if config.is_gated_act ~= nil then gated = config.is_gated_act end
  name = config.dense_act_fn or name
  local activation = M.activation(name)
  if activation == (gated and "gelu" or "relu") or gated and activation == "silu" then
    return activation
  end
  local more = config.dense_act_fn and ", dense_act_fn is " .. name or ""
  if config.is_gated_act ~= nil then more = more .. ", is_gated_act is " .. tostring(gated) end
  return nil, ("feed_forward_proj is %s%s; relu, gated-gelu or gated-silu is needed"):format(
    kind, more)
end

return M
