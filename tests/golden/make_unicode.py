"""Writes lua/nn/unicode: the properties of code points by
which the tokenizers library splits and normalizes text.

The library takes them from several versions of Unicode. Categories (of its regular expressions) are
those of 16.0. Clusters of characters are those of 17.0. For the other properties, such as what BERT
takes for punctuation, this script asks the library about every code point.

    pip install unicodedata2==17.0.0 tokenizers regex && python3 tests/golden/make_unicode.py
"""
import pathlib
import struct
import textwrap
import unicodedata

import regex
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

LIBRARY = pathlib.Path(__file__).resolve().parents[2] / "lua/nn/unicode"
HEAD = """\
-- Properties of code points, in hexadecimal; engine/text/unicode.h describes the formats. Generated
-- by tests/golden/make_unicode.py.
return {
"""
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp "
              "Cc Cf Cs Co Cn").split()
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Cyrillic Devanagari Georgian Greek Han Hangul Hebrew "
           "Hiragana Katakana Khmer Lao Latin Myanmar Tamil Telugu Thai").split()


def ranges(characters):
    """'41-5A 61-7A AA ...' of a set of characters."""
    parts, codes = [], sorted(map(ord, characters))
    first = 0
    for i, code in enumerate(codes):
        if i + 1 == len(codes) or codes[i + 1] != code + 1:
            parts.append(f"{codes[first]:X}" if first == i else f"{codes[first]:X}-{code:X}")
            first = i + 1
    return " ".join(parts)


def categories():
    """'Cc20 Zs1 ...': categories, each with the number of code points that have it."""
    of = dict.fromkeys(map(chr, range(0x110000)), "Cn")
    of |= {chr(c): "Cs" for c in range(0xD800, 0xE000)}
    for name in CATEGORIES[:-3] + ["Co"]:
        of |= dict.fromkeys(matched(rf"\p{{{name}}}"), name)
    parts, first = [], 0
    for code in range(1, 0x110001):
        if code == 0x110000 or of[chr(code)] != of[chr(first)]:
            parts.append(f"{of[chr(first)]}{code - first:X}")
            first = code
    return " ".join(parts)


def matched(expression):
    """The characters that a regular expression of one character matches."""
    kept = set()
    for piece, _ in pre_tokenizers.Split(Regex(expression), "removed").pre_tokenize_str(
            "".join(CHARACTERS)):
        kept.update(piece)
    return set(CHARACTERS) - kept


def removed_by(normalizer):
    return {c for c in CHARACTERS if normalizer.normalize_str(c) == ""}


def single_pieces(pre_tokenizer):
    """The characters that the pre-tokenizer isolates between letters."""
    return {c for c in CHARACTERS if len(pre_tokenizer.pre_tokenize_str(f"a{c}a")) == 3}


def bert(**what):
    settings = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
                "lowercase": False}
    return normalizers.BertNormalizer(**settings | what)


def lowercase():
    """'41-5A:1:20 ...': every n-th of a range, and the distance to the lower-case letter."""
    lower = {ord(c): ord(t) - ord(c) for c in CHARACTERS
             if len(t := normalizers.Lowercase().normalize_str(c)) == 1 and t != c}
    parts, codes = [], sorted(lower)
    while codes:
        first = codes[0]
        step = 2 if first + 2 in lower and first + 1 not in lower else 1
        last = first
        while lower.get(last + step) == lower[first] and (step == 1 or last + 1 not in lower):
            last += step
        parts.append(f"{first:X}-{last:X}:{step}:{lower[first]:X}")
        codes = [c for c in codes if not first <= c <= last or (c - first) % step]
    return " ".join(parts)


def mapping(of):
    """'@C0 41+300 41+301 ...': the texts of C0, C1, ...; '@A-C 41': of A and B and C 41, 42, 43."""
    parts, codes, i = [], sorted(of), 0
    while i < len(codes):
        last = i
        while len(of[codes[i]]) == 1 and last + 1 < len(codes) and len(of[codes[last + 1]]) == 1 \
                and codes[last + 1] == codes[last] + 1 \
                and ord(of[codes[last + 1]]) == ord(of[codes[last]]) + 1:
            last += 1
        if last > i + 1:
            parts.append(f"@{codes[i]:X}-{codes[last]:X} {ord(of[codes[i]]):X}")
        else:
            last = i
            if i == 0 or codes[i - 1] != codes[i] - 1 or "-" in parts[-1]:
                parts.append(f"@{codes[i]:X}")
            parts.append("+".join(f"{ord(c):X}" for c in of[codes[i]]))
        i = last + 1
    return " ".join(parts)


def combining_classes():
    """'300-314=E6 ...': the classes by which the library orders marks; others have class 0."""
    nfd = normalizers.NFD()
    overlay = "\u0334"   # of class 1, the lowest
    known = [c for c in CHARACTERS if unicodedata.normalize("NFD", c) == c and
             (unicodedata.combining(c) == 1 or
              nfd.normalize_str(c + overlay) == overlay + c)]
    numbers = {unicodedata.combining(c) for c in known}
    return " ".join(f"{part}={number:X}" for number in sorted(numbers) for part in
                    ranges({c for c in known if unicodedata.combining(c) == number}).split())


def is_extending(c):
    """Whether the library's normalizer of T5 takes x and the character for one cluster."""
    return PROBE.normalize_str("x" + c) == "y"


def charsmap(key, value):
    """A precompiled map of one character: a double array (Yata's Darts-clone) and the texts."""
    units, node = [0] * 1024, 0
    for i, byte in enumerate([*key, 0]):
        offset = 256 * (i + 1)
        units[node] |= offset << 10 | (256 if byte == 0 else 0)
        node ^= offset ^ byte
        units[node] = byte or 1 << 31
    array = struct.pack("<1024I", *units)
    return struct.pack("<I", len(array)) + array + value + b"\0"


PROBE = normalizers.Precompiled(charsmap(b"x", b"y"))


def clusters():
    """Properties for boundaries of grapheme clusters (Unicode Standard Annex 29)."""
    names = {"cluster_control": r"\p{GCB=Control}", "prepend": r"\p{GCB=Prepend}",
             "spacing": r"\p{GCB=SpacingMark}", "extend": r"\p{GCB=Extend}",
             "pictographic": r"\p{Extended_Pictographic}", "linker": r"\p{InCB=Linker}",
             "consonant": r"\p{InCB=Consonant}"}
    known = [c for c in CHARACTERS if unicodedata2.category(c) != "Cn" or
             regex.match(r"\p{Extended_Pictographic}|\p{GCB=Control}", c)]
    found = {name: {c for c in known if regex.match(pattern, c)} for name, pattern in names.items()}
    probed = {c for c in CHARACTERS if is_extending(c)}
    assert probed == found["extend"] | found["spacing"] | {"\u200d"}, "another version of Unicode"
    return found


def lines(name, text):
    return f"  {name} = [[\n" + "".join(f"    {line}\n" for line in textwrap.wrap(
        text, 96, break_on_hyphens=False, break_long_words=False)) + "  ]],\n"


def write(name, tables):
    text = HEAD + "".join(lines(*table) for table in tables.items()) + "}\n"
    (LIBRARY / name).write_text(text)
    print(name, len(text), text.count("\n"))


def main():
    assert unicodedata2.unidata_version == "17.0.0", unicodedata2.unidata_version
    whitespace = pre_tokenizers.Whitespace()
    word = {c for c in CHARACTERS if len(whitespace.pre_tokenize_str(f"a{c}a")) == 1}
    write("categories.lua", {
        "categories": categories(), "lower": lowercase(), "word": ranges(word),
        "numeric": ranges(single_pieces(pre_tokenizers.Digits(True))),
        "punctuation": ranges(single_pieces(pre_tokenizers.Punctuation("isolated"))),
        "control": ranges(removed_by(bert(clean_text=True)))})
    write("scripts.lua", {f"script_{name.lower()}": ranges(matched(rf"\p{{{name}}}"))
                          for name in SCRIPTS})
    write("marks.lua", {
        "nonspacing": ranges(removed_by(bert(strip_accents=True))),
        "combining": ranges(removed_by(normalizers.StripAccents())),
        "classes": combining_classes(),
        **{name: ranges(found) for name, found in clusters().items()}})
    forms = {}
    for name in ("NFC", "NFD", "NFKD"):
        form = getattr(normalizers, name)()
        forms[name] = {ord(c): t for c in CHARACTERS
                       if (t := form.normalize_str(c)) != c and not 0xAC00 <= ord(c) <= 0xD7A3}
    write("decompositions.lua", {
        "canonical": mapping(forms["NFD"]),
        "compatible": mapping({c: t for c, t in forms["NFKD"].items() if forms["NFD"].get(c) != t}),
        "excluded": ranges({chr(c) for c in forms["NFC"]})})


main()
