"""Tokenizers of the kinds that model families use, with the settings of their tokenizer.json files
and vocabularies trained on a given text. make_tokenizers.py and tests/bench/tokenizer_sweep.py use
them; sentencepiece is only needed for the maps of characters.
"""
import io
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

from split_patterns import GPT2_POSSESSIVE, LLAMA3, O200K, PATTERNS, QWEN2

# Lines that Unicode's rules for white space, contractions and marks cut in unlike ways.
RULES = [("\u00c4", "Ae"), ("\ufb01", "fi"), ("\u00bd", "1/2"), ("\uff21", "A"), ("e\u0301", "\u00e9"),
         ("\u00a0", " "), ("\u200b", ""), ("\t", " "), ("\u3000", " "), ("\u2026", "..."),
         ("\u1100\u1161", "\uac00"), ("\r", " "), ("\n", " "), ("\u0958", "\u0915\u093c")]


def special(*names, **how):
    return [AddedToken(name, special=True, normalized=False, **how) for name in names]


def trained(tokenizer, trainer, text, tokens=()):
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    tokenizer.add_special_tokens(list(tokens))
    return tokenizer


def byte_level(text, size, regex=None, normalizer=None, add_prefix_space=False, tokens=(),
               before=(), **how):
    tokenizer = Tokenizer(models.BPE(**how))
    if normalizer:
        tokenizer.normalizer = normalizer
    last = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=regex is None)
    split = [pre_tokenizers.Split(Regex(regex), "isolated")] if regex else []
    steps = [*before, *split, last]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else last
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        text, tokens)


def gpt2(text, size):
    tokenizer = byte_level(text, size, tokens=special("<|endoftext|>"))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def roberta(text, size):
    tokens = [*special("<s>", "<pad>", "</s>", "<unk>"), *special("<mask>", lstrip=True)]
    tokenizer = byte_level(text, size, add_prefix_space=True, tokens=tokens)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))
    return tokenizer


def gpt_neox(text, size):
    tokenizer = byte_level(text, size, normalizer=normalizers.NFC(), tokens=special("<|endoftext|>"))
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(12, 1, -1)])
    return tokenizer


def llama3(text, size):
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
             "<|eot_id|>"]
    tokenizer = byte_level(text, size, regex=LLAMA3, tokens=special(*names), ignore_merges=True)
    first = names[0]
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single=f"{first}:0 $A:0", pair=f"{first}:0 $A:0 {first}:1 $B:1",
            special_tokens=[(first, tokenizer.token_to_id(first))])])
    return tokenizer


def qwen(text, size):
    tokenizer = byte_level(text, size, regex=QWEN2, normalizer=normalizers.NFC(),
                           tokens=special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False, special=False),
                          AddedToken("</think>", normalized=False, special=False)])
    return tokenizer


def o200k(text, size):
    return byte_level(text, size, regex=O200K, tokens=special("<|endoftext|>"))


def smollm(text, size):
    return byte_level(text, size, before=[pre_tokenizers.Digits(individual_digits=True)],
                      tokens=special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))


def with_bytes(tokens):
    return [*tokens, *(f"<0x{byte:02X}>" for byte in range(256))]


def sentencepiece_bpe(text, size, modern):
    """Llama 2's and TinyLlama's; or, without normalizers, that of Mistral's later files."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # As SentencePiece does, so that no token joins words.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="always")
    trained(tokenizer, trainers.BpeTrainer(
        vocab_size=size, show_progress=False, limit_alphabet=100,
        special_tokens=with_bytes(["<unk>", "<s>", "</s>"])), text)
    if modern:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", prepend_scheme="first",
                                                           split=False)
    else:
        tokenizer.pre_tokenizer = None
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"),
                                                     normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    return without_bytes_as_special(tokenizer, ["<unk>", "<s>", "</s>"])


def without_bytes_as_special(tokenizer, tokens):
    """The same with only `tokens` as special ones; trainers make the byte tokens special too."""
    import json  # pylint: disable=import-outside-toplevel
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [t for t in content["added_tokens"] if t["content"] in tokens]
    return Tokenizer.from_str(json.dumps(content))


def llama2(text, size):
    return sentencepiece_bpe(text, size, False)


def mistral(text, size):
    return sentencepiece_bpe(text, size, True)


def charsmap(rules=None):
    """SentencePiece's compiled map: of nmt_nfkc, or of [(text, replacement)]."""
    model = io.BytesIO()
    how = {"normalization_rule_name": "nmt_nfkc"}
    with tempfile.TemporaryDirectory() as folder:
        if rules:
            path = pathlib.Path(folder) / "rules.tsv"
            path.write_text("".join(
                " ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n"
                for a, b in rules))
            how = {"normalization_rule_tsv": str(path)}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a b c d e f g"]), model_writer=model, vocab_size=12,
            hard_vocab_limit=False, minloglevel=2, **how)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


def unigram(text, size, normalizer, splitter, tokens, **how):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.Metaspace()
    return trained(tokenizer, trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, unk_token="<unk>", special_tokens=tokens, **how), text)


def t5(text, size, rules=RULES):
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                        pre_tokenizers.Metaspace(prepend_scheme="always")])
    tokenizer = unigram(text, size, normalizers.Precompiled(charsmap(rules)), splitter,
                        ["<pad>", "</s>", "<unk>", "<extra_id_0>", "<extra_id_1>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def albert(text, size, rules=RULES):
    normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
        normalizers.Precompiled(charsmap(rules)), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer = unigram(text, size, normalizer, pre_tokenizers.Metaspace(),
                        ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def bert(text, size, cased=False):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trained(tokenizer, trainers.WordPieceTrainer(
        vocab_size=size, show_progress=False, special_tokens=tokens, limit_alphabet=200), text)
    tokenizer.add_tokens([AddedToken("nnlua", single_word=True, normalized=True)])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bert_cased(text, size):
    return bert(text, size, cased=True)


def all_bytes(**steps):
    """Every byte is a token, so that ids show the normalized text; a mark begins every piece."""
    vocab = {token: i for i, token in enumerate(with_bytes(["<unk>"]))}
    tokenizer = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    if "normalizer" in steps:
        tokenizer.normalizer = steps["normalizer"]
    if "splitter" in steps:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            steps["splitter"], pre_tokenizers.Metaspace(prepend_scheme="always", split=False)])
    return tokenizer


def pattern_steps():
    """Tokenizers that split by a regular expression of published files, by name."""
    return {name: all_bytes(splitter=pre_tokenizers.Split(Regex(pattern), "isolated"))
            for name, pattern in PATTERNS.items()}


def single_steps(rules=RULES):
    """Tokenizers with a single normalizer or pre-tokenizer, by name."""
    n, p = normalizers, pre_tokenizers
    named = {step.__class__.__name__: {"normalizer": step} for step in (
        n.NFC(), n.NFD(), n.NFKC(), n.NFKD(), n.Lowercase(), n.StripAccents(), n.Nmt(), n.Strip(),
        n.Precompiled(charsmap(rules)), n.BertNormalizer(lowercase=False, strip_accents=True))}
    named |= {step.__class__.__name__: {"splitter": step} for step in (
        p.Whitespace(), p.WhitespaceSplit(), p.BertPreTokenizer(), p.CharDelimiterSplit("a"))}
    patterns = {"llama3": LLAMA3, "qwen": QWEN2, "o200k": O200K, "gpt2": GPT2_POSSESSIVE}
    patterns |= {name: PATTERNS[name] for name in (
        "cl100k of tiktoken", "Kimi K2", "EXAONE MoE", "Command A", "SuperBPE", "BLOOM")}
    for name, pattern in patterns.items():
        named[name] = {"splitter": p.Split(Regex(pattern), "isolated")}
    named["digits"] = {"splitter": p.Digits(individual_digits=False)}
    for behaviour in ("removed", "isolated", "contiguous", "merged_with_previous",
                      "merged_with_next"):
        named["punctuation " + behaviour] = {"splitter": p.Punctuation(behaviour)}
        named["text " + behaviour] = {"splitter": p.Split("s", behaviour)}
        named["inverted " + behaviour] = {"splitter": p.Split(Regex(r"\p{L}+|\s"), behaviour,
                                                              invert=True)}
    for name in ("First", "Never"):
        named["Metaspace " + name] = {"splitter": p.Metaspace(prepend_scheme=name.lower())}
    named["pattern replaced"] = {"normalizer": n.Replace(Regex(r"\s{2,}|\p{Lu}+?(?=\p{Ll})"), "_")}
    return {name: all_bytes(**steps) for name, steps in named.items()}


FAMILIES = {f.__name__: f for f in (gpt2, roberta, gpt_neox, llama3, qwen, o200k, smollm, llama2,
                                    mistral, t5, albert, bert, bert_cased)}
