"""Writes odd_configs.json: what transformers makes of odd config.json files of all families: entries
that are absent, null, given, unknown, of a wrong type, or that contradict each other.

"bases" has a config by family, "cases" the changes to it: entries to set, and names to remove; those
with entries of published folders have "published". A case has `values`, some logits and the norm of
all, in float64, for the ids of ids_of(), or null where transformers refuses it. "shapes" has the lists of the tensors in the files, which cases share; their
weights are those of small_models.py. tests/lua/models/odd_configs.lua repeats both functions.
"""
import json
import pathlib
import tempfile
import warnings

import torch
from safetensors import safe_open
from transformers import (AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM,
                          AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, logging)

from odd_config_cases import BASES, CASES, PUBLISHED
from small_models import weight_of

OUT = pathlib.Path(__file__).parent / "odd_configs.json"
TIME = 24
IN_FILES = {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}


def ids_of(vocab, time=TIME):
    return torch.tensor([[(i * i * 7 + i * 3 + 2) % vocab for i in range(time)]])


def class_of(config):
    architecture = (config.architectures or [""])[0]
    if "SequenceClassification" in architecture:
        return AutoModelForSequenceClassification
    if config.model_type == "t5":
        return AutoModelForSeq2SeqLM
    if config.model_type in ("bert", "roberta", "xlm-roberta", "camembert"):
        return AutoModelForMaskedLM
    return AutoModelForCausalLM


def shapes_in(model, folder):
    model.save_pretrained(folder)
    with safe_open(pathlib.Path(folder) / "model.safetensors", "pt") as file:
        return [[name, list(file.get_slice(name).get_shape())] for name in sorted(file.keys())]


def logits_of(model, vocab):
    ids = ids_of(vocab)
    if model.config.model_type == "t5":
        return model(input_ids=ids, decoder_input_ids=ids[:, :7]).logits
    return model(ids).logits


def values_of(logits):
    flat = logits.flatten()
    chosen = [flat[(i * 2654435761 + 12345) % len(flat)].item() for i in range(8)]
    return [float(f"{x:.8g}") for x in chosen + flat[-4:].tolist() + [flat.norm().item()]]


def computed(entries):
    """The shapes and the values of the model that a config.json with these entries describes."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(entries))
        config = AutoConfig.from_pretrained(folder)
        config._attn_implementation = "eager"
        model = class_of(config).from_config(config, dtype=torch.float64).eval()
        with torch.no_grad():
            for path, parameter in model.named_parameters():
                name = IN_FILES.get(path, path)
                if config.model_type == "gpt_neox":
                    name = name.replace("lm_head", "embed_out")
                parameter.copy_(weight_of(name, parameter.shape))
            return shapes_in(model, folder), values_of(logits_of(model, config.vocab_size))


def main():
    warnings.simplefilter("ignore")
    logging.set_verbosity(logging.CRITICAL)
    shapes, cases = [], []
    for family, changes, *removed in CASES:
        entries = {**BASES[family], **changes}
        for name in removed:
            del entries[name]
        case = {"family": family, "set": changes, "remove": removed, "values": None}
        if changes is PUBLISHED.get(family):
            case["published"] = True
        try:
            of_file, case["values"] = computed(entries)
            if any(value != value for value in case["values"]):
                raise ValueError("NaN")
        except Exception as error:     # what transformers refuses, by any kind of error
            case["values"] = None
            of_file = computed(BASES[family])[0]
            print(f"refused: {family} {changes} {removed}: {type(error).__name__} "
                  + " ".join(str(error).split())[:90])
        if of_file not in shapes:
            shapes.append(of_file)
        case["shapes"] = shapes.index(of_file) + 1
        cases.append(case)
    lines = ['{"bases": ' + json.dumps(BASES), '"shapes": [' + ",\n".join(map(json.dumps, shapes))
             + "]", '"cases": [' + ",\n".join(map(json.dumps, cases)) + "]}"]
    OUT.write_text(",\n".join(lines) + "\n")
    accepted = sum(case["values"] is not None for case in cases)
    print(f"{len(cases)} configs, of which transformers accepts {accepted}")


if __name__ == "__main__":
    main()
