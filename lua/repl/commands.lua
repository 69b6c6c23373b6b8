-- Commands of the prompt that begin with %: what code costs, and what there is.
local ffi = require "ffi"
local lib = require "nn.ffi"
local pretty = require "repl.pretty"
local session = require "repl.session"
local show = require "nn.show"
local text_of = require "repl.text"
local units = require "nn.units"

local M = {}
local all = {}
M.all = all        -- {["%time"] = {usage=, about=, run=}}

local function command(name, arguments, about, run)
  all[name] = {usage = name .. (arguments and " " .. arguments or ""), about = about, run = run}
end

local function stats()
  local out = ffi.new "nn_stats_t"
  lib.check(lib.C.nn_stats(out))
  return out
end

-- Runs code and shows its values; true if all of it went well.
local function run_code(text)
  local parts = session.compile(text)
  for _, unit in ipairs(parts or {}) do
    if not session.run(unit) then return false end
  end
  return parts ~= nil
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
    units.seconds(seconds), show.thousands(tonumber(stats().tasks - tasks)),
    signed_bytes(nn.memory().in_use - held)))
end)

-- Runs code with the engine's clocks on; its profile (see nn.profile), or nil where it failed.
local function profiled(text)
  local ran
  local profile = require("nn").profile(function() ran = run_code(text) end)
  return ran and profile or nil
end

command("%profile", "CODE", "runs CODE and tells where the workers' time went, by op",
function(text)
  local p = profiled(text)
  if not p then return end
  print(p)
end)

command("%tasks", "[CODE]", "tasks so far and still running; with CODE, those that it submits",
function(text)
  local cpus, gpus = require("nn").workers()
  if text:find "%S" then
    local p = profiled(text)
    if not p then return end
    local count = 0
    for _, k in ipairs(p.kernels) do
      print(("%8d  %-24s mean %s"):format(k.calls, k.name, units.seconds(k.seconds / k.calls)))
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
  local lines = require("repl.tensors").report(session.variables(), tonumber(text) or 20)
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
