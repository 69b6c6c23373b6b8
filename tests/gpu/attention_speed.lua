-- Speed of attention on a GPU as one line of JSON: cuDNN (deterministic and fastest) and our own
-- kernels. FLOPs count only what the causal mask leaves.
--   nnlua tests/gpu/attention_speed.lua [where=gpu] [shrink=1] [repeats=10]
local nn = require "nn"

local cfg = nn.config({
  where = nn.field("gpu", "device kind that runs the tasks", {choices = {"gpu", "cpu"}}),
  shrink = nn.field(1, "divisor of lengths and batches, for rehearsals", {min = 1}),
  repeats = nn.field(10, "timed calls", {min = 1}),
}, arg)

-- GPT-2 124M and 1.5B as in tests/gpu/speed.lua, and heads of 128, ungrouped and grouped.
local shapes = {
  {name = "gpt2", batch = 16, len = 1024, heads = 12, kv_heads = 12, dim = 64},
  {name = "gpt2-xl", batch = 8, len = 1024, heads = 25, kv_heads = 25, dim = 64},
  {name = "heads of 128", batch = 4, len = 2048, heads = 16, kv_heads = 16, dim = 128},
  {name = "grouped", batch = 4, len = 2048, heads = 32, kv_heads = 8, dim = 128},
}

nn.run_tasks_on(cfg.where)
local function seconds_of(shape, backend)
  local batch = math.max(1, math.floor(shape.batch / cfg.shrink))
  local len = math.max(16, math.floor(shape.len / cfg.shrink))
  local width = (shape.heads + 2 * shape.kv_heads) * shape.dim
  local function input(columns)
    return nn.uniform({batch, len, columns}, {low = -1, high = 1}):to("bf16"):retile {0, 0, 0}
  end
  local options = {heads = shape.heads, kv_heads = shape.kv_heads}
  local qkv, dout = input(width), input(shape.heads * shape.dim)
  nn.attention_backend(backend)
  local function both()
    local o, stats = nn.attention(qkv, options)
    nn.attention_backward(dout, qkv, o, stats, options)
  end
  for _ = 1, 3 do both() end
  nn.sync()
  local profile = nn.profile(function() for _ = 1, cfg.repeats do both() end end)
  local seconds = {}
  for _, kernel in ipairs(profile.kernels) do
    seconds[kernel.name] = kernel.seconds / kernel.calls
  end
  local product = batch * shape.heads * len * (len + 1) * shape.dim  -- FLOPs of one product
  return seconds.attention, seconds.attention_backward, product
end

local rows = {}
for _, shape in ipairs(shapes) do
  for _, backend in ipairs {"auto", "cudnn", "nnlua"} do
    local good, forward, backward, product = pcall(seconds_of, shape, backend)
    rows[#rows + 1] = good and {
      shape = shape.name, backend = backend, forward_ms = forward * 1e3,
      backward_ms = backward * 1e3, forward_flops = 2 * product / forward,
      backward_flops = 5 * product / backward,
    } or {shape = shape.name, backend = backend, error = tostring(forward)}
  end
end
print(require("cjson").encode {rows = rows})
