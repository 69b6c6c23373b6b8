-- What a microbatch keeps for the next one: gradients that it clips or uses, fields of a module,
-- buffers, what hooks keep. A compiled step in microbatches has the results of an eager one, or is
-- refused with the line. The modules are random (support/random_modules.lua).
-- ACCUMULATE_MODULES: how many for each kind; NNLUA_TEST_SEED: the first.
local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local accumulation = require "accumulation"
local random_modules = require "random_modules"

local SHORT = 1
local count = tonumber(os.getenv "ACCUMULATE_MODULES") or SHORT
local first = tonumber(os.getenv "NNLUA_TEST_SEED") or 101
local microbatch_counts = count > SHORT and {2, 3, 4, 8} or {6}
nn.devices {cpus = 1}

local function has_gradients(model)
  for _, p in ipairs(model:parameters()) do
    if p.tensor.grad then return true end
  end
  return false
end

-- What a microbatch does with the gradients of earlier ones: (model, state, limit) -> the
-- function that nn.accumulate calls.
local inside = {
  ["clips the norm of the sum so far"] = function(model, _, limit)
    return function(...)
      if has_gradients(model) then nn.clip_grad_norm_(model, limit) end
      return model(...)
    end
  end,
  ["clamps the sum so far"] = function(model, _, limit)
    return function(...)
      if has_gradients(model) then nn.clip_grad_value_(model, limit) end
      return model(...)
    end
  end,
  ["clips its own gradient"] = function(model, _, limit)
    return function(...)
      (model(...) * 0.5):backward()
      nn.clip_grad_norm_(model, limit)
      return model(...) * 0.5
    end
  end,
  ["steps with the gradient of the one before"] = function(model)
    local optim = nn.SGD(model, {lr = 0.05})
    return function(...)
      if has_gradients(model) then
        optim:step()
        optim:zero_grad()
      end
      return model(...)
    end
  end,
  ["steps with momentum, without clearing"] = function(model)
    local optim = nn.SGD(model, {lr = 0.02, momentum = 0.9})
    return function(...)
      if has_gradients(model) then optim:step() end
      return model(...)
    end
  end,
  ["changes the weights by hand and clears the gradients"] = function(model)
    return function(...)
      nn.no_grad(function()
        for _, p in ipairs(model:parameters()) do
          local g = p.tensor.grad
          if g then p.tensor:add_((g * -0.05):to(p.tensor.dtype)) end
        end
      end)
      model:zero_grad()
      return model(...)
    end
  end,
  ["scales the sum so far by hand"] = function(model)
    return function(...)
      nn.no_grad(function()
        for _, p in ipairs(model:parameters()) do
          if p.tensor.grad then p.tensor.grad = p.tensor.grad * 0.5 end
        end
      end)
      return model(...)
    end
  end,
}

-- Values that a microbatch keeps: (model, state) -> the function that nn.accumulate calls, and one
-- that returns what is kept at the end. state: an empty module.
local kept = {
  ["a field that is replaced by a sum"] = function(model, state)
    state.steps = nn.zeros(1)
    return function(...)
      state.steps = state.steps + 1
      return model(...)
    end, function() return state.steps end
  end,
  ["a field that the next microbatch reads"] = function(model, state)
    state.memory = nn.zeros(1)
    return function(...)
      local loss = model(...)
      local weighted = loss * (1 + state.memory:tanh():mean():to(loss.dtype))
      state.memory = (loss:detach():to "f32"):reshape(1)
      return weighted
    end, function() return state.memory end
  end,
  ["a list that grows"] = function(model, state)
    state.history = {}
    return function(...)
      local loss = model(...)
      table.insert(state.history, loss:detach():reshape(1))
      return loss
    end, function() return nn.cat(state.history) end
  end,
  ["a number that counts"] = function(model, state)
    state.calls = 0
    return function(...)
      state.calls = state.calls + 1
      return model(...) * state.calls
    end, function() return nn.full({1}, state.calls) end
  end,
  ["a buffer that is changed in place"] = function(model, state)
    state.running = nn.buffer(nn.zeros(1))
    return function(...)
      local loss = model(...)
      local weighted = loss * (1 + state.running:mean():to(loss.dtype))
      nn.no_grad(function()
        state.running:copy_(state.running * 0.9 + loss:to "f32" * 0.1)
      end)
      return weighted
    end, function() return state.running end
  end,
  ["an auxiliary loss that is added up"] = function(model, state)
    state.aux = nn.zeros(1)
    return function(...)
      local loss = model(...)
      state.aux = state.aux + loss:detach():to "f32" * 0.25
      return loss + state.aux:mean():to(loss.dtype) * loss * 0.1
    end, function() return state.aux end
  end,
  ["what a forward hook keeps"] = function(model, state)
    state.sum = nn.zeros(1)
    local handle = model.tok:register_forward_hook(function(_, _, y)
      state.sum = state.sum + y:detach():square():mean():to "f32"
    end)
    state.close = function() handle:remove() end
    return function(...) return model(...) end, function() return state.sum end
  end,
  ["an upvalue that is replaced"] = function(model)
    local before = nn.zeros(1)
    return function(...)
      local loss = model(...)
      local weighted = loss * (1 + before:mean():to(loss.dtype))
      before = before * 0.5 + loss:detach():to "f32" * 0.1
      return weighted
    end, function() return before end
  end,
}

local State = nn.module "State"

-- Copies of the values of these models, and a function that restores them.
local function keep_values(...)
  local saved = {}
  for _, model in ipairs {...} do
    for _, p in ipairs(model:parameters()) do saved[p.tensor] = p.tensor:detach():clone() end
  end
  return function()
    nn.no_grad(function()
      for tensor, value in pairs(saved) do tensor:copy_(value) end
    end)
  end
end

-- Calls f(run) with the function run(model, ids, targets) for accumulation.lua, whose microbatches
-- start from nothing that is kept.
-- Returns what f returns, and a list of what was kept.
local function with_run(make, microbatches, limit, models, f)
  local made, states = {}, {}
  for _, model in ipairs(models) do
    local state = State()
    states[#states + 1] = state
    made[model] = {make(model, state, limit)}
  end
  return f(function(model, ids, targets)
    local of_microbatch, result = unpack(made[model])
    local loss = nn.accumulate(of_microbatch, microbatches, ids, targets)
    return loss, result and result() or nil
  end), states
end

-- Text of the differences of a compiled step in microbatches from an eager one, or nil. An error
-- that names a line is right, too.
local function difference(m, twin, make, microbatches, refused)
  local limit = 0.05
  local restore = keep_values(m.model, twin.model)
  local function close(states)
    for _, state in ipairs(states) do
      if state.close then state.close() end
    end
  end
  local expected, states = with_run(make, microbatches, limit, {m.model, twin.model},
    function(run) return accumulation.reference(m, twin, run) end)
  close(states)
  restore()
  local good, text
  local _, last = with_run(make, microbatches, limit, {m.model}, function(run)
    good, text = pcall(accumulation.differences, m, expected, run, true)
  end)
  close(last)
  restore()
  if good then return text end
  refused[#refused + 1] = text
  return not text:find "%.lua:%d+: " and "refused without the line: " .. text or nil
end

local function cases(title, list)
  local names = {}
  for name in pairs(list) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    t.case(title:format(name), function()
      local tally, refused, seed, done = accumulation.tally(name), {}, first, 0
      while done < count do
        local m = random_modules.make(seed)
        seed = seed + 1
        if m.ignored == "none" and (m.dtype ~= "bf16" or count > SHORT) then
          done = done + 1
          for _, microbatches in ipairs(microbatch_counts) do
            tally:compare(m, microbatches .. " microbatches", function()
              return difference(m, random_modules.twin(m), list[name], microbatches, refused)
            end)
          end
        end
      end
      print(("  %s, %d refused%s"):format(tally:summary(), #refused,
                                         refused[1] and ": " .. refused[1] or ""))
      tally:finish(t.check)
    end)
  end
end

cases("a microbatch that %s", inside)
cases("microbatches keep %s", kept)

t.finish()
