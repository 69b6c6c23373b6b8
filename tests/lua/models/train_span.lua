-- Span corruption: what nn.corrupt_spans hides, and recipes/train_span.lua.
local files = require "nn.io.files"
local nn = require "nn"
local spans = require "nn.data.spans"
local root = require("nn.host").root
local t = require "nn.test"
local folder = t.folder()
local text = ("To be, or not to be, that is the question.\n"):rep(200)
files.write(folder .. "/text.txt", text)

local function data_of(options, context)
  local data = nn.data({text = folder .. "/text.txt", batch = 8},
                       {context = context or 64, seed = options and options.seed})
  options = options and {share = options.share, span = options.span}
  return data, nn.corrupt_spans(data, options)
end

t.case("windows have T5's lengths: 568 tokens for texts of 512 and answers of 114", function()
  t.same({spans.span_lengths(512, 0.15, 3)}, {568, 512, 114})
  t.same({spans.span_lengths(1024, 0.15, 3)}, {1137, 1024, 229})
  for context = 4, 80 do
    for _, share in ipairs {0.05, 0.15, 0.5, 0.9} do
      local length, given, answer = spans.span_lengths(context, share, 3)
      t.check(given <= context and answer >= 3 and length >= 2)
    end
  end
end)

-- The window that text and answer come from, and the lengths of its hidden spans.
local function restored(ids, targets, first, last)
  local hidden, sizes, out, k = {}, {}, {}, nil
  for i, id in ipairs(targets) do
    if id == last then t.same(i, #targets) break end
    if id >= first then
      k = id - first
      t.same(k, #sizes)                                          -- in order, each once
      hidden[k], sizes[#sizes + 1] = {}, 0
    else
      table.insert(hidden[k], id)
      sizes[k + 1] = sizes[k + 1] + 1
    end
  end
  t.same(ids[#ids], last)
  local expected, before = 0, first
  for i = 1, #ids - 1 do
    if ids[i] >= first then
      t.same(ids[i] - first, expected)
      t.check(i > 1 and before < first, "a span begins the window or follows another one")
      for _, id in ipairs(hidden[expected]) do out[#out + 1] = id end
      expected = expected + 1
    else
      out[#out + 1] = ids[i]
    end
    before = ids[i]
  end
  t.same(expected, #sizes)
  return out, sizes
end

t.case("15 % of the tokens are hidden in spans of 3 on average, nothing else changes", function()
  local data, vocab, last = data_of()
  t.same(last, data.vocab)                             -- the vocabulary has no </s>, no sentinels
  local length, context, answer = spans.span_lengths(64, 0.15, 3)
  local count = answer - 1 - math.floor(length * 0.15 + 0.5)
  t.same(vocab, data.vocab + 1 + count)
  local sizes_seen, first_seen = {}, {}
  for _ = 1, 20 do
    local starts = {}
    for row = 1, 8 do
      local drawn = require("nn.data.random").random(0, data.train.counter * 8 + row)
      starts[row] = math.floor(drawn * (data.train.count - length))
    end
    local x, y = data.train:batch()
    t.same({x:dims()}, {8, context})
    t.same({y:dims()}, {8, answer})
    local ids, targets = x:table(), y:table()
    for row = 1, 8 do
      local window, sizes = restored(ids[row], targets[row], last + 1, last)
      t.same(#sizes, count)
      local original = {}
      for i = 1, length do original[i] = data.train.tokens[starts[row] + i - 1] end
      t.same(window, original)
      for _, size in ipairs(sizes) do sizes_seen[size] = (sizes_seen[size] or 0) + 1 end
      first_seen[sizes[1]] = (first_seen[sizes[1]] or 0) + 1
    end
  end
  -- Ways to divide `hidden` tokens into spans are equally likely: of C(hidden - 1, count - 1),
  -- C(hidden - 2, count - 2) begin with a span of 1.
  local hidden = answer - 1 - count
  local p, n = (count - 1) / (hidden - 1), 160
  t.near(first_seen[1] / n, p, {abs = 4 * math.sqrt(p * (1 - p) / n)})
  t.check(sizes_seen[2] > 0 and sizes_seen[3] > 0 and sizes_seen[4] > 0)
end)

t.case("spans depend on the seed and the batch only", function()
  local a, b = data_of(), data_of()
  local function both(loader)
    local ids, targets = loader:batch()
    return {ids:table(), targets:table()}
  end
  local state, first = a.train:state(), both(a.train)
  b.train:set_state(state)
  t.same(both(b.train), first)
  t.check(files.json(both(b.train)) ~= files.json(first))
  local other = data_of {seed = 5}
  t.check(files.json(other.val:windows(1)():table()) ~= files.json(a.val:windows(1)():table()))
  t.same(b.val:windows(1)():table(), a.val:windows(1)():table())
end)

t.case("sentinels and the end are those of a vocabulary which has them", function()
  local data = nn.data({text = folder .. "/text.txt", batch = 2}, {context = 20})
  data.vocabulary = {size = 40, special = {["</s>"] = 1, ["<extra_id_0>"] = 39}}
  local vocab, last = nn.corrupt_spans(data)
  t.same({vocab, last}, {40, 1})
  local ids, targets = data.train:batch()
  t.same(targets:at(1, 1), 39)
  t.same({ids:at(1, 20), ids:eq(39):sum():item()}, {1, 2})
end)

t.case("what does not fit is refused", function()
  local data = nn.data({text = folder .. "/text.txt", batch = 2}, {context = 64})
  t.fails(function() nn.corrupt_spans(data, {share = 1}) end, "share is 1; a number above 0")
  t.fails(function() nn.corrupt_spans {} end, "a result of nn.data is needed")
  local words = data.vocabulary
  data.vocabulary = {size = 40, special = {["<extra_id_0>"] = 39}}
  t.fails(function() nn.corrupt_spans(data) end, "windows have 4 spans, but the tokenizer has no")
  data.vocabulary = nil
  t.fails(function() nn.corrupt_spans(data) end, "give data.vocabulary=FOLDER")
  data.vocabulary, data.val.count = words, 70
  t.fails(function() nn.corrupt_spans(data) end, "70 tokens are too few for windows of 70 tokens")
end)

local tiny = "data.text=text.txt model.layers=1 model.heads=2 model.embd=16 data.context=24 "
  .. "data.batch=4 data.accum=2 "

local function recipe(name, words, wanted)
  local status, output = t.shell(
    ("cd '%s'; timeout -k 5 120 $NNLUA %s/recipes/%s.lua %s 2>&1"):format(folder, root, name,
                                                                         words))
  t.check(status == (wanted or 0), output)
  return output
end

t.case("the recipe plans, trains and resumes, and its loss falls", function()
  local plan = recipe("train_span", tiny .. "--plan")
  t.check(plan:find "parameters", plan)
  local start = "steps=30 optim.lr=0.02 schedule.warmup=1 eval_every=0 out=run "
  local output = recipe("train_span", tiny .. start)
  t.check(output:find "for the gaps", output)
  output = recipe("train_span", "resume=auto steps=60 out=run")
  t.check(output:find("resumed after step 30", 1, true), output)
  t.check(tonumber(output:match "val_loss (%d%.%d+)") < 2.8, output)
  local scores = recipe("gpt2_eval", "model=run text=text.txt context=24 tokens=400")
  t.check(scores:find("15 windows of 26 tokens, 15 % hidden\nloss", 1, true), scores)
  t.check(tonumber(scores:match "loss (%S+)") < 2.8, scores)
  plan = recipe("gpt2_eval", "model=run context=24 --plan")
  t.check(plan:find "parameters" and plan:find "FLOPs", plan)
  local written = recipe("gpt2_generate", "model=run prompt='not to be' tokens=4 seed=2")
  t.check(written:find "4 tokens" or written:find "[123] token", written)
  plan = recipe("gpt2_generate", "model=run prompt='not to be' --plan")
  t.check(plan:find "prompts +9 tokens" and plan:find "cache", plan)
  t.check(recipe("train_span", "model=gpt2 data.text=text.txt", 1):find(
    "model=gpt2 is GPT2, which continues texts; recipes/train.lua trains it", 1, true))
end)

t.finish()
