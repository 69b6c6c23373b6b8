-- How values look at the prompt: tensors aligned with elided middles, modules as a tree with
-- parameter counts.

local M = {}
local edge = 3   -- rows and columns shown at either end of a long axis

-- Positions of an axis that are shown; 0 stands for "...".
local function shown(size)
  local out = {}
  if size <= 2 * edge + 1 then
    for i = 1, size do out[i] = i end
    return out
  end
  for i = 1, edge do out[i] = i end
  out[edge + 1] = 0
  for i = size - edge + 1, size do out[#out + 1] = i end
  return out
end

local function number_format(values, dtype)
  if dtype == "bool" then return function(v) return v ~= 0 and "true" or "false" end end
  if not dtype:match("f") then return function(v) return ("%d"):format(v) end end
  local largest, smallest = 0, math.huge
  for _, v in ipairs(values) do
    local a = math.abs(v)
    if a == a and a < math.huge and a > 0 then
      largest, smallest = math.max(largest, a), math.min(smallest, a)
    end
  end
  local plain = largest < 1e5 and (smallest >= 1e-4 or smallest == math.huge)
  return function(v)
    if v ~= v then return "nan" end
    if v == math.huge then return "inf" end
    if v == -math.huge then return "-inf" end
    return (plain and "%.4f" or "%.4e"):format(v)
  end
end

-- Text of a matrix whose elements lie at offset + (i - 1) * cols + (j - 1).
local function matrix(numbers, offset, rows, cols, dtype)
  local row_list, col_list, visible = shown(rows), shown(cols), {}
  for _, i in ipairs(row_list) do
    for _, j in ipairs(col_list) do
      if i > 0 and j > 0 then visible[#visible + 1] = numbers[offset + (i - 1) * cols + j - 1] end
    end
  end
  local text, width, cells = number_format(visible, dtype), 0, {}
  for r, i in ipairs(row_list) do
    cells[r] = {}
    for c, j in ipairs(col_list) do
      local cell = (i == 0 or j == 0) and "..." or text(numbers[offset + (i - 1) * cols + j - 1])
      cells[r][c], width = cell, math.max(width, #cell)
    end
  end
  local lines = {}
  for r, row in ipairs(cells) do
    for c, cell in ipairs(row) do row[c] = (" "):rep(width - #cell) .. cell end
    lines[r] = "  " .. table.concat(row, "  ")
  end
  return table.concat(lines, "\n")
end

--- "3x4 tensor f32" and its elements.
function M.tensor(x)
  local shape = x.shape
  local header = (#shape == 0 and "scalar" or table.concat(shape, "x")) .. " tensor " .. x.dtype
  if require("nn.compile").recording() then return header .. " (being recorded)" end
  local numbers = x:numbers()
  if #shape == 0 then return header .. "  " .. number_format({numbers[0]}, x.dtype)(numbers[0]) end
  local rows, cols = #shape > 1 and shape[#shape - 1] or 1, shape[#shape]
  local lines, outer = {header}, 1
  for i = 1, #shape - 2 do outer = outer * shape[i] end
  for _, o in ipairs(shown(outer)) do
    if o == 0 then
      lines[#lines + 1] = "  ..."
    else
      if #shape > 2 then
        local index, rest = {}, o - 1
        for i = #shape - 2, 1, -1 do
          index[i] = rest % shape[i] + 1
          rest = math.floor(rest / shape[i])
        end
        lines[#lines + 1] = "[" .. table.concat(index, ",") .. ",:,:]"
      end
      lines[#lines + 1] = matrix(numbers, (o - 1) * rows * cols, rows, cols, x.dtype)
    end
  end
  return table.concat(lines, "\n")
end

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
  local module = require "nn.module"
  if module.is_module(value) then return value:count() end
  local n = 0
  for _, item in ipairs(value) do n = n + count_of(item) end
  return n
end

-- `seen`: modules described before; one that comes again (shared, or its owner) is only named.
local function describe(value, name, indent, lines, seen)
  local module, tensor = require "nn.module", require "nn.tensor"
  local title = module.is_module(value) and getmetatable(value).class_name or ("list of " .. #value)
  if name then title = name .. ": " .. title end
  if seen[value] then
    lines[#lines + 1] = indent .. title .. " (see above)"
    return
  end
  seen[value] = true
  lines[#lines + 1] = ("%s%s  %s parameters"):format(indent, title, M.thousands(count_of(value)))
  local keys = {}
  for key, field in pairs(value) do
    if tensor.is_tensor(field) or module.is_module(field)
       or (type(field) == "table" and module.is_module(field[1])) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for _, key in ipairs(keys) do
    local field = value[key]
    if tensor.is_tensor(field) then
      local shape = tensor.shape_text(field.shape)
      lines[#lines + 1] = ("%s  %s: %s %s"):format(indent, key, shape, field.dtype)
    elseif not module.is_module(field) and #field > 1 then   -- equal items are shown once
      lines[#lines + 1] = ("%s  %s: %d x"):format(indent, key, #field)
      describe(field[1], nil, indent .. "    ", lines, seen)
    else
      describe(field, tostring(key), indent .. "  ", lines, seen)
    end
  end
end

--- A module as a tree.
function M.module(object)
  local lines = {}
  describe(object, nil, "", lines, {})
  return table.concat(lines, "\n")
end

--- Bytes for people: "1.5 GB".
function M.bytes(n)
  local units, i = {"B", "kB", "MB", "GB", "TB"}, 1
  while n >= 1000 and i < #units do n, i = n / 1000, i + 1 end
  return ((i == 1 or n >= 100) and "%.0f %s" or "%.1f %s"):format(n, units[i])
end

return M
