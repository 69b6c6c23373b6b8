-- Every model family at a tiny size: a batch in microbatches and shards, eager and compiled, has
-- the loss and the gradients of one pass for every parameter, and nn.evaluate the mean over all
-- targets that count, however many of them each row ignores. The oracle is one eager pass in the
-- same dtype; a sum in another order may differ by TOLERANCE. In the mixer, gradients of single
-- images are larger than their sum.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local accumulation = require "accumulation"

local ROWS, TIME, VOCAB = 8, 6, 29
local TOLERANCE = {f32 = 4e-6, bf16 = 2 ^ -5}
nn.devices {cpus = 1}

-- Whole numbers below `below`, and with `ignored`, -100 for some: in row i, more or fewer of them.
local function numbers(shape, seed, below, ignored)
  local rows, time = shape[1], shape[2] or 1
  local list = {}
  for i = 1, rows do
    for j = 1, time do
      local hidden = ignored == "unequal" and j <= (i * 3 + math.floor(i / 2)) % (time + 1)
        or ignored == "most" and (i + 2 * j) % 5 ~= 0 or ignored == "rows" and i % 3 == 0
      list[#list + 1] = hidden and -100 or (i * 7 + j * 3 + seed + (i * j) % 5) % below
    end
  end
  return nn.tensor(list, {dtype = "i32"}):reshape(shape)
end

local sizes = {layers = 2, heads = 2, embd = 8, vocab = VOCAB}
local function family(file, more, batch)
  return {file = file, more = more, batch = batch or function(ignored)
    return numbers({ROWS, TIME}, 1, VOCAB), numbers({ROWS, TIME}, 4, VOCAB, ignored)
  end}
end
local function labels(ignored)
  return numbers({ROWS, TIME}, 1, VOCAB),
    numbers({ROWS}, 4, 3, ignored == "none" and "none" or "rows")
end
local function images(ignored)
  return numbers({ROWS, 3 * 16}, 2, 50):reshape(ROWS, 3, 4, 4):to "f32" / 50,
    numbers({ROWS}, 4, 3, ignored == "none" and "none" or "rows")
end
local function answers(ignored)
  return numbers({ROWS, TIME}, 1, VOCAB), numbers({ROWS, TIME - 2}, 4, VOCAB, ignored)
end

local context = {context = TIME}
local function with_context(more)
  for name, value in pairs(context) do more[name] = value end
  return more
end
local families = {
  gpt2 = family("gpt2", with_context {}),
  ["gpt2 in bf16"] = family("gpt2", with_context {dtype = "bf16"}),
  llama = family("llama", with_context {kv_heads = 1}),
  ["llama, tied, with norms and biases"] = family("llama", with_context {
    tied = true, bias = "qkv", qk_norm = true}),
  gpt_neo = family("gpt_neo", with_context {window = 2}),
  gpt_neox = family("gpt_neox", with_context {rotated = 0.5}),
  ["gpt_neox, serial"] = family("gpt_neox", with_context {parallel = false, rotated = 0.5}),
  olmo2 = family("olmo2", with_context {}),
  bert = family("bert", with_context {}),
  ["roberta"] = family("bert", with_context {family = "roberta", pad = 1}),
  ["bert in bf16"] = family("bert", with_context {dtype = "bf16"}),
  ["bert with classes"] = family("bert", with_context {labels = 3}, labels),
  t5 = family("t5", {}, answers),
  ["t5 with one layer"] = family("t5", {layers = 1}, answers),
  ["bert with one layer"] = family("bert", with_context {layers = 1}),
  ["t5, gated"] = family("t5", {activation = "gelu", tied = false}, answers),
  mixer = family("mixer", {size = 4, patch = 2, classes = 3}, images),
}

local names = {}
for name in pairs(families) do names[#names + 1] = name end
table.sort(names)

local function make(name, ignored)
  local entry, config = families[name], {}
  local is_mixer = entry.file == "mixer"
  for key, value in pairs(sizes) do
    if not is_mixer or key == "layers" or key == "embd" then config[key] = value end
  end
  for key, value in pairs(entry.more) do config[key] = value end
  nn.seed(11)
  local model = require("models." .. entry.file)(config)
  nn.no_grad(function()          -- biases, norms and heads that start as 0 or 1, too
    for _, p in ipairs(model:parameters()) do
      p.tensor:add_(nn.randn_like(p.tensor) * 0.2)
    end
  end)
  local ids, targets = entry.batch(ignored)
  return {model = model, ids = ids, targets = targets, dtype = config.dtype or "f32", text = name}
end

local function one_pass(model, ids, targets)
  local loss = model(ids, targets)
  loss:backward()
  return loss:detach()
end

local function compare(tally, m, shards)
  local tolerance = m.text:find "^mixer" and 4e-5 or TOLERANCE[m.dtype]
  local expected = accumulation.reference(m, m, one_pass, tolerance)
  nn.cluster {shards = shards}
  for _, compiled in ipairs {false, true} do
    for _, microbatches in ipairs(compiled and {2, 4, 8} or {8}) do
      tally:compare(m, ("%s, %d microbatches"):format(compiled and "compiled" or "eager",
                                                     microbatches), function()
        return accumulation.differences(m, expected, function(model, ids, targets)
          return nn.accumulate(model, microbatches, ids, targets)
        end, compiled and "unguarded")
      end)
    end
  end
  nn.cluster {shards = 1}
end

for _, name in ipairs(names) do
  for _, ignored in ipairs {"none", "unequal"} do
    t.case(("%s: microbatches have the gradients of one pass, %s targets ignored"):format(
      name, ignored == "none" and "no" or "other numbers of"), function()
      local tally = accumulation.tally(name)
      compare(tally, make(name, ignored), 1)
      if ignored == "unequal" then compare(tally, make(name, "most"), 2) end
      tally:finish(t.check)
    end)
  end
end

-- The mean loss over all targets that count, from the logits.
local function mean_loss(m)
  return nn.no_grad(function()
    local before = nn.training()
    nn.training(false)
    local logits = m.text:find "t5" and m.model(m.ids, nil, {inputs = m.inputs}) or m.model(m.ids)
    nn.training(before)
    local sum = nn.cross_entropy(logits:to "f64", m.targets, {reduction = "sum"}):item()
    return sum / m.targets:ne(-100):sum():item()
  end)
end

for _, name in ipairs(names) do
  if not name:find "t5" then
    t.case(name .. ": an evaluation is the mean over all targets that count", function()
      local m = make(name, "unequal")
      local data = nn.data {arrays = {x = m.ids, y = m.targets}, fields = {"x", "y"}, batch = 3}
      t.near(nn.evaluate(m.model, data), mean_loss(m), {rel = m.dtype == "bf16" and 3e-3 or 1e-5})
    end)
  end
end

t.case("a step of train_masked.lua has the same norm in 4 microbatches", function()
  local folder, norms = t.folder(), {}
  for i, settings in ipairs {"data.batch=8 data.accum=1", "data.batch=2 data.accum=4"} do
    local run = folder .. "/" .. i
    local status, output = t.shell(("$NNLUA %s/recipes/train_masked.lua steps=1 %s out=%s "
      .. "model.layers=1 model.heads=2 model.embd=16 model.dtype=f32 model.dropout=0 "
      .. "data.context=32 final_batches=1 save_every=0 sample_every=0 eval_every=0"):format(
      package.loaded["nn.host"].root, settings, run))
    t.check(status == 0, output)
    norms[i] = tonumber(files.read(run .. "/metrics.jsonl"):match '"grad_norm":([%d.e+-]+)')
  end
  t.near(norms[2], norms[1], {rel = 3e-6})
end)

t.finish()
