-- A batch that is too large for one pass, taken in parts.
local arguments = require "nn.base.arguments"
local compile = require "nn.core.compile"
local creation = require "nn.core.creation"
local lib = require "nn.base.capi"
local run_plan = require "nn.plan.training"
local tape = require "nn.core.tape"
local is_tensor = require("nn.core.tensor").is_tensor

local M = {}

-- Rows of a batch, cut as a batch of their own is: the tiles of the whole one may be larger.
local function part_of(batch, first, last)
  local part = batch:slice(1, first, last)
  local alone = creation.zeros(part.shape, {dtype = part.dtype, axes = "batch,time"})
  return part:retile {alone:cuts(1)[2], alone:cuts(2)[2]}
end

--- nn.accumulate(model, parts, ids, targets) -> mean loss. Forward and backward over the batch in
--- that many parts, one after the other: the memory of one part, the gradient of all. Calls
--- model(ids, targets, {scale = 1 / parts}) for the scaled loss of a part. Errors: a number of rows
--- that does not divide.
---     local ids, targets = data.train:batch()
---     nn.accumulate(model, 2, ids, targets):item()  --> 5.6
function M.accumulate(model, parts, ids, targets)
  arguments.whole("accumulate", "the number of parts", parts)
  arguments.need(is_tensor(ids) and is_tensor(targets), "accumulate", "a batch",
                 is_tensor(ids) and targets or ids, "tensors of ids and of targets are needed")
  local rows, total = ids:dim(1) / parts, nil
  if rows % 1 ~= 0 then lib.fail("accumulate: %d rows in %d parts", ids:dim(1), parts) end
  for i = 1, run_plan.parts_to_record(parts) do
    local first, last = (i - 1) * rows + 1, i * rows
    local x, y = ids, targets
    if parts > 1 then
      x, y = part_of(x, first, last), part_of(y, first, last)
      compile.part_begins(x)
    end
    local loss = model(x, y, {scale = 1 / parts})
    loss:backward()
    loss = loss:detach()
    total = total and tape.no_grad(function() return total + loss end) or loss
  end
  return total
end

return M
