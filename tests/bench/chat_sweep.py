#!/usr/bin/env python3
"""Compares the texts of tokenizer:chat with those of transformers' apply_chat_template, for every chat
template (*.jinja) in a folder and 18 conversations, each with and without a generation prompt.

    python3 tests/bench/chat_sweep.py FOLDER

Both sides agree on a conversation if they write the same text, or if both refuse it; an internal error of
nnlua is a difference. Needs
`pip install transformers tokenizers jinja2` in the Python that runs it. Exits with status 1 if they
disagree on any.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from common import ROOT, print_table

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
OURS = """
local nn = require "nn"
local json = require "cjson"
local lib = require "nn.base.capi"
local given = nn.from_json(io.open(arg[1], "rb"):read "*a")
local words, out = nn.train_tokenizer("aaaa", {size = 258}), {}
words.token_texts = given.special
for i, case in ipairs(given.cases) do
  words.chat_templates = {default = case.template}
  local good, text = pcall(words.chat, words, case.messages, {
    tools = case.tools, documents = case.documents, generate = case.generate,
    values = case.values})
  out[i] = {good, tostring(text), not good and lib.is_error(text)}
end
io.open(arg[2], "wb"):write(json.encode(out))
"""


def user(content):
    return {"role": "user", "content": content}


def answer(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, number=1):
    return {"id": f"call{number:05}", "type": "function", "function": {"name": name, "arguments": arguments}}


def result(content, name, number=1):
    return {"role": "tool", "tool_call_id": f"call{number:05}", "name": name, "content": content}


def tool(name, description, properties, required):
    return {"type": "function", "function": {
        "name": name, "description": description,
        "parameters": {"type": "object", "properties": properties, "required": required}}}


def text_parts(*texts):
    return [{"type": "text", "text": text} for text in texts]


WEATHER = tool("get_weather", "Current weather of a city.\nIn \"metric\" units.", {
    "location": {"type": "string", "description": "City & country, e.g. Z\u00fcrich <CH>"},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": None}}, ["location"])
SEARCH = tool("search", "Searches.", {
    "query": {"type": "string", "minLength": 1},
    "weights": {"type": "array", "items": {"type": "number"}, "default": [1.0, 0.5, 1e-7]},
    "filter": {"type": "object", "properties": {"from": {"type": "integer", "minimum": 0},
                                                "tags": {"type": "array", "items": {"type": "string"}}},
               "required": [], "additionalProperties": False},
    "strict": {"type": ["boolean", "null"]}}, [])
PING = tool("ping", "", {}, [])
HI, BYE = user("Hi there."), answer("Hello! What can I do?")
ASK = user("What is the weather in Z\u00fcrich?")
NESTED = {"query": "a \"b\" 'c'\n", "weights": [1, 2.0, 2.5, -0.0, 1e22], "strict": None,
          "filter": {"z": {"a": [], "b": {}, "c": [None, True, False]}, "from": 12345678901234567890}}
CONVERSATIONS = {
    "one question": {"messages": [HI]},
    "system": {"messages": [system("Be brief."), HI]},
    "turns": {"messages": [HI, BYE, user("Who are you?"), answer("  A model.\n"), user("Bye.")]},
    "turns, system": {"messages": [system(" Be brief.\n"), HI, BYE, user("Who?")]},
    "ends with an answer": {"messages": [HI, BYE]},
    "characters": {"messages": [system("\u00e9\u4e2d\u00a0\U0001f468\u200d\U0001f469 \u201cq\u201d"), user(
        " \t\"double\" 'single' \\ <b>&amp;</b> {{ x }}\n\n\U0001f600\u2028\u3000"), answer("\u00df\n``")]},
    "parts": {"messages": [user(text_parts("First.", " Second.\n")), answer(text_parts("Yes.")),
                           user(text_parts("Third."))]},
    "parts, system": {"messages": [system(text_parts("Be brief.")), user(text_parts("Hi."))]},
    "empty content": {"messages": [system(""), user(""), answer(""), user("  ")]},
    "two questions": {"messages": [HI, user("Hello?")]},
    "tools": {"messages": [system("Be brief."), ASK], "tools": [WEATHER, SEARCH, PING]},
    "call without content": {"messages": [ASK, {"role": "assistant", "tool_calls": [
        call("get_weather", {"location": "Z\u00fcrich", "unit": None})]}], "tools": [WEATHER]},
    "call with null content": {"messages": [ASK, answer(None, tool_calls=[
        call("get_weather", {"unit": "celsius", "location": "Z\u00fcrich"})]),
        result("{\"t\": 21.5}", "get_weather"), answer("21.5 \u00b0C"), user("Thanks.")],
        "tools": [WEATHER, PING]},
    "nested arguments": {"messages": [system("Be brief."), user("Find it."), answer("", tool_calls=[
        call("search", NESTED)]), result("[]", "search")], "tools": [SEARCH]},
    "two calls": {"messages": [ASK, answer("Let me see.", tool_calls=[
        call("ping", {}), call("get_weather", {"location": "Bern"}, 2)]),
        result("pong", "ping"), result(json.dumps({"t": 20}), "get_weather", 2)],
        "tools": [PING, WEATHER]},
    "arguments as text": {"messages": [ASK, answer("", tool_calls=[
        call("get_weather", "{\"location\": \"Z\u00fcrich\"}")]), result("21", "get_weather")],
        "tools": [WEATHER]},
    "thoughts": {"messages": [HI, answer("Hello.", reasoning_content="They greet me.\n"), ASK,
                              answer("<think>\nHm.\n</think>\n\nWarm.", thinking="Warm?")],
                 "values": {"enable_thinking": False}},
    "documents": {"messages": [user("What do they say?")], "documents": [
        {"title": "One", "text": "It rains.\nOften.", "doc_id": 1}, {"title": "Two", "text": "\"Sun\""}]},
}


def theirs(words, case):
    try:
        return True, words.apply_chat_template(
            case["messages"], tools=case.get("tools"), documents=case.get("documents"),
            chat_template=case["template"], add_generation_prompt=case["generate"], tokenize=False,
            **case.get("values", {}))
    except Exception as problem:  # pylint: disable=broad-exception-caught
        return False, f"{type(problem).__name__}: {problem}"


def our_texts(nnlua, cases):
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("ours.lua", "cases.json", "texts.json")]
        paths[0].write_text(OURS)
        paths[1].write_text(json.dumps({"special": SPECIAL, "cases": cases}))
        subprocess.run([*nnlua, *map(str, paths)], check=True)
        return json.loads(paths[2].read_text())


def first_difference(one, other):
    at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
    return one[max(0, at - 40):at + 60], other[max(0, at - 40):at + 60]


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("folder", type=pathlib.Path, help="folder of chat templates, *.jinja")
    options.add_argument("--nnlua", default=str(ROOT / "nnlua"))
    options = options.parse_args()
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **SPECIAL)
    cases = [{"name": path.stem, "conversation": name, "template": path.read_text(),
              "generate": generate, **conversation}
             for path in sorted(options.folder.glob("*.jinja"))
             for name, conversation in CONVERSATIONS.items() for generate in (False, True)]
    if not cases:
        sys.exit(f"'{options.folder}' has no *.jinja")
    rows = {}
    for case, (good, text, refused) in zip(cases, our_texts([options.nnlua], cases), strict=True):
        row = rows.setdefault(case["name"], [0, 0, 0])
        expected, wanted = theirs(words, case)
        if good and expected and text == wanted:
            row[0] += 1
        elif refused and not expected:
            row[1] += 1
        else:
            row[2] += 1
            parts = first_difference(wanted, text) if good and expected else (wanted[:200], text[:200])
            print(f"{case['name']}, {case['conversation']}, generate={case['generate']}\n"
                  f"  transformers {parts[0]!r}\n  nnlua        {parts[1]!r}")
    total = [sum(column) for column in zip(*rows.values())]
    print_table(["template", "equal", "both refuse", "differ"],
                [[name, *map(str, row)] for name, row in [*rows.items(), ("all", total)]])
    print(json.dumps({"templates": len(rows), "equal": total[0], "refused": total[1],
                      "differ": total[2]}))
    sys.exit(1 if total[2] else 0)


main()
