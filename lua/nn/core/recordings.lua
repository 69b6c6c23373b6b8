-- The recordings of a compiled function: finds the one that is valid for a call, frees the least
-- recently used ones, and warns about values that a recording cannot follow.

local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local is_tensor = require("nn.core.tensor").is_tensor
local C, check = lib.C, lib.check

local M = {}
local COLLECT_EVERY = 4          -- dropped programs
local VARIANTS = 4               -- programs of the same key, which read different Lua values
local CHANGES = 8                -- of one value, before a warning
local LISTED = 4                 -- values that a warning names

--- new(f, limit) -> the fields of a compiled function that keeps up to `limit` programs.
--- programs[key]: a list of programs, which differ in the Lua values that they read.
function M.new(f, limit)
  return {f = f, limit = limit, programs = {}, count = 0, uses = 0, dropped = 0, changes = {},
          version = module.version}
end

--- place(self) -> "script.lua:12", where the function is defined.
function M.place(self)
  local info = debug.getinfo(type(self.f) == "function" and self.f or 1, "S")
  return ("%s:%d"):format(info.short_src, info.linedefined)
end

--- shapes(self) -> the number of different keys.
function M.shapes(self)
  local count = 0
  for _ in pairs(self.programs) do count = count + 1 end
  return count
end

local function warn(self, format, ...)
  if cluster.ranks().rank > 0 then return end
  io.stderr:write("warning: compiled function of ", M.place(self), ": ", format:format(...), "\n")
end

-- Warns once about a value that makes a function record again and again.
local function count_change(self, change)
  local path = change.path
  self.changes[path] = (self.changes[path] or 0) + 1
  if self.changes[path] ~= CHANGES then return end
  local how = change.what and (": %s changed %d times"):format(change.what, CHANGES)
    or (" changed %d times, now from %s to %s"):format(
      CHANGES, arguments.describe(change.before), arguments.describe(change.now))
  warn(self, "'%s'%s; each time it is recorded again, which takes time. A tensor that changes "
       .. "should be an argument, a number an nn.scalar, which s:set(value) changes between calls",
       path, how)
end

-- What a recording changed, and what to do about it; nil for types that may be a cache.
local function problem_of(change)
  local before, now = change.before, change.now
  local kind = type(before)
  if change.what == "its elements" or change.what == "its bytes" then
    return "in " .. change.what, "Change it outside"
  end
  if is_tensor(before) and is_tensor(now) then
    return "to another tensor",
           "Return the tensor and pass it as an argument, or change it in place with copy_"
  end
  if kind ~= type(now) or kind ~= "number" and kind ~= "string" and kind ~= "boolean" then
    return nil
  end
  return ("from %s to %s"):format(arguments.describe(before), arguments.describe(now)),
         kind == "number" and "Use an nn.scalar, and its add() outside of microbatches"
           or "Change it outside"
end

--- check_writes(self, before): warns once about a value that a recording changed: calls that replay
--- it do not. before: the guards from before the recording.
function M.check_writes(self, before)
  for _, change in ipairs(self.warned and {} or before:changes(64)) do
    local what, advice = problem_of(change)
    if what then
      self.warned = true
      return warn(self, "it changed '%s' %s while it was recorded; calls that replay the "
                  .. "recording do not change it. %s", change.path, what, advice)
    end
  end
end

--- warn_left_out(self, guards): warns once about values that the guards do not compare.
function M.warn_left_out(self, guards)
  if not guards.left_out[1] or self.warned_left_out then return end
  self.warned_left_out = true
  local list = {}
  for i, entry in ipairs(guards.left_out) do
    list[i] = i <= LISTED and ("'%s' %s"):format(entry[1], entry[2]) or nil
  end
  local more = #guards.left_out - #list
  if more > 0 then list[#list + 1] = ("and %d more"):format(more) end
  warn(self, "%s; calls that replay the recording do not follow its changes. Pass what changes "
       .. "as a tensor", table.concat(list, "; "))
end

-- The most recently used program of a list for which accepts(program), or nil.
local function newest(list, accepts)
  local found
  for _, program in ipairs(list) do
    if (not found or program.used > found.used) and accepts(program) then found = program end
  end
  return found
end

local function any() return true end
local function is_valid(program) return program.guards:hold() end

-- Frees the least recently used program with this key, or of all. Waits for tasks in flight.
local function drop_oldest(self, only)
  local oldest, at, of
  for key, variants in pairs(only and {[only] = self.programs[only]} or self.programs) do
    for i, program in ipairs(variants) do
      if not oldest or program.used < oldest.used then oldest, at, of = program, i, key end
    end
  end
  table.remove(self.programs[of], at)
  if #self.programs[of] == 0 then self.programs[of] = nil end
  self.count, self.dropped = self.count - 1, self.dropped + 1
  check(C.nn_release(ffi.gc(oldest.ref, nil)))
  -- The engine frees the temporaries of a recording only after Lua collects its references to them.
  if self.dropped % COLLECT_EVERY == 0 then collectgarbage() end
end

-- Frees all programs if the code or the hooks of modules changed after they were recorded.
local function drop_outdated(self)
  if self.version == module.version then return end
  while self.count > 0 do drop_oldest(self) end
  self.version, self.last = module.version, nil
end

--- find(self, key) -> a valid program, or nil.
function M.find(self, key)
  drop_outdated(self)
  local variants = self.programs[key] or {}
  local last = newest(variants, any)
  if not last or is_valid(last) then return last end
  local program = newest(variants, is_valid)
  if not program then count_change(self, last.guards:change()) end
  return program
end

--- add(self, key, program): keeps a new program.
function M.add(self, key, program)
  if #(self.programs[key] or {}) >= VARIANTS then drop_oldest(self, key) end
  if self.count >= self.limit then drop_oldest(self) end
  self.programs[key] = self.programs[key] or {}
  table.insert(self.programs[key], program)
  self.count = self.count + 1
end

--- use(self, program) -> program, from now on the most recently used one.
function M.use(self, program)
  self.uses = self.uses + 1
  program.used, self.last = self.uses, program
  return program
end

return M
