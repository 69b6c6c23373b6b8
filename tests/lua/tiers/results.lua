-- Training with less memory than the training needs: results are those of a run that fits, to the
-- bit. tests/lua/tiers/models.lua trains smaller models in more ways.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"

local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local runs = require "tier_runs"
local script, train = runs.script, runs.train

local function refusal(settings, ram)
  local status, output = t.shell(("$NNLUA %s %s ram=%d disk=%s 2>&1"):format(
    script, settings, ram, t.folder()))
  t.check(status == 1, output)
  return output
end
-- The smallest memory with which a model trains.
local function least(settings)
  local output = refusal(settings, 1)
  local bytes = output:match "a plan for this program needs at least .- of RAM %((%d+)"
  t.check(bytes, output)
  return tonumber(bytes)
end

-- Trains a model with all memory, and with a part of what that takes; compares the results.
local function compare(settings, before, disks)
  local expected, resident = train(settings, before)
  local ram = math.floor(0.4 * resident.peak)
  disks = disks or t.folder()
  local output, used = train(("%s ram=%d disk=%s"):format(settings, ram, disks), before)
  t.same(output, expected, settings)
  t.check(used.peak <= ram, ("a peak of %d within %d"):format(used.peak, ram))
  t.check(used.read > 0 and used.written > 0, "nothing was moved")
end

local model = "layers=8 embd=256 "
for name, settings in pairs {
  ["with clipping"] = "", ["without clipping"] = "clip=0", ["with microbatches"] = "accum=4",
  ["with a loop of microbatches"] = "batch=9 accum=9 dropout=0.1",
  ["with a loop and without clipping"] = "batch=14 accum=14 clip=0 activations=auto",
  ["with a loop and recomputation"] = "batch=6 accum=6 activations=recompute eager=2",
  ["with dropout"] = "dropout=0.1", ["with bf16 and master weights"] = "dtype=bf16",
  ["with bf16 and stochastic rounding"] = "dtype=bf16 rounding=stochastic",
  ["with ragged tiles"] = "tile=64 context=40", ["with other uses between steps"] = "eager=2",
} do
  t.case("less memory changes no bit " .. name, function()
    compare(model .. settings)
  end)
end

t.case("one and three workers change no bit", function()
  compare(model, "NNLUA_CPUS=1")
  compare(model, "NNLUA_CPUS=3")
end)

t.case("several disks change no bit", function()
  local disks = {t.folder(), t.folder(), t.folder()}
  compare(model, "NNLUA_CHECKS=tiles", table.concat(disks, ",", 1, 2))
  compare(model .. "accum=4 dtype=bf16", "NNLUA_DELAYS=3", table.concat(disks, ","))
  for _, disk in ipairs(disks) do t.same(files.list(disk), {}) end
end)

t.case("memory too small for any plan is refused with the smallest that works", function()
  local expected, bytes = train(model), least(model)
  t.check(refusal(model, bytes - 100000):find("at least", 1, true))
  local output, used = train(("%s ram=%d disk=%s"):format(model, bytes, t.folder()))
  t.same(output, expected)
  t.check(used.peak <= bytes)
end)

-- What a run prints with the share of a peak, or the least memory above it that its plan states.
local function tiered(settings, share, peak)
  local status, output = t.shell(("$NNLUA %s/tier_models.lua tiered %s %.9f %d %s 2>&1"):format(
    script:match "^(.*)/", t.folder(), share, peak, settings))
  t.check(status == 0, output)
  return output
end

t.case("what fits with enough memory runs so, although no plan would fit", function()
  local tiny = "layers=1 embd=64 context=8 vocab=2048 batch=1"
  local expected, whole = train(tiny)
  local ram = least(tiny)              -- all temporaries and two large tiles
  t.check(ram > whole.peak and ram < 1.5 * whole.peak, ram .. " " .. whole.peak)
  t.check(refusal(tiny, ram - 1):find(" bytes, which hold all of it", 1, true))
  local output = tiered(tiny, (ram + 0.5) / whole.peak, whole.peak)
  t.check(output:find(expected, 1, true) == 1, output)
  local given, peak, read = output:match "wanted %d+ ram (%d+) peak (%d+) read (%d+) "
  t.same({tonumber(given), tonumber(read)}, {ram, 0})
  t.check(tonumber(peak) <= ram, output)
end)

t.case("the stated least memory counts the batch and its copies", function()
  local settings = "accum=7 activations=recompute batch=7 context=15 embd=64 heads=4 layers=1 "
                   .. "model=tied_llama vocab=104"
  local expected, whole = train(settings)
  local output = tiered(settings, 0.3, whole.peak)
  t.check(output:find(expected, 1, true) == 1, output)
end)

-- The blocks of these tiles are an eighth larger than the tiles.
t.case("what tiles take in memory beside their values counts too", function()
  local file = t.folder() .. "/many.lua"
  files.write(file, ([[
    local nn = require "nn"
    nn.memory_tiers {ram = "640MB", disk = %q}
    local kept = {}
    for i = 1, 170 do kept[i] = nn.full({1050000}, i) end
    nn.sync()
    print(nn.memory().peak, nn.memory().disk.used, kept[1]:max():item())]]):format(t.folder()))
  local status, output = t.shell("$NNLUA " .. file .. " 2>&1")
  t.same(status, 0, output)
  local peak, used, first = output:match "(%d+)%s+(%d+)%s+(%d+)"
  t.check(tonumber(peak) <= 640e6 and tonumber(used) > 0, output)
  t.same(tonumber(first), 1)
end)

t.case("wrong tiers are errors that say what to change", function()
  t.fails(function() nn.memory_tiers {ram = "much", disk = "/var/tmp"} end,
          'memory_tiers: ram is \'much\'; a number of bytes or a text such as "6GB" is needed')
  t.fails(function() nn.memory_tiers {ram = "25", disk = "/var/tmp"} end,
          "ram is '25'; a number of bytes or a text")
  t.fails(function() nn.memory_tiers {ram = 0, disk = "/var/tmp"} end, "memory_tiers: ram is 0; a")
  t.fails(function() nn.memory_tiers {ram = "1e9TB", disk = "/var/tmp"} end, "ram is '1e9TB'")
  t.fails(function() nn.memory_tiers {ram = "1GB"} end, "memory_tiers: disk is nil; a folder")
  t.fails(function() nn.memory_tiers {ram = "1GB", disk = "/nowhere/disk"} end,
          "there is no folder /nowhere;")
  for _, disk in ipairs {",", "/var/tmp,", {}, {1}, {"/var/tmp", ""}} do
    t.fails(function() nn.memory_tiers {ram = "1GB", disk = disk} end,
            'a folder, or several such as "/nvme0,/nvme1", is needed')
  end
  t.fails(function() nn.memory_tiers {ram = "1GB", disk = {"/var/tmp", "/var/tmp"}} end,
          "the folder '/var/tmp' is given twice")
  t.fails(function() nn.memory_tiers {rma = 1} end, "did you mean 'ram'?")
end)

t.case("a missing folder of the disk is created, but not its parent", function()
  local parent = t.folder()
  local function tiers(folder)
    return t.shell(("cd %s; $NNLUA -e 'require(\"nn\").memory_tiers {ram = \"1GB\", disk = \"%s\", "
      .. "disk_in_ram = true}'"):format(parent, folder))
  end
  for _, name in ipairs {"new", "./also/", parent .. "/third", "new"} do
    local status, output = tiers(name)
    t.same({status, output}, {0, ""}, name)
  end
  t.same(#files.list(parent), 3)
  local status, output = tiers "missing/new"
  t.check(status == 1 and output:find(("the disk folder 'missing/new' cannot be created: there is "
    .. "no folder %s/missing; name another folder"):format(parent), 1, true), output)
  t.same(#files.list(parent), 3)
  files.write(parent .. "/file", "")
  t.check(select(2, tiers "file/new"):find("cannot be created: Not a directory", 1, true))
end)

t.case("a folder in RAM is refused as a disk, unless a setting allows it", function()
  local function mount_of(path)
    for line in io.lines "/proc/mounts" do
      if line:find("^%S+ " .. path .. " tmpfs rw") then return path end
    end
  end
  local tmpfs = mount_of "/dev/shm" or mount_of "/run" or mount_of "/tmp"
  if not tmpfs or os.execute(("test -w %s"):format(tmpfs)) ~= 0 then t.skip "no writable tmpfs" end
  local folder = ("%s/nnlua-%d"):format(tmpfs, math.floor(nn.now() * 1e6))
  local advice = "nnlua: .-the disk folder '%S+' is in RAM %(tmpfs%) and saves none; name a folder "
    .. "on a disk, such as /var/tmp, or allow this one with memory.disk_in_ram=true\n"
  for _, where in ipairs {tmpfs, folder} do
    local status, output = t.shell(("$NNLUA -e 'require(\"nn\").memory_tiers {ram = \"1GB\", "
      .. "disk = \"%s\"}'"):format(where))
    t.check(status == 1 and output:find(advice), output)
    t.check(not files.exists(folder), "the folder stays")
  end
  local recipe = ("$NNLUA %s/recipes/gpt2_train.lua preset=demo data.text=%s data.vocabulary=byte "
    .. "memory.ram=1GB memory.disk=%s "):format(root, script, folder)
  local status, output = t.shell(recipe .. "--plan")
  t.check(status == 1 and output:find(advice), output)
  status, output = t.shell(recipe .. "memory.disk_in_ram=true --plan")
  files.remove(folder)
  t.check(status == 0 and output:find "\ntime +about ", output)
end)

t.case("a failed transfer is one error that names the tile and the disk", function()
  for _, what in ipairs {"read:3:5", "read:9:zero", "write:4:28", "write:30:5"} do
    local folder = t.folder()
    local status, output = t.shell(([[NNLUA_FAIL_DISK=%s timeout -k 1 60 $NNLUA %s %s ram=40000000 \
      disk=%s 2>&1]]):format(what, script, model, folder))
    t.check(status == 1, what .. "\n" .. output)
    local message = "tile %d+ of [%d.]+ .B of the %a+ ?%a* cannot be [a-z ]+ the disk folder"
    t.check(output:find(message), output)
    t.same(files.list(folder), {})
  end
end)

t.finish()
