-- Arguments for every op from the samples in its declaration: what the property tests run on. A
-- sample is a Lua table of arguments by name. A tensor is its shape with hints: {3, 5} or
-- {3, 5, lo=0.5, hi=2} (uniform), {4, below=11} (i32 ids), {3, 5, bool=true}, or {3, 5, bytes=true}
-- (u8).

local nn = require "nn"
local op = require "nn.core.op"

local M = {}

--- parse(text) -> the arguments of a sample by name.
function M.parse(text)
  local chunk = assert(loadstring("return " .. text), "bad sample: " .. text)
  return setfenv(chunk, {})()
end

local function make_tensor(spec, dtype)
  local shape = {}
  for i, size in ipairs(spec) do shape[i] = size end
  if spec.below then
    return nn.uniform(shape, {low = 0, high = spec.below, dtype = "f64"}):to("i32")
  end
  if spec.bytes then
    return nn.uniform(shape, {low = 0, high = 256, dtype = "f64"}):to("u8")
  end
  if spec.bool then return nn.uniform(shape, {dtype = "f64"}):gt(0.5) end
  local low, high = spec.lo or -1, spec.hi or 1
  return nn.uniform(shape, {low = low, high = high, dtype = "f64"}):to(dtype)
end

--- The declaration `declared` with one of its samples as inputs (tensors, by position) and
--- attribute values (by position).
function M.arguments(declared, text, dtype)
  local inputs, values, names, given = {}, {}, {}, M.parse(text)
  for name in pairs(given) do names[#names + 1] = name end
  table.sort(names)   -- makes random inputs the same in every process
  for _, name in ipairs(names) do
    local value = given[name]
    local attribute = declared.attribute_position[name]
    if declared.list and name == declared.inputs[1].name then
      for i, spec in ipairs(value) do inputs[i] = make_tensor(spec, dtype) end
    elseif declared.input_position[name] then
      local is_shape = type(value) == "table"
      inputs[declared.input_position[name]] = is_shape and make_tensor(value, dtype) or value
    else
      values[assert(attribute, "no argument '" .. name .. "' in " .. declared.name)] = value
    end
  end
  -- Tensors that ops create have the dtype of the test too.
  local own = declared.attribute_position.dtype
  if own and #declared.inputs == 0 then values[own] = values[own] or dtype end
  return inputs, values
end

--- Applies an op with the random sequence started again; one that changes inputs in place gets
--- copies.
function M.apply(declared, inputs, values, seed)
  nn.seed(seed or 7)
  local mine, attributes = {}, {}
  for i = 1, table.maxn(inputs) do
    mine[i] = inputs[i]
    if declared.in_place and inputs[i] then mine[i] = inputs[i]:clone() end
  end
  for i = 1, table.maxn(values) do attributes[i] = values[i] end
  return op.invoke(declared.name, mine, attributes)
end

--- Calls f(declared, sample text) for every sample of every op that `wanted` accepts, except
--- samples that name a dtype in `without`.
function M.each(f, wanted, without)
  for _, declared in ipairs(nn.ops()) do
    if not wanted or wanted(declared) then
      for _, text in ipairs(declared.samples) do
        local left_out = false
        for _, dtype in ipairs(without or {}) do
          left_out = left_out or text:find("'" .. dtype .. "'", 1, true)
        end
        if not left_out then f(declared, text) end
      end
    end
  end
end

--- The inputs cut into random tiles, ragged ones among them. What an op changes in place, such as a
--- parameter and Adam's moments, must be cut alike.
function M.cut(declared, inputs, random)
  local out, shared = {}, nil
  for i = 1, table.maxn(inputs) do
    local x, input = inputs[i], declared.inputs[i]
    out[i] = x
    if nn.is_tensor(x) and #x.shape > 0 then
      local sizes = {}
      for axis, size in ipairs(x.shape) do sizes[axis] = random(0, size) end
      if input and input.in_place then shared = shared or sizes end
      out[i] = x:retile(input and input.in_place and shared or sizes)
    end
  end
  return out
end

--- A small random generator, which makes tests repeatable.
function M.random(seed)
  local state = seed
  return function(low, high)
    state = (state * 16807) % 2147483647
    return low + state % (high - low + 1)
  end
end

return M
