-- Sums of products over named axes: nn.einsum and nn.tensordot, by permute, reshape and matmul.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local last_diagonal = require("nn.core.matrices").last_diagonal
local tensor = require "nn.core.tensor"
local is_tensor = tensor.is_tensor

local M = {}

-- A term is a tensor and `labels`, the name of each of its axes.

local function set_of(...)
  local set = {}
  for _, list in ipairs {...} do
    for _, label in ipairs(list) do set[label] = true end
  end
  return set
end

-- The axes of a term whose labels are in no set of `kept` are summed.
local function sum_others(term, kept)
  local axes, labels = {}, {}
  for i, label in ipairs(term.labels) do
    if kept[label] then labels[#labels + 1] = label else axes[#axes + 1] = i end
  end
  if #axes == 0 then return term end
  return {x = term.x:sum {axis = axes}:to(term.x.dtype), labels = labels}
end

-- A term in which every label occurs once: of equal labels, the diagonal.
local function without_repeats(term)
  local at = {}
  for i, label in ipairs(term.labels) do
    local first = at[label]
    if first then
      local order, labels = {}, {}
      for k, other in ipairs(term.labels) do
        if k ~= first and k ~= i then
          order[#order + 1], labels[#labels + 1] = k, other
        end
      end
      order[#order + 1], order[#order + 2] = first, i
      labels[#labels + 1] = label
      return without_repeats {x = last_diagonal(term.x:permute(order)), labels = labels}
    end
    at[label] = i
  end
  return term
end

local function position_of(labels)
  local at = {}
  for i, label in ipairs(labels) do at[label] = i end
  return at
end

-- term.x with the axes of `labels` in this order, of these sizes; labels that it lacks, and axes
-- that are broadcast, have size 1.
local function arranged(term, labels)
  local at, order, shape = position_of(term.labels), {}, {}
  for i, label in ipairs(labels) do
    order[#order + 1] = at[label]
    shape[i] = at[label] and term.x.shape[at[label]] or 1
  end
  return term.x:permute(order):reshape(shape)
end

local function joined(...)
  local out = {}
  for _, list in ipairs {...} do
    for _, label in ipairs(list) do out[#out + 1] = label end
  end
  return out
end

local function sizes_of(labels, sizes)
  local out, count = {}, 1
  for i, label in ipairs(labels) do
    out[i] = sizes[label]
    count = count * sizes[label]
  end
  return out, count
end

-- The product of two terms; labels of both that are not `kept` are summed.
local function product(a, b, kept, sizes)
  local in_a, in_b = set_of(a.labels), set_of(b.labels)
  a = sum_others(a, setmetatable({}, {__index = function(_, l) return kept[l] or in_b[l] end}))
  b = sum_others(b, setmetatable({}, {__index = function(_, l) return kept[l] or in_a[l] end}))
  local batch, summed, only_a, only_b = {}, {}, {}, {}
  for _, label in ipairs(a.labels) do
    local list = not in_b[label] and only_a or kept[label] and batch or summed
    list[#list + 1] = label
  end
  for _, label in ipairs(b.labels) do
    if not in_a[label] then only_b[#only_b + 1] = label end
  end
  local labels = joined(batch, only_a, only_b)
  if #summed == 0 then return {x = arranged(a, labels) * arranged(b, labels), labels = labels} end
  local _, n_batch = sizes_of(batch, sizes)
  local _, m = sizes_of(only_a, sizes)
  local _, n = sizes_of(only_b, sizes)
  local _, k = sizes_of(summed, sizes)
  local function matrices(term, order, shape)
    return arranged(term, order):expand((sizes_of(order, sizes))):reshape(shape)
  end
  local left = matrices(a, joined(batch, only_a, summed), {n_batch, m, k})
  local right = matrices(b, joined(batch, summed, only_b), {n_batch, k, n})
  return {x = left:matmul(right):reshape((sizes_of(labels, sizes))), labels = labels}
end

-- Products of the terms from left to right; the result has the axes of `output`.
local function contract(terms, output, sizes)
  local result = without_repeats(terms[1])
  for i = 2, #terms do
    local later = {output}
    for k = i + 1, #terms do later[#later + 1] = terms[k].labels end
    result = product(result, without_repeats(terms[i]), set_of(unpack(later)), sizes)
  end
  result = sum_others(result, set_of(output))
  return arranged(result, output)
end

-- "a...b" -> {"a", "b"} and the number of labels before the ellipsis (nil without one).
local function parse(equation, text)
  local labels, ellipsis = {}, nil
  for part in text:gsub("%.%.%.", "."):gmatch "." do
    if part == "." and not ellipsis then
      ellipsis = #labels
    elseif part:find "%a" then
      labels[#labels + 1] = part
    else
      lib.misuse("einsum: '%s' in \"%s\" has no meaning; letters name axes, '...' stands for any",
                 part, equation)
    end
  end
  return labels, ellipsis
end

-- The labels of an operand, with "1", "2", ... from the right for the axes under its ellipsis.
local function labels_of(equation, number, text, x)
  local labels, ellipsis = parse(equation, text)
  local hidden = #x.shape - #labels
  if hidden < 0 or hidden > 0 and not ellipsis then
    lib.misuse("einsum: '%s' names %d axes; tensor %d is %s", text, #labels, number,
               tensor.shape_text(x.shape))
  end
  for i = 1, hidden do table.insert(labels, ellipsis + i, tostring(hidden + 1 - i)) end
  return labels, hidden
end

-- The size of every label; raises an error for different ones. Axes of size 1 are broadcast.
local function sizes_by_label(who, terms)
  local sizes = {}
  for _, term in ipairs(terms) do
    for i, label in ipairs(term.labels) do
      local size, known = term.x.shape[i], sizes[label]
      if known and known ~= size and known ~= 1 and size ~= 1 then
        lib.misuse("%s: axis '%s' has size %d and size %d", who, label, known, size)
      end
      sizes[label] = math.max(known or 1, size)
    end
  end
  return sizes
end

-- Without "->", the labels that occur once, in alphabetical order, after those of the ellipsis.
local function implied_output(terms, hidden)
  local count, output = {}, {}
  for _, term in ipairs(terms) do
    for _, label in ipairs(term.labels) do count[label] = (count[label] or 0) + 1 end
  end
  for label, times in pairs(count) do
    if times == 1 and label:find "%a" then output[#output + 1] = label end
  end
  table.sort(output)
  for i = 1, hidden do table.insert(output, i, tostring(hidden + 1 - i)) end
  return output
end

local function given_output(equation, text, hidden, sizes)
  local output, ellipsis = parse(equation, text)
  if ellipsis then
    for i = 1, hidden do table.insert(output, ellipsis + i, tostring(hidden + 1 - i)) end
  end
  local seen = {}
  for _, label in ipairs(output) do
    if seen[label] or not sizes[label] then
      lib.misuse("einsum: the result of \"%s\" names axis '%s' %s", equation, label,
                 seen[label] and "twice" or "that no tensor has")
    end
    seen[label] = true
  end
  return output
end

--- nn.einsum(equation, a, b, ...) -> the sum of products that an equation such as "bij,bjk->bik"
--- names: a letter for each axis of each tensor, and those of the result; letters that the result
--- lacks are summed. "..." stands for any further axes, which broadcast; "ii" is a diagonal.
--- Without "->", the result has the letters that occur once, sorted. Products are taken from left
--- to right.
---     nn.einsum("ij,kj->ik", x, x)  --> {{14, 32}, {32, 77}}
---     nn.einsum("ij->j", x)  --> {5, 7, 9}
function M.einsum(equation, ...)
  arguments.need(type(equation) == "string", "einsum", "the equation", equation,
                 'a text such as "ij,jk->ik" is needed')
  local given = {...}
  local inputs, result = equation:gsub("%s", ""), nil
  if inputs:find("->", 1, true) then inputs, result = inputs:match "^(.-)%->(.*)$" end
  local terms, most = {}, 0
  for text in (inputs .. ","):gmatch "(.-)," do
    local number = #terms + 1
    arguments.need(is_tensor(given[number]), "einsum", "argument " .. number + 1, given[number],
                   "a tensor is needed for '" .. text .. "'")
    local labels, hidden = labels_of(equation, number, text, given[number])
    terms[number], most = {x = given[number], labels = labels}, math.max(most, hidden)
  end
  if #given ~= #terms then
    lib.misuse("einsum: \"%s\" names %d tensors, %d are given", equation, #terms, #given)
  end
  local sizes = sizes_by_label("einsum", terms)
  local output = result and given_output(equation, result, most, sizes)
    or implied_output(terms, most)
  return contract(terms, output, sizes)
end

--- nn.tensordot(a, b, axes=2) -> the sums of products over pairs of axes: the last `axes` of a with
--- the first of b, or those in two lists {axes of a, axes of b}. The result has the other axes of
--- a, then those of b.
---     nn.tensordot(x, x, {{2}, {2}})  --> {{14, 32}, {32, 77}}
function M.tensordot(a, b, axes)
  tensor.need("tensordot", "a b", a, b)
  axes = axes or 2
  local of_a, of_b = {}, {}
  if type(axes) == "table" then
    of_a, of_b = axes[1], axes[2]
  else
    for i = 1, arguments.whole("tensordot", "axes", axes, 0) do
      of_a[i], of_b[i] = #a.shape - axes + i, i
    end
  end
  local n = arguments.list("tensordot", "the axes of a", of_a)
  if arguments.list("tensordot", "the axes of b", of_b) ~= n then
    lib.misuse("tensordot: %d axes of a and %d of b are given", n, #of_b)
  end
  local terms, output = {{x = a, labels = {}}, {x = b, labels = {}}}, {}
  for i = 1, n do
    terms[1].labels[arguments.axis("tensordot", of_a[i], #a.shape)] = "pair " .. i
    terms[2].labels[arguments.axis("tensordot", of_b[i], #b.shape)] = "pair " .. i
  end
  for k, name in ipairs {"a", "b"} do
    local term = terms[k]
    for i = 1, #term.x.shape do
      if not term.labels[i] then
        term.labels[i] = name .. i
        output[#output + 1] = name .. i
      end
    end
  end
  return contract(terms, output, sizes_by_label("tensordot", terms))
end

return M
