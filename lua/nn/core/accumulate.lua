-- Gradient accumulation: splits a batch that is too large for one pass into microbatches.
local arguments = require "nn.base.arguments"
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

--- nn.accumulate(model, microbatches, ids, targets) -> mean loss. Splits the batch into that many
--- microbatches and runs forward and backward on one after the other: the gradient is that of the
--- batch, the memory that of a microbatch. Calls model(ids, targets, {scale = 1 / microbatches})
--- for each. Errors: the number of rows is not a multiple of microbatches.
---     local ids, targets = data.train:batch()
---     nn.accumulate(model, 2, ids, targets):item()  --> 5.6
function M.accumulate(model, microbatches, ids, targets)
  arguments.whole("accumulate", "the number of microbatches", microbatches)
  arguments.need(is_tensor(ids) and is_tensor(targets), "accumulate", "a batch",
                 is_tensor(ids) and targets or ids, "tensors of ids and of targets are needed")
  local rows, total = ids:dim(1) / (shortened and math.min(microbatches, most) or microbatches), nil
  if shortened then rows = math.max(1, math.floor(rows)) end
  if rows % 1 ~= 0 then
    lib.fail("accumulate: %d rows do not divide into %d microbatches", ids:dim(1), microbatches)
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
