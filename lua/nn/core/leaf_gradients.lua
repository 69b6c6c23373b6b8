-- The gradients of leaves: in .grad, with the fields grad_owned (only the leaf references it, so
-- backward() may add to it in place) and grad_used ("once" after an optimizer's step used it,
-- "added to" if backward() then added to it). Every change goes through here.

local lib = require "nn.base.capi"

local M = {}

-- In private(): {[leaf] = its gradient before the first change}, and the leaves in order, which
-- must be the same on every rank.
local touched

--- private(f) -> f(). Then restores the gradients of all leaves whose gradient f set.
function M.private(f)
  local outer = touched
  touched = {}
  return lib.finally(function()
    for _, leaf in ipairs(touched) do
      leaf.grad, leaf.grad_owned, leaf.grad_used = touched[leaf].grad, touched[leaf].owned, nil
    end
    touched = outer
  end, f)
end

--- each_private(f): calls f(gradient) for the leaves whose gradient was set in the innermost
--- private().
function M.each_private(f)
  for _, leaf in ipairs(touched) do
    if leaf.grad then f(leaf.grad) end
  end
end

--- found_by(f) -> a list of {leaf=, grad=, owned=}: the gradients that f computes, starting from
--- none, in the order in which f first set them. The leaves keep the gradients from before.
function M.found_by(f)
  local found = {}
  M.private(function()
    local own = touched
    f()
    for _, leaf in ipairs(own) do
      if leaf.grad then
        found[#found + 1] = {leaf = leaf, grad = leaf.grad, owned = leaf.grad_owned}
      end
    end
  end)
  return found
end

--- set(leaf, g, owned): sets or, with nil, clears the gradient.
function M.set(leaf, g, owned)
  if touched and not touched[leaf] then
    touched[leaf] = {grad = leaf.grad, owned = leaf.grad_owned}
    touched[#touched + 1] = leaf
  end
  leaf.grad, leaf.grad_owned, leaf.grad_used = g, owned, nil
  if g then g.from_grad = true end
end

--- replace(leaf, g): sets the gradient to one computed from it.
function M.replace(leaf, g)
  local used = leaf.grad_used
  M.set(leaf, g, true)
  leaf.grad_used = used
end

--- use(leaf) -> whether the gradient that an optimizer uses now contains one that it used before.
function M.use(leaf)
  local used = leaf.grad_used
  leaf.grad_used = "once"
  return used == "added to"
end

--- gradient(leaf) -> the gradient so far. A compiled function must not read one from outside: every
--- call would use that of the time of recording.
function M.gradient(leaf)
  if touched and not touched[leaf] and leaf.grad then M.set(leaf, nil) end
  return leaf.grad
end

-- before + g, in f32 if one is bf16, and in place if nothing else references `before`.
local function sum(before, is_owned, g)
  if before.dtype == "bf16" and g.dtype == "bf16" then before, is_owned = before:to "f32", true end
  if is_owned and before.dtype == "f32" and g.dtype == "bf16" then g = g:to "f32" end
  return is_owned and before.dtype == g.dtype and before:add_(g) or before + g
end

--- add(leaf, g, owned): adds to the gradient. owned: only the caller references g.
function M.add(leaf, g, owned)
  if not M.gradient(leaf) then return M.set(leaf, g, owned) end
  if not (owned and rawequal(leaf.grad, g)) then
    M.replace(leaf, sum(leaf.grad, leaf.grad_owned, g))
  end
  if leaf.grad_used then leaf.grad_used = "added to" end
end

--- sums(a, b) -> the sums of two results of found_by(). May change a.
function M.sums(a, b)
  local entry_of = {}
  for _, entry in ipairs(a) do entry_of[entry.leaf] = entry end
  for _, entry in ipairs(b) do
    local first = entry_of[entry.leaf]
    if first then
      first.grad, first.owned = sum(first.grad, first.owned, entry.grad), true
    else
      a[#a + 1] = entry
    end
  end
  return a
end

--- own(): gives every leaf of the innermost private() a gradient that it owns, and in f32 if it is
--- bf16.
function M.own()
  for _, leaf in ipairs(touched) do
    local g = leaf.grad
    if g and (g.dtype == "bf16" or not leaf.grad_owned) then
      M.replace(leaf, g.dtype == "bf16" and g:to "f32" or g:clone())
    end
  end
end

-- Copies a gradient that replaced `before` there. Returns whether that is possible.
local function put_back(leaf, before, was_owned)
  local now = leaf.grad
  if rawequal(now, before) then return true end
  if not (now and was_owned) or now.dtype ~= before.dtype then return false end
  before:copy_(now)
  M.replace(leaf, before)
  return true
end

--- remember() -> a function that copies each gradient that replaced one of the innermost private()
--- since to where that was, so that recorded tasks can be repeated. It returns whether it could.
function M.remember()
  local before, owned = {}, {}
  for i, leaf in ipairs(touched) do before[i], owned[i] = leaf.grad or false, leaf.grad_owned end
  return function()
    local good = true
    for i, leaf in ipairs(touched) do
      good = put_back(leaf, before[i] or nil, owned[i]) and good
    end
    return good
  end
end

return M
