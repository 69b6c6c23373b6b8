"""Writes sentencepiece/: small models of the library sentencepiece and a vocab.txt, and what
sentencepiece and transformers make of hard texts with them, for tests/lua/text/sentencepiece.lua.

    pip install sentencepiece protobuf tokenizers transformers
    python3 tests/golden/make_sentencepiece.py
"""
import json
import pathlib
import tempfile

import sentencepiece
from make_bpe import ALPHABET, CASES, TEXT
from make_tokenizers import (BUNCH, CHUNK, LAST, MORE, crc, random_sums, text_crc, unicode_text)
from sentencepiece_families import CASES as BERT_CASES
from sentencepiece_families import models, train, vocab_txt
from tokenizer_families import RULES
from transformers import AutoTokenizer

OUT = pathlib.Path(__file__).parent / "sentencepiece"
NAMES = ["unigram plain", "unigram bytes", "unigram symbols", "unigram suffix", "unigram unused",
         "unigram ties", "bpe bytes", "bpe symbols", "bpe symbols and bytes", "bpe across words",
         "bpe unused", "bpe ties"]
# Folders as AutoTokenizer reads them: the model, its name there, tokenizer_config.json.
FOLDERS = {
    "llama": ("bpe bytes", "tokenizer.model", {"tokenizer_class": "LlamaTokenizer",
                                               "add_bos_token": True}),
    "llama both": ("bpe bytes", "tokenizer.model", {
        "tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": True,
        "pad_token": "<pad>", "legacy": False}),
    "llama none": ("bpe bytes", "tokenizer.model", {"tokenizer_class": "LlamaTokenizer"}),
    "gemma": ("bpe symbols and bytes", "tokenizer.model", {
        "tokenizer_class": "GemmaTokenizer", "add_bos_token": True}),
    "t5": ("t5", "spiece.model", {"tokenizer_class": "T5Tokenizer"}),
    "t5 few": ("t5", "spiece.model", {"tokenizer_class": "T5Tokenizer", "extra_ids": 3}),
    "xlmr": ("unigram plain", "sentencepiece.bpe.model", {
        "tokenizer_class": "XLMRobertaTokenizer"}),
    "camembert": ("unigram plain", "sentencepiece.bpe.model", {
        "tokenizer_class": "CamembertTokenizer"}),
}
SPECIAL = "to</s> be<unk>or <mask> <extra_id_1><new> <pad>be"


def texts_sums(encode):
    return {"plain": [crc([encode(text)]) for text in CASES + MORE],
            "unicode": [crc([encode(unicode_text(first))]) for first in range(0, LAST, CHUNK)],
            "random": random_sums(encode)}


def expected(path):
    """The sums of a model; `decoded`: null for texts with unknown tokens, which it writes as a sign."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    decoded = [None if model.unk_id() in model.encode(text) else
               text_crc(model.decode(model.encode(text))) for text in CASES + MORE]
    return {**texts_sums(model.encode), "decoded": decoded}


def around(tokenizer):
    """The ids of tokens around texts, and of special tokens in them."""
    return {"added": tokenizer.encode("to be"), "pair": tokenizer("to be", "or not")["input_ids"],
            "special": tokenizer.encode(SPECIAL, add_special_tokens=False), "size": len(tokenizer),
            **{name: getattr(tokenizer, name + "_token_id") for name in ("bos", "eos", "pad", "unk")}}


def folders(files):
    out = {}
    for name, (model, file, config) in FOLDERS.items():
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / file).write_bytes(files[model])
            (place / "tokenizer_config.json").write_text(json.dumps(config))
            out[name] = {"model": model, "file": file, "config": config,
                         **around(AutoTokenizer.from_pretrained(folder))}
    return out


def berts(lines):
    out = {}
    for name, config in BERT_CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "vocab.txt").write_text(lines)
            config = {"tokenizer_class": "BertTokenizer", **config}
            (place / "tokenizer_config.json").write_text(json.dumps(config))
            tokenizer = AutoTokenizer.from_pretrained(folder)
            out[name] = {"config": config, **around(tokenizer), **texts_sums(
                lambda text, tokenizer=tokenizer: tokenizer.encode(text, add_special_tokens=False))}
    return out


def main():
    OUT.mkdir(exist_ok=True)
    files = {name: make() for name, make in models(TEXT, 420, RULES).items() if name in NAMES}
    files["t5"] = train(TEXT, 200, "unigram", rules=RULES, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    result = {"texts": CASES + MORE, "alphabet": [ord(c) for c in ALPHABET], "bunch": BUNCH,
              "chunk": CHUNK, "special": SPECIAL, "kinds": {}}
    for name, data in files.items():
        path = OUT / (name.replace(" ", "_") + ".model")
        path.write_bytes(data)
        result["kinds"][name] = expected(path)
    (OUT / "vocab.txt").write_text(vocab_txt(TEXT, 160))
    result["folders"], result["berts"] = folders(files), berts((OUT / "vocab.txt").read_text())
    path = OUT / "expected.json"
    path.write_text(json.dumps(result, separators=(",", ":")).replace("],[", "],\n[") + "\n")
    for file in sorted(OUT.iterdir()):
        print(file.name, file.stat().st_size)


if __name__ == "__main__":
    main()
