"""Writes masks.json: logits of small encoders and of T5 for texts with padding at the right, at the
left, in the middle and in a whole row, with ids of padding in the text, and masks that leave such ids
seen. A case has `values`, some of the logits of seen tokens (of T5: of rows with such tokens) and
their norm, in float64, which tests/lua/models/masks.lua compares. Configs and weights are those of
make_odd_configs.py.
"""
import json
import pathlib
import tempfile

import torch
from transformers import AutoConfig

from make_odd_configs import IN_FILES, class_of, shapes_in, values_of
from odd_config_cases import BASES
from small_models import weight_of

OUT = pathlib.Path(__file__).parent / "masks.json"
TEXTS = {
    "at the right": [[5, 6, 7, 8, 9, 1, 1, 1], [5, 6, 1, 1, 1, 1, 1, 1]],
    "at the left": [[1, 1, 1, 5, 6, 7, 8, 9], [1, 1, 1, 1, 1, 1, 5, 6]],
    "in the middle": [[5, 6, 1, 1, 7, 8, 9, 4], [1, 5, 1, 6, 1, 7, 1, 8]],
    "a whole row": [[5, 6, 7, 8, 9, 1, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1]],
    "seen": [[5, 1, 7, 8, 1, 9, 9, 0], [1, 0, 1, 0, 5, 6, 7, 1]],
    "ids that are no padding": [[5, 6, 7, 8, 9, 10, 11, 12], [2, 3, 4, 5, 6, 7, 8, 9]],
}
MASKS = {"seen": [[1] * 8] * 2, "ids that are no padding": [[1, 1, 0, 0, 1, 1, 1, 1],
                                                            [0, 1, 1, 1, 1, 1, 1, 0]]}
MODELS = {
    "bert": ("bert", {"pad_token_id": 1}), "roberta": ("roberta", {}), "camembert": ("camembert", {}),
    "xlm-roberta, pad 0": ("xlm-roberta", {"pad_token_id": 0}), "t5": ("t5", {"pad_token_id": 1}),
    "bert_classes": ("bert", {"pad_token_id": 1,
                              "architectures": ["BertForSequenceClassification"]}),
    "roberta_classes": ("roberta", {"architectures": ["RobertaForSequenceClassification"]}),
}


def model_of(entries):
    config = AutoConfig.for_model(**entries)
    config._attn_implementation = "eager"
    model = class_of(config).from_config(config, dtype=torch.float64).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.copy_(weight_of(IN_FILES.get(path, path), parameter.shape))
    return model


def seen_logits(model, ids, mask):
    if model.config.model_type == "t5":
        logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=ids[:, :5]).logits
        return logits * mask.amax(1)[:, None, None]
    logits = model(ids, attention_mask=mask).logits
    return logits * (mask.amax(1)[:, None] if logits.dim() == 2 else mask[..., None])


def main():
    out = {}
    for name, (family, changes) in MODELS.items():
        entries, cases = {**BASES[family], **changes}, []
        model = model_of(entries)
        with tempfile.TemporaryDirectory() as folder:
            shapes = shapes_in(model, folder)
        for padding, ids in TEXTS.items():
            mask = MASKS.get(padding) or [[int(x != 1) for x in row] for row in ids]
            with torch.no_grad():
                logits = seen_logits(model, torch.tensor(ids), torch.tensor(mask))
            cases.append({"padding": padding, "ids": ids, "mask": mask, "values": values_of(logits)})
        out[name] = {"config": entries, "shapes": shapes, "cases": cases}
    OUT.write_text("{" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}"
                                    for name, value in out.items()) + "}\n")


main()
