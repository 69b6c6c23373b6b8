-- Convolutions, pooling, normalisation and recurrent layers against PyTorch's numbers
-- (tests/golden/make_layers.py), whole and in ragged tiles, eager and compiled; what modules have
-- beside parameters: buffers, hooks, conversion, fields.

local nn = require "nn"
local t = require "nn.test"
local files = require "nn.io.files"
local safetensors = require "nn.io.safetensors"
local file = package.loaded["nn.host"].root .. "/tests/golden/layers.safetensors"

local golden = nn.load_safetensors(file)
local cases = files.parse_json(safetensors.open(file).metadata.config)

-- Largest difference over the largest expected value, or 1.
local function close(got, expected, tolerance, what)
  if table.concat(got.shape, ",") ~= table.concat(expected.shape, ",") then
    error(("%s has shape (%s)"):format(what, table.concat(got.shape, ",")), 0)
  end
  local scale = math.max(expected:abs():max():item(), 1)
  local off = (got:to "f64" - expected:to "f64"):abs():max():item() / scale
  if off <= tolerance then return end   -- a NaN fails
  error(("%s is off by %.2g relative; %g is allowed"):format(what, off, tolerance), 0)
end

local function layer_of(name)
  local case = cases[name]
  local arguments = {unpack(case.arguments)}
  if next(case.options) then arguments[#arguments + 1] = case.options end
  local layer, state = nn[case.class](unpack(arguments)), {}
  for _, p in ipairs(layer:parameters()) do
    state[p.path] = golden[name .. "/weight/" .. p.path] or error("no weight " .. p.path)
  end
  for _, p in ipairs(layer:state()) do state[p.path] = state[p.path] or p.tensor:clone() end
  layer:load(state)
  return layer
end

-- The results of a layer, after the backward pass of their sum times dy.
local function run(name, layer, x)
  local results, loss = {layer(x)}, nil
  for i, y in ipairs(results) do
    local term = (y * golden[name .. "/dy" .. i]:to(y.dtype)):sum()
    loss = loss and loss + term or term
  end
  loss:backward()
  return results
end

local function check(name, layer, x, results, dx, grads)
  for i, y in ipairs(results) do close(y, golden[name .. "/y" .. i], 2e-6, name .. " y" .. i) end
  if golden[name .. "/y" .. #results + 1] then error(name .. " returns too few results", 0) end
  close(dx or x.grad, golden[name .. "/dx"], 1e-5, name .. " dx")
  for i, p in ipairs(layer:parameters()) do
    close(grads and grads[i] or p.tensor.grad, golden[name .. "/grad/" .. p.path], 1e-5,
          name .. " d" .. p.path)
  end
  if golden[name .. "/eval"] then
    close(layer.running_mean, golden[name .. "/running_mean"], 1e-6, name .. " running_mean")
    close(layer.running_var, golden[name .. "/running_var"], 1e-6, name .. " running_var")
    nn.training(false)
    close(layer(x), golden[name .. "/eval"], 2e-6, name .. " in evaluation")
    nn.training(true)
  end
end

local function leaf(x)
  x = x:clone()
  x.requires_grad = true
  return x
end

-- x with its first axis cut at random.
local function cut(x)
  local sizes = {math.random(1, x:dim(1))}
  for i = 2, #x.shape do sizes[i] = math.random(0, x:dim(i)) end
  return x:retile(sizes)
end

local names = {}
for name in pairs(cases) do names[#names + 1] = name end
table.sort(names)

t.case("layers equal PyTorch's: results, gradients, running statistics", function()
  for _, name in ipairs(names) do
    local layer, x = layer_of(name), leaf(golden[name .. "/x"])
    check(name, layer, x, run(name, layer, x))
  end
end)

t.case("layers equal PyTorch's for tiles cut at random", function()
  for _, name in ipairs(names) do
    local layer, x = layer_of(name), leaf(cut(golden[name .. "/x"]))
    check(name, layer, x, run(name, layer, x))
  end
end)

t.case("compiled layers equal PyTorch's, and update their running statistics", function()
  for _, name in ipairs(names) do
    local layer = layer_of(name)
    local step = nn.compile(function(x)
      x.requires_grad = true
      local out = run(name, layer, x)
      out[#out + 1] = x.grad
      for _, p in ipairs(layer:parameters()) do out[#out + 1] = p.tensor.grad end
      return unpack(out)
    end)
    local out, parameters = {step(golden[name .. "/x"])}, #layer:parameters()
    local grads = {unpack(out, #out - parameters + 1)}
    local results = {unpack(out, 1, #out - parameters - 1)}
    check(name, layer, golden[name .. "/x"], results, out[#out - parameters], grads)
  end
end)

-- Sum of all results times fixed random numbers, so that no gradient is 0 by symmetry.
local function total(...)
  local sum = 0
  for i, y in ipairs {...} do
    nn.seed(i)
    sum = sum + (y * nn.randn(y.shape, {dtype = "f64"})):sum()
  end
  return sum
end

t.case("gradients of layers are those of finite differences in f64", function()
  local makers = {
    {{2, 4, 5, 4}, function()
      return nn.Conv2d(4, 6, {3, 2}, {groups = 2, padding = "same", dtype = "f64"})
    end},
    {{2, 3, 6}, function() return nn.Conv1d(3, 2, 2, {stride = 2, padding = 1, dtype = "f64"}) end},
    {{1, 2, 5, 6}, function() return nn.MaxPool2d({3, 2}, {stride = 2, padding = 1}) end},
    {{1, 2, 5, 6}, function() return nn.AvgPool2d(3, {padding = 1, count_include_pad = false}) end},
    {{3, 2, 2, 2}, function() return nn.BatchNorm2d(2, {dtype = "f64"}) end},
    {{2, 4, 3}, function() return nn.GroupNorm(2, 4, {dtype = "f64"}) end},
    {{2, 3, 2}, function()
      return nn.LSTM(2, 3, {bidirectional = true, dtype = "f64"})
    end},
    {{2, 3, 2}, function() return nn.GRU(2, 3, {dtype = "f64"}) end},
    {{2, 3, 2}, function() return nn.RNN(2, 3, {dtype = "f64"}) end},
  }
  for _, maker in ipairs(makers) do
    nn.seed(3)
    local layer = maker[2]()
    local parameters, inputs = layer:parameters(), {nn.randn(maker[1], {dtype = "f64"})}
    for i, p in ipairs(parameters) do inputs[i + 1] = p.tensor end
    t.gradcheck(function(x, ...)
      for i, p in ipairs(parameters) do layer[p.path] = (select(i, ...)) end
      return total(layer(x))
    end, inputs)
  end
end)

t.case("wrong windows, groups, channels and states are errors that say what fits", function()
  local image, sequence = nn.zeros(2, 3, 4, 5), nn.zeros(2, 7, 3)
  for _, mistake in ipairs {
    {"groups = 2 does not divide 3 channels", function() nn.Conv2d(3, 4, 3, {groups = 2}) end},
    {"Conv2d: x is (2,3,4,5); the layer has 2 channels", function() nn.Conv2d(2, 4, 3)(image) end},
    {"weight must be (outputs, 3, height, width)", function()
      nn.conv2d(image, nn.zeros(4, 2, 3, 3))
    end},
    {"conv1d: x is (2,7,3), weight is (4,2,3); with groups = 1 weight must be (outputs, 7, taps)",
     function() nn.conv1d(sequence, nn.zeros(4, 2, 3)) end},
    {"MaxPool2d: options are a table {name = value, ...}, not 2; choose one of padding, stride",
     function() nn.MaxPool2d(2, 2) end},
    {"the window spans 5 elements, x with its padding has 4", function()
      nn.Conv2d(3, 4, 5)(image)
    end},
    {"same padding needs a stride of 1", function()
      nn.Conv2d(3, 4, 3, {padding = "same", stride = 2})(image)
    end},
    {"it may be at most half of the size", function() nn.max_pool2d(image, 2, {padding = 2}) end},
    {"padding is (0,2,0,0); it may be at most half of the size (3,2)", function()
      nn.pool2d(image, {size = {3, 2}, padding = {0, 2, 0, 0}})
    end},
    {"Conv1d: x is (2,3,4,5); a tensor of 3 axes", function() nn.Conv1d(3, 2, 2)(image) end},
    {"conv1d: x is (2,3,4,5); a tensor of 3 axes is needed", function()
      nn.conv1d(image, nn.zeros(4, 3, 2))
    end},
    {"Conv1d: the size is nil", function() nn.Conv1d(3, 2) end},
    {"momentum is 'fast'; a number of at least 0 is needed", function()
      nn.BatchNorm2d(3, {momentum = "fast"})
    end},
    {"3 parts of 4 elements would differ", function() nn.adaptive_avg_pool2d(image, 3) end},
    {"the layer has 4 channels, on axis 2", function() nn.BatchNorm2d(4)(image) end},
    {"a tensor of 2 to 3 axes", function() nn.BatchNorm1d(3)(image) end},
    {"training needs more than one value for each channel", function()
      nn.BatchNorm1d(3)(nn.zeros(1, 3))
    end},
    {"2 groups do not divide 3 channels", function() nn.GroupNorm(2, 3) end},
    {"(batch, time, 4) is needed", function() nn.LSTM(4, 2)(sequence) end},
    {"the state h is (2,2); it must be (1,2,2)", function()
      nn.GRU(3, 2)(sequence, nn.zeros(2, 2))
    end},
    {"LSTMCell: x is (2,3); (batch, 4) is needed", function()
      nn.LSTMCell(4, 2)(nn.zeros(2, 3))
    end},
    {"batch_first = false is not supported", function() nn.RNN(3, 2, {batch_first = false}) end},
  } do
    t.fails(mistake[2], mistake[1])
  end
end)

local function small()
  return nn.Sequential{nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.relu, nn.MaxPool2d(2),
                       nn.Flatten(), nn.Linear(2, 3)}
end

t.case("buffers are in checkpoints and load(), not among the parameters", function()
  local x, model = nn.randn(4, 1, 5, 4), small()
  local optim = nn.AdamW(model, {lr = 1e-2})
  local function step_of(net, optimizer)
    return nn.compile(function(v)
      local loss = net(v):square():mean()
      loss:backward()
      return loss, optimizer:step()
    end)
  end
  local step = step_of(model, optim)
  for _ = 1, 3 do step(x) end
  local path = nn.save_checkpoint(t.folder(), {step = 3, model = model, optim = optim})
  local other = small()
  local other_optim = nn.AdamW(other, {lr = 1e-2})
  nn.open_checkpoint(path):restore {model = other, optim = other_optim}
  t.same(other[2].running_mean, model[2].running_mean)
  t.check(other[2].running_mean:abs():max():item() > 0, "the running mean did not change")
  local other_step = step_of(other, other_optim)
  for _ = 1, 2 do t.same((step(x)), (other_step(x))) end
  t.same(other[2].running_var, model[2].running_var)
  local third = small()
  third:load(model)
  t.same(third[2].running_var, model[2].running_var)
  t.same(#model:state() - #model:parameters(), 2)
  t.fails(function() nn.buffer(nn.parameter({2})) end, "requires a gradient")
  t.fails(function() third:register_buffer("to", nn.zeros(1)) end, "has a 'to' already")
end)

t.case("model:to converts parameters, float buffers and what is compiled", function()
  local model, x = small(), nn.randn(4, 1, 5, 4)
  local weight, f = model[1].weight, nn.compile(function(v) return (model(v)) end)
  local before = f(x)
  model:to "bf16"
  t.same({weight.dtype, model[2].running_mean.dtype, weight.requires_grad},
         {"bf16", "bf16", true})
  local wide = model:to "f64"
  t.check(wide == model and rawequal(weight, model[1].weight), "to() is not in place")
  t.near(f(x:to "f64"), before:to "f64", {abs = 0.05})
  t.near(f(x:to "f64"), model(x:to "f64"), {abs = 1e-12})
  local layer = nn.Linear(3, 2)
  local optim = nn.AdamW(layer, {lr = 1e-3})
  layer:to "bf16"
  layer(nn.ones(1, 3):to "bf16"):sum():backward()
  t.fails(function() optim:step() end, "'weight' became bf16 after the optimizer was created")
  t.fails(function() model:to "cuda" end, "there are no devices")
  t.fails(function() model:to "i32" end, "f32")
end)

t.case("frozen parameters stay in the state and do not train, also in compiled steps", function()
  local model, x = small(), nn.randn(4, 1, 5, 4)
  local optim = nn.SGD(model, {lr = 0.1})
  local step = nn.compile(function(v)
    local loss = model(v):square():mean()
    loss:backward()
    return loss, optim:step()
  end)
  step(x)
  model[1]:requires_grad_(false)
  local frozen, free = model[1].weight:clone(), model[6].weight:clone()
  step(x)
  t.same(model[1].weight, frozen)
  t.check((model[6].weight - free):abs():max():item() > 0, "nothing trains")
  t.same({#model:parameters(), #model[1]:parameters()}, {6, 2})
  model:requires_grad_()
  step(x)
  t.check((model[1].weight - frozen):abs():max():item() > 0, "the weight is still frozen")
end)

t.case("hooks see and replace inputs, results and gradients, until they are removed", function()
  local layer, x, log = nn.Linear(3, 2), nn.tensor({{1, 2, 3}}, {grad = true}), {}
  local plain = layer(x)
  local handles = {
    layer:register_forward_pre_hook(function(_, inputs)
      log[#log + 1] = "pre"
      return {inputs[1] * 2}
    end),
    layer:register_forward_hook(function(module, inputs, output)
      log[#log + 1] = "forward"
      t.same({module == layer, inputs[1]}, {true, x:detach() * 2})
      return output * 3
    end),
    layer:register_full_backward_hook(function(_, g_input, g_output)
      log[#log + 1] = "backward"
      t.same(g_output, {{1, 1}})
      t.near(g_input, nn.ones(1, 2):matmul(layer.weight:detach()) * 3)
      return g_input * 0 + 1
    end),
  }
  local y = layer(x)
  t.near(y, plain:detach() * 6, {rel = 1e-5, abs = 1e-6})
  y:sum():backward()
  t.same(x.grad, {{2, 2, 2}})
  t.same(table.concat(log, " "), "pre forward backward")
  for _, handle in ipairs(handles) do handle:remove() end
  t.same({rawget(layer, "_hooks") == nil, layer(x)}, {true, plain:detach()})
  local compiled = nn.compile(function(v) return (layer(v)) end)
  t.near(compiled(x:detach()), plain:detach())
  local handle = layer:register_forward_hook(function(_, _, output) return output * 3 end)
  t.near(compiled(x:detach()), plain:detach() * 3)
  handle:remove()
  t.near(compiled(x:detach()), plain:detach())
  t.fails(function()
    local lstm = nn.LSTM(3, 2)
    lstm:register_full_backward_hook(print)
    lstm(nn.zeros(1, 2, 3))
  end, "LSTM: a full backward hook needs a module that returns one tensor; it returns 3")
end)

t.case("a misspelt field of a module is an error; optional and other fields are nil", function()
  local layer = nn.Linear(3, 2, {bias = false})
  t.fails(function() return layer.wieght end,
          "Linear has no field 'wieght'; did you mean 'weight'?")
  t.fails(function() return layer:paramters() end, "did you mean 'parameters'?")
  t.same({layer.bias == nil, layer.glu == nil, layer.head == nil, layer.w1 == nil,
          rawget(layer, "wieght") == nil}, {true, true, true, true, true})
  local Block = nn.module "Block"
  function Block:init(gated) self.norm1, self.scale = nn.Identity(), gated and 1 or nil end
  local block = Block()
  block.scales = 2
  t.same({block.scale == nil, block.norm2 == nil}, {true, true})
end)

t.case("modules are listed, applied to, and printed in the order of their fields", function()
  local Net = nn.module "Net"
  function Net:init()
    self.zoom = nn.Linear(2, 3)
    self.blocks = nn.list(2, function() return nn.BatchNorm1d(3) end)
    self.after = nn.Linear(3, 1)
    self.act = nn.relu
  end
  local net, paths, applied = Net(), {}, {}
  for i, entry in ipairs(net:modules()) do paths[i] = entry.path end
  t.same(paths, {"", "after", "blocks.1", "blocks.2", "zoom"})
  t.same(#nn.Sequential{net, nn.relu}:children(), 1)
  net:apply(function(m) applied[#applied + 1] = m.class_name end)
  t.same(table.concat(applied, " "), "Linear BatchNorm1d BatchNorm1d Linear Net")
  local order = {}
  for name in tostring(net):gmatch "\n *([%w_]+):" do order[#order + 1] = name end
  t.same(table.concat(order, " "), "zoom weight bias blocks weight bias running_mean running_var "
                                   .. "after weight bias")
end)

t.finish()
