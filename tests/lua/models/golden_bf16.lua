-- GPT-2 in bf16 against PyTorch's bf16 (tests/golden/gpt2_bf16.safetensors). Both round in
-- different places, so they differ by about as much as each differs from the float64 values; ours
-- may not be much farther from these than PyTorch's.

local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"
local folder = package.loaded["nn.host"].root .. "/tests/golden/"

local exact = nn.load_safetensors(folder .. "gpt2_small.safetensors")
local torch = nn.load_safetensors(folder .. "gpt2_bf16.safetensors")

-- The norm of the difference over the norm of what is expected.
local function distance(got, expected)
  local a, n = got:to("f32"):numbers()
  local b = expected:to("f32"):numbers()
  local difference, size = 0, 0
  for i = 0, n - 1 do
    difference, size = difference + (a[i] - b[i]) ^ 2, size + b[i] ^ 2
  end
  return math.sqrt(difference / size)
end

local model = GPT2 {layers = 2, heads = 2, embd = 32, vocab = 101, context = 16, dtype = "bf16"}
local state = {}
for i, p in ipairs(model:parameters()) do
  state[i] = {path = p.path, tensor = exact["weight/" .. p.path]:to "bf16"}
end
model:load(state)
local loss = model(exact.ids, exact.targets)
loss:backward()

-- Measured with every implementation of products: ours is 0.79 to 1.11 times as far from float64 as
-- PyTorch's, and the distance between both is 0.53 to 0.79 of PyTorch's distance from float64.
local function check(name, ours)
  local theirs = torch[name]
  local own, other, between = distance(ours, exact[name]), distance(theirs, exact[name]),
                              distance(ours, theirs)
  t.check(own < 1.25 * other, ("%s: %.4f from float64, PyTorch %.4f"):format(name, own, other))
  t.check(between < other, ("%s: %.4f from PyTorch, which is %.4f from float64"):format(
    name, between, other))
end

t.case("logits in bf16 are as near to float64 as PyTorch's in bf16", function()
  check("logits", model(exact.ids))
end)

t.case("gradients in bf16 are as near to float64 as PyTorch's in bf16", function()
  local checked = 0
  for _, p in ipairs(model:parameters()) do
    if torch["grad/" .. p.path] then
      check("grad/" .. p.path, p.tensor.grad)
      checked = checked + 1
    end
  end
  t.same(checked, 9)
end)

t.case("the loss in bf16 is within 0.01 of float64, as PyTorch's is", function()
  t.near(torch.loss:item(), exact.loss:item(), {abs = 0.02})
  t.near(loss:item(), exact.loss:item(), {abs = 0.01})
end)

t.finish()
