-- bf16: weights and activations in 16 bits; sums, gradients of weights, moments and master weights
-- in f32.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local function model_of(dtype)
  nn.seed(1)
  return GPT2 {layers = 2, heads = 2, embd = 32, context = 16, vocab = 50, dtype = dtype}
end
local function batch()
  local function ids() return nn.uniform({4, 16}, {low = 0, high = 50}):to "i32" end
  return ids(), ids()
end

local function norm(x) return (x * x):sum():item() ^ 0.5 end

-- Each makes a weight of (?,6) from parameters p and q of (14,6).
local made = {
  function(p) return p:slice(1, 1, 11) end, function(p) return p * 2 end,
  function(p, q) return p * q end, function(p, q) return p + q:slice(1, 1, 1) end,
  function(p) return p:t():reshape(14, 6) end, function(p) return p:exp() end,
  function(p) return p:softmax(-1) end, function(p, q) return p:gt(0):where(p, q) end,
  function(p, q) return nn.cat {p, q} end, function(p) return p:slice(1, 1, 1):expand(5, 6) end,
  function(p, q) return p:matmul(q:t()):slice(2, 1, 6) end, function(p) return p:roll(1, 1) end,
  function(p, q) return nn.cat({p, q}, 2):glu() end, function(p) return p:cumsum(1) end,
  function(p) return (nn.rmsnorm(p, nn.ones(6, {dtype = p.dtype}))) end,
  function(p, q) return (nn.linear(p, q:slice(1, 1, 6))) end,
  function(p) return nn.embedding(nn.tensor({1, 1, 2}, {dtype = "i32"}), p) end,
}

t.case("a bf16 weight that is the result of an op has the gradient of f32", function()
  for i, make in ipairs(made) do
    local grads = {}
    for _, dtype in ipairs {"f32", "bf16"} do
      nn.seed(1)
      local p, q, x = nn.randn(14, 6), nn.randn(14, 6), nn.randn(3, 6)
      p, q = p:to(dtype):detach(), q:to(dtype):detach()
      p.requires_grad = true
      nn.linear(x:to(dtype), make(p, q)):sum():backward()
      grads[dtype] = p.grad:to "f32"
    end
    t.check(norm(grads.bf16 - grads.f32) < 0.02 * norm(grads.f32), i)
  end
end)

t.case("the gradients of a bf16 model's weights are f32, near those of f32", function()
  local ids, targets = batch()
  local exact, rounded = model_of "f32", model_of "bf16"
  for _, model in ipairs {exact, rounded} do model(ids, targets):backward() end
  for i, p in ipairs(rounded:parameters()) do
    local g, e = p.tensor.grad, exact:parameters()[i].tensor.grad
    t.same({p.tensor.dtype, g.dtype}, {"bf16", "f32"})
    local difference, size = norm(g - e), norm(e)
    t.check(difference < 0.03 * size + 1e-4, ("%s: %g of %g"):format(p.path, difference, size))
  end
end)

t.case("microbatches accumulate in f32, which keeps small gradients next to large ones", function()
  local w = nn.tensor({{1}}, {dtype = "bf16"})
  w.requires_grad = true
  local function add(value)
    nn.linear(nn.tensor({{value}}, {dtype = "bf16"}), w):sum():backward()
  end
  add(256)
  for _ = 1, 100 do add(0.5) end               -- each is below bf16's spacing at 256
  t.same(w.grad:item(), 306)
end)

-- The gradients of a bf16 layer, of rows in tiles of so many (0: one tile).
local function layer_gradients(dtype, tile)
  nn.seed(2)
  local before = nn.gradient_dtype(dtype)
  local layer, x = nn.Linear(48, 40, {dtype = "bf16"}), nn.randn(64, 48):to "bf16"
  layer(x:retile {tile, 0}):backward(nn.randn(64, 40):to "bf16":retile {tile, 0})
  nn.gradient_dtype(before)
  return layer.weight.grad, layer.bias.grad
end

t.case("one product may compute a gradient in bf16, rounded once; sums stay f32", function()
  local exact, rounded, bias = layer_gradients("f32", 0), layer_gradients("bf16", 0)
  t.same({exact.dtype, rounded.dtype, bias.dtype}, {"f32", "bf16", "f32"})
  t.same(exact:to "bf16", rounded)
  t.same((layer_gradients("bf16", 32)).dtype, "f32")
  t.fails(function() nn.gradient_dtype "f64" end, 'gradient_dtype: "f32" or "bf16" is needed')

  local function accumulated(dtype, microbatches)
    local ids, targets = batch()
    local model, before = model_of "bf16", nn.gradient_dtype(dtype)
    nn.accumulate(model, microbatches, ids, targets)
    t.same(nn.gradient_dtype(before), dtype)
    return model.blocks[1].mlp.up.weight.grad
  end
  nn.seed(5)
  local sum = accumulated("f32", 2)
  nn.seed(5)
  local other = accumulated("bf16", 2)
  t.same(other.dtype, "f32")
  t.same(other, sum)
  t.same(accumulated("bf16", 1).dtype, "bf16")
end)

t.case("several bf16 gradients of a weight are added in f32", function()
  local w = nn.tensor({{1}}, {dtype = "bf16"})
  w.requires_grad = true
  local before = nn.gradient_dtype "bf16"
  local function use(value) return nn.linear(nn.tensor({{value}}, {dtype = "bf16"}), w):sum() end
  use(256):backward()
  t.same({w.grad.dtype, w.grad:item()}, {"bf16", 256})
  for _ = 1, 50 do (use(0.5) + use(0.5)):backward() end
  nn.gradient_dtype(before)
  t.same({w.grad.dtype, w.grad:item()}, {"f32", 306})
end)

t.case("optimizers take bf16 gradients, and train as with f32", function()
  for _, name in ipairs {"AdamW", "Adam", "SGD", "RMSprop", "Adagrad", "Lion"} do
    local function train(dtype, compiled)
      local before = nn.gradient_dtype(dtype)
      local model = model_of "bf16"
      local optim = nn[name](model, {lr = name == "SGD" and 0.1 or 1e-3, clip = 1})
      local function step(ids, targets)
        optim:zero_grad()
        local loss = model(ids, targets)
        loss:backward()
        return loss, optim:step()
      end
      if compiled then step = nn.compile(step) end
      local ids, targets = batch()
      local losses = {}
      for i = 1, 8 do losses[i] = step(ids, targets):item() end
      nn.gradient_dtype(before)
      return losses
    end
    local exact, rounded = train "f32", train "bf16"
    t.check(rounded[8] < rounded[1] - 0.005, name .. ": " .. table.concat(rounded, " "))
    t.near(rounded, exact, {rel = 0.01})
    t.near(train("bf16", true), rounded, {rel = 0.01})
  end
end)

t.case("a bf16 weight follows its master weight, which keeps the bits that bf16 loses", function()
  local w = nn.tensor({1}, {dtype = "bf16"})
  w.requires_grad = true
  local optim = nn.AdamW({w = w}, {lr = 1e-3})
  for _ = 1, 3 do
    optim:zero_grad()
    local loss = (w * 2):sum()
    loss:backward()
    optim:step()
  end
  local master = optim:state()[3]
  t.same(master.path, "w.master")
  t.near(master.tensor:item(), 0.997, {abs = 1e-5})
  t.same(w:item(), master.tensor:to("bf16"):item())
end)

-- A bf16 weight of 1 in n places under a gradient of 1, with steps of 1/8 of its spacing below 1.
local function drift(n, tile, compiled)
  nn.seed(3)
  nn.tiles {wide = tile}
  local w = nn.ones({n}, {dtype = "bf16", axes = "wide"})
  nn.tiles {wide = 0}
  w.requires_grad = true
  local optim = nn.AdamW({w = w}, {lr = 2 ^ -11, rounding = "stochastic"})
  local function step()
    optim:zero_grad()
    local loss = w:sum()
    loss:backward()
    optim:step()
    return loss
  end
  if compiled then step = nn.compile(step) end
  for _ = 1, 16 do step() end
  return w, optim
end

t.case("stochastic rounding takes steps below bf16's spacing, exact in the mean", function()
  local n = 20000
  local w, optim = drift(n, 0)
  t.same({#optim:state(), optim.rounding}, {2, "stochastic"})
  -- Each of 16 steps adds less than a quarter of the square of the spacing 2^-8 to the variance.
  local deviation = 2 ^ -8 * (16 / 4 / n) ^ 0.5
  t.near(w:to("f64"):mean():item(), 1 - 16 * 2 ^ -11, {abs = 4 * deviation})
  t.check(w:to("f64"):max():item() > w:to("f64"):min():item(), "they were rounded alike")
end)

t.case("stochastic rounding gives the same bits for other tiles, and compiled", function()
  local whole = drift(1000, 0):table()
  t.same(drift(1000, 77):table(), whole)
  local other = drift(1000, 0, true):table()
  t.same(drift(1000, 77, true):table(), other)
end)

t.case("stochastic rounding is for bf16, and `rounding` takes one of two words", function()
  t.fails(function() nn.AdamW(nn.Linear(2, 2), {rounding = "up"}) end, 'rounding is up; "nearest"')
  local x = nn.ones(3)
  t.fails(function()
    nn.adamw_(x, nn.zeros(3), nn.zeros(3), nn.ones(3), {lr = 1, step = 1, stochastic = true})
  end, "stochastic is for a bf16 param without a master; param is f32")
end)

-- A text of random words, short ones more often, the same on every machine.
local function words(path)
  local state, list, out = 1, {}, {}
  local function random(n)
    state = (state * 16807) % 2147483647
    return state % n
  end
  for i = 1, 40 do
    local letters = {}
    for j = 1, 1 + random(2 + i / 8) do letters[j] = string.char(97 + random(26)) end
    list[i] = table.concat(letters)
  end
  for i = 1, 100000 do out[i] = list[1 + random(1 + random(40))] end
  files.write(path, table.concat(out, " "))
end

local done = {}                  -- losses by name
-- The losses of 200 steps of the recipe's Shakespeare setting. gradients: their dtype, or nil for
-- f32. Trainings in bf16 have one worker, for which the tokens of a step are one tile.
local function losses(folder, dtype, text, rounding, gradients)
  local name = ("%s-%s%s"):format(dtype, rounding, gradients or "")
  if done[name] then return done[name] end
  local status, output = t.shell(([[cd %s
    %s $NNLUA %s/recipes/gpt2_train.lua preset=char %s steps=200 eval_every=0 final_batches=1 \
      sample.tokens=1 log_every=1 model.dtype=%s optim.rounding=%s optim.gradients=%s out=%s
    ]]):format(folder, dtype == "bf16" and "NNLUA_CPUS=1" or "", host.root, text, dtype, rounding,
               gradients or "f32", name))
  t.check(status == 0, output)
  local list = {}
  for line in files.read(("%s/%s/metrics.jsonl"):format(folder, name)):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event.event == "step" then list[event.step] = event.loss end
  end
  t.same(#list, 200)
  done[name] = list
  return list
end

local folder, text = t.folder(), host.root .. "/../shared/data/shakespeare/input.txt"
if not files.exists(text) then
  text = files.join(folder, "words.txt")
  words(text)
end
text = "data.text=" .. text
local exact

-- The largest difference to the losses in f32, of which there is one.
local function difference(list)
  exact = exact or losses(folder, "f32", text, "nearest")
  local worst = 0
  for step = 1, 200 do worst = math.max(worst, math.abs(list[step] - exact[step])) end
  t.check(exact[200] < exact[1] - 1, "it learns")
  t.check(worst < 0.05, ("they are %.4f apart"):format(worst))
  t.check(worst > 0, "they are the same run")
  print(("  at most %.4f apart"):format(worst))
end

t.case("200 steps with bf16 gradients keep within 0.05 of the f32 loss", function()
  local narrow = losses(folder, "bf16", text, "nearest", "bf16")
  difference(narrow)
  local wide = losses(folder, "bf16", text, "nearest")
  t.check(narrow[200] ~= wide[200], "the setting has no effect")
end)

for _, rounding in ipairs {"nearest", "stochastic"} do
  t.case(("200 steps in bf16, rounding %s, keep within 0.05 of the f32 loss"):format(rounding),
         function()
    difference(losses(folder, "bf16", text, rounding))
    local name = "bf16-" .. rounding
    local state = nn.open_checkpoint(("%s/%s/checkpoint-000200"):format(folder, name)).state
    t.same({state.config.model.dtype, state.config.optim.rounding}, {"bf16", rounding})
    local status, output = t.shell(([[cd %s; for end in 201 202; do
        $NNLUA %s/recipes/gpt2_train.lua preset=char %s steps=$end eval_every=0 final_batches=1 \
          sample.tokens=1 model.dtype=bf16 optim.rounding=%s out=%s resume=auto || exit 1
      done; $NNLUA %s/recipes/gpt2_generate.lua model=%s prompt=a tokens=5]]):format(
      folder, host.root, text, rounding, name, host.root, name))
    t.check(status == 0 and output:find "resumed after step 201", output)
  end)
end

t.finish()
