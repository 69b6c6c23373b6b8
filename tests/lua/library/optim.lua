-- Optimizers against torch.optim in float64 (tests/golden/make_optim.py), groups of parameters, the
-- warning about gradients that were not cleared, backward(gradient), clipping, initial weights.
local nn = require "nn"
local t = require "nn.test"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local path = package.loaded["nn.host"].root .. "/tests/golden/optim.safetensors"
local golden = nn.load_safetensors(path)
local config = files.parse_json(require("nn.io.safetensors").open(path).metadata.config)

-- PyTorch's options as nnlua's. Weight decay applies to all parameters.
local function options_of(torch)
  local out = {decay_filter = function() return true end}
  for name, value in pairs(torch) do
    if name == "betas" then out.beta1, out.beta2 = unpack(value) else out[name] = value end
  end
  return out
end

-- w after each step of optimizer number i. how: dtype; steps (20); tiles, the sizes of w's tiles;
-- compiled.
local function train(i, how)
  local name, torch = unpack(config.optimizers[i])
  local w = golden.start:to(how.dtype):clone()
  if how.tiles then w = w:retile(how.tiles) end
  w.requires_grad = true
  local optim, out = nn[name]({w = w}, options_of(torch)), {}
  local function step(scale)
    optim:zero_grad()
    local loss = ((w * w * scale):sum()) / 2
    loss:backward()
    return optim:step()
  end
  if how.compiled then step = nn.compile(step) end
  for k = 1, how.steps or 20 do
    step(golden.scales:slice(1, k, k):reshape(3, 4):to(how.dtype))
    out[k] = w:detach():clone()
  end
  return out, optim
end

local function each(f)
  t.check(#config.optimizers == 13, "optimizers are missing")
  for i, entry in ipairs(config.optimizers) do
    local good, problem = pcall(f, i, golden["optimizer/" .. i])
    if not good then error(("%d, %s: %s"):format(i, entry[1], tostring(problem)), 0) end
  end
end

t.case("optimizers follow torch.optim over 20 steps in f64 and f32", function()
  each(function(i, want)
    for dtype, tolerance in pairs {f64 = 1e-12, f32 = 2e-5} do
      for k, w in ipairs(train(i, {dtype = dtype})) do
        t.near(w, want:slice(1, k, k):reshape(3, 4), {rel = tolerance, abs = tolerance})
      end
    end
  end)
end)

t.case("a bf16 parameter with a master weight stays near torch.optim in float64", function()
  each(function(i, want)
    local values, optim = train(i, {dtype = "bf16"})
    local name = config.optimizers[i][1]
    -- Lion moves by lr = 0.01 against a sign, which roundings change where it is near 0.
    t.near(values[20], want:slice(1, 20, 20):reshape(3, 4),
           {rel = 0.02, abs = name == "Lion" and 0.05 or 0.02})
    if name == "SGD" then return end
    local master = optim:state()[#optim:state()]
    t.same(master.path, "w.master")
    t.same(master.tensor.dtype, "f32")
    t.same(master.tensor:to "bf16", values[20])
  end)
end)

t.case("tiles and compilation change no bit of an optimizer's steps", function()
  each(function(i)
    for dtype, tiles in pairs {f32 = {1, 1}, bf16 = {2, 3}} do
      local whole = train(i, {dtype = dtype, steps = 5})[5]
      local how = {dtype = dtype, steps = 5, tiles = tiles, compiled = dtype == "bf16"}
      t.same(train(i, how)[5], whole)
    end
  end)
end)

t.case("groups have their own rates and decays, which compiled steps follow", function()
  local a, b = nn.ones(2, {grad = true}), nn.ones(2, {grad = true})
  local optim = nn.SGD({{params = {a}, lr = 0.5}, {params = {b}, weight_decay = 0.5}},
                       {lr = 0.25, weight_decay = 8})       -- not of vectors
  local step = nn.compile(function()
    optim:zero_grad();
    (a + b):sum():backward()
    return optim:step()
  end)
  step()
  t.near({a:table(), b:table()}, {{0.5, 0.5}, {0.625, 0.625}})
  t.fails(function() optim.lr = 1 end, "SGD: groups 1 and 2 have different rates, 0.5 and 0.25; "
          .. "set optim.groups[2].lr, or use a scheduler")
  optim.groups[1].lr, optim.groups[2].lr = 0, 1
  step()
  t.near({a:table(), b:table()}, {{0.5, 0.5}, {-0.6875, -0.6875}})
  optim.groups[1].lr = 1
  optim.lr = 0.125
  t.same({optim.lr, optim.groups[1].lr, optim.groups[2].lr}, {0.125, 0.125, 0.125})
  t.same(tostring(optim), "SGD of 2 parameters: clip=0, lr=0.125,0.125, momentum=0, "
         .. "nesterov=false, skip_nonfinite=false, weight_decay=8")
  local function says(groups, text) t.fails(function() nn.SGD(groups) end, text) end
  says({{params = {a}}, {params = {a}}}, "SGD: group 2: '1' is in group 1, too")
  says({{params = {a}}, {params = {b}, clip = 1}}, "SGD: group 2: has no option 'clip'")
  says({{params = {a}}, {params = 3}}, "SGD: group 2: 3 is given; a model, a list")
  says({{params = {a}}, {b}}, "SGD: group 2: options are a table")
  says({{params = {a}, lr = -1}}, "SGD: group 1: lr is -1; a number of at least 0 is needed")
  t.fails(function() optim.groups[1].weight_decay = 1 end, "cannot be set, only lr")
  t.fails(function() return optim.param_groups end, "SGD has no 'param_groups'; use optim.groups")
end)

local Pair = nn.module "Pair"
function Pair:init() self.one, self.two = nn.Linear(3, 3), nn.Linear(3, 1) end
function Pair:forward(x) return self.two(self.one(x)):square():sum() end

t.case("a checkpoint resumes every optimizer and the rates of its groups exactly", function()
  local folder, x = t.folder(), nn.rand(4, 3)
  for _, name in ipairs {"Adam", "SGD", "RMSprop", "Adagrad", "Lion"} do
    local more = {lr = 0.01, momentum = name == "RMSprop" and 0.9 or nil,
                  centered = name == "RMSprop" or nil}
    local function new()
      local model = Pair()
      return model, nn[name]({{params = model.one, lr = 0.02}, {params = model.two}}, more)
    end
    local function steps(model, optim)
      for _ = 1, 3 do
        optim:zero_grad()
        model(x):backward()
        optim:step()
      end
    end
    local model, optim = new()
    steps(model, optim)
    optim.groups[2].lr = 0.03
    local saved = nn.save_checkpoint(files.join(folder, name),
                                     {step = 3, model = model, optim = optim})
    steps(model, optim)
    local twin, resumed = new()
    nn.open_checkpoint(saved):restore {model = twin, optim = resumed}
    t.same({resumed.groups[1].lr, resumed.groups[2].lr}, {0.02, 0.03})
    steps(twin, resumed)
    for i, p in ipairs(model:parameters()) do t.same(twin:parameters()[i].tensor, p.tensor) end
    t.fails(function() nn[name](twin, more):set_numbers(optim:numbers()) end,
            "its number of groups is 2; 1 are needed")
  end
end)

t.case("clip, skip_nonfinite and decay_filter work in every optimizer", function()
  for _, name in ipairs {"Adam", "RMSprop", "Adagrad", "Lion"} do
    local function moved(scale, options)
      local w = nn.tensor({{3, -4}}, {grad = true})
      local optim = nn[name]({w = w}, options);
      (w * scale):sum():backward()
      optim:step()
      return w:detach(), optim:state()[1].tensor
    end
    local _, clipped = moved(nn.tensor{{60, 80}}, {clip = 5})
    local _, small = moved(nn.tensor{{3, 4}}, {})
    t.near(clipped, small, {rel = 1e-6})
    local w, state = moved(nn.tensor{{1, 0 / 0}}, {skip_nonfinite = true})
    t.same({w:table(), state:table()}, {{{3, -4}}, {{0, 0}}})
    local decay = {weight_decay = 0.5, decay_filter = function(p) return p.path ~= "w" end}
    t.same(moved(nn.ones(1, 2), decay), (moved(nn.ones(1, 2), {})))
  end
end)

-- The number of warnings in f().
local function warnings(f)
  local count, warn_once = 0, lib.warn_once
  lib.warn_once = function() count = count + 1 end
  local good, problem = pcall(f)
  lib.warn_once = warn_once
  if not good then error(problem, 0) end
  return count
end

t.case("gradients that a step uses a second time are noticed, accumulation is not", function()
  local w = nn.ones(2, {grad = true})
  local optim = nn.SGD({w}, {lr = 0.1})
  local function backward() w:square():sum():backward() end
  t.same(warnings(function()
    for _ = 1, 3 do                          -- accumulation, clipping, another loss after the step
      optim:zero_grad {set_to_none = true}
      backward()
      backward()
      nn.clip_grad_norm_({w}, 1)
      optim:step()
      backward()
    end
    w.grad = nil
    backward()
    optim:step()
    nn.compile(function() backward() return optim:step() end)()
    nn.grad(function(v) return (v * w):sum() end)(nn.ones(2))
  end), 0)
  local function twice()
    for _ = 1, 2 do
      backward()
      nn.clip_grad_value_({w}, 1)
      optim:step()
    end
    return w + 0
  end
  optim:zero_grad()
  t.same(warnings(twice), 1)
  optim:zero_grad()
  t.same(warnings(nn.compile(twice)), 1)
  t.fails(function() optim:zero_grad {set_to_none = false} end, "cleared gradients are nil")
end)

t.case("a forgotten zero_grad is warned about once, with the line of the step", function()
  local script = files.join(t.folder(), "forgets.lua")
  files.write(script, [[local nn = require "nn"
local w = nn.ones(2, {grad = true})
local optim = nn.SGD({w}, {lr = 1})
for _ = 1, 3 do
  w:sum():backward()
  optim:step()
end
]])
  local status, text = t.shell("$NNLUA " .. script)
  t.same(status, 0)
  t.same(text, "warning: " .. script .. ":6: this step uses the gradients of an earlier step "
         .. "again, because backward() added to them; call optim:zero_grad() before backward()\n")
end)

t.case("backward(gradient) is the gradient of the sum of y times gradient", function()
  local x, g = nn.randn(3, 4, {grad = true, dtype = "f64"}), nn.randn(3, 4, {dtype = "f64"})
  for _, f in ipairs {function(v) return v:tanh() end, function(v) return v:clone() end,
                      function(v) return v + 1 end, function(v) return v:t():t() end} do
    x.grad = nil;
    (f(x) * g):sum():backward()
    local want = x.grad
    x.grad = nil
    local before, y = g:clone(), f(x)
    y:backward(g, {retain = true})
    t.near(x.grad, want, {rel = 1e-14})
    y:backward(g)                                -- adds; g itself does not change
    t.near(x.grad, want * 2, {rel = 1e-14})
    t.same(g, before)
  end
  local y, w = nn.ones(2, {grad = true}) * 2, nn.ones(2, {grad = true})
  t.fails(function() y:backward() end, "backward: the tensor is (2); only a loss of one element "
          .. "has a gradient. Give the gradient of the result, y:backward(g) with g of y's shape")
  t.fails(function() y:backward(nn.ones(3)) end, "the gradient is f32 (3), the tensor f32 (2)")
  t.fails(function() y:backward(nn.ones(2, {dtype = "f64"})) end, "the gradient is f64 (2)")
  t.fails(function() y:backward(1) end, "backward: the gradient is 1; a tensor is needed")
  t.fails(function() y:backward {retian = true} end, "did you mean 'retain'")
  local compiled = nn.compile(function(v) (w * v):backward(v) return w.grad end)
  t.near(compiled(nn.tensor{2, 3}), {4, 9})
end)

t.case("a second derivative is refused with what to do", function()
  local text = "second derivatives are not supported: the loss depends on a gradient"
  local x, w = nn.tensor{1, 2}, nn.ones(2, {grad = true})
  local function cubes(v) return (v * v * v):sum() end
  t.fails(function() nn.grad(nn.grad(cubes))(x) end, text)
  t.fails(function()
    nn.grad(function(v)
      local _, g = nn.grad(cubes)(v)
      return (g * v):sum()
    end)(x)
  end, text)
  cubes(w):backward()
  t.fails(function() w.grad:square():sum():backward() end, text)
  t.fails(function() (cubes(w) + w.grad:square():sum():sqrt()):backward() end, text)
  t.fails(function() cubes(w):backward {create_graph = true} end,
          "second derivatives are not supported, so there is no create_graph")
  local g = w.grad:detach()
  w.grad = nil
  local attacked = w:detach() + 0.1 * g:sign();   -- as in FGSM: constants
  (w * attacked * g):sum():backward()
  t.near(w.grad, {3.3, 3.3})
end)

t.case("clip_grad_norm_ and clip_grad_value_ change gradients as PyTorch's", function()
  local model = Pair()
  model(nn.rand(2, 3) * 100):backward()
  local before, squares = {}, 0
  for i, p in ipairs(model:parameters()) do
    before[i] = p.tensor.grad
    squares = squares + before[i]:to("f64"):square():sum():item()
  end
  local norm = nn.clip_grad_norm_(model, 0.5):item()
  t.near(norm, math.sqrt(squares), {rel = 1e-6})
  for i, p in ipairs(model:parameters()) do
    t.near(p.tensor.grad, before[i] * (0.5 / (norm + 1e-6)), {rel = 1e-6})
  end
  nn.clip_grad_norm_(model, 10)                       -- not above: unchanged
  t.near(model.two.bias.grad, before[4] * (0.5 / (norm + 1e-6)), {rel = 1e-6})
  local a = nn.ones(2, {grad = true});
  (a * nn.tensor{-3, 0.5}):sum():backward()
  nn.clip_grad_value_(a, 1)
  t.near(a.grad, {-1, 0.5})
  t.fails(function() nn.clip_grad_norm_(nn.Linear(2, 2), 1) end, "no parameter has a gradient")
  t.fails(function() nn.clip_grad_norm_(a, -1) end, "the limit is -1; a number of at least 0")
  t.fails(function() return nn.clip_grad_norm end, "use nn.clip_grad_norm_")
end)

t.case("initial weights have the distributions of torch.nn.init", function()
  nn.seed(3)
  local w = nn.parameter {300, 200}
  local function has(std, bound)
    t.near(w:square():mean():sqrt(), std, {rel = 0.02})
    t.near(w:mean(), 0, {abs = std / 50})
    if bound then t.near(w:abs():max(), bound, {rel = 1e-3}) end
  end
  nn.xavier_uniform_(w, {gain = 2})
  has(2 * math.sqrt(2 / 500), 2 * math.sqrt(6 / 500))
  nn.xavier_normal_(w)
  has(math.sqrt(2 / 500))
  nn.kaiming_uniform_(w, {a = math.sqrt(5)})          -- the default of PyTorch's Linear
  has(1 / math.sqrt(3 * 200), 1 / math.sqrt(200))
  nn.kaiming_normal_(w, {mode = "fan_out", nonlinearity = "relu"})
  has(math.sqrt(2 / 300))
  w = nn.parameter {40, 30, 5, 5}                     -- of a convolution
  nn.kaiming_normal_(w)
  has(math.sqrt(2 / 750))
  t.check(w.requires_grad and not w.node, "the parameter has changed")
  t.fails(function() nn.xavier_uniform_(nn.zeros(3)) end,
          "xavier_uniform_: the weight is f32 (3); floats of at least two axes")
  t.fails(function() nn.kaiming_normal_(w, {nonlinearity = "gelu"}) end, "nonlinearity is 'gelu'")
  t.fails(function() return nn.init end, "nn has no 'init'; use nn.xavier_uniform_(w)")
end)

t.finish()
