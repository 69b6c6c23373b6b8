-- A batch that is too large for one pass, taken in microbatches.
local arguments = require "nn.base.arguments"
local compile = require "nn.core.compile"
local creation = require "nn.core.creation"
local is_tensor = require("nn.core.tensor").is_tensor
local lib = require "nn.base.capi"
local tape = require "nn.core.tape"

local M = {}

-- Rows of a batch, cut as a batch of their own is: the tiles of the whole one may be larger.
local function microbatch(batch, first, last)
  local rows = batch:slice(1, first, last)
  local alone = creation.zeros(rows.shape, {dtype = rows.dtype, axes = "batch,time"})
  return rows:retile {alone:cuts(1)[2], alone:cuts(2)[2]}
end

local most, asked = math.huge, 1      -- inside limited()

--- limited(limit, f, ...) -> f(...), in which nn.accumulate takes at most `limit` microbatches, and
--- how many it was asked for. For plans, which know the others from these.
function M.limited(limit, f, ...)
  local before, before_asked = most, asked
  most, asked = limit, 1
  local count
  return lib.finally(function()
    count, most, asked = asked, before, before_asked
  end, f, ...), count
end

--- nn.accumulate(model, microbatches, ids, targets) -> mean loss. Forward and backward over the
--- batch in that many microbatches, one after the other: the memory of one, the gradient of all.
--- Calls model(ids, targets, {scale = 1 / microbatches}) for the scaled loss of one. Errors: a
--- number of rows that does not divide.
---     local ids, targets = data.train:batch()
---     nn.accumulate(model, 2, ids, targets):item()  --> 5.6
function M.accumulate(model, microbatches, ids, targets)
  arguments.whole("accumulate", "the number of microbatches", microbatches)
  arguments.need(is_tensor(ids) and is_tensor(targets), "accumulate", "a batch",
                 is_tensor(ids) and targets or ids, "tensors of ids and of targets are needed")
  local rows, total = ids:dim(1) / microbatches, nil
  if rows % 1 ~= 0 then
    lib.fail("accumulate: %d rows in %d microbatches", ids:dim(1), microbatches)
  end
  asked = microbatches
  for i = 1, math.min(microbatches, most) do
    local first, last = (i - 1) * rows + 1, i * rows
    local x, y = ids, targets
    if microbatches > 1 then
      x, y = microbatch(x, first, last), microbatch(y, first, last)
      compile.microbatch_begins(x)
    end
    local loss = model(x, y, {scale = 1 / microbatches})
    loss:backward()
    loss = loss:detach()
    total = total and tape.no_grad(function() return total + loss end) or loss
  end
  return total
end

return M
