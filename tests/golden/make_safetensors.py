"""Writes safetensors_headers.json: headers of safetensors files, odd ones among them, and whether the
library safetensors reads a file with them. tests/lua/library/safetensors.lua reads it.

    pip install safetensors && python3 tests/golden/make_safetensors.py
"""
import json
import pathlib
import struct

import safetensors

OUT = pathlib.Path(__file__).parent / "safetensors_headers.json"
DTYPES = {"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
          "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F4": 4, "F6_E2M3": 6,
          "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
          "F8_E5M2FNUZ": 8, "F128": 128, "I4": 4, "F99": 32, "f32": 32}


def entry(dtype, shape, first, last, more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{first},{last}]{more}}}'


def headers():
    """(name, header, bytes of data); the tensor a of ones, if it is there, is F32 (1)."""
    one = '"a":' + entry("F32", "[1]", 0, 4)
    for dtype, bits in DTYPES.items():
        yield dtype, f'{{{one},"b":{entry(dtype, "[4]", 4, 4 + bits // 2)}}}', 4 + bits // 2
    yield "F4 of 3 elements", f'{{{one},"b":{entry("F4", "[3]", 4, 6)}}}', 6
    yield "too many bytes", f'{{{one},"b":{entry("F8_E8M0", "[3]", 4, 8)}}}', 8
    for shape in ("[0]", "[0,3]", "[2,0,2]", "[0,4294967296,4294967296]", "[4294967296,4294967296,0]"):
        yield f"empty {shape}", f'{{{one},"b":{entry("F32", shape, 4, 4)}}}', 4
    yield "empty between", f'{{{one},"b":{entry("F32", "[0]", 4, 4)},"c":{entry("F32", "[1]", 4, 8)}}}', 8
    yield "empty within", f'{{{one},"b":{entry("F32", "[0]", 2, 2)}}}', 4
    yield "empty behind", f'{{{one},"b":{entry("F32", "[0]", 9, 9)}}}', 4
    yield "no tensors", "{}", 0
    yield "only metadata", '{"__metadata__":{"a":"b"}}', 0
    yield "scalar", f'{{{one},"b":{entry("F32", "[]", 4, 8)}}}', 8
    yield "9 axes", f'{{{one},"b":{entry("F32", "[1,1,1,1,1,1,1,1,1]", 4, 8)}}}', 8
    yield "twice the same", f'{{{one},{one}}}', 4
    yield "twice, the last fits", f'{{"a":{entry("F32", "[2]", 0, 8)},{one}}}', 4
    yield "twice, the last does not fit", f'{{{one},"a":{entry("F32", "[1]", 4, 8)}}}', 8
    yield "metadata null", f'{{"__metadata__":null,{one}}}', 4
    yield "metadata empty", f'{{"__metadata__":{{}},{one}}}', 4
    yield "metadata of numbers", f'{{"__metadata__":{{"a":1}},{one}}}', 4
    yield "more entries", f'{{"a":{entry("F32", "[1]", 0, 4, chr(44) + chr(34) + "x" + chr(34) + ":1")}}}', 4
    yield "space before", f" {{{one}}}", 4
    yield "space behind", f"{{{one}}}   ", 4
    yield "zero bytes behind", f"{{{one}}}\0\0", 4
    yield "another order", f'{{"b":{entry("F32", "[1]", 4, 8)},{one}}}', 8
    yield "hole", f'{{{one},"b":{entry("F32", "[1]", 8, 12)}}}', 12
    yield "overlap", f'{{{one},"b":{entry("F32", "[1]", 0, 4)}}}', 4
    yield "too much data", f"{{{one}}}", 5
    yield "too little data", f"{{{one}}}", 3
    yield "offsets in turns", f'{{"a":{entry("F32", "[1]", 4, 0)}}}', 4
    yield "three offsets", '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}', 8
    yield "negative extent", f'{{"a":{entry("F32", "[-1]", 0, 4)}}}', 4
    yield "extents beyond 2^64", f'{{"a":{entry("F32", "[4294967296,4294967296]", 0, 0)}}}', 0
    yield "shape and size differ", f'{{"a":{entry("F32", "[1000,1000]", 0, 4)}}}', 82
    yield "large offsets", '{"a":{"dtype":"F32","shape":[1],"data_offsets":[1e300,1e301]}}', 4
    yield "no dtype", '{"a":{"shape":[1],"data_offsets":[0,4]}}', 4
    yield "no shape", '{"a":{"dtype":"F32","data_offsets":[0,4]}}', 4
    yield "shape null", '{"a":{"dtype":"F32","shape":null,"data_offsets":[0,4]}}', 4
    yield "no name", f'{{"":{entry("F32", "[1]", 0, 4)}}}', 4
    for extent in ("2.0", "2e0", "2E0", "20e-1", "-0", '"2"', "true", "null", "[2]"):
        yield f"extent {extent}", f'{{"a":{entry("F32", f"[{extent}]", 0, 8)}}}', 8
    yield "shape of an object", '{"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}}', 4
    yield "offsets 0.0", f'{{"a":{entry("F32", "[1]", "0.0", "4.0")}}}', 4
    yield "metadata a list", f'{{"__metadata__":[],{one}}}', 4
    yield "metadata a text", f'{{"__metadata__":"x",{one}}}', 4
    yield "a number in another entry", f'{{"a":{entry("F32", "[1]", 0, 4, chr(44) + chr(34) + "x" + chr(34) + ":1.5")}}}', 4
    yield "a number in a name", f'{{"2.0":{entry("F32", "[1]", 0, 4)},"__metadata__":{{"[2e0]":"1.0"}}}}', 4
    yield "not aligned", f'{{{one},"u":{entry("U8", "[1]", 4, 5)},"b":{entry("F32", "[1]", 5, 9)}}}', 9
    yield "a list", "[]", 0


def is_read(header, size):
    data = struct.pack("<f", 1) * (size // 4 + 1)
    try:
        safetensors.deserialize(struct.pack("<Q", len(header)) + header.encode() + data[:size])
        return True
    except safetensors.SafetensorError:
        return False


def main():
    cases = [[name, header, size, is_read(header, size)] for name, header, size in headers()]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUT.write_text(f'{{"version":"{safetensors.__version__}","cases":[\n{lines}]}}\n')
    print(f"{len(cases)} headers, {sum(case[3] for case in cases)} of them read")


if __name__ == "__main__":
    main()
