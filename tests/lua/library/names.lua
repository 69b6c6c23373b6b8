-- The names that users of PyTorch type: each exists, or its error says what to write.
local nn = require "nn"
local t = require "nn.test"
local json = require "nn.io.json"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local names = require "pytorch_names"
local pytorch = require "nn.base.pytorch"
local suggest = require "nn.base.suggest"

local x, model = nn.ones(2, 2), nn.Linear(2, 2)
local objects = {Tensor = x, Module = model}
local redirects = {Tensor = pytorch.tensor, Module = pytorch.model}

local function has(object, name)
  if object == x and (name == "grad" or name == "requires_grad") then return true end
  local good, value = pcall(function() return object[name] end)
  return good and value ~= nil, tostring(value)
end

-- {{family, name, exists, error}, ...}
local list = {}
for _, family in ipairs(names) do
  for name in family[2]:gmatch "%S+" do
    local exists, problem = has(objects[family[1]] or nn, name)
    list[#list + 1] = {family[1], name, exists, problem}
  end
end

t.case("at least 285 of 322 names of PyTorch exist, or their error says what to write", function()
  local exist, redirected, missing = 0, 0, {}
  for _, entry in ipairs(list) do
    local family, name, exists, problem = unpack(entry)
    local hint = (redirects[family] or pytorch.library)[name]
    if exists then
      exist = exist + 1
    elseif hint or problem:find "; use " then
      redirected = redirected + 1
      t.check(family == "Module" or not hint or problem:find(hint, 1, true), problem)
    else
      missing[#missing + 1] = family .. "." .. name
    end
  end
  print(("%d exist, %d are redirected, %d are missing: %s"):format(
    exist, redirected, #missing, table.concat(missing, " ")))
  t.same(#list, 322)
  t.check(exist + redirected >= 285, "only " .. exist + redirected)
end)

t.case("what an error says to write exists", function()
  local text = require("nn.io.files").read(root .. "/lua/nn/base/hints.lua")
  for kind, hints in pairs {tensor = pytorch.tensor, library = pytorch.library,
                            model = pytorch.model} do
    for name, hint in pairs(hints) do
      for object, called in hint:gmatch "(%w+)[.:]([%a_][%w_]*)" do
        local known = ({nn = nn, x = x, model = model})[object]
        if known then
          t.check(has(known, called), ("%s: %s: %s"):format(kind, name, hint))
        end
      end
    end
  end
  for called in text:gmatch "x:([%a_]+)" do t.check(has(x, called), called) end
end)

t.case("names with a hint do not exist", function()
  for kind, object in pairs {tensor = x, library = nn, model = model, optimizer = nn.SGD(model)} do
    for name in pairs(pytorch[kind]) do
      t.check(not has(object, name), ("%s '%s' exists"):format(kind, name))
    end
  end
  for name in pairs(pytorch.missing) do t.check(not has(nn, name) and not has(x, name), name) end
end)

t.case("code in hints runs", function()
  local known = {
    nn = nn, x = x, y = nn.ones(2, 2) * 0.5, w = nn.Linear(2, 2).weight, model = nn.Linear(2, 2),
    optim = nn.SGD(model), a = 1, b = 2, n = 2, t = 0, axis = 1, axes = {1, 2}, shape = {2, 2},
    counts = {1, 2}, min = 0, max = 1, first = 1, last = 2, count = 2, value = 3, channels = 2,
    classes = 2, weight = 0.1, dtype = "f64", widths = {1, 0}, X = x, Y = {1, 2}, gradient = x,
    f = function(i) return type(i) == "number" and {x = i} or i:sum() end,
    ids = nn.tensor({1, 0}, {dtype = "i64"}), index = nn.tensor({{1, 0}}, {dtype = "i64"}),
    mask = x:gt(0), share = 0.5, loader = nn.data {arrays = {x = x}}, tostring = tostring,
  }
  known.array, known.state = x:to "f64":host(), known.model:state()
  local ran = 0
  for _, kind in ipairs {"tensor", "library", "model"} do
    for name, hint in pairs(pytorch[kind]) do
      local needs_file = hint:find "folder" or hint:find "generate"
      local f = not needs_file and loadstring("return " .. hint)
      if f then
        local good, problem = pcall(function() tostring((setfenv(f, known)())) end)
        t.check(good, ("%s: %s: %s"):format(name, hint, tostring(problem)))
        ran = ran + 1
      end
    end
  end
  t.check(ran > 120, ran)
end)

t.case("the error of a name of PyTorch never suggests another function", function()
  for _, entry in ipairs(list) do
    t.check(entry[3] or not entry[4]:find "did you mean", entry[4])
  end
  for name in pairs(pytorch.missing) do
    for _, object in ipairs {nn, x} do
      local exists, problem = has(object, name)
      t.check(exists or not problem:find "did you mean", problem)
    end
  end
  for name, other in pairs {randint = "randn", median = "mean", any = "var", tan = "max"} do
    t.same(suggest.nearest(name, {[other] = true}), nil)
  end
  for typo, name in pairs {sotfmax = "softmax", embeding = "embedding", usm = "sum"} do
    t.same(suggest.nearest(typo, {[name] = true}), name)
  end
end)

-- tests/golden/make_names.py
local golden = json.read(root .. "/tests/golden/names.json")

for _, case in ipairs(golden.cases) do
  t.case(case.lua .. " has PyTorch's values, dtype, shape and gradient", function()
    local inputs = {nn = nn, math = math, select = select,
                    ids = nn.tensor(golden.ids, {dtype = "i64"})}
    for name, values in pairs(golden.inputs) do inputs[name] = nn.tensor(values) end
    inputs.x.requires_grad = true
    local y = setfenv(assert(loadstring("return " .. case.lua)), inputs)()
    t.same({y.dtype, y.shape}, {case.dtype, case.shape})
    local function flat(tensor) return tensor:to("f64"):reshape(-1) end
    t.near(flat(y), nn.tensor(case.values, {dtype = "f64"}), {rel = 2e-6, abs = 2e-6})
    if not case.grad then return end
    local n = y:count()
    local weights = nn.arange(n, {start = 0.5}):reshape(y.shape);
    (y * weights):sum():backward()
    t.near(flat(inputs.x.grad), nn.tensor(case.grad, {dtype = "f64"}), {rel = 1e-5, abs = 1e-5})
  end)
end

t.finish()
