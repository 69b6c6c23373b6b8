-- A value that backward() reads is changed in place before it: backward() is refused by an error
-- that names the op, or gives the gradient without the change. Every op that changes a tensor in
-- place against the gradient rule of every op, eager and compiled; then what users write.
-- INPLACE=all: compiled functions with every op that changes a tensor, not one in turn.
local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local changes = require "changes"

nn.devices {cpus = 1}
local all = os.getenv "INPLACE" == "all"
local names = {}
for name in pairs(changes.changes) do names[#names + 1] = name end
table.sort(names)

-- Counts of outcomes, and the first wrong ones.
local function new_counts()
  return {right = 0, refused = 0, wrong = 0, lines = {}, of_change = {}, of_rule = {}}
end

-- Whether an error says what was changed: it names the op, or the one that changed the tensor, or
-- the view whose source was changed.
local function names_op(message, case, change)
  return message:find(case.declared.name, 1, true) or message:find(change, 1, true)
    or message:find "view"
end

-- Counts what f() comes to, which returns gradients.
local function count(counts, case, change, f)
  local outcome, why = "right", ""
  local good, found = pcall(function()
    local found = f()
    return changes.same(found, case.expected)
  end)
  if not good then
    local named = not counts.must_work and names_op(tostring(found), case, change)
    outcome = named and "refused" or "wrong"
    why = ": " .. tostring(found)
  elseif not found then
    outcome = "wrong"
  end
  counts[outcome] = counts[outcome] + 1
  if outcome == "wrong" then
    counts.of_change[change] = (counts.of_change[change] or 0) + 1
    counts.of_rule[case.declared.name] = true
    counts.lines[#counts.lines + 1] = ("%s changed by %s%s"):format(case.title, change, why)
  end
end

local function finish(counts)
  local by_change, of_rules = {}, 0
  for _, name in ipairs(names) do
    by_change[#by_change + 1] = ("%s %d"):format(name, counts.of_change[name] or 0)
  end
  for _ in pairs(counts.of_rule) do of_rules = of_rules + 1 end
  local summary = ("%d wrong, of %d rules; %d refused, %d right"):format(
    counts.wrong, of_rules, counts.refused, counts.right)
  print("  " .. summary)
  t.check(counts.wrong == 0, ("%s: %s\n    %s"):format(
    summary, table.concat(by_change, ", "),
    table.concat(counts.lines, "\n    ", 1, math.min(#counts.lines, 20))))
end

-- Applies the op, changes the victim -> the run, and a function that calls backward() and returns
-- the gradients; nil if the change is not possible.
local function changed(case, change, views)
  local run = changes.forward(case.declared, case.text, views)
  local y = run.results[case.k]
  local g = changes.weights(y)
  local good, result = pcall(changes.changes[change], changes.tensor(run, case.victim))
  if not good or result == false then return nil end
  return run, function()
    y:backward(g)
    return changes.gradients(run)
  end
end

local rules = changes.rules()

-- Calls f(case, change): every change with every rule, and at least one with each tensor that the
-- rule may read.
local function each(f)
  for _, cases in ipairs(rules) do
    if all then
      for _, case in ipairs(cases) do
        for _, change in ipairs(names) do f(case, change) end
      end
    else
      for i = 1, math.max(#cases, #names) do
        f(cases[(i - 1) % #cases + 1], names[(i - 1) % #names + 1])
      end
    end
  end
end

t.case("an eager backward() refuses what was changed before, or gives the gradient without",
function()
  local counts = new_counts()
  each(function(case, change)
    local run, f = changed(case, change)
    if run then count(counts, case, change, f) end
  end)
  finish(counts)
end)

t.case("the source of a view that an op read is changed before backward()", function()
  local counts = new_counts()
  for _, cases in ipairs(rules) do
    for _, case in ipairs(cases) do
      local run, f = changed(case, "copy_", true)
      if run and case.victim.where == "input" then count(counts, case, "copy_", f) end
    end
  end
  finish(counts)
end)

-- The gradients that a compiled function gives, which changes the victim before backward(). It runs
-- in a coroutine, so that guards do not compare all cases.
local function compiled(case, change)
  local order
  local f = nn.compile(coroutine.wrap(function()
    local run = changes.forward(case.declared, case.text)
    local y = run.results[case.k]
    local g = changes.weights(y)
    changes.changes[change](changes.tensor(run, case.victim))
    y:backward(g)
    local out = {}
    order = {}
    for i, grad in pairs(changes.gradients(run)) do
      order[#order + 1], out[#out + 1] = i, grad
    end
    return unpack(out)
  end))
  local found = {}
  for j, grad in ipairs {f()} do found[order[j]] = grad end
  return found
end

t.case("a compiled backward() refuses what was changed before, or gives the gradient without",
function()
  local counts = new_counts()
  each(function(case, change)
    if changed(case, change) then
      count(counts, case, change, function() return compiled(case, change) end)
    end
  end)
  finish(counts)
end)

-- Whether a result of the op is a view of the victim, so that it changed too.
local function has_view(run)
  for _, y in pairs(run.results) do
    if not pcall(y.numbers, y:detach()) then return true end
  end
  return false
end

-- Rules that read what their gradient depends on only where values are near, equal or negative, and
-- what counts; PyTorch's refuse as well.
local may_refuse = {}
for name in ([[abs clamp_max clamp_min cross_entropy leaky_relu maximum median minimum pool2d
                    relu remainder]])
  :gmatch "%S+" do may_refuse[name] = true end

t.case("what a rule does not read can be changed", function()
  local counts = new_counts()
  counts.must_work = true
  for _, cases in ipairs(rules) do
    for _, case in ipairs(cases) do
      if not changes.is_read(case) and not may_refuse[case.declared.name] then
        local run, f = changed(case, "copy_")
        if run and not has_view(run) then
          count(counts, case, "copy_", f)
        end
      end
    end
  end
  finish(counts)
end)

-- What users write: (change) -> gradients; without `change`, those that are right.
local Centred = nn.module "Centred"
function Centred:init() self.weight, self.scale = nn.parameter({3}, {value = 2}), nn.ones(3) end
function Centred:forward(x, change)
  local y = x * self.weight * self.scale
  if change then nn.no_grad(function() self.scale:copy_(self.scale * 0.9 + 0.4) end) end
  return y
end

local function leaf() return nn.arange(3, {start = 1}):clone() end
local function parameter()
  local x = leaf()
  x.requires_grad = true
  return x
end

local written = {
  ["a factor is added to"] = function(change)
    local w, b = parameter(), leaf()
    local y = w * b
    if change then b:add_(nn.ones(3)) end
    y:sum():backward()
    return w.grad
  end,
  ["a module reads its running scale and then updates it"] = function(change)
    local m = Centred()
    m(leaf(), change):sum():backward()
    return m.weight.grad
  end,
  ["an optimizer steps between two losses of one forward pass"] = function(change)
    local a, b = nn.Linear(3, 3, {std = 0.5}), nn.parameter({3}, {value = 0.5})
    nn.no_grad(function() a.weight:copy_(nn.eye(3) + 0.5) end)
    local optim = nn.SGD({b}, {lr = 0.5})
    local hidden = a(leaf():reshape(1, 3)) * b
    hidden:sum():backward {retain = true}
    if change then optim:step() end
    hidden:square():sum():backward()
    return a.weight.grad
  end,
  ["a result of exp is overwritten"] = function(change)
    local w = parameter()
    local y = w:exp()
    if change then nn.no_grad(function() y:fill_(0) end) end
    y:backward(nn.ones(3))
    return w.grad
  end,
  ["a weight is copied to"] = function(change)
    local w, v = parameter(), parameter()
    local y = w * v
    if change then nn.no_grad(function() w:copy_(nn.zeros(3)) end) end
    y:sum():backward()
    return v.grad
  end,
  ["a layer is initialized again"] = function(change)
    local a, x = nn.Linear(3, 2, {std = 0.5}), parameter()
    nn.no_grad(function() a.weight:copy_(nn.ones(2, 3)) end)
    local y = a(x:reshape(1, 3)):sum()
    if change then nn.no_grad(nn.xavier_uniform_, a.weight) end
    y:backward()
    return x.grad
  end,
  ["other weights are loaded"] = function(change)
    local a, x = nn.Linear(3, 2, {std = 0.5}), parameter()
    nn.no_grad(function() a.weight:copy_(nn.ones(2, 3)) end)
    local y = a(x:reshape(1, 3)):sum()
    if change then a:load {weight = nn.zeros(2, 3), bias = nn.zeros(2)} end
    y:backward()
    return x.grad
  end,
  ["a gradient that a product read is added to by backward()"] = function(change)
    local w, v = parameter(), parameter()
    for _ = 1, 2 do w:clone():sum():backward() end        -- the tape's own sum
    local y = v * w.grad:detach()
    if change then w:clone():sum():backward() end
    y:sum():backward()
    return v.grad
  end,
  ["what a function of nn.custom saved is changed"] = function(change)
    local w, b = parameter(), leaf()
    local product = nn.custom {forward = function(x, z) return x * z, z end,
                               backward = function(g, z) return g * z end}
    local y = product(w, b)
    if change then b:add_(nn.ones(3)) end
    y:sum():backward()
    return w.grad
  end,
  ["a factor changes between two calls of backward()"] = function(change)
    local w, b = parameter(), leaf()
    local y = (w * b):sum()
    y:backward {retain = true}
    if change then b:fill_(7) end
    y:backward()
    return w.grad
  end,
  ["a slice of a factor is assigned to"] = function(change)
    local w, b = parameter(), leaf()
    local y = w * b
    if change then b:assign_(nn.zeros(1), {2}) end
    y:sum():backward()
    return w.grad
  end,
}

-- Changes that no rule reads: (change) -> gradients, which must be those without the change.
local allowed = {
  ["a term of a sum is overwritten"] = function(change)
    local w, b = parameter(), leaf()
    local y = w + b
    if change then b:fill_(0) end
    y:sum():backward()
    return w.grad
  end,
  ["a factor whose partner needs no gradient changes"] = function(change)
    local w, b = parameter(), leaf()
    local y = w * b
    if change then nn.no_grad(function() w:fill_(9) end) end
    y:sum():backward()
    return w.grad
  end,
  ["a sum is overwritten"] = function(change)
    local w = parameter()
    local y = w + 1
    if change then nn.no_grad(function() y:fill_(0) end) end
    y:backward(nn.ones(3))
    return w.grad
  end,
  ["BatchNorm updates what it tracks"] = function()
    local norm, x = nn.BatchNorm1d(3), parameter()
    local y = norm(nn.stack({x, x * 2, x:square()}, 1))
    y:square():mean():backward()
    return norm.weight.grad
  end,
  ["a step follows backward()"] = function()
    local a, x = nn.Linear(3, 2, {std = 0.5}), leaf():reshape(1, 3)
    nn.no_grad(function() a.weight:copy_(nn.ones(2, 3)) end)
    local optim = nn.SGD(a, {lr = 0})
    for _ = 1, 2 do
      optim:zero_grad()
      a(x):sum():backward()
      optim:step()
    end
    return a.weight.grad
  end,
}

local function sorted(list)
  local out = {}
  for name in pairs(list) do out[#out + 1] = name end
  table.sort(out)
  return out
end

-- Calls f(change) eagerly or compiled -> whether it works, and its gradient or the error.
local function call(f, change, as_compiled)
  return pcall(function()
    local g = as_compiled and nn.compile(function() return f(change) end)() or f(change)
    return g:table()
  end)
end

for _, name in ipairs(sorted(written)) do
  for _, as_compiled in ipairs {false, true} do
    t.case((as_compiled and "compiled: " or "eager: ") .. name, function()
      local _, expected = call(written[name], false)
      local good, found = call(written[name], true, as_compiled)
      if not good then
        t.check(found:find "changed" or found:find "in place", "another error: " .. found)
      else
        t.same(found, expected)
      end
    end)
  end
end

for _, name in ipairs(sorted(allowed)) do
  t.case("is allowed: " .. name, function()
    local _, expected = call(allowed[name], false)
    for _, as_compiled in ipairs {false, true} do
      local good, found = call(allowed[name], true, as_compiled)
      t.check(good, found)
      t.near(nn.tensor(found), nn.tensor(expected), {rel = 1e-6})
    end
  end)
end

t.finish()
