-- The setting verify=K of nn.run: checks that a training whose tensors do not all fit into RAM gets
-- the same bits as one with enough. It trains K steps with fewer layers, so that they fit into
-- memory.ram: once with memory.disk, in the share of the memory which the whole model has, and once
-- without. Batch, microbatches, dropout, dtype and optimizer are those of the recipe. After every
-- second step, beginning with the first, it computes a validation loss and a sample, because their
-- programs use the memory of the step's tensors. Several ranks do all this together.
local batches = require "nn.plan.batch"
local budget = require "nn.base.budget"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local evaluate = require "nn.models.evaluate"
local ffi = require "ffi"
local files = require "nn.io.files"
local generate = require "nn.models.generate"
local host = require "nn.host"
local lib = require "nn.base.capi"
local memory = require "nn.train.memory"
local run_plan = require "nn.plan.training"
local safetensors = require "nn.io.safetensors"
local step_plan = require "nn.plan.step"
local units = require "nn.base.units"

ffi.cdef [[
  int memcmp(const void *a, const void *b, size_t size);
  int getpid(void);
]]

local M = {}
local LAG = 2                    -- steps submitted before the results of one are read, as in a run
local LEAST = 2                  -- layers that are trained if these fit: one hardly moves
local FILLED = 0.9               -- most of the available RAM that a plan without a disk may take
local QUIET = 1                  -- least seconds between lines of progress
local CHUNK = 2 ^ 16             -- elements that are compared as numbers at once
local TOKENS = 4                 -- of a sample

--- need(cfg): raises an error if the setting verify cannot work with the other settings.
function M.need(cfg)
  if cfg.verify == 0 then return end
  local function refuse(text, ...) lib.fail("verify=%d " .. text, cfg.verify, ...) end
  local model, tiers = cfg.model, cfg.memory
  if cfg.plan then refuse "and plan=true both replace the training; choose one" end
  if tiers.disk == "" then
    refuse "compares a training with memory.disk to one without; set memory.disk=FOLDER"
  elseif tiers.gpu ~= "" then
    refuse("compares RAM with a disk only; clear memory.gpu=%s by memory.gpu=", tiers.gpu)
  elseif type(model) ~= "table" or type(model.layers) ~= "number" then
    refuse "trains fewer layers than the recipe, which has no setting model.layers"
  end
end

-- choose(a, b) of the numbers that all ranks give, which call it together.
local function agreed(what, number, choose)
  for _, text in ipairs(cluster.gather("verify: " .. what, ("%.17g"):format(number))) do
    number = choose(number, tonumber(text))
  end
  return number
end

-- Calls f(...) with `count` layers instead of those of the settings. The decoder of an
-- encoder-decoder model, with a number of layers of its own, is cut in proportion.
local function with_layers(model, count, f, ...)
  local before, all = {}, model.layers
  for name, value in pairs(model) do
    if name:find "layers$" and type(value) == "number" and value > 0 then before[name] = value end
  end
  for name, value in pairs(before) do model[name] = math.ceil(value * count / all) end
  return lib.finally(function()
    for name, value in pairs(before) do model[name] = value end
  end, f, ...)
end

-- How many layers to train: as many as fit into `ram` bytes without a disk, but at least LEAST if
-- these fit into the available memory. Returns also the bytes for them with a disk: the same share
-- of what they need as `ram` is of what all layers need.
local function choose_layers(model, build, loader, ram)
  budget.no_tiers()
  local known, all = {}, model.layers
  local available = agreed("available memory", FILLED * budget.memory().budget, math.min)
  local function needs(count)
    if count > all then return math.huge end
    known[count] = known[count] or agreed("needed memory", with_layers(
      model, count, run_plan.least_bytes, build, loader), math.max)
    return known[count]
  end
  local count = batches.largest(needs, all, math.min(ram, available), math.huge)
  for few = math.min(LEAST, all), count + 1, -1 do
    if needs(few) <= available then count = few break end
  end
  if count == 0 then
    lib.fail("verify: one layer without memory.disk needs %s, but only %s are available; lower "
             .. "data.batch, or close other programs", units.bytes(needs(1)),
             units.bytes(available))
  end
  return count, count == all and ram or math.floor(math.min(1, ram / needs(all)) * needs(count))
end

-- A plan that make(build, loader) makes in `ram` bytes or, up to `most`, in the least with which
-- one works -> plan, bytes.
local function plan_in_least(cfg, make, build, loader, ram, most)
  while true do                  -- a larger memory has a larger reserve
    memory.use_disk(cfg.memory, ram)
    local good, plan = lib.protected(make, build, loader)
    if good then return plan, ram end
    local least = tonumber(tostring(plan):match(
      "a plan for this program needs at least .- of RAM %((%d+) bytes"))
    if not least or least <= ram or ram == most then error(plan, 0) end
    ram = math.min(least, most)
  end
end

-- The plan of a step with a disk, and its bytes. A rank that failed during a common plan would end
-- all, so each first plans alone, until all can in the same memory.
local function plan_with_disk(cfg, build, loader, ram, most)
  while cluster.several() do
    local _, least = plan_in_least(cfg, run_plan.own_part, build, loader, ram, most)
    least = agreed("memory of a plan", least, math.max)
    if least == ram then break end
    ram = least
  end
  return plan_in_least(cfg, run_plan.need_room, build, loader, ram, most)
end

local function moved_bytes(plan)
  return plan.tiers and plan.tiers.loaded.total + plan.tiers.stored.total or 0
end

-- A printer of lines, QUIET seconds after the one before. The first line is printed at once.
local function progress_of(run, first)
  local last = engine.now()
  run:say("verify: " .. first)
  return function(text, ...)
    local now = engine.now()
    if now - last < QUIET then return end
    last = now
    run:say(("verify: " .. text):format(...))
  end
end

-- What other programs compute after a step: the validation loss of a batch, if the loader gives its
-- data in order, and a sample of a model that generates, with every bit of its probabilities.
local function between_steps(model, loader, step)
  local out = {}
  if loader.windows then out.validation = evaluate.evaluate(model, loader, 1) end
  if model.kind == "decoder" or model.kind == "encoder_decoder" then
    local ids, info = generate.generate(model, {0}, {tokens = TOKENS, seed = step, logprobs = true})
    for i, logprob in ipairs(info.logprobs) do info.logprobs[i] = ("%.17g"):format(logprob) end
    out.sample = ("%s (%s)"):format(table.concat(ids, " "), table.concat(info.logprobs, " "))
  end
  return out
end

-- Trains -> model, optimizer and the results of each step: its loss and gradient norm, and what
-- between_steps() returned after it. where: for progress.
local function train(run, where, build, loader)
  local cfg, results, pending = run.cfg, {}, {}
  local progress, start = progress_of(run, "training " .. where), loader:state()
  engine.seed(cfg.seed)
  local model, optim, step = build()
  local rate = optim.lr
  local function read()
    local loss, norm = unpack(table.remove(pending, 1))
    results[#results + 1] = {loss = loss:item(), norm = norm and norm:item()}
    progress("step %d/%d  loss %.4f", #results, cfg.verify, results[#results].loss)
  end
  for n = 1, cfg.verify do
    optim.lr = rate / n          -- an update that runs in the next step must use its own
    pending[#pending + 1] = {step(loader:batch())}
    local ends_row = n % 2 == 1 or n == cfg.verify
    while #pending > (ends_row and 0 or LAG) do read() end
    for name, value in pairs(n % 2 == 1 and between_steps(model, loader, n) or {}) do
      results[n][name] = value
    end
  end
  loader:set_state(start)
  return model, optim, results
end

local function tensors_of(model, optim)
  local list = {}
  for _, part in ipairs {model, optim} do
    for _, entry in ipairs(part:state()) do list[#list + 1] = entry end
  end
  return list
end

-- Stores tensors in a file without a name, which is gone when nothing refers to it any more. Rank 0
-- stores those of all ranks.
local function stored(run, list, folder)
  if not cluster.is_first() then return safetensors.collect(list) end
  local bytes, free = 0, files.free_bytes(folder)
  for _, entry in ipairs(list) do bytes = bytes + entry.tensor:bytes() end
  if bytes > free then
    lib.fail("verify: storing %s to compare with needs more than the %s that are free in %s",
             units.bytes(bytes), units.bytes(free), folder)
  end
  run:say(("verify: storing %s to compare with"):format(units.bytes(bytes)))
  local writer = files.create(files.join(folder, ("verify-%d.tmp"):format(ffi.C.getpid())))
  files.remove(writer.path)
  return lib.finally(function() ffi.C.close(writer.fd) end, function()
    local path = "/proc/self/fd/" .. writer.fd
    safetensors.write(path, list)
    return safetensors.open(path)
  end)
end

-- Trains without a disk -> the results of the steps, and the file with all tensors.
local function reference(run, build, loader, folder)
  local model, optim, results = train(run, "without memory.disk", build, loader)
  return results, stored(run, tensors_of(model, optim), folder)
end

-- The largest difference of two arrays of `count` elements, as numbers: its size, its index (from
-- 1), and both values. Elements that are no numbers differ the most.
local function largest_difference(dtype, a, b, count)
  local size, number = lib.dtype_size[dtype], lib.dtype_number[dtype]
  local x, y = ffi.new("double[?]", CHUNK), ffi.new("double[?]", CHUNK)
  local most, at, here, there = -1, 0, 0, 0
  for first = 0, count - 1, CHUNK do
    local n = math.min(CHUNK, count - first)
    lib.check(lib.C.nn_copy_f64(a + first * size, number, n, x))
    lib.check(lib.C.nn_copy_f64(b + first * size, number, n, y))
    for i = 0, n - 1 do
      local difference = math.abs(x[i] - y[i])
      if difference ~= difference then difference = math.huge end
      if difference > most and not (x[i] ~= x[i] and y[i] ~= y[i]) then
        most, at, here, there = difference, first + i + 1, x[i], y[i]
      end
    end
  end
  return {most = most, at = at, here = here, there = there}
end

-- Compares tensors with those in a file -> the number that differ; of the first one its path and
-- its largest difference. Rank 0 compares those of all ranks.
local function compare(run, list, file)
  if not cluster.is_first() then
    safetensors.collect(list)
    return 0
  end
  local progress, differ, path, found = progress_of(run, "comparing"), 0, nil, nil
  for i, entry in ipairs(list) do
    local is_collected = cluster.collect(entry.tensor)
    progress("comparing tensor %d of %d", i, #list)
    local x, theirs = entry.tensor, file:data(entry.path)
    local array, count = x:host()
    local own = ffi.cast("const uint8_t *", array)
    if ffi.C.memcmp(own, theirs, x:bytes()) ~= 0 then
      differ = differ + 1
      if not path then
        path, found = entry.path, largest_difference(x.dtype, own, theirs, count)
      end
    end
    if is_collected then cluster.drop(entry.tensor) end
    files.check(file.map)
    files.forget(file.map, 0, file.map.size)
  end
  return differ, path, found
end

local function losses(results)
  local texts = {}
  for i, result in ipairs(results) do texts[i] = ("%.4f"):format(result.loss) end
  return table.concat(texts, " ")
end

local named = {{"loss", "loss of"}, {"norm", "gradient norm of"},
               {"validation", "validation loss after"}, {"sample", "sample after"}}

-- The first result of a step that differs, as text, or nil.
local function first_other(results, expected)
  local function text(value)
    return type(value) == "number" and files.number_text(value) or tostring(value)
  end
  for i, result in ipairs(results) do
    for _, name in ipairs(named) do
      local a, b = result[name[1]], expected[i][name[1]]
      if a ~= b and not (a ~= a and b ~= b) then
        return ("the %s step %d is %s, in RAM %s"):format(name[2], i, text(a), text(b))
      end
    end
  end
end

-- train() with a disk. A tile with wrong values may cause an error first, such as NaN logits.
local function train_with_disk(run, build, loader)
  local function result(good, ...)
    if good then return ... end
    lib.fail("verify: with memory.disk, an error that did not occur in RAM: %s", tostring((...)))
  end
  return result(lib.protected(train, run, "with memory.disk", build, loader))
end

-- Raises an error if the training with a disk gave other results.
local function judge(differ, path, found, other, list)
  if differ == 0 and not other then return end
  local parts = {}
  if differ > 0 then
    parts[1] = ("%d of %d tensors, the first of them %s, by at most %.3g (element %d is %.9g, in "
                .. "RAM %.9g)"):format(differ, #list, path, found.most, found.at, found.here,
                                       found.there)
  end
  parts[#parts + 1] = other
  lib.fail("verify: with memory.disk, other bits than in RAM: %s; with checks=tiles, the first "
           .. "wrong tile is an error of its own",
           table.concat(parts, "; "))
end

-- Prints what is trained and in which memory. all, wanted, most: as for train_both().
local function announce(run, plan, used, all, wanted, most)
  local cfg = run.cfg
  local share = cfg.model.layers == all and "" or used > wanted
    and (" (the least that works; their share of %s is %s)"):format(units.bytes(most),
                                                                   units.bytes(wanted))
    or (" (their share of %s)"):format(units.bytes(most))
  run:say(("verify: %s of %d of %d layers, %s of weights and moments, in %s of RAM%s and without "
           .. "memory.disk: about %s"):format(
    units.count(cfg.verify, "step"), cfg.model.layers, all, units.bytes(plan.state),
    units.bytes(used), share,
    units.rough_duration(cfg.verify * (plan.seconds + step_plan.seconds(plan)))))
end

-- Trains with the layers of the settings in both ways -> the line to print. all: the layers of the
-- whole model; wanted, most: bytes of RAM with the disk.
local function train_both(run, build, loader, all, wanted, most)
  local cfg = run.cfg
  local plan, used = plan_with_disk(cfg, build, loader, wanted, most)
  if agreed("transfers", moved_bytes(plan), math.max) == 0 then
    lib.fail("verify: nothing would move, because %s fit into %s of RAM; lower memory.ram",
             units.count(cfg.model.layers, "layer"), units.bytes(used))
  end
  announce(run, plan, used, all, wanted, most)
  budget.no_tiers()
  local expected, file = reference(run, build, loader, cfg.memory.disk:match "[^,]+")
  collectgarbage()
  collectgarbage()               -- the tensors that finalizers of the first one released
  engine.sync()
  memory.use_disk(cfg.memory, used)
  local before = budget.memory().disk
  local model, optim, results = train_with_disk(run, build, loader)
  local list, disk = tensors_of(model, optim), budget.memory().disk
  local differ, path, found = compare(run, list, file)
  judge(differ, path, found, first_other(results, expected), list)
  cluster.gather("verify: the comparison", "")       -- rank 0 may have found a difference
  return ("verified: %s of %d of %d layers (%s of weights and moments) in %s of RAM equal the "
          .. "same steps without memory.disk bit for bit: %d tensors, losses %s, and what "
          .. "other programs between them compute; %s read and %s written%s"):format(
    units.count(cfg.verify, "step"), cfg.model.layers, all, units.bytes(plan.state),
    units.bytes(used), #list, losses(results), units.bytes(disk.read - before.read),
    units.bytes(disk.written - before.written), cluster.several() and " by rank 0" or "")
end

--- verify_tiers(run, build, loader) -> false: trains fewer layers in both ways, instead of the
--- training, and prints that all bits are the same. run: of nn.run; build, loader: as for run:plan.
--- The weights are random, also with init. Errors: bits that differ, with the first tensor and the
--- largest difference; a training that fails only with the disk; settings with which nothing would
--- move, or not even one layer fits.
function M.verify_tiers(run, build, loader)
  local cfg, ram = run.cfg, budget.memory().budget       -- memory.ram
  local all = cfg.model.layers
  run:say "verify: planning"
  -- A step with a loop submits its tasks for as long as it lasts, and nothing is to be saved.
  host.end_at_once(true)
  lib.finally(function() host.end_at_once(false) end, function()
    ram = agreed("memory.ram", ram, math.min)
    local count, wanted = choose_layers(cfg.model, build, loader, ram)
    run:say(with_layers(cfg.model, count, train_both, run, build, loader, all, wanted, ram))
  end)
  return false
end

return M
