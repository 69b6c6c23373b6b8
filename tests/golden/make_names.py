"""Writes names.json: what PyTorch computes for functions under names that nnlua shares with it.

Each case is an expression in Lua and the one in Python that PyTorch's users write; the file has the
values, dtype and shape of the latter, and the gradient of x where it has one. The loss of that
gradient is the sum of the results times 0.5, 1.5, 2.5, ...

    python tests/golden/make_names.py [--check]
"""
import argparse
import json
import pathlib
import sys

import torch
import torch.nn.functional as F

FILE = pathlib.Path(__file__).with_name("names.json")
INPUTS = {
    "x": [[0.3, -0.7, 0.9], [-0.2, 0.6, -0.4]],
    "y": [[0.8, 0.5, -0.6], [0.4, -0.9, 0.7]],
    "m": [[1.5, -0.5, 2.0], [0.25, 3.0, -1.0], [-2.0, 0.75, 1.0]],
    "v": [1.0, -2.0, 3.0],
    "z": [[2.5, 0.0, -1.5], [0.0, 4.0, -3.5]],
    "b": [[[1.0, 2.0], [0.5, -1.0], [3.0, 1.5]], [[-1.0, 0.5], [2.0, 2.5], [0.0, 1.0]]],
}
IDS = [2, 0]
DTYPES = {torch.float32: "f32", torch.int64: "i64", torch.bool: "bool"}

CASES = [line.split(" | ") for line in """
x:exp() | x.exp()
x:exp2() | x.exp2()
x:abs():log2() | x.abs().log2()
x:abs():log10() | x.abs().log10()
x:abs():log1p() | x.abs().log1p()
x:tan() | x.tan()
x:asin() | x.asin()
x:acos() | x.acos()
x:atan() | x.atan()
x:atan2(y) | x.atan2(y)
x:sinh() | x.sinh()
x:cosh() | x.cosh()
x:erf() | x.erf()
z:round() | z.round()
z:trunc() | z.trunc()
z:frac() | z.frac()
z:floor() | z.floor()
z:remainder(1.5) | z.remainder(1.5)
z:isinf() | z.isinf()
(v / 0):isinf() | (v / 0).isinf()
x:clamp(-0.5, 0.5) | x.clamp(-0.5, 0.5)
x:clamp{min = 0.1} | x.clamp(min=0.1)
x:clamp(nil, 0.1) | x.clamp(max=0.1)
nn.leaky_relu(x) | F.leaky_relu(x)
nn.leaky_relu(x, 0.2) | F.leaky_relu(x, 0.2)
nn.elu(x) | F.elu(x)
nn.elu(x, 0.5) | F.elu(x, 0.5)
nn.selu(x) | F.selu(x)
nn.celu(x, 2) | F.celu(x, 2)
nn.mish(x) | F.mish(x)
nn.gelu_exact(x) | F.gelu(x)
nn.silu(x) | F.silu(x)
nn.softplus(x) | F.softplus(x)
nn.softsign(x) | F.softsign(x)
nn.logsigmoid(x) | F.logsigmoid(x)
nn.hardswish(x * 4) | F.hardswish(x * 4)
nn.hardsigmoid(x * 4) | F.hardsigmoid(x * 4)
x:lerp(y, 0.3) | x.lerp(y, 0.3)
x:addcmul(y, y, 0.5) | x.addcmul(y, y, value=0.5)
x:addcdiv(y, y + 2, 0.5) | x.addcdiv(y, y + 2, value=0.5)
(z / 0):nan_to_num(5, 6, 7) | (z / 0).nan_to_num(5, 6, 7)
x:sum(2) | x.sum(1)
x:mean(1) | x.mean(0)
x:prod(2) | x.prod(1)
x:std() | x.std()
x:std(2) | x.std(1)
x:var{axis = 1, correction = 0, keepdim = true} | x.var(0, correction=0, keepdim=True)
x:norm() | x.norm()
x:norm(1, 2) | x.norm(1, 1)
x:norm(3, 1, {keepdim = true}) | x.norm(3, 0, keepdim=True)
x:norm(math.huge) | x.norm(float("inf"))
z:count_nonzero() | z.count_nonzero()
z:count_nonzero(1) | z.count_nonzero(0)
x:argmax(2) | x.argmax(1)
x:argmax() | x.argmax()
x:argmin{keepdim = true} | x.argmin(keepdim=True)
z:any(2) | z.any(1)
z:any() | z.any()
z:all(1) | z.all(0)
z:all(2, {keepdim = true}) | z.all(1, keepdim=True)
nn.tensor(x:allclose(y)) | torch.tensor(x.allclose(y))
nn.linspace(-1, 2, 7) | torch.linspace(-1, 2, 7)
nn.eye(3) | torch.eye(3)
nn.eye(2, 4, {dtype = "i64"}) | torch.eye(2, 4, dtype=torch.int64)
nn.one_hot(ids, 3) | F.one_hot(ids, 3)
nn.full({2, 2}, 3) | torch.full((2, 2), 3.0)
nn.zeros_like(x) | torch.zeros_like(x)
nn.ones_like(x, {dtype = "i64"}) | torch.ones_like(x, dtype=torch.int64)
nn.randn_like(ids, {dtype = "f32"}) * 0 | torch.randn_like(ids, dtype=torch.float32) * 0
nn.randint(5, {2, 3}) * 0 | torch.randint(5, (2, 3)) * 0
nn.rand_like(x) * 0 | torch.rand_like(x) * 0
nn.bernoulli(nn.ones(3)) | torch.bernoulli(torch.ones(3))
m:tril() | m.tril()
b:triu(-1) | b.triu(-1)
m:diag() | m.diag()
m:diag(1) | m.diag(1)
v:diag(-1) | v.diag(-1)
m:trace() | m.trace()
v:outer(x[1]) | v.outer(x[0])
nn.cdist(x, y) | torch.cdist(x, y)
nn.cdist(x, m, 1) | torch.cdist(x, m, 1)
nn.einsum("ij,kj->ik", x, y) | torch.einsum("ij,kj->ik", x, y)
nn.einsum("bij,jk->bik", b, x) | torch.einsum("bij,jk->bik", b, x)
nn.einsum("...ij,...ij", b, b * 2) | torch.einsum("...ij,...ij", b, b * 2)
nn.einsum("ii->i", m) | torch.einsum("ii->i", m)
nn.einsum("ij,jk,kl->il", x, m, m) | torch.einsum("ij,jk,kl->il", x, m, m)
nn.einsum("ij,j", x, v) | torch.einsum("ij,j", x, v)
nn.einsum("b...->...b", b) | torch.einsum("b...->...b", b)
nn.einsum("ik,jk->ijk", x, y) | torch.einsum("ik,jk->ijk", x, y)
nn.einsum("ba", x) | torch.einsum("ba", x)
nn.tensordot(x, m, 1) | torch.tensordot(x, m, 1)
nn.tensordot(b, x, {{1, 2}, {1, 2}}) | torch.tensordot(b, x, ([0, 1], [0, 1]))
x:split(2, 2) | x.split(2, 1)[0]
x:split(2) | x.split(2)[0]
x:split({1, 2}, 2) | x.split([1, 2], 1)[0]
x:chunk(2, 2) | x.chunk(2, 1)[0]
x:unbind(2) | x.unbind(1)[0]
x:select(2, 3) | x.select(1, 2)
nn.stack({x, y}, 3) | torch.stack([x, y], 2)
nn.cat({x, y}, 2) | torch.cat([x, y], 1)
b:flatten() | b.flatten()
b:flatten(2) | b.flatten(1)
b:movedim(1, 3) | b.movedim(0, 2)
b:transpose(1, -1) | b.transpose(0, -1)
x:flip(2) | x.flip(1)
b:flip{1, 3} | b.flip(0, 2)
x:roll(1) | x.roll(1)
x:roll(-1, 2) | x.roll(-1, 1)
x:roll({1, 2}, {1, 2}) | x.roll((1, 2), (0, 1))
v:expand(2, -1) | v.expand(2, -1)
b:expand{2, -1, 2} | b.expand(2, -1, 2)
x:tile(2, 1) | x.tile(2, 1)
v:tile(2, 2) | v.repeat(2, 2)
x:repeat_interleave(2) | x.repeat_interleave(2)
x:repeat_interleave(3, 2) | x.repeat_interleave(3, 1)
x:pad({1, 2}) | F.pad(x, (1, 2))
x:pad({1, 0, 0, 2}, {value = 9}) | F.pad(x, (1, 0, 0, 2), value=9)
x:pad({-1, 1}) | F.pad(x, (-1, 1))
b:pad({1, 1}, {mode = "reflect"}) | F.pad(b, (1, 1), mode="reflect")
b:pad({2, 1}, {mode = "replicate"}) | F.pad(b, (2, 1), mode="replicate")
b:pad({1, 2}, {mode = "circular"}) | F.pad(b, (1, 2), mode="circular")
(select(2, nn.meshgrid(v, x[1]))) | torch.meshgrid(v, x[0], indexing="ij")[1]
x:masked_fill(y:gt(0), 7) | x.masked_fill(y > 0, 7)
nn.where(y:gt(0), x, y) | torch.where(y > 0, x, y)
nn.normalize(x) | F.normalize(x)
nn.normalize(b) | F.normalize(b)
nn.cosine_similarity(x, y) | F.cosine_similarity(x, y)
nn.cosine_similarity(b, b + 1) | F.cosine_similarity(b, b + 1)
nn.mse_loss(x, y) | F.mse_loss(x, y)
nn.mse_loss(x, y, {reduction = "none"}) | F.mse_loss(x, y, reduction="none")
nn.l1_loss(x, y, {reduction = "sum"}) | F.l1_loss(x, y, reduction="sum")
nn.smooth_l1_loss(x, y, {beta = 0.5}) | F.smooth_l1_loss(x, y, beta=0.5)
nn.huber_loss(x, y, {delta = 0.5}) | F.huber_loss(x, y, delta=0.5)
nn.binary_cross_entropy(x:sigmoid(), y:sigmoid()) | F.binary_cross_entropy(x.sigmoid(), y.sigmoid())
nn.binary_cross_entropy(z:gt(0):to "f32", y:gt(0):to "f32") | F.binary_cross_entropy((z > 0).float(), (y > 0).float())
nn.binary_cross_entropy_with_logits(x, y:sigmoid(), {pos_weight = v}) | F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=v)
nn.binary_cross_entropy_with_logits(x * 100, y:gt(0):to "f32", {weight = v}) | F.binary_cross_entropy_with_logits(x * 100, (y > 0).float(), weight=v)
nn.kl_div(x:log_softmax(), y:softmax(), {reduction = "batchmean"}) | F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean")
nn.kl_div(x:log_softmax(), y:log_softmax(), {log_target = true}) | F.kl_div(x.log_softmax(-1), y.log_softmax(-1), log_target=True)
nn.nll_loss(x:log_softmax(), ids) | F.nll_loss(x.log_softmax(-1), ids)
nn.nll_loss(x:log_softmax(), ids, {ignore_index = 2}) | F.nll_loss(x.log_softmax(-1), ids, ignore_index=2)
nn.cross_entropy(x, ids) | F.cross_entropy(x, ids)
nn.cross_entropy(x, ids, {label_smoothing = 0.1}) | F.cross_entropy(x, ids, label_smoothing=0.1)
nn.cross_entropy(x, ids, {reduction = "none", ignore_index = 2}) | F.cross_entropy(x, ids, reduction="none", ignore_index=2)
nn.cosine_embedding_loss(x, y, nn.tensor{1, -1}) | F.cosine_embedding_loss(x, y, torch.tensor([1, -1]))
nn.triplet_margin_loss(x, y, z) | F.triplet_margin_loss(x, y, z)
""".strip().splitlines()]


def result(lua, expression):
    names = {name: torch.tensor(value) for name, value in INPUTS.items()}
    names["x"].requires_grad_()
    y = eval(expression, {"torch": torch, "F": F, "ids": torch.tensor(IDS), **names})
    out = {"lua": lua, "dtype": DTYPES[y.dtype], "shape": list(y.shape),
           "values": [round(float(value), 7) for value in y.detach().flatten()]}
    if y.requires_grad:
        weights = torch.arange(y.numel()).reshape(y.shape) + 0.5
        (y * weights).sum().backward()
        out["grad"] = [round(float(value), 7) for value in names["x"].grad.flatten()]
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    check = parser.parse_args().check
    cases = ",\n".join(json.dumps(result(*case)) for case in CASES)
    text = f'{{"inputs": {json.dumps(INPUTS)}, "ids": {json.dumps(IDS)},\n"cases": [\n{cases}\n]}}\n'
    if not check:
        FILE.write_text(text)
        print(f"wrote {FILE.name}: {len(CASES)} cases, {len(text)} bytes")
    elif FILE.read_text() == text:
        print(f"{FILE.name}: identical, {len(text)} bytes")
    else:
        sys.exit(f"{FILE.name} is not what this script makes here; see git diff without --check")
