"""Sizes and FLOPs of the models of the PyTorch benchmarks; needs no PyTorch."""

#          layers, heads, embd
MODELS = {"gpt2": (12, 12, 768), "gpt2-medium": (24, 16, 1024),
          "gpt2-large": (36, 20, 1280), "gpt2-xl": (48, 25, 1600),
          "llama-15m": (6, 6, 288), "llama-110m": (12, 12, 768)}
GPT2_VOCAB, LLAMA_VOCAB = 50257, 32000


def complete(args):
    """Sets the sizes that the command line left out, from args.model: layers, heads, embd, vocab, llama (whether
    it is one) and inner, the width of the MLP. A model outside MODELS is a GPT-2 that has its own sizes."""
    for size, default in zip(("layers", "heads", "embd"), MODELS.get(args.model, ())):
        setattr(args, size, getattr(args, size) or default)
    args.llama = args.model.startswith("llama")
    args.vocab = args.vocab or (LLAMA_VOCAB if args.llama else GPT2_VOCAB)
    args.inner = -(-args.embd // 12) * 32 if args.llama else 4 * args.embd


def flops_per_token(args):
    """6 x matmul parameters (the tied head once) + 12 x layers x tokens x embd; see docs/."""
    mlp = (3 if args.llama else 2) * args.inner * args.embd
    matmul = args.layers * (4 * args.embd ** 2 + mlp) + args.vocab * args.embd
    return 6 * matmul + 12 * args.layers * args.tokens * args.embd
