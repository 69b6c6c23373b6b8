-- Means over targets of which some do not count. Each microbatch of nn.accumulate has its own
-- number of targets that count, so its mean is not its share of the mean of the batch: the ops with
-- an input `divisor` get the one that makes it so. nn.evaluate asks how many targets counted.

local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tape = require "nn.core.tape"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}
local IGNORED = -100             -- the default of ignore_index
local same_values = {reshape = true, permute = true, to = true, clone = true}

local batch                      -- of the innermost share()

-- The number of elements of a tensor of the batch that count as targets, over the number of
-- microbatches. Both are whole, so that without ignored targets the quotient is the exact number
-- of a microbatch.
local function divisor(of, ignored)
  local known = batch.divisors[of]
  known[ignored] = known[ignored] or tape.no_grad(function()
    return of:ne(ignored):sum():to "f64" / batch.microbatches
  end)
  return known[ignored]
end

--- begin_microbatch(ids, targets): these parts of the batch come next.
function M.begin_microbatch(ids, targets)
  if not batch then return end
  batch.known = setmetatable({}, {__mode = "k"})       -- by handle, which x:detach() shares
  batch.known[ids.ref] = {of = batch.ids}
  batch.known[targets.ref] = {of = batch.targets}
end

-- Follows ids and targets to what is computed from them: the same values in another form, or other
-- ones (no `of`). Numbers with a fraction count only where nothing else is in them.
local function follow(op, inputs, results)
  local known, y, found, all = batch.known, results[1], nil, true
  if not is_tensor(y) then return end
  for i = 1, table.maxn(inputs) do
    local x = inputs[i]
    local is = is_tensor(x) and known[x.ref]
    found, all = found or is, all and (is or not is_tensor(x))
  end
  if not found or y.dtype:find "f" and not all then return end
  known[y.ref] = same_values[op.name] and found or {}
end

--- divisor_of(targets, ignored) -> by what a sum over the losses of these targets is divided, for
--- its share of the mean of the batch; nil: by the number of those that are not `ignored`. Errors:
--- the targets are computed from those of the microbatch.
function M.divisor_of(targets, ignored)
  local is = batch and batch.known[targets.ref]
  if not is then return nil end
  if not is.of then
    lib.misuse("accumulate: the model computes the targets of its loss from the microbatch, so it "
               .. "is not known how many count in the others; compute them before, and pass them "
               .. "to nn.accumulate as targets")
  end
  return divisor(is.of, ignored or IGNORED)
end

local function add_divisor(op, inputs, values)
  local at = op.input_position.divisor
  if not at or inputs[at] then return end
  local ignored = values[op.attribute_position.ignore_index]
  inputs[at] = M.divisor_of(inputs[op.input_position.targets], ignored)
end

--- share(ids, targets, microbatches, f) -> f(), in which a mean over the targets of a microbatch is
--- its share of the mean of the batch, times the number of microbatches.
function M.share(ids, targets, microbatches, f)
  local outer = batch
  batch = {ids = ids, targets = targets, microbatches = microbatches,
           divisors = {[ids] = {}, [targets] = {}}, known = {}}
  if targets.dtype:find "^i" then divisor(targets, IGNORED) end       -- before the first microbatch
  local before, after = ops.follow("targets", add_divisor, follow)
  return lib.finally(function()
    ops.follow("targets", before, after)
    batch = outer
  end, f)
end

local counts                     -- of the innermost counting()

--- counted(count): a loss is a mean over so many targets, a tensor.
function M.counted(count)
  if counts then counts[#counts + 1] = count end
end

local function note_count(op, _, results)
  local at = op.input_position.divisor and op.output_position.count
  if at then M.counted(results[at]) end
end

--- counting(f, ...) -> the first result of f(...), and the number of targets that counted in the
--- first loss that it computed; nil if it computed none.
function M.counting(f, ...)
  local outer = counts
  counts = {}
  local before, after = ops.follow("counts", nil, note_count)
  return lib.finally(function()
    ops.follow("counts", before, after)
    counts = outer
  end, function(...)
    local loss = f(...)
    return loss, counts[1]
  end, ...)
end

return M
