-- Compares gradients with finite differences, for t.gradcheck of nn.test. A slope along a random
-- direction depends on every element of the gradient and takes only two evaluations.

local engine = require "nn.base.engine"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"

local M = {}
local STEP, DIRECTIONS = 1e-6, 3

local function random(shape)
  return ops.call("uniform", shape, {low = -1, high = 1, dtype = "f64"})
end

local function is_float(x) return tensor.is_tensor(x) and x.dtype:find "f" ~= nil end

-- The weighted sum of f's result for these inputs; random numbers and weights are always the same.
local function loss_of(f, inputs, n)
  engine.seed(7)
  local y = f(unpack(inputs, 1, n))
  if #y.shape == 0 then return y end
  engine.seed(100)
  return (y * random(y.shape)):sum()
end

-- The slope of the loss at `inputs` when input i moves along `direction`.
local function numeric_slope(f, inputs, n, i, direction)
  local function at(distance)
    local moved = {unpack(inputs, 1, n)}
    moved[i] = inputs[i]:detach() + direction * distance
    return tape.no_grad(loss_of, f, moved, n):item()
  end
  return (at(STEP) - at(-STEP)) / (2 * STEP)
end

--- check(fail, f, inputs, {abs=, rel=}): calls fail(format, ...) where a gradient differs.
function M.check(fail, f, inputs, tolerance)
  local abs, rel = tolerance and tolerance.abs or 1e-7, tolerance and tolerance.rel or 1e-6
  local before, n, leaves, floats = engine.random_state(), table.maxn(inputs), {}, 0
  for i = 1, n do
    leaves[i] = inputs[i]
    if is_float(inputs[i]) then
      leaves[i] = inputs[i]:detach():to("f64"):detach()
      leaves[i].requires_grad, floats = true, floats + 1
    end
  end
  if floats == 0 then fail("there is no float tensor among the inputs") end
  loss_of(f, leaves, n):backward()
  for i = 1, n do
    if is_float(leaves[i]) then
      local grad = leaves[i].grad or fail("input %d gets no gradient", i)
      for trial = 1, DIRECTIONS do
        engine.seed(1000 * i + trial)
        local direction = random(leaves[i].shape)
        local slope = (grad * direction):sum():item()
        local expected = numeric_slope(f, leaves, n, i, direction)
        local within = math.abs(slope - expected) <= abs + rel * math.abs(expected)
        if not within then
          fail("the slope in input %d is %.9g, finite differences give %.9g (tolerance %g + %g of "
               .. "it)", i, slope, expected, abs, rel)
        end
      end
    end
  end
  engine.set_random_state(before)
end

return M
