-- Steps of a small GPT-2 on a GPU and on a CPU must agree in losses and gradient norms.
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

-- NNLUA_REHEARSE=1: the CPU stands in for the GPU.
local rehearsal = os.getenv "NNLUA_REHEARSE" ~= nil
local _, gpus = nn.workers()

local function train(where, dtype, compiled)
  nn.run_tasks_on(rehearsal and "cpu" or where)
  nn.seed(1)
  local model = GPT2 {layers = 2, heads = 2, embd = 128, vocab = 101, context = 96, dtype = dtype}
  local optim = nn.AdamW(model, {lr = 1e-3, clip = 1, weight_decay = 0.1})
  local function step(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end
  if compiled then step = nn.compile(step) end
  local losses = {}
  for i = 1, 8 do
    local function tokens()
      return nn.uniform({4, 96}, {low = 0, high = 101, axes = "batch,time"}):to("i32")
    end
    local loss, norm = step(tokens(), tokens())
    losses[i] = {loss:item(), norm:item()}
  end
  nn.run_tasks_on "auto"
  return losses
end

-- Each kernel rounds its results to bf16, and kernels are split differently on a GPU.
for _, case in ipairs {{"f32", 1e-4}, {"bf16", 0.01}} do
  local dtype, tolerance = unpack(case)
  for _, compiled in ipairs {false, true} do
    local how = dtype .. (compiled and ", compiled" or ", eager")
    t.case("eight steps on a GPU give the CPU's losses, " .. how, function()
      if gpus == 0 and not rehearsal then t.skip "no GPU" end
      t.near(train("gpu", dtype, compiled), train("cpu", dtype, compiled), {rel = tolerance})
    end)
  end

  t.case("two runs on a GPU are bitwise identical, " .. dtype, function()
    if gpus == 0 and not rehearsal then t.skip "no GPU" end
    t.same(train("gpu", dtype, true), train("gpu", dtype, true))
  end)
end

t.finish()
