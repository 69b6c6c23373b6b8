"""Writes parts.safetensors: what PyTorch computes in float64 of the parts of random modules
(tests/lua/support/random_layers.lua), one at a time between an embedding and a head, and of losses:
the loss, and of each gradient its norm and three dot products. Weights are functions of their names
(small_models.py).

    python tests/golden/make_parts.py [--check]
"""
import math
import pathlib

import torch
import torch.nn.functional as F

from fixture_file import write_or_check
from small_models import probes_of, weight_of

FILE = pathlib.Path(__file__).with_name("parts.safetensors")
ROWS, T, C, V = 8, 4, 6, 11
VECTOR, MATRIX, TABLE, GRID = [C], [C, C], [V, C], [T, C]


def even():
    return torch.arange(C) % 2 == 0


def rows(p, x):
    return p.expand(x.shape)


def often(x, p):
    for _ in range(4):
        x = x + x.sin() * p * 0.2 + p * 0.1
    return x


def chunk(x, p):
    (first, second), (a, b) = p.chunk(2), x.chunk(2, -1)
    return torch.cat([b * first, a + second], -1)


def attention_of_ops(x, p):
    scores = x @ x.transpose(1, 2) * 0.4 + p
    later = torch.arange(T)[:, None] < torch.arange(T)
    return x + scores.masked_fill(later, -1e9).softmax(-1) @ x


def scatter_add(x, p, ids):
    columns = (ids % C)[:, None].expand(ROWS, T, T)
    return x + torch.zeros_like(x).scatter_add(-1, columns, x[:, :, :T] + p.mean()) * 0.1


def reduction(f):
    return lambda x, p: x * (1 + 0.2 * f(p))


# {part: (shapes of its parameters, function of x and them)}; those with * also take the ids.
USES = {
    "add": ([VECTOR], lambda x, p: x + p),
    "sub": ([VECTOR], lambda x, p: p - x),
    "mul": ([VECTOR], lambda x, p: x * p),
    "div": ([VECTOR], lambda x, p: x / (p * p + 1)),
    "neg": ([VECTOR], lambda x, p: x - p),
    "lerp": ([VECTOR], lambda x, p: x.lerp(rows(p, x), 0.3)),
    "addcmul": ([VECTOR, VECTOR], lambda x, p, q: x.addcmul(p, q, value=0.5)),
    "addcdiv": ([VECTOR, VECTOR], lambda x, p, q: x.addcdiv(p, q.square() + 1)),
    "where": ([VECTOR], lambda x, p: torch.where(even(), x, p)),
    "where of data": ([VECTOR], lambda x, p: torch.where(x > p, x, p * 0.5)),
    "masked_fill": ([VECTOR], lambda x, p: (x + p).masked_fill(even(), 0.5)),
    "expand": ([VECTOR], lambda x, p: x * p),
    "often": ([VECTOR], often),
    "detach": ([VECTOR], lambda x, p: x * p.detach() + p),
    "no_grad": ([VECTOR], lambda x, p: x + p * 0.5 + (x * p).detach()),
    "to": ([VECTOR], lambda x, p: x + p),
    "clone": ([VECTOR], lambda x, p: x + p),
    "custom": ([VECTOR], lambda x, p: x * p),
    "flip": ([VECTOR], lambda x, p: x + p.flip(0)),
    "roll": ([VECTOR], lambda x, p: x + p.roll(2)),
    "pad": ([VECTOR], lambda x, p: x + F.pad(p, (2, 1))[1:C + 1]),
    "repeat_interleave": ([VECTOR], lambda x, p: x + p[1:C // 2 + 1].repeat_interleave(2)),
    "tile": ([VECTOR], lambda x, p: x + p[:C // 2].tile(2)),
    "chunk": ([VECTOR], chunk),
    "stack": ([VECTOR, VECTOR], lambda x, p, q: x * torch.stack([p, q]).mean(0)),
    "cat": ([VECTOR], lambda x, p: torch.cat([p.expand(ROWS, 1, C), x], 1)[:, :T]),
    "permute": ([GRID], lambda x, p: (x.permute(1, 2, 0) * p.reshape(T, C, 1)).permute(2, 0, 1)),
    "max": ([VECTOR], reduction(torch.max)),
    "min": ([VECTOR], reduction(torch.min)),
    "mean": ([VECTOR], reduction(torch.mean)),
    "sum": ([VECTOR], reduction(torch.sum)),
    "prod": ([VECTOR], reduction(torch.prod)),
    "var": ([VECTOR], reduction(torch.var)),
    "std": ([VECTOR], reduction(torch.std)),
    "norm": ([VECTOR], reduction(torch.linalg.vector_norm)),
    "logsumexp": ([VECTOR], reduction(lambda p: p.logsumexp(0))),
    "normalize": ([VECTOR], lambda x, p: x + F.normalize(p, dim=0)),
    "softmax of p": ([VECTOR], lambda x, p: x * p.softmax(0) * 3),
    "log_softmax": ([VECTOR], lambda x, p: x + p.log_softmax(0) * 0.2),
    "cumsum": ([VECTOR], lambda x, p: x + p.cumsum(0) * 0.3),
    "cumprod": ([VECTOR], lambda x, p: x * (p * 0.2 + 1).cumprod(0)),
    "sort": ([VECTOR], lambda x, p: x + p.sort()[0]),
    "topk": ([VECTOR], lambda x, p: x + p.topk(3)[0].mean()),
    "median": ([VECTOR], lambda x, p: x + p.median()),
    "softmax": ([VECTOR], lambda x, p: (x * p).softmax(-1) * 4),
    "cosine_similarity": ([VECTOR], lambda x, p: x + F.cosine_similarity(
        x, rows(p, x), dim=-1)[..., None]),
    "matmul": ([MATRIX], lambda x, p: x @ p),
    "matmul trans_w": ([MATRIX], lambda x, p: x @ p.T),
    "matmul over time": ([[T, T]], lambda x, p: p @ x),
    "matmul of a vector": ([MATRIX, VECTOR], lambda x, p, q: x + p @ q),
    "linear": ([MATRIX, VECTOR], F.linear),
    "linear gelu": ([MATRIX, VECTOR], lambda x, p, q: F.gelu(F.linear(x, p, q),
                                                             approximate="tanh")),
    "einsum": ([MATRIX], lambda x, p: x @ p),
    "einsum of three": ([MATRIX], lambda x, p: x + torch.einsum(
        "btc,cd,btd->bt", x, p, x)[..., None] * 0.1),
    "tensordot": ([MATRIX], lambda x, p: torch.tensordot(x, p, 1)),
    "tril": ([MATRIX], lambda x, p: x + x @ p.tril()),
    "triu": ([MATRIX], lambda x, p: x + x @ p.triu(1)),
    "trace": ([MATRIX], lambda x, p: x + p.trace() * 0.2),
    "diag": ([VECTOR], lambda x, p: x + x @ p.diag()),
    "outer": ([VECTOR, VECTOR], lambda x, p, q: x + x @ p.outer(q)),
    "unbind": ([MATRIX], lambda x, p: x * p[0] + p[1] + p[-1]),
    "cdist": ([MATRIX], lambda x, p: torch.linalg.vector_norm(x[:, :, None] - p, dim=-1) * 0.3),
    "attention of ops": ([[T, T]], attention_of_ops),
    "add row": ([[1, C]], lambda x, p: x + p),
    "mul row": ([[1, C]], lambda x, p: x * p),
    "add column": ([[T, 1]], lambda x, p: x + p),
    "mul column": ([[T, 1]], lambda x, p: x * p),
    "add grid": ([GRID], lambda x, p: x + p),
    "mul grid": ([GRID], lambda x, p: x * p),
    "add scalar": ([[1]], lambda x, p: x + p),
    "mul scalar": ([[1]], lambda x, p: x * p),
    "*embedding": ([TABLE], lambda x, p, ids: x + p[ids]),
    "*one_hot": ([TABLE], lambda x, p, ids: x + F.one_hot(ids, V).double() @ p),
    "*gather": ([TABLE], lambda x, p, ids: x + p.mean(-1)[ids][..., None]),
    "*scatter_add": ([TABLE], scatter_add),
    "index_select": ([TABLE], lambda x, p: x + p[[1, 4, 4, 8]]),
    "index_add": ([TABLE], lambda x, p: x + p[:T].index_add(0, torch.tensor([1, 2]), p[7:9])),
    "pooling": ([VECTOR], lambda x, p: (lambda y: F.max_pool1d(y, 3, 1) + F.avg_pool1d(y, 3, 1))(
        F.pad((x + p).transpose(1, 2), (1, 1))).transpose(1, 2)),
    "adaptive_avg_pool2d": ([VECTOR], lambda x, p: x + F.adaptive_avg_pool2d(
        (x * p)[:, None], 2).mean((1, 2, 3))[:, None, None]),
}


def heads_of(y, count):
    return y.unflatten(-1, (count, -1)).transpose(1, 2)


def attention(q, k, v, heads, seen):
    q, k, v = (heads_of(y, heads) for y in (q, k, v))
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def positions():
    return torch.arange(T)[:, None] - torch.arange(T)


def turned(y):
    """Rotary embedding of one head: component i and i + C/2 turn together."""
    angles = torch.arange(T)[:, None] * 10000.0 ** (-2 * torch.arange(C // 2).double() / C)
    a, b = y.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def rope_attention(x, l):
    q, k, v = l.a(x).chunk(3, -1)
    return x + attention(turned(q), turned(k), v, 1, (positions() >= 0) & (positions() < 2))


def glu(y, f):
    gate, up = y.chunk(2, -1)
    return f(gate) * up


def tanh_gelu(y):
    return F.gelu(y, approximate="tanh")


def half_gradient(x, l):
    x = x.clone()
    x.register_hook(lambda g: g * 0.5)
    return l.a(x)


class TutorialNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(C))

    def forward(self, h):
        return h * (h.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class GatedMLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = TutorialNorm()
        self.gate, self.up = (torch.nn.Linear(C, 8, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(8, C, bias=False)

    def forward(self, h):
        normed = self.norm(h)
        return h + self.down(F.silu(self.gate(normed)) * self.up(normed))


def across(x, l):
    return l.a(x.transpose(1, 2))[:, :, :T].transpose(1, 2)


def with_delta(x, l):
    return 1.5 * x * 0.3 + l.a(1.5 * x)


def cell(x, l):
    h = l.a(x[:, 0])
    return x + (h[0] if isinstance(h, tuple) else h)[:, None]


def recurrent(x, l):
    return x + l.a(x)[0]


nn = torch.nn
# {part: (layer a, layer b or None, function of x and the layers)}
LAYERS = {
    "Linear": (nn.Linear(C, C), None, None),
    "Linear without bias": (nn.Linear(C, C, bias=False), None, None),
    "Linear gelu": (nn.Linear(C, C), None, lambda x, l: tanh_gelu(l.a(x))),
    "Linear glu": (nn.Linear(C, 2 * C), None, lambda x, l: glu(l.a(x), F.silu)),
    "Sequential": (nn.ModuleDict({"1": nn.Linear(C, 2 * C), "3": nn.Linear(2 * C, C)}), None,
                   lambda x, l: l.a["3"](l.a["1"](x).tanh())),
    "LayerNorm": (nn.LayerNorm(C), None, None),
    "RMSNorm": (nn.RMSNorm(C, eps=1e-6), None, None),
    "LayerNorm with delta": (nn.LayerNorm(C), None, with_delta),
    "RMSNorm with delta": (nn.RMSNorm(C, eps=1e-6), None, with_delta),
    "GroupNorm": (nn.GroupNorm(2, C), None, across),
    "Conv1d": (nn.Conv1d(C, C, 3, padding="same"), None, across),
    "Conv1d with groups": (nn.Conv1d(C, C, 2, groups=3, bias=False, dilation=3, padding=2), None,
                           across),
    "Conv2d": (nn.Conv2d(1, 2, 3, padding="same"), None, lambda x, l: l.a(x[:, None]).mean(1)),
    "InstanceNorm2d": (nn.InstanceNorm2d(2, affine=True), None, lambda x, l: l.a(
        x.reshape(-1, 2, T // 2, C)).reshape(-1, T, C)),
    "RNN": (nn.RNN(C, C, batch_first=True), None, recurrent),
    "LSTM": (nn.LSTM(C, C, batch_first=True), None, recurrent),
    "GRU": (nn.GRU(C, C, batch_first=True), None, recurrent),
    "GRU in both directions": (nn.GRU(C, C // 2, batch_first=True, bidirectional=True), None,
                               lambda x, l: l.a(x)[0]),
    "RNNCell": (nn.RNNCell(C, C), None, cell),
    "LSTMCell": (nn.LSTMCell(C, C), None, cell),
    "GRUCell": (nn.GRUCell(C, C), None, cell),
    "attention": (nn.Linear(C, 3 * C), None, lambda x, l: x + attention(
        *l.a(x).chunk(3, -1), 2, positions() >= 0)),
    "attention with a mask": (nn.Linear(C, 3 * C), None, lambda x, l: x + attention(
        *l.a(x).chunk(3, -1), 2, torch.ones(T, T).bool())),
    "attention with rope": (nn.Linear(C, 3 * C), None, rope_attention),
    "cross_attention": (nn.Linear(C, C), nn.Linear(C, 2 * C), lambda x, l: x + attention(
        l.a(x), *l.b(x.flip(1)).chunk(2, -1), 2, torch.ones(T, T).bool())),
    "glu": (nn.Linear(C, 2 * C), None, lambda x, l: glu(l.a(x), tanh_gelu)),
    "backward hook": (nn.Linear(C, C), None, half_gradient),
    "RMSNorm of the tutorial": (TutorialNorm(), None, None),
    "GatedMLP of the tutorial": (GatedMLP(), None, None),
}


def whole_loss(logits, targets, smoothing=0.0):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=smoothing)


LOSSES = {"cross_entropy": whole_loss, "flat": whole_loss, "nll": whole_loss,
          "smoothed": lambda logits, targets: whole_loss(logits, targets, 0.1)}
ONES = torch.ones(ROWS * T)
SIDES = {
    "mse": F.mse_loss, "l1": F.l1_loss, "huber": lambda y, z: F.huber_loss(y, z, delta=0.7),
    "smooth_l1": F.smooth_l1_loss,
    "logits": lambda y, z: F.binary_cross_entropy_with_logits(y, z.sigmoid()),
    "probabilities": lambda y, z: F.binary_cross_entropy(y.sigmoid(), z.sigmoid()),
    "kl_div": lambda y, z: F.kl_div(
        y.log_softmax(-1), z.softmax(-1), reduction="none").mean(),
    "cosine": lambda y, z: F.cosine_embedding_loss(y.flatten(0, 1), z.flatten(0, 1), ONES),
    "triplet": lambda y, z: F.triplet_margin_loss(y.flatten(0, 1), z.flatten(0, 1),
                                                  (y * 0.3).flatten(0, 1)),
}


def batch():
    i, t = torch.arange(1, ROWS + 1)[:, None], torch.arange(1, T + 1)
    targets = (5 * i + t * t) % V
    return (7 * i + 3 * t + i * t % 5) % V, torch.where((i + t) % 5 == 0, -100, targets)


def values_of(run, loss="cross_entropy", side=None):
    """The row of the loss and of each parameter; run(x, get, ids): get(path, shape)."""
    parameters, (ids, targets) = {}, batch()

    def get(path, shape):
        parameters[path] = weight_of(path, shape).requires_grad_()
        return parameters[path]

    x = run(get("tok.weight", [V, C])[ids], get, ids)
    total = LOSSES[loss](x @ get("head.weight", [V, C]).T, targets)
    if side:
        z = (ids[..., None] * torch.arange(1, C + 1)).double().sin()
        total = total + SIDES[side](x, z) * 0.3
    total.backward()
    paths = sorted(parameters)
    return [[total.item()] * 4] + [probes_of(p, parameters[p].grad) for p in paths], paths


def use(shapes, function, with_ids):
    def run(x, get, ids):
        p = [get(f"own.{i + 1}", shape) for i, shape in enumerate(shapes)]
        return function(x, *p, ids) if with_ids else function(x, *p)
    return run


class Layers(torch.nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.a, self.b = a.double(), b and b.double()


def layer(a, b, function):
    def run(x, get, _):
        layers = Layers(a, b)
        tensors = {n: get(f"steps.1.layers.{n}", list(p.shape)) for n, p in
                   layers.named_parameters()}
        caller = Caller(layers, function or (lambda y, l: l.a(y)))
        return torch.func.functional_call(caller, {f"layers.{n}": v for n, v in tensors.items()},
                                          (x,))
    return run


class Caller(torch.nn.Module):
    def __init__(self, layers, function):
        super().__init__()
        self.layers, self.function = layers, function

    def forward(self, x):
        return self.function(x, self.layers)


def fixture():
    cases = {f"part {n.lstrip('*')}": values_of(use(*entry, n.startswith("*")))
             for n, entry in USES.items()}
    cases |= {f"part {n}": values_of(layer(*entry)) for n, entry in LAYERS.items()}
    for loss in LOSSES:
        cases[f"loss {loss}"] = values_of(use(*USES["mul"], False), loss)
    for side in SIDES:
        cases[f"side {side}"] = values_of(use(*USES["mul"], False), side=side)
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, (values, _) in
               cases.items()}
    return tensors, {name: paths for name, (_, paths) in cases.items()}


if __name__ == "__main__":
    write_or_check(FILE, __doc__.split("\n")[0], fixture)
