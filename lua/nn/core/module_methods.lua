-- More methods of modules: lists of the modules inside, conversion, freezing, buffers, hooks.

local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local hooks = require "nn.core.hooks"
local kind = require "nn.core.kind"
local leaves = require "nn.core.leaf_gradients"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local tape = require "nn.core.tape"
local is_tensor = require("nn.core.tensor").is_tensor
local Module = module.Module

-- Compiled functions depend on what changed: they are recorded again.
local function changed() module.version = module.version + 1 end

--- model:modules() -> {{path = "", module = model}, {path = "blocks.1", module = ...}, ...}: the
--- model and all modules in it, sorted by path.
---     nn.Sequential{nn.Linear(3, 2), nn.gelu}:modules()[2].path  --> "1"
function Module:modules()
  local out = {{path = "", module = self}}
  module.walk(self, function(field, path)
    if module.is_module(field) then out[#out + 1] = {path = path, module = field} end
  end)
  return out
end

--- model:children() -> the modules in its fields, and in the lists in its fields; not those inside
--- of them.
---     #nn.Sequential{nn.Linear(3, 2), nn.gelu, nn.Linear(2, 1)}:children()  --> 2
function Module:children()
  local out, inside = {}, {}
  for i, entry in ipairs(self:modules()) do
    if i > 1 and not inside[entry.module] then
      out[#out + 1] = entry.module
      for _, inner in ipairs(entry.module:modules()) do inside[inner.module] = true end
    end
  end
  return out
end

--- model:apply(f) -> model. Calls f(module) for every module inside, and last for the model.
---     local names = {}
---     nn.Sequential{nn.Linear(3, 2)}:apply(function(m) names[#names + 1] = m.class_name end)
---     table.concat(names, " ")  --> "Linear Sequential"
function Module:apply(f)
  arguments.callable("apply", f)
  for _, child in ipairs(self:children()) do child:apply(f) end
  f(self)
  return self
end

--- model:requires_grad_(on=true) -> model. Switches the gradients of all its parameters on or off:
--- model.encoder:requires_grad_(false) freezes a part. Frozen parameters stay in parameters() and
--- in checkpoints; optimizers do not change them. Compiled functions are recorded again.
---     local layer = nn.Linear(3, 2):requires_grad_(false)
---     layer.weight.requires_grad, #layer:parameters()  --> false, 2
function Module:requires_grad_(on)
  for _, p in ipairs(self:parameters()) do
    p.tensor.requires_grad = on ~= false
    if on == false then leaves.set(p.tensor, nil) end
  end
  changed()
  return self
end

-- Gives the tensor object another dtype, for all who reference it.
local function convert(x, dtype)
  local y = x:to(dtype)
  kind.set(y, x.role == "buffer" and "other" or "weights")
  rawset(x, "ref", y.ref)
  rawset(x, "dtype", dtype)
  leaves.set(x, nil)
end

--- model:to(dtype) -> model. Converts its parameters and float buffers in place, to "f32", "f64" or
--- "bf16", and clears their gradients. Create optimizers afterwards: their moments and master
--- weights depend on the dtype, and those from before refuse to step. Compiled functions are
--- recorded again. Errors: another dtype; ranks keep parts of the weights.
---     nn.Linear(3, 2):to("bf16").weight.dtype  --> "bf16"
function Module:to(dtype)
  if dtype ~= "f32" and dtype ~= "f64" and dtype ~= "bf16" then
    lib.misuse('to: the dtype is %s; "f32", "f64" or "bf16" is needed (there are no devices)',
               arguments.describe(dtype))
  end
  if cluster.shards_weights() then
    lib.misuse("to: ranks keep parts of the weights; create the model with this dtype")
  end
  tape.no_grad(function()
    for _, entry in ipairs(self:state()) do
      local x = entry.tensor
      if x.dtype ~= dtype and x.dtype:match "f" then convert(x, dtype) end
    end
  end)
  changed()
  return self
end

--- model:register_buffer(name, tensor): model[name] = nn.buffer(tensor).
---     local layer = nn.Linear(3, 2)
---     layer:register_buffer("steps", nn.zeros(1))
---     #layer:state(), #layer:parameters()  --> 3, 2
function Module:register_buffer(name, x)
  arguments.need(type(name) == "string", "register_buffer", "the name", name, "a text is needed")
  local before = rawget(self, name) or getmetatable(self)[name]
  if before ~= nil and not is_tensor(before) then
    lib.misuse("register_buffer: %s has a '%s' already", self.class_name, name)
  end
  self[name] = module.buffer(x)
end

local function register(self, name, which, f)
  local handle = hooks.add(self, which, arguments.callable(name, f), changed)
  changed()
  return handle
end

--- model:register_forward_pre_hook(f) -> a handle; handle:remove() removes the hook. Each call of
--- the module first calls f(module, inputs), with the list of arguments; a list or a value that f
--- returns replaces them. A compiled function calls hooks only when it is recorded.
---     local layer = nn.Linear(3, 2)
---     layer:register_forward_pre_hook(function(_, inputs) return inputs[1] * 0 end)
---     layer(x):abs():sum()  --> 0
function Module:register_forward_pre_hook(f)
  return register(self, "register_forward_pre_hook", "pre", f)
end

--- model:register_forward_hook(f) -> a handle; handle:remove() removes the hook. Each call of the
--- module then calls f(module, inputs, output), with the list of arguments, and the result or the
--- list of several results; what f returns, if not nil, replaces the output.
---     local layer = nn.Linear(3, 2)
---     local handle = layer:register_forward_hook(function(_, _, y) return y * 0 + 1 end)
---     layer(x):sum()  --> 4
---     handle:remove()
function Module:register_forward_hook(f)
  return register(self, "register_forward_hook", "forward", f)
end

--- model:register_full_backward_hook(f) -> a handle; handle:remove() removes the hook. The backward
--- pass calls f(module, grad_input, grad_output), the gradients of the first argument that needs
--- one (nil if none does) and of the result; a tensor that f returns replaces grad_input. Errors:
--- the module returns more than one tensor.
---     local layer, seen = nn.Linear(3, 2), nil
---     layer:register_full_backward_hook(function(_, _, g) seen = g end)
---     layer(x):sum():backward()
---     seen  --> {{1, 1}, {1, 1}}
function Module:register_full_backward_hook(f)
  return register(self, "register_full_backward_hook", "backward", f)
end

return {}
