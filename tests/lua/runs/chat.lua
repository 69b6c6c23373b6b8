-- recipes/chat.lua and the conversations behind it, against transformers
-- (tests/golden/make_conversation.py).
local conversations = require "nn.models.conversation"
local generation_config = require "nn.models.generation_config"
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local weight_of = require("small_models").weight_of

local golden = files.parse_json(files.read(root .. "/tests/golden/conversation.json"))
local folder = t.folder()

-- Writes the folder of the model; changes: to its config. `without`: a file that it lacks.
-- `silent`: ids that the model never answers, apart from those of the golden file.
local function write_folder(name, changes, without, silent)
  local path, tensors = folder .. "/" .. name, {}
  files.make_folder(path)
  local config = {}
  for key, value in pairs(golden.config) do config[key] = value end
  for key, value in pairs(changes or {}) do config[key] = value end
  files.write(path .. "/config.json", files.json(config))
  files.write(path .. "/tokenizer.json",
              files.read(root .. "/tests/golden/tokenizers/smollm.json"))
  files.write(path .. "/tokenizer_config.json", files.json(golden.tokenizer_config))
  for _, entry in ipairs(golden.shapes) do tensors[entry[1]] = weight_of(entry[1], entry[2]) end
  local head = tensors["lm_head.weight"]:clone()
  tensors["lm_head.weight"] = head
  for _, list in ipairs {golden.silent, silent or {}} do
    for _, id in ipairs(list) do head:assign_(nn.zeros(1, head:dim(2)), {id + 1, 1}) end
  end
  nn.save_safetensors(path .. "/model.safetensors", tensors, {format = "pt"})
  if without then files.remove(path .. "/" .. without) end
  return path
end

local path = write_folder "model"

-- Runs the recipe with these lines as its input -> exit status, output, errors.
local function chat(lines, settings, model)
  files.write(folder .. "/input", table.concat(lines, "\n") .. "\n")
  local status = t.shell(("cd %s && $NNLUA %s/recipes/chat.lua model=%s tokens=%d temperature=0 %s "
    .. "<input >output 2>errors"):format(folder, root, model or path, golden.tokens,
                                         settings or ""))
  return status, files.read(folder .. "/output"), files.read(folder .. "/errors")
end

t.case("a conversation is written, encoded and answered as by transformers", function()
  local model, words = nn.load_hf(path)
  local talk = conversations.new(model, words, {system = "Be brief.", tokens = golden.tokens,
                                                generate = {temperature = 0}})
  local asked, stops = 0, generation_config.stop_ids(model, words.eos)
  t.same(stops, {golden.config.eos_token_id})
  for _, message in ipairs(golden.messages) do
    if message.role == "user" then
      asked = asked + 1
      local turn, parts = golden.turns[asked], {}
      local info = talk:say(message.content, stops, function(part) parts[#parts + 1] = part end)
      t.same(table.concat(parts), turn.answer)
      t.same(info.tokens, #turn.answer_ids)
      local before = setmetatable({turns = {unpack(talk.turns)}}, {__index = talk})
      before.turns[asked] = {question = message.content}
      t.same(before:text(), turn.text)
      t.same(words:ids(before:text(), {special = true}), turn.ids)
    end
  end
  t.same(asked, 2)
  t.same(talk:messages(), golden.messages)
end)

t.case("the recipe answers lines from a pipe, and saves and loads the conversation", function()
  local questions = {golden.messages[2].content, golden.messages[4].content}
  local status, output, errors = chat({questions[1], questions[2], "/save one.json"},
                                      'system="Be brief."')
  t.same({status, errors}, {0, ("(the answer reached its limit of tokens)\n"):rep(2)})
  t.same(output, golden.turns[1].answer .. "\n" .. golden.turns[2].answer .. "\n")
  local saved = files.parse_json(files.read(folder .. "/one.json"))
  t.same(saved, golden.messages)
  -- An answer again, from the file; "/system" and "/reset"; an own file is overwritten, no other.
  status, output = chat {"/load one.json", "/retry", "/save one.json", "/system Be brief.",
                         "/reset", questions[1], "/save two.json"}
  t.same({status, output}, {0, golden.turns[2].answer .. "\n" .. golden.turns[1].answer .. "\n"})
  t.same(files.parse_json(files.read(folder .. "/one.json")), golden.messages)
  t.same(#files.parse_json(files.read(folder .. "/two.json")), 3)
end)

t.case("the oldest turns leave the prompt where the context is full, and stay in the file",
       function()
  local lines = {}
  for i = 1, 6 do lines[i] = ("question number %d about tiles and tasks"):format(i) end
  lines[7] = "/save long.json"
  files.remove(folder .. "/long.json")
  local status, output, errors = chat(lines)
  t.same(status, 0, errors)
  t.check(errors:find("the context of 256 tokens is full: the model no longer sees the oldest "
                      .. "%d of %d turns"), errors)
  t.same(select(2, output:gsub("\n", "\n")), 6)
  t.same(#files.parse_json(files.read(folder .. "/long.json")), 12)
  status, output, errors = chat({("long "):rep(400), "hello"}, "system=x")
  t.same(status, 1)
  t.check(errors:find("error: the message makes %d+ tokens with the system message and the "
                      .. "template; the model's context is 256, of which 24 are for"), errors)
  t.check(#output > 3, "the next message is answered")
end)

t.case("bad commands and files are errors, after which the conversation continues", function()
  files.write(folder .. "/bad.json", '[{"role": "assistant", "content": "x"}]')
  files.write(folder .. "/there.json", "mine")
  local cases = {
    {"/sav x", "error: there is no command /sav; did you mean 'save'?; /help lists them"},
    {"/load nothing.json", "nothing.json"},
    {"/load bad.json", "bad.json is not a conversation: message 1 is of role 'assistant'; user is"},
    {"/save there.json", "error: 'there.json' exists already; give another name"},
    {"/save", "error: /save needs the name of a file"},
    {"/retry", "error: there is no question yet"},
  }
  local lines = {}
  for i, case in ipairs(cases) do lines[i] = case[1] end
  lines[#lines + 1] = golden.messages[2].content
  local status, output, errors = chat(lines, 'system="Be brief."')
  t.same({status, output}, {1, golden.turns[1].answer .. "\n"})
  for _, case in ipairs(cases) do t.check(errors:find(case[2], 1, true), errors) end
  t.same(files.read(folder .. "/there.json"), "mine")
end)

t.case("a folder without a chat template, or whose template has no system message, is refused",
       function()
  local plain = write_folder("plain", nil, "tokenizer_config.json")
  local status, _, errors = chat({"hello"}, "", plain)
  t.same(status, 1)
  t.check(errors:find("this tokenizer has no chat template: its folder needs chat_template in "
                      .. "tokenizer_config.json, or chat_template.jinja", 1, true), errors)
  files.write(plain .. "/chat_template.jinja", "{% if messages[0].role == 'system' %}"
    .. "{{ raise_exception('System role not supported') }}{% endif %}{{ messages[0].content }}")
  status, _, errors = chat({"hello"}, "system=x", plain)
  t.same(status, 1)
  t.check(errors:find("refuses the conversation: System role not supported", 1, true), errors)
  t.same(chat({"hello"}, "", plain), 0)
  files.write(plain .. "/generation_config.json", '{"eos_token_id": [3, "x"]}')
  t.check(select(3, chat({"hello"}, "", plain)):find("eos_token_id[1] is 'x'", 1, true))
end)

t.case("generation_config.json adds ids that end an answer", function()
  local other = write_folder "stops"
  local ids = golden.turns[1].answer_ids
  files.write(other .. "/generation_config.json", files.json {eos_token_id = {ids[3]}})
  local _, output, errors = chat({golden.messages[2].content}, 'system="Be brief."', other)
  t.same({output, errors}, {nn.tokenizer(path):decode {ids[1], ids[2]} .. "\n", ""})
end)

t.case("Ctrl-C stops an answer and not the program", function()
  local ends = {nn.tokenizer(path).eos, golden.config.eos_token_id}
  local long = write_folder("long", {max_position_embeddings = 200000}, nil, ends)
  files.write(folder .. "/input", "hello\n/save stopped.json\n")
  local status, output = t.shell(([[cd %s; rm -f output errors
    timeout 60 $NNLUA %s/recipes/chat.lua model=%s tokens=150000 temperature=0 \
      <input >output 2>errors &
    for i in $(seq 400); do test -s output && break; sleep 0.05; done
    kill -INT $(ps -o pid= --ppid $!)
    wait $!]]):format(folder, root, long))
  local errors = files.read(folder .. "/errors")
  t.same({status, errors}, {0, "(stopped)\n"}, output)
  local saved = files.parse_json(files.read(folder .. "/stopped.json"))
  t.same(files.read(folder .. "/output"), saved[2].content .. "\n")
end)

t.case("SIGTERM ends the program while it waits for a line", function()
  local status, output = t.shell(([[cd %s; rm -f output errors; mkfifo lines; exec 3<>lines
    timeout 60 $NNLUA %s/recipes/chat.lua model=%s tokens=5 <lines >output 2>errors &
    echo hello >&3
    for i in $(seq 400); do grep -qs limit errors && break; sleep 0.05; done
    kill -TERM $(ps -o pid= --ppid $!)
    wait $!; echo "ended with $?"]]):format(folder, root, path))
  t.same({status, output, files.read(folder .. "/errors")},
         {0, "ended with 143\n", "(the answer reached its limit of tokens)\n"})
end)

t.case("--plan reports the memory of a full context", function()
  local status, output = chat({}, "--plan")
  t.same(status, 0)
  t.check(output:find "\n  cache +33 kB\n", output)               -- 4 heads of 8 for 256 tokens
end)

t.finish()
