-- Printed forms: tensors as aligned numbers without the middle of long axes, so that they fit the
-- terminal; modules as trees with parameter counts.

local engine = require "nn.base.engine"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"
local terminal = require "nn.base.terminal"

local M = {}
local edge = 3   -- rows and columns shown at either end of a long axis
local most = 10  -- the longest axis that is shown in full, if the terminal is wide enough

local large = 1e5   -- elements of a tensor beyond which only the shown ones are fetched

-- The shown positions of an axis, as {at=, label=}: `at` is the position in the fetched numbers,
-- `label` in the tensor; false means "...". ends: the number of positions at either end of an axis
-- longer than `limit`.
local function shown(size, cut, ends, limit)
  local out = {}
  if size <= (limit or 2 * ends + 1) then
    for i = 1, size do out[i] = {at = i, label = i} end
    return out
  end
  cut = cut and size > most
  for i = 1, ends do out[i] = {at = i, label = i} end
  out[ends + 1] = false
  for i = ends - 1, 0, -1 do
    out[#out + 1] = {at = cut and 2 * edge - i or size - i, label = size - i}
  end
  return out
end

-- The shown elements of a large tensor: the edges of its long axes.
local function cut_edges(x)
  return tape.no_grad(function()
    for axis, size in ipairs(x.shape) do
      if size > most then
        x = ops.call("cat", {x:slice(axis, 1, edge), x:slice(axis, size - edge + 1, size)}, axis)
      end
    end
    return x
  end)
end

local function number_format(values, dtype)
  if dtype == "bool" then return function(v) return v ~= 0 and "true" or "false" end end
  if not dtype:match("f") then return function(v) return ("%d"):format(v) end end
  local largest, smallest, whole = 0, math.huge, true
  for _, v in ipairs(values) do
    local a = math.abs(v)
    whole = whole and v % 1 == 0
    if a == a and a < math.huge and a > 0 then
      largest, smallest = math.max(largest, a), math.min(smallest, a)
    end
  end
  local plain = largest < 1e5 and (smallest >= 1e-4 or smallest == math.huge)
  local format = plain and "%.4f" or whole and largest < 1e8 and "%.0f." or "%.4e"
  return function(v)
    if v ~= v then return "nan" end
    if v == math.huge then return "inf" end
    if v == -math.huge then return "-inf" end
    return format:format(v)
  end
end

-- The text of a matrix and its width; number(i, j): an element; rows, cols: from shown().
local function matrix(number, rows, cols, dtype)
  local visible = {}
  for _, row in ipairs(rows) do
    for _, col in ipairs(cols) do
      if row and col then visible[#visible + 1] = number(row.at, col.at) end
    end
  end
  local text, width, lines = number_format(visible, dtype), 0, {}
  for r, row in ipairs(rows) do
    lines[r] = {}
    for c, col in ipairs(cols) do
      local cell = row and col and text(number(row.at, col.at)) or "..."
      lines[r][c], width = cell, math.max(width, #cell)
    end
  end
  for r, cells in ipairs(lines) do
    for c, cell in ipairs(cells) do
      cells[c] = (" "):rep((cols[c] and width or 3) - #cell) .. cell
    end
    lines[r] = "  " .. table.concat(cells, "  ")
  end
  return table.concat(lines, "\n"), #lines[1]
end

-- The text of a matrix with as many columns as fit the terminal.
local function fitting(number, rows, shape, cut, dtype)
  local room, size = terminal.size(), shape[#shape]
  if size <= most then
    local text, width = matrix(number, rows, shown(size, cut, edge, most), dtype)
    if width <= room then return text end
  end
  for ends = edge, 1, -1 do
    local text, width = matrix(number, rows, shown(shape[#shape], cut, ends), dtype)
    if width <= room or ends == 1 then return text end
  end
end

-- The shown matrices of a tensor of more than two axes, as {at=, labels=}: `at` is the index, from
-- 0, in the fetched numbers; false means "...". axes: shown() of each outer axis; sizes: the
-- fetched sizes; ends: the number of matrices at either end of a long list.
local function matrices(axes, sizes, ends)
  local list = {{at = 0, labels = {}}}
  for axis, positions in ipairs(axes) do
    local longer = {}
    for _, outer in ipairs(list) do
      for _, p in ipairs(positions) do
        if outer and p then
          local labels = {unpack(outer.labels)}
          labels[axis] = p.label
          longer[#longer + 1] = {at = outer.at * sizes[axis] + p.at - 1, labels = labels}
        elseif longer[#longer] ~= false then
          longer[#longer + 1] = false
        end
      end
    end
    list = longer
  end
  if #list <= 2 * ends + 1 then return list end
  local few = {}
  for i = 1, ends do few[i] = list[i] or nil end
  few[#few + 1] = false
  for i = #list - ends + 1, #list do few[#few + 1] = list[i] or nil end
  return few
end

-- The matrices and the rows of each, as many as fit the terminal's height, but at least the first
-- and the last of both. shape, sizes: of the tensor, and of the fetched numbers.
local function fitting_rows(shape, sizes, cut)
  local axes, room, titles = {}, select(2, terminal.size()) - 3, #shape > 2 and 1 or 0
  for axis = 1, #shape - 2 do axes[axis] = shown(shape[axis], cut, edge, most) end
  local height, list, rows = shape[#shape - 1] or 1, nil, nil
  for _, limit in ipairs {most, 2 * edge + 1, 5, 3} do       -- shown lines of a matrix
    for ends = edge, 1, -1 do
      rows = shown(height, cut, math.min(edge, (limit - 1) / 2), limit)
      list = matrices(axes, sizes, ends)
      local lines = 1
      for _, outer in ipairs(list) do lines = lines + (outer and titles + #rows or 1) end
      if lines <= room then return list, rows end
    end
  end
  return list, rows
end

-- The memory nodes that hold the value, on a machine with several: " in GPU 0".
local function node_text(x)
  local names = {}
  local nodes = x:memory_nodes()
  if #nodes < 2 then return "" end
  for _, node in ipairs(nodes) do
    if node.bytes > 0 then names[#names + 1] = node.name end
  end
  return #names > 0 and " in " .. table.concat(names, " and ") or ", not computed yet"
end

--- tensor_title(x) -> "3x4 tensor f32", with its memory nodes on a machine with GPUs.
function M.tensor_title(x)
  local size = #x.shape == 0 and "scalar" or table.concat(x.shape, "x")
  return size .. " tensor " .. x.dtype .. node_text(x)
end

--- tensor(x) -> its title and its elements; of long axes only the edges, as many as fit the
--- terminal.
function M.tensor(x)
  local shape, header = x.shape, M.tensor_title(x)
  if engine.recording() then return header .. " (being recorded)" end
  local cut = x:count() > large
  local fetched = cut and cut_edges(x) or x
  local numbers, sizes = fetched:numbers(), fetched.shape
  if #shape == 0 then return header .. "  " .. number_format({numbers[0]}, x.dtype)(numbers[0]) end
  local lines, list, rows = {header}, fitting_rows(shape, sizes, cut)
  local height, width = sizes[#sizes - 1] or 1, sizes[#sizes]
  for _, outer in ipairs(list) do
    if not outer then
      lines[#lines + 1] = "..."
    else
      if #shape > 2 then
        lines[#lines + 1] = "[" .. table.concat(outer.labels, ",") .. ",:,:]"
      end
      lines[#lines + 1] = fitting(function(i, j)
        return numbers[outer.at * height * width + (i - 1) * width + j - 1]
      end, rows, shape, cut, x.dtype)
    end
  end
  return table.concat(lines, "\n")
end
tensor.Tensor.__tostring = M.tensor

--- 1234567 -> "1,234,567".
function M.thousands(n)
  local text = ("%d"):format(n)
  repeat
    local again
    text, again = text:gsub("^(-?%d+)(%d%d%d)", "%1,%2")
  until again == 0
  return text
end

local function count_of(value)
  if module.is_module(value) then return value:count() end
  local n = 0
  for _, item in ipairs(value) do n = n + count_of(item) end
  return n
end

-- When a field was created: of a list, its first element.
local function order_of(field)
  if tensor.is_tensor(field) then return field.order end
  return rawget(module.is_module(field) and field or field[1], "_order") or 0
end

-- The keys of the tensors, modules and lists of modules in a module: those of a list first, then
-- names in the order of creation.
local function shown_keys(value)
  local keys = {}
  for key, field in pairs(value) do
    if tensor.is_tensor(field) or module.is_module(field)
       or (type(field) == "table" and module.is_module(field[1])) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, function(a, b)
    if type(a) ~= type(b) then return type(a) == "number" end
    if type(a) == "number" then return a < b end
    local first, second = order_of(value[a]), order_of(value[b])
    if first ~= second then return first < second end
    return a < b
  end)
  return keys
end

-- `seen`: the modules described so far; one that occurs again (shared, or a cycle) is only named.
local function describe(value, name, indent, lines, seen)
  local title = module.is_module(value) and getmetatable(value).class_name or ("list of " .. #value)
  if name then title = name .. ": " .. title end
  if seen[value] then
    lines[#lines + 1] = indent .. title .. " (see above)"
    return
  end
  seen[value] = true
  lines[#lines + 1] = ("%s%s  %s parameters"):format(indent, title, M.thousands(count_of(value)))
  for _, key in ipairs(shown_keys(value)) do
    local field = value[key]
    if tensor.is_tensor(field) then
      local shape = tensor.shape_text(field.shape)
      local role = field.role == "buffer" and ", a buffer" or ""
      lines[#lines + 1] = ("%s  %s: %s %s%s"):format(indent, key, shape, field.dtype, role)
    elseif not module.is_module(field) and #field > 1 then   -- equal items are shown once
      lines[#lines + 1] = ("%s  %s: %d x"):format(indent, key, #field)
      describe(field[1], nil, indent .. "    ", lines, seen)
    else
      describe(field, tostring(key), indent .. "  ", lines, seen)
    end
  end
end

--- module_title(object) -> "Linear, 12,345 parameters".
function M.module_title(object)
  local class = getmetatable(object).class_name
  return ("%s, %s parameters"):format(class, M.thousands(object:count()))
end

--- A module as a tree.
function M.module(object)
  local lines = {}
  describe(object, nil, "", lines, {})
  return table.concat(lines, "\n")
end
module.text = M.module


return M
