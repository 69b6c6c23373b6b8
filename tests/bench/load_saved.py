#!/usr/bin/env python3
"""Loads the folders that nnlua saves with transformers: logits equal those of the model that nnlua
loaded before (tests/golden), within 1e-5 of the largest one.

    python3 tests/bench/load_saved.py --nnlua build/nnlua

Needs PyTorch and transformers in the Python that runs it. Exits with status 1 if any differ.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file

from common import ROOT


def logits_of(folder, values):
    config = transformers.AutoConfig.from_pretrained(folder)
    model = getattr(transformers, config.architectures[0]).from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager").eval()
    given = {"input_ids": values["ids"].long()}
    if "mask" in values:
        given["attention_mask"] = values["mask"].long()
    if "types" in values:
        given["token_type_ids"] = values["types"].long()
    if config.is_encoder_decoder:
        given["labels"] = values["targets"].long()
    with torch.no_grad():
        logits = model(**given).logits
    if logits.dim() == 3 and "mask" in values and not config.is_encoder_decoder:
        logits = logits * values["mask"].unsqueeze(-1)
    return logits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nnlua", default=str(ROOT / "nnlua"))
    script = ROOT / "tests/lua/support/save_models.lua"
    worst = 0.0
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([parser.parse_args().nnlua, script], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "SAVED": out})
        for folder in sorted(pathlib.Path(out).iterdir()):
            kind, name = folder.name.split(".", 1)
            values = load_file(ROOT / "tests/golden" / kind / f"{name}.safetensors")
            wanted = values["logits"].double()
            error = ((logits_of(folder, values) - wanted).abs().max() / wanted.abs().max()).item()
            print(f"{folder.name}: off by {error:.1e} relative", flush=True)
            worst = max(worst, error)
    sys.exit(0 if worst <= 1e-5 else 1)


main()
