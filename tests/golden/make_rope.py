"""Prints the frequencies of scaled rotary embeddings, as transformers computes them, for
tests/cpp/rope_test.cc."""

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

KINDS = {
    "linear": {"factor": 8.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 64},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 64},
}

for kind, settings in KINDS.items():
    config = LlamaConfig(hidden_size=16, num_attention_heads=1, max_position_embeddings=512,
                         rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **settings})
    frequencies, scale = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    print(kind, scale, ", ".join(f"{x:.9g}" for x in frequencies.tolist()))
