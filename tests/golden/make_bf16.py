"""Writes gpt2_bf16.safetensors: what PyTorch computes in bfloat16 for the model of make_gpt2.py.

Two programs that round to bfloat16 in different places differ, so the test compares the distances
of both from the float64 values in gpt2_small.safetensors, and the distance between them.

    python tests/golden/make_bf16.py            writes the file beside this script
    python tests/golden/make_bf16.py --check    fails if the file would come out different
"""
import pathlib

import torch

from fixture_file import write_or_check
from make_gpt2 import SEED, batches, build, loss_of, our_names

FILE = pathlib.Path(__file__).with_name("gpt2_bf16.safetensors")
# Gradients kept: of both embeddings, and of every kind of layer.
KEPT = ("tok.weight", "pos.weight", "blocks.1.norm1.weight", "blocks.1.attn.qkv.weight",
        "blocks.1.attn.proj.bias", "blocks.2.mlp.up.weight", "blocks.2.mlp.up.bias",
        "blocks.2.mlp.down.weight", "norm.bias")


def fixture():
    generator = torch.Generator().manual_seed(SEED)
    model = build(generator).to(torch.bfloat16)
    ids, targets = batches(1, generator)
    logits, loss = loss_of(model, ids[0], targets[0])
    loss.backward()
    out = {"logits": logits.detach().contiguous(), "loss": loss.detach().float()}
    names = our_names(model)
    for name in KEPT:
        parameter, transposed = names[name]
        gradient = parameter.grad.t() if transposed else parameter.grad
        out[f"grad/{name}"] = gradient.contiguous()
    return out, {"torch": torch.__version__}


if __name__ == "__main__":
    write_or_check(FILE, __doc__.split("\n")[0], fixture)
