-- Steps of a GPT-2 with a limit on the memory of each GPU. Prints the losses, the memory used and
-- the bytes moved. tests/gpu/run compares a run without a limit with one in a fifth of its memory.
--   nnlua tests/gpu/budget.lua [memory=BYTES] [layers=12 heads=12 embd=768 vocab=50257] [batch=4
--     tokens=512 steps=4] [where=gpu]
local nn = require "nn"
local GPT2 = require "models.gpt2"

local cfg = nn.config({
  memory = nn.field(0, "bytes per GPU; 0: no limit", {min = 0}),
  layers = nn.field(12, "layers", {min = 1}), heads = nn.field(12, "heads", {min = 1}),
  embd = nn.field(768, "hidden size", {min = 1}),
  vocab = nn.field(50257, "vocabulary size", {min = 1}),
  batch = nn.field(4, "sequences per step", {min = 1}),
  tokens = nn.field(512, "tokens per sequence", {min = 1}),
  steps = nn.field(4, "steps", {min = 2}),
  ram_gb = nn.field(0, "largest memory budget for RAM in GB; 0: automatic", {min = 0}),
  where = nn.field("gpu", "device kind that runs the tasks", {choices = {"gpu", "cpu"}}),
}, arg)

if cfg.memory > 0 then nn.devices {gpu_memory = cfg.memory} end
nn.run_tasks_on(cfg.where)
dofile(arg[0]:match "^(.-)[^/]*$" .. "ram.lua")(cfg.ram_gb)
nn.seed(1)
local model = GPT2 {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
                    context = cfg.tokens}
local optim = nn.AdamW(model, {lr = 1e-4, clip = 1})
local step = nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = model(ids, targets)
  loss:backward()
  return loss, optim:step()
end)
local function tokens()
  local options = {low = 0, high = cfg.vocab, axes = "batch,time"}
  return nn.uniform({cfg.batch, cfg.tokens}, options):to "i32"
end
local ids, targets, losses, moved = tokens(), tokens(), {}, 0
for i = 1, cfg.steps do
  losses[i] = step(ids, targets):item()
  nn.sync()
  if i == 1 then moved = nn.memory().moved end         -- the first step also moves the model
end
local memory = nn.memory()
local used = 0
for _, gpu in ipairs(memory.gpus) do used = math.max(used, gpu.used) end
print(require("cjson").encode {
  losses = losses, gpu_bytes = used, moved_per_step = (memory.moved - moved) / (cfg.steps - 1),
})
