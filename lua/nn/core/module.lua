-- Modules: callable tables with parameters. nn.module "Name" creates a class, which defines init
-- (called by the constructor) and forward (called when an object is called).

local arguments = require "nn.base.arguments"
local blame = require "nn.base.blame"
local cluster = require "nn.base.cluster"
local hooks = require "nn.core.hooks"
local kind = require "nn.core.kind"
local layer = require "nn.core.layer_path"
local leaves = require "nn.core.leaf_gradients"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local near_field = require "nn.core.near_field"
local sorted_keys = require("nn.base.tables").sorted_keys
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor

-- text: set by show.lua: text(object) -> the printed form of a module. version: the number of
-- changes after which compiled functions are recorded again.
local M = {text = nil, version = 0}
local Module = {}
Module.__index = Module
M.Module = Module                -- the methods of all modules; module_methods.lua adds more

--- class_table(name) -> the table of a new class. The prompt replaces this function: a class of a
--- file that is loaded again stays the same table.
function M.class_table() return {} end

local function same(...) return ... end

-- Calls an object. Not by tail calls, so that errors find the object in this frame (blame.lua).
local function call(object, ...)
  local forward = object.forward
  if not forward then
    local name = object.class_name
    lib.misuse("%s has no forward; write function %s:forward(x) ... end", name, name)
  end
  if rawget(object, "_hooks") then return same(hooks.call(object, forward, ...)) end
  if layer.named then return same(layer.call(object, forward, ...)) end
  return same(forward(object, ...))
end
blame.call = call

--- nn.module(name) -> a class. Class(...) creates an object and calls its init(...); object(...)
--- calls its forward(...). The parameters of an object are the tensors with requires_grad in its
--- fields, and those of the modules and lists in its fields. It prints as a tree of parameters.
--- Reading a field that it lacks gives nil, but is an error if the name is a field with two letters
--- swapped, or one added or left out (layer.wieght), that init does not name; rawget never fails.
---     local Twice = nn.module "Twice"
---     function Twice:forward(v) return v * 2 end
---     Twice()(x):sum()  --> 42
function M.module(name)
  local class = setmetatable(M.class_table(name), {
    __index = Module,
    __call = function(class, ...)
      local object = setmetatable({_order = tensor.next_order()}, class)
      if class.init then object:init(...) end
      return object
    end,
  })
  class.class_name, class.__call = name, call
  class.__index = function(object, key)
    local value = class[key]
    if value == nil then near_field.check(object, class, Module, key) end
    return value
  end
  class.__tostring = function(object) return M.text(object) end
  return class
end

--- nn.is_module(value) -> whether the value is an object of a class created by nn.module.
---     nn.is_module(model), nn.is_module(x)  --> true, false
function M.is_module(x)
  local class = getmetatable(x)
  return type(x) == "table" and type(class) == "table" and rawget(class, "class_name") ~= nil
end

local parameter_options = arguments.names "std value dtype axes"
local watcher                    -- set by watch()
local Outline = {}               -- the class of what shapes() has instead of parameters
local outlines                   -- their number while shapes() runs, else nil

--- watch(seen, f) -> f(); calls seen() for every parameter that f creates.
function M.watch(seen, f)
  local outer = watcher
  watcher = seen
  return lib.finally(function() watcher = outer end, f)
end

--- nn.parameter(shape, {std | value, dtype="f32", axes}) -> a tensor that requires a gradient:
--- normal with standard deviation std, or filled with value (default 0).
---     nn.parameter({2, 3}, {value = 1}):sum()  --> 6
function M.parameter(shape, options)
  options = arguments.options("parameter", options, parameter_options)
  if outlines then
    outlines = outlines + 1
    return setmetatable({shape = shape, order = outlines}, Outline)
  end
  local x = ops.call("empty", shape, {dtype = options.dtype, axes = options.axes})
  cluster.own(x)
  local std = arguments.number("parameter", options, "std", 0, 0, 1e30)
  if std > 0 then
    x:normal_ {std = std}
  else
    x:fill_(options.value or 0)
  end
  if watcher then watcher() end
  kind.set(x, "weights")
  x.requires_grad, x.role = true, "parameter"
  return x
end

--- nn.buffer(tensor) -> the tensor, marked as part of a module's state: checkpoints store it and
--- model:load sets it, but optimizers do not change it. For a field of a module, such as the
--- running mean of nn.BatchNorm2d. Errors: no tensor; one that requires a gradient.
---     local Counter = nn.module "Counter"
---     function Counter:init() self.steps = nn.buffer(nn.zeros(1)) end
---     Counter():state()[1].path  --> "steps"
function M.buffer(x)
  arguments.need(is_tensor(x), "buffer", "the argument", x, "a tensor is needed")
  if x.requires_grad then
    lib.misuse("buffer: the tensor requires a gradient; a parameter needs no nn.buffer")
  end
  x.role = "buffer"
  return x
end

--- nn.list(count, make) -> a list of make(1), ..., make(count), for a field of a module.
---     #nn.list(3, function(i) return nn.Linear(i, i) end)  --> 3
function M.list(count, make)
  arguments.whole("list", "the count", count, 0)
  arguments.callable("list", make)
  local out = {}
  for i = 1, count do out[i] = make(i) end
  return out
end

-- Calls each(field, path) for the tensors and modules in the fields of a module or list, and
-- recursively; each is visited once, under the path that sorts first.
local function walk(value, path, seen, each)
  seen[value] = true
  for _, key in ipairs(sorted_keys(value)) do
    local field = value[key]
    local here = path == "" and tostring(key) or path .. "." .. tostring(key)
    local leaf = is_tensor(field) or getmetatable(field) == Outline
    local found = leaf or M.is_module(field)
    if type(field) == "table" and not seen[field] and (found or getmetatable(field) == nil) then
      if found then each(field, here) end
      if leaf then seen[field] = true else walk(field, here, seen, each) end
    end
  end
end

--- walk(object, each): calls each(field, path) for the tensors and modules in an object.
function M.walk(object, each)
  if type(object) ~= "table" then
    lib.misuse("a model is needed, not %s; was a method called with '.' instead of ':'?",
               arguments.describe(object))
  end
  walk(object, "", {}, each)
end

-- {[module] = "blocks.1.mlp", ...} of the modules in an object.
function layer.paths(object)
  local out = {}
  walk(object, "", {}, function(field, path) out[field] = path end)
  return out
end
blame.paths = layer.paths

--- shapes(make) -> {{path=, shape=}, ...} of the parameters of the module make(), in the order of
--- creation. Creates no tensors, so that sizes cost nothing.
function M.shapes(make)
  local out, outer = {}, outlines
  outlines = 0
  local object = lib.finally(function() outlines = outer end, make)
  walk(object, "", {}, function(field, path)
    if getmetatable(field) == Outline then
      out[#out + 1] = {path = path, shape = field.shape, order = field.order}
    end
  end)
  table.sort(out, function(a, b) return a.order < b.order end)
  return out
end

-- {{path=, tensor=}, ...} of the tensors that `wanted` accepts, in the order of creation.
local function tensors_in(object, wanted)
  local out = {}
  M.walk(object, function(field, path)
    if is_tensor(field) and wanted(field) then out[#out + 1] = {path = path, tensor = field} end
  end)
  table.sort(out, function(a, b) return a.tensor.order < b.tensor.order end)
  return out
end

local function is_parameter(x) return x.requires_grad or x.role == "parameter" end

--- model:parameters() -> {{path = "blocks.1.norm1.weight", tensor = ...}, ...} in the order of
--- creation. A shared parameter (such as a tied head) is listed once, under the path that sorts
--- first (name by name; the elements of a list by number).
---     nn.Linear(3, 2):parameters()[1].path  --> "weight"
function Module:parameters() return tensors_in(self, is_parameter) end

--- model:state() -> the list of parameters() and of the tensors of nn.buffer, in the order of
--- creation: the tensors of the model that a checkpoint stores.
---     model:state()[1].path  --> "tok.weight"
---     nn.BatchNorm1d(3):state()[3].path  --> "running_mean"
function Module:state()
  return tensors_in(self, function(x) return is_parameter(x) or x.role == "buffer" end)
end

--- model:count() -> number of parameters.
---     nn.Linear(3, 2):count()  --> 8
function Module:count()
  local n = 0
  for _, p in ipairs(self:parameters()) do n = n + p.tensor:count() end
  return n
end

--- model:zero_grad() clears the gradients of all parameters; optimizers have this method too.
---     local layer = nn.Linear(3, 2)
---     layer(x):sum():backward()
---     layer:zero_grad()
---     layer.bias.grad  --> nil
function Module:zero_grad()
  for _, p in ipairs(self:parameters()) do leaves.set(p.tensor, nil) end
end

--- entries(who, tensors, with_buffers) -> {{path=, tensor=}, ...} of a model, of such a list, of a
--- list of tensors (paths "1", "2", ...), or of a table of tensors by name (sorted).
function M.entries(who, tensors, with_buffers)
  if M.is_module(tensors) then
    return with_buffers and tensors:state() or tensors:parameters()
  end
  if type(tensors) ~= "table" or getmetatable(tensors) then
    lib.misuse("%s: %s is given; a model, a list {{path = ..., tensor = ...}, ...} or a table of "
               .. "tensors by name is needed", who, arguments.describe(tensors))
  end
  local out = {}
  for i, key in ipairs(sorted_keys(tensors)) do
    local value = tensors[key]
    local entry = is_tensor(value) and {path = tostring(key), tensor = value} or value
    if type(entry) ~= "table" or type(entry.path) ~= "string" or not is_tensor(entry.tensor) then
      lib.misuse("%s: the element '%s' is %s; a tensor or {path = ..., tensor = ...} is needed",
                 who, tostring(key), arguments.describe(value))
    end
    out[i] = entry
  end
  return out
end

--- copy(target, source): target:copy_(source), for parameters of which ranks may keep different
--- parts.
function M.copy(target, source)
  if not cluster.shards_weights() then return target:copy_(source) end
  local moved = ops.call("full_like", source, 0, {dtype = target.dtype})
  cluster.own(moved, source)
  moved:copy_(source)
  cluster.move(moved, target)
  target:copy_(moved)
  moved:release()
end

--- model:load(state) copies tensors into the parameters and buffers of the same paths. `state`: a
--- result of model:state(), a model, or a table of tensors by path, such as a result of
--- nn.load_safetensors. Errors: a path that is missing or has another shape.
---     local twin = GPT2 {layers = 1, heads = 2, embd = 16, context = 16, vocab = 256}
---     twin:load(model:state())
function Module:load(state)
  local by_path = {}
  for _, entry in ipairs(M.entries("load", state, true)) do by_path[entry.path] = entry.tensor end
  local own = self:state()
  for _, p in ipairs(own) do
    local source = by_path[p.path]
    if not source then lib.deny("load: '%s' is missing", p.path) end
    local a, b = tensor.shape_text(source.shape), tensor.shape_text(p.tensor.shape)
    if a ~= b then lib.deny("load: '%s' is %s, the model needs %s", p.path, a, b) end
  end
  tape.no_grad(function()
    for _, p in ipairs(own) do M.copy(p.tensor, by_path[p.path]) end
  end)
end

return M
