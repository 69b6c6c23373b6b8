"""What make_decoders.py, make_encoders.py and make_encoder_decoders.py share: weights that need no
file, and what is stored of gradients and of a short training. tests/lua/support/small_models.lua
computes the same weights.
"""
import json
import math
import re
import sys
import tempfile
import zlib
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def weight_of(name, shape):
    """Pseudo-random multiples of 1/64 in [-0.5, 0.5), around 1 for the scales of norms; a quarter
    of them for the queries of T5, whose scores have no scale."""
    count = math.prod(shape)
    state = zlib.crc32(name.encode()) % 2147483647
    values = []
    for _ in range(count):
        state = state * 16807 % 2147483647
        values.append((state // 1000 % 64 - 32) / 64)
    base = 1.0 if re.search("([Nn]orm|ln_).*weight$", name) and count < 100 else 0.0
    factor = 0.5 if base else 0.25 if re.search("Attention.q.weight$", name) else 1
    return (torch.tensor(values, dtype=torch.float64) * factor).reshape(shape) + base


def steps_of(model, batches, loss_of):
    """The losses and gradient norms of steps of AdamW with clipping."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optim = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                               {"params": others, "weight_decay": 0.0}],
                              lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for batch in batches:
        optim.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optim.step()
        losses.append(loss.item())
    return torch.tensor(losses), torch.tensor(norms)


def probes_of(name, gradient):
    vectors = [weight_of(f"probe {k} {name}", gradient.shape) for k in range(3)]
    return [gradient.norm().item()] + [(gradient * v).sum().item() for v in vectors]


def gradients_of(named):
    """A row per parameter, sorted by name: the norm of its gradient, and three dot products."""
    return torch.tensor([probes_of(path, p.grad) for path, p in sorted(named)])


def chosen(models):
    """Those of the models by name whose names the command line gives, by default all."""
    return {name: models[name] for name in sys.argv[1:] or models}


def save(folder, model, out, named):
    """Writes folder/config.json and folder.safetensors, with the names and shapes of the tensors
    in the file that the model's save_pretrained() writes, which are those of `named`."""
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        config = json.loads((Path(saved) / "config.json").read_text())
        with safe_open(Path(saved) / "model.safetensors", "pt") as file:
            shapes = [[name, file.get_slice(name).get_shape()] for name in sorted(file.keys())]
    assert [name for name, _ in shapes] == sorted(name for name, _ in named)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    save_file({key: value.contiguous() for key, value in out.items()},
              folder.with_name(folder.name + ".safetensors"), {"shapes": json.dumps(shapes)})
