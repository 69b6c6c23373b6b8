"""Writes chat.json: what transformers makes of conversations with chat templates, and Jinja of single
expressions, for tests/lua/text/chat.lua. The templates are ours; they use the parts of Jinja that those of
model families use.

    pip install transformers jinja2 && python3 tests/golden/make_chat.py
"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

OUT = pathlib.Path(__file__).parent / "chat.json"
TEMPLATES = {
    # Roles between marks, with a system message that is put before the others.
    "chatml": """\
{%- set open = '<|im_start|>' %}
{%- set close = '<|im_end|>\\n' %}
{%- set turns = messages %}
{%- if messages[0]['role'] != 'system' %}
    {%- set turns = [{'role': 'system', 'content': 'You help.'}] + messages %}
{%- endif %}
{%- for turn in turns %}
    {{- open + turn.role + '\\n' + turn['content'] + close }}
{%- endfor %}
{%- if add_generation_prompt %}{{- open ~ 'assistant\\n' }}{%- endif %}
""",
    # The system message becomes a part of the first question; questions and answers alternate.
    "inst": """\
{% set ns = namespace(prefix='') %}
{% for turn in messages %}
{% if turn['role'] == 'system' and loop.first %}
{% set ns.prefix = '<<SYS>>\\n' ~ turn.content.strip() ~ '\\n<</SYS>>\\n\\n' %}
{% continue %}
{% endif %}
{% if turn.content is not string %}{{ raise_exception('a text is needed') }}{% endif %}
{% set was_asked = loop.previtem is defined and loop.previtem['role'] == 'user' %}
{% if was_asked == (turn.role == 'user') %}
{{ raise_exception('message ' ~ loop.index ~ ' is of the wrong role') }}
{% endif %}
{% if not was_asked %}{{ bos_token ~ '[INST] ' ~ ns.prefix ~ (turn.content | trim) ~ ' [/INST]' }}{% set ns.prefix = '' %}
{% else %}{{ ' ' + turn.content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}
""",
    # Sections with names and numbers, tools as JSON, parts of messages, a date.
    "headers": """\
{%- set day = date_string | default("1 Jan 2020") %}
{%- set seen = namespace(questions=0, results=false) %}
{%- macro section(name, note='') %}{{ "<|" ~ name ~ (":" ~ note if note else "") ~ "|>\\n" }}{% endmacro %}
{%- set preface %}
It is {{ day }}. There are {{ messages | length }} messages.
{%- endset %}
{{- bos_token ~ section("system") ~ (preface | trim) ~ "<|stop|>" }}
{%- if tools is defined and tools is not none %}
    {{- section("tools", tools | length) }}
    {%- for tool in tools %}
        {{- loop.index ~ ". " ~ tool.function.name ~ ": " ~ (tool | tojson) ~ "\\n" }}
        {{- tool.function.parameters | tojson(indent=4) }}
    {%- endfor %}
{%- endif %}
{%- for entry in messages if entry.role in ["user", "assistant", "tool"] %}
    {#- questions have numbers, which their answers and results have too -#}
    {%- if entry.role == "user" %}{%- set seen.questions = seen.questions + 1 %}
    {%- elif entry.role == "tool" and not seen.results %}{%- set seen.results = true %}{%- endif %}
    {{- section(entry['role'], note=seen.questions) }}
    {%- if entry.content is string %}
        {{- entry['content'] | trim }}
    {%- else %}
        {%- for part in entry.content %}
            {%- if part['type'] == 'text' %}{{- part.text }}{%- else %}{{- '<|' + part.type + '|>' }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {%- if entry.tool_calls is defined and entry.tool_calls %}
        {%- for call in entry.tool_calls %}
            {{- call.function.name + "(" }}
            {%- for name, value in call.function.arguments | items %}
                {{- name ~ "=" }}{{ value | tojson }}{{ ", " if not loop.last }}
            {%- endfor %}
            {{- ")" }}{% if not loop.last %}{{ "; " }}{% endif %}
        {%- endfor %}
    {%- endif %}
    {{- "<|stop|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{- section("assistant", seen.questions) }}{%- endif %}
{%- if seen.results %}{{- "(with results)" }}{%- endif %}
""",
    # Only answers behind the last question keep their thoughts.
    "thinking": """\
{%- set questions = messages | selectattr('role', 'equalto', 'user') | list %}
{%- set ns = namespace(left=questions | length) %}
{%- for entry in messages %}
    {%- set said = entry.content if entry.content is string else '' %}
    {{- loop.index ~ ': ' }}
    {%- if entry.role == 'user' %}
        {%- set ns.left = ns.left - 1 %}
        {{- said[1:-1] if said.startswith(' ') and said.endswith(' ') else said }}
    {%- else %}
        {%- set parts = said.split('</think>', 1) %}
        {%- if '</think>' in said and not ns.left > 0 %}
            {{- '(' + parts[0].split('<think>')[-1].strip('\\n').rstrip('m') + ') ' }}
        {%- endif %}
        {{- parts[-1].lstrip('\\n') }}
    {%- endif %}
    {%- if loop.previtem is defined and loop.previtem.role == entry.role %}{{ ' (again)' }}{% endif %}
    {{- '\\n' }}
{%- endfor %}
{%- for entry in messages[::-1] %}
    {%- if entry.role == 'user' %}{{- 'the last question is ' ~ loop.revindex }}{%- break %}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}
    {{- '<think></think>' }}
{%- endif %}
""",
    # Blocks on lines of their own; generation marks; an empty list of messages.
    "lines": """\
{% for turn in messages %}
  {% if turn.role not in ('user', 'assistant', 'system') %}
    {% continue %}
  {% endif %}
== {{ turn.role | upper }} {{ loop.index }} of {{ loop.length }}
  {% if turn['role'] == 'assistant' %}
{% generation %}
{{ turn.content + eos_token + '\n' }}
{% endgeneration %}
  {% elif turn.content is string %}
{{ turn['content'] }}
  {% else %}
    {% for part in turn.content if part.text %}
 * {{ part.text }}
    {% endfor %}
  {% endif %}
  {# no blank line #}
{% if loop.last and add_generation_prompt %}
== {{ 'assistant' | upper }}
{%+ endif %}
{% else %}
nothing
{% endfor %}
end  {{- "." -}}  
""",
}
TOOL = {"function": {"description": "Adds \"two\" numbers.\n", "name": "add", "parameters": {
    "properties": {"a": {"type": "number"}, "b": {"enum": [1, 2.5, True, None], "type": "number"}},
    "required": ["a", "b"], "type": "object"}}, "type": "function"}
USER, ANSWER = {"role": "user", "content": " Hi \u00e9\u4e2d! "}, {"role": "assistant", "content": "Hello."}
CONVERSATIONS = {
    "one": {"messages": [USER]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER, ANSWER, USER],
               "add_generation_prompt": True},
    "answers": {"messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}, USER,
                             {"role": "assistant", "content": "<think>ah</think>No"}],
                "enable_thinking": False, "add_generation_prompt": True},
    "again": {"messages": [USER, USER, ANSWER]},
    "tools": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a\n"}]},
                           {"role": "assistant", "content": "", "tool_calls": [
                               {"function": {"arguments": {"a": 1, "b": [2, {"c": "\t"}]}, "name": "add"}},
                               {"function": {"arguments": {"x": "\u2028"}, "name": "f"}}]},
                           {"role": "tool", "content": "3"}], "tools": [TOOL]},
    "none": {"messages": [], "tools": None},
}
EXPRESSIONS = """
1 + 2 * 3 - 4 // 2 % 3 | -7 // 2 | -7 % 3 | 2 ** 3 | 'a' ~ 1 ~ none ~ true | 'ab' * 2 | [1] + [2, 3] == [1, 2, 3]
1 < 2 < 3 | 1 if false else 'x' | 'b' in 'abc' | 'x' not in ['y'] | not 1 == 2 and 3 or 4 | '' or none or 'c'
'abc'[1] | 'a\u4e2dc'[-2] | 'abcdef'[1:4] | 'abcdef'[::-1] | 'abcdef'[-3:] | 'abcdef'[:-1:2] | [1, 2, 3][5:] | length
{'a': 1, 'b': [2, {}]} | tojson | {'a': 1}['a'] | {'a': 1}.get('b', 2) | {'b': 1, 'a': 2}.items() | list | length
{'b': 1, 'a': 2}.keys() | join('-') | {'b': 1, 'a': 2} | items | map('last') | join | 'x' is defined | zzz is defined
zzz | default('d') | '' | default('d', true) | none | default('d')
' \u00a0a\u3000 ' | trim | 'xxaxx'.strip('x') | 'aXb'.lower() | 'aXb' | upper | 'the end'.title() | 'tHE' | capitalize
'a,b,,c'.split(',') | join('|') | 'a b  c'.split() | length | 'a,b,c'.split(',', 1) | last | 'banana'.replace('an', '%') | 'banana' | replace('a', '', 2)
'abc'.startswith('ab') | 'abc'.endswith(('x', 'c')) | 'abc' | first | [3, 1] | last | 'abc' | reverse | '12' | int + 1
[{'r': 1}, {'r': 2}] | selectattr('r', 'equalto', 2) | list | tojson | [{'r': 1}, {}] | rejectattr('r') | list | length
[{'r': 1}, {'r': 2}] | map(attribute='r') | join(',') | ['a', ' b'] | map('trim') | join | [0, 1, ''] | select | list | length
1 is number | 'x' is string | {} is mapping | [] is iterable | none is none | true is boolean | 1 is not string | 4 is even
range(3) | list | tojson | range(5, 1, -2) | join(' ') | "a\\n\\t\\"\\u00e9" | tojson | 'l1\\nl2' | indent(2) | 3 in [1, 2, 3]
'a' if 1 > 2 | (1, 2)[1] | 'x' ~ (zzz | default) ~ 'y' | [1, [2, 'a']] | tojson(indent=2) | -3 | abs | 7 is odd and 2 is in [1, 2]
[{'r': false}, {'r': true}] | selectattr('r', 'false') | list | length | [{'r': false}, {}] | rejectattr('r', 'undefined') | list | length
[{'a': {'b': false}}] | map(attribute='a.b') | join | [{'a': [3, 4]}] | map(attribute='a.1') | join | [[5, 6]] | map(attribute=1) | join
"\\u0041\x42\\\\u0043\\n\\." | ' \t a \u3000 b \u00a0 ' | trim | 'aaa' | replace('a', 'bb', -1) | ' x '.strip(none)
"""


def render(template, values):
    values = dict(values)
    messages = values.pop("messages")
    return render_jinja_template(
        [messages], tools=values.pop("tools", None), chat_template=template,
        add_generation_prompt=values.pop("add_generation_prompt", False),
        bos_token="<s>", eos_token="</s>", **values)[0][0]


def attempt(template, values):
    """The text, or false where the template or Jinja raises an error."""
    try:
        return render(template, values)
    except Exception:  # pylint: disable=broad-exception-caught
        return False


def main():
    chats = [{"template": name, "conversation": other, "text": attempt(template, values)}
             for name, template in TEMPLATES.items() for other, values in CONVERSATIONS.items()]
    parts = [part.strip() for line in EXPRESSIONS.strip().split("\n") for part in line.split(" | ")]
    # A filter belongs to the expression before it.
    filters = ("trim", "default", "join", "list", "length", "tojson", "upper", "capitalize", "replace(",
               "last", "first", "reverse", "int", "items", "map(", "select", "rejectattr", "indent(",
               "abs")
    expressions = []
    for part in parts:
        if part.startswith(filters) and expressions:
            expressions[-1] += " | " + part
        else:
            expressions.append(part)
    texts = [attempt("{{ " + e + " }}", {"messages": [USER]}) for e in expressions]
    OUT.write_text(json.dumps({
        "templates": TEMPLATES, "conversations": CONVERSATIONS, "chats": chats,
        "expressions": [list(pair) for pair in zip(expressions, texts)]}, indent=1) + "\n")
    print(len(chats), "chats,", sum(c["text"] is False for c in chats), "refused;", len(expressions),
          "expressions,", [e for e, t in zip(expressions, texts) if t is False])


main()
