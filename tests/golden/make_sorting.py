"""Writes sorting.safetensors: sorts, order statistics, scans, softmax over any axis, and indexing.

PyTorch is the oracle: values, positions, dtypes and shapes; gradients in float64. The inputs have
NaN, zeros of both signs, ties and zeros in products.

    python tests/golden/make_sorting.py [--check]

tests/golden/README.md lists the contents.
"""
import pathlib

import torch

from fixture_file import write_or_check
from make_ops import with_gradients

SEED = 11
FILE = pathlib.Path(__file__).with_name("sorting.safetensors")
NAN, INF = float("nan"), float("inf")


def sorts(randn):
    """Values and positions. Ties only where PyTorch promises their order (stable=True)."""
    x = randn(4, 5, 6)
    x[0, 1, 2], x[0, 1, 4], x[2, 2, 2], x[3, 4, 5] = NAN, NAN, INF, -INF
    x[1] = x[1].round()
    x[1, 0, 0], x[1, 1, 0] = 0.0, -0.0
    ints = torch.tensor([[3, -7, 3, 0, -7, 9], [1, 1, 0, 5, -1, 5]])
    distinct = randn(4, 5, 6)  # topk, kthvalue and median do not promise which tie they return
    distinct[2, 1, 3] = NAN
    out = {"sort/x": x, "sort/ints": ints, "sort/distinct": distinct}
    results = {
        "sort": x.sort(stable=True), "sort_descending": x.sort(descending=True, stable=True),
        "sort_axis1": x.sort(dim=0, stable=True), "sort_ints": ints.sort(stable=True),
        "sort_bool": ints.gt(0).sort(stable=True), "topk": distinct.topk(3),
        "topk_smallest": distinct.topk(2, 1, False), "kthvalue": distinct.kthvalue(2, 1),
        "kthvalue_keepdim": distinct.kthvalue(6, -1, True), "median_axis2": distinct.median(1),
        "median_keepdim": distinct.median(-1, True)}
    for name, (values, indices) in results.items():
        out |= {f"{name}/values": values, f"{name}/indices": indices}
    out |= {"argsort/y": x.argsort(dim=1, descending=True, stable=True),
            "median/y": x[3].median(), "median_nan/y": distinct.median(),
            "median_ints/y": ints.median()}
    return out


def gradients(randn, generator):
    zeros = randn(4, 5)
    zeros[0, 2], zeros[1, 0], zeros[1, 3], zeros[2, 4] = 0.0, 0.0, 0.0, 0.0
    cases = {
        "softmax_axis2": ({"x": 3 * randn(3, 5, 4)}, lambda x: x.softmax(1)),
        "log_softmax_axis1": ({"x": 3 * randn(3, 5)}, lambda x: x.log_softmax(0)),
        "logsumexp_axis1": ({"x": 3 * randn(3, 5)}, lambda x: x.logsumexp(0)),
        "logsumexp_keepdim": ({"x": 3 * randn(2, 5, 3)}, lambda x: x.logsumexp(1, True)),
        "softmin": ({"x": randn(3, 5)}, lambda x: torch.nn.functional.softmin(x, 0)),
        "cumsum": ({"x": randn(3, 5, 4)}, lambda x: x.cumsum(1)),
        "cumprod": ({"x": zeros}, lambda x: x.cumprod(1)),
        "cumprod_axis1": ({"x": zeros}, lambda x: x.cumprod(0)),
        "sort_gradient": ({"x": randn(3, 5)}, lambda x: x.sort(0, True)[0]),
        "median_gradient": ({"x": randn(3, 5)}, lambda x: x.median()),
    }
    out = {}
    for name, (inputs, function) in cases.items():
        out |= with_gradients(name, inputs, function, generator)
    return out


def indexing(randn, generator):
    x, index = randn(3, 5, 4), torch.tensor([4, 0, 4, 2])
    unique = torch.stack([torch.randperm(5, generator=generator)[:3] for _ in range(12)])
    unique = unique.view(3, 4, 3).transpose(1, 2).contiguous()  # along axis 2
    mask, rows, src = x.gt(0.3), torch.tensor([True, False, True]), randn(3, 4, 4)
    places = torch.tensor([[2, 0], [1, 2]])
    ladder = torch.tensor([[-1.0, 0.0, 0.0, 2.0], [0.5, 1.0, 1.5, 9.0]])
    values = torch.tensor([[0.0, 3.0, -2.0], [1.0, 1.2, 0.0]])
    once = index[:2]
    return {
        "index/x": x, "index/index": index, "index/unique": unique, "index/mask": mask,
        "index/rows": rows, "index/src": src, "index/places": places, "index/ladder": ladder,
        "index/values": values,
        "gather/y": x.gather(1, unique), "scatter/y": x.scatter(1, unique, src[:, :3]),
        "scatter_number/y": x.scatter(1, unique, 0.25),
        "scatter_add/y": x.scatter_add(1, unique, src[:, :3]),
        "index_select/y": x.index_select(1, index), "index_add/y": x.index_add(1, index, src),
        "index_copy/y": x.index_copy(1, once, src[:, :2]),
        "index_fill/y": x.index_fill(1, index, 7.0), "masked_select/y": x.masked_select(mask),
        "masked_select_broadcast/y": x.masked_select(mask[0, 0]), "nonzero/y": mask.nonzero(),
        "at_mask/y": x[mask], "at_rows/y": x[rows], "at_places/y": x[places],
        "searchsorted/y": torch.searchsorted(ladder, values),
        "searchsorted_right/y": torch.searchsorted(ladder, values, right=True),
        "searchsorted_row/y": torch.searchsorted(ladder[1], values),
        "cumsum_ints/y": index.int().cumsum(0), "cumprod_bool/y": rows.cumprod(0),
    }


def fixture():
    generator = torch.Generator().manual_seed(SEED)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    out = sorts(randn) | gradients(randn, generator) | indexing(randn, generator)
    return {name: value.contiguous().clone() for name, value in out.items()}, {}


if __name__ == "__main__":
    write_or_check(FILE, __doc__.split("\n")[0], fixture)
