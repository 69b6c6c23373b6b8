-- The setting verify=K: recipes compare a training in little memory with one in enough, to the bit,
-- and find a disk that returns wrong bytes. Each check is a process of its own.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local folder, disk = t.folder(), t.folder()
files.write(folder .. "/text.txt", files.read(host.root .. "/README.md"))
local text = "data.batch=2 data.text=text.txt data.vocabulary=byte "
local sizes = text .. "model.layers=6 model.heads=4 model.embd=128 model.context=32 "
local tiers = ("memory.disk=%s memory.disk_in_ram=true "):format(disk)

-- A recipe with these settings -> its exit status and output. own: settings instead of `sizes`;
-- before: variables of its environment.
-- The folders of runs and the disk must remain empty.
local function recipe(name, settings, own, before)
  local status, output = t.shell(("cd %s; %s timeout 200 %s %s/recipes/%s.lua %s%s 2>&1"):format(
    folder, before or "", t.program(), host.root, name, own or sizes,
    settings))
  t.same({files.list(disk), files.list(folder)}, {{}, {"text.txt"}})
  return status, output
end

-- Verifies -> {steps, layers, all, tensors, losses, read, written} of the last line.
local function verified(name, settings, own)
  local status, output = recipe(name, tiers .. settings, own)
  t.check(status == 0, output)
  local steps, layers, all, tensors, losses, read, written = output:match(
    "\nverified: (%d+) steps? of (%d+) of (%d+) layers %([%d.]+ %aB of weights and moments%) in "
    .. "[%d.]+ %aB of RAM equal the same steps without memory.disk bit for bit: (%d+) tensors, "
    .. "losses ([%d. ]+), and what other programs between them compute; ([%d.]+ %aB) read and "
    .. "([%d.]+ %aB) written\n$")
  t.check(steps, output)
  t.check(output:find(("verify: %s steps? of %s of %s layers,"):format(steps, layers, all)), output)
  local found = {steps = tonumber(steps), layers = tonumber(layers), all = tonumber(all),
                 tensors = tonumber(tensors), output = output}
  for number in losses:gmatch "%S+" do
    found[#found + 1] = number
    t.check(tonumber(number) > 1 and tonumber(number) < 7, output)
  end
  t.same(#found, found.steps)
  t.check(read ~= "0 B" and written ~= "0 B", output)
  return found
end

t.case("GPT-2 verifies with as many layers as fit, all tensors of them", function()
  local found = verified("gpt2_train", "memory.ram=12MB verify=2 model.dtype=f32")
  t.check(found.layers >= 2 and found.layers < 6, found.output)
  t.same({found.steps, found.all}, {2, 6})
  t.same(found.tensors, 3 * (4 + 12 * found.layers))
  found = verified("gpt2_train", "memory.ram=12MB verify=3 data.accum=5 model.dropout=0.1 "
                   .. "model.dtype=bf16 optim.clip=0")
  t.same({found.steps, found.tensors}, {3, 4 * (4 + 12 * found.layers)})      -- with masters
end)

t.case("other recipes and models verify", function()
  verified("train", "memory.ram=12MB verify=2 data.accum=5 optim.clip=1")
  verified("train", "memory.ram=12MB verify=1 model.dtype=bf16 optim.rounding=stochastic")
  verified("train_masked", "memory.ram=12MB verify=1")
  local found = verified("train_span", "memory.ram=20MB verify=1", text
    .. "model.layers=6 model.decoder_layers=4 model.heads=4 model.embd=128 data.context=32 ")
  t.same({found.layers < 6, found.all}, {true, 6})
  verified("mixer_train", "memory.ram=20MB verify=2", "model.layers=6 model.embd=256 data.batch=4 ")
end)

t.case("more layers than fit into memory.ram are trained if only one would be", function()
  local found = verified("gpt2_train", "memory.ram=6MB verify=1")
  t.same(found.layers, 2)
end)

t.case("a share that is too small for any plan becomes the least that works", function()
  local found = verified("gpt2_train", "memory.ram=5MB model.layers=40 verify=1")
  t.check(found.output:find "of RAM %(the least that works; their share of 5.0 MB is "
          .. "[%d.]+ %aB%) and without memory.disk: about ", found.output)
end)

t.case("wrong bytes from the disk are found, with the first tensor that differs", function()
  local status, output = recipe("gpt2_train", tiers .. "memory.ram=12MB verify=2", nil,
                                "NNLUA_FAIL_DISK=read:20+:corrupt")
  t.check(status == 1, output)
  local differ, all, path = output:match("\nnnlua: verify: with memory.disk, other bits than in "
    .. "RAM: (%d+) of (%d+) tensors, the first of them (%S+), by at most %S+ %(element %d+ is %S+, "
    .. "in RAM %S+%)")
  t.check(differ and tonumber(differ) > 0 and tonumber(differ) <= tonumber(all), output)
  t.same(path, "tok.weight")
  t.check(not output:find "verified", output)
  status, output = recipe("gpt2_train", tiers .. "memory.ram=12MB verify=2", nil,
                          "NNLUA_CHECKS=tiles NNLUA_FAIL_DISK=read:20:corrupt")
  t.check(status == 1
          and output:find "load of tile %d+ .-: tile %d+ has changed since a store", output)
end)

t.case("an error that occurs only with the disk is reported as such", function()
  local status, output = recipe("gpt2_train", tiers .. "memory.ram=12MB verify=2", nil,
                                "NNLUA_FAIL_DISK=read:20:5")
  t.check(status == 1 and output:find("\nnnlua: verify: with memory.disk, an error that did not "
          .. "occur in RAM: .-[Ii]nput/output error"), output)
end)

t.case("settings that cannot be verified are refused before anything runs", function()
  for settings, expected in pairs {
    ["verify=1"] = "verify=1 compares a training with memory.disk to one without; set "
      .. "memory.disk=FOLDER",
    [tiers .. "verify=-1"] = "'verify' must be at least 0, not '-1'",
    [tiers .. "verify=0.5"] = "'verify' must be a whole number, not '0.5'",
    [tiers .. "verify=1 plan=true"] = "verify=1 and plan=true both replace the training; choose",
    [tiers .. "verify=1 memory.gpu=1GB"] = "verify=1 compares RAM with a disk only; clear "
      .. "memory.gpu=1GB by memory.gpu=",
    [tiers .. "verify=1 memory.ram=1GB"] = "verify: nothing would move, because 6 layers fit into "
      .. "1.0 GB of RAM; lower memory.ram",
    [tiers .. "verify=1 memory.ram=1MB"] = "out of memory: a plan for this program needs at least ",
  } do
    local status, output = recipe("gpt2_train", settings)
    t.check(status == 1 and output:find(expected, 1, true), output)
  end
end)

t.case("a recipe without layers cannot be verified", function()
  local nn = require "nn"
  local cfg = nn.config({nn.run_fields()}, {"verify=1", "memory.disk=" .. disk})
  t.fails(function() nn.run(cfg) end, "has no setting model.layers")
end)

t.case("a stop signal ends a check at once, and leaves nothing on the disk", function()
  for line, steps in pairs {["verify: planning"] = 2, ["verify: training without memory"] = 2000,
                            ["verify: storing"] = 60, ["verify: training with memory"] = 60} do
    local status, output = t.shell(([[
      cd %s; (exec env --default-signal %s %s/recipes/gpt2_train.lua %s%s verify=%d \
        memory.ram=12MB) >log 2>&1 &
      for i in $(seq 600); do grep -q "%s" log && break; sleep 0.05; done
      from=$(date +%%s%%N); kill -INT $!; wait $!; status=$?
      echo "took $((($(date +%%s%%N) - from) / 1000000)) ms"; cat log; rm log; exit $status
    ]]):format(folder, t.program(), host.root, sizes, tiers, steps, line))
    t.check(status == 130, output)
    t.check(output:find "nnlua: interrupted\n$" and not output:find "verified", output)
    t.check(tonumber(output:match "took (%d+) ms") < 5000, output)
    t.same(files.list(disk), {})
  end
end)

t.finish()
