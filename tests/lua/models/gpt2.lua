-- GPT-2: parameter counts of the released sizes, names, decay groups, dropout, errors, learning.

local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local small = {layers = 2, heads = 2, embd = 16, vocab = 29, context = 12}

local function ids_of(batch, time, vocab, seed)
  nn.seed(seed or 3)
  return nn.uniform({batch, time}, {low = 0, high = vocab, axes = "batch,time"}):to("i32")
end

local released = {
  ["gpt2"] = 124439808, ["gpt2-medium"] = 354823168, ["gpt2-large"] = 774030080,
  ["gpt2-xl"] = 1557611200,
}
for name, count in pairs(released) do
  t.case(name .. " has " .. count .. " parameters", function()
    local got
    nn.plan(function() got = GPT2(GPT2.size(name)):count() end)
    t.near(got, count, {abs = 0})
  end)
end

t.case("planning a training step of gpt2-xl takes no memory and counts weights, gradients "
       .. "and moments", function()
  local before = nn.memory().in_use
  local info = nn.plan(function()
    local model = GPT2(GPT2.size "gpt2-xl")
    local optim = nn.AdamW(model, {lr = 1e-4, clip = 1})
    local ids = nn.uniform({1, 64}, {low = 0, high = 50257}):to("i32")
    model(ids, ids):backward()
    optim:step()
    local kept = {}
    for _, list in ipairs {model:state(), optim:state()} do
      for _, entry in ipairs(list) do kept[#kept + 1] = entry.tensor end
    end
    return unpack(kept)
  end)
  assert(info.peak_bytes > 16 * 1557611200 * 0.75, "peak of " .. info.peak_bytes)
  assert(info.peak_bytes < 16 * 1557611200 * 1.2, "peak of " .. info.peak_bytes)
  assert(nn.memory().in_use - before < 1e6)
end)

t.case("parameters have their paths, in creation order, the tied head once", function()
  local paths = {}
  for i, p in ipairs(GPT2(small):parameters()) do paths[i] = p.path end
  assert(paths[1] == "tok.weight" and paths[2] == "pos.weight" and paths[#paths] == "norm.bias")
  t.near(#paths, 2 + 12 * 2 + 2, {abs = 0})
end)

t.case("a shared parameter has the path that sorts first; cycles are allowed", function()
  local Shared = nn.module "Shared"
  local model, layer = Shared(), nn.Linear(2, 2, {bias = false})
  for _, name in ipairs {"mm", "kk", "cc", "aa", "zz"} do model[name] = layer end
  model.again, layer.parent = model, model
  model.list = {}
  for i = 1, 11 do model.list[i] = nn.LayerNorm(1) end
  local paths = {}
  for _, p in ipairs(model:parameters()) do
    paths[#paths + 1] = not p.path:find "bias" and p.path or nil
  end
  t.same({#paths, paths[1], paths[3], paths[12]},
         {12, "aa.weight", "list.2.weight", "list.11.weight"})
  t.check(tostring(model):find("parent: Shared (see above)", 1, true), tostring(model))
end)

t.case("a model loads what it saved: its state, a table by name, a safetensors file", function()
  local path = t.folder() .. "/weights.safetensors"
  local a, b = nn.Linear(3, 2), nn.Linear(3, 2)
  for _, state in ipairs {a:state(), {weight = a.weight, bias = a.bias}} do
    nn.save_safetensors(path, state)
    b.weight = nn.zeros(2, 3, {grad = true})
    b:load((nn.load_safetensors(path)))
    t.same(b.weight, a.weight)
    b.weight = nn.zeros(2, 3, {grad = true})
    b:load(state)
    t.same(b.weight, a.weight)
  end
  t.fails(function() b:load {weight = a.weight} end, "load: 'bias' is missing")
  t.fails(function() nn.save_safetensors(path, {3}) end, "the element '1' is 3; a tensor or")
  t.fails(function() nn.load_safetensors() end, "load_safetensors: the path is nil")
end)

t.case("initial weights follow GPT-2: 0.02, residual projections smaller, biases 0, "
       .. "norms 1", function()
  nn.seed(5)
  local model = GPT2 {layers = 8, heads = 2, embd = 128, vocab = 500, context = 32}
  local function std(x) return math.sqrt((x:square():mean()):item()) end
  t.near(std(model.tok.weight), 0.02, {rel = 0.02})
  t.near(std(model.blocks[1].attn.qkv.weight), 0.02, {rel = 0.02})
  t.near(std(model.blocks[1].mlp.down.weight), 0.02 / 4, {rel = 0.02})
  t.near(std(model.blocks[3].attn.proj.weight), 0.02 / 4, {rel = 0.03})
  t.near(std(model.blocks[3].attn.proj.bias), 0, {abs = 0})
  t.near(std(model.norm.weight), 1, {abs = 0})
end)

t.case("weight decay applies to matrices only", function()
  local optim = nn.AdamW(GPT2(small), {weight_decay = 0.1})
  for i, p in ipairs(optim.parameters) do
    t.near(optim.states[i].decay, #p.tensor.shape >= 2 and 0.1 or 0, {abs = 0})
  end
end)

t.case("a hidden size that is not a multiple of the heads is refused", function()
  t.fails(function() GPT2 {layers = 1, heads = 3, embd = 16, vocab = 9, context = 4} end,
          "gpt2: embd = 16 is not a multiple of heads = 3; choose one, such as 18")
end)

t.case("more tokens than the context are refused", function()
  local model = GPT2(small)
  t.fails(function() model(ids_of(1, 13, 29)) end,
          "gpt2: 13 tokens are more than the model's context of 12")
end)

t.case("a token id outside the vocabulary names op, tile and id, and the session goes "
       .. "on", function()
  local model = GPT2(small)
  local ids = nn.tensor({{1, 2, 29}}, {dtype = "i32"})
  t.fails(function()
    model(ids):host()
    nn.sync()
  end, "embedding: token id 29 is outside the vocabulary of 29")
  nn.sync()
  local function total() return model(ids_of(1, 3, 29)):sum():item() end
  t.near(total(), total(), {abs = 0})
end)

t.case("dropout changes each step, is off outside training, and preserves the mean "
       .. "alone", function()
  local config = {dropout = 0.5}
  for k, v in pairs(small) do config[k] = v end
  local model, ids = GPT2(config), ids_of(2, 12, 29)
  local function total() return model(ids):square():sum():item() end
  assert(total() ~= total(), "two draws are equal")
  nn.training(false)
  local a, b = total(), total()
  nn.training(true)
  t.near(a, b, {abs = 0})
  local y = nn.Dropout(0.25)(nn.ones(1000, 1000))
  t.near(y:mean():item(), 1, {abs = 0.005})
end)

t.case("dropout in a compiled step gives the bits of the eager one, step by step", function()
  local config = {dropout = 0.2}
  for k, v in pairs(small) do config[k] = v end
  local function losses(compiled)
    nn.seed(11)
    local model = GPT2(config)
    local optim = nn.AdamW(model, {lr = 1e-2, clip = 1})
    local function step(ids, targets)
      optim:zero_grad()
      local loss = model(ids, targets)
      loss:backward()
      optim:step()
      return loss
    end
    local run, out = compiled and nn.compile(step) or step, {}
    local ids, targets = nn.ones(2, 12):to("i32"), nn.full({2, 12}, 3):to("i32")
    for i = 1, 4 do out[i] = run(ids, targets):item() end
    return out
  end
  local eager, compiled = losses(false), losses(true)
  for i = 1, 4 do t.near(compiled[i], eager[i], {abs = 0}) end
end)

t.case("gradient accumulation over microbatches equals one large batch", function()
  local function norm_of(parts)
    nn.seed(2)
    local model = GPT2(small)
    local optim = nn.SGD(model, {lr = 0})
    local ids, targets = ids_of(4, 12, 29, 8), ids_of(4, 12, 29, 9)
    for i = 1, parts do
      local rows = 4 / parts
      local a, b = (i - 1) * rows + 1, i * rows
      model(ids:slice(1, a, b), targets:slice(1, a, b), {scale = 1 / parts}):backward()
    end
    return optim:step():item()
  end
  t.near(norm_of(4), norm_of(1), {rel = 1e-5})
  t.near(norm_of(2), norm_of(1), {rel = 1e-5})
end)

t.case("the model memorizes one batch", function()
  nn.seed(1)
  local model = GPT2(small)
  local optim = nn.AdamW(model, {lr = 1e-2, clip = 1})
  local ids, targets = ids_of(2, 12, 29, 4), ids_of(2, 12, 29, 5)
  local step = nn.compile(function(x, y)
    optim:zero_grad()
    local loss = model(x, y)
    loss:backward()
    optim:step()
    return loss
  end)
  local first, last = step(ids, targets):item(), nil
  for _ = 1, 150 do last = step(ids, targets):item() end
  t.near(first, math.log(29), {abs = 0.2})
  assert(last < 0.05, "loss is still " .. last)
end)

t.finish()
