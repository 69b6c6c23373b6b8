"""Writes decoders/: small random models of several families as transformers saves them, and what
they compute in float64. Arguments: the names of some of them.

NAME/config.json and NAME.safetensors: ids (2, 20) and logits (2, 20, vocabulary) in float32;
greedy, the ids of a prompt of 5 tokens and 100 more; train/ids (20, 3 * 11), the losses and gradient
norms of 20 steps of AdamW with clipping on them (each row's next token is its target); and of the
gradient of every parameter for ids its norm and its dot products with three vectors. Weights, and
these vectors, are a function of the name and the position, so that they need no file: see small_models.py. The metadata has the parameters' names and shapes.
"""
import pathlib

import torch
from transformers import (AutoModelForCausalLM, GPT2Config, GPTNeoConfig, GPTNeoXConfig, LlamaConfig,
                          MistralConfig, Olmo2Config, Qwen2Config, Qwen3Config)

from small_models import chosen, gradients_of, save, steps_of, weight_of

OUT = pathlib.Path(__file__).parent / "decoders"
VOCAB = 61
LLAMA = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
             bos_token_id=None, eos_token_id=None)


def rope(kind, theta=10000.0, **settings):
    return {"rope_type": kind, "rope_theta": theta, **settings}


MODELS = {
    "gpt2": GPT2Config(vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=128,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None,
                       eos_token_id=None),
    "llama": LlamaConfig(**LLAMA),
    "llama3": LlamaConfig(**{**LLAMA, "num_key_value_heads": 1}, tie_word_embeddings=True,
                          rope_parameters=rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0,
                                               high_freq_factor=4.0,
                                               original_max_position_embeddings=32)),
    "llama_yarn": LlamaConfig(**LLAMA, rms_norm_eps=1e-5, attention_bias=True, mlp_bias=True,
                              rope_parameters=rope("yarn", factor=4.0,
                                                   original_max_position_embeddings=32)),
    "llama_linear": LlamaConfig(**{**LLAMA, "num_key_value_heads": 4}, head_dim=12,
                                hidden_act="gelu", rope_parameters=rope("linear", factor=2.0)),
    "mistral": MistralConfig(**LLAMA, sliding_window=7),
    "qwen2": Qwen2Config(**LLAMA, tie_word_embeddings=True, use_sliding_window=True,
                         sliding_window=6, max_window_layers=1),
    "qwen3": Qwen3Config(**LLAMA, head_dim=16),
    "olmo2": Olmo2Config(**LLAMA, pad_token_id=None),
    "gpt_neox": GPTNeoXConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=80,
                              num_hidden_layers=2, num_attention_heads=4,
                              max_position_embeddings=128, bos_token_id=None, eos_token_id=None),
    "gpt_neox_serial": GPTNeoXConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=128, use_parallel_residual=False,
        bos_token_id=None, eos_token_id=None,
        rope_parameters={**rope("default"), "partial_rotary_factor": 0.5}),
    "gpt_neo": GPTNeoConfig(vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=4,
                            attention_types=[[["global", "local"], 1]], window_size=7,
                            max_position_embeddings=128, bos_token_id=None, eos_token_id=None),
    "gpt_neo_mixed": GPTNeoConfig(vocab_size=VOCAB, hidden_size=32, num_layers=5, num_heads=4,
                                  attention_types=[[["local", "local", "global"], 1],
                                                   [["local"], 2]], window_size=5,
                                  max_position_embeddings=128, bos_token_id=None,
                                  eos_token_id=None),
    # A head of its own in spite of tie_word_embeddings, which transformers then uses.
    "llama_own_head": LlamaConfig(**LLAMA, tie_word_embeddings=True),
}


def named_in_files(model):
    """Parameters by their names in files: that of GPT-NeoX's head is another one in memory."""
    neox = model.config.model_type == "gpt_neox"
    return [(path.replace("lm_head", "embed_out") if neox else path, p)
            for path, p in model.named_parameters()]


def loss_of(model, ids):
    logits = model(ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def main():
    for name, config in chosen(MODELS).items():
        torch.manual_seed(7)
        config._attn_implementation = "eager"
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
        if name == "llama_own_head":
            model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCAB, 32, dtype=torch.float64))
        with torch.no_grad():
            for path, parameter in named_in_files(model):
                parameter.copy_(weight_of(path, parameter.shape))
            ids = torch.randint(0, VOCAB, (2, 20))
            logits = model(ids).logits
            greedy = ids[:1, :5]
            for _ in range(100):
                greedy = torch.cat([greedy, model(greedy).logits[:, -1:].argmax(-1)], 1)
        batches = torch.randint(0, VOCAB, (20, 3, 11))
        loss_of(model, ids).backward()
        out = {"ids": ids.int(), "logits": logits.float().contiguous(), "greedy": greedy[0].int(),
               "train/ids": batches.reshape(20, 33).int()}
        named = named_in_files(model)
        out["gradients"] = gradients_of(named)
        model.zero_grad()
        out["train/loss"], out["train/grad_norm"] = steps_of(model, batches, loss_of)
        save(OUT / name, model, out, named)


main()
