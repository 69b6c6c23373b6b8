"""Writes conversation.json: a conversation of two questions with a small random Llama, as transformers
holds it: the text of apply_chat_template, its ids and the greedy answer of each turn.

The tokenizer is tokenizers/smollm.json, the template the one below; tests/lua/runs/chat.lua writes
the same folder. Weights are those of weight_of in make_decoders.py, of the head only for ids whose
text is ASCII, so that answers are valid UTF-8; its other rows are 0.

    pip install torch transformers && python3 tests/golden/make_conversation.py
"""
import json
import pathlib
import shutil
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from small_models import weight_of

HERE = pathlib.Path(__file__).parent
TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
QUESTIONS = ["What is a tile?", "And \u00e9 or \u4e2d?  "]
SYSTEM = "Be brief."
TOKENS = 24


def tokenizer_in(folder):
    shutil.copy(HERE / "tokenizers" / "smollm.json", folder / "tokenizer.json")
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": TEMPLATE,
                "bos_token": "<|im_start|>", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return AutoTokenizer.from_pretrained(folder), settings


def model_for(tokenizer):
    size = len(tokenizer)
    config = LlamaConfig(vocab_size=size, hidden_size=32, intermediate_size=48, num_hidden_layers=1,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
                         bos_token_id=None, eos_token_id=tokenizer.eos_token_id)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
    silent = [i for i in range(size) if not tokenizer.decode([i]).isascii()]
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            parameter.copy_(weight_of(path, parameter.shape))
        model.lm_head.weight[silent] = 0
    config.architectures = [type(model).__name__]
    return model, config, silent


def greedy(model, ids, end):
    out = torch.tensor([ids])
    with torch.no_grad():
        for _ in range(TOKENS):
            out = torch.cat([out, model(out).logits[:, -1:].argmax(-1)], 1)
            if out[0, -1] == end:
                break
    return out[0, len(ids):].tolist()


def main():
    with tempfile.TemporaryDirectory() as name:
        tokenizer, settings = tokenizer_in(pathlib.Path(name))
    model, config, silent = model_for(tokenizer)
    messages, turns = [{"role": "system", "content": SYSTEM}], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        found = greedy(model, ids, tokenizer.eos_token_id)
        answer = tokenizer.decode(found, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        messages.append({"role": "assistant", "content": answer})
        turns.append({"text": text, "ids": ids, "answer": answer, "answer_ids": found})
    shapes = [[path, list(p.shape)] for path, p in model.named_parameters()]
    out = {"config": config.to_diff_dict(), "tokenizer_config": settings, "silent": silent,
           "shapes": shapes, "messages": messages, "turns": turns, "tokens": TOKENS}
    (HERE / "conversation.json").write_text(json.dumps(out, indent=1, default=str) + "\n")


main()
