-- What a training run would take, without computing or allocating anything.
local M = {}

--- plan(build, loader) -> {parameters=, tasks=, flops=, state=, need=, there=}: numbers of a step,
--- bytes of parameters and moments, bytes that a step needs with these, and bytes there are.
--- build() makes and returns the model, the optimizer and the step, as run:plan() takes it.
function M.plan(build, loader)
  local nn = require "nn"
  local ids, targets = loader:peek()
  local count
  local function made(with_step)
    return nn.plan(function()
      local model, optim, step = build()
      local kept = {}
      for _, list in ipairs {model:state(), optim:state()} do
        for _, entry in ipairs(list) do kept[#kept + 1] = entry.tensor end
      end
      count = model:count()
      if with_step then kept[#kept + 1] = step(ids, targets) end
      return unpack(kept)
    end)
  end
  local state, all = made(false), made(true)
  return {parameters = count, tasks = all.tasks - state.tasks, flops = all.flops - state.flops,
          state = state.peak_bytes, need = all.peak_bytes + all.persistent_bytes,
          there = nn.memory().budget}
end

return M
