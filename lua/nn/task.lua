-- nn.task: StarPU's submitter for scripts. One kernel on tiles of tensors, with the accesses that
-- order it among all other tasks.

local ffi = require "ffi"
local lib = require "nn.ffi"
local tensor = require "nn.tensor"
local C, check = lib.C, lib.check

local M = {}
local Tile = {}
Tile.__index = Tile

--- x:tile(i, j, ...) -> the tile at that place of x's grid (indices from 1), for nn.task.
function tensor.Tensor:tile(...)
  local index, number = {...}, 0
  if #index ~= #self.shape then
    lib.misuse("tile: %d indices for a tensor of %d axes", #index, #self.shape)
  end
  for axis, i in ipairs(index) do
    local tiles = #self:cuts(axis) - 1
    if i < 1 or i > tiles then
      lib.misuse("tile: axis %d has tiles 1 to %d, not %d", axis, tiles, i)
    end
    number = number * tiles + i - 1
  end
  return setmetatable({tensor = self, number = number}, Tile)
end

local kernels

--- nn.kernels() -> {name = {operands = {{name, mode, optional}}, params = "nn_..._params",
--- params_size, cuda, index}}.
function M.kernels()
  if kernels then return kernels end
  kernels = {}
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
    kernels[ffi.string(info.name)] = kernel
  end
  return kernels
end

local places = {any = 0, cpu = 1, gpu = 2}

--- nn.task{kernel, read = {name = tile, ...}, write = {...}, update = {...}, params = {...},
--- priority = 0, where = "any"} submits one kernel. Tiles are x:tile(i, j); operand names and the
--- fields of params are the kernel's (nn.kernels(), and the struct in kernels/params.h). Tasks on
--- the same tile run in the order of submission as their accesses require.
---   nn.task{"fill", write = {y = x:tile(1, 1)}, params = {n = x:count(), value = 3}}
function M.task(t)
  local name = t[1]
  local kernel = M.kernels()[name]
  if not kernel then
    lib.misuse("task: there is no kernel '%s'%s", tostring(name),
               require("nn.near").suggestion(name, M.kernels()))
  end
  local given, dtype = {}, nil
  for mode, list in pairs {[0] = t.read or {}, [1] = t.write or {}, [2] = t.update or {}} do
    for operand, tile in pairs(list) do
      if getmetatable(tile) ~= Tile then
        lib.misuse("task %s: %s must be a tile, x:tile(i, j)", name, tostring(operand))
      end
      given[operand] = {tile = tile, mode = mode}
    end
  end
  local operands = ffi.new("nn_task_operand[?]", math.max(1, #kernel.operands))
  for i, declared in ipairs(kernel.operands) do
    local use = given[declared.name]
    given[declared.name] = nil
    if use then
      local operand, x = operands[i - 1], use.tile.tensor
      operand.tensor, operand.tile, operand.mode = x.ref, use.tile.number, use.mode
      dtype = dtype or x.dtype
    end
  end
  local unknown = next(given)
  if unknown then lib.misuse("task %s: has no operand '%s'", name, tostring(unknown)) end
  local params = ffi.new(kernel.params, t.params or {})
  local where = places[t.where or "any"] or lib.misuse("task %s: where is any, cpu or gpu", name)
  check(C.nn_task(name, lib.dtype_number[t.dtype or dtype or "f32"], operands, #kernel.operands,
                  params, ffi.sizeof(params), t.priority or 0, where))
end

return M
