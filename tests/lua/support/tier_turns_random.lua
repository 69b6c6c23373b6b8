-- Trainings with other programs in turns (tier_turns.lua), with planned memory and with enough.
local emulated = require "emulated"
local files = require "nn.io.files"
local host = require "nn.host"
local mpi = require "mpi"
local t = require "nn.test"

local M = {}
local script = host.root .. "/tests/lua/support/tier_turns.lua"
local MOST_REFUSALS = 8          -- of several programs, ranks and levels

-- Runs the script -> its status, output and messages.
local function run(environment, ranks, words)
  local folder = t.folder()
  local status, output = t.shell(("%s timeout -k 1 300 '%s' %s %s %s folder=%s 2>%s/log"):format(
    environment, mpi.program, ranks > 1 and "--ranks " .. ranks or "", script, words, folder,
    folder))
  return status, output, files.read(folder .. "/log")
end

-- The bytes with which a plan that was refused works -> "ram" or "gpu", bytes.
local function stated(messages)
  local of, bytes = messages:match "plan for this program needs at least .- of (.-) %((%d+) bytes"
  if not of then return nil end
  return of == "RAM" and "ram" or "gpu", tonumber(bytes)
end

-- Runs with so many bytes, or with those that errors state -> output, messages; nil and why not.
local function planned(case, environment, bytes, disk)
  local refused = {}
  for _ = 1, MOST_REFUSALS do
    local words = ("%s disk=%s gpu=%d ram=%d"):format(case.words, disk, bytes.gpu, bytes.ram)
    local status, output, messages = run(environment, case.ranks or 1, words)
    if status == 0 then return output, messages end
    local of, least = stated(messages)
    if not of then return nil, ("status %d: %s"):format(status, messages) end
    if least <= bytes[of] then return nil, "refused with the bytes that it needs: " .. messages end
    bytes[of], refused[#refused + 1] = least, messages
  end
  return nil, "refused again and again: " .. table.concat(refused)
end

-- What is wrong with a case, or nil; and whether its tiles were moved. case: {words=, environment=,
-- share=, ranks=, levels=}; levels: 1: RAM, 2: a GPU above it, 0: a GPU alone.
local function problem_of(case, disk)
  local levels, folder = case.levels or 1, t.folder()
  local plain = levels == 1 and "" or emulated.none
  local status, expected, messages = run(plain .. " " .. case.environment, 1, case.words)
  if status ~= 0 then return "without tiers: " .. messages end
  local peak = tonumber(messages:match "peak (%d+)")
  local environment = case.environment
  if levels ~= 1 then                    -- a GPU cuts tensors into other tiles
    environment = emulated.devices("gpus=1", folder) .. " " .. environment
    status, expected, messages = run(environment, 1, case.words)
    if status ~= 0 then return "without tiers on a GPU: " .. messages end
  end
  local bytes = {gpu = levels == 1 and 0 or math.floor(case.share * peak),
                 ram = levels == 0 and 0 or math.floor((case.lower or case.share) * peak)}
  local output, problem = planned(case, environment, bytes, disk)
  if not output then return problem end
  if output ~= expected then
    local theirs = {}
    for line in expected:gmatch "[^\n]+" do theirs[#theirs + 1] = line end
    local at = 0
    for line in output:gmatch "[^\n]+" do
      at = at + 1
      if line ~= theirs[at] then return ("%s\n  instead of %s"):format(line, theirs[at]) end
    end
    return "the output ends early: " .. output
  end
  for most in problem:gmatch "peak (%d+)" do
    if levels == 1 and case.ranks == 1 and tonumber(most) > bytes.ram then
      return ("a peak of %s in %d bytes"):format(most, bytes.ram)
    end
  end
  return nil, tonumber(problem:match "moved (%d+)") > 0
end

local function text_of(case)
  return ("%s %s share=%.4f ranks=%d levels=%d"):format(case.environment, case.words, case.share,
                                                       case.ranks or 1, case.levels or 1)
end

--- check(case): raises an error if planned memory changes its results. case: see problem_of().
function M.check(case)
  local problem, moved = problem_of(case, t.folder())
  t.check(not problem, text_of(case) .. ": " .. tostring(problem))
  t.check(moved, text_of(case) .. ": nothing was moved")
end

local function one_of(list) return list[math.random(#list)] end
local programs = {"second", "validate", "average", "plain", "sample", "save", "gradients"}

-- What disturbs a training: nothing, delays, or delays and checks of tiles; with TIERS_DISTURBED=1
-- always delays, and with checks or tests/disturb.
local function disturbed()
  local outside = os.getenv "TIERS_DISTURBED"
  local how, seed = math.random(outside and 3 or 1, 4), math.random(1e6)
  local delays = (how == 2 or how == 3 or outside) and ("NNLUA_DELAYS=%d "):format(seed) or ""
  if how == 3 then return "NNLUA_CHECKS=tiles " .. delays end
  return outside and ("%s '%s/tests/disturb' %d"):format(delays, host.root, seed) or delays
end

-- Sizes whose tiles are on both sides of those from which tiles are placed: 64, 16 and 4 kB.
local function random_case()
  local case = {share = 0.1 + 0.8 * math.random() ^ 2, lower = 0.1 + 0.9 * math.random(), ranks = 1,
                levels = one_of {1, 1, 1, 1, 1, 1, 2, 2, 0}}
  local accum = one_of {1, 1, 2, 4, 5, 8}
  local settings = {
    model = one_of {"gpt2", "gpt2", "llama", "tied_llama"}, layers = math.random(4),
    embd = one_of {32, 64, 96, 128, 160, 192}, heads = one_of {2, 4}, context = math.random(8, 48),
    vocab = math.random(40, 400), batch = accum * math.random(math.ceil(6 / accum)), accum = accum,
    clip = one_of {0, 1, 1}, dtype = one_of {"f32", "bf16"}, rounding = "nearest",
    activations = one_of {"keep", "keep", "recompute", "auto"}, tile = one_of {0, 0, 12},
    steps = math.random(3, 6), seed = math.random(1000),
  }
  if settings.dtype == "bf16" and math.random() < 0.3 then settings.rounding = "stochastic" end
  local several = not mpi.missing() and math.random() < 0.2
  local ranks = one_of {2, 2, 3}
  if several or math.random() < 0.15 then
    settings.shards, settings.shard = accum * one_of {1, 2}, one_of {"weights", "optimizer"}
    if settings.shards < ranks then settings.shards = ranks end
    settings.accum = settings.shards
    settings.batch = settings.shards * math.random(2)
  end
  if several then case.ranks, case.levels = ranks, 1 end
  if emulated.missing() then case.levels = 1 end
  local words = {}
  for name, value in pairs(settings) do words[#words + 1] = name .. "=" .. value end
  table.sort(words)
  local order = {}
  for _, name in ipairs(programs) do
    if math.random() < 0.5 then
      table.insert(order, math.random(#order + 1), ("%s=%d"):format(name, one_of {1, 1, 2, 3}))
    end
  end
  case.words = table.concat(words, " ") .. " " .. table.concat(order, " ")
  case.environment = ("NNLUA_CPUS=%d %s"):format(one_of {1, 1, 2, 2, 3}, disturbed())
  return case
end

--- check_random(count, seed): checks so many random cases, and raises an error with all that fail.
function M.check_random(count, seed)
  math.randomseed(seed)
  local disk, wrong, moved, uses = t.folder(), {}, 0, {}
  for number = 1, count do
    local case = random_case()
    for _, name in ipairs(programs) do
      uses[name] = (uses[name] or 0) + (case.words:find(name .. "=", 1, true) and 1 or 0)
    end
    local problem, has_moved = problem_of(case, disk)
    moved = moved + (has_moved and 1 or 0)
    if problem then
      wrong[#wrong + 1] = ("seed %d, case %d: %s\n%s"):format(seed, number, text_of(case), problem)
      io.stderr:write(wrong[#wrong], "\n")
    end
  end
  t.same(files.list(disk), {})
  local parts = {}
  for _, name in ipairs(programs) do parts[#parts + 1] = name .. " " .. uses[name] end
  print(("  %d of %d moved tiles; cases with each program: %s"):format(moved, count,
                                                                         table.concat(parts, ", ")))
  t.check(#wrong == 0, ("%d of %d are wrong:\n%s"):format(#wrong, count,
                                                         table.concat(wrong, "\n")))
  t.check(moved > count / 3, "few moved anything")
end

return M
