r"""Regular expressions of Split and Replace steps in published tokenizer.json files, by the model
families that use them. tokenizer_families.py makes tokenizers of them.
"""
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def cased(tail, upper=UPPER, lower=LOWER):
    """Words whose upper-case letters come first, with `tail` behind each."""
    return "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?[{upper}]{a}[{lower}]{b}{tail}"
                    for a, b in ("*+", "+*"))


GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_POSSESSIVE = (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++(?!\S)|\s+")
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = cased(CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
             "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
NOT_HAN = r"&&[^\p{Han}]"

PATTERNS = {
    "GPT-2, GPT-NeoX, OLMo, StarCoder": GPT2,
    "CLIP": r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    "Llama 3, GLM 4, Granite 4": LLAMA3,
    "Qwen 2, Qwen 3": QWEN2,
    "Qwen 3.5": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + SPACES,
    "o200k, MiniMax M2, GPT-OSS": O200K,
    "Tekken, Nemotron 3": cased("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES,
    "Phi-4, DBRX": CL100K,
    "Ling, LLaDA": CL100K.replace("{1,3}", ""),
    "cl100k of tiktoken": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
                          r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "Kimi K2": r"[\p{Han}]+|" + cased(CONTRACTIONS + "?", UPPER + NOT_HAN, LOWER + NOT_HAN)
               + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES,
    "DeepSeek V3": DEEPSEEK3,
    "DeepSeek V3, Chinese and Japanese": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "DeepSeek Coder, Chinese and Korean": "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    "DeepSeek Coder, punctuation": r"\s?\p{P}+",
    "DeepSeek LLM, symbols": "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
    "DeepSeek LLM, spaces": r"\s+$",
    "Spark X": DEEPSEEK3.replace("+[\r\n]*|\\s*[\r\n]+|", "+|[\r\n]|"),
    "BLOOM": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    "Seed Coder": CONTRACTIONS + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+"
                  "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "EXAONE MoE": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                  r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+",
    "Laguna": r"(?:\r?\n)+(?!\r?\n)",
    "Command A": r"\d{1,3}(?=(?:\d{3})*\b)",
    "SuperBPE": r"(?=(\d{3})+(?!\d))",
    "Falcon": "[0-9][0-9][0-9]",
    "Chameleon": r"([\t\n]|    |  )",
    "Chameleon, images": "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    "Youtu": "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b"
             "\uff0c\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+"
             "|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "lines": "[^\n]+|[\n]+",
    "first of a line": r"(?<!\n)^",
}
