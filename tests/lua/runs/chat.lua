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
      t.same(words:ids(before:text(), {special = true, add_special = false}), turn.ids)
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

t.case("settings of generation_config.json hold unless the command line gives them", function()
  local other = write_folder "sampled"
  files.write(other .. "/generation_config.json", files.json {
    do_sample = true, temperature = 0.25, top_k = 3, top_p = 0.5, repetition_penalty = 1.1})
  local status, output = chat({}, "--plan top_p=1", other)          -- and temperature=0
  t.same(status, 0)
  t.check(output:find("  generation_config.json: top_k=3 repetition_penalty=1.1\n", 1, true))
  files.write(other .. "/generation_config.json", '{"do_sample": false, "top_p": null}')
  files.write(folder .. "/input", golden.messages[2].content .. "\n")
  local function answered(settings)
    return select(2, t.shell(("cd %s && $NNLUA %s/recipes/chat.lua model=sampled tokens=%d %s "
      .. "system='Be brief.' <input 2>errors"):format(folder, root, golden.tokens, settings)))
  end
  t.same(answered "", golden.turns[1].answer .. "\n")
  t.check(answered "temperature=9" ~= golden.turns[1].answer .. "\n", "a temperature is given")
  local function continued(settings)
    t.shell(("cd %s && $NNLUA %s/recipes/gpt2_generate.lua model=sampled tokens=5 prompt=x %s "
      .. ">output 2>errors"):format(folder, root, settings))
    return files.read(folder .. "/errors")
  end
  t.check(continued "":find("generation_config.json: temperature=0\n", 1, true))
  t.check(not continued("temperature=1"):find("generation_config", 1, true))
end)

t.case("a turn reads only what the caches lack, and is answered as if all were read", function()
  local model, words = nn.load_hf(write_folder("talk", {max_position_embeddings = 2000}))
  local function new()
    return conversations.new(model, words, {system = "Be brief.", tokens = 16,
                                            generate = {temperature = 0}})
  end
  local talk, other = new(), new()                         -- `other` loses its caches at each turn
  local function both(method, ...)
    talk[method](talk, ...)
    other[method](other, ...)
  end
  -- Asks, or retries -> the tokens that the model read, and those of the whole prompt. on_text is
  -- called with the number of the part.
  local function ask(question, on_text)
    other.cache = {}
    local infos = {}
    for i, each in ipairs {talk, other} do
      local parts = 0
      local function count()
        parts = parts + 1
        if on_text then on_text(parts) end
      end
      infos[i] = question and each:say(question, {}, count) or each:retry({}, count)
    end
    t.same(talk:messages(), other:messages())
    return infos[1].read, infos[2].read
  end
  local first, before = ask("question 01 about tiles")
  t.same(first, before)
  local reads = {}
  for turn = 2, 10 do
    local read, all = ask(("question %02d about tiles"):format(turn))
    t.check(read <= all - before, ("%d tokens read of %d; %d before"):format(read, all, before))
    reads[turn], before = read, all
  end
  t.check(reads[10] <= 1.2 * reads[2], ("%d tokens read, %d at first"):format(reads[10], reads[2]))
  t.same(ask(), 1)                                   -- the same prompt, for its logits
  -- A part of an answer that a signal stopped is in the caches.
  local function stop(part) if part == 4 then error("interrupted", 0) end end
  t.same(ask("question 11 about tiles", stop), nil)
  local read, all = ask("question 12 about tiles")
  t.check(read < all - before, ("%d tokens read of %d"):format(read, all))
  -- After an error, and for another beginning, all is read that differs.
  t.fails(function() ask("x", function() error("broken", 0) end) end, "broken")
  read, all = ask("question 13 about tiles")
  t.same(read, all)
  both("set_system", "Be long.")
  read, all = ask("question 14 about tiles")
  t.check(read < all and read >= all - 12, ("%d tokens read of %d"):format(read, all))
  talk:save(folder .. "/talk.json")
  both "reset"
  read, all = ask("question 01 about tiles")
  t.check(read < all and all < 60, ("%d tokens read of %d"):format(read, all))
  both("load", folder .. "/talk.json")
  read, all = ask()
  t.check(read < all - 20, ("%d tokens read of %d"):format(read, all))
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
