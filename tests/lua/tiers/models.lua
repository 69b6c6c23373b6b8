-- Random small models with less memory than they need: results are those with enough memory, to the
-- bit, whatever the model, the budget, the workers and the delays. A budget that is too small is
-- refused with the smallest one that works, and that one works. TIERS_MODELS: how many models. Most
-- disks are in memory, because workers that wait for a disk poll, which takes the cores from other
-- processes.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local count = tonumber(os.getenv "TIERS_MODELS") or 40
local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or 7
local script = host.root .. "/tests/lua/support/tier_models.lua"
local folder, disk, second_disk = t.folder(), t.folder(), t.folder()
local on_disk = 5                -- every fifth model uses a disk, and every tenth two of them

math.randomseed(seed)
local function one_of(list) return list[math.random(#list)] end

-- Settings of a model; its budget as a share of what it takes, and the environment of its process.
local function random_model()
  local heads, tile = one_of {1, 2, 4}, one_of {0, 0, 8, 12}
  local accum = one_of {1, 4, 7}
  local settings = {
    model = one_of {"gpt2", "gpt2", "llama", "tied_llama"}, layers = math.random(1, 3),
    embd = one_of {64, 96}, heads = heads,
    context = math.random(6, 20), vocab = math.random(40, 300),
    batch = math.max(accum, math.random(3)), accum = accum, clip = one_of {0, 1},
    dropout = one_of {0, 0.1}, dtype = one_of {"f32", "bf16"},
    rounding = one_of {"nearest", "stochastic"}, tile = tile,
    activations = one_of {"keep", "recompute", "auto"}, eager = one_of {0, 0, 2},
    seed = math.random(1000),
  }
  if settings.dtype == "f32" then settings.rounding = "nearest" end
  local words = {}
  for name, value in pairs(settings) do words[#words + 1] = name .. "=" .. value end
  table.sort(words)
  return {settings = table.concat(words, " "), share = 0.15 + 0.75 * math.random(),
          environment = ("NNLUA_CPUS=%d %s"):format(
            one_of {1, 1, 1, 2, 2, 2, 3},
            one_of {"", "NNLUA_CHECKS=tiles NNLUA_DELAYS=" .. math.random(1e6)})}
end

local models = {}
for i = 1, count do models[i] = random_model() end

-- A folder in memory, or nil.
local function folder_in_memory()
  local status, output = t.shell "mktemp -d /dev/shm/nnlua-XXXXXX 2>/dev/null"
  return status == 0 and output:match "^%S+" or nil
end

-- The results of the models with enough memory -> list of {results, peak}.
local function resident()
  local lines = {}
  for i, model in ipairs(models) do lines[i] = model.settings end
  files.write(folder .. "/settings", table.concat(lines, "\n") .. "\n")
  local status, output = t.shell(("$NNLUA %s resident %s/settings 2>&1"):format(script, folder))
  t.check(status == 0, output)
  local out = {}
  for results, peak in output:gmatch "model %d+\n(.-)peak (%d+)\n" do
    out[#out + 1] = {results = results, peak = tonumber(peak)}
  end
  t.same(#out, count)
  return out
end

t.case(count .. " random small models have the same bits with less memory", function()
  local expected, commands, memory = resident(), {}, folder_in_memory()
  for i, model in ipairs(models) do
    local log = ("%s/%d"):format(folder, i)
    local disks = i % (2 * on_disk) > 0 and disk or disk .. "," .. second_disk
    local command = ("%s %s tiered %s %.4f %d %s"):format(
      t.program(), script, i % on_disk > 0 and memory or disks, model.share, expected[i].peak,
      model.settings)
    commands[i] = ("%s timeout -k 1 120 %s >%s 2>%s.err; echo status $? >>%s"):format(
      model.environment, command, log, log, log)
  end
  files.write(folder .. "/commands", table.concat(commands, "\n") .. "\n")
  local _, output = t.shell(("tr '\\n' '\\0' <%s/commands | xargs -0 -n 1 -P 2 sh -c 2>&1"):format(
    folder))
  t.same({files.list(disk), files.list(second_disk)}, {{}, {}})
  if memory then
    t.same(files.list(memory), {})
    files.remove(memory)
  end
  local moved, refused = 0, 0
  for i, model in ipairs(models) do
    local log = folder .. "/" .. i
    local text, errors = files.read(log), files.read(log .. ".err")
    -- How the process ended comes before its long results: a report may show the beginning only.
    local what = ("seed %d, model %d: %s %s, share %.4f\n%s%s%s\n%s"):format(
      seed, i, model.environment, model.settings, model.share, output, errors,
      text:match "[^\n]*\n[^\n]*\n$" or "", text)
    local results, wanted, ram, peak, bytes = text:match(
      "^(.*)used wanted (%d+) ram (%d+) peak (%d+) read %d+ written (%d+)\nstatus 0\n$")
    t.check(results, what)
    t.check(results == expected[i].results, "other bits: " .. what .. expected[i].results)
    t.check(tonumber(peak) <= tonumber(ram), what)
    moved = moved + (tonumber(bytes) > 0 and 1 or 0)
    refused = refused + (wanted ~= ram and 1 or 0)
  end
  print(("  %d models moved tiles, %d had the smallest budget that works"):format(moved, refused))
  t.check(moved > count / 2, "few models moved anything")
end)

t.finish()
