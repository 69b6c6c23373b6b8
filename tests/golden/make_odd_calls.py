"""Writes odd_calls.json: what PyTorch returns for calls at the edges: tensors without axes, NaN and
infinities, integers, masks, ties, duplicate positions, targets that do not count.

    pip install torch && python3 tests/golden/make_odd_calls.py      (--check compares)

A case is a call in Lua and in Python; "d" is the operand, and {axis} counts from 1 there, from 0
here. A case in Python with "G(f, x)" is the gradient of the sum of f(x).
"""
import argparse
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

nan, inf, i64 = math.nan, math.inf, torch.int64
DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.int32: "i32",
          torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool"}


def T(values):
    return torch.tensor(values, dtype=torch.float32)


def I(values, dtype="i64"):
    return torch.tensor(values, dtype={"i64": i64, "i32": torch.int32, "u8": torch.uint8}[dtype])


def G(f, x):
    x = x.clone().requires_grad_(True)
    f(x).sum().backward()
    return x.grad


CASES = []


def add(*cases):
    CASES.extend(cases)


# Reductions, and ops along an axis, of a tensor without axes.
for name, python in [("sum", "sum"), ("mean", "mean"), ("max", "amax"), ("min", "amin"),
                     ("prod", "prod"), ("logsumexp", "logsumexp"), ("argmax", "argmax"),
                     ("argmin", "argmin"), ("softmax", "softmax"), ("log_softmax", "log_softmax"),
                     ("cumsum", "cumsum"), ("cumprod", "cumprod"), ("any", "any"), ("all", "all"),
                     ("count_nonzero", "count_nonzero"), ("argsort", "argsort")]:
    for axis, python_axis in ((1, 0), (-1, -1)):
        add((f"T(3):{name}({axis})", f"T(3.).{python}({python_axis})"))
    if name not in ("any", "all", "count_nonzero", "argsort", "argmax", "argmin"):
        add((f"G(function(x) return x:{name}(1) * 2 end, T(3))",
             f"G(lambda x: x.{python}(0) * 2, T(3.))"))
for name in ("sum", "mean", "max", "argmax", "logsumexp"):
    python = {"max": "amax"}.get(name, name)
    add((f"T(3):{name} {{axis = 1, keepdim = true}}", f"T(3.).{python}(0, keepdim=True)"))
for name, arguments in (("sort", ""), ("median", ""), ("topk", "1, "), ("kthvalue", "1, ")):
    add((f"(T(3):{name}({arguments}1))", f"T(3.).{name}({arguments}0)[0]"),
        (f"G(function(x) return (x:{name}({arguments}1)) * 2 end, T(3))",
         f"G(lambda x: x.{name}({arguments}0)[0] * 2, T(3.))"))
add(("T(3):var(1, {correction = 0})", "T(3.).var(0, correction=0)"),
    ("T(3):norm(2, 1)", "T(3.).norm(2, 0)"), ("T(3):var(1)", "T(3.).var(0)"),
    ("G(function(x) return x:norm(2, 1) * 2 end, T(3))", "G(lambda x: x.norm(2, 0) * 2, T(3.))"))
# The sums of integers and masks without axes are i64.
add(("I(3):sum()", "I(3).sum()"), ("I(3, 'i32'):sum()", "I(3, 'i32').sum()"),
    ("I(200, 'u8'):sum()", "I(200, 'u8').sum()"), ("I(3, 'i32'):prod()", "I(3, 'i32').prod()"),
    ("T(true):sum()", "torch.tensor(True).sum()"),
    ("T(3):count_nonzero()", "T(3.).count_nonzero()"),
    ("T(true):max()", "torch.tensor(True).max()"),
    ("T(true):any()", "torch.tensor(True).any()"))
# Variances of fewer elements than the correction.
add(("T{5}:var()", "T([5.]).var()"),
    ("T{5, 6}:var{correction = 2}", "T([5., 6]).var(correction=2)"),
    ("T{5, 6}:var{correction = 3}", "T([5., 6]).var(correction=3)"),
    ("T{5, 6}:std{correction = 3}", "T([5., 6]).std(correction=3)"))
# NaN, infinities and ties.
for values in ("2, nan, 1, inf, -inf", "nan, nan, 0", "1, 3, 3", "0, -0.0, 1"):
    for call in ("argmax()", "argmin()", "sum()", "cumsum({0})", "isnan()", "logsumexp({0})",
                 "softmax({0})", "nan_to_num()", "sign()", "relu()", "round()", "median()"):
        add((f"T{{{values}}}:{call.format(1)}", f"T([{values}]).{call.format(0)}"))
    add((f"T{{{values}}}:max()", f"T([{values}]).max()"),
        (f"T{{{values}}}:min(1)", f"T([{values}]).amin(0)"),
        (f"(T{{{values}}}:sort())", f"T([{values}]).sort(stable=True)[0]"),
        (f"T{{{values}}}:argsort {{descending = true}}",
         f"T([{values}]).argsort(stable=True, descending=True)"),
        (f"(T{{{values}}}:topk(2))", f"T([{values}]).topk(2)[0]"),
        (f"T{{{values}}}:clamp(0, 2)", f"T([{values}]).clamp(0, 2)"),
        (f"T{{{values}}}:maximum(T{{nan}})", f"T([{values}]).maximum(T([nan]))"))
for operand in ("-8", "-2", "0", "nan", "inf", "-inf"):
    for power in ("1 / 3", "2", "3", "-1", "0", "nan"):
        add((f"T{{{operand}}} ^ ({power})", f"T([{operand}]) ** ({power})"))
    for name in ("sqrt", "log", "rsqrt", "log1p", "reciprocal", "exp", "atan", "tanh", "acos"):
        add((f"T{{{operand}}}:{name}()", f"T([{operand}]).{name}()"))
    add((f"T{{{operand}}} % 3", f"T([{operand}]) % 3"))
# Integers: quotients, wrapping, and numbers that their dtype cannot hold.
for a in (-7, 7):
    for b in (-2, 3):
        for sign in ("/", "%", "*"):
            add((f"I{{{a}}} {sign} I{{{b}}}", f"I([{a}]) {sign} I([{b}])"),
                (f"I{{{a}}} {sign} {b}", f"I([{a}]) {sign} {b}"))
add(("I({2147483647}, 'i32') + 1", "I([2147483647], 'i32') + 1"),
    ("I({200}, 'u8') * I({2}, 'u8')", "I([200], 'u8') * I([2], 'u8')"),
    ("I({1}, 'u8') - 2", "I([1], 'u8') - 2"), ("-I({1}, 'u8')", "-I([1], 'u8')"),
    ("I({5}, 'u8'):clamp(-1, 300):to 'i64'", "I([5], 'u8').clamp(-1, 300).long()"),
    ("I({5}, 'u8'):minimum(-1)", "I([5]).clamp(max=-1)"),
    ("I({5}, 'u8'):maximum(300)", "I([5]).clamp(min=300)"),
    ("T{true, false}:where(I({5, 6}, 'u8'), -1)", "torch.tensor([5, -1])"),
    ("I({5, 6}, 'u8'):masked_fill(T{true, false}, 256)", "torch.tensor([256, 6])"),
    ("T{nan, 1.7, -1.7}:to 'bool'", "T([nan, 1.7, -1.7]).bool()"),
    ("T{-1.7, 1.7}:to 'i32'", "T([-1.7, 1.7]).int()"),
    ("I{300, -1}:to 'u8'", "I([300, -1]).to(torch.uint8)"))
# Duplicate positions, and edges of circular and other padding.
add(("T{1, 2, 3}:scatter_add(1, I{0, 0, 2}, T{10, 20, 30})",
     "T([1., 2, 3]).scatter_add(0, I([0, 0, 2]), T([10., 20, 30]))"),
    ("T{1, 2, 3}:scatter(1, I{0, 0}, T{10, 20})",
     "T([1., 2, 3]).scatter(0, I([0, 0]), T([10., 20]))"),
    ("G(function(x) return x:gather(I{0, 0, 2}) * T{1, 2, 3} end, T{1, 2, 3})",
     "G(lambda x: x.gather(0, I([0, 0, 2])) * T([1., 2, 3]), T([1., 2, 3]))"))
for mode in ("constant", "reflect", "replicate", "circular"):
    for widths in ("1, 2", "-1, 2", "1, -1", "2, -1", "-1, -1", "0, 0"):
        add((f"T{{{{1, 2, 3, 4}}}}:pad({{{widths}}}, {{mode = '{mode}'}})",
             f"F.pad(T([[1., 2, 3, 4]]), ({widths}), mode='{mode}')"))
# Losses with targets that do not count, and smoothed ones.
logits = "{{1, 2, 0.5}, {-1, 0, 3}}"
for targets in ("0, 2", "-100, 2", "1, -100"):
    for lua, python in (("", ""), (", {reduction = 'sum'}", ", reduction='sum'"),
                        (", {reduction = 'none'}", ", reduction='none'"),
                        (", {label_smoothing = 0.1}", ", label_smoothing=0.1"),
                        (", {label_smoothing = 1}", ", label_smoothing=1."),
                        (", {ignore_index = 2, label_smoothing = 0.2, reduction = 'sum'}",
                         ", ignore_index=2, label_smoothing=0.2, reduction='sum'")):
        if "ignore_index" in lua and "-100" in targets:
            continue
        values = logits.replace("{", "[").replace("}", "]")
        add((f"(nn.cross_entropy(T{logits}, I{{{targets}}}{lua}))",
             f"F.cross_entropy(T({values}), I([{targets}]){python})"),
            (f"G(function(x) return (nn.cross_entropy(x, I{{{targets}}}{lua})) end, T{logits})",
             f"G(lambda x: F.cross_entropy(x, I([{targets}]){python}), T({values}))"))


def shown(x):
    return x if math.isfinite(x) else str(x)


def make():
    out = []
    for lua, python in CASES:
        value = eval(python)
        numbers = value.detach().to(torch.float64).reshape(-1).tolist()
        out.append({"call": lua, "dtype": DTYPES[value.dtype], "shape": list(value.shape),
                    "values": [shown(x) for x in numbers]})
    lines = ",\n".join(json.dumps(case) for case in out)
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    path, text = pathlib.Path(__file__).parent / "odd_calls.json", make()
    if not parser.parse_args().check:
        path.write_text(text)
        print(f"wrote {path.name}: {len(CASES)} calls, {len(text)} bytes")
    elif path.read_text() == text:
        print(f"{path.name}: identical")
    else:
        sys.exit(f"{path.name} is not what this script makes here; another torch version or CPU "
                 "may round the last bit otherwise")
