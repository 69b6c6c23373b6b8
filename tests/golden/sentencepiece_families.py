"""Models of SentencePiece with the settings that matter for ids, trained on a given text; and
folders with BERT's vocab.txt. make_sentencepiece.py and tests/bench/tokenizer_sweep.py use them.
"""
import io
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizer_families import bert

SYMBOLS = ["<sep>", "\u2581\u2581", "the", "\n", "\ufb01", "an\u2581", "\u00e9\u00e8", "12", "1234", "\u4e2d"]
PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
# By name: settings of the trainer; "change" is a function of the finished model.
MODELS = {
    "plain": {},
    "bytes": {"byte_fallback": True, **PLAIN},
    "symbols": {"user_defined_symbols": SYMBOLS, "control_symbols": ["<ctl>"]},
    "symbols and bytes": {"user_defined_symbols": SYMBOLS, "byte_fallback": True, **PLAIN,
                          "add_dummy_prefix": False},
    "no prefix": {"add_dummy_prefix": False},
    "identity": {"normalization_rule_name": "identity"},
    "folded": {"normalization_rule_name": "nmt_nfkc_cf", "split_digits": True},
    "suffix": {"treat_whitespace_as_suffix": True},
    "across words": {"split_by_whitespace": False, "split_by_unicode_script": False},
    "spaces": {"allow_whitespace_only_pieces": True, "byte_fallback": True, **PLAIN},
    "unused": {"change": lambda model: unuse(model)},
    "ties": {"change": lambda model: round_scores(model)},
    "unescaped": {"change": lambda model: unescape(model)},
}


def unuse(model):
    for i, piece in enumerate(model.pieces):
        if piece.type == piece.NORMAL and i % 5 == 0 and len(piece.piece) > 1:
            piece.type = piece.UNUSED


def round_scores(model):
    for piece in model.pieces:
        piece.score = round(piece.score / 3) * 3


def unescape(model):
    model.normalizer_spec.escape_whitespaces = False
    for piece in model.pieces:
        if piece.type == piece.NORMAL:
            piece.piece = piece.piece.replace("\u2581", " ")


def train(text, size, kind, change=None, rules=None, **how):
    """The bytes of a model of the kind unigram or bpe. rules: [(text, replacement)] instead of the
    map with which the trainer would normalize."""
    out = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        if rules and how.get("normalization_rule_name") != "identity":
            path = pathlib.Path(folder) / "rules.tsv"
            path.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t"
                                    + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in rules))
            how = {**how, "normalization_rule_tsv": str(path)}
            how.pop("normalization_rule_name", None)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text.splitlines()), model_writer=out, model_type=kind,
            vocab_size=size, hard_vocab_limit=False, minloglevel=2, num_threads=1, **how)
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(out.getvalue())
    if change:
        change(model)
    # Without what says how it was trained, such as the names of files.
    trainer, model.trainer_spec.input[:] = model.trainer_spec, []
    trainer.ClearField("model_prefix")
    trainer.ClearField("accept_language")
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    return model.SerializeToString(deterministic=True)


def models(text, size, rules=None, names=MODELS):
    """name -> function() -> the bytes of a model."""
    return {f"{kind} {name}": lambda kind=kind, name=name: train(text, size, kind, rules=rules,
                                                                 **MODELS[name])
            for kind in ("unigram", "bpe") for name in names}


CASES = {"uncased": {"do_lower_case": True}, "cased": {"do_lower_case": False},
         "accents": {"do_lower_case": True, "strip_accents": False},
         "chinese": {"tokenize_chinese_chars": False, "strip_accents": True, "do_lower_case": False}}


def vocab_txt(text, size):
    """The lines of a vocab.txt with the tokens of a WordPiece of cased text; sorted, since the trainer
    numbers them in no fixed order."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = set(bert(text, size, cased=True).get_vocab()) - {*special, "nnlua"}
    return "".join(token + "\n" for token in [*special, *sorted(tokens)])
