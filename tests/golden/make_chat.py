"""Writes chat.json: what transformers makes of conversations with chat templates, and Jinja of single
expressions, for tests/lua/text/chat.lua. The templates are ours; they use the parts of Jinja that those of
model families use.

    pip install transformers tokenizers jinja2 && python3 tests/golden/make_chat.py
"""
import json
import pathlib

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

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
    # Blocks on lines of their own; generation marks; a loop over no messages.
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
    # Tools and calls as JSON and as Python writes them; messages without content; documents.
    "calls": """\
{%- macro arguments_of(call, mark='') -%}
    {%- if call.arguments is mapping and call.arguments.items is callable -%}
        {%- for name, value in call.arguments.items() -%}
            {{- mark ~ name }}: {{ value if value is string else value | tojson }}
            {%- if loop.nextitem is defined %}, {% endif -%}
        {%- endfor -%}
    {%- else %}{{ call.arguments }}{% endif -%}
{%- endmacro -%}
{%- if tools %}{{ 'TOOLS ' + tools | string + '\\n' }}{{ tools | tojson(indent=2) }}{% endif %}
{% for tool in tools or [] -%}
    {%- for name, kind in (tool.function.parameters.properties | dictsort) %}
{{ loop.index }}. %{{ '%-4s' % name }} {{ kind['items']['type'] if kind['items'] is mapping else kind }}
    {% endfor -%}
{% endfor %}
{%- for document in documents | default([], true) %}[{{ document }}]{% endfor %}
{%- for turn in messages %}
    {%- set said = turn['content'] | trim %}
    {%- if loop.previtem is defined and loop.previtem.tool_calls and turn.role != 'tool' %}
        {{- raise_exception('no result for ' ~ loop.previtem.tool_calls[0].function.name) }}
    {%- endif %}
    {%- filter replace('\\n', ' ') %}
<{{ turn.role }}{{ ' ' + turn.name if 'name' in turn }}> {{ said if said else '-' }}
{{ turn.content is defined }} {{ turn.content is none }} {{ turn.get('content') }}
    {%- endfilter %}
    {%- for call in turn.tool_calls | map(attribute='function') %}
 * {{ call.name }}({{ arguments_of(call, mark='$') }}) {{ call.arguments }} {{ call | tojson }}
    {%- endfor %}
    {%- if turn.reasoning_content %} ({{ turn.reasoning_content + turn.thinking }}){% endif %}
    {%- if turn.reasoning_content %}{{ turn }}{% endif %}
{% endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
""",
}
TOOL = {"type": "function", "function": {"name": "add", "description": "Adds \"two\" numbers.\n", "parameters": {
    "type": "object", "properties": {"b": {"type": "number", "enum": [1, 2.5, 2.0, True, None]}, "a": {
        "type": "array", "items": {"type": "number"}, "default": []}}, "required": ["b", "a"]}}}
PING = {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}}
USER, ANSWER = {"role": "user", "content": " Hi \u00e9\u4e2d! "}, {"role": "assistant", "content": "Hello."}
NESTED = {"z": [2, {"c": "\t'\U0001f600", "a": {}, "b": []}], "a": None, "m": [True, False, None, 1e22, -0.5]}


def call(name, arguments):
    return {"function": {"name": name, "arguments": arguments}}


CONVERSATIONS = {
    "one": {"messages": [USER]},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, USER, ANSWER, USER],
               "add_generation_prompt": True},
    "answers": {"messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes"}, USER,
                             {"role": "assistant", "content": "<think>ah</think>No"}],
                "values": {"enable_thinking": False}, "add_generation_prompt": True},
    "again": {"messages": [USER, USER, ANSWER]},
    "tools": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a\n"}]},
                           {"role": "assistant", "content": "", "tool_calls": [
                               call("add", {"b": 1, "a": [2, {"c": "\t"}]}), call("f", {"x": "\u2028"})]},
                           {"role": "tool", "content": "3"}], "tools": [TOOL]},
    "calls": {"messages": [USER, {"role": "assistant", "tool_calls": [call("add", NESTED)]},
                           {"role": "tool", "name": "add", "content": "{\"sum\": 3.0}"},
                           {"role": "assistant", "content": None, "tool_calls": [call("ping", {})]},
                           {"role": "tool", "name": "ping", "content": []},
                           {"role": "assistant", "content": "Done.", "tool_calls": []}, USER],
              "tools": [PING, TOOL], "add_generation_prompt": True},
    "thoughts": {"messages": [USER, {"role": "assistant", "thinking": "Hm.", "content": "Yes."}, USER, {
        "role": "assistant", "content": "No.", "reasoning_content": "So\n", "reasoning": "not this"}]},
    "documents": {"messages": [USER], "documents": [{"title": "T", "text": "One.\nTwo.", "id": 1}],
                  "tools": []},
    "none": {"messages": []},
}
DATA = {"numbers": [3, 2.0, 0.5, 1e22, 1.5e-7, 100000.0, 0.1, 12345678901234567, -7], "null": None,
        "z": {"y": [], "x": {}, "b": "\u00e9\U0001f600\x7f\u2028", "a": [None, True, False]}, "items": "i",
        "values": {"get": 1}, "a-b": "<'\"&\\/>\n"}
EXPRESSIONS = """
1 + 2 * 3 - 4 // 2 % 3 ;; -7 // 2 ;; -7 % 3 ;; 2 ** 3 ;; 'a' ~ 1 ~ none ~ true ;; 'ab' * 2
[1] + [2, 3] == [1, 2, 3] ;; 1 < 2 < 3 ;; 1 if false else 'x' ;; 'b' in 'abc' ;; 'x' not in ['y']
not 1 == 2 and 3 or 4 ;; '' or none or 'c' ;; 'abc'[1] ;; 'a\u4e2dc'[-2] ;; 'abcdef'[1:4] ;; 'abcdef'[::-1]
'abcdef'[-3:] ;; 'abcdef'[:-1:2] ;; [1, 2, 3][5:] | length ;; {'a': 1, 'b': [2, {}]} | tojson ;; {'a': 1}['a']
{'a': 1}.get('b', 2) ;; {'b': 1, 'a': 2}.items() | list | length ;; {'b': 1, 'a': 2}.keys() | join('-')
{'b': 1, 'a': 2} | items | map('last') | join ;; 'x' is defined ;; zzz is defined ;; zzz | default('d')
'' | default('d', true) ;; none | default('d') ;; ' \u00a0a\u3000 ' | trim ;; 'xxaxx'.strip('x')
'aXb'.lower() ;; 'aXb' | upper ;; 'the end'.title() ;; 'tHE' | capitalize ;; 'a,b,,c'.split(',') | join('|')
'a b  c'.split() | length ;; 'a,b,c'.split(',', 1) | last ;; 'banana'.replace('an', '%')
'banana' | replace('a', '', 2) ;; 'abc'.startswith('ab') ;; 'abc'.endswith(('x', 'c')) ;; 'abc' | first
[3, 1] | last ;; 'abc' | reverse ;; '12' | int + 1
[{'r': 1}, {'r': 2}] | selectattr('r', 'equalto', 2) | list | tojson
[{'r': 1}, {}] | rejectattr('r') | list | length ;; [{'r': 1}, {'r': 2}] | map(attribute='r') | join(',')
['a', ' b'] | map('trim') | join ;; [0, 1, ''] | select | list | length ;; 1 is number ;; 'x' is string
{} is mapping ;; [] is iterable ;; none is none ;; true is boolean ;; 1 is not string ;; 4 is even
range(3) | list | tojson ;; range(5, 1, -2) | join(' ') ;; "a\\n\\t\\"\\u00e9" | tojson ;; 'l1\\nl2' | indent(2)
3 in [1, 2, 3] ;; 'a' if 1 > 2 ;; (1, 2)[1] ;; 'x' ~ (zzz | default) ~ 'y' ;; [1, [2, 'a']] | tojson(indent=2)
-3 | abs ;; 7 is odd and 2 is in [1, 2]
[{'r': false}, {'r': true}] | selectattr('r', 'false') | list | length
[{'r': false}, {}] | rejectattr('r', 'undefined') | list | length
[{'a': {'b': false}}] | map(attribute='a.b') | join ;; [{'a': [3, 4]}] | map(attribute='a.1') | join
[[5, 6]] | map(attribute=1) | join ;; "\\u0041\x42\\\\u0043\\n\\." ;; ' \t a \u3000 b \u00a0 ' | trim
'aaa' | replace('a', 'bb', -1) ;; ' x '.strip(none) ;; data | tojson ;; data ;; data | string | length
data | tojson(indent=4) ;; data | tojson(indent=2, sort_keys=true) ;; data | tojson(ensure_ascii=true)
data | tojson(separators=(',', ':')) ;; data | tojson(indent='\\t', separators=[' ;', '='])
data | tojson(indent=0) ;; [] | tojson(indent=2) ;; {'a': {}, 'b': []} | tojson(4) ;; data.numbers
data['items'] ;; data.z.y ;; data.get('null') ;; data.get('nothing') ;; data.get('nothing', 3)
data['null'] is none ;; data.null is defined ;; data.nothing is defined ;; data.items is defined
data.items is callable ;; data['values'] is callable ;; data.get is string ;; 'null' in data ;; data.null ~ 'x'
data.items() | map('first') | join(',') ;; data | dictsort | map('first') | join(',') ;; data.copy() == data
data.keys() | list ;; data.numbers | sum ;; data.numbers | sort ;; data.numbers | min ;; data.numbers | max
(data.numbers | last) + 1 ;; 1 / 2 ;; 4 / 2 ;; 2 ** -1 ;; 7.5 // 2 ;; 1.0 ;; 1.0 + 1 ;; 1e3 ;; 2.0 == 2
1.5 > 1 ;; -2.0 ;; 2.5 | int ;; '3.7' | int ;; 'x' | int ;; 'x' | int(5) ;; '2' | float ;; 2.5 | round
3.14159 | round(2) ;; 2.1 | round(method='ceil') ;; -2.5 | abs ;; 2 is integer ;; 2.0 is integer ;; 2.0 is float
true is number ;; none | trim ;; zzz | trim ;; 5 | string ;; zzz | length ;; zzz | join(',') ;; zzz | list
none | string ;; 3 | upper ;; true | lower ;; none | default('d', true)
zzz.a | default('d') if false else 'e' ;; {none: 'n', 1: 'o'} ;; {none: 'n'}[none] ;; {1: 'a', 'b': 2} | tojson
(1, 2) ;; (1,) ;; [1, (2, 'a')] ;; (1, 2) == [1, 2] ;; [1, 2] + [3]
['it\\'s', 'say "x"', 'both \\' "', 'a\\nb\\\\c\\x07\\u00a0\\u200d\\U0001f600\\u00e9']
'%s of %d, %.2f%%' % ('a', 3, 1.5) ;; '%5s|%-4d|%03d' % ('ab', 7, 8) ;; '%s' % none ;; '%r' % 'x' ;; '%x' % 255
'%s, %s' | format('a', 2) ;; '{}-{}' .format(1, 'b') ;; '{0}{1}{0} {name}'.format(1, none, name='n')
'{{}}{}'.format([1]) ;; 'a b  c d'.split(none, 2) ;; '  a b  c '.rsplit(none, 1) ;; ' a  b '.split(none, 0)
'a,b,c'.rsplit(',', 1) ;; 'a\\nb\\r\\nc\\n'.splitlines() ;; 'a\\u3000b c'.split() ;; 'k=v=w'.partition('=')
'k=v=w'.rpartition('=') ;; 'kv'.partition('=') ;; 'kv'.rpartition('=') ;; 'abcb'.find('b')
'\u00e9b'.find('b') ;; 'abc'.find('x') ;; 'banana'.count('an') ;; ', '.join(['a', 'b'])
'prefix-x'.removeprefix('prefix-') ;; 'x.py'.removesuffix('.py') ;; 'x.py'.removesuffix('q') ;; '12'.isdigit()
''.isdigit() ;; 'aB'.islower() ;; 'AB1'.isupper() ;; 'they\\'re {here} a-b' | title ;; 'they\\'re'.title()
'hELLO wORLD' | capitalize ;; '<a href="x">&\\'' | e ;; ('<' | e) + '<' ;; '<' + ('>' | safe)
('<' | safe) ~ '<' ;; ('a' | safe) is string ;; ('a' | safe) == 'a' ;; ['b', 'A', 'c'] | sort | join
['b', 'A', 'c'] | sort(case_sensitive=true) | join ;; ['b', 'A'] | sort(reverse=true) | join
['b', 'A', 'a', 'b'] | unique | join
[{'n': 2, 'v': 'x'}, {'n': 1, 'v': 'y'}] | sort(attribute='n') | map(attribute='v') | join
[{'n': 1}, {}] | map(attribute='n', default='-') | join ;; {'b': 1, 'C': 3, 'a': 2} | dictsort
{'b': 1, 'a': 2} | dictsort(by='value', reverse=true) ;; [3, 1, 2] | sort(reverse=true) | first
[[1, 2], [3]] | map('length') | sum ;; none | selectattr('x') | list ;; zzz | map('upper') | list
(messages | selectattr('x')) is iterable ;; (messages | selectattr('x')) is sequence
'yes' if messages | selectattr('zz') else 'no' ;; messages.0.role ;; messages[0].content.strip().split() | first
[1, 2, 3].index(2) ;; [1, 2, 1].count(1) ;; 'l1\\n\\nl2\\n' | indent(2) ;; 'a\\n\\nb' | indent(2, true, true)
'a\\nb' | indent('> ') ;; range(3) is iterable ;; range(3) | length ;; range(2, 8, 3) | list ;; namespace(a=1).a
dict(b=1, a=2) ;; 6 is divisibleby 3 ;; 'a' is eq 'a' ;; 2 is ne 3 ;; strftime_now('%Y') | length
{% set a, b = 1, [2] %}{{ a }}{{ b }} ;; {% set x %} y {% endset %}{{ x | trim }}
{% filter trim | upper %} ab {{ 1 }} {% endfilter %} ;; {% for x in [] %}{% else %}empty{% endfor %}
{% for k, v in data.z.items() %}{{ loop.index }}{{ k }}={{ v }}{{ loop.nextitem is defined }};{% endfor %}
{% for x in [1, 2, 3] if x != 2 %}{{ loop.length }}{{ x }}{{ loop.previtem }}{{ loop.cycle('a', 'b') }}{% endfor %}
{% set g = [1, 2] | map('string') %}{% for x in g %}{{ x }}{% endfor %}{% for x in g %}{{ x }}{% endfor %}
{% macro m(a, b=2) %}{{ a ~ b }}{% endmacro %}{{ m(1) ~ m(a=3, b=none) }}
{% set ns = namespace(x=1) %}{% set ns.x %} {{ ns.x + 1 }} {% endset %}{{ ns.x }} ;; not 1 == true ;; true + 1
-true ;; -1 | round(2) ;; ('x' | safe).upper() ;; zzz | tojson ;; [1, 2] | map('string') | tojson
data.keys() | tojson ;; data.items() + [] ;; data.pop('z') ;; [].append(1) ;; none + 'a' ;; 'a' + 1 ;; zzz.a.b
none | length ;; [1] | map('string') | length ;; '%d' % 'x' ;; '%s %s' % 'x' ;; '%s' % ('a', 'b')
'{}'.format() ;; [2, 'a'] | sort ;; 1 % 0 ;; 'abc'.zzz() ;; zzz + 'a' ;; [1] | sum(start='a') ;; +'a'
[1] | sum(start=[]) ;; {1: 'a', 'b': 2} | tojson(sort_keys=true) ;; {none: 1, true: 2} | tojson(sort_keys=true)
{10: 'a', 9: 2} | tojson(sort_keys=true) ;; {'b': 1, 'a': 2} | tojson(sort_keys=none)
'b\\n\\na' | indent(2, 0, 0) ;; ['b', 'a'] | sort(reverse=0) ;; ['b', 'A', 'a'] | sort(case_sensitive=0)
{'b': 1, 'A': 2} | dictsort(none, reverse=0) ;; 'a'.upper(1) ;; [1] | length(3) ;; 'a' | trim('a', 'b')
{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, a=2) }} ;; 'a' is string(1) ;; dict({'a': 1}, b=2)
dict([('a', 1)]).a ;; dict(['abc']) ;; dict([1]) ;; namespace({'a': 1}).a ;; namespace(_a=1)._a ;; range(stop=2)
{% for i in [1, 2] %}{% for j in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{% endfor %} ;; range(1, 2, 3, 4)
{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }} ;; 12345678901234567
12345678901234567 == 12345678901234568 ;; 12345678901234567 == 12345678901234567.0 ;; 9007199254740993 in [2.0 ** 53]
'%.2f' % 0.125 ;; '%.0f' % 2.5 ;; 1.15 | round(1) ;; 2.675 | round(2) ;; 1 // 0.1 ;; 6 % 0.2 ;; 7 % -3 ;; -7.5 // 2
930745405411313.25 | tojson ;; 5e-324 ;; 1.7976931348623157e308 ;; 2.5 | round(method='x') ;; '%x' % -255
0 ** -1 ;; '{} x'.format('a\\x01b\\x02') ;; '{'.format() ;; '}x{'.format() ;; '{{{}}}'.format(1) ;; '{}{0}'.format(1)
'ab' in ('abc' | safe) ;; ('b' | safe) in 'abc' ;; ('abc' | safe)[1:] ;; ('ab' | safe).text ;; (2.0).value
('<' | safe)[:] + '<' ;; 'a\\r\\nb\\u2028\\nc' | indent(1) ;; 'a\\n' | indent(2, true, true) ;; '\\UFFFFFFFF'
'\\U00110000' ;; {% if 1 -%}\u3000a\u00a0{%- endif %} ;; {% set x = 1 %}a\u3000{%- if x %}a{% endif %} ;; {'a': 1} | dictsort(by='x')
[1, 2, 3] | select('==', 2) | list ;; [1, 2] | select('gt', 1) | list ;; [1, 2] | select('lessthan', 2) | list
1 is le 1 ;; 'a' is ge 'b' ;; 'ab' is lower ;; 'ab' is upper ;; 1 is sameas 1 ;; none is sameas none ;; 1 is lt 'a'
1 is sameas true ;; 'abc'.startswith(['a']) ;; range(2) == [0, 1] ;; [true, 2] | sum
'1_0' | int ;; '1__0' | int(3) ;; (1e308 * 10 - 1e308 * 10) | int ;; [2.0, 'a' | safe] | map(attribute='value') | join
{'digits': '1'} | int ;; {'digits': '1'} == {'digits': '1'}
"""


WORDS = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>", eos_token="</s>")


def attempt(template, values):
    """The text, or false where transformers, the template or Jinja raises an error."""
    options = dict(values)
    try:
        return WORDS.apply_chat_template(
            options.pop("messages"), chat_template=template, tokenize=False, **options.pop("values", {}), **options)
    except Exception:  # pylint: disable=broad-exception-caught
        return False


def main():
    chats = [{"template": name, "conversation": other, "text": attempt(template, values)}
             for name, template in TEMPLATES.items() for other, values in CONVERSATIONS.items()]
    sources = [part.strip() for line in EXPRESSIONS.strip().split("\n") for part in line.split(" ;; ")]
    sources = [source if source.startswith("{%") else "{{ " + source + " }}" for source in sources]
    texts = [attempt(source, {"messages": [USER], "values": {"data": DATA}}) for source in sources]
    OUT.write_text(json.dumps({
        "templates": TEMPLATES, "conversations": CONVERSATIONS, "chats": chats, "data": DATA,
        "expressions": [list(pair) for pair in zip(sources, texts)]}, indent=1) + "\n")
    print(len(chats), "chats,", sum(c["text"] is False for c in chats), "refused;", len(sources),
          "expressions, refused:", [e for e, t in zip(sources, texts) if t is False])


main()
