-- Rates of the products of GPT-2 on this machine, for each shape of a training step, as one line of
-- JSON: forward (x w), the gradient of the input (y w') and that of the weight (x' y).
--   nnlua tests/gpu/products_speed.lua [dtype=bf16] [where=gpu] [shrink=1] [repeats=20]
local nn = require "nn"

local cfg = nn.config({
  dtype = nn.field("bf16", "dtype of the operands", {choices = {"f32", "bf16"}}),
  where = nn.field("gpu", "device kind that runs the tasks", {choices = {"gpu", "cpu"}}),
  shrink = nn.field(1, "divisor of all extents, for rehearsals", {min = 1}),
  repeats = nn.field(20, "timed calls", {min = 1}),
}, arg)

-- {name, tokens in a tile, hidden size}, as tests/gpu/speed.lua tiles them.
local models = {{"gpt2", 16384, 768}, {"gpt2-xl", 8192, 1600}}
local head = 7296  -- columns of a tile of the vocabulary

nn.run_tasks_on(cfg.where)
local function matrix(rows, columns)
  local function extent(n) return math.max(8, math.floor(n / cfg.shrink / 8) * 8) end
  return nn.uniform({extent(rows), extent(columns)}, {low = -1, high = 1}):to(cfg.dtype)
    :retile {0, 0}
end

-- FLOP/s of the mean of the timed calls of f, which has one product with this inner extent.
local function rate_of(f, inner)
  local y = f()
  nn.sync()
  local flops = 2 * y.shape[1] * y.shape[2] * inner
  local profile = nn.profile(function()
    for _ = 1, cfg.repeats do f():release() end
  end)
  for _, kernel in ipairs(profile.kernels) do
    if kernel.name == "gemm" then return flops / (kernel.seconds / kernel.calls) end
  end
  error("the profile has no kernel gemm")
end
local function rate(a, b, options)
  local inner = options.trans_x and a.shape[1] or a.shape[2]
  return rate_of(function() return a:matmul(b, options) end, inner)
end

local rows = {}
for _, model in ipairs(models) do
  local name, tokens, hidden = unpack(model)
  for _, layer in ipairs {{"qkv", 1, 3}, {"projection", 1, 1}, {"up", 1, 4}, {"down", 4, 1},
                          {"head", 1, head / hidden}} do
    local kind, from, to = unpack(layer)
    local x, w = matrix(tokens, from * hidden), matrix(from * hidden, to * hidden)
    local dy = matrix(tokens, to * hidden)
    rows[#rows + 1] = {
      model = name, product = kind, forward = rate(x, w, {}),
      input_gradient = rate(dy, w, {trans_w = true}),
      weight_gradient = rate(x, dy, {trans_x = true}),
    }
  end
  -- With bias and GELU in the product's epilogue, which also stores GELU's argument.
  local x = matrix(tokens, hidden)
  local up = nn.Linear(x.shape[2], 4 * x.shape[2], {gelu = true, dtype = cfg.dtype})
  rows[#rows + 1] = {model = name, product = "up with GELU",
                     forward = rate_of(function() return up(x) end, x.shape[2])}
end
print(require("cjson").encode {rows = rows})
