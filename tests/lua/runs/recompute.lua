-- Recomputation of activations: results are those of a training that keeps them, to the bit, and
-- less memory is used. RECOMPUTE_MODELS: how many random small models to train.
local budget = require "nn.base.budget"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local runs = require "tier_runs"
local script, train = runs.script, runs.train

-- Trains with all activations kept and with all recomputed; share: the peak of the latter, at most.
local function compare(settings, share, before)
  local expected, kept = train(settings .. " activations=keep", before)
  local output, recomputed = train(settings .. " activations=recompute", before)
  t.same(output, expected, settings)
  t.check(recomputed.peak < share * kept.peak,
          ("%s: %d of %d bytes"):format(settings, recomputed.peak, kept.peak))
end

local model = "layers=6 embd=64 heads=2 context=64 batch=16 vocab=300 "
for name, settings in pairs {
  ["with clipping"] = "", ["without clipping"] = "clip=0", ["with microbatches"] = "accum=4",
  ["with dropout"] = "dropout=0.1 accum=2", ["with bf16 and master weights"] = "dtype=bf16",
  ["with bf16 and stochastic rounding"] = "dtype=bf16 rounding=stochastic dropout=0.1",
  ["with ragged tiles"] = "tile=48 context=40",
} do
  t.case("recomputation changes no bit " .. name, function() compare(model .. settings, 0.7) end)
end

t.case("recomputation changes no bit with one and three workers", function()
  compare(model .. "dropout=0.1", 0.7, "NNLUA_CPUS=1")
  compare(model .. "accum=2", 0.7, "NNLUA_CPUS=3")
end)

t.case("recomputation changes no bit of random small models", function()
  math.randomseed(tonumber(os.getenv "NNLUA_TEST_SEED") or 7)
  local function one_of(list) return list[math.random(#list)] end
  for _ = 1, tonumber(os.getenv "RECOMPUTE_MODELS") or 4 do
    compare(("layers=%d embd=%d heads=%d context=%d vocab=%d batch=4 accum=%d clip=%g dropout=%g "
             .. "dtype=%s tile=%d steps=3 seed=%d"):format(
      math.random(1, 8), one_of {32, 64, 128}, one_of {2, 4}, math.random(16, 64),
      math.random(300, 1500), one_of {1, 2, 4}, one_of {0, 1}, one_of {0, 0.1},
      one_of {"f32", "bf16"}, one_of {0, 16, 24}, math.random(1000)), 1.02)
  end
end)

t.case("a batch whose activations do not fit runs if some of them are recomputed", function()
  local expected, kept = train(model .. "activations=keep")
  local _, least = train(model .. "activations=recompute")
  local memory = math.floor((kept.peak + least.peak) / 2 + 4e6)   -- and records of tiles
  local output, used = train(("%s activations=auto memory=%d"):format(model, memory))
  t.same(output, expected)
  t.check(used.peak <= memory, ("%d of %d bytes"):format(used.peak, memory))
  t.check(used.peak > 1.1 * least.peak,
          ("only what is needed is recomputed: %d, %d"):format(used.peak, least.peak))
  local _, all = train(model .. "activations=auto")
  t.near(all.peak, kept.peak, {rel = 0.02})
  local status, text = t.shell(("$NNLUA %s %s activations=keep memory=%d 2>&1"):format(
    script, model, memory * 0.7))
  t.check(status == 1 and text:find "out of memory", text)
end)

t.case("memory tiers and recomputation together change no bit", function()
  local settings = "layers=6 embd=128 heads=4 context=64 batch=8 "
  local expected, kept = train(settings .. "activations=keep")
  for _, choice in ipairs {"recompute", "auto"} do
    local output = train(("%s activations=%s ram=%d disk=%s"):format(
      settings, choice, kept.peak * 0.6, t.folder()))
    t.same(output, expected, choice)
  end
end)

-- Three layers that are no GPT-2, with dropout; and the function that trains them.
local function other_model(choice)
  nn.seed(3)
  local layers = {}
  for i = 1, 8 do
    layers[2 * i - 1] = nn.Linear(128, 128)
    layers[2 * i] = i % 2 == 0 and nn.tanh or function(x) return x:gelu():dropout {p = 0.2} end
  end
  local net = nn.Sequential(layers)
  local optim = nn.SGD(net, {lr = 0.1, momentum = 0.9})
  nn.activations(choice)
  return net, nn.compile(function(x)
    optim:zero_grad()
    local loss = net(x):square():mean()
    loss:backward()
    return loss, optim:step()
  end)
end

local function results(choice)
  local net, step = other_model(choice)
  local x, out = nn.randn(512, 128), {}
  for _ = 1, 3 do
    local loss, norm = step(x)
    out[#out + 1] = ("%.17g %.17g"):format(loss:item(), norm:item())
  end
  for _, p in ipairs(net:parameters()) do
    out[#out + 1] = ("%.17g"):format(p.tensor:square():sum():item())
  end
  nn.activations "auto"
  return out, step:info()
end

t.case("a script's own model gives the same results with less memory", function()
  local expected, kept = results "keep"
  local given, recomputed = results "recompute"
  t.same(given, expected)
  t.check(recomputed.tasks > kept.tasks)
  t.check(recomputed.peak_bytes < 0.85 * kept.peak_bytes,
          ("%d, %d"):format(recomputed.peak_bytes, kept.peak_bytes))
end)

t.case("a function without backward() is recorded as ever", function()
  local net = nn.Sequential {nn.Linear(64, 64), nn.gelu, nn.Linear(64, 64)}
  local function info(choice)
    return budget.with_activations(choice, function()
      return nn.compile(function(x) return nn.no_grad(net, x):sum() end):plan(nn.zeros(256, 64))
    end)
  end
  t.same(info "recompute", info "keep")
end)

-- batch: sequences in a microbatch.
local function planned(choice, batch, microbatches)
  return budget.with_activations(choice, function()
    return nn.plan_step(function(n)
      local m = GPT2 {layers = 6, heads = 2, embd = 64, context = 64, vocab = 300}
      local optim, ids = nn.AdamW(m), nn.zeros({(microbatches or 1) * n, 64}, {dtype = "i32"})
      return function()
        if microbatches then
          nn.accumulate(m, microbatches, ids, ids)
        else
          m(ids, ids):backward()
        end
        return optim:step()
      end, {weights = m, optimizer = optim, other = {ids}}
    end, {batch = batch})
  end)
end

t.case("plans include recomputation, and auto recomputes only what does not fit", function()
  local kept, all = planned("keep", 16), planned("recompute", 16)
  t.check(all.peak < 0.6 * kept.peak, ("%d, %d"):format(all.peak, kept.peak))
  t.same(kept.recomputed, 0)
  t.check(all.recomputed > 0.4 * (kept.peak - all.peak))
  t.check(all.recomputing > 0.1 and all.recomputing < 0.4, all.recomputing)
  t.check(tostring(all):find "\nrecomputed +[%d.]+ .B of activations, which takes %d+ %%")
  nn.machine {ram = math.floor((kept.peak + all.peak) / 2 + 4e6)}
  local auto = planned("auto", 16)
  local available = auto.available
  nn.machine ""
  t.check(auto.peak <= available and auto.peak > all.peak, auto.peak)
  t.check(auto.recomputed > 0 and auto.recomputed < all.recomputed, auto.recomputed)
  t.same(planned("auto", 16).recomputed, 0)
end)

t.case("more microbatches take no more memory, and recompute as much more", function()
  local few, many = {}, {}
  for _, choice in ipairs {"keep", "recompute"} do
    few[choice], many[choice] = planned(choice, 8, 2), planned(choice, 8, 8)
    t.check(many[choice].peak < 1.05 * few[choice].peak, ("%s: %d, %d"):format(
      choice, many[choice].peak, few[choice].peak))
  end
  t.near(many.recompute.recomputed / few.recompute.recomputed, 4, {rel = 0.05})
end)

t.case("the largest batch of a plan counts on recomputation unless activations are kept", function()
  local function largest(choice)
    nn.machine {ram = "64MB"}
    local text = tostring(planned(choice, 8))
    nn.machine ""
    return tonumber(text:match "\nlargest batch +batch=(%d+)"), text
  end
  local kept, auto = largest "keep", largest "auto"
  t.check(auto > 1.5 * kept, ("%d, %d"):format(auto, kept))
end)

t.case("a wrong choice is an error that names the right ones", function()
  t.fails(function() nn.activations "all" end,
          'activations: the choice is \'all\'; "keep", "recompute" or "auto" is needed')
  local status, output = t.shell "$NNLUA recipes/gpt2_train.lua memory.activations=all 2>&1"
  t.check(status == 1 and output:find "'memory.activations' must be one of auto, keep, recompute",
          output)
end)

t.finish()
