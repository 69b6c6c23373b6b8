-- Gradient accumulation: splits a batch that is too large for one pass into microbatches.
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local guards = require "nn.core.guards"
local is_tensor = require("nn.core.tensor").is_tensor
local leaves = require "nn.core.leaf_gradients"
local lib = require "nn.base.capi"
local tape = require "nn.core.tape"
local targets_of = require "nn.core.targets"

local M = {}
local FEWEST_LOOPED = 3          -- microbatches that a compiled step records as one
local ATTEMPTS = 2               -- to do so

-- Rows of a batch, tiled like a batch of that size: the tiles of the whole batch may be larger.
local function microbatch(batch, first, last)
  local rows, sizes = batch:slice(1, first, last), {}
  local axes = #rows.shape == 2 and "batch,time" or nil
  local alone = creation.zeros(rows.shape, {dtype = rows.dtype, axes = axes})
  for axis = 1, #rows.shape do sizes[axis] = alone:cuts(axis)[2] end
  return rows:retile(sizes)
end

local most = math.huge                           -- inside limited()

--- count(microbatches) -> that number rounded up to a multiple of the shards, which nn.accumulate
--- makes of it; and rounded down, but at least one for each shard.
function M.count(microbatches)
  local shards = cluster.shards()
  return math.ceil(microbatches / shards) * shards,
         math.max(1, math.floor(microbatches / shards)) * shards
end

--- limited(limit, f, ...) -> f(...), in which nn.accumulate runs at most `limit` microbatches, of a
--- batch that has rows for these only. For plans, which extrapolate the rest. limit: a count that
--- divides evenly into shards.
function M.limited(limit, f, ...)
  local before = most
  most = limit
  return lib.finally(function() most = before end, f, ...)
end

-- The loss of one microbatch; adds its gradients.
local function loss_of(model, ids, targets, count)
  targets_of.begin_microbatch(ids, targets)
  local loss = model(ids, targets, {scale = 1 / count})
  loss:backward()
  return loss:detach()
end

-- Whether no Lua value that a function reads differs from `before`, except for tensors in the place
-- of others: compile.loop compares the tasks that read them.
local function does_the_same(before)
  for _, change in ipairs(before:changes(math.huge)) do
    if not (is_tensor(change.before) and is_tensor(change.now)) then return false end
  end
  return true
end

-- Records the microbatches after `first` as one if they repeat, else the next two. Returns the
-- number of the last one recorded. one(x, y): computes a microbatch.
local function record_loop(model, part, one, first, last)
  tape.no_grad(leaves.own)
  local x, y = part(1, first):clone(), part(2, first):clone()
  return first + compile.loop(last - first, function(i)
    x:copy_(part(1, first + i))
    y:copy_(part(2, first + i))
  end, function()
    local before = guards.of(model, true)
    local put_back = leaves.remember()
    one(x, y)
    return tape.no_grad(put_back) and does_the_same(before)
  end)
end

-- The mean loss of the microbatches of a batch from `first` to `last` of `count`; adds their
-- gradients. A compiled step records the first one, whose gradients are new, and one more for all
-- others.
local function run(model, batch, rows, first, last, count)
  if count == 1 then return loss_of(model, batch[1], batch[2], count) end
  local total
  local function part(k, i) return microbatch(batch[k], (i - 1) * rows + 1, i * rows) end
  local function one(x, y)
    compile.microbatch_begins(x)
    local loss = loss_of(model, x, y, count)
    if not total then total = loss:clone() else tape.no_grad(function() total:add_(loss) end) end
  end
  local i, attempts = first, engine.recording() and ATTEMPTS or 0
  one(part(1, i), part(2, i))
  while i < last do
    if attempts > 0 and last - i >= FEWEST_LOOPED then
      i, attempts = record_loop(model, part, one, i, last), attempts - 1
    else
      i = i + 1
      one(part(1, i), part(2, i))
    end
  end
  return total
end

-- Two neighbouring sums of shards as one: {loss=, grads=, level=}.
local function joined(a, b)
  return tape.no_grad(function()
    return {loss = a.loss + b.loss, grads = leaves.sums(a.grads, b.grads),
            level = math.max(a.level, b.level) + 1}
  end)
end

-- Runs every shard, and adds their losses and gradients in a binary tree that depends only on the
-- number of shards. part(shard) computes one, from 0, and returns its loss.
local function sum_of_shards(shards, part)
  local sums = {}                                  -- each of an earlier part of the batch
  for shard = 0, shards - 1 do
    compile.shard_begins(shard, shards)
    local loss
    local grads = leaves.found_by(function() loss = part(shard) end)
    compile.shard_begins(-1, shards)
    sums[#sums + 1] = {loss = loss, grads = grads, level = 0}
    while #sums > 1 and (sums[#sums - 1].level == sums[#sums].level or shard == shards - 1) do
      local last = table.remove(sums)
      sums[#sums] = joined(sums[#sums], last)
    end
  end
  while #sums > 1 do sums[#sums - 1] = joined(sums[#sums - 1], table.remove(sums)) end
  for _, entry in ipairs(sums[1].grads) do
    leaves.add(entry.leaf, entry.grad, entry.owned)
  end
  return sums[1].loss
end

--- nn.accumulate(model, microbatches, ids, targets) -> mean loss. Splits the batch into that many
--- microbatches and runs forward and backward on one after the other: the gradient is that of the
--- batch, the memory that of a microbatch. Calls model(ids, targets, {scale = 1 / microbatches})
--- for each, whose loss is scale times a mean. ids, targets: tensors with as many rows. Targets
--- that a cross-entropy ignores do not count, so each microbatch weighs by those that do; a mean
--- over anything else weighs the same in each. With nn.cluster{shards=}, the batch is split into
--- shards first, which ranks can compute, and each shard into at least one microbatch.
--- Errors: the number of rows is not a multiple of the microbatches; the model computes the targets
--- of a cross-entropy from those of the microbatch, as by shifting them.
---     local ids, targets = data.train:batch()
---     nn.accumulate(model, 2, ids, targets):item()  --> 5.6
function M.accumulate(model, microbatches, ids, targets)
  arguments.whole("accumulate", "the number of microbatches", microbatches)
  arguments.need(is_tensor(ids) and is_tensor(targets), "accumulate", "a batch",
                 is_tensor(ids) and targets or ids, "tensors of ids and of targets are needed")
  if ids:dim(1) ~= targets:dim(1) then
    lib.deny("accumulate: ids have %d rows, targets %d; as many are needed", ids:dim(1),
             targets:dim(1))
  end
  local shards, count = cluster.shards(), M.count(microbatches)
  local here = math.min(count, most)
  local each = here / shards                       -- microbatches of a shard
  local batch, rows = {ids, targets}, ids:dim(1) / here
  if rows % 1 ~= 0 then
    lib.deny("accumulate: %d rows do not divide into %d microbatches%s", ids:dim(1), count,
             shards > 1 and (", %d for each of %d shards"):format(each, shards) or "")
  end
  local function compute()
    if shards == 1 then return run(model, batch, rows, 1, here, count) end
    return sum_of_shards(shards, function(shard)
      return run(model, batch, rows, shard * each + 1, (shard + 1) * each, count)
    end)
  end
  if count == 1 then return compute() end
  local dtype = engine.gradient_dtype "f32"        -- of sums over microbatches
  return lib.finally(function() engine.gradient_dtype(dtype) end, function()
    return targets_of.share(ids, targets, here, compute)
  end)
end

return M
