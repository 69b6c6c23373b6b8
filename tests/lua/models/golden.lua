-- GPT-2 against numbers that PyTorch and transformers computed in float64 (tests/golden): logits,
-- losses, every gradient, and 20 steps of AdamW with clipping; whole and cut into ragged tiles,
-- eager and compiled.

local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"
local folder = package.loaded["nn.host"].root .. "/tests/golden/"

local golden = nn.load_safetensors(folder .. "gpt2_small.safetensors")
local config = {layers = 2, heads = 2, embd = 32, vocab = 101, context = 16}

-- Largest difference over the largest expected value.
local function distance(got, expected)
  local a, n = got:numbers()
  local b = expected:numbers()
  local worst, scale = 0, 1e-30
  for i = 0, n - 1 do
    worst, scale = math.max(worst, math.abs(a[i] - b[i])), math.max(scale, math.abs(b[i]))
    if a[i] ~= a[i] then worst = math.huge end
  end
  return worst / scale
end

local function close(got, expected, tolerance, what)
  t.near(#got.shape, #expected.shape, {abs = 0})
  local d = distance(got, expected)
  if d <= tolerance then return end   -- a NaN fails
  error(("%s is off by %.2g relative; %g is allowed"):format(what, d, tolerance), 0)
end

local function model_with(prefix)
  local model, state = GPT2(config), {}
  for _, p in ipairs(model:parameters()) do
    state[#state + 1] = {path = p.path, tensor = golden[prefix .. p.path]}
  end
  model:load(state)
  return model
end

-- Ids with regular and ragged tiles of tokens and vocabulary.
local cuttings = {whole = {0, 0}, ["2 sequences a tile"] = {2, 0}, ["tiles of 4 tokens"] = {1, 4}}

local function with_vocab_tiles(model, rows)
  model.tok.weight = nn.no_grad(function() return model.tok.weight:retile {rows, 0}:clone() end)
  model.tok.weight.requires_grad = true
  return model
end

for name, sizes in pairs(cuttings) do
  local ids, targets = golden.ids:retile(sizes), golden.targets:retile(sizes)
  local function model()
    local m = model_with "weight/"
    return name == "whole" and m or with_vocab_tiles(m, 30)
  end

  t.case("logits equal PyTorch's to 1e-5 (" .. name .. ")", function()
    close(model()(ids), golden.logits, 1e-5, "logits")
  end)

  t.case("losses equal PyTorch's to 1e-5 (" .. name .. ")", function()
    local m = model()
    close(m(ids, targets), golden.loss, 1e-5, "loss")
    local loss_ignored = m(ids, golden.targets_ignored:retile(sizes))
    close(loss_ignored, golden.loss_ignored, 1e-5, "loss with ignored targets")
    local logits = m(ids)
    close(nn.cross_entropy(logits, targets), golden.loss, 1e-5, "loss of given logits")
  end)

  for _, head in ipairs {"fused head", "separate head"} do
    t.case(("every gradient equals PyTorch's to 1e-4 (%s, %s)"):format(name, head), function()
      local m = model()
      local loss = head == "fused head" and m(ids, targets) or nn.cross_entropy(m(ids), targets)
      loss:backward()
      for _, p in ipairs(m:parameters()) do
        assert(p.tensor.grad, p.path .. " has no gradient")
        close(p.tensor.grad, golden["grad/" .. p.path], 1e-4, "gradient of " .. p.path)
      end
    end)
  end
end

for _, kind in ipairs {"eager", "compiled"} do
  local title = "20 AdamW steps with clipping give PyTorch's losses and norms to 1e-4 (%s)"
  t.case(title:format(kind), function()
    local model = with_vocab_tiles(model_with "weight/", 40)
    local optim = nn.AdamW(model, {lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8,
                                   weight_decay = 0.1, clip = 1})
    local function step(ids, targets)
      optim:zero_grad()
      local loss = model(ids, targets)
      loss:backward()
      return loss, optim:step()
    end
    local run = kind == "compiled" and nn.compile(step) or step
    for i = 1, 20 do
      local ids = golden["train/ids"]:slice(1, i, i):reshape(3, 11):retile {2, 0}
      local targets = golden["train/targets"]:slice(1, i, i):reshape(3, 11):retile {2, 0}
      local loss, norm = run(ids, targets)
      t.near(loss:item(), golden["train/loss"]:at(i), {rel = 1e-4})
      t.near(norm:item(), golden["train/grad_norm"]:at(i), {rel = 1e-4})
    end
    for _, p in ipairs(model:parameters()) do
      local expected = golden["train/weight/" .. p.path]
      if expected then close(p.tensor, expected, 1e-4, p.path .. " after 20 steps") end
    end
  end)
end

-- Single operations with hard inputs: large means, tiny spreads, large logits.
local values = nn.load_safetensors(folder .. "ops.safetensors")
local function leaf(name)
  local x = values[name]:clone()
  x.requires_grad = true
  return x
end

t.case("linear, GELU and LayerNorm equal PyTorch's, forward and backward", function()
  local inputs_of = {linear = {"x", "weight", "bias"}, gelu = {"x"},
                     layernorm = {"x", "weight", "bias"}}
  for op, inputs in pairs(inputs_of) do
    local leaves = {}
    for i, name in ipairs(inputs) do leaves[i] = leaf(op .. "/" .. name) end
    local y = nn[op](unpack(leaves))
    close(y, values[op .. "/y"], 1e-5, op)
    ;(y * values[op .. "/dy"]):sum():backward()
    for i, name in ipairs(inputs) do
      close(leaves[i].grad, values[op .. "/d" .. name], 1e-4, op .. " d" .. name)
    end
  end
end)

t.case("attention equals PyTorch's, forward and backward", function()
  local qkv = leaf "attention/qkv"
  local meta = require("nn.io.safetensors").open(folder .. "ops.safetensors").metadata
  local heads = require("cjson").decode(meta.config).attention_heads
  local o = nn.attention(qkv, {heads = heads})
  close(o, values["attention/y"], 1e-5, "attention")
  ;(o * values["attention/dy"]):sum():backward()
  close(qkv.grad, values["attention/dqkv"], 1e-4, "dqkv")
end)

t.case("cross-entropy equals PyTorch's, forward and backward", function()
  local logits = leaf "cross_entropy/logits"
  local loss = nn.cross_entropy(logits, values["cross_entropy/targets"])
  close(loss, values["cross_entropy/loss"], 1e-5, "loss")
  loss:backward()
  close(logits.grad, values["cross_entropy/dlogits"], 1e-4, "dlogits")
end)

t.finish()
