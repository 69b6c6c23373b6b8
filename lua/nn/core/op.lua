-- The ops of the engine's registry as Lua functions and tensor methods. Nothing here knows a
-- particular op: names, inputs, attributes and docs are read from the registry at start.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local scalar = require "nn.core.scalar"
local suggest = require "nn.base.suggest"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor

local M = {}
local ops, names = {}, {}   -- by name; sorted names
M.ops, M.names = ops, names

local function load_ops()
  local info, attribute = ffi.new "nn_op_info_t", ffi.new "nn_attribute_info"
  local text = ffi.new "const char *[1]"
  for index = 0, C.nn_op_count() - 1 do
    check(C.nn_op_info(index, info))
    local op = {
      index = index, name = ffi.string(info.name), doc = ffi.string(info.doc),
      category = ffi.string(info.category), no_gradient = ffi.string(info.no_gradient),
      source = ffi.string(info.source),
      inputs = {}, attributes = {}, samples = {}, input_position = {}, attribute_position = {},
    }
    for i = 0, info.inputs - 1 do
      check(C.nn_op_input(index, i, text))
      local name, mark = ffi.string(text[0]):match("^([%w_]+)([?*]?)$")
      op.inputs[i + 1] = {name = name, optional = mark == "?"}
      op.list = op.list or mark == "*"
      op.input_position[name] = i + 1
    end
    for i = 0, info.attributes - 1 do
      check(C.nn_op_attribute(index, i, attribute))
      local name = ffi.string(attribute.name)
      op.attributes[i + 1] = {
        name = name, kind = ffi.string(attribute.kind), fallback = ffi.string(attribute.fallback),
        doc = ffi.string(attribute.doc),
      }
      op.attribute_position[name] = i + 1
    end
    for i = 0, info.samples - 1 do
      check(C.nn_op_sample(index, i, text))
      op.samples[i + 1] = ffi.string(text[0])
    end
    op.kernels = {}
    for i = 0, info.kernels - 1 do
      check(C.nn_op_kernel(index, i, text))
      op.kernels[i + 1] = ffi.string(text[0])
    end
    ops[op.name] = op
    names[#names + 1] = op.name
  end
  table.sort(names)
end
load_ops()

-- An argument for input i: a tensor, or a number where the op takes one in its place.
local function set_input(op, inputs, values, i, value)
  local declared = op.inputs[i]
  if is_tensor(value) then
    inputs[i] = value
  elseif type(value) == "number" and op.attribute_position[declared.name .. "_number"] then
    values[op.attribute_position[declared.name .. "_number"]] = value
  else
    lib.misuse("%s: %s is a %s; a tensor is needed", op.name, declared.name, type(value))
  end
end

local function set_named(op, inputs, values, name, value)
  local input, attribute = op.input_position[name], op.attribute_position[name]
  if input then
    set_input(op, inputs, values, input, value)
  elseif attribute then
    values[attribute] = value
  else
    local known = {}
    for key in pairs(op.input_position) do known[key] = true end
    for key in pairs(op.attribute_position) do
      if not key:find "_number$" then known[key] = true end
    end
    lib.misuse("%s: has no option '%s'%s", op.name, tostring(name),
               suggest.choices(name, known))
  end
end

local function is_options(value)
  return type(value) == "table" and getmetatable(value) == nil and #value == 0
end

-- The one list of tensors that an op like cat takes.
local function parse_list(op, list, inputs)
  if type(list) ~= "table" or is_tensor(list) then
    lib.misuse("%s: takes a list of tensors, {a, b, ...}", op.name)
  end
  for i = 1, arguments.list(op.name, op.inputs[1].name, list) do
    local t = list[i]
    if not is_tensor(t) then
      lib.misuse("%s: element %d is a %s, not a tensor", op.name, i, type(t))
    end
    inputs[i] = t
  end
end

-- Takes inputs from the front of the arguments; returns the position of the first that is none.
local function parse_inputs(op, given, count, inputs, values)
  local at = 1
  for i, declared in ipairs(op.inputs) do
    local value = given[at]
    if at > count or is_options(value) then break end
    if value ~= nil then
      local takes_number = op.attribute_position[declared.name .. "_number"]
      if declared.optional and not is_tensor(value) and not takes_number then break end
      set_input(op, inputs, values, i, value)
    end
    at = at + 1
  end
  return at
end

-- Takes the arguments from `at` on: attributes in order, last a table of named ones.
local function parse_attributes(op, given, count, at, inputs, values)
  local position = 1
  while at <= count do
    local value = given[at]
    local declared = op.attributes[position]
    local wants_list = declared and (declared.kind == "ints" or declared.kind == "axes")
    local empty_list = wants_list and type(value) == "table" and next(value) == nil
    if at == count and is_options(value) and not empty_list then
      for name, v in pairs(value) do set_named(op, inputs, values, name, v) end
      break
    end
    while declared and declared.name:find("_number$") do
      position = position + 1
      declared = op.attributes[position]
    end
    if not declared then
      lib.misuse("%s: too many arguments; usage: %s", op.name, op.doc:match("^[^\n]*"))
    end
    if type(value) == "number" and declared.kind == "ints" then
      local list = {}
      while type(given[at]) == "number" do
        list[#list + 1] = given[at]
        at = at + 1
      end
      values[position] = list
    else
      values[position] = value
      at = at + 1
    end
    position = position + 1
  end
end

-- op(x, y, 3, {axis = 1}): first the inputs, then the attributes in order, last named ones. A list
-- of numbers may be written out: x:reshape(2, 3).
local function parse_arguments(op, ...)
  local given, count = {...}, select("#", ...)
  local inputs, values = {}, {}
  local at = 2
  if op.list then
    parse_list(op, given[1], inputs)
  else
    at = parse_inputs(op, given, count, inputs, values)
  end
  parse_attributes(op, given, count, at, inputs, values)
  return inputs, values
end

-- A list of whole numbers as an array for the engine, and its length; `keep` holds it until the
-- call is over.
local function int_list(op, declared, value, keep)
  local n = arguments.list_length(value) or arguments.list(op.name, declared.name, value)
  local list = ffi.new("int64_t[?]", math.max(1, n))
  for i = 1, n do
    local v = value[i]
    if type(v) ~= "number" or v % 1 ~= 0 then
      lib.misuse("%s: %s[%d] is %s; a whole number is needed", op.name, declared.name, i,
                 arguments.describe(v))
    end
    list[i - 1] = v
  end
  keep[#keep + 1] = list
  return list, n
end

local function fill_value(op, out, declared, value, keep)
  local kind = declared.kind
  if value == nil then
    out.kind = 0
  elseif getmetatable(value) == scalar.Scalar and kind == "number" then
    out.kind, out.number = 4, value.number
  elseif type(value) == "number" and kind ~= "text" and kind ~= "dtype" and kind ~= "bool" then
    if kind ~= "number" and value % 1 ~= 0 then
      lib.misuse("%s: %s is %s; a whole number is needed", op.name, declared.name, value)
    end
    out.kind, out.number = 1, value
  elseif type(value) == "boolean" and (kind == "bool" or kind == "number") then
    out.kind, out.number = 1, value and 1 or 0
  elseif type(value) == "string" and (kind == "text" or kind == "dtype") then
    out.kind, out.text = 2, value
  elseif type(value) == "table" and getmetatable(value) == nil
         and (kind == "ints" or kind == "axes") then
    local list, n = int_list(op, declared, value, keep)
    out.kind, out.count, out.list = 3, n, list
  else
    lib.misuse("%s: %s is a %s; %s is needed (%s)", op.name, declared.name,
               is_tensor(value) and "tensor" or type(value), kind, declared.doc)
  end
end

local room = 8
local outputs, n_outputs = ffi.new("nn_ref[?]", room), ffi.new "int32_t[1]"

-- Applies an op to tensors (nil for absent ones) and attribute values, both by position. Returns a
-- list of results and their number; absent results are nil.
local function apply(op, inputs, values)
  local n = op.list and #inputs or #op.inputs
  local refs = ffi.new("nn_ref[?]", math.max(1, n))
  for i = 1, n do
    if inputs[i] then refs[i - 1] = inputs[i].ref end
  end
  local attributes = ffi.new("nn_value[?]", math.max(1, #op.attributes))
  local keep = {}
  for i, declared in ipairs(op.attributes) do
    fill_value(op, attributes[i - 1], declared, values[i], keep)
  end
  n_outputs[0] = room
  if layer.named then layer.tell() end
  lib.check_making(C.nn_apply, op.index, refs, n, attributes, #op.attributes, outputs, n_outputs)
  local count, results = n_outputs[0], {}
  local made = {}
  for i = 0, count - 1 do made[i] = {outputs[i].slot, outputs[i].generation} end
  for i = 0, count - 1 do
    if made[i][1] ~= 0 then results[i + 1] = tensor.wrap(made[i][1], made[i][2]) end
  end
  return results, count
end

local record   -- set by tape.lua: called with every differentiable application
function M.set_recorder(f) record = f end

-- The key of a random mask is drawn here, not in the engine, so that the tape can draw the same
-- mask again. While recording, the counter is relative and the seed is that of the run.
local function draw_mask_key(op, values)
  local position = op.attribute_position
  local counter, p = position.counter, position.p or position.dropout
  if counter and not values[counter] and (values[p] or 0) ~= 0 then
    local out, seed, now = ffi.new "int64_t[1]", ffi.new "uint64_t[1]", ffi.new "uint64_t[1]"
    check(C.nn_random_state(seed, now))
    check(C.nn_next_random(out))
    values[counter] = tonumber(out[0])
    if C.nn_recording() == 0 then values[position.seed] = tonumber(seed[0]) end
  end
end

local function invoke(op, inputs, values)
  draw_mask_key(op, values)
  local in_place, first = op.name:sub(-1) == "_", inputs[1]
  if in_place and op.category == "in place" and M.grad_enabled() then
    for i = 1, table.maxn(inputs) do
      local x = inputs[i]
      if x and (x.requires_grad or x.node) then
        lib.misuse("%s: changes in place what has to do with a gradient, which cannot follow; "
                   .. "make a new tensor, or do it inside nn.no_grad(function() ... end)", op.name)
      end
    end
  end
  local results, count = apply(op, inputs, values)
  if in_place then return first, unpack(results, 2, count) end
  if record and op.no_gradient == "" then record(op, inputs, values, results, count) end
  return unpack(results, 1, count)
end

M.grad_enabled = function() return false end   -- replaced by tape.lua

--- Calls an op by name, with arguments as in nn.<name>.
function M.call(name, ...)
  local op = ops[name]
  return invoke(op, parse_arguments(op, ...))
end

--- Calls an op with inputs and attributes by position: what gradient rules use.
function M.invoke(name, inputs, values) return invoke(ops[name], inputs, values or {}) end

--- functions: nn.NAME of every op; a method of tensors too where the first argument is one.
M.functions = {}
for _, name in ipairs(names) do
  local op = ops[name]
  local function f(...) return invoke(op, parse_arguments(op, ...)) end
  M.functions[name] = f
  if #op.inputs > 0 and not op.list and rawget(Tensor, name) == nil then Tensor[name] = f end
end

return M
