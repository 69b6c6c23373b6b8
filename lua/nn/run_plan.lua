-- What a training run would take: the step is recorded and played on imaginary workers; nothing is
-- computed and no tensor is allocated.
local compile = require "nn.compile"
local grad = require "nn.grad"

local M = {}

local function tag(list, kind)
  for _, entry in ipairs(list) do compile.kind(entry.tensor, kind) end
end

--- step(build, rows, context, measured) -> what compile.simulated() tells of a step on so many
--- sequences, and `parameters`, `flops_per_token` (where the model says), `state` (bytes of weights
--- and optimizer state). build() makes and returns the model, the optimizer and the step.
function M.step(build, rows, context, measured)
  local nn = require "nn"
  local out = {}
  local plan = compile.simulated(function()
    local model, optim, step = build()
    local kept, state = {}, 0
    local function keep(list, kind)
      tag(list, kind)
      for _, entry in ipairs(list) do
        kept[#kept + 1] = entry.tensor
        state = state + entry.tensor:bytes()
      end
    end
    keep(model:state(), "weights")
    keep(optim:state(), "optimizer")
    out.parameters, out.state = model:count(), state
    out.flops_per_token = model.flops_per_token and model:flops_per_token(context)
    local shape, options = {rows, context}, {dtype = "i32", axes = "batch,time"}
    local ids, targets = nn.zeros(shape, options), nn.zeros(shape, options)
    kept[#kept + 1], kept[#kept + 2] = ids, targets
    compile.step_begins()
    grad.on_backward(function(results) tag(results, "activations") end, function()
      local results = {step(ids, targets)}
      for i = 1, table.maxn(results) do kept[#kept + 1] = results[i] end
    end)
    for _, p in ipairs(model:parameters()) do
      if p.tensor.grad then compile.kind(p.tensor.grad, "gradients") end
    end
    return unpack(kept)
  end, measured)
  for name, value in pairs(out) do plan[name] = value end
  return plan
end

return M
