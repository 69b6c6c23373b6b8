"""Writes gpt2_small.safetensors: what a very small GPT-2 must compute, to the last gradient.

The oracle is transformers.GPT2LMHeadModel, which nobody in this project wrote, run in float64; our
GPT-2 is tested against it. Run it by hand after changing the fixture, never as part of a build:

    python tests/golden/make_gpt2.py            writes the file beside this script
    python tests/golden/make_gpt2.py --check    fails if the file would come out different

tests/golden/README.md lists the contents.
"""
import copy
import pathlib

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from fixture_file import write_or_check

LAYERS, HEADS, EMBD, VOCAB, CONTEXT = 2, 2, 32, 101, 16
BATCH, TOKENS, STEPS, SEED = 3, 11, 20, 20240607
LR, BETAS, EPS, DECAY, CLIP = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0
IGNORE = -100
# Weights kept after training; no key bias: its gradient is 0, so rounding decides its AdamW step.
TRAINED = ("pos.weight", "blocks.1.attn.proj.weight", "blocks.1.mlp.down.bias", "norm.weight")
FILE = pathlib.Path(__file__).with_name("gpt2_small.safetensors")


def build(generator):
    """GPT-2 with every parameter random, so that no bias is 0 and no LayerNorm weight is 1."""
    config = GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=EMBD, n_layer=LAYERS, n_head=HEADS,
        activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=True,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
        attn_implementation="eager")
    model = GPT2LMHeadModel(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            norm_weight = ".ln_" in name and name.endswith("weight")
            std = 0.25 if parameter.dim() == 2 else 0.2
            parameter.copy_(std * noise + (1.0 if norm_weight else 0.0))
    return model


def our_names(model):
    """{nnlua's parameter path: (HF parameter, whether HF stores it transposed)}."""
    parts = {"ln_1": "norm1", "attn.c_attn": "attn.qkv", "attn.c_proj": "attn.proj",
             "ln_2": "norm2", "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}
    tops = {"wte.weight": "tok.weight", "wpe.weight": "pos.weight",
            "ln_f.weight": "norm.weight", "ln_f.bias": "norm.bias"}
    names = {}
    for name, parameter in model.transformer.named_parameters():
        if name in tops:
            names[tops[name]] = (parameter, False)
            continue
        _, layer, rest = name.split(".", 2)
        part, kind = rest.rsplit(".", 1)
        conv1d = kind == "weight" and not part.startswith("ln_")
        names[f"blocks.{int(layer) + 1}.{parts[part]}.{kind}"] = (parameter, conv1d)
    assert len(names) == len(list(model.parameters())), "a parameter of GPT-2 has no name here"
    return names


def stored(tensor, transposed):
    """Float32 in nnlua's layout: Linear weights are (out, in)."""
    tensor = tensor.detach().t() if transposed else tensor.detach()
    return tensor.to(torch.float32, copy=True).contiguous()


def batches(count, generator):
    """ids and targets (count, B, T): a noisy walk x -> 3 x + 7, which can be learnt."""
    walk = torch.randint(VOCAB, (count, BATCH, TOKENS + 1), generator=generator)
    noisy = torch.rand(walk.shape, generator=generator) < 0.15
    for t in range(1, TOKENS + 1):
        expected = (3 * walk[:, :, t - 1] + 7) % VOCAB
        walk[:, :, t] = torch.where(noisy[:, :, t], walk[:, :, t], expected)
    return walk[:, :, :-1].contiguous(), walk[:, :, 1:].contiguous()


def loss_of(model, ids, targets):
    """Mean cross-entropy over the targets that are not ignored; the targets are already shifted."""
    logits = model(input_ids=ids, use_cache=False).logits
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1), ignore_index=IGNORE)
    return logits, loss


def train(model, ids, targets):
    """STEPS steps of AdamW, one batch each: losses and gradient norms before clipping."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS, foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, ids[step], targets[step])
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP))
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), torch.stack(norms)


def reference(model, data):
    """Everything computed, by name, in the dtype of the model."""
    ids, targets, targets_ignored, train_ids, train_targets = data
    out = {}
    logits, loss = loss_of(model, ids, targets)
    loss.backward()
    out["logits"], out["loss"] = logits.detach(), loss.detach()
    for name, (parameter, transposed) in our_names(model).items():
        out[f"grad/{name}"] = stored(parameter.grad, transposed)
    with torch.no_grad():
        out["loss_ignored"] = loss_of(model, ids, targets_ignored)[1]
    out["train/loss"], out["train/grad_norm"] = train(model, train_ids, train_targets)
    for name in TRAINED:
        out[f"train/weight/{name}"] = stored(*our_names(model)[name])
    return {name: tensor.to(torch.float32) for name, tensor in out.items()}


def fixture():
    generator = torch.Generator().manual_seed(SEED)
    model = build(generator)
    ids, targets = batches(1, generator)
    ids, targets = ids[0], targets[0]
    targets_ignored = targets.clone()
    targets_ignored[torch.rand(targets.shape, generator=generator) < 0.4] = IGNORE
    train_ids, train_targets = batches(STEPS, generator)
    data = (ids, targets, targets_ignored, train_ids, train_targets)

    out = {f"weight/{n}": stored(p, t) for n, (p, t) in our_names(model).items()}
    names = ("ids", "targets", "targets_ignored", "train/ids", "train/targets")
    out.update({name: tensor.to(torch.int32) for name, tensor in zip(names, data)})
    exact = reference(copy.deepcopy(model).double(), data)
    report(exact, reference(copy.deepcopy(model), data))
    out.update(exact)
    config = {"layers": LAYERS, "heads": HEADS, "embd": EMBD, "vocab": VOCAB, "context": CONTEXT,
              "lr": LR, "beta1": BETAS[0], "beta2": BETAS[1], "eps": EPS, "weight_decay": DECAY,
              "clip": CLIP, "ignore_index": IGNORE}
    return out, config


def report(exact, single):
    """How far PyTorch's own float32 is from float64: the scale of an honest tolerance."""
    print("float32 against float64, largest |difference| / largest |value|:")
    groups = {}
    for name, value in exact.items():
        error = ((single[name] - value).abs().max() / value.abs().max()).item()
        key = name.split("/")[0] if name.startswith("grad/") else name
        groups[key] = max(error, groups.get(key, 0.0))
    for key, error in groups.items():
        print(f"  {key:36s} {error:.1e}")
    print("train/loss", " ".join(f"{x:.4f}" for x in exact["train/loss"].tolist()))
    print("train/grad_norm", " ".join(f"{x:.3f}" for x in exact["train/grad_norm"].tolist()))


if __name__ == "__main__":
    write_or_check(FILE, __doc__.split("\n")[0], fixture)
