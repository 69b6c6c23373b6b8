"""Writes encoders/: small random BERT and RoBERTa models as transformers saves them, and what they
compute in float64 for texts of different lengths, padded at their end. Arguments: the names of some.

NAME/config.json and NAME.safetensors: ids, mask and types (2, 20); logits, 0 at padding; targets,
-100 where nothing is predicted; and of the gradient of every parameter for them its norm and its
dot products with three vectors. train/ids, mask, types (20 steps, 3 * 11) and targets; the losses
and gradient norms of 20 steps of AdamW with clipping. Weights are those of small_models.py.
"""
import pathlib

import torch
from transformers import (AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig,
                          CamembertConfig, RobertaConfig, XLMRobertaConfig)

from small_models import chosen, gradients_of, save, steps_of, weight_of

OUT = pathlib.Path(__file__).parent / "encoders"
VOCAB = 61
SIZE = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4)
MODELS = {
    "bert": BertConfig(**SIZE, max_position_embeddings=24),
    "roberta": RobertaConfig(**SIZE, max_position_embeddings=26, type_vocab_size=1,
                             layer_norm_eps=1e-5),
    "bert_classes": BertConfig(**SIZE, max_position_embeddings=24, num_labels=3),
    "roberta_classes": RobertaConfig(**SIZE, max_position_embeddings=26, num_labels=3),
    "xlm_roberta": XLMRobertaConfig(**SIZE, max_position_embeddings=26, type_vocab_size=1,
                                    layer_norm_eps=1e-5),
    "camembert_classes": CamembertConfig(**SIZE, max_position_embeddings=26, type_vocab_size=1,
                                         num_labels=3),
}


def batch_of(config, rows, time, classes):
    """Ids of texts that fill at least a third of the time, without padding in them; -100 targets."""
    mask = (torch.arange(time) < torch.randint(time // 3, time + 1, (rows, 1))).long()
    mask[0] = 1
    ids = torch.randint(2, VOCAB, (rows, time)) * mask + config.pad_token_id * (1 - mask)
    types = torch.randint(0, config.type_vocab_size, (rows, time))
    if classes:
        return ids, mask, types, torch.randint(0, config.num_labels, (rows,))
    chosen = (torch.rand(rows, time) < 0.4) * mask
    chosen[:, 1] = 1
    return ids, mask, types, torch.where(chosen == 1, torch.randint(0, VOCAB, ids.shape), -100)


def named_in_files(model):
    """Parameters by their names in files: a tied head may be the first in memory."""
    tied = {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}
    return [(tied.get(path, path), p) for path, p in model.named_parameters()]


def logits_of(model, batch):
    ids, mask, types, _ = batch
    return model(ids, attention_mask=mask, token_type_ids=types).logits


def loss_of(model, batch):
    logits = logits_of(model, batch)
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), batch[3].flatten())


def main():
    for name, config in chosen(MODELS).items():
        torch.manual_seed(11)
        config._attn_implementation = "eager"
        classes = name.endswith("_classes")
        auto = AutoModelForSequenceClassification if classes else AutoModelForMaskedLM
        model = auto.from_config(config, dtype=torch.float64).eval()
        named = named_in_files(model)
        with torch.no_grad():
            for path, parameter in named:
                parameter.copy_(weight_of(path, parameter.shape))
        batch = batch_of(config, 2, 20, classes)
        logits = logits_of(model, batch).detach()
        loss_of(model, batch).backward()
        names = ("ids", "mask", "types", "targets")
        out = {key: value.int() for key, value in zip(names, batch)}
        out["logits"] = (logits if classes else logits * batch[1][..., None]).float()
        out["gradients"] = gradients_of(named)
        model.zero_grad()
        batches = [batch_of(config, 3, 11, classes) for _ in range(20)]
        for key, *values in zip(names, *batches):
            out["train/" + key] = torch.stack([value.flatten() for value in values]).int()
        out["train/loss"], out["train/grad_norm"] = steps_of(model, batches, loss_of)
        save(OUT / name, model, out, named)


main()
