-- Commands of the prompt that begin with %: what code costs, and what there is.
local ffi = require "ffi"
local lib = require "nn.ffi"
local pretty = require "repl.pretty"
local session = require "repl.session"
local show = require "nn.show"
local text_of = require "repl.text"

local M = {}
local all = {}
M.all = all        -- {["%time"] = {usage=, about=, run=}}

local function command(name, arguments, about, run)
  all[name] = {usage = name .. (arguments and " " .. arguments or ""), about = about, run = run}
end

--- seconds(s) -> "1.23 s", "45.6 ms", "7.89 us": three digits.
function M.seconds(s)
  local unit = s >= 1 and {1, "s"} or s >= 1e-3 and {1e-3, "ms"} or {1e-6, "us"}
  local x = s / unit[1]
  return ("%." .. (x < 9.995 and 2 or x < 99.95 and 1 or 0) .. "f %s"):format(x, unit[2])
end

local function stats()
  local out = ffi.new "nn_stats_t"
  lib.check(lib.C.nn_stats(out))
  return out
end

-- Runs code and shows its values; true if all of it went well.
local function run_code(text)
  local units = session.compile(text)
  for _, unit in ipairs(units or {}) do
    if not session.run(unit) then return false end
  end
  return units ~= nil
end

local function signed_bytes(n)
  return n == 0 and "the same" or (n < 0 and "-" or "+") .. show.bytes(math.abs(n))
end

command("%time", "CODE", "runs CODE, then tells how long it took until all its tasks were done",
function(text)
  local nn = require "nn"
  local tasks, held, start = stats().tasks, nn.memory().in_use, nn.now()
  if not run_code(text) then return end
  local seconds = nn.now() - start
  print(("%s, %s tasks, memory of tensors: %s"):format(
    M.seconds(seconds), show.thousands(tonumber(stats().tasks - tasks)),
    signed_bytes(nn.memory().in_use - held)))
end)

local header = "%-20s %8s %10s %10s %7s %9s %7s"
local row = "%-20s %8d %10s %10s %6.1f%% %9.1f %7.1f"

local function kernel_lines(p, workers)
  local lines = {header:format("kernel", "tasks", "time", "mean", "share", "GFLOP/s", "GB/s")}
  local busy = 0
  for _, k in ipairs(p.kernels) do
    busy = busy + k.seconds
    lines[#lines + 1] = row:format(k.name, k.calls, M.seconds(k.seconds),
      M.seconds(k.seconds / k.calls), 100 * k.seconds / p.seconds / workers,
      k.flops / k.seconds / 1e9, k.bytes / k.seconds / 1e9)
  end
  return lines, busy
end

-- Runs code with the engine's clocks on; its profile (see nn.profile), or nil where it failed.
local function profiled(text)
  local ran
  local good, profile = pcall(require("nn").profile, function() ran = run_code(text) end)
  if not good then
    lib.C.nn_profile(0)
    error(profile, 0)
  end
  return ran and profile or nil
end

command("%profile", "CODE", "runs CODE and tells where the workers' time went, by kernel",
function(text)
  local p = profiled(text)
  if not p then return end
  local cpus, gpus = require("nn").workers()
  local lines, busy = kernel_lines(p, cpus + gpus)
  print(table.concat(lines, "\n"))
  local submission = p.replayed_tasks == 0 and "" or
    ("; submitting recorded tasks took %s"):format(M.seconds(p.replay_seconds))
  print(("%s in all; %d workers busy %.0f%% of it%s"):format(M.seconds(p.seconds), cpus + gpus,
    100 * busy / p.seconds / (cpus + gpus), submission))
end)

command("%tasks", "[CODE]", "tasks so far and still running; with CODE, those that it submits",
function(text)
  local cpus, gpus = require("nn").workers()
  if text:find "%S" then
    local p = profiled(text)
    if not p then return end
    local count = 0
    for _, k in ipairs(p.kernels) do
      print(("%8d  %-24s mean %s"):format(k.calls, k.name, M.seconds(k.seconds / k.calls)))
      count = count + k.calls
    end
    return print(("%8d  tasks, of them %d recorded"):format(count, p.replayed_tasks))
  end
  local s = stats()
  print(("%s tasks so far, %s not done yet; workers: %d CPU, %d GPU"):format(
    show.thousands(tonumber(s.tasks + s.earlier_tasks)),
    show.thousands(tonumber(s.unfinished)), cpus, gpus))
end)

command("%memory", "[NUMBER]", "the largest tensors, where their values are, and what is free",
function(text)
  collectgarbage()
  collectgarbage()
  local lines = require("repl.memory").report(session.variables(), tonumber(text) or 20)
  print(table.concat(lines, "\n"))
end)

command("%who", nil, "your variables", function()
  local names, variables = {}, session.variables()
  for name in pairs(variables) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = pretty.line(variables[name])
    print(("%-16s %s"):format(name, text_of.clip(value, (require("nn.terminal").size()) - 18)))
  end
end)

command("%help", nil, "these commands", function()
  local names = {}
  for name in pairs(all) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do print(("%-18s %s"):format(all[name].usage, all[name].about)) end
end)

--- run(text): a line that begins with %.
function M.run(text)
  local name, rest = text:match "^%s*(%%[%w_]*)%s*(.-)%s*$"
  local found = all[name]
  if not found then
    return session.complain(("error: there is no command %s%s (%%help lists them)"):format(
      name, require("nn.near").suggestion(name, all)))
  end
  if found.usage:find " CODE" and rest == "" then
    return session.complain("error: usage: " .. found.usage)
  end
  session.guarded(function() found.run(rest) end)
end

return M
