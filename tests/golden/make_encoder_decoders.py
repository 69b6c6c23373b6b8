"""Writes encoder_decoders/: small random T5 models as transformers saves them, and what they compute
in float64 for texts of different lengths, padded at their end. Arguments: the names of some.

NAME/config.json and NAME.safetensors: ids and mask (2, 20); targets (2, 9), -100 after the end of
an answer; logits (2, 9, vocabulary) for the targets; and of the gradient of every parameter its
norm and its dot products with three vectors; greedy (2, 101), the answers to both texts, of 100
tokens after the id 0; flops, those of a forward and a backward pass that PyTorch counts. train/ids, mask (20 steps, 3 * 11), targets (20, 3 *
7); the losses and gradient norms of 20 steps of AdamW with clipping. Weights are those of
small_models.py.
"""
import pathlib

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import T5Config, T5ForConditionalGeneration

from small_models import chosen, gradients_of, save, steps_of, weight_of

OUT = pathlib.Path(__file__).parent / "encoder_decoders"
VOCAB = 61
SIZE = dict(vocab_size=VOCAB, d_model=32, d_kv=12, d_ff=48, num_layers=2, num_heads=4,
            relative_attention_num_buckets=8, relative_attention_max_distance=10,
            decoder_start_token_id=0)
MODELS = {
    "t5": T5Config(**SIZE, num_decoder_layers=1),
    # The head of T5 1.1 is neither tied nor scaled, nor is that of FLAN-T5, whose config.json has
    # more entries.
    "t5_gated": T5Config(**SIZE, feed_forward_proj="gated-gelu", tie_word_embeddings=False),
    "t5_flan": T5Config(**SIZE, feed_forward_proj="gated-gelu", tie_word_embeddings=False,
                        n_positions=512, output_past=True, initializer_factor=1.0),
    "t5_silu": T5Config(**SIZE, feed_forward_proj="gated-silu", num_decoder_layers=3),
}


def padded(rows, time):
    mask = (torch.arange(time) < torch.randint(time // 3, time + 1, (rows, 1))).long()
    mask[0] = 1
    return torch.randint(1, VOCAB, (rows, time)) * mask, mask


def batch_of(rows, time, answer):
    ids, mask = padded(rows, time)
    targets, given = padded(rows, answer)
    return ids, mask, torch.where(given == 1, targets, -100)


def loss_of(model, batch):
    return model(batch[0], attention_mask=batch[1], labels=batch[2]).loss


def greedy_of(model, ids, mask):
    answers = torch.zeros(len(ids), 1, dtype=torch.long)
    for _ in range(100):
        logits = model(ids, attention_mask=mask, decoder_input_ids=answers).logits
        answers = torch.cat([answers, logits[:, -1:].argmax(-1)], 1)
    return answers


def main():
    for name, config in chosen(MODELS).items():
        torch.manual_seed(13)
        config._attn_implementation = "eager"
        model = T5ForConditionalGeneration(config).double().eval()
        if not config.scale_decoder_outputs:           # transformers would tie it here too
            model.lm_head.weight = torch.nn.Parameter(torch.zeros(VOCAB, 32, dtype=torch.float64))
        named = list(model.named_parameters())
        with torch.no_grad():
            for path, parameter in named:
                parameter.copy_(weight_of(path, parameter.shape))
        batch = batch_of(2, 20, 9)
        out = {key: value.int() for key, value in zip(("ids", "mask", "targets"), batch)}
        with FlopCounterMode(display=False) as counter:
            result = model(batch[0], attention_mask=batch[1], labels=batch[2])
            result.loss.backward()
        out["flops"] = torch.tensor([counter.get_total_flops()], dtype=torch.int64)
        out["logits"], out["gradients"] = result.logits.detach().float(), gradients_of(named)
        model.zero_grad()
        with torch.no_grad():
            out["greedy"] = greedy_of(model, batch[0], batch[1]).int()
        batches = [batch_of(3, 11, 7) for _ in range(20)]
        for key, *values in zip(("ids", "mask", "targets"), *batches):
            out["train/" + key] = torch.stack([value.flatten() for value in values]).int()
        out["train/loss"], out["train/grad_norm"] = steps_of(model, batches, loss_of)
        save(OUT / name, model, out, named)


main()
