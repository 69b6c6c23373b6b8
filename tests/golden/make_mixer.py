"""Writes mixer.safetensors: a small MLP-Mixer in PyTorch, as in the paper and in timm, in float64:
images, labels, logits, the gradients' norms and dot products (see small_models.py), and the losses
and gradient norms of 20 steps of AdamW. Weights are those of weight_of, under timm's names.

    pip install torch safetensors && python3 tests/golden/make_mixer.py
"""
import json
import pathlib

import torch
from safetensors.torch import save_file
from torch import nn

from small_models import probes_of, steps_of, weight_of

SIZES = dict(layers=2, embd=24, size=12, patch=4, classes=7, channels=3, patch_inner=10, inner=40)


class Mlp(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        return self.fc2(nn.functional.gelu(self.fc1(x)))


class MixerBlock(nn.Module):
    def __init__(self, patches, s):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(s["embd"], eps=1e-6), nn.LayerNorm(s["embd"], eps=1e-6)
        self.mlp_tokens = Mlp(patches, s["patch_inner"])
        self.mlp_channels = Mlp(s["embd"], s["inner"])

    def forward(self, x):
        x = x + self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mlp_channels(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.stem = nn.Module()
        self.stem.proj = nn.Conv2d(s["channels"], s["embd"], s["patch"], s["patch"])
        patches = (s["size"] // s["patch"]) ** 2
        self.blocks = nn.Sequential(*[MixerBlock(patches, s) for _ in range(s["layers"])])
        self.norm = nn.LayerNorm(s["embd"], eps=1e-6)
        self.head = nn.Linear(s["embd"], s["classes"])

    def forward(self, images):
        x = self.stem.proj(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(1))


def main():
    torch.manual_seed(3)
    model = Mixer(SIZES).double().eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.copy_(weight_of(path, parameter.shape))
    images = torch.rand(20, 3, SIZES["channels"], SIZES["size"], SIZES["size"]).double()
    images = (images * 64).round() / 64
    labels = torch.randint(0, SIZES["classes"], (20, 3))

    def loss_of(batch):
        return nn.functional.cross_entropy(model(images[batch]), labels[batch])

    loss_of(0).backward()
    named = sorted(model.named_parameters())
    out = {"images": (images * 64).to(torch.uint8), "labels": labels.int(),
           "logits": model(images[0]).detach().float(),
           "gradients": torch.tensor([probes_of(path, p.grad) for path, p in named]).float()}
    shapes = [[path, list(p.shape)] for path, p in named]
    model.zero_grad()
    out["train/loss"], out["train/grad_norm"] = steps_of(model, range(20), lambda _, step: loss_of(step))
    save_file({key: value.contiguous() for key, value in out.items()},
              pathlib.Path(__file__).parent / "mixer.safetensors",
              {"shapes": json.dumps(shapes), "sizes": json.dumps(SIZES)})


main()
