"""Writes lua/nn/models/config_defaults.lua: the defaults that transformers has for the entries of
config.json, by model_type, whether it accepts null for them, its defaults of generation, and which
other entries it reads.

An entry is a field of the type's config class. Those of all types that describe a file and no model
are among the others, and so are attributes of the class, the names in the source of the type, and
those that loading, saving and calling a small model asks the config for, present or not.
"""
import dataclasses
import inspect
import json
import pathlib
import re
import tempfile
import textwrap

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, GenerationConfig, PreTrainedConfig

from make_odd_configs import class_of, logits_of
from odd_config_cases import BASES

OUT = pathlib.Path(__file__).parents[2] / "lua/nn/models/config_defaults.lua"
TYPES = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "olmo2", "gpt_neo", "gpt_neox", "bert",
         "roberta", "xlm-roberta", "camembert", "t5"]
# Read by the model's code with getattr(config, NAME, default), though no field.
READ_BY_MODELS = {"qwen2": ["head_dim"], "olmo2": ["head_dim"]}
OF_FILES = {field.name for field in dataclasses.fields(PreTrainedConfig)} - {"is_encoder_decoder"}


def accepts_null(config_class, name):
    try:
        config_class(**{name: None})
        return True
    except Exception:      # the strict classes raise several kinds
        return False


def lua(value):
    if isinstance(value, str):
        return json.dumps(value)
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else f"{value:.10g}"


def entry(name, default, nullable):
    if default is None:
        return f"{name} = or_null()"
    return f"{name} = or_null({lua(default)})" if nullable else f"{name} = {lua(default)}"


def entries_of(kind):
    config_class = CONFIG_MAPPING[kind]
    entries = [entry(field.name, field.default, accepts_null(config_class, field.name))
               for field in dataclasses.fields(config_class) if field.name not in OF_FILES]
    rope = getattr(config_class(), "rope_parameters", None)
    if rope and kind == "gpt_neox":
        entries += [entry("rotary_emb_base", rope["rope_theta"], False),
                    entry("rotary_pct", rope["partial_rotary_factor"], False)]
    elif rope:
        entries.append(entry("rope_theta", rope["rope_theta"], False))
    return entries + [f"{name} = derived" for name in READ_BY_MODELS.get(kind, [])]


def asked_of(kind):
    """The names of attributes that transformers asks the config of a small model for."""
    asked, original = set(), PreTrainedConfig.__getattribute__

    def note(self, name):
        asked.add(name)
        return original(self, name)

    PreTrainedConfig.__getattribute__ = note
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as saved:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(BASES[kind]))
        config = AutoConfig.from_pretrained(folder)
        class_of(config).from_config(config).save_pretrained(saved)
        model = class_of(config).from_pretrained(saved).eval()
        logits_of(model, config.vocab_size)
    PreTrainedConfig.__getattribute__ = original
    return asked, type(model)


IN_SOURCE = re.compile(r"""config\.(\w+)\b(?!\()|attr\(\w*\.?\w*config, "(\w+)"|"""
                       r"""kwargs\.(?:pop|get)\("(\w+)"|"(\w+)" in kwargs""")


def read_by(kind):
    """What transformers reads in config.json besides the fields of the config class of a type."""
    config_class = CONFIG_MAPPING[kind]
    asked, model_class = asked_of(kind)
    names = asked | OF_FILES | set(config_class.attribute_map)
    for of_source in (config_class, model_class):
        source = inspect.getsource(inspect.getmodule(of_source))
        names |= {name for found in IN_SOURCE.findall(source) for name in found if name}
    names |= {name for name, value in inspect.getmembers_static(config_class)
              if not callable(value) and not isinstance(value, (classmethod, staticmethod))}
    methods = {name for name in names if callable(getattr(config_class, name, None))}
    fields = {field.name for field in dataclasses.fields(config_class)} - OF_FILES
    return {name for name in names - methods - fields if not name.startswith("__")}


def reads():
    by_kind = {kind: read_by(kind) for kind in TYPES}
    shared = set.intersection(*by_kind.values())
    lines = ["-- Entries that transformers reads too, of all types and of one type.", "M.reads = {"]
    for kind, names in [("all", shared)] + [(kind, by_kind[kind] - shared) for kind in TYPES]:
        wrapped = textwrap.wrap(" ".join(sorted(names)), 92, break_on_hyphens=False)
        lines += [f'  ["{kind}"] = [[' if "-" in kind else f"  {kind} = [["]
        lines += ["    " + line for line in wrapped]
        lines[-1] += "]],"
    return lines + ["}"]


def table(name, entries):
    whole = ", ".join(entry.replace(" ", "\0") for entry in entries)        # no breaks in entries
    lines = [line.replace("\0", " ") for line in textwrap.wrap(whole, 96)]
    key = name if name.isidentifier() else f'["{name}"]'
    return [f"M.{name} = {{" if key == name else f"M{key} = {{"] + ["  " + x for x in lines] + ["}"]


def main():
    lines = ["-- The defaults of transformers for what config.json and generation_config.json do not",
             "-- state, by model_type, for config_entries.lua and generation_config.lua. or_null: null is",
             "-- accepted too, which is what or_null() is without a default; null elsewhere is an error",
             "-- there. Written by tests/golden/make_config_defaults.py; do not edit.",
             "local function or_null(default) return {default = default, takes_null = true} end",
             "local derived = {}                     -- from other entries, if it is absent",
             f'local M = {{version = "{transformers.__version__}"}}', ""]
    same = {}                                         # types by their entries
    for kind in TYPES:
        same.setdefault(tuple(entries_of(kind)), []).append(kind)
    for entries, kinds in same.items():
        lines += table(kinds[0], entries)
        for other in kinds[1:]:
            lines.append(f'M["{other}"] = M["{kinds[0]}"]')
    generation = GenerationConfig._get_default_generation_params()
    lines += table("generation", [entry(*item, item[1] is None) for item in generation.items()])
    OUT.write_text("\n".join(lines + reads() + ["", "return M", ""]))


main()
