-- The ops of the engine's registry as Lua functions and tensor methods. This file names no op:
-- names, inputs, attributes and docs are read from the registry at start.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local scalar = require "nn.core.scalar"
local suggest = require "nn.base.suggest"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check
local is_tensor, Tensor, is_scalar = tensor.is_tensor, tensor.Tensor, scalar.is_scalar

local M = {}
local ops, names = {}, {}   -- by name; sorted names
M.ops, M.names = ops, names

-- The named texts ("" as nil) and flags of one of the engine's info structs, as a table.
local function fields(out, texts, flags)
  local t = {}
  for name in texts:gmatch "%S+" do
    local text = ffi.string(out[name])
    t[name] = text ~= "" and text or nil
  end
  for name in (flags or ""):gmatch "%S+" do t[name] = out[name] ~= 0 end
  return t
end

-- The inputs, outputs, attributes, samples or kernels of op `index`, which `get` writes to `out`
-- one by one; and their positions by name.
local function parts(index, count, get, out, texts, flags)
  local list, position = {}, {}
  for i = 1, count do
    check(get(index, i - 1, out))
    list[i] = texts and fields(out, texts, flags) or ffi.string(out[0])
    if texts then position[list[i].name] = i end
  end
  return list, position
end

-- Derives fields of an op from its inputs. list: its only input is a list of tensors. in_place: it
-- changes an input. takes_numbers: an input may be a number. given: {output, input} positions of
-- outputs that are the input tensor itself.
local function read_inputs(op)
  op.list, op.given = op.inputs[1] ~= nil and op.inputs[1].list, {}
  for i, input in ipairs(op.inputs) do
    op.in_place = op.in_place or input.in_place
    op.takes_numbers = op.takes_numbers or input.number
    local output = op.output_position[input.name]
    if output and (input.in_place or input.gradient_in) then
      op.given[#op.given + 1] = {output, i}
    end
  end
end

-- Links an op that computes gradients with its forward op. derivatives[i]: the op that computes the
-- gradient of input i. inputs[i].accumulates: an op adds to the gradient of input i in place.
local function link_gradients(op)
  local forward = ops[op.gradient_of] or op
  if op.gradient_in then
    forward.derivatives = forward.derivatives or {}
    forward.derivatives[forward.input_position[op.gradient_in]] = op
  end
  for _, input in ipairs(op.inputs) do
    local position = forward.input_position[input.gradient_in]
    if position then forward.inputs[position].accumulates = true end
  end
end

local function load_ops()
  local info, text = ffi.new "nn_op_info_t", ffi.new "const char *[1]"
  local input, output = ffi.new "nn_op_input_t", ffi.new "nn_op_output_t"
  local attribute = ffi.new "nn_attribute_info"
  for index = 0, C.nn_op_count() - 1 do
    check(C.nn_op_info(index, info))
    local op = fields(info, "name doc category source no_gradient gradient_of gradient_in mask",
                      "changes_parameters")
    op.index = index
    op.inputs, op.input_position = parts(index, info.inputs, C.nn_op_input, input,
                                         "name gradient_in", "optional number list in_place")
    op.outputs, op.output_position = parts(index, info.outputs, C.nn_op_output, output,
                                           "name", "optional differentiable")
    op.attributes, op.attribute_position = parts(
      index, info.attributes, C.nn_op_attribute, attribute, "name kind default_value doc")
    op.samples = parts(index, info.samples, C.nn_op_sample, text)
    op.kernels = parts(index, info.kernels, C.nn_op_kernel, text)
    read_inputs(op)
    ops[op.name] = op
    names[index + 1] = op.name
  end
  for _, name in ipairs(names) do link_gradients(ops[name]) end
end
load_ops()

-- Sets input i to a tensor, or to a number if the op accepts one there.
local function set_input(op, inputs, i, value)
  local declared = op.inputs[i]
  local is_number = type(value) == "number" or is_scalar(value)
  if not is_tensor(value) and not (declared.number and is_number) then
    lib.misuse("%s: %s is a %s; a tensor%s is needed", op.name, declared.name,
               is_scalar(value) and "scalar" or type(value),
               declared.number and " or a number" or "")
  end
  inputs[i] = value
end

local function set_named(op, inputs, values, name, value)
  local input, attribute = op.input_position[name], op.attribute_position[name]
  if input then
    set_input(op, inputs, input, value)
  elseif attribute then
    values[attribute] = value
  else
    local known = {}
    for key in pairs(op.input_position) do known[key] = true end
    for key in pairs(op.attribute_position) do known[key] = true end
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

-- Reads the leading arguments as inputs; returns the position of the first other argument.
local function parse_inputs(op, given, count, inputs)
  local at = 1
  for i, declared in ipairs(op.inputs) do
    local value = given[at]
    if at > count or is_options(value) then break end
    if value ~= nil then
      if declared.optional and not is_tensor(value) then break end
      set_input(op, inputs, i, value)
    end
    at = at + 1
  end
  return at
end

-- Reads the arguments from position `at`: attributes in order, then a table of named ones.
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

-- op(x, y, 3, {axis = 1}): inputs, then attributes in order, then named ones. A list of numbers may
-- also be given as separate arguments: x:reshape(2, 3).
local function parse_arguments(op, ...)
  local given, count = {...}, select("#", ...)
  local inputs, values = {}, {}
  local at = 2
  if op.list then
    parse_list(op, given[1], inputs)
  else
    at = parse_inputs(op, given, count, inputs)
  end
  parse_attributes(op, given, count, at, inputs, values)
  return inputs, values
end

-- A list of whole numbers as a C array, and its length; `keep` references it during the call.
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
  elseif is_scalar(value) and kind == "number" then
    scalar.operand(value, out)
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

-- Applies an op to inputs (tensors, numbers, nil if absent) and attribute values, both by position.
-- Returns a list of results (nil if absent) and their number.
local function apply(op, inputs, values)
  local n, n_values = op.list and #inputs or #op.inputs, #op.attributes
  local refs = ffi.new("nn_ref[?]", math.max(1, n))
  local given = ffi.new("nn_value[?]", math.max(1, n_values + n))
  for i = 1, n do
    local x = inputs[i]
    if type(x) == "number" or is_scalar(x) then
      n_values = #op.attributes + i
      fill_value(op, given[n_values - 1], {kind = "number"}, x)
    elseif x then
      refs[i - 1] = x.ref
    end
  end
  local keep = {}
  for i, declared in ipairs(op.attributes) do
    fill_value(op, given[i - 1], declared, values[i], keep)
  end
  n_outputs[0] = room
  if layer.named then layer.send() end
  lib.check_creating(C.nn_apply, op.index, refs, n, given, n_values, outputs, n_outputs)
  local count, results = n_outputs[0], {}
  local made = {}
  for i = 0, count - 1 do made[i] = {outputs[i].index, outputs[i].generation} end
  for i = 0, count - 1 do
    if made[i][1] ~= 0 then results[i + 1] = tensor.wrap(made[i][1], made[i][2]) end
  end
  return results, count
end

local record   -- set by tape.lua: called for every differentiable application of an op
function M.set_recorder(f) record = f end

local followers = {}

--- follow(name, before, after): from now on, calls before(op, inputs, values) before every
--- application of an op, and after(op, inputs, results) after it; either may be nil. Returns what
--- was set under the name until now.
function M.follow(name, before, after)
  local was = followers[name]
  followers[name] = (before or after) and {before, after} or nil
  return unpack(was or {}, 1, 2)
end

local function tell(moment, op, inputs, given)
  for _, functions in pairs(followers) do
    if functions[moment] then functions[moment](op, inputs, given) end
  end
end

-- The key of a random mask is drawn here and not in the engine, so that the backward pass can
-- regenerate the mask. While recording, the counter is relative and the seed that of the replay.
local function draw_mask_key(op, values)
  local position = op.attribute_position
  if not values[position.counter] and (values[position[op.mask]] or 0) ~= 0 then
    local out, seed, now = ffi.new "int64_t[1]", ffi.new "uint64_t[1]", ffi.new "uint64_t[1]"
    check(C.nn_random_state(seed, now))
    check(C.nn_next_random(out))
    values[position.counter] = tonumber(out[0])
    if C.nn_recording() == 0 then values[position.seed] = tonumber(seed[0]) end
  end
end

local function refuse_gradients(op, inputs)
  for i = 1, table.maxn(inputs) do
    local x = inputs[i]
    if is_tensor(x) and (x.requires_grad or x.node) then
      lib.misuse("%s: cannot change a tensor in place while an argument needs a gradient; make a "
                 .. "new tensor, or do it inside nn.no_grad(function() ... end)", op.name)
    end
  end
end

local function invoke(op, inputs, values)
  if op.mask then draw_mask_key(op, values) end
  if op.in_place and not op.changes_parameters and M.grad_enabled() then
    refuse_gradients(op, inputs)
  end
  if next(followers) then tell(1, op, inputs, values) end
  local results, count = apply(op, inputs, values)
  for _, pair in ipairs(op.given) do
    local output, input = pair[1], pair[2]
    results[output] = results[output] and inputs[input] or results[output]
  end
  if next(followers) then tell(2, op, inputs, results) end
  if record and not op.no_gradient then
    for i = 1, op.takes_numbers and table.maxn(inputs) or 0 do
      if is_scalar(inputs[i]) then inputs[i] = scalar.kept(inputs[i]) end
    end
    record(op, inputs, values, results, count)
  end
  return unpack(results, 1, count)
end

M.grad_enabled = function() return false end   -- replaced by tape.lua

--- Calls an op by name, with arguments as in nn.<name>.
function M.call(name, ...)
  local op = ops[name]
  return invoke(op, parse_arguments(op, ...))
end

--- Calls an op with inputs and attributes by position, for gradient rules.
function M.invoke(name, inputs, values) return invoke(ops[name], inputs, values or {}) end

--- functions: nn.NAME of every op; also a method of tensors if the first input is a tensor.
M.functions = {}
for _, name in ipairs(names) do
  local op = ops[name]
  local function f(...) return invoke(op, parse_arguments(op, ...)) end
  M.functions[name] = f
  if #op.inputs > 0 and not op.list and rawget(Tensor, name) == nil then Tensor[name] = f end
end

return M
