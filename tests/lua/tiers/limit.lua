-- The guarantee of --plan: a training with less memory than it needs goes through in a control
-- group with the RAM that the plan states for the process, without swap. TIERS_LIMIT=long trains
-- GPT-2 124M for 50 steps instead of a small model.
local host = require "nn.host"
local t = require "nn.test"

local long = os.getenv "TIERS_LIMIT" == "long"
local model = long and "preset=gpt2 model.dtype=f32 data.batch=4 data.accum=1 data.context=128 "
  .. "model.vocab=50257 memory.ram=500MB"
  or "preset=demo model.layers=8 model.embd=384 data.batch=4 data.context=32 memory.ram=24MB"
local budget = long and 500e6 or 24e6
local folder = t.folder()
local disk = "memory.disk=. memory.disk_in_ram=true memory.disk_rate=1GB"

-- Runs the recipe in a control group with at most `limit` bytes -> its status and its output.
local function train(limit, settings)
  return t.shell(("cd %s && timeout -k 1 %d %s/tests/limited %.0f $NNLUA "
    .. "%s/recipes/gpt2_train.lua %s steps=50 eval_every=0 final_batches=1 sample.tokens=1 %s 2>&1")
    :format(folder, long and 7200 or 400, host.root, limit, host.root, model, settings))
end

-- The bytes of a text such as "6.1 GB".
local function bytes_of(number, unit)
  return tonumber(number) * (unit == "GB" and 1e9 or 1e6)
end

-- The RAM of the process that --plan states.
local function stated()
  local status, output = train(8e9, disk .. " --plan")
  if status == 77 then t.skip(output) end
  t.check(status == 0, output)
  local number, unit = output:match "\nprocess +([%d.]+) (%a+) of RAM"
  t.check(number, output)
  return bytes_of(number, unit)
end

t.case("a training goes through in the RAM that its plan states, 50 steps long", function()
  local limit = stated()
  t.check(limit > budget, "the rest of the process is missing")
  local status, output = train(limit, disk .. " out=tiers")
  t.check(status == 0, ("%.0f bytes: %s"):format(limit, output))
  t.check(output:find "\nlimited: limit %d+, peak %d+, killed 0\n", output)
  local number, unit = output:match "\nmemory: at most ([%d.]+) (%a+) of RAM for the process"
  t.check(number, output)
  local most = bytes_of(number, unit)
  print(("  %.0f MB stated, %.0f MB at most"):format(limit / 1e6, most / 1e6))
  t.check(most <= 1.03 * limit, output)
  t.check(most > budget, output)
end)

t.case("the same limit is too small for the training without a disk", function()
  local limit = stated()
  local status, output = train(limit, "out=whole memory.ram= memory.activations=keep")
  t.check(status ~= 0, output)
  t.check(output:find("cannot fit", 1, true) or output:find("killed 1", 1, true), output)
end)

t.finish()
