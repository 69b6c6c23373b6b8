"""The configs of make_odd_configs.py: (family, entries to set, names of entries to remove ...)."""
LLAMA = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
BERT = dict(vocab_size=40, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=34)
BASES = {
    "gpt2": dict(model_type="gpt2", vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=32),
    **{kind: dict(model_type=kind, **LLAMA) for kind in ("llama", "mistral", "qwen2", "olmo2")},
    "qwen3": dict(model_type="qwen3", head_dim=8, **LLAMA),
    "gpt_neo": dict(model_type="gpt_neo", vocab_size=40, hidden_size=32, num_layers=2, num_heads=4,
                    max_position_embeddings=32, attention_types=[[["global", "local"], 1]],
                    window_size=5),
    "gpt_neox": dict(model_type="gpt_neox", vocab_size=40, hidden_size=32, intermediate_size=48,
                     num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=32),
    "bert": dict(model_type="bert", **BERT),
    "roberta": dict(model_type="roberta", **BERT),
    "xlm-roberta": dict(model_type="xlm-roberta", **BERT),
    "camembert": dict(model_type="camembert", **BERT),
    "t5": dict(model_type="t5", vocab_size=40, d_model=32, d_kv=8, d_ff=48, num_layers=2,
               num_heads=4, decoder_start_token_id=0),
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
SLIDES = {"use_sliding_window": True, "sliding_window": 4}
CLASSES = {"architectures": ["BertForSequenceClassification"]}


def without(parameters, name):
    return {key: value for key, value in parameters.items() if key != name}


ROPE = [
    {"rope_theta": 500.0}, {"rope_theta": None}, {"rope_theta": "10000"}, {"rope_scaling": None},
    {"rope_scaling": {}}, {"rope_parameters": {}}, {"rope_parameters": None}, {"rope_scaling": 4},
    {"rope_theta": 500.0, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    {"rope_theta": 500.0, "rope_parameters": {"rope_type": "default"}},
    {"rope_parameters": {"rope_theta": 100.0}}, {"rope_parameters": {"rope_theta": None}},
    {"rope_parameters": {"rope_type": None}}, {"rope_scaling": {"type": None}},
    {"rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_scaling": {"type": "linear", "rope_type": "default", "factor": 2.0}},
    {"rope_scaling": {"type": "linear", "factor": None}}, {"rope_scaling": {"type": "linear"}},
    {"rope_scaling": {"type": "linear", "factor": 2.0},
     "rope_parameters": {"rope_type": "default", "rope_theta": 300.0}},
    {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 300.0},
    {"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 0.5}},
    {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    {"rope_scaling": {"type": "longrope", "factor": 2.0, "short_factor": [1.0, 1.1, 1.2, 1.3],
                      "long_factor": [2.0, 2.1, 2.2, 2.3]}},
    {"rope_scaling": {"rope_type": "default", "factor": 3.0}},
    {"rope_scaling": {"rope_type": "default", "mrope_section": [1, 1, 2]}},
    {"rope_scaling": LLAMA3}, {"rope_scaling": without(LLAMA3, "low_freq_factor")},
    {"rope_scaling": without(LLAMA3, "high_freq_factor")},
    {"rope_scaling": without(LLAMA3, "original_max_position_embeddings")},
    {"rope_scaling": LLAMA3, "original_max_position_embeddings": 32},
    {"rope_scaling": {**LLAMA3, "low_freq_factor": None}},
    {"rope_scaling": YARN}, {"rope_scaling": without(YARN, "original_max_position_embeddings")},
    {"rope_scaling": without(YARN, "factor")}, {"rope_scaling": {**YARN, "factor": None}},
    {"rope_scaling": YARN, "original_max_position_embeddings": 8},
    {"rope_scaling": YARN, "original_max_position_embeddings": None},
    {"rope_scaling": {**YARN, "original_max_position_embeddings": None}},
    {"rope_scaling": {**YARN, "attention_factor": None}},
    {"rope_scaling": {**YARN, "attention_factor": 0.5}},
    {"rope_scaling": {**YARN, "attention_factor": 0.0}},
    {"rope_scaling": {**YARN, "mscale": 0.7}}, {"rope_scaling": {**YARN, "mscale_all_dim": 0.7}},
    {"rope_scaling": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0}},
    {"rope_scaling": {**YARN, "mscale": 0, "mscale_all_dim": 1.0}},
    {"rope_scaling": {**YARN, "mscale": None, "mscale_all_dim": 1.0}},
    {"rope_scaling": {**YARN, "beta_fast": 0}}, {"rope_scaling": {**YARN, "beta_fast": None}},
    {"rope_scaling": {**YARN, "beta_fast": 4, "beta_slow": 2}},
    {"rope_scaling": {**YARN, "beta_slow": 0}}, {"rope_scaling": {**YARN, "truncate": True}},
    {"rope_scaling": {**YARN, "truncate": False}}, {"rope_scaling": {**YARN, "truncate": None}},
    {"rope_scaling": {**YARN, "factor": 0.5}}, {"rope_scaling": {**YARN, "finetuned": True}},
    {"partial_rotary_factor": 1.0}, {"partial_rotary_factor": None},
    {"partial_rotary_factor": 0.5}, {"rope_scaling": {**YARN, "partial_rotary_factor": 0.5}},
]
# Of Llama and its kinds. Entries that a type does not read are unknown to it.
SHARED = [
    {"num_key_value_heads": None}, {"num_key_value_heads": 4}, {"num_key_value_heads": "2"},
    {"head_dim": None}, {"head_dim": 12}, {"hidden_act": "gelu"}, {"hidden_act": "gelu_new"},
    {"hidden_act": "swish"}, {"hidden_act": "relu"}, {"hidden_act": None},
    {"rms_norm_eps": 0.1}, {"rms_norm_eps": None}, {"tie_word_embeddings": True},
    {"tie_word_embeddings": None}, {"attention_bias": True}, {"attention_bias": None},
    {"mlp_bias": True}, {"attention_bias": True, "mlp_bias": True}, {"attention_dropout": None},
    {"use_sliding_window": True}, {"use_sliding_window": False, "sliding_window": 4},
    {"sliding_window": 4}, {"sliding_window": None}, {"sliding_window": 0},
    {"max_window_layers": 1}, {"max_position_embeddings": None}, {"is_causal": False},
    {"is_causal": None}, {"attention_chunk_size": 4}, {"num_experts": 8}, {"logit_scale": 2.0},
    {"qk_norm": True}, {"layer_types": ["full_attention", "sliding_attention"]},
    {"layer_types": ["full_attention"] * 2}, {"layer_types": None}, {"pretraining_tp": 2},
    {"rope_interleaved": False}, {"rope_interleaved": True}, {"dtype": "float32"},
    {"per_layer_config": {"1": {"rms_norm_eps": 0.5}}}, {"final_logit_softcapping": None},
]
OF_QWEN = [
    SLIDES, {**SLIDES, "max_window_layers": 1}, {**SLIDES, "max_window_layers": 9},
    {**SLIDES, "max_window_layers": None}, {**SLIDES, "max_window_layers": 0},
    {**SLIDES, "sliding_window": None, "max_window_layers": 0},
    {**SLIDES, "sliding_window": 0, "max_window_layers": 0}, {"use_sliding_window": None},
    {**SLIDES, "layer_types": ["full_attention", "sliding_attention"]},
    {**SLIDES, "layer_types": ["sliding_attention", "full_attention"]},
    {**SLIDES, "max_window_layers": 1, "layer_types": ["full_attention", "sliding_attention"]},
    {"num_attention_heads": 32, "hidden_size": 64, "num_key_value_heads": 32},
]
OF_GPT2 = [
    {"n_inner": None}, {"n_inner": 128}, {"n_inner": 100}, {"activation_function": "gelu"},
    {"activation_function": "gelu_pytorch_tanh"}, {"activation_function": "relu"},
    {"activation_function": None}, {"layer_norm_epsilon": 0.1}, {"layer_norm_epsilon": None},
    {"scale_attn_weights": False}, {"scale_attn_weights": None},
    {"scale_attn_by_inverse_layer_idx": True}, {"reorder_and_upcast_attn": True},
    {"hidden_size": 64}, {"hidden_size": 32}, {"num_hidden_layers": 1}, {"n_ctx": 16},
    {"max_position_embeddings": 32}, {"summary_type": "last"}, {"unknown_entry": 5},
    {"tie_word_embeddings": False}, {"model_type": None}, {"attn_pdrop": 0.3},
    {"add_cross_attention": True}, {"n_head": 4.5}, {"temperature": 0.2}, {"is_causal": False},
]
OF_NEO = [
    {"intermediate_size": None}, {"intermediate_size": 40}, {"window_size": 3},
    {"window_size": 0}, {"window_size": None}, {"attention_types": None},
    {"attention_layers": ["local", "global"]}, {"attention_layers": None},
    {"attention_types": [[["global"], 2]]}, {"attention_types": [[["local"], 1]]},
    {"attention_types": [[["global", "sliding"], 1]]}, {"activation_function": "gelu"},
    {"activation_function": "gelu_fast"}, {"layer_norm_epsilon": 0.1}, {"num_hidden_layers": 2},
    {"num_attention_heads": 2}, {"attention_layers": ["local", "global", "global"]},
    {"resid_dropout": 0.1}, {"classifier_dropout": 0.5}, {"scale_attention": True},
]
OF_NEOX = [
    {"rotary_pct": 0.5}, {"rotary_pct": None}, {"rotary_emb_base": 100}, {"rotary_emb_base": None},
    {"rope_theta": 100.0}, {"rope_theta": 100.0, "rotary_emb_base": 100.0},
    {"partial_rotary_factor": 0.5}, {"partial_rotary_factor": 0.25},
    {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    {"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}},
    {"rope_parameters": {"rope_theta": 100.0, "partial_rotary_factor": 0.5}, "rotary_pct": 1.0,
     "rotary_emb_base": 9.0}, {"rope_scaling": {"type": "linear", "factor": 2.0}},
    {"use_parallel_residual": False}, {"use_parallel_residual": None}, {"head_dim": 8},
    {"attention_bias": False}, {"attention_bias": None}, {"hidden_act": "gelu_new"},
    {"hidden_act": "gelu_python"}, {"layer_norm_eps": 0.1}, {"tie_word_embeddings": True},
    {"hidden_dropout": 0.1}, {"is_decoder": True},
]
OF_BERT = [
    {"layer_norm_eps": 0.1}, {"layer_norm_eps": None}, {"type_vocab_size": 1},
    {"type_vocab_size": None}, {"pad_token_id": None}, {"pad_token_id": 0}, {"pad_token_id": 3},
    {"pad_token_id": -1}, {"hidden_act": "gelu_new"}, {"hidden_act": "gelu_python"},
    {"hidden_act": "relu"}, {"is_decoder": True}, {"is_decoder": None},
    {"add_cross_attention": True}, {"position_embedding_type": "relative_key"},
    {"position_embedding_type": "absolute"}, {"position_embedding_type": None},
    {"tie_word_embeddings": False}, {"chunk_size_feed_forward": 8}, {"embedding_size": 16},
    {"hidden_dropout_prob": 0.5}, {"classifier_dropout": 0.5}, {"pooler_type": "mean"},
]
OF_CLASSES = [
    CLASSES, {**CLASSES, "num_labels": 3}, {**CLASSES, "id2label": {"0": "a", "1": "b", "2": "c"}},
    {**CLASSES, "id2label": None}, {**CLASSES, "problem_type": "regression"},
    {**CLASSES, "problem_type": None}, {**CLASSES, "problem_type": "multi_label_classification"},
]
OF_T5 = [
    {"feed_forward_proj": "gated-gelu"}, {"feed_forward_proj": "gated-silu"},
    {"feed_forward_proj": "gelu"}, {"feed_forward_proj": "gated-relu"},
    {"feed_forward_proj": None}, {"feed_forward_proj": "gated-gelu", "dense_act_fn": "silu"},
    {"feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": True},
    {"feed_forward_proj": "gated-gelu", "is_gated_act": False},
    {"feed_forward_proj": "relu", "dense_act_fn": "gelu"}, {"dense_act_fn": None},
    {"is_gated_act": None}, {"tie_word_embeddings": False}, {"tie_word_embeddings": None},
    {"tie_word_embeddings": True}, {"scale_decoder_outputs": False},
    {"scale_decoder_outputs": None}, {"scale_decoder_outputs": True},
    {"tie_word_embeddings": False, "scale_decoder_outputs": True}, {"num_decoder_layers": None},
    {"num_decoder_layers": 1}, {"layer_norm_epsilon": 0.1},
    {"relative_attention_num_buckets": 8}, {"relative_attention_num_buckets": None},
    {"relative_attention_max_distance": 9}, {"pad_token_id": None}, {"is_encoder_decoder": False},
    {"is_decoder": True}, {"head_dim": 8}, {"hidden_size": 64}, {"n_positions": 512},
    {"dropout_rate": 0.0}, {"num_hidden_layers": 3}, {"decoder_start_token_id": None},
]
# Entries of published folders that transformers does not read, or that do not change the logits.
PUBLISHED = {
    "gpt2": {"n_special": 0, "predict_special_tokens": True, "_num_labels": 1, "n_ctx": 32,
             "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
             "gradient_checkpointing": True, "output_past": True, "torchscript": False,
             "vocab_size_or_config_json_file": 40, "xla_device": None, "loss_type": "ForCausalLM"},
    "llama": {"seq_length": 64, "bf16": True, "fp32": False, "use_flash_attention_2": True,
              "max_window_layers": 28, "rope_interleaved": False, "is_llama_config": True,
              "pretraining_tp": 1, "transformers.js_config": {"kv_cache_dtype": {"fp16": "x"}},
              "auto_map": {"AutoConfig": "a--b.C"}, "quantization_config": None, "use_mrope": False,
              "keys_to_ignore_at_inference": ["past_key_values"], "unsloth_version": "2025.1",
              "_attn_implementation_autoset": True, "base_model_name_or_path": "a/b",
              "rope_condense_ratio": 1, "rope_thetta": 500.0, "training_args": {"lr": 0.1}},
    "qwen2": {"seq_length": 64, "use_mrope": False, "use_logn_attn": False,
              "use_dynamic_ntk": True},
    "gpt_neox": {"custom_pipelines": {"x": {"impl": "a.B"}}, "model_parallel_size": 4},
    "bert": {"directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
             "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "embedding_size": 32,
             "pooler_type": "first_token_transform", "sentence_transformers": {"version": "4.1.0"},
             "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"},
    "t5": {"n_positions": 512, "scalable_attention": True, "output_past": True},
}
CASES = ([("llama", x) for x in ROPE + SHARED] + [("mistral", x) for x in SHARED]
         + [("qwen2", x) for x in SHARED + OF_QWEN] + [("qwen3", x) for x in SHARED + OF_QWEN]
         + [("olmo2", x) for x in SHARED] + [("olmo2", x) for x in ROPE[:12]]
         + [("gpt2", x) for x in OF_GPT2] + [("gpt_neo", x) for x in OF_NEO]
         + [("gpt_neox", x) for x in OF_NEOX] + [("bert", x) for x in OF_BERT + OF_CLASSES]
         + [(kind, x) for kind in ("roberta", "xlm-roberta", "camembert") for x in OF_BERT[:8]]
         + [("t5", x) for x in OF_T5] + [(family, {}) for family in BASES] + list(PUBLISHED.items())
         + [("llama", {}, "num_key_value_heads"), ("llama", {}, "max_position_embeddings"),
            ("mistral", {"num_attention_heads": 8}, "num_key_value_heads"),
            ("mistral", {}, "num_key_value_heads"), ("mistral", {}, "max_position_embeddings"),
            ("qwen2", {"num_attention_heads": 32, "hidden_size": 64}, "num_key_value_heads"),
            ("qwen2", {}, "num_key_value_heads"), ("qwen3", {}, "head_dim"),
            ("olmo2", {}, "num_key_value_heads"), ("gpt2", {}, "n_positions"),
            ("gpt_neo", {}, "attention_types"), ("gpt_neo", {}, "window_size"),
            ("gpt_neo", {"num_layers": 24}, "attention_types"),
            ("gpt_neox", {"num_attention_heads": 64, "hidden_size": 512}, "num_attention_heads"),
            ("bert", {}, "max_position_embeddings"), ("roberta", {}, "max_position_embeddings"),
            ("t5", {}, "d_kv"), ("t5", {}, "num_layers"), ("t5", {}, "decoder_start_token_id")])
