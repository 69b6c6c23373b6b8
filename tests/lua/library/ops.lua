-- Properties of every op of the registry, on the samples in its declaration: results do not depend
-- on the tiling, gradients equal finite differences, a compiled function gives the bits of an eager
-- one. Everything is derived from the registry: a new op is tested without a line here.

local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local samples = require "samples"

local is_float = {f32 = true, f64 = true, bf16 = true}

local function near(a, b, tolerance, what)
  t.near(a.shape, b.shape, {abs = 0}, what .. ": shapes")
  local x, n = a:numbers()
  local y = b:numbers()
  local scale = 1e-300
  for i = 0, n - 1 do scale = math.max(scale, math.abs(y[i])) end
  for i = 0, n - 1 do
    local same = x[i] == y[i] or (x[i] ~= x[i] and y[i] ~= y[i])
    local within = math.abs(x[i] - y[i]) <= tolerance * scale
    if not (same or within) then
      error(("%s: element %d is %.17g, expected %.17g"):format(what, i + 1, x[i], y[i]), 0)
    end
  end
end

local function results_of(declared, inputs, values)
  local list = {samples.apply(declared, inputs, values)}
  list.n = table.maxn(list)
  return list
end

samples.each(function(declared, text)
  t.case(declared.name .. " " .. text .. ": any tiling gives the same result", function()
    local inputs, values = samples.arguments(declared, text, "f64")
    local expected = results_of(declared, inputs, values)
    local random = samples.random(#text + 11)
    for trial = 1, 4 do
      local got = results_of(declared, samples.cut(declared, inputs, random), values)
      for i = 1, expected.n do
        if expected[i] then
          near(got[i], expected[i], 1e-11, ("tiling %d, result %d"):format(trial, i))
        end
      end
    end
  end)

  t.case(declared.name .. " " .. text .. ": compiled equals eager to the bit", function()
    local inputs, values = samples.arguments(declared, text, "f32")
    local list, position, numbers = {}, {}, {}
    for i = 1, table.maxn(inputs) do
      if nn.is_tensor(inputs[i]) then
        list[#list + 1] = inputs[i]
        position[#list] = i
      else
        numbers[i] = inputs[i]
      end
    end
    local expected = results_of(declared, inputs, values)
    local f = nn.compile(function(...)
      local mine, attributes = {}, {}
      for i, x in pairs(numbers) do mine[i] = x end
      for i = 1, select("#", ...) do
        local x = select(i, ...)
        mine[position[i]] = declared.in_place and x:clone() or x
      end
      for i = 1, table.maxn(values) do attributes[i] = values[i] end
      local out, compact = {require("nn.core.op").invoke(declared.name, mine, attributes)}, {}
      for i = 1, table.maxn(out) do compact[#compact + 1] = out[i] end
      return unpack(compact)
    end)
    for round = 1, 2 do
      nn.seed(7)
      local got = {f(unpack(list))}
      local k = 0
      for i = 1, expected.n do
        if expected[i] then
          k = k + 1
          near(got[k], expected[i], 0, ("run %d, result %d"):format(round, i))
        end
      end
    end
  end)
end)

-- x's elements, repeated, in another shape.
local function in_shape(x, shape)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  local row = x:reshape(-1)
  while row:dim(1) < count do row = nn.cat({row, row}, 1) end
  return row:slice(1, 1, count):reshape(shape):clone()
end

t.case("an input of another shape gives a result or an error of the op", function()
  local refused = 0
  samples.each(function(declared, text)
    local inputs, values = samples.arguments(declared, text, "f32")
    for i = 1, table.maxn(inputs) do
      local shape = nn.is_tensor(inputs[i]) and inputs[i].shape or {}
      for _, other in ipairs {{}, {unpack(shape, 2)}, {2, unpack(shape)}} do
        local mine = {unpack(inputs, 1, table.maxn(inputs))}
        mine[i] = #shape > 0 and in_shape(inputs[i], other) or mine[i]
        local done, message = pcall(function()
          samples.apply(declared, mine, values)
          nn.sync()
        end)
        refused = refused + (done and 0 or 1)
        if not done and not message:find(declared.name, 1, true) then
          error(("%s %s, input %d (%s): %s"):format(declared.name, text, i,
                                                    table.concat(other, ","), message), 0)
        end
      end
    end
  end)
  t.check(refused > 100, refused)
end)

-- Gradients. The loss is a fixed random combination of the results that gradients flow through.
local function loss_of(declared, inputs, values)
  local results = results_of(declared, inputs, values)
  local loss
  for i, output in ipairs(declared.outputs) do
    if results[i] and output.differentiable then
      local weights = nn.tensor(0.5, {dtype = "f64"})
      if #results[i].shape > 0 then
        nn.seed(100 + i)
        weights = nn.uniform(results[i].shape, {low = -1, high = 1, dtype = "f64"})
      end
      local term = (results[i] * weights):sum()
      loss = loss and loss + term or term
    end
  end
  return loss
end

local function leaves_of(inputs)
  local out = {}
  for i = 1, table.maxn(inputs) do
    out[i] = inputs[i]
    if nn.is_tensor(inputs[i]) then
      out[i] = inputs[i]:detach()
      out[i].requires_grad = is_float[inputs[i].dtype] or nil
    end
  end
  return out
end

samples.each(function(declared, text)
  local title = "%s %s: its gradient equals finite differences, for any tiling"
  t.case(title:format(declared.name, text), function()
    local inputs, values = samples.arguments(declared, text, "f64")
    t.gradcheck(function(...) return loss_of(declared, {...}, values) end, inputs)
    local random = samples.random(#text + 3)
    local leaves, tiled = leaves_of(inputs), leaves_of(samples.cut(declared, inputs, random))
    loss_of(declared, leaves, values):backward()
    loss_of(declared, tiled, values):backward()
    for i = 1, table.maxn(inputs) do
      if nn.is_tensor(leaves[i]) and leaves[i].requires_grad then
        near(tiled[i].grad, leaves[i].grad, 1e-10, "tiled gradient of input " .. i)
      end
    end
  end)
end, function(declared) return not declared.no_gradient end, {"bf16", "i32"})

t.finish()
