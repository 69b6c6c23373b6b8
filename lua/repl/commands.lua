-- Commands of the prompt that begin with %: what code costs, and what exists.
local ffi = require "ffi"
local lib = require "nn.base.capi"
local pretty = require "repl.pretty"
local session = require "repl.session"
local show = require "nn.core.show"
local text_of = require "repl.text"
local units = require "nn.base.units"

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

local function signed_bytes(n)
  return n == 0 and "unchanged" or (n < 0 and "-" or "+") .. units.bytes(math.abs(n))
end

command("%time", "CODE", "runs CODE; prints the time until all its tasks were done", function(text)
  local nn = require "nn"
  local tasks, in_use, start = stats().tasks, nn.memory().in_use, nn.now()
  if not session.evaluate(text) then return end
  local seconds = nn.now() - start
  print(("%s, %s tasks, memory of tensors: %s"):format(
    units.seconds(seconds), show.thousands(tonumber(stats().tasks - tasks)),
    signed_bytes(nn.memory().in_use - in_use)))
end)

-- Runs code with the engine's clocks on; its profile (see nn.profile), or nil where it failed.
local function profiled(text)
  local good
  local profile = require("nn").profile(function() good = session.evaluate(text) end)
  return good and profile or nil
end

command("%profile", "CODE", "runs CODE; prints where the workers' time went, by op", function(text)
  local profile = profiled(text)
  if profile then print(profile) end
end)

command("%tasks", "[CODE]", "tasks so far and still running; with CODE, those that it submits",
function(text)
  if text:find "%S" then
    local p = profiled(text)
    if not p then return end
    local count = 0
    for _, k in ipairs(p.kernels) do
      print(("%8d  %-24s mean %s"):format(k.calls, k.name, units.seconds(k.seconds / k.calls)))
      count = count + k.calls
    end
    return print(("%8d  tasks, %d of them recorded"):format(count, p.replayed_tasks))
  end
  local s, cpus, gpus = stats(), require("nn").workers()
  print(("%s tasks so far, %s unfinished; workers: %d CPU, %d GPU"):format(
    show.thousands(tonumber(s.tasks + s.earlier_tasks)),
    show.thousands(tonumber(s.unfinished)), cpus, gpus))
end)

command("%memory", "[NUMBER]", "the largest tensors, the memory that holds each, and what is free",
function(text)
  collectgarbage()
  collectgarbage()
  local lines = require("repl.tensors").report(session.variables(), tonumber(text) or 20)
  print(table.concat(lines, "\n"))
end)

command("%who", nil, "your variables", function()
  local variables, columns = session.variables(), (require("nn.base.terminal").size())
  for _, name in ipairs(pretty.sorted_keys(variables)) do
    print(("%-16s %s"):format(name, text_of.clip(pretty.line(variables[name]), columns - 18)))
  end
end)

command("%help", nil, "these commands", function()
  for _, name in ipairs(pretty.sorted_keys(all)) do
    print(("%-18s %s"):format(all[name].usage, all[name].about))
  end
end)

--- run(text): a line that begins with %.
function M.run(text)
  local name, rest = text:match "^%s*(%%[%w_]*)%s*(.-)%s*$"
  local found = all[name]
  if not found then
    return session.complain(("error: unknown command %s%s (%%help lists them)"):format(
      name, require("nn.base.suggest").suggestion(name, all)))
  end
  if found.usage:find " CODE" and rest == "" then
    return session.complain("error: usage: " .. found.usage)
  end
  session.guarded(function() found.run(rest) end)
end

return M
