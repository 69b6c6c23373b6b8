-- Gradient accumulation: splits a batch that is too large for one pass into microbatches.
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local creation = require "nn.core.creation"
local is_tensor = require("nn.core.tensor").is_tensor
local lib = require "nn.base.capi"
local tape = require "nn.core.tape"

local M = {}

-- Rows of a batch, tiled like a batch of that size: the tiles of the whole batch may be larger.
local function microbatch(batch, first, last)
  local rows = batch:slice(1, first, last)
  local alone = creation.zeros(rows.shape, {dtype = rows.dtype, axes = "batch,time"})
  return rows:retile {alone:cuts(1)[2], alone:cuts(2)[2]}
end

local most, asked, shortened = math.huge, 1, false      -- inside limited()

--- limited(limit, short, f, ...) -> the first result of f(...), and the number of microbatches that
--- f passed to nn.accumulate. At most `limit` of them run. short: whether the batch has rows only
--- for these microbatches. For plans, which extrapolate the rest.
function M.limited(limit, short, f, ...)
  local before, before_asked, before_short = most, asked, shortened
  most, asked, shortened = limit, 1, short
  local count
  return lib.finally(function()
    count, most, asked, shortened = asked, before, before_asked, before_short
  end, f, ...), count
end

-- The mean loss of these microbatches of a batch, from `first` to `last` of `count`; adds their
-- gradients.
local function run(model, ids, targets, rows, first, last, count)
  local total
  for i = first, last do
    local x, y = ids, targets
    if count > 1 then
      x = microbatch(ids, (i - 1) * rows + 1, i * rows)
      y = microbatch(targets, (i - 1) * rows + 1, i * rows)
      compile.microbatch_begins(x)
    end
    local loss = model(x, y, {scale = 1 / count})
    loss:backward()
    loss = loss:detach()
    total = total and tape.no_grad(function() return total + loss end) or loss
  end
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
    if not loss then break end                     -- a plan records some microbatches only
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
  local shards = cluster.shards()
  local each = math.ceil(microbatches / shards)    -- microbatches of a shard
  local count = each * shards
  local rows = ids:dim(1) / (shortened and math.min(count, most) or count)
  if shortened then rows = math.max(1, math.floor(rows)) end
  if rows % 1 ~= 0 then
    lib.fail("accumulate: %d rows do not divide into %d microbatches%s", ids:dim(1), count,
             shards > 1 and (", %d for each of %d shards"):format(each, shards) or "")
  end
  asked = count
  local last = math.min(count, most)
  if shards == 1 then return run(model, ids, targets, rows, 1, last, count) end
  return sum_of_shards(shards, function(shard)
    local first = shard * each + 1
    return run(model, ids, targets, rows, first, math.min(first + each - 1, last), count)
  end)
end

return M
