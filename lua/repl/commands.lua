-- Commands of the prompt that begin with %: what code costs, what exists, scripts, the history.
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local pretty = require "repl.pretty"
local session = require "repl.session"
local show = require "nn.core.show"
local text_of = require "repl.text"
local units = require "nn.base.units"

local M = {}
local all = {}
M.all = all        -- {["%time"] = {usage=, about=, run=}}
M.history = nil    -- set by repl.lua: the entries of the prompt; nil if input is not a terminal

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

local TRIAL, ROUND, ROUNDS, FEW, LONG = 2, 0.1, 7, 3, 1       -- runs, seconds, rounds

-- The seconds of n calls of f, each until its tasks were done.
local function seconds_of(n, f)
  local nn = require "nn"
  local start = nn.now()
  for _ = 1, n do
    f()
    nn.sync()
  end
  return nn.now() - start
end
jit.off(seconds_of)                      -- a compiled loop would not notice Ctrl-C

command("%timeit", "CODE", "runs CODE many times; prints the median time", function(text)
  local f = session.silent(text)
  if not f then return end
  local once
  for _ = 1, TRIAL do once = seconds_of(1, f) end              -- the first one may record
  local runs, rounds = math.max(1, math.floor(ROUND / once)), once > LONG and FEW or ROUNDS
  local times = {}
  for i = 1, rounds do times[i] = seconds_of(runs, f) / runs end
  table.sort(times)
  print(("%s, the median of %d rounds of %s run%s; from %s to %s"):format(
    units.seconds(times[(rounds + 1) / 2]), rounds, show.thousands(runs), runs > 1 and "s" or "",
    units.seconds(times[1]), units.seconds(times[rounds])))
end)

-- The words of a command; quotes keep spaces.
local function words(text)
  local list = {}
  text = text:gsub("(['\"])(.-)%1", function(_, inside) return (inside:gsub("%s", "\0")) end)
  for word in text:gmatch "%S+" do list[#list + 1] = word:gsub("%z", " ") end
  return list
end

-- A script by the rules of the command line: nnlua's own recipes are found from any folder.
local function script_file(name)
  local own = files.join(host.root, name)
  return name:find "^recipes/" and not files.exists(name) and files.exists(own) and own or name
end

command("%run", "FILE [ARGUMENTS]", "runs a Lua script; its globals stay", function(text)
  local given = words(text)
  local path = script_file(table.remove(given, 1))
  local chunk, problem = loadfile(path)
  if not chunk then return session.complain("error: " .. problem) end
  local arg_before = rawget(_G, "arg")
  given[0] = path
  rawset(_G, "arg", given)
  session.guarded(chunk, unpack(given))
  rawset(_G, "arg", arg_before)
end)

command("%history", "[NUMBER | WORD]", "the newest inputs, or those that contain a word",
function(text)
  if not M.history then return session.complain "error: no history: input is not a terminal" end
  local entries, most, found = M.history.entries, tonumber(text), {}
  for i = #entries, 1, -1 do
    if #found == (most or 20) then break end
    if most or entries[i]:find(text, 1, true) then table.insert(found, 1, entries[i]) end
  end
  print(table.concat(found, "\n"))
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
    print(("%-26s %s"):format(all[name].usage, all[name].about))
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
  if found.usage:find "^%%%a+ %u" and rest == "" then
    return session.complain("error: usage: " .. found.usage)
  end
  session.guarded(function() found.run(rest) end)
end

return M
