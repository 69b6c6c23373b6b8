-- ipairs and pairs over tensors and loaders. LuaJIT ignores __ipairs and __pairs: without this
-- file, ipairs would find no rows and no batches and raise no error, and pairs would find the
-- fields behind a tensor.
-- pairs also prevents wrong code: LuaJIT 2.1 of March 2022 compiles loops over `next`, and a key
-- that such a loop kept had a wrong value in one of 60 runs of a test.
local lib = require "nn.base.capi"
local tensor = require "nn.core.tensor"
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor
local plain_ipairs = ipairs

local M = {}

--- next_entry(map, key) -> the next key and value, like next(). LuaJIT compiles no loop that calls
--- it.
function M.next_entry(map, key) return next(map, key) end
jit.off(M.next_entry)

local function next_row(x, i)
  if i < x.shape[1] then return i + 1, x[i + 1] end
end

local function need_table(value, name)
  if type(value) == "table" then return end
  error(("bad argument #1 to '%s' (table expected, got %s)"):format(name, type(value)), 3)
end

function Tensor.__ipairs(x)
  if #x.shape == 0 then lib.misuse "ipairs: the tensor has no axes, so it has no rows" end
  return next_row, x, 0
end

rawset(_G, "ipairs", function(list)
  local class = getmetatable(list)
  local own = type(class) == "table" and rawget(class, "__ipairs")
  if own then return own(list) end
  need_table(list, "ipairs")
  return plain_ipairs(list)
end)

rawset(_G, "pairs", function(map)
  if is_tensor(map) then
    lib.misuse "pairs cannot iterate over a tensor; ipairs(x) iterates over its rows"
  end
  need_table(map, "pairs")
  return M.next_entry, map, nil
end)

return M
