-- Validations of a run: they show their progress, and each result names the batches of which it is
-- the mean, because the last validation usually takes more of them than those before.
local engine = require "nn.base.engine"
local evaluate = require "nn.models.evaluate"

local M = {}

--- label(found) -> "50 of 174 batches", "all 174 batches", "1 batch": of which batches a validation
--- loss is the mean; found: {batches=, all=} of an event.
function M.label(found)
  local count, all = found.batches, found.all
  if all and count < all then return ("%d of %d batches"):format(count, all) end
  if count == 1 then return "1 batch" end
  return ("%s%d batches"):format(all and "all " or "", count)
end

--- validate(run, model, loader, batches) -> the mean loss of nn.evaluate, whose progress the run
--- shows; nil after a stop signal.
function M.validate(run, model, loader, batches)
  local start, count, all = engine.now(), 0, nil
  local loss = evaluate.evaluate(model, loader, batches, function(done, total, of)
    count, all = done, of
    run.log:validating(done, total, engine.now() - start)
  end)
  local seconds = engine.now() - start
  run.validating = (run.validating or 0) + seconds
  run.validated = loss and {val_loss = loss, batches = count, all = all, seconds = seconds}
  return loss
end

--- of(run, values) -> the batches of values.val_loss, if the last run:validate() returned it.
function M.of(run, values)
  local last = run.validated
  if last and values.val_loss == last.val_loss then return last end
end

--- text_of(values, found) -> "name 1.2345" of each number, sorted by name, with the label of
--- val_loss by `found`, the result of of().
function M.text_of(values, found)
  local parts = {}
  for name, value in pairs(values) do
    local label = name == "val_loss" and found and (" (%s)"):format(M.label(found)) or ""
    table.insert(parts, ("%s %.4f%s"):format(name, value, label))
  end
  table.sort(parts)
  return table.concat(parts, "  ")
end

return M
