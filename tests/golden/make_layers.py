"""Writes layers.safetensors: layers of PyTorch with random parameters, and their gradients.

PyTorch in float64 is the oracle: convolutions, pooling, normalisation with its running statistics,
and recurrent layers.

    python tests/golden/make_layers.py [--check]

tests/golden/README.md lists the contents.
"""
import pathlib

import torch
from torch import nn

from fixture_file import write_or_check

SEED = 11
FILE = pathlib.Path(__file__).with_name("layers.safetensors")


def case(class_name, arguments, options, shape, torch_options=None, ties=False):
    """A layer class of PyTorch and nnlua. torch_options: where PyTorch's differ from nnlua's."""
    merged = {k: tuple(v) if isinstance(v, list) else v
              for k, v in {**options, **(torch_options or {})}.items()}
    layer = getattr(nn, class_name)(*arguments, **merged)
    return {"class": class_name, "arguments": arguments, "options": options, "shape": shape,
            "ties": ties, "layer": layer}


def cases():
    first = {"batch_first": True}
    return {
        "conv2d": case("Conv2d", [3, 4, [3, 2]], {"stride": [2, 1], "padding": 1}, [2, 3, 6, 5]),
        "conv2d_groups": case("Conv2d", [4, 6, 3], {"groups": 2, "dilation": 2, "bias": False},
                              [3, 4, 7, 8]),
        "conv2d_same": case("Conv2d", [2, 3, [4, 3]], {"padding": "same"}, [2, 2, 5, 6]),
        "conv1d": case("Conv1d", [3, 4, 3], {"stride": 2, "padding": 2, "dilation": 2}, [2, 3, 11]),
        "max_pool2d": case("MaxPool2d", [3], {"stride": 2, "padding": 1}, [2, 2, 7, 6], ties=True),
        "max_pool1d": case("MaxPool1d", [2], {}, [2, 3, 7]),
        "avg_pool2d": case("AvgPool2d", [[3, 2]], {"stride": [2, 1], "padding": 1}, [2, 2, 7, 6]),
        "avg_pool2d_inside": case("AvgPool2d", [3], {"padding": 1, "count_include_pad": False},
                                  [2, 2, 7, 6]),
        "avg_pool1d": case("AvgPool1d", [3], {"stride": 2, "padding": 1}, [2, 3, 8]),
        "adaptive": case("AdaptiveAvgPool2d", [[2, 1]], {}, [2, 3, 6, 5]),
        "batch_norm2d": case("BatchNorm2d", [3], {"momentum": 0.3}, [4, 3, 5, 2]),
        "batch_norm1d": case("BatchNorm1d", [5], {"eps": 1e-3, "affine": False}, [6, 5]),
        "group_norm": case("GroupNorm", [2, 6], {}, [3, 6, 4, 2]),
        "instance_norm": case("InstanceNorm2d", [3], {"affine": True}, [2, 3, 4, 3]),
        "rnn": case("RNN", [4, 5], {"nonlinearity": "relu"}, [3, 6, 4], first),
        "lstm": case("LSTM", [4, 5], {"num_layers": 2, "bidirectional": True}, [3, 6, 4], first),
        "gru": case("GRU", [4, 5], {"num_layers": 2, "bidirectional": True}, [3, 7, 4], first),
        "lstm_cell": case("LSTMCell", [4, 5], {}, [3, 4]),
        "gru_cell": case("GRUCell", [4, 5], {"bias": False}, [3, 4]),
    }


def outputs_of(y):
    """y or (y, h) or (y, (h, c)) as a list, the order of nnlua's results."""
    if isinstance(y, torch.Tensor):
        return [y]
    return [t for part in y for t in outputs_of(part)]


def results(name, one, generator):
    def randn(shape):
        return torch.randn(*shape, generator=generator)

    out, layer = {}, one["layer"].double()
    with torch.no_grad():
        for path, p in layer.named_parameters():
            p.copy_(0.5 * randn(p.shape))  # float32 values, exact in float64
            out[f"{name}/weight/{path}"] = p.float()
    x = 1 + 2 * randn(one["shape"])
    if one["ties"]:
        x = x.round()
    out[f"{name}/x"] = x
    leaf = x.double().requires_grad_()
    loss = 0
    for i, y in enumerate(outputs_of(layer(leaf)), 1):
        dy = randn(y.shape)
        loss = loss + (y * dy.double()).sum()
        out |= {f"{name}/y{i}": y.detach().float(), f"{name}/dy{i}": dy}
    loss.backward()
    out[f"{name}/dx"] = leaf.grad.float()
    for path, p in layer.named_parameters():
        out[f"{name}/grad/{path}"] = p.grad.float()
    if hasattr(layer, "running_mean") and layer.running_mean is not None:
        out |= {f"{name}/running_mean": layer.running_mean.float(),
                f"{name}/running_var": layer.running_var.float(),
                f"{name}/eval": layer.eval()(leaf).detach().float()}
    return out


def fixture():
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED)
    out, config = {}, {}
    for name, one in cases().items():
        out |= results(name, one, generator)
        config[name] = {key: one[key] for key in ("class", "arguments", "options")}
    return {k: v.contiguous().clone() for k, v in out.items()}, config


if __name__ == "__main__":
    write_or_check(FILE, __doc__.split("\n")[0], fixture)
