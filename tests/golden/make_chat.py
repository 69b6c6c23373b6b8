"""Writes chat.json: what transformers makes of conversations with chat templates, and Jinja of single
expressions, for tests/lua/chat.lua. The templates are ours; they use what those of the families use.

    pip install transformers jinja2 && python3 tests/golden/make_chat.py
"""
import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

OUT = pathlib.Path(__file__).parent / "chat.json"
TEMPLATES = {
    # As of Qwen, SmolLM: roles between marks, a default system message.
    "chatml": """\
{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    # As of Llama 2 and Mistral: [INST] with the system message in the first one, roles alternate.
    "inst": """\
{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}
{% for message in loop_messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}
{% endif %}
{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}
{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}
{% endfor %}
""",
    # As of Llama 3: headers, tools as JSON, a date, macros and namespaces.
    "headers": """\
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{%- set ns = namespace(last=-1, found=false) %}
{%- for m in messages %}
    {%- if m.role == "user" and not ns.found %}{%- set ns.last = loop.index0 %}{%- set ns.found = true %}{%- endif %}
{%- endfor %}
{%- macro header(role) %}{{ "<|start_header_id|>" ~ role ~ "<|end_header_id|>\\n\\n" }}{% endmacro %}
{%- set system_message %}
Today is {{ date_string }}.
{%- endset %}
{{- header("system") + system_message | trim + "<|eot_id|>" }}
{%- if tools is not none and tools is defined %}
    {{- "Tools:" }}
    {%- for t in tools %}
        {{- "\\n" + (t | tojson(indent=4)) }}
        {{- "\\n" ~ (t | tojson) }}
    {%- endfor %}
{%- endif %}
{%- for message in messages if message.role in ["user", "assistant", "tool"] %}
    {#- a comment -#}
    {{- header(message['role']) }}
    {%- if message.content is string %}
        {{- message['content'] | trim }}
    {%- else %}
        {%- for part in message.content %}
            {%- if part.type == 'image' %}{{- '<|image|>' }}{%- elif part['type'] == 'text' %}{{- part.text }}{%- endif %}
        {%- endfor %}
    {%- endif %}
    {%- if message.tool_calls is defined and message.tool_calls %}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' }}{{ call.function.arguments | tojson }}{{- "}" }}
            {%- if not loop.last %}{{ ", " }}{% endif %}
        {%- endfor %}
    {%- endif %}
    {{- "<|eot_id|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{- header("assistant") }}{%- endif %}
""",
    # As of Qwen 3: the thoughts of earlier answers are removed, from the end backwards.
    "thinking": """\
{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and thought %}{{- '<think>' + thought.strip('\\n') + '</think>' }}{%- endif %}
    {%- endif %}
    {{- loop.index ~ ': ' ~ content }}
    {%- if loop.previtem is defined and loop.previtem.role == message.role %}{{ ' (again)' }}{% endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt and enable_thinking is defined and enable_thinking is false %}
    {{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
""",
    # As of Zephyr, TinyLlama and Gemma: blocks on lines of their own; generation marks.
    "lines": """\
{% for message in messages %}
  {% if message['role'] == 'user' %}
{{ '<|user|>\n' + message['content'] + eos_token }}
  {% elif message['role'] == 'system' %}
{{ '<|system|>\n' + message['content'] + eos_token }}
  {% elif message['role'] == 'assistant' %}
{% generation %}
{{ '<|assistant|>\n'  + message['content'] + eos_token }}
{% endgeneration %}
  {% else %}{% continue %}
  {% endif %}
  {# no blank line #}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
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
