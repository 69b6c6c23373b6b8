"""Writes ops.safetensors: single operations and their gradients at shapes and values that hurt.

PyTorch in float64 is the oracle. Where gpt2_small.safetensors only says that something is wrong,
these say which operation; the inputs include what a trained model rarely shows a test: rows far
from zero, logits in the thousands, ignored targets, queries that see a single key.

    python tests/golden/make_ops.py [--check]

tests/golden/README.md lists the contents.
"""
import pathlib

import torch
import torch.nn.functional as F

from fixture_file import write_or_check

SEED, IGNORE, HEADS = 7, -100, 3
FILE = pathlib.Path(__file__).with_name("ops.safetensors")


def with_gradients(prefix, inputs, function, generator):
    """Inputs as float32, y and d<input> for a random dy, computed in float64."""
    inputs = {name: value.float() for name, value in inputs.items()}
    leaves = {name: value.double().requires_grad_() for name, value in inputs.items()}
    y = function(**leaves)
    dy = torch.randn(y.shape, generator=generator)  # float32 values, exact in float64
    y.backward(dy.double())
    out = {f"{prefix}/{name}": value for name, value in inputs.items()}
    out.update({f"{prefix}/d{name}": leaf.grad.float() for name, leaf in leaves.items()})
    out.update({f"{prefix}/y": y.detach().float(), f"{prefix}/dy": dy})
    return out


def attention(qkv):
    """Causal self-attention on packed qkv (B, T, 3 C), written out: no fused kernel is trusted."""
    b, t, c3 = qkv.shape
    q, k, v = (x.view(b, t, HEADS, -1).transpose(1, 2) for x in qkv.split(c3 // 3, dim=-1))
    scores = q @ k.transpose(-2, -1) / (c3 // 3 // HEADS) ** 0.5
    scores = scores.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c3 // 3)


def fixture():
    generator = torch.Generator().manual_seed(SEED)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    out = {}
    x = randn(7, 13)
    x[1] += 100.0  # mean far above the spread: a one-pass variance cancels here
    x[2] *= 1e-3   # spread near sqrt(eps): eps matters
    x[3] *= 1e3
    out |= with_gradients(
        "layernorm", {"x": x, "weight": 1 + 0.3 * randn(13), "bias": 0.3 * randn(13)},
        lambda x, weight, bias: F.layer_norm(x, (13,), weight, bias, 1e-5), generator)

    x = torch.cat([3 * randn(40), torch.tensor([0.0, 1e-4, -1e-4, 8.0, -8.0, 60.0, -60.0])])
    out |= with_gradients("gelu", {"x": x}, lambda x: F.gelu(x, approximate="tanh"), generator)

    x, weight, bias = randn(2, 5, 7), randn(9, 7), randn(9)
    out |= with_gradients("linear", {"x": x, "weight": weight, "bias": bias}, F.linear, generator)

    qkv = randn(2, 7, 3 * HEADS * 5)
    qkv[1] *= 6  # sharp attention
    out |= with_gradients("attention", {"qkv": qkv}, attention, generator)

    logits = randn(9, 37)
    logits[1] += 5000.0   # only differences count
    logits[2] *= 300.0    # probabilities underflow
    logits[3] -= 5000.0
    targets = torch.randint(37, (9,), generator=generator)
    targets[4] = targets[8] = IGNORE
    leaf = logits.double().requires_grad_()
    loss = F.cross_entropy(leaf, targets, ignore_index=IGNORE)
    loss.backward()
    out |= {"cross_entropy/logits": logits, "cross_entropy/targets": targets.int(),
            "cross_entropy/loss": loss.detach().float(), "cross_entropy/dlogits": leaf.grad.float()}
    config = {"attention_heads": HEADS, "layernorm_eps": 1e-5, "ignore_index": IGNORE}
    return {k: v.contiguous() for k, v in out.items()}, config


if __name__ == "__main__":
    write_or_check(FILE, __doc__.split("\n")[0], fixture)
