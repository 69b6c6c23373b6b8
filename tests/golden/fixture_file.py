"""Writes a fixture or checks the one that is there; shared by make_gpt2.py and make_ops.py."""
import argparse
import json
import sys

import torch
from safetensors.torch import save


def write_or_check(path, description, make):
    """make() gives ({name: tensor}, config); the same inputs give the same bytes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="compare with the file, write nothing")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    tensors, config = make()
    # One metadata entry: safetensors writes several in random order.
    data = save(tensors, metadata={"config": json.dumps(config)})
    if not args.check:
        path.write_bytes(data)
        print(f"wrote {path.name}: {len(tensors)} tensors, {len(data)} bytes")
    elif path.exists() and path.read_bytes() == data:
        print(f"{path.name}: identical, {len(data)} bytes")
    else:
        sys.exit(f"{path.name} is not what this script makes here. Run it without --check and look "
                 "at git diff; another torch version or CPU may round the last bit otherwise")
