-- %memory: the user's tensors by size, each under a name that reaches it, and the memory that holds
-- its value.
local ffi = require "ffi"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local pretty = require "repl.pretty"
local tensor = require "nn.core.tensor"
local units = require "nn.base.units"

local M = {}

-- Tables of the libraries, which are not searched.
local function library_tables()
  local skip = {[package.loaded] = true, [package] = true}
  for name, value in pairs(package.loaded) do
    if type(value) == "table" and name ~= "_G" then skip[value] = true end
  end
  return skip
end

local function join(path, key)
  if type(key) == "string" and key:find "^[%a_][%w_]*$" then return path .. "." .. key end
  return ("%s[%s]"):format(path, type(key) == "string" and ("%q"):format(key) or tostring(key))
end

-- The values that an item {value=, path=, tape=} references: fields, upvalues, a tensor's gradient
-- and tape. `tape` names the tape through which a value is reached.
local function references(item)
  local value, list = item.value, {}
  local function add(other, path, tape)
    list[#list + 1] = {value = other, path = path, tape = item.tape or tape}
  end
  if tensor.is_tensor(value) then
    local tape = item.tape or "the tape of " .. item.path
    add(rawget(value, "grad"), item.path .. ".grad")
    add(rawget(value, "node"), tape, tape)
  elseif type(value) == "table" then
    for key, field in pairs(value) do add(field, item.tape or join(item.path, key)) end
  elseif type(value) == "function" then
    for i = 1, 255 do
      local name, held = debug.getupvalue(value, i)
      if not name then break end
      add(held, item.tape or item.path .. " -> " .. name)
    end
  end
  return list
end

local searched = {table = true, ["function"] = true}

-- Appends every tensor that the queue's items reach, each under its shortest path.
local function search(queue, seen, found)
  local at = 1
  while queue[at] do
    local item = queue[at]
    at = at + 1
    if searched[type(item.value)] and not seen[item.value] then
      seen[item.value] = true
      if tensor.is_tensor(item.value) then found[#found + 1] = item end
      for _, other in ipairs(references(item)) do queue[#queue + 1] = other end
    end
  end
end

-- {{value=, path=, tape=}, ...}: every tensor that variables, {name = value}, reach. Models come
-- first, so that a parameter has its path in the model and not in an optimizer.
local function reachable(variables)
  local seen, found, models, others = library_tables(), {}, {}, {}
  for _, name in ipairs(pretty.sorted_keys(variables)) do
    local queue = module.is_module(variables[name]) and models or others
    queue[#queue + 1] = {value = variables[name], path = tostring(name)}
  end
  search(models, seen, found)
  search(others, seen, found)
  return found
end

-- Adds a tensor to its row of the table.
local function add(row, x, bytes, is_view)
  row.count, row.bytes = row.count + 1, row.bytes + bytes
  row.what = row.count > 1 and row.count .. " tensors"
    or ("%s %s%s"):format(x.dtype, tensor.shape_text(x.shape), is_view and " view" or "")
  for _, node in ipairs(x:memory_nodes()) do
    if node.bytes > 0 then row.memories[node.name] = true end
  end
end

-- Rows of the table, largest first; the tensors of a tape share one. Tensors that the user released
-- have none.
local function rows_of(found)
  local rows, tapes, info = {}, {}, ffi.new "nn_tensor_info"
  for _, item in ipairs(found) do
    local x = item.value
    if lib.C.nn_tensor_info_get(x.ref, info) == 0 then
      local row, is_view = tapes[item.tape], info.is_view ~= 0
      if not row then
        row = {path = item.path, count = 0, bytes = 0, memories = {}}
        rows[#rows + 1] = row
        if item.tape then tapes[item.tape] = row end
      end
      add(row, x, item.tape and is_view and 0 or x:bytes(), is_view)
    end
  end
  table.sort(rows, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.path < b.path
  end)
  return rows
end

--- report(variables, most) -> lines: the `most` largest tensors of {name = value}, the sum of the
--- others, and the engine's totals.
function M.report(variables, most)
  local rows, lines, named, rest = rows_of(reachable(variables)), {}, 0, 0
  local function line(format, ...) lines[#lines + 1] = format:format(...) end
  local columns = "%10s  %-24s %-14s %s"
  if #rows > 0 then line(columns, "size", "tensor", "value in", "name") end
  for i, row in ipairs(rows) do
    named = named + row.count
    if i <= most then
      local memories = table.concat(pretty.sorted_keys(row.memories), ", ")
      line(columns, units.bytes(row.bytes), row.what,
           memories ~= "" and memories or "not computed", row.path)
    else
      rest = rest + row.bytes
    end
  end
  if #rows > most then line("%10s  in %d more", units.bytes(rest), #rows - most) end
  local alive, m = ffi.new "int64_t[1]", require("nn").memory()
  lib.check(lib.C.nn_tensors_alive(alive))
  local unnamed = tonumber(alive[0]) - named
  if unnamed > 0 then
    line("%d more without a name: not collected yet, or held by the library", unnamed)
  end
  line("%s in use of a budget of %s; peak %s; kept for reuse %s", units.bytes(m.in_use),
       units.bytes(m.budget), units.bytes(m.peak), units.bytes(m.cached))
  return lines
end

return M
