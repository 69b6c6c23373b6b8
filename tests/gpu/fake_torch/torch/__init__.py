"""A PyTorch that computes nothing, for tests without PyTorch: PYTHONPATH=tests/gpu/fake_torch. The scripts read their
arguments, build their models and print their results; every number that PyTorch would compute is 1."""
import sys
from unittest.mock import MagicMock


class Module:
    def __call__(self, *arguments):
        return self.forward(*arguments)

    def to(self, device):
        return self

    def named_parameters(self):
        return []

    def parameters(self):
        return []


class Fake(MagicMock):
    """A tensor, a module or a function: its attributes, items and results are fakes too."""

    def item(self):
        return 1.0

    def __add__(self, other):
        return self

    __matmul__ = __add__


def module(*arguments, **options):
    return Fake()


def compile(function):  # noqa: A001
    return function


cuda, nn, optim, profiler, backends, version = (Fake(name=f"torch.{name}") for name in (
    "cuda", "nn", "optim", "profiler", "backends", "version"))
cuda.max_memory_allocated.return_value = 1
nn.Module = Module
nn.Linear = nn.Embedding = nn.LayerNorm = module
nn.ModuleList = lambda blocks: list(blocks)[:0]  # creates the blocks, and runs none
__version__ = version.cuda = "fake"
backends.cudnn.version.return_value = "fake"
sys.modules |= {"torch.nn": nn, "torch.nn.functional": nn.functional, "torch.cuda": cuda, "torch.optim": optim,
                "torch.profiler": profiler}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Fake(name=f"torch.{name}")
