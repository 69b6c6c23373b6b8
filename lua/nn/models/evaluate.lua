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
local targets = require "nn.core.targets"

local M = {}

local function weak() return setmetatable({}, {__mode = "k"}) end

local compiled = weak()                  -- the compiled form of each model

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

-- The losses {mean, weight} that all ranks computed, by the number of the batch; nil if a signal
-- stopped one of them. `%.17g` writes every bit of a number.
local function of_all_ranks(losses, stopped)
  if not cluster.several() then return not stopped and losses or nil end
  local lines = {}
  for number, loss in pairs(losses) do
    lines[#lines + 1] = ("%d %.17g %.17g"):format(number, loss[1], loss[2])
  end
  local own, out = stopped and "stopped" or table.concat(lines, "\n"), {}
  for _, text in ipairs(cluster.gather("an evaluation", own)) do
    if text == "stopped" then return nil end
    for number, mean, weight in text:gmatch "(%d+) (%S+) (%S+)" do
      out[tonumber(number)] = {tonumber(mean), tonumber(weight)}
    end
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

-- {mean, weight} of the loss of a batch. counted: the number of its targets that count, a tensor;
-- nil: the loss is no mean over targets, and `rows` weigh.
local function read_loss(loss, counted, rows)
  local out = {loss:item(), counted and counted:item() or rows}
  loss:release()
  if counted then counted:release() end
  return out
end

-- The losses {mean, weight} of this rank's batches, by the number of the batch; whether a signal
-- stopped it.
local function own_losses(f, loader, batches, progress)
  local ranks, losses, number = cluster.ranks(), {}, 0
  local waiting                            -- the previous batch, read while this one is computed
  local function read()
    losses[waiting.number] = read_loss(waiting.loss, waiting.counted, waiting.rows)
    for _, t in ipairs(waiting) do t:release() end
  end
  for given, rows in batches_of(loader, batches, progress) do
    number = number + 1
    if (number - 1) % ranks.ranks == ranks.rank then
      given.loss, given.counted = f(unpack(given))
      if waiting then read() end
      given.number, given.rows, waiting = number, rows, given
    else
      for _, t in ipairs(given) do t:release() end
    end
    if engine.interrupted() then return losses, true end
  end
  if waiting then read() end
  return losses, false
end

-- The compiled forms of a model's loss, with the number of targets that count, or nil.
local compiled_loss, compiled_together = weak(), weak()

local function loss_of(model, ...)
  local loss, counted = targets.counting(model, ...)
  return need_loss(loss), counted
end

local function loss_function(model)
  compiled_loss[model] = compiled_loss[model]
    or compile.compile(function(...) return loss_of(model, ...) end)
  return compiled_loss[model]
end

-- A function of up to as many batches as there are ranks, of which each computes one. All ranks
-- call it together, because they send each other the weights -> the loss of each batch, and then
-- the number of targets that count in each, or nothing.
local function loss_function_of_all_ranks(model)
  compiled_together[model] = compiled_together[model] or compile.compile(function(...)
    local given, results, ranks = {...}, {}, cluster.ranks().ranks
    local count = #given / 2
    for i = 1, count do
      compile.shard_begins(i - 1, ranks)
      results[i], results[count + i] = loss_of(model, given[2 * i - 1], given[2 * i])
    end
    compile.shard_begins(-1, ranks)
    return unpack(results)
  end)
  return compiled_together[model]
end

-- The losses {mean, weight} of all batches; nil after a stop signal.
local function losses_together(f, loader, batches, progress)
  local ranks, losses, rows, given = cluster.ranks().ranks, {}, {}, {}
  local function read()
    local results, count = {f(unpack(given))}, #rows
    for i = 1, count do
      losses[#losses + 1] = read_loss(results[i], results[count + i], rows[i])
    end
    for _, t in ipairs(given) do t:release() end
    given, rows = {}, {}
  end
  for batch, count in batches_of(loader, batches, progress) do
    rows[#rows + 1] = count
    if #batch ~= 2 then
      lib.deny("evaluate: with sharded weights, batches need two fields, not %d; see fields of "
               .. "nn.data", #batch)
    end
    table.insert(given, batch[1])
    table.insert(given, batch[2])
    if #rows == ranks then
      read()
      if cluster.interrupted() then return nil end
    end
  end
  if #given > 0 then read() end
  return losses
end

local function all_losses(model, ...)
  if cluster.shards_weights() then
    return M.eval_mode(losses_together, loss_function_of_all_ranks(model), ...)
  end
  return of_all_ranks(M.eval_mode(own_losses, loss_function(model), ...))
end

--- nn.evaluate(model, loader, batches, progress) -> mean loss over the windows of a loader, always
--- the same ones: over all targets that count, if the first loss that the model computes is a mean
--- over targets, such as nn.cross_entropy, else over all rows. `batches` (0 or nil: all) limits
--- their number. All ranks must call it, because each computes some of the batches. Calls
--- progress(done, total, all), if given, before each batch and after the last one, with the numbers
--- of batches done, to do, and of the loader. Returns nil after a stop signal.
---     nn.evaluate(model, data.val, 4)  --> 5.6
function M.evaluate(model, loader, batches, progress)
  arguments.need(type(model) == "table", "evaluate", "the model", model, "a module is needed")
  arguments.need(type(loader) == "table" and loader.windows, "evaluate", "the loader", loader,
                 "data.train or data.val of nn.data is needed")
  arguments.whole("evaluate", "the number of batches", batches or 0, 0)
  local losses = all_losses(model, loader, batches, progress)
  if not losses then return nil end
  local sum, total = 0, 0
  for _, loss in ipairs(losses) do
    sum, total = sum + loss[1] * loss[2], total + loss[2]
  end
  return sum / math.max(total, 1)
end

return M
