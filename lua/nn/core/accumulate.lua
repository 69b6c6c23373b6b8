-- Gradient accumulation: splits a batch that is too large for one pass into microbatches.
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local creation = require "nn.core.creation"
local engine = require "nn.base.engine"
local is_tensor = require("nn.core.tensor").is_tensor
local lib = require "nn.base.capi"
local tape = require "nn.core.tape"

local M = {}
local FEWEST_LOOPED = 3          -- microbatches that a compiled step records as one

-- Rows of a batch, tiled like a batch of that size: the tiles of the whole batch may be larger.
local function microbatch(batch, first, last)
  local rows = batch:slice(1, first, last)
  local alone = creation.zeros(rows.shape, {dtype = rows.dtype, axes = "batch,time"})
  return rows:retile {alone:cuts(1)[2], alone:cuts(2)[2]}
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
  local loss = model(ids, targets, {scale = 1 / count})
  loss:backward()
  return loss:detach()
end

-- The mean loss of the microbatches of a batch from `first` to `last` of `count`; adds their
-- gradients. A compiled step records the first one, whose gradients are new, and one more for all
-- others.
local function run(model, ids, targets, rows, first, last, count)
  local function part(batch, i) return microbatch(batch, (i - 1) * rows + 1, i * rows) end
  local function one(i)
    local x, y = part(ids, i), part(targets, i)
    compile.microbatch_begins(x)
    return loss_of(model, x, y, count)
  end
  if count == 1 then return loss_of(model, ids, targets, count) end
  local total = one(first):clone()
  if not engine.recording() or last - first < FEWEST_LOOPED then
    for i = first + 1, last do
      local loss = one(i)
      tape.no_grad(function() total:add_(loss) end)
    end
    return total
  end
  local x, y = part(ids, first):clone(), part(targets, first):clone()
  compile.loop(last - first, function(i)
    x:copy_(part(ids, first + i))
    y:copy_(part(targets, first + i))
  end, function()
    compile.microbatch_begins(x)
    local loss = loss_of(model, x, y, count)
    tape.no_grad(function() total:add_(loss) end)
  end)
  return total
end

-- Two neighbouring sums of shards as one: {loss=, grads=, level=}.
local function joined(a, b)
  return tape.no_grad(function()
    return {loss = a.loss + b.loss, grads = tape.sum_of_grads(a.grads, b.grads),
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
    local grads = tape.grads_of(function() loss = part(shard) end)
    compile.shard_begins(-1, shards)
    sums[#sums + 1] = {loss = loss, grads = grads, level = 0}
    while #sums > 1 and (sums[#sums - 1].level == sums[#sums].level or shard == shards - 1) do
      local last = table.remove(sums)
      sums[#sums] = joined(sums[#sums], last)
    end
  end
  while #sums > 1 do sums[#sums - 1] = joined(sums[#sums - 1], table.remove(sums)) end
  for _, entry in ipairs(sums[1].grads) do
    tape.add_grad(entry.leaf, entry.grad, entry.owned)
  end
  return sums[1].loss
end

--- nn.accumulate(model, microbatches, ids, targets) -> mean loss. Splits the batch into that many
--- microbatches and runs forward and backward on one after the other: the gradient is that of the
--- batch, the memory that of a microbatch. Calls model(ids, targets, {scale = 1 / microbatches})
--- for each. With nn.cluster{shards=}, the batch is split into shards first, which ranks can
--- compute, and each shard into at least one microbatch. Errors: the number of rows is not a
--- multiple of the microbatches.
---     local ids, targets = data.train:batch()
---     nn.accumulate(model, 2, ids, targets):item()  --> 5.6
function M.accumulate(model, microbatches, ids, targets)
  arguments.whole("accumulate", "the number of microbatches", microbatches)
  arguments.need(is_tensor(ids) and is_tensor(targets), "accumulate", "a batch",
                 is_tensor(ids) and targets or ids, "tensors of ids and of targets are needed")
  local shards, count = cluster.shards(), M.count(microbatches)
  local here = math.min(count, most)
  local each = here / shards                       -- microbatches of a shard
  local rows = ids:dim(1) / here
  if rows % 1 ~= 0 then
    lib.deny("accumulate: %d rows do not divide into %d microbatches%s", ids:dim(1), count,
             shards > 1 and (", %d for each of %d shards"):format(each, shards) or "")
  end
  local function compute()
    if shards == 1 then return run(model, ids, targets, rows, 1, here, count) end
    return sum_of_shards(shards, function(shard)
      return run(model, ids, targets, rows, shard * each + 1, (shard + 1) * each, count)
    end)
  end
  if count == 1 then return compute() end
  local dtype = engine.gradient_dtype "f32"        -- of sums over microbatches
  return lib.finally(function() engine.gradient_dtype(dtype) end, compute)
end

return M
