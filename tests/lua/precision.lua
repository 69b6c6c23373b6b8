-- bf16: weights and activations of 16 bits, with sums, gradients of weights, moments and masters of
-- the weights in f32.
local files = require "nn.files"
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

t.case("parts of a batch add up in f32: small gradients are not lost beside large ones", function()
  local w = nn.tensor({{1}}, {dtype = "bf16"})
  w.requires_grad = true
  local function add(value)
    nn.linear(nn.tensor({{value}}, {dtype = "bf16"}), w):sum():backward()
  end
  add(256)
  for _ = 1, 100 do add(0.5) end               -- each alone is below bf16's spacing at 256
  t.same(w.grad:item(), 306)
end)

t.case("a bf16 weight follows its master, which holds what bf16 cannot", function()
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

-- The losses of 200 steps of the recipe's Shakespeare setting.
local function losses(folder, dtype, text)
  local status, output = t.shell(([[cd %s
    $NNLUA %s/recipes/gpt2_train.lua preset=char %s steps=200 eval_every=0 \
      final_batches=1 sample.tokens=1 log_every=1 model.dtype=%s out=%s]]):format(
    folder, host.root, text, dtype, dtype))
  t.check(status == 0, output)
  local list = {}
  for line in files.read(("%s/%s/metrics.jsonl"):format(folder, dtype)):gmatch "[^\n]+" do
    local event = files.parse_json(line)
    if event.event == "step" then list[event.step] = event.loss end
  end
  t.same(#list, 200)
  return list
end

t.case("200 steps in bf16 keep within 0.05 of the f32 loss", function()
  local folder, text = t.folder(), host.root .. "/../shared/data/shakespeare/input.txt"
  text = files.exists(text) and "data.text=" .. text or ""        -- else on nnlua's own sources
  local exact, rounded, worst = losses(folder, "f32", text), losses(folder, "bf16", text), 0
  for step = 1, 200 do worst = math.max(worst, math.abs(rounded[step] - exact[step])) end
  t.check(exact[200] < exact[1] - 1, "it learns")
  t.check(worst < 0.05, ("they are %.4f apart"):format(worst))
  t.check(worst > 0, "they are the same run")
  print(("  at most %.4f apart"):format(worst))
  local state = nn.open_checkpoint(folder .. "/bf16/checkpoint-000200").state
  t.same(state.config.model.dtype, "bf16")
  local status, output = t.shell(([[cd %s; for end in 201 202; do
      $NNLUA %s/recipes/gpt2_train.lua preset=char %s steps=$end eval_every=0 final_batches=1 \
        sample.tokens=1 model.dtype=bf16 out=bf16 resume=auto || exit 1
    done; $NNLUA %s/recipes/gpt2_generate.lua model=bf16 prompt=a tokens=5]]):format(
    folder, host.root, text, host.root))
  t.check(status == 0 and output:find "resumed after step 201", output)
end)

t.finish()
