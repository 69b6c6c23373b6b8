-- %memory: which tensors there are, by size, under the names through which they can be reached, and
-- in which memory their values lie.
local ffi = require "ffi"
local lib = require "nn.ffi"
local module = require "nn.module"
local show = require "nn.show"
local tensor = require "nn.tensor"

local M = {}

-- Tables that hold the libraries and not what the user made.
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

-- What a value leads to, as {value=, path=}: fields, and what functions hold.
local function next_of(item)
  local value, list = item.value, {}
  local function add(other, path) list[#list + 1] = {value = other, path = path} end
  if tensor.is_tensor(value) then
    add(rawget(value, "grad"), item.path .. ".grad")
    add(rawget(value, "node"), item.tape or "the tape of " .. item.path)
    list[2].tape = list[2].path
  elseif type(value) == "table" then
    for key, field in pairs(value) do add(field, item.tape or join(item.path, key)) end
  elseif type(value) == "function" then
    for i = 1, 255 do
      local name, held = debug.getupvalue(value, i)
      if not name then break end
      add(held, item.tape or item.path .. " -> " .. name)
    end
  end
  for _, other in ipairs(list) do other.tape = other.tape or item.tape end
  return list
end

local walked = {table = true, ["function"] = true}

-- Adds every tensor that the queue's values lead to, each under its shortest path.
local function walk(queue, seen, found)
  local at = 1
  while queue[at] do
    local item = queue[at]
    at = at + 1
    if walked[type(item.value)] and not seen[item.value] then
      seen[item.value] = true
      if tensor.is_tensor(item.value) then
        found[#found + 1] = {tensor = item.value, path = item.path, tape = item.tape}
      end
      for _, other in ipairs(next_of(item)) do queue[#queue + 1] = other end
    end
  end
end

--- reachable(roots) -> {{tensor=, path=, tape=}, ...}: every tensor that names lead to. roots:
--- {name = value}. A parameter goes by its place in the model, not by that in an optimizer.
function M.reachable(roots)
  local seen, found, names, models, others = library_tables(), {}, {}, {}, {}
  for name in pairs(roots) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do
    local queue = module.is_module(roots[name]) and models or others
    queue[#queue + 1] = {value = roots[name], path = tostring(name)}
  end
  walk(models, seen, found)
  walk(others, seen, found)
  return found
end

-- Whether the tensor was released by hand, which leaves the Lua table without one.
local function is_alive(x)
  local info = ffi.new "nn_tensor_info"
  return lib.C.nn_tensor_info_get(x.ref, info) == 0, info.is_view ~= 0
end

-- Rows of the table, largest first; what a tape holds comes as one.
local function rows_of(found)
  local rows, tapes = {}, {}
  for _, entry in ipairs(found) do
    local alive, is_view = is_alive(entry.tensor)
    if alive then
      local x, row = entry.tensor, tapes[entry.tape]
      if not row then
        row = {path = entry.path, count = 0, bytes = 0, places = {}}
        rows[#rows + 1] = row
        if entry.tape then tapes[entry.tape] = row end
      end
      row.count = row.count + 1
      row.bytes = row.bytes + (entry.tape and is_view and 0 or x:bytes())
      row.what = row.count > 1 and row.count .. " tensors"
        or ("%s %s%s"):format(x.dtype, tensor.shape_text(x.shape), is_view and " view" or "")
      for _, place in ipairs(x:places()) do
        row.places[place.name] = (row.places[place.name] or 0) + place.bytes
      end
    end
  end
  table.sort(rows, function(a, b)
    if a.bytes ~= b.bytes then return a.bytes > b.bytes end
    return a.path < b.path
  end)
  return rows
end

local function place_text(places)
  local names = {}
  for name, bytes in pairs(places) do
    if bytes > 0 then names[#names + 1] = name end
  end
  table.sort(names)
  return #names > 0 and table.concat(names, ", ") or "not computed"
end

--- report(roots, most) -> lines: the `most` largest, what is left, and the engine's sums.
function M.report(roots, most)
  local nn = require "nn"
  local found = M.reachable(roots)
  local rows, lines, named = rows_of(found), {}, 0
  for _, row in ipairs(rows) do named = named + row.count end
  if #rows > 0 then
    lines[1] = ("%10s  %-24s %-14s %s"):format("size", "tensor", "value in", "name")
  end
  local rest = 0
  for i, row in ipairs(rows) do
    if i <= most then
      lines[#lines + 1] = ("%10s  %-24s %-14s %s"):format(show.bytes(row.bytes), row.what,
                                                          place_text(row.places), row.path)
    else
      rest = rest + row.bytes
    end
  end
  if #rows > most then
    lines[#lines + 1] = ("%10s  in %d more"):format(show.bytes(rest), #rows - most)
  end
  local alive, m = ffi.new "int64_t[1]", nn.memory()
  lib.check(lib.C.nn_tensors_alive(alive))
  local unnamed = tonumber(alive[0]) - named
  if unnamed > 0 then
    lines[#lines + 1] = ("%d more without a name: garbage that was not collected yet, or held by "
                         .. "the library"):format(unnamed)
  end
  lines[#lines + 1] = ("%s in use of a budget of %s; at most so far %s; kept for reuse %s")
    :format(show.bytes(m.in_use), show.bytes(m.budget), show.bytes(m.peak), show.bytes(m.cached))
  return lines
end

return M
