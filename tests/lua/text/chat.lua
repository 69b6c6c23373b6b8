-- Chat templates against transformers and Jinja (tests/golden/make_chat.py); what is refused.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local ordered = require "nn.io.ordered"
local t = require "nn.test"
local lib = require "nn.base.capi"
local steps = require "nn.chat.steps"
local template = require "nn.chat.template"
local values_of = require "nn.chat.values"

local golden = nn.from_json(files.read(host.root .. "/tests/golden/chat.json"))
local folder = t.folder()

-- Variables of a template that is rendered without a tokenizer.
local function variables(values)
  values.bos_token, values.eos_token, values.add_generation_prompt = "<s>", "</s>", false
  values.tools = values.tools or values_of.NONE
  return values
end

-- A tokenizer with a chat template and the names of two special tokens.
local function with_source(source)
  local tokenizer = nn.train_tokenizer("aaaa", {size = 258})
  tokenizer.chat_templates = {default = source}
  tokenizer.token_texts = {bos_token = "<s>", eos_token = "</s>"}
  return tokenizer
end

t.case("conversations are written as transformers writes them", function()
  for _, chat in ipairs(golden.chats) do
    local label = chat.template .. " of " .. chat.conversation
    local given = golden.conversations[chat.conversation]
    local tokenizer = with_source(golden.templates[chat.template])
    local function write()
      return tokenizer:chat(given.messages, {
        tools = given.tools, documents = given.documents, values = given.values,
        generate = given.add_generation_prompt or false})
    end
    local good, text = pcall(write)
    if chat.text then
      t.same(good and text or tostring(text), chat.text, label)
    else
      t.check(not good and lib.is_error(text), label .. " gives " .. tostring(text))
    end
  end
end)

t.case("expressions have the values that Jinja gives them", function()
  for _, pair in ipairs(golden.expressions) do
    local good, text = pcall(template.render, pair[1], variables {
      data = golden.data, messages = golden.conversations.one.messages})
    if pair[2] then
      t.same(good and text or tostring(text), pair[2], pair[1])
    else
      t.check(not good and lib.is_error(text), pair[1] .. " gives " .. tostring(text))
    end
  end
end)

-- A tokenizer with a chat template in its folder.
local function with_template(config, jinja)
  local path = folder .. "/chat"
  nn.train_tokenizer("to be or not to be", {size = 258}):save(path)
  files.write(path .. "/tokenizer_config.json", files.json(config))
  files.remove(path .. "/chat_template.jinja")
  if jinja then files.write(path .. "/chat_template.jinja", jinja) end
  return nn.tokenizer(path), path
end

local messages = {{role = "user", content = "to be"}}

t.case("a tokenizer writes conversations with the template beside it, and keeps it", function()
  local config = {eos_token = {content = "<|endoftext|>"},
                  chat_template = "{{ messages[0].content }}{{ eos_token }}{{ x }}"}
  local tokenizer = with_template(config)
  local text = tokenizer:chat(messages, {values = {x = "!"}})
  t.same(text, "to be<|endoftext|>!")
  t.same(tokenizer.eos, tokenizer.special["<|endoftext|>"])
  tokenizer:save(folder .. "/copy")
  t.same(nn.tokenizer(folder .. "/copy"):chat(messages), "to be<|endoftext|>")
  local again = require("nn.text.tokenizer").from_state(tokenizer:state())
  t.same(again:chat(messages), "to be<|endoftext|>")
  t.same(with_template(config, "{{ add_generation_prompt }}"):chat(messages), "True")
  config.chat_template = {{name = "default", template = "a"}, {name = "tool_use", template = "b"}}
  t.same(with_template(config):chat(messages, {template = "tool_use"}), "b")
end)

local function refused(source, message)
  t.fails(function() template.render(source, variables {messages = messages}) end, message)
end

t.case("a template or a conversation that is not possible is refused with its line", function()
  refused("a\n{% include 'x' %}", "line 2: the statement 'include' is not supported")
  refused("{{ 'x' | urlize }}", "line 1: the filter 'urlize' is not supported")
  refused("{{ 'x'.zfill(3) }}", "the method 'zfill' is not supported")
  refused("{{ 1 is prime }}", "the test 'prime' is not supported")
  refused("{% if x %}", "the statement has no 'elif' or 'else' or 'endif'")
  refused("{{ 1 / 0.0 }}", "a division by zero")
  refused("{{ 2 ** 60 }}", "a whole number beyond 2^53")
  refused("{{ a.b }}", "'b' of an undefined value 'a'")
  refused("{{ x + 'a' }}", "'+' of an undefined value 'x'")
  refused("{{ 'é'.upper() }}", "upper is supported for ASCII only")
  refused("{{ namespace(a=1) }}", "a value of kind namespace has no text")
  refused("{{ [range(2)] }}", "range() and similar cannot be written; apply '| list'")
  refused("{{ raise_exception('no') }}", "the chat template refuses the conversation: no")
  refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself too often")
  refused("{% macro f() %}" .. ("{% if 1 %}"):rep(90) .. "{{ f()" .. (" ~ 1"):rep(990) .. " }}"
          .. ("{% endif %}"):rep(90) .. "{% endmacro %}{{ f() }}", "nested too deeply")
  refused("{{ " .. ("("):rep(1000) .. (")"):rep(1000) .. " }}", "nested too deeply")
  refused(("{% if x %}"):rep(1000), "nested too deeply")
  refused("{% for i in range(1000) %}{{ 'x' * 1000000 }}{% endfor %}", "exceeds 100000000 bytes")
  refused("{{ 'a }}", "a string has no end")
  refused("{{ a", "a tag has no end '}}'")
  refused("{{ a b }}", "'b' is not expected here")
end)

t.case("wrong arguments are refused", function()
  refused("{{ '\\ud800' }}", "the escape \\u is not supported")
  refused("{{ 1" .. (" + 1"):rep(1000) .. " }}", "a tag of 2001 words and signs; 2000 are possible")
  refused("{{ 'a'.strip(1) }}", "strip needs a text, not a value of kind number")
  refused("{{ 'a,b'.split(',', 'x') }}", "split needs a whole number")
  refused("{{ 'a'.partition('') }}", "partition needs a text that is not empty")
  refused("{{ 'a' | replace('a', 'b', 'c') }}", "replace needs a whole number")
  refused("{{ [1] | join(2) }}", "join needs a text")
  refused("{{ 'a' | indent([]) }}", "indent needs a whole number")
  refused("{{ [1] | tojson(separators=5) }}", "tojson needs a list, not a value of kind number")
  refused("{{ 'a' | indent(1000000) }}", "indent needs a width of 0 to 100")
  refused("{{ [1] | tojson(indent=1000) }}", "tojson needs an indent of 0 to 100")
  refused("{{ 'a' is odd }}", "odd needs a whole number")
  refused("{{ [1].keys() }}", "the method 'keys' is not supported for this value")
  refused("{{ messages | map(attribute='x.y') | join }}", "'y' of an undefined value")
  refused("{{ messages | map(attribute=[]) | join }}", "an attribute of kind")
  refused("{{ messages | selectattr }}", "selectattr needs an attribute")
  refused("{{ range() }}", "range needs 1 to 3 whole numbers")
  refused("{{ range(0, 1, 2 ** -1) }}", "range needs 1 to 3 whole numbers")
  refused("{{ range(1000000000) }}", "a difference of 1000000 is possible")
  refused("{{ strftime_now('*t') }}", "strftime_now needs a format")
  refused("{{ {(1e308 * 10 - 1e308 * 10): 1} }}", "cannot be the key of a dict")
  refused("{{ [1e308 * 10 - 1e308 * 10] | unique }}", "unique of a value that is not a number")
  refused("{{ 12345678901234567 + 1 }}", "a whole number beyond 2^53")
  refused("{{ -12345678901234567 }}", "a whole number beyond 2^53")
  refused("{{ 12345678901234567 < 1 }}", "'<' of numbers beyond 2^53")
  refused("{{ 'abc'.count('a', 1) }}", "count takes at most 1 arguments, not 2")
  refused("{{ '1e22' | int }}", "int of a number beyond 2^53")
  refused("{{ ' -Inf ' | float }}", "float of '-Inf' is not supported")
  refused("{{ '%d' % 1e22 }}", "%d of a number beyond 2^53")
  refused("{{ 1e99999999999 }}", "the number 1e99999999999 is not possible")
  refused("{{ [1] + 1 }}", "'+' needs two numbers, two texts or two lists, not values of kind list")
  refused("{{ zzz() }}", "'zzz' is not a function that nnlua supports")
  for _, name in ipairs {"varargs", "kwargs", "cycler", "joiner", "self"} do
    refused("{{ " .. name .. " }}", "'" .. name .. "' is not supported")
  end
  refused("{{ raise_exception([1.0]) }}", "refuses the conversation: [1.0]")
end)

t.case("what takes too long or needs too much memory is refused", function()
  for _, long in ipairs {"x ~ x", "x + x", "[x, x] | join", "x * 2", "[1, x ~ 'a' * 39999999]",
                         "[1, x ~ 'a' * 39999999] | tojson", "'%s%s' % (x, x)",
                         "('a' * 20000) | replace('a', x)", "'{0}{0}'.format(x)",
                         "'\\n\\n' | indent(x, true, true)"} do
    refused("{% set x = 'a' * 60000000 %}{{ " .. long .. " }}",
            "bytes; less than 100000000 are possible")
  end
  refused("{% for i in range(1000) %}{% set x = 'a' * 60000000 ~ i %}{% endfor %}",
          "more than 1000000000 bytes")
  local doubled = "{% set ns = namespace(x=[], y=[]) %}{% for i in range(60) %}"
    .. "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}"
  refused(doubled .. "{{ ns.x == ns.y }}", "takes more than 5000000 steps")
  refused(doubled .. "{{ ns.x | tojson }}", "more than 1000000000 bytes")
  t.same(template.render(doubled .. "{{ ns.x == ns.x }}", {}), "True")
  refused("{{ ('a' * 20000000)[1] }}", "a text of 20000000 bytes is cut apart")
  refused("{% set x = range(600000) | list %}{% set x = x + x %}", "elements; 1000000 are possible")
end)

t.case("the steps of a template are bounded, whatever it repeats", function()
  local nested = "{% for i in range(100000) %}{% for j in range(100000) %}"
  local endings, most = "{% endfor %}{% endfor %}", steps.MOST
  steps.MOST = 1e6                                     -- for a short test
  for name, source in pairs {
    empty = nested .. endings, texts = nested .. "x{% if false %}{% endif %}" .. endings,
    sums = nested .. "{% set a = i + j %}" .. endings,
    macros = "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}"
      .. "{{ f(90) }}",
    contained = "{% set x = range(1000000) | list %}{% for i in range(1000000) %}"
      .. "{% if -1 in x %}{% endif %}{% endfor %}",
    filters = "{% set x = range(1000000) | list %}{% for i in range(1000000) %}"
      .. "{% set a = x | last %}{% set a = x | first %}{% set a = x | length %}{% endfor %}",
    counted = "{% set x = range(1000000) | list %}{% for i in range(1000000) %}"
      .. "{% set a = x.count(-1) %}{% set a = x.index(999999) %}{% endfor %}",
    kept = "{% for i in range(1000000) if i < 0 %}{% endfor %}" .. nested .. endings,
    sorted = "{% set x = range(1000000) | list %}{% for i in range(1000000) %}"
      .. "{% set a = x | sum %}{% set a = x | max %}{% set a = x | min %}{% endfor %}",
    searched = "{% set x = 'a' * 50000000 %}{% for i in range(1000000) %}"
      .. "{% if 'ab' in x %}{% endif %}{% set a = x.find('ab') %}{% endfor %}",
    stripped = "{% set x = 'a' * 50000000 %}{% for i in range(1000000) %}"
      .. "{% if x.endswith('b') or x.strip('b') == '' %}{% endif %}{% endfor %}",
  } do
    local good, problem = pcall(template.render, source, {})
    t.check(not good and tostring(problem):find "template", name)
  end
  steps.MOST = most
end)

t.case("replacing in a repetitive text takes a short time", function()
  local start = nn.now()
  local source = "{{ ('a' * 500000).replace('a' * 50000 ~ 'b', 'c') | length }}"
  t.same(template.render(source, {}), "500000")
  t.check(nn.now() - start < 30, "it took long")
end)

t.case("long runs of white space take time that grows with their length", function()
  local blank, start = (" "):rep(1e6), nn.now()
  local source = "a" .. blank .. "b" .. blank .. "{{- x.strip() -}}" .. blank .. "c"
  local text = template.render(source, variables {x = blank .. "d" .. blank .. "e" .. blank})
  t.check(text == "a" .. blank .. "bd" .. blank .. "ec", "the white space is wrong")
  t.check(nn.now() - start < 20, "it took long")
end)

t.case("a tokenizer without a template, or with another one, says so", function()
  local tokenizer = nn.train_tokenizer("aaaa", {size = 258})
  t.fails(function() tokenizer:chat(messages) end, "has no chat template")
  t.fails(function() tokenizer:chat "hi" end, "the argument is 'hi'")
  local other = with_template {chat_template = {{name = "rag", template = "a"}}}
  t.fails(function() other:chat(messages) end, "no template 'default'; this tokenizer has rag")
  t.fails(function() with_template {chat_template = {{name = "rag"}}} end,
          "is not {name, template}")
end)

t.case("tables of nn.from_json are written as they were read, and Lua tables sorted", function()
  local tokenizer = with_source "{{ messages[0].x | tojson }}"
  local text = '{"b": [], "a": {}, "z": [null, 2.0, 2, 1e+22, 1234567890123456789, "\\n/"], "c": 1}'
  local object = nn.from_json(text)
  local function written(x) return tokenizer:chat {{role = "user", x = x}} end
  t.same(written(object), text)
  t.same(written(nn.from_json "[9007199254740993]"), "[9007199254740993]")
  t.same(written {z = 1, b = {c = 2, a = {}}}, '{"b": {"a": {}, "c": 2}, "z": 1}')
  object.b, object.z, object.d = nil, true, 1
  t.same(written(object), '{"a": {}, "z": true, "c": 1, "d": 1}')
  t.same(with_source "{{ messages[0].content }}":chat(nn.from_json '[{"content": null}]'), "")
  t.fails(function() nn.from_json "[1," end, "from_json: the text is not JSON")
  t.fails(function() nn.from_json '{"a": 1}\0, "b"' end, "is not JSON (byte 9 is zero)")
  t.fails(function() nn.from_json '{"a": {"b": 1, "\\u0062": 2}}' end, 'has the name "b" twice')
  t.fails(function() nn.from_json "[1e99999999999]" end, "the number 1e99999999999 is not possible")
  t.fails(function() nn.from_json "2" end, "from_json: the text is not a JSON object or list")
  t.fails(function() nn.from_json {} end, "from_json: the argument is")
end)

t.case("tools select the template tool_use; what is not a conversation is refused", function()
  local tokenizer, tools = with_source "default", nn.from_json '[{"name": "f"}]'
  t.same(tokenizer:chat(messages, {tools = tools}), "default")
  tokenizer.chat_templates.tool_use = "{{ tools[0].name }}"
  t.same(tokenizer:chat(messages, {tools = tools}), "f")
  t.same(tokenizer:chat(messages, {tools = tools, template = "default"}), "default")
  t.fails(function() tokenizer:chat {} end, "chat: there is no message; a list with at least one")
  t.fails(function() tokenizer:chat {role = "user"} end, "put the message into a list")
  t.fails(function() tokenizer:chat {messages[1], "hi"} end, "chat: message 2 is 'hi'; a table")
  t.fails(function() tokenizer:chat {{"user", "hi"}} end, "chat: message 1 has no names")
  t.fails(function() tokenizer:chat(messages, {tools = {name = "f"}}) end, "chat: tools is a table")
  t.fails(function() tokenizer:chat(messages, {tools = {"f"}}) end, "tools[1] is 'f'; a table is")
  t.fails(function() tokenizer:chat(messages, {values = 5}) end, "chat: values is 5; a table")
end)

t.case("a damaged template writes a text or is refused, without an internal error", function()
  package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
  local mutate = require "mutate"
  local sources, written, failed = {}, 0, 0
  for _, name in ipairs(ordered.names(golden.templates)) do
    sources[#sources + 1] = golden.templates[name]
  end
  for _, pair in ipairs(golden.expressions) do sources[#sources + 1] = pair[1] end
  for number = 1, tonumber(os.getenv "FUZZ_MUTANTS") or 2000 do
    math.randomseed(number)
    local good, problem = pcall(template.render, mutate.bytes(sources[number % #sources + 1]),
                                variables {messages = golden.conversations.calls.messages,
                                           tools = golden.conversations.calls.tools,
                                           data = golden.data})
    if good then
      written = written + 1
    elseif lib.is_error(problem) then
      failed = failed + 1
    else
      error(("mutant %d: %s"):format(number, tostring(problem)), 0)
    end
  end
  t.check(written > 20 and failed > 20, written .. " written, " .. failed .. " refused")
end)

t.finish()
