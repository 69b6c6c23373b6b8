-- The defaults of transformers for what config.json and generation_config.json do not
-- state, by model_type, for config_entries.lua and generation_config.lua. or_null: null is
-- accepted too, which is what or_null() is without a default; null elsewhere is an error
-- there. Written by tests/golden/make_config_defaults.py; do not edit.
local function or_null(default) return {default = default, takes_null = true} end
local derived = {}                     -- from other entries, if it is absent
local M = {version = "5.24.0"}

M.gpt2 = {
  is_encoder_decoder = or_null(false), vocab_size = 50257, n_positions = 1024, n_embd = 768,
  n_layer = 12, n_head = 12, n_inner = or_null(), activation_function = "gelu_new",
  resid_pdrop = 0.1, embd_pdrop = 0.1, attn_pdrop = 0.1, layer_norm_epsilon = 1e-05,
  initializer_range = 0.02, summary_type = "cls_index", summary_use_proj = true,
  summary_activation = or_null(), summary_proj_to_labels = true, summary_first_dropout = 0.1,
  scale_attn_weights = true, use_cache = true, bos_token_id = or_null(50256),
  eos_token_id = or_null(50256), pad_token_id = or_null(),
  scale_attn_by_inverse_layer_idx = false, reorder_and_upcast_attn = false,
  add_cross_attention = false, tie_word_embeddings = true
}
M.llama = {
  is_encoder_decoder = or_null(false), vocab_size = 32000, hidden_size = 4096,
  intermediate_size = 11008, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = or_null(), hidden_act = "silu", max_position_embeddings = 2048,
  initializer_range = 0.02, rms_norm_eps = 1e-06, use_cache = true, pad_token_id = or_null(),
  bos_token_id = or_null(1), eos_token_id = or_null(2), pretraining_tp = or_null(1),
  tie_word_embeddings = false, rope_parameters = or_null(), attention_bias = false,
  attention_dropout = or_null(0), mlp_bias = false, head_dim = or_null(), rope_theta = 10000
}
M.mistral = {
  is_encoder_decoder = or_null(false), vocab_size = 32000, hidden_size = 4096,
  intermediate_size = 14336, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = 8, head_dim = or_null(), hidden_act = "silu",
  max_position_embeddings = 131072, initializer_range = 0.02, rms_norm_eps = 1e-06,
  use_cache = true, pad_token_id = or_null(), bos_token_id = or_null(1),
  eos_token_id = or_null(2), tie_word_embeddings = false, rope_parameters = or_null(),
  sliding_window = or_null(4096), attention_dropout = 0, rope_theta = 10000
}
M.qwen2 = {
  is_encoder_decoder = or_null(false), vocab_size = 151936, hidden_size = 4096,
  intermediate_size = 22016, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = or_null(32), hidden_act = "silu", max_position_embeddings = 32768,
  initializer_range = 0.02, rms_norm_eps = 1e-06, use_cache = true, tie_word_embeddings = false,
  rope_parameters = or_null(), use_sliding_window = false, sliding_window = or_null(4096),
  max_window_layers = 28, layer_types = or_null(), attention_dropout = 0,
  pad_token_id = or_null(), bos_token_id = or_null(), eos_token_id = or_null(),
  rope_theta = 10000, head_dim = derived
}
M.qwen3 = {
  is_encoder_decoder = or_null(false), vocab_size = 151936, hidden_size = 4096,
  intermediate_size = 22016, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = or_null(32), head_dim = 128, hidden_act = "silu",
  max_position_embeddings = 32768, initializer_range = 0.02, rms_norm_eps = 1e-06,
  use_cache = true, tie_word_embeddings = false, rope_parameters = or_null(),
  attention_bias = false, use_sliding_window = false, sliding_window = or_null(4096),
  max_window_layers = 28, layer_types = or_null(), attention_dropout = 0,
  pad_token_id = or_null(), bos_token_id = or_null(), eos_token_id = or_null(), rope_theta = 10000
}
M.olmo2 = {
  is_encoder_decoder = or_null(false), vocab_size = 50304, hidden_size = 4096,
  intermediate_size = 11008, num_hidden_layers = 32, num_attention_heads = 32,
  num_key_value_heads = or_null(), hidden_act = "silu", max_position_embeddings = 2048,
  initializer_range = 0.02, use_cache = true, pad_token_id = or_null(1), bos_token_id = or_null(),
  eos_token_id = or_null(50279), tie_word_embeddings = false, rope_parameters = or_null(),
  attention_bias = false, attention_dropout = 0, rms_norm_eps = 1e-05, rope_theta = 10000,
  head_dim = derived
}
M.gpt_neo = {
  is_encoder_decoder = or_null(false), vocab_size = 50257, max_position_embeddings = 2048,
  hidden_size = 2048, num_layers = 24, attention_types = or_null(), num_heads = 16,
  intermediate_size = or_null(), window_size = 256, activation_function = "gelu_new",
  resid_dropout = 0, embed_dropout = 0, attention_dropout = 0, classifier_dropout = 0.1,
  layer_norm_epsilon = 1e-05, initializer_range = 0.02, use_cache = true,
  bos_token_id = or_null(50256), eos_token_id = or_null(50256), pad_token_id = or_null(),
  tie_word_embeddings = true
}
M.gpt_neox = {
  is_encoder_decoder = or_null(false), vocab_size = 50432, hidden_size = 6144,
  num_hidden_layers = 44, num_attention_heads = 64, intermediate_size = 24576,
  hidden_act = "gelu", attention_dropout = 0, hidden_dropout = 0, classifier_dropout = 0.1,
  max_position_embeddings = 2048, initializer_range = 0.02, layer_norm_eps = 1e-05,
  use_cache = true, bos_token_id = or_null(0), eos_token_id = or_null(2),
  pad_token_id = or_null(), tie_word_embeddings = false, use_parallel_residual = true,
  rope_parameters = or_null(), attention_bias = true, is_decoder = false, rotary_emb_base = 10000,
  rotary_pct = 0.25
}
M.bert = {
  is_encoder_decoder = or_null(false), vocab_size = 30522, hidden_size = 768,
  num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072, hidden_act = "gelu",
  hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
  type_vocab_size = 2, initializer_range = 0.02, layer_norm_eps = 1e-12,
  pad_token_id = or_null(0), use_cache = true, classifier_dropout = or_null(), is_decoder = false,
  add_cross_attention = false, bos_token_id = or_null(), eos_token_id = or_null(),
  tie_word_embeddings = true
}
M.roberta = {
  is_encoder_decoder = or_null(false), vocab_size = 50265, hidden_size = 768,
  num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072, hidden_act = "gelu",
  hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
  type_vocab_size = 2, initializer_range = 0.02, layer_norm_eps = 1e-12,
  pad_token_id = or_null(1), bos_token_id = or_null(0), eos_token_id = or_null(2),
  use_cache = true, classifier_dropout = or_null(), is_decoder = false,
  add_cross_attention = false, tie_word_embeddings = true
}
M["xlm-roberta"] = {
  is_encoder_decoder = or_null(false), vocab_size = 30522, hidden_size = 768,
  num_hidden_layers = 12, num_attention_heads = 12, intermediate_size = 3072, hidden_act = "gelu",
  hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0.1, max_position_embeddings = 512,
  type_vocab_size = 2, initializer_range = 0.02, layer_norm_eps = 1e-12,
  pad_token_id = or_null(1), bos_token_id = or_null(0), eos_token_id = or_null(2),
  use_cache = true, classifier_dropout = or_null(), is_decoder = false,
  add_cross_attention = false, tie_word_embeddings = true
}
M["camembert"] = M["xlm-roberta"]
M.t5 = {
  is_encoder_decoder = true, vocab_size = 32128, d_model = 512, d_kv = 64, d_ff = 2048,
  num_layers = 6, num_decoder_layers = or_null(), num_heads = 8,
  relative_attention_num_buckets = 32, relative_attention_max_distance = 128, dropout_rate = 0.1,
  layer_norm_epsilon = 1e-06, initializer_factor = 1, feed_forward_proj = "relu",
  use_cache = true, pad_token_id = or_null(0), eos_token_id = or_null(1), classifier_dropout = 0,
  is_decoder = false
}
M.generation = {
  max_length = 20, min_length = 0, do_sample = false, use_cache = true, early_stopping = false,
  num_beams = 1, temperature = 1, top_k = 50, top_p = 1, typical_p = 1, repetition_penalty = 1,
  length_penalty = 1, no_repeat_ngram_size = 0, encoder_no_repeat_ngram_size = 0,
  bad_words_ids = or_null(), num_return_sequences = 1, output_scores = false,
  return_dict_in_generate = false, forced_bos_token_id = or_null(),
  forced_eos_token_id = or_null(), remove_invalid_values = false,
  exponential_decay_length_penalty = or_null(), suppress_tokens = or_null(),
  begin_suppress_tokens = or_null(), epsilon_cutoff = 0, eta_cutoff = 0,
  encoder_repetition_penalty = 1, num_assistant_tokens = 20,
  num_assistant_tokens_schedule = "constant", assistant_confidence_threshold = 0.4,
  assistant_lookbehind = 10, target_lookbehind = 10, num_beam_groups = 1, diversity_penalty = 0
}
-- Entries that transformers reads too, of all types and of one type.
M.reads = {
  all = [[
    _attn_implementation _attn_implementation_internal _auto_class _experts_implementation
    _experts_implementation_internal _heterogeneity_spec _name_or_path _output_attentions
    _post_init_done allow_global_per_layer_attribute_access architectures
    assistant_confidence_threshold assistant_lookbehind attribute_map auto_map bad_words_ids
    base_config_key base_model_ep_plan base_model_fsdp_plan base_model_pp_plan
    base_model_tp_plan begin_suppress_tokens chunk_size_feed_forward decoder default_rope_type
    default_theta distributed_config diversity_penalty do_sample dtype early_stopping
    encoder_no_repeat_ngram_size encoder_repetition_penalty epsilon_cutoff eta_cutoff
    exponential_decay_length_penalty extra_config_files extra_files forced_bos_token_id
    forced_eos_token_id fusion_config generator gradient_checkpointing id2label
    ignore_keys_at_rope_validation is_causal is_heterogeneous label2id length_penalty max_length
    min_length model_type mtp_layer_types name_or_path no_repeat_ngram_size num_assistant_tokens
    num_assistant_tokens_schedule num_beam_groups num_beams num_labels num_return_sequences
    output_attentions output_hidden_states output_scores per_layer_attributes per_layer_config
    problem_type quantization_config remove_invalid_values repetition_penalty return_dict
    return_dict_in_generate rope_scaling serialize_explicit_per_layer_config sub_configs
    sub_configs_defaults suppress_tokens target_lookbehind temperature text_config top_k top_p
    torch_dtype transformers_version transformers_weights typical_p use_return_dict]],
  gpt2 = [[
    attention_chunk_size classifier_dropout head_dim hidden_dropout hidden_size kv_sharing_modes
    layer_types max_position_embeddings num_attention_heads num_hidden_layers
    output_cross_attentions rope_parameters sliding_window summary_last_dropout
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  llama = [[
    _rope_type_labels attention_chunk_size kv_sharing_modes layer_types partial_rotary_factor
    rope_theta sliding_window vision_aspect_ratio vision_feature_layer
    vision_feature_select_strategy]],
  mistral = [[
    _rope_type_labels kv_sharing_modes layer_types num_heads partial_rotary_factor rope_theta
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  qwen2 = [[
    _rope_type_labels head_dim kv_sharing_modes mlp_layer_types partial_rotary_factor rope_theta
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  qwen3 = [[
    _rope_type_labels kv_sharing_modes mlp_layer_types num_heads partial_rotary_factor
    rope_theta vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  olmo2 = [[
    _rope_type_labels attention_chunk_size head_dim kv_sharing_modes layer_types
    partial_rotary_factor rope_theta sliding_window vision_aspect_ratio vision_feature_layer
    vision_feature_select_strategy]],
  gpt_neo = [[
    _is_quantized attention_chunk_size attention_layers head_dim kv_sharing_modes layer_types
    num_attention_heads num_hidden_layers rope_parameters sliding_window]],
  gpt_neox = [[
    _rope_type_labels attention_chunk_size head_dim kv_sharing_modes layer_types
    partial_rotary_factor rope_theta rotary_emb_base rotary_pct sliding_window
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  bert = [[
    embedding_size head_dim layer_types output_cross_attentions rope_parameters
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  roberta = [[
    embedding_size head_dim layer_types output_cross_attentions rope_parameters
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  ["xlm-roberta"] = [[
    embedding_size head_dim layer_types output_cross_attentions rope_parameters
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  camembert = [[
    embedding_size head_dim layer_types output_cross_attentions rope_parameters
    vision_aspect_ratio vision_feature_layer vision_feature_select_strategy]],
  t5 = [[
    attention_chunk_size decoder_start_token_id dense_act_fn head_dim hidden_size init_std
    initializer_range is_gated_act kv_sharing_modes layer_types num_attention_heads
    num_hidden_layers output_cross_attentions rope_parameters scale_decoder_outputs
    sliding_window start_token_id tie_word_embeddings vision_aspect_ratio vision_feature_layer
    vision_feature_select_strategy]],
}

return M
