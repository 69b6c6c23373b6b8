-- Gradient accumulation: a compiled step records the microbatches after the first one as a loop,
-- and gives the bits of eager execution. tests/lua/tiers/results.lua runs such steps in less
-- memory.
local GPT2 = require "models.gpt2"
local ffi = require "ffi"
local nn = require "nn"
local t = require "nn.test"

local ROWS, CONTEXT = 2, 16

local function tokens(rows, seed)
  local array = ffi.new("int32_t[?]", rows * CONTEXT)
  for i = 0, rows * CONTEXT - 1 do array[i] = (i * 7 + seed * 13 + math.floor(i / 5)) % 64 end
  return nn.empty({rows, CONTEXT}, {dtype = "i32", axes = "batch,time"}):copy_from_host(array)
end

local function optimizer_step(accum, dropout)
  nn.seed(3)
  local model = GPT2 {layers = 2, heads = 2, embd = 32, vocab = 64, context = CONTEXT,
                      dropout = dropout}
  local optim = nn.AdamW(model, {lr = 1e-2, clip = 1})
  return function(ids, targets)
    optim:zero_grad()
    local loss = nn.accumulate(model, accum, ids, targets)
    return loss, optim:step()
  end, model
end

-- The losses of three steps, and sums of the parameters after them, as text.
local function trained(accum, dropout, compiled)
  local step, model = optimizer_step(accum, dropout)
  if compiled then step = nn.compile(step) end
  local out = {}
  for i = 1, 3 do
    local batch = tokens(ROWS * accum, i)
    out[i] = ("%.17g"):format((step(batch, batch)):item())
  end
  for _, p in ipairs(model:parameters()) do
    out[#out + 1] = ("%.17g"):format(p.tensor:sum():item())
  end
  return table.concat(out, " ")
end

for _, dropout in ipairs {0, 0.1} do
  t.case(("any number of microbatches, compiled or eager, with dropout %g"):format(dropout),
  function()
    for _, accum in ipairs {1, 2, 3, 4, 5, 9, 16} do
      t.same(trained(accum, dropout, true), trained(accum, dropout, false), accum)
    end
  end)
end

t.case("microbatches of one tile each, of which several run at a time", function()
  nn.tiles {tokens = ROWS * CONTEXT}
  for _, accum in ipairs {4, 7, 12} do
    t.same(trained(accum, 0.1, true), trained(accum, 0.1, false), accum)
  end
  nn.tiles {tokens = 0}
end)

t.case("shards of a batch have loops of their own", function()
  nn.cluster {shards = 2}
  t.same(trained(10, 0.1, true), trained(10, 0.1, false))
  nn.cluster {shards = 1}
end)

t.case("tasks are counted for each microbatch but take memory once", function()
  local function plan(accum)
    local step = nn.compile((optimizer_step(accum, 0)))
    local batch = tokens(ROWS * accum, 1)
    return step:plan(batch, batch)
  end
  local few, more, many = plan(8), plan(16), plan(64)
  t.check(more.tasks - few.tasks > 8 * 50, more.tasks - few.tasks)
  t.near(many.tasks - more.tasks, 6 * (more.tasks - few.tasks), {rel = 0.01})
  t.near(many.flops - more.flops, 6 * (more.flops - few.flops), {rel = 0.01})
  t.check(many.tiles - few.tiles < 8 * 56, many.tiles - few.tiles)   -- rows of the batch
end)

t.case("a scalar that changes in a microbatch is refused", function()
  local count = nn.scalar(0)
  local model = GPT2 {layers = 1, heads = 2, embd = 32, vocab = 64, context = CONTEXT}
  local step = nn.compile(function(ids)
    return nn.accumulate(function(...)
      count:add(1)
      return model(...)
    end, 6, ids, ids)
  end)
  t.fails(function() step(tokens(6 * ROWS, 1)) end, "changes inside a microbatch")
end)

t.finish()
