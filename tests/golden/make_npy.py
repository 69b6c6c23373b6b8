"""Writes npy.safetensors: the bytes of .npy files that numpy writes, `NAME/file`, and of those that
hold token ids the ids, `NAME/ids`.

    pip install numpy safetensors && python3 tests/golden/make_npy.py
"""
import io
import pathlib

import numpy as np
from safetensors.numpy import save_file

IDS = np.arange(90) * 7919 % 50000


def npy(array, version=None):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def npz(array):
    out = io.BytesIO()
    np.savez(out, ids=array)
    return out.getvalue()


READ = {
    "u2": IDS.astype("<u2"), "u4": (IDS * 3).astype("<u4"), "u8": (IDS * 3).astype("<u8"),
    "i4": IDS.astype("<i4"), "i8": (IDS * 2).astype("<i8"), "i2": (IDS // 2).astype("<i2"),
    "u1": (IDS % 256).astype("u1"), "i1": (IDS % 128).astype("i1"),
    "rows": IDS.reshape(9, 10).astype("<u2"), "column": IDS.reshape(90, 1).astype("<u4"),
}
REFUSED = {
    "f4": IDS.astype("<f4"), "f8": IDS.astype("<f8"), "f2": IDS.astype("<f2"), "b1": IDS % 2 == 0,
    "big": IDS.astype(">u2"), "big8": IDS.astype(">i8"), "complex": IDS.astype("<c8"),
    "text": np.array(["one", "two"]), "bytes": np.array([b"one", b"two"]),
    "fields": np.array([(1, 2.0)], dtype=[("id", "<u2"), ("weight", "<f4")]),
    "objects": np.array([[1, 2], [3]], dtype=object), "time": IDS.astype("datetime64[s]"),
    "scalar": np.array(7, "<u2"), "cube": IDS.reshape(2, 5, 9).astype("<u2"),
    "fortran": np.asfortranarray(IDS.reshape(9, 10).astype("<u2")),
}

tensors = {}
for name, array in READ.items():
    tensors[name + "/file"] = npy(array)
    tensors[name + "/ids"] = array.reshape(-1).astype(np.int64)
for major in (1, 2, 3):
    name = f"version{major}"
    tensors[name + "/file"] = npy(READ["u2"], (major, 0))
    tensors[name + "/ids"] = IDS.astype(np.int64)
for name, array in REFUSED.items():
    tensors[name + "/file"] = npy(array)
tensors["npz/file"] = npz(READ["u2"])
tensors = {name: np.frombuffer(value, np.uint8) if isinstance(value, bytes) else value
           for name, value in tensors.items()}
save_file(tensors, pathlib.Path(__file__).parent / "npy.safetensors")
