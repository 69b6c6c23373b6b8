-- nn.checks "tiles": the same bits with it, and it finds each kind of planted fault
-- (engine/base/planted_faults.h). TIERS_PLANTED: the fewest faults of each kind.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local folder = t.folder()
local support = host.root .. "/tests/lua/support/"
local turns = support .. "tier_turns.lua layers=2 embd=128 batch=2 context=16 vocab=300 steps=4 "
  .. "accum=2 validate=1 plain=2 folder=" .. folder
local eager = support .. "tiers.lua layers=4 embd=128 batch=2 context=16 vocab=300 steps=3 eager=2"
local share = {[turns] = 0.5, [eager] = 0.44}
math.randomseed(tonumber(os.getenv "NNLUA_TEST_SEED") or 3)
local PLANTED = tonumber(os.getenv "TIERS_PLANTED") or 3

-- Runs a training -> its status, output and messages.
local function run(script, ram, environment)
  local status, output = t.shell(
    ("NNLUA_CPUS=1 %s timeout -k 1 100 $NNLUA %s ram=%d disk=%s 2>%s/log"):format(
      environment, script, ram, folder, folder))
  return status, output, files.read(folder .. "/log")
end

-- What it prints, and the bytes of RAM in which it moves tiles.
local expected, ram = {}, {}
for script in pairs(share) do
  local status, output, messages = run(script, 0, "")
  t.check(status == 0, messages)
  expected[script] = output
  ram[script] = math.floor(share[script] * tonumber(messages:match "peak (%d+)"))
  for _ = 1, 8 do
    status, _, messages = run(script, ram[script], "")
    local least = messages:match "plan for this program needs at least .- %((%d+) bytes"
    if not least then break end
    ram[script] = tonumber(least)
  end
  t.check(status == 0, messages)
end

t.case("checks of tiles change no bit, and find nothing where nothing is wrong", function()
  for _, script in ipairs {turns, eager} do
    local least = ram[script]
    for _, how in ipairs {{least, ""}, {least, "NNLUA_DELAYS=7"}, {0, "NNLUA_CPUS=2"}} do
      local status, output, log = run(script, how[1], "NNLUA_CHECKS=tiles " .. how[2])
      t.check(status == 0, log)
      t.same(output, expected[script])
    end
  end
end)

-- Runs with one fault -> whether it was found. A fault that changes no result may stay unnoticed,
-- but none changes a result in silence.
local function is_found(script, kind, number)
  local what = ("NNLUA_CHECKS=tiles NNLUA_PLANT=%s:%d"):format(kind, number)
  local status, output, log = run(script, ram[script], what)
  local right = expected[script]
  t.check(output == (status == 0 and right or right:sub(1, #output)), what .. ": " .. output)
  if status == 0 then return false end
  t.check(status == 1 and (log:find "tile %d+ is needed" or log:find "tile %d+ has changed since"
          or log:find " began before .- had ended, and %a+ the same memory"), what .. ": " .. log)
  return true
end

for _, kind in ipairs {"load_lost", "load_late", "load_twice", "load_astray", "store_lost",
                       "store_late", "store_twice", "store_astray", "slot_altered",
                       "tile_altered", "copy_stale"} do
  t.case("checks find a planted fault: " .. kind, function()
    local found, script = 0, kind == "copy_stale" and eager or turns
    for number = 1, math.max(30, PLANTED) do   -- a late fault may change nothing
      if number > PLANTED and found > 0 then break end
      found = found + (is_found(script, kind, math.random(20, 100)) and 1 or 0)
    end
    t.check(found > 0, "nothing was found")
  end)
end

t.case("checks are chosen before the first tensor is computed", function()
  t.same(nn.checks "tiles", "off")
  t.same(nn.checks "off", "tiles")
  t.fails(function() nn.checks "all" end, 'checks: "off" or "tiles" is needed, not \'all\'')
  nn.zeros(1):item()
  t.fails(function() nn.checks "tiles" end, "before the first tensor is computed")
  t.same(nn.checks(), "off")
end)

t.finish()
