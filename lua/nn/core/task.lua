-- nn.task: submits single tasks from scripts: a kernel, its tiles, and their access modes, from
-- which StarPU derives the dependencies.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local layer = require "nn.core.layer_path"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local suggest = require "nn.base.suggest"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check

local M = {}
local Tile = {type_name = "tile"}
Tile.__index = Tile

--- x:tile_at(i, j, ...) -> the tile at that position of x's grid (indices from 1), for nn.task.
--- Errors: a wrong number of indices, a position outside the grid.
---     x:retile{1, 3}:tile_at(2, 1).elements  --> 3
function tensor.Tensor:tile_at(...)
  local index, number = {...}, 0
  if #index ~= #self.shape then
    lib.misuse("tile_at: %d indices for a tensor of %d axes", #index, #self.shape)
  end
  local elements = 1
  for axis, i in ipairs(index) do
    local cuts = self:cuts(axis)
    local tiles = #cuts - 1
    if type(i) ~= "number" or i % 1 ~= 0 or i < 1 or i > tiles then
      lib.misuse("tile_at: axis %d has tiles 1 to %d, not %s", axis, tiles, tostring(i))
    end
    number, elements = number * tiles + i - 1, elements * (cuts[i + 1] - cuts[i])
  end
  return setmetatable({tensor = self, number = number, elements = elements}, Tile)
end

local known

--- nn.kernels() -> {name = {operands = {{name, mode, optional}}, params = "nn_..._params",
--- params_size, cuda, index}}: the kernels that nn.task can submit. mode: 0 read, 1 write, 2 both.
---     nn.kernels().fill.operands[1].name  --> "y"
function M.kernels()
  if known then return known end
  known = {}
  local info, operand = ffi.new "nn_kernel_info_t", ffi.new "nn_operand_info"
  for k = 0, C.nn_kernel_count() - 1 do
    check(C.nn_kernel_info(k, info))
    local kernel = {
      index = k, params = ffi.string(info.params_type), params_size = tonumber(info.params_size),
      cuda = info.cuda ~= 0, operands = {},
    }
    for i = 0, info.operands - 1 do
      check(C.nn_kernel_operand(k, i, operand))
      kernel.operands[i + 1] = {
        name = ffi.string(operand.name), mode = operand.mode, optional = operand.optional ~= 0,
      }
    end
    known[ffi.string(info.name)] = kernel
  end
  return known
end

--- nn.ops() -> the registry: a sorted list of {name, doc, inputs, outputs, attributes, samples,
--- no_gradient, gradient_of, category, kernels, cuda}. kernels: names of the kernels that its tasks
--- run; cuda: whether this build has GPU implementations of all of them.
---     nn.ops()[1].name  --> "abs"
function M.ops()
  local out, kernels = {}, M.kernels()
  for i, name in ipairs(ops.names) do
    local op = ops.ops[name]
    op.cuda = true
    for _, kernel in ipairs(op.kernels) do op.cuda = op.cuda and kernels[kernel].cuda end
    out[i] = op
  end
  return out
end

local task_options = arguments.names "read write update params priority where dtype"

-- {operand = {tile=, mode=}} of all operands that a task reads, writes and updates.
local function accesses(who, t)
  local given = {}
  for mode, list in pairs {[0] = t.read or {}, [1] = t.write or {}, [2] = t.update or {}} do
    for operand, tile in pairs(list) do
      arguments.need(getmetatable(tile) == Tile, who, tostring(operand), tile,
                     "a tile, x:tile_at(i, j), is needed")
      if given[operand] then
        lib.misuse("%s: '%s' is given twice; use update for an operand that is read and written",
                   who, operand)
      end
      given[operand] = {tile = tile, mode = mode}
    end
  end
  return given
end

-- The kernel's parameters as a C struct; `elements`: the size of the largest tile.
local function params_of(who, kernel, values, elements)
  for name in pairs(values) do
    if type(name) ~= "string" or not ffi.offsetof(kernel.params, name) then
      lib.misuse("%s: params has no field '%s'; see %s in kernels/params/", who, tostring(name),
                 kernel.params)
    end
  end
  local good, params = pcall(ffi.new, kernel.params, values)
  if not good then lib.misuse("%s: params do not fit %s: %s", who, kernel.params, params) end
  local counts_elements = type(values.n) == "number" and not ffi.offsetof(kernel.params, "outer")
  if counts_elements and elements > 0 and (values.n < 0 or values.n > elements) then
    lib.misuse("%s: n is %d, the largest tile has %d elements", who, values.n, elements)
  end
  return params
end

--- nn.task{kernel, read = {name = tile, ...}, write = {...}, update = {...}, params = {...},
--- priority = 0, where = "any"} submits one task. Tiles are x:tile_at(i, j). nn.kernels() lists the
--- operands of a kernel; kernels/params/ declares its params. Tasks that access the same tile run
--- in the order of submission if one of them writes it. Errors: unknown kernels, operands, options
--- and fields of params; n larger than the largest tile. Other sizes and strides in params are not
--- checked.
---     nn.task{"fill", write = {y = x:tile_at(1, 1)}, params = {n = x:count(), value = 3}}
---     x:sum()  --> 18
function M.task(t)
  local name = type(t) == "table" and t[1]
  local kernel = M.kernels()[name]
  if not kernel then
    lib.misuse("task: unknown kernel '%s'%s", tostring(name),
               suggest.suggestion(name, M.kernels()))
  end
  local who = "task " .. name
  for key in pairs(t) do
    if key ~= 1 and not task_options[key] then
      lib.misuse("%s: has no option '%s'%s", who, tostring(key),
                 suggest.choices(key, task_options))
    end
  end
  local given, dtype, elements = accesses(who, t), t.dtype, 0
  local operands = ffi.new("nn_task_operand[?]", math.max(1, #kernel.operands))
  for i, declared in ipairs(kernel.operands) do
    local use = given[declared.name]
    given[declared.name] = nil
    if use then
      local operand, x = operands[i - 1], use.tile.tensor
      operand.tensor, operand.tile, operand.mode = x.ref, use.tile.number, use.mode
      dtype, elements = dtype or x.dtype, math.max(elements, use.tile.elements)
    end
  end
  local unknown = next(given)
  if unknown then lib.misuse("%s: has no operand '%s'", who, tostring(unknown)) end
  local params = params_of(who, kernel, t.params or {}, elements)
  local where = engine.device_kinds[t.where or "any"]
    or lib.misuse("%s: where is any, cpu or gpu", who)
  local number = lib.dtype_number[dtype or "f32"]
    or lib.misuse("%s: unknown dtype '%s'", who, tostring(dtype))
  local priority = arguments.whole(who, "priority", t.priority or 0, -2 ^ 31, 2 ^ 31 - 1)
  if layer.named then layer.send() end
  check(C.nn_task(name, number, operands, #kernel.operands, params, ffi.sizeof(params), priority,
                  where))
end

return M
