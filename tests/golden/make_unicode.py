"""Writes lua/nn/text/unicode.lua: which code points are letters and numbers, as GPT-2 splits text.

Unicode 16.0, which is what the tokenizers and tiktoken of today split by (tests/golden/make_bpe.py
compares every code point):

    pip install unicodedata2==16.0.0 && python3 tests/golden/make_unicode.py
"""
import pathlib
import textwrap

import unicodedata2

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "lua/nn/text/unicode.lua"
HEAD = """\
-- Code points of the general categories L (letters) and N (numbers) as ranges of hexadecimal
-- numbers, and those with the property White_Space. Made by tests/golden/make_unicode.py.
return {
  version = "%s",
"""


def ranges(belongs):
    """'41-5A 61-7A AA ...' of the code points for which belongs(character) holds."""
    parts, first = [], None
    for code in range(0x110000 + 1):
        inside = code < 0x110000 and belongs(chr(code))
        if inside and first is None:
            first = code
        if not inside and first is not None:
            last = code - 1
            parts.append(f"{first:X}" if first == last else f"{first:X}-{last:X}")
            first = None
    return " ".join(parts)


def main():
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    spaces = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000"
    spaces += "".join(map(chr, range(0x2000, 0x200B)))
    classes = {"letters": lambda c: unicodedata2.category(c)[0] == "L",
               "numbers": lambda c: unicodedata2.category(c)[0] == "N",
               "spaces": lambda c: c in spaces}
    text = HEAD % unicodedata2.unidata_version
    for name, belongs in classes.items():
        lines = textwrap.wrap(ranges(belongs), 96)
        text += f"  {name} = [[\n" + "".join(f"    {line}\n" for line in lines) + "  ]],\n"
    LIBRARY.write_text(text + "}\n")


main()
