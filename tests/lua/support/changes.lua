-- Changes of tensors in place between an op and its backward(), for
-- tests/lua/library/inplace_before_backward.lua: every op of the registry that changes a tensor in
-- place, against the gradient rule of every op, on the samples in their declarations.
local nn = require "nn"
local op = require "nn.core.op"
local samples = require "samples"

local M = {}
local is_float = {f32 = true, f64 = true, bf16 = true}

-- Other values of a tensor, in the same range.
local function other_values(x)
  if x.dtype == "bool" then return x:logical_not() end
  if not is_float[x.dtype] then return (x:max() - x):to(x.dtype):expand(x.shape):clone() end
  return x * 0.5 + 0.25
end

-- Arguments of ops that change any tensor x: {other inputs}, {attributes by name}.
local arguments_of = {
  add_ = function(x) return {other_values(x) - x}, {} end,
  copy_ = function(x) return {other_values(x)}, {} end,
  fill_ = function(x) return {}, {value = is_float[x.dtype] and 0.6 or 1} end,
  normal_ = function() return {}, {} end,
  assign_ = function(x)
    local start = {}
    for i = 1, #x.shape do start[i] = 1 end
    return {other_values(x)}, {start = start}
  end,
}

-- The arguments of an optimizer's op that changes x, from its first sample: states and a gradient
-- of x's shape.
local function update_of(declared, x)
  local inputs, values = {}, {}
  for name, value in pairs(samples.parse(declared.samples[1])) do
    local position = declared.input_position[name]
    if position and position > 1 then
      inputs[position - 1] = nn.full_like(x, 0.5)
    elseif not position then
      values[name] = value
    end
  end
  return inputs, values
end

local function same_shape(x, spec)
  if #x.shape ~= #spec then return false end
  for i, size in ipairs(spec) do
    if x.shape[i] ~= size then return false end
  end
  return true
end

-- The arguments of an op that changes a cache, if x has the shape of a sample's.
local function cache_of(declared, x)
  for _, text in ipairs(declared.samples) do
    if same_shape(x, samples.parse(text).cache) then
      nn.seed(3)
      local inputs, values = samples.arguments(declared, text, x.dtype)
      local named = {}
      for name, i in pairs(declared.attribute_position) do named[name] = values[i] end
      return {unpack(inputs, 2, table.maxn(inputs))}, named
    end
  end
end

--- changes: the ops of the registry that change a tensor in place, by name -> f(x), which changes
--- x, or returns false if the op cannot.
M.changes = {}
for _, declared in ipairs(nn.ops()) do
  if declared.in_place then
    local own = arguments_of[declared.name]
    M.changes[declared.name] = function(x)
      local inputs, values
      if own then
        inputs, values = own(x)
      elseif not is_float[x.dtype] then
        return false
      elseif declared.changes_parameters then
        inputs, values = update_of(declared, x)
      else
        inputs, values = cache_of(declared, x)
      end
      if not inputs then return false end
      local all, attributes = {x}, {}
      for i = 1, table.maxn(inputs) do all[i + 1] = inputs[i] end
      for name, value in pairs(values) do attributes[declared.attribute_position[name]] = value end
      nn.no_grad(op.invoke, declared.name, all, attributes)
    end
  end
end

-- Samples for caches, whose shape no other sample has.
local extra = {mul = "{a={2,4,9,3}, b={2,4,9,3}}", exp = "{x={2,4,9,3}}"}

-- A tensor with x's values in its own memory; as_view: a view of it, and it.
local function own_copy(x, as_view)
  local source = x:clone()
  if not as_view then return source, source end
  source = nn.cat({source:reshape(-1), source:reshape(-1)}, 1):clone()
  return source:slice(1, 1, x:count()):reshape(x.shape), source
end

local arguments = {}             -- by op and sample

--- forward(declared, text, views) -> {inputs=, sources=, results=}: the op applied to a sample in
--- f64, whose float inputs need a gradient. views: inputs are views of sources.
function M.forward(declared, text, views)
  local key = declared.name .. text
  if not arguments[key] then
    nn.seed(5)
    arguments[key] = {samples.arguments(declared, text, "f64")}
  end
  local inputs, values = arguments[key][1], {}
  for i = 1, table.maxn(arguments[key][2]) do values[i] = arguments[key][2][i] end
  local run = {inputs = {}, sources = {}, leaves = {}}
  for i = 1, table.maxn(inputs) do
    local x = inputs[i]
    if nn.is_tensor(x) then
      x, run.sources[i] = own_copy(x, views and #x.shape > 0)
      if is_float[x.dtype] then
        x.requires_grad = true
        run.leaves[#run.leaves + 1] = i
      end
    end
    run.inputs[i] = x
  end
  nn.seed(7)
  run.results = {op.invoke(declared.name, {unpack(run.inputs, 1, table.maxn(inputs))}, values)}
  return run
end

--- weights(y) -> the gradient with which backward() of y starts.
function M.weights(y)
  if #y.shape == 0 then return nn.full_like(y, 0.7) end
  return nn.arange(y:count(), {dtype = "f64"}):sin():reshape(y.shape):to(y.dtype)
end

--- gradients(run) -> the gradients of the inputs, by position.
function M.gradients(run)
  local out = {}
  for _, i in ipairs(run.leaves) do out[i] = run.inputs[i].grad end
  return out
end

--- same(a, b) -> whether two results of gradients() are equal, up to rounding.
function M.same(a, b)
  for i, x in pairs(a) do
    if not b[i] then return false end
    local u, n = x:numbers()
    local v = b[i]:numbers()
    for j = 0, n - 1 do
      if not (u[j] == v[j] or math.abs(u[j] - v[j]) <= 1e-12 * math.max(1, math.abs(v[j]))
              or u[j] ~= u[j] and v[j] ~= v[j]) then
        return false
      end
    end
  end
  for i in pairs(b) do
    if not a[i] then return false end
  end
  return true
end

--- tensor(run, victim) -> the tensor.
function M.tensor(run, victim)
  return victim.where == "input" and run.sources[victim.at] or run.results[victim.at]
end

--- is_read(case) -> whether the rule reads the values of this tensor: whether other ones, put into
--- the node in place of it, change a gradient. true if unknown.
function M.is_read(case)
  local run, victim = M.forward(case.declared, case.text), case.victim
  local y = run.results[case.k]
  local node = y.node
  local list = victim.where == "input" and node.inputs or node.results
  local before = list[victim.at]
  if not before then return false end
  local other = other_values(before:detach()):clone()
  if before.requires_grad then
    other.requires_grad = true
    run.inputs[victim.at] = other
  end
  list[victim.at] = other
  local good = pcall(y.backward, y, M.weights(y))
  return not good or not M.same(M.gradients(run), case.expected)
end

-- The tensors that a rule may read: {{where = "input", at = 1, name = "x"}, ...}.
local function victims_of(declared, run)
  local out = {}
  for i = 1, table.maxn(run.inputs) do
    if nn.is_tensor(run.inputs[i]) then
      local name = declared.list and declared.inputs[1].name .. " " .. i or declared.inputs[i].name
      out[#out + 1] = {where = "input", at = i, name = name}
    end
  end
  for k, output in ipairs(declared.outputs) do
    if run.results[k] then out[#out + 1] = {where = "result", at = k, name = output.name} end
  end
  return out
end

-- The cases of one sample: of each result through which a gradient flows, and each victim.
local function add_cases(list, declared, text)
  local run = M.forward(declared, text)
  for k, output in ipairs(declared.outputs) do
    if run.results[k] and output.differentiable and is_float[run.results[k].dtype] then
      local once = k == 1 and run or M.forward(declared, text)
      once.results[k]:backward(M.weights(once.results[k]))
      local expected = M.gradients(once)
      for _, victim in ipairs(victims_of(declared, run)) do
        list[#list + 1] = {declared = declared, text = text, k = k, victim = victim,
                           expected = expected,
                           title = ("%s %s, %s %s"):format(declared.name, text, victim.where,
                                                           victim.name)}
      end
    end
  end
end

--- rules() -> a list for each differentiable op: {{declared=, text=, k=, victim=, expected=,
--- title=}, ...}, a case for each sample, each result k that is differentiated, and each tensor
--- that the rule may read. expected: the gradients.
function M.rules()
  local lists, of_name = {}, {}
  samples.each(function(declared, text)
    local list = of_name[declared.name] or {}
    if #list == 0 then lists[#lists + 1], of_name[declared.name] = list, list end
    add_cases(list, declared, text)
    if extra[declared.name] and text == declared.samples[1] then
      add_cases(list, declared, extra[declared.name])
    end
  end, function(declared)
    return not declared.no_gradient and not declared.in_place and #declared.inputs > 0
  end, {"bf16", "i32"})
  return lists
end

return M
