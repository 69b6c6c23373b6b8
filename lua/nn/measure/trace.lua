-- Writes a profile for trace viewers: ui.perfetto.dev, chrome://tracing. The format is JSON ("Trace
-- Event Format", Google, 2016): complete events (ph X) in rows (tid), flow events (ph s and f) as
-- arrows between them, and metadata (ph M) for the names of rows. Times are in microseconds.

local ffi = require "ffi"
local cluster = require "nn.base.cluster"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local kind = require "nn.core.kind"
local lib = require "nn.base.capi"
local C, check = lib.C, lib.check

local M = {}
local MAIN = 0            -- the row of the submitting thread; worker w, from 0, has row w + 1
local DATA = 1000         -- the row of the data of GPU worker w is DATA + w
-- First row and name of a link, by the tier below it and by direction.
local LINKS = {disk = {[0] = {2000, "disk read"}, {3000, "disk write"}},
               RAM = {[0] = {4000, "RAM read"}, {5000, "RAM write"}}}

local HEAD, TAIL = '{"displayTimeUnit":"ms","traceEvents":[\n', "\n]}\n"

local Trace = {}
Trace.__index = Trace

--- check(file): raises an error with the reason if the file cannot be written.
function M.check(file)
  file_type.replaced(file)               -- opening a pipe would wait for its reader
  local f, reason = io.open(file, "a")
  if not f then lib.deny("cannot write the trace: %s", reason) end
  f:close()
end

function Trace:put(format, ...)
  if not self.file:write(self.first and "" or ",\n", format:format(...)) then
    lib.deny("cannot write the trace %s; is the disk full?", self.name)
  end
  self.first = false
end

-- Microseconds with three decimals, from whole nanoseconds, so that adjacent bars touch exactly.
local function nanoseconds(seconds) return math.floor(seconds * 1e9 + 0.5) end
local function time(ns) return ("%d.%03d"):format(ns / 1000 - ns / 1000 % 1, ns % 1000) end

-- A C string as JSON and as a Lua string, cached by address: the engine's names never change.
function Trace:text(c)
  local key = tonumber(ffi.cast("intptr_t", c))
  local found = self.texts[key]
  if not found then
    local text = ffi.string(c)
    found = {json = files.json(text), text = text}
    self.texts[key] = found
  end
  return found
end

function Trace:row(tid, name)
  local meta = '{"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{%s}}'
  self:put(meta, self.pid, tid, "thread_name", '"name":' .. files.json(name))
  self:put(meta, self.pid, tid, "thread_sort_index", '"sort_index":' .. tid)
end

function Trace:bar(tid, name, category, from, to, arguments)
  self:put('{"ph":"X","pid":%d,"tid":%d,"ts":%s,"dur":%s,"cat":"%s","name":%s,"args":{%s}}',
           self.pid, tid, time(from), time(to - from), category, name, arguments)
end

local function arguments_of(self, t, seconds)
  local out = {
    '"op":' .. self:text(t.op).json, '"layer":' .. self:text(t.layer).json,
    '"kernel":' .. self:text(t.kernel).json,
  }
  local function add(format, ...) out[#out + 1] = format:format(...) end
  if t.rank > 0 then
    local shape = {}
    for i = 0, t.rank - 1 do shape[i + 1] = t.shape[i] end
    add('"tile":%d,"shape":[%s]', t.tile + 1, table.concat(shape, ","))
    add('"dtype":"%s"', lib.dtypes[t.dtype])
  end
  if seconds > 0 and t.flops > 0 then add('"GFLOP/s":%.6g', t.flops / seconds / 1e9) end
  if t.library[0] ~= 0 then add('"library":%s', self:text(t.library).json) end
  if seconds > 0 and t.bytes > 0 then add('"GB/s":%.6g', t.bytes / seconds / 1e9) end
  if t.run > 0 then add('"run":%d,"task":%d', t.run, t.index + 1) end
  add('"ready after ms":%.3f,"taken after ms":%.3f', (t.ready - t.submitted) * 1e3,
      (t.popped - t.ready) * 1e3)
  return table.concat(out, ",")
end

-- Writes tasks as bars; remembers the row, begin and end of task i in self.rows, from and to.
function Trace:add_tasks(count)
  local t = ffi.new "nn_profile_task_t"
  for i = 0, count - 1 do
    check(C.nn_profile_task(i, t))
    if t.worker >= 0 then
      local from, to = nanoseconds(t.start), nanoseconds(t["end"])
      local name, layer = self:text(t.op).text, self:text(t.layer).text
      if layer ~= "" then name = name .. " " .. layer end
      self:bar(t.worker + 1, files.json(name), "task", from, to,
               arguments_of(self, t, tonumber(to - from) * 1e-9))
      self.rows[i], self.from[i], self.to[i] = t.worker + 1, from, to
      if self.gpus[t.worker] and t.launched > t.popped then
        self:bar(DATA + t.worker, files.json("data of " .. name), "data", nanoseconds(t.popped),
                 nanoseconds(t.launched), "")
      end
    else
      self.rows[i] = -1
    end
  end
end

-- Writes an arrow from the end of each task to the begin of each task that depended on it.
function Trace:add_arrows(count)
  local room, found, arrows = 64, ffi.new "int32_t[1]", 0
  local before = ffi.new("int64_t[?]", room)
  local arrow = '{"ph":"%s","pid":%d,"tid":%d,"ts":%s,"cat":"task","name":"needs","id":%d%s}'
  for i = 0, count - 1 do
    found[0] = room
    check(C.nn_profile_before(i, before, found))
    if found[0] > room then
      room, found[0] = found[0], found[0]
      before = ffi.new("int64_t[?]", room)
      check(C.nn_profile_before(i, before, found))
    end
    for k = 0, self.rows[i] >= 0 and found[0] - 1 or -1 do
      local j = tonumber(before[k])
      if self.rows[j] >= 0 then
        arrows = arrows + 1
        local id = self.pid * 1e9 + arrows
        self:put(arrow, "s", self.pid, self.rows[j], time(self.to[j]), id, "")
        self:put(arrow, "f", self.pid, self.rows[i], time(self.from[i]), id, ',"bp":"e"')
      end
    end
  end
end

function Trace:add_spans(count)
  local span = ffi.new "nn_profile_span_t"
  for i = 0, count - 1 do
    check(C.nn_profile_span(i, span))
    local op, tasks = self:text(span.op).text, tonumber(span.tasks)
    local what = self:text(span.what).text
    local name = what .. (op ~= "" and " " .. op or what == "submit" and " recorded tasks" or "")
    self:bar(MAIN, files.json(name), what, nanoseconds(span.start), nanoseconds(span["end"]),
             tasks > 0 and ('"tasks":%d'):format(tasks) or "")
  end
end

-- The row of a transfer: the first of its link that is free, since several are under way at once.
local function row_of(self, tier, writes, from, to)
  local ends = self.links[tier][writes]
  local row = 1
  while ends[row] and ends[row] > from do row = row + 1 end
  local first, name = unpack(LINKS[tier][writes])
  local tid = first + row - 1
  if not ends[row] then self:row(tid, row == 1 and name or ("%s %d"):format(name, row)) end
  ends[row] = to
  return tid
end

function Trace:add_transfers(count)
  local list = {}
  for i = 0, count - 1 do
    list[i + 1] = ffi.new "nn_profile_transfer_t"
    check(C.nn_profile_transfer(i, list[i + 1]))
  end
  table.sort(list, function(a, b) return a.start < b.start end)
  for _, t in ipairs(list) do
    local from, to = nanoseconds(t.start), nanoseconds(t["end"])
    local tid = row_of(self, t.is_disk ~= 0 and "disk" or "RAM", t.writes, from, to)
    self:bar(tid, files.json(kind.names[t.kind + 1]), "transfer", from, to,
             ('"bytes":%d,"GB/s":%.3f,"waited ms":%.3f'):format(tonumber(t.bytes),
             tonumber(t.bytes) / math.max(to - from, 1), (t.start - t.queued) * 1e3))
  end
end

--- write(file, profile): writes the trace of the profile that just ended.
function M.write(file, profile)
  file_type.replaced(file)
  local f, reason = io.open(file, "w")
  if not f then lib.deny("cannot write the trace: %s", reason) end
  local count = profile.recorded
  local self = setmetatable({
    file = f, name = file, first = true, pid = cluster.ranks().rank + 1, texts = {}, gpus = {},
    rows = ffi.new("int32_t[?]", count + 1), from = ffi.new("double[?]", count + 1),
    to = ffi.new("double[?]", count + 1), links = {disk = {[0] = {}, {}}, RAM = {[0] = {}, {}}},
  }, Trace)
  f:write(HEAD)
  local name = cluster.several() and "rank " .. cluster.ranks().rank or "nnlua"
  self:put('{"ph":"M","pid":%d,"tid":0,"name":"process_name","args":{"name":"%s"}}', self.pid, name)
  self:row(MAIN, "main thread")
  for i, w in ipairs(profile.workers) do
    self:row(i, w.name)
    if w.gpu then
      self.gpus[i - 1] = true
      self:row(DATA + i - 1, w.name .. ": data of the next task")
    end
  end
  self:add_spans(profile.spans)
  self:add_tasks(count)
  self:add_transfers(profile.transfers)
  self:add_arrows(count)
  if not f:write(TAIL) or not f:close() then
    lib.deny("cannot write the trace %s; is the disk full?", file)
  end
end

--- gather(file): every rank calls it after write(), with a file of its own. Adds the events of the
--- other ranks to the file of rank 0; the times of each begin with its profile.
function M.gather(file)
  local whole = files.read(file)
  local events = whole:sub(#HEAD + 1, -#TAIL - 1)
  local all = cluster.gather("a trace", cluster.is_first() and "" or events)
  if not cluster.is_first() then return end
  all[1] = events
  files.write(file, HEAD .. table.concat(all, ",\n") .. TAIL)
end

return M
