"""Writes hf_gpt2/: a small random GPT-2 as transformers saves it, and what it computes.

The vocabulary is that of bpe.json (run make_bpe.py first). expected.safetensors holds ids (2, 20),
logits (2, 20, vocabulary) in float32, and greedy, the ids of a prompt of 5 tokens and 40 more.
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

HERE = pathlib.Path(__file__).parent
OUT = HERE / "hf_gpt2"


def main():
    torch.manual_seed(7)
    size = json.loads((HERE / "bpe.json").read_text())["size"]
    config = GPT2Config(vocab_size=size, n_positions=64, n_embd=16, n_layer=4, n_head=2,
                        bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # no bias stays 0 and no scale 1; far from uniform
            parameter.add_(torch.randn_like(parameter) * 0.2)
        ids = torch.randint(0, size, (2, 20))
        logits = model(ids).logits
        greedy = model.generate(ids[:1, :5], max_new_tokens=40, do_sample=False,
                                eos_token_id=None, pad_token_id=0)
    model.save_pretrained(OUT)
    (OUT / "generation_config.json").unlink(missing_ok=True)
    save_file({"ids": ids.int(), "logits": logits.contiguous(), "greedy": greedy[0].int()},
              OUT / "expected.safetensors")


main()
