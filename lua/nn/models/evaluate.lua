-- Evaluates a model on data. The random state and the data position of a training run do not
-- change.
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local compile = require "nn.core.compile"
local engine = require "nn.base.engine"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local tensor = require "nn.core.tensor"
local tape = require "nn.core.tape"

local M = {}

local compiled = setmetatable({}, {__mode = "k"})       -- the compiled form of each model

local function compiled_form(model)
  compiled[model] = compiled[model] or compile.compile(function(...) return model(...) end)
  return compiled[model]
end

--- callable(model) -> a function that computes model(...). With sharded weights, it is a compiled
--- one, which all ranks must call.
function M.callable(model)
  return cluster.shards_weights() and compiled_form(model) or model
end

--- eval_mode(f, ...) -> f(...), without gradients and without dropout. f: a function or a model.
function M.eval_mode(f, ...)
  local before = layers.training()
  layers.training(false)
  if module.is_module(f) then f = M.callable(f) end
  return lib.finally(function() layers.training(before) end, tape.no_grad, f, ...)
end

-- The losses that all ranks computed, by the number of the batch; nil if a signal stopped one of
-- them. `%.17g` writes every bit of a number.
local function of_all_ranks(losses, stopped)
  if not cluster.several() then return not stopped and losses or nil end
  local lines = {}
  for number, loss in pairs(losses) do lines[#lines + 1] = ("%d %.17g"):format(number, loss) end
  local own, out = stopped and "stopped" or table.concat(lines, "\n"), {}
  for _, text in ipairs(cluster.gather("an evaluation", own)) do
    if text == "stopped" then return nil end
    for number, loss in text:gmatch "(%d+) (%S+)" do out[tonumber(number)] = tonumber(loss) end
  end
  return out
end

-- The batches of loader:windows(batches), as lists of tensors, and their numbers of rows. Calls
-- progress(done, total, all), if given, whenever it has returned `done` batches of `total`; the
-- loader has `all` (nil: unknown).
local function batches_of(loader, batches, progress)
  local next_window, total, all = loader:windows(batches)
  local done = -1
  return function()
    done = done + 1
    if progress then progress(done, total, all) end
    local given = {next_window()}
    local count = table.remove(given)
    return count and given, count
  end
end

local function need_loss(loss)
  arguments.need(tensor.is_tensor(loss), "evaluate", "the model's result", loss,
                 "a tensor of one element, the loss, is needed")
  if loss:count() ~= 1 then
    lib.misuse("evaluate: the model's result is %s; one element, the loss, is needed, as of "
               .. "forward(x, target)", tensor.shape_text(loss.shape))
  end
  return loss
end

-- The losses of this rank's batches, by the number of the batch; the number of rows of every batch;
-- whether a signal stopped it.
local function own_losses(f, loader, batches, progress)
  local ranks, losses, rows = cluster.ranks(), {}, {}
  local waiting                            -- the previous batch, read while this one is computed
  local function read()
    losses[waiting.number] = waiting.loss:item()
    for _, t in ipairs(waiting) do t:release() end
    waiting.loss:release()
  end
  for given, count in batches_of(loader, batches, progress) do
    rows[#rows + 1] = count
    if (#rows - 1) % ranks.ranks == ranks.rank then
      local before = waiting
      given.loss = need_loss(f(unpack(given)))
      if before then read() end
      given.number, waiting = #rows, given
    else
      for _, t in ipairs(given) do t:release() end
    end
    if engine.interrupted() then return losses, rows, true end
  end
  if waiting then read() end
  return losses, rows, false
end

local compiled_together = setmetatable({}, {__mode = "k"})

-- A function of up to as many batches as there are ranks, of which each computes one. All ranks
-- call it together, because they send each other the weights -> the loss of each batch.
local function loss_function_of_all_ranks(model)
  compiled_together[model] = compiled_together[model] or compile.compile(function(...)
    local given, losses, ranks = {...}, {}, cluster.ranks().ranks
    for i = 1, #given / 2 do
      compile.shard_begins(i - 1, ranks)
      losses[i] = need_loss(model(given[2 * i - 1], given[2 * i]))
    end
    compile.shard_begins(-1, ranks)
    return unpack(losses)
  end)
  return compiled_together[model]
end

-- The losses of all batches and their numbers of rows; nil after a stop signal.
local function losses_together(f, loader, batches, progress)
  local ranks, losses, rows, given = cluster.ranks().ranks, {}, {}, {}
  local function read()
    for _, loss in ipairs {f(unpack(given))} do
      losses[#losses + 1] = loss:item()
      loss:release()
    end
    for _, t in ipairs(given) do t:release() end
    given = {}
  end
  for batch, count in batches_of(loader, batches, progress) do
    rows[#rows + 1] = count
    if #batch ~= 2 then
      lib.deny("evaluate: with sharded weights, batches need two fields, not %d; see fields of "
               .. "nn.data", #batch)
    end
    table.insert(given, batch[1])
    table.insert(given, batch[2])
    if #rows % ranks == 0 then
      read()
      if cluster.interrupted() then return nil end
    end
  end
  if #given > 0 then read() end
  return losses, rows
end

local function all_losses(model, ...)
  if cluster.shards_weights() then
    return M.eval_mode(losses_together, loss_function_of_all_ranks(model), ...)
  end
  local own, rows, stopped = M.eval_mode(own_losses, compiled_form(model), ...)
  return of_all_ranks(own, stopped), rows
end

--- nn.evaluate(model, loader, batches, progress) -> mean loss over the windows of a loader, always
--- the same ones; `batches` (0 or nil: all) limits their number. All ranks must call it, because
--- each computes some of the batches. Calls progress(done, total, all), if given, before each batch
--- and after the last one, with the numbers of batches done, to do, and of the loader. Returns nil
--- after a stop signal.
---     nn.evaluate(model, data.val, 4)  --> 5.6
function M.evaluate(model, loader, batches, progress)
  arguments.need(type(model) == "table", "evaluate", "the model", model, "a module is needed")
  arguments.need(type(loader) == "table" and loader.windows, "evaluate", "the loader", loader,
                 "data.train or data.val of nn.data is needed")
  arguments.whole("evaluate", "the number of batches", batches or 0, 0)
  local losses, rows = all_losses(model, loader, batches, progress)
  if not losses then return nil end
  local sum, total = 0, 0
  for number, count in ipairs(rows) do
    sum, total = sum + losses[number] * count, total + count
  end
  return sum / total
end

return M
