"""GPT-2 in plain torch.nn, as in nanoGPT: the model of both PyTorch benchmarks.

Kept free of tricks and of transformers, so that the comparison is with PyTorch itself: fused causal
attention, fused cross-entropy, fused AdamW. Parameter names are nnlua's, with blocks from 0.
"""
import ctypes
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, embd, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(embd, 3 * embd)
        self.proj = nn.Linear(embd, embd)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(x).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    def __init__(self, embd):
        super().__init__()
        self.up = nn.Linear(embd, 4 * embd)
        self.down = nn.Linear(4 * embd, embd)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, embd, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(embd), nn.LayerNorm(embd)
        self.attn, self.mlp = Attention(embd, heads), MLP(embd)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    def __init__(self, layers, heads, embd, vocab, context):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, embd), nn.Embedding(context, embd)
        self.blocks = nn.ModuleList(Block(embd, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(embd)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:  # GPT-2: 0.02, less where a residual branch ends
                residual = name.endswith(("proj.weight", "down.weight"))
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, ids):
        """(B, T) ids -> (B, T, vocab) logits; the head is the token embedding."""
        x = self.tok(ids) + self.pos.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tok.weight)

    def loss(self, ids, targets):
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())


def adamw(model, lr, betas, weight_decay):
    """AdamW with decay on matrices only; the fused kernel if this PyTorch has one for CPUs."""
    groups = [
        {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    try:
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8, fused=True)
    except RuntimeError:  # "fused is not supported on this device"
        return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=1e-8, foreach=True)


def train_step(model, loss_function, optimizer, ids, targets):
    """One step as in nanoGPT; returns the loss as a tensor."""
    loss = loss_function(ids, targets)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def set_threads(wanted, step):
    """Sets --threads N, or with "best" the number with the fastest step(); returns it."""
    if wanted != "best":
        torch.set_num_threads(int(wanted))
        return int(wanted)
    cores = torch.get_num_threads()
    counts = range(1, cores + 1) if cores <= 8 else sorted({cores, cores * 3 // 4, cores // 2, 8})
    seconds = {}
    for count in counts:
        torch.set_num_threads(count)
        step()
        seconds[count] = min(timed(step) for _ in range(2))
    best = min(seconds, key=seconds.get)
    torch.set_num_threads(best)
    return best


def keep_freed_memory():
    """Makes glibc keep large freed buffers instead of returning them to the system.

    PyTorch's CPU allocator is malloc, which maps and unmaps each large tensor, so that every step
    faults all its pages in anew. Users of PyTorch on CPUs know this (as jemalloc or MALLOC_*
    settings); a fair comparison has it on. README.md tells what it is worth.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # another C library, whose malloc may not need it
    trim_threshold, top_pad, mmap_max = -1, -2, -4
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, -1)
    mallopt(top_pad, 256 << 20)


def timed(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def sgemm_gflops(size=2048, repeats=8):
    """GFLOP/s of a float32 matmul, size cubed, with the current number of threads; the best run."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)
    seconds = min(timed(lambda: torch.mm(a, b, out=out)) for _ in range(repeats))
    return 2 * size ** 3 / seconds / 1e9
