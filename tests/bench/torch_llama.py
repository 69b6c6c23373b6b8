"""Llama in plain torch.nn, the counterpart of models/llama.lua: RMSNorm, rotary positions, SwiGLU, a
head tied to the embedding. Fused causal attention and cross-entropy, as in torch_model.py.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


def rotated(x, cos, sin):
    """Rotates the halves of each head; x (B, H, T, D), cos and sin (T, D / 2)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


class RotaryAttention(nn.Module):
    def __init__(self, embd, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(embd, 3 * embd, bias=False)
        self.proj = nn.Linear(embd, embd, bias=False)

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for y in self.qkv(x).split(c, dim=2))
        q, k = rotated(q, cos, sin).type_as(v), rotated(k, cos, sin).type_as(v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    def __init__(self, embd, inner):
        super().__init__()
        self.up = nn.Linear(embd, 2 * inner, bias=False)  # gate and value in one product
        self.down = nn.Linear(inner, embd, bias=False)

    def forward(self, x):
        gate, value = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * value)


class Block(nn.Module):
    def __init__(self, embd, heads, inner):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(embd, 1e-5), nn.RMSNorm(embd, 1e-5)
        self.attn, self.mlp = RotaryAttention(embd, heads), MLP(embd, inner)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, layers, heads, embd, inner, vocab, context, base=10000.0):
        super().__init__()
        self.tok = nn.Embedding(vocab, embd)
        self.blocks = nn.ModuleList(Block(embd, heads, inner) for _ in range(layers))
        self.norm = nn.RMSNorm(embd, 1e-5)
        dim = embd // heads
        angles = torch.outer(torch.arange(context).float(),
                             base ** (-torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        """(B, T) ids -> (B, T, vocab) logits; the head is the token embedding."""
        x, time = self.tok(ids), ids.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:time], self.sin[:time])
        return F.linear(self.norm(x), self.tok.weight)

    def loss(self, ids, targets):
        return F.cross_entropy(self(ids).flatten(0, 1), targets.flatten())
