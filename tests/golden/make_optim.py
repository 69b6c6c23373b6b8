"""Writes optim.safetensors: 20 steps of torch.optim's optimizers in float64, and 100 steps of its
schedulers. Lion, which torch.optim lacks, is computed by the formula of its paper (Chen et al. 2023,
arXiv 2302.06675, algorithm 2).

    pip install torch safetensors && python3 tests/golden/make_optim.py      (--check compares)
"""
import json
import pathlib

import torch
from torch.optim import lr_scheduler

from fixture_file import write_or_check

STEPS, EPOCHS = 20, 100


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                update = (beta1 * m + (1 - beta1) * w.grad).sign()
                w.sub_(group["lr"] * (update + group["weight_decay"] * w))
                m.copy_(beta2 * m + (1 - beta2) * w.grad)


# Optimizer, its options there, and those of nnlua where they differ.
OPTIMIZERS = [
    ("Adam", dict(lr=0.01, weight_decay=0.1)),
    ("Adam", dict(lr=0.02, betas=(0.8, 0.95), eps=1e-4)),
    ("AdamW", dict(lr=0.01, weight_decay=0.1)),
    ("SGD", dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)),
    ("RMSprop", dict(lr=0.01)),
    ("RMSprop", dict(lr=0.01, alpha=0.9, eps=1e-3, weight_decay=0.1)),
    ("RMSprop", dict(lr=0.01, momentum=0.9)),
    ("RMSprop", dict(lr=0.01, centered=True)),
    ("RMSprop", dict(lr=0.005, centered=True, momentum=0.5, weight_decay=0.1)),
    ("Adagrad", dict(lr=0.1)),
    ("Adagrad", dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.1)),
    ("Lion", dict(lr=0.01)),
    ("Lion", dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.1)),
]

SCHEDULERS = [
    ("StepLR", dict(step_size=7, gamma=0.5)),
    ("MultiStepLR", dict(milestones=[5, 30, 31], gamma=0.3)),
    ("ConstantLR", dict(factor=0.25, total_iters=9)),
    ("ConstantLR", dict()),
    ("LinearLR", dict(start_factor=0.1, end_factor=0.8, total_iters=20)),
    ("LinearLR", dict()),
    ("ExponentialLR", dict(gamma=0.93)),
    ("PolynomialLR", dict(total_iters=60, power=1.7)),
    ("PolynomialLR", dict()),
    ("CosineAnnealingLR", dict(T_max=40, eta_min=0.01)),
    ("CosineAnnealingWarmRestarts", dict(T_0=10, T_mult=2, eta_min=0.001)),
    ("CosineAnnealingWarmRestarts", dict(T_0=9)),
    ("OneCycleLR", dict(max_lr=0.5, total_steps=101, cycle_momentum=False)),
    ("OneCycleLR", dict(max_lr=0.5, epochs=10, steps_per_epoch=11, pct_start=0.4, div_factor=10,
                        final_div_factor=50, anneal_strategy="linear", three_phase=True,
                        cycle_momentum=False)),
]

PLATEAU = [
    dict(patience=3, factor=0.5),
    dict(mode="max", patience=2, factor=0.3, threshold=0.05, threshold_mode="abs", cooldown=4,
         min_lr=0.01),
]


def train(name, options, start, scales):
    """w after each step; the gradient of step k is w * scales[k]."""
    w = start.clone().requires_grad_()
    optim = (Lion if name == "Lion" else getattr(torch.optim, name))([w], **options)
    out = []
    for scale in scales:
        optim.zero_grad()
        (w.square() * scale).sum().div(2).backward()
        optim.step()
        out.append(w.detach().clone())
    return torch.stack(out)


def rates(make, metrics=None):
    """The rate of a parameter before each of the steps, and after the last."""
    w = torch.zeros(1, requires_grad=True)
    optim = torch.optim.SGD([w], lr=0.1)
    scheduler = make(optim)
    out = [optim.param_groups[0]["lr"]]
    for k in range(EPOCHS):
        optim.step()
        scheduler.step(*([] if metrics is None else [metrics[k].item()]))
        out.append(optim.param_groups[0]["lr"])
    return torch.tensor(out, dtype=torch.float64)


def sequential(optim):
    warmup = lr_scheduler.LinearLR(optim, start_factor=0.1, total_iters=10)
    cosine = lr_scheduler.CosineAnnealingLR(optim, T_max=50)
    decay = lr_scheduler.ExponentialLR(optim, gamma=0.9)
    return lr_scheduler.SequentialLR(optim, [warmup, cosine, decay], milestones=[10, 60])


def make():
    torch.manual_seed(5)
    start = torch.randn(3, 4, dtype=torch.float64)
    scales = torch.randn(STEPS, 3, 4, dtype=torch.float64) + 0.5
    metrics = torch.randn(EPOCHS, dtype=torch.float64).abs() + torch.linspace(2, 1, EPOCHS)
    out = {"start": start, "scales": scales, "metrics": metrics, "sequential": rates(sequential)}
    for i, (name, options) in enumerate(OPTIMIZERS):
        out[f"optimizer/{i + 1}"] = train(name, options, start, scales)
    for i, (name, options) in enumerate(SCHEDULERS):
        out[f"scheduler/{i + 1}"] = rates(lambda o: getattr(lr_scheduler, name)(o, **options))
    for i, options in enumerate(PLATEAU):
        out[f"plateau/{i + 1}"] = rates(lambda o: lr_scheduler.ReduceLROnPlateau(o, **options),
                                        metrics)
    return out, {"optimizers": OPTIMIZERS, "schedulers": SCHEDULERS, "plateau": PLATEAU}


write_or_check(pathlib.Path(__file__).parent / "optim.safetensors", __doc__.splitlines()[0], make)
