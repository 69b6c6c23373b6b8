-- Loaders of examples that are no text: arrays, functions, images, tables in files (sources.lua).
-- Each epoch has another order, which depends only on the seed, so a checkpoint stores the epoch,
-- the number of examples seen in it, and the seed.
local arguments = require "nn.base.arguments"
local creation = require "nn.core.creation"
local ffi = require "ffi"
local images = require "nn.data.images"
local is_tensor = require("nn.core.tensor").is_tensor
local lib = require "nn.base.capi"
local random = require "nn.data.random"
local sources = require "nn.data.sources"
local table_file = require "nn.data.table_file"
local tables = require "nn.base.tables"

local M = {}
local Loader = {}
Loader.__index = Loader

-- The source of each kind, by the name of its option.
local kinds = {arrays = sources.arrays, read = sources.read, stream = sources.stream,
               csv = table_file.csv, jsonl = table_file.jsonl, images = images.folder}
local common, known = "batch shuffle drop_last seed fields context name ", {}
for kind, own in pairs {arrays = "dtypes classes", read = "dtypes count", stream = "dtypes",
                        csv = "dtypes columns classes", jsonl = "dtypes columns classes",
                        images = "size crop channels dtype threads"} do
  known[kind] = arguments.names(common .. kind .. " " .. own)
end

--- kinds: the names of the options of nn.data that are sources of examples.
M.kinds = tables.sorted_keys(kinds)

--- kind_of(given) -> the option of nn.data that names a source of examples; nil if none does.
--- Errors: several.
function M.kind_of(given)
  local found
  for _, kind in ipairs(M.kinds) do
    if rawget(given, kind) ~= nil then
      if found then lib.misuse("data: give %s or %s, not both", found, kind) end
      found = kind
    end
  end
  return found
end

local function check_fields(fields)
  if fields == nil then return end
  if arguments.list("data", "fields", fields) == 0 then lib.misuse "data: fields is empty" end
  for _, name in ipairs(fields) do
    arguments.need(type(name) == "string", "data", "a name in fields", name, "a text is needed")
  end
end

local function check_options(given, kind)
  arguments.options("data", given, known[kind])
  for _, name in ipairs {"shuffle", "drop_last"} do
    arguments.need(given[name] == nil or type(given[name]) == "boolean", "data", name,
                   given[name], "true or false is needed")
  end
  check_fields(given.fields)
  for name, dtype in pairs(given.dtypes or {}) do
    local text = dtype == "text" and known[kind].columns
    arguments.need(text or lib.dtype_number[dtype] ~= nil, "data", ("dtypes.%s"):format(name),
                   dtype, "f32, f64, bf16, i32, i64, u8 or bool is needed")
  end
  if kind == "stream" and given.shuffle then
    lib.misuse "data: a stream cannot be shuffled, as its end is unknown; shuffle in the function"
  end
end

local function new(fields)
  local self = setmetatable(fields, Loader)
  if self.count then
    self.batches = (self.drop_last and math.floor or math.ceil)(self.count / self.batch_size)
  end
  self.rows, self.epoch_number, self.position, self.queued = self.batch_size, 0, 0, 0
  if self.count and self.drop_last and self.count < self.batch_size then
    lib.deny("data: %d examples are fewer than a batch of %d, and drop_last drops it", self.count,
             self.batch_size)
  end
  return self
end

-- The numbers of the examples of a batch, from 1, of an epoch from 0 after `position` examples.
local function numbers_of(self, epoch, position)
  local numbers, order = {}, nil
  if self.shuffle then
    if self.order_epoch ~= epoch then
      self.order, self.order_epoch = random.order(self.seed, epoch, self.count), epoch
    end
    order = self.order
  end
  for row = 1, math.min(self.rows, (self.count or math.huge) - position) do
    local index = position + row - 1
    if order then index = order[index] end
    numbers[row] = self.numbers and self.numbers[index] or index + 1
  end
  return numbers
end

-- Whether an epoch has another batch after `position` examples.
local function has_more(self, position)
  return not self.count or position + (self.drop_last and self.rows or 1) <= self.count
end

local function close(queue)
  if queue and queue.close then queue:close() end
end

local function forget_queue(self)
  close(self.queue)
  self.queue, self.queued = nil, 0
end

-- Requests batches, beginning with the next one.
local function push_ahead(self)
  if not self.queue then
    self.queue, self.next_epoch, self.next_position = self.source:open(), self.epoch_number,
                                                      self.position
  end
  while self.queued <= self.source.ahead do
    if not has_more(self, self.next_position) then
      self.next_epoch, self.next_position = self.next_epoch + 1, 0
    end
    local numbers = numbers_of(self, self.next_epoch, self.next_position)
    self.queue:push(numbers)
    self.queued, self.next_position = self.queued + 1, self.next_position + #numbers
  end
end

-- A field of a batch. Its first axis counts examples.
local function rows_of(value) return is_tensor(value) and value.shape[1] or #value end

local function pop(self)
  push_ahead(self)
  local batch = self.queue:pop()
  self.queued = self.queued - 1
  local rows = batch and rows_of(batch[next(batch)]) or 0
  if rows < self.rows and not self.count then       -- the end of a stream
    forget_queue(self)
    if self.drop_last then return nil end
  end
  return batch, rows
end

-- The next batch of the epoch; nil at its end, and the next epoch begins.
local function next_batch(self)
  local batch, rows
  if not self.ended and has_more(self, self.position) then
    batch, rows = lib.guarded(function() forget_queue(self) end, pop, self)
  end
  if not batch then
    self.epoch_number, self.position, self.ended = self.epoch_number + 1, 0, false
    return nil
  end
  self.position, self.ended = self.position + rows, not self.count and rows < self.rows
  return batch
end

Loader.__call = next_batch

-- for i, batch in ipairs(loader) do
function Loader:__ipairs()
  return function(_, i)
    local batch = next_batch(self)
    if batch then return i + 1, batch end
  end, self, 0
end

--- loader:epoch() -> iterator over the batches that are left of this epoch, as
--- `for batch in loader do`. A loop that was left with `break` continues at the next batch.
--- loader.epoch_number counts the epochs before this one.
---     local loader = nn.data {arrays = {x = {1, 2, 3, 4, 5, 6}}, batch = 2, shuffle = true}
---     local sum = 0
---     for batch in loader:epoch() do sum = sum + batch.x:sum():item() end
---     sum, loader.epoch_number  --> 21, 1
function Loader:epoch()
  return function() return next_batch(self) end
end

local function field_of(batch, name)
  if batch[name] == nil then
    lib.deny("data: the examples have no field '%s'; they have %s", name,
             table.concat(tables.sorted_keys(batch), ", "))
  end
  return batch[name]
end

-- The fields of a batch in order.
local function in_order(self, batch)
  local out, fields = {}, self.fields or tables.sorted_keys(batch)
  for i, name in ipairs(fields) do out[i] = field_of(batch, name) end
  return out, #fields
end

-- loader:batch() -> the fields of the next batch, in the order of `fields`; after the last batch of
-- an epoch, the first one of the next.
function Loader:batch()
  local batch = next_batch(self) or next_batch(self)
  if not batch then lib.deny("data: %s has no examples", self.name) end
  local out, count = in_order(self, batch)
  return unpack(out, 1, count)
end

-- loader:windows(batches) -> iterator of the fields of a batch and its number of rows, over all
-- examples in order; the number of its batches, and that of all batches (both nil for a stream).
-- `batches` (0: all) limits their number: evenly spaced, always the same ones.
function Loader:windows(batches)
  batches = arguments.whole("windows", "the number of batches", batches or 0, 0)
  local all = self.count or math.huge
  local used = batches > 0 and math.min(all, batches * self.rows) or all
  local pushed, queue, queued = 0, self.source:open(), 0
  return function()
    while queued <= self.source.ahead and pushed < used do
      local numbers = {}
      for row = 1, math.min(self.rows, used - pushed) do
        local index = pushed + row - 1
        if used < all and self.count then index = math.floor(index * all / used) end
        numbers[row] = self.numbers and self.numbers[index] or index + 1
      end
      queue:push(numbers)
      pushed, queued = pushed + #numbers, queued + 1
    end
    local batch = queued > 0 and queue:pop()
    if not batch then return close(queue) end
    local out, count = in_order(self, batch)
    out[count + 1], queued = rows_of(out[1]), queued - 1
    if out[count + 1] < self.rows then used = pushed end           -- the last one of a stream
    return unpack(out, 1, count + 1)
  end, self.count and math.ceil(used / self.rows), self.count and math.ceil(all / self.rows)
end

local function first_batch(self)
  local queue = self.source:open()
  queue:push {1}
  local batch = queue:pop() or {}
  close(queue)
  return batch
end

-- Reads the first example, so that errors are found at once. Plans need the form of its fields.
-- That of a column is known without a tensor, before which memory tiers may still be chosen.
local function look(self)
  local columns = self.source.columns
  local batch = columns or first_batch(self)
  for name in pairs(self.dtypes) do field_of(batch, name) end
  local out, count = in_order(self, batch)
  self.forms = {}
  for i = 1, count do
    self.forms[i] = columns and out[i]:form()
      or is_tensor(out[i]) and {shape = out[i].shape, dtype = out[i].dtype} or "text"
  end
end

-- loader:inputs(rows) -> tensors like those of a batch of `rows` examples, for plans.
function Loader:inputs(rows)
  if not self.forms then look(self) end
  local out = {}
  for i, form in ipairs(self.forms) do
    if form == "text" then
      lib.deny "data: a field is a text, which no step can take; leave it out of fields"
    end
    out[i] = creation.zeros({rows, unpack(form.shape, 2)}, {dtype = form.dtype})
  end
  return unpack(out)
end

--- loader:split(share) -> two loaders: this share of the examples, drawn at random by the seed, for
--- training, and the rest in order, for validation. Errors: a stream; a part without examples.
---     local all = nn.data {arrays = {x = nn.rand(10, 3)}, batch = 4, shuffle = true}
---     local train, val = all:split(0.8)
---     train.count, val.count  --> 8, 2
function Loader:split(share)
  arguments.need(type(share) == "number" and share > 0 and share < 1, "split", "the share", share,
                 "a number between 0 and 1 is needed")
  local count = self.count or lib.misuse "split: a stream cannot be split; its size is unknown"
  local first = math.floor(count * share + 0.5)
  if first == 0 or first == count then
    lib.deny("split: a share of %g leaves one part of %d examples empty", share, count)
  end
  local order = random.order(self.seed, 2 ^ 20, count)      -- that of no epoch
  local function part(from, size, shuffle, what)
    local numbers = ffi.new("int32_t[?]", size)
    for i = 0, size - 1 do
      local index = order[from + i]
      numbers[i] = self.numbers and self.numbers[index] or index + 1
    end
    return new {source = self.source, count = size, name = self.name, classes = self.classes,
                batch_size = self.batch_size, context = self.context, seed = self.seed,
                shuffle = shuffle, drop_last = what == "train" and self.drop_last,
                fields = self.fields, forms = self.forms, numbers = numbers,
                part = ("%s %g %d"):format(what, share, self.seed)}
  end
  return part(0, first, self.shuffle, "train"), part(first, count - first, false, "rest")
end

-- loader:state() -> {epoch=, position=, seed=, fingerprint=}: position counts the examples that
-- were seen in the epoch; fingerprint: a checksum of the data.
function Loader:state()
  return {epoch = self.epoch_number, position = self.position, seed = self.seed,
          fingerprint = self.source.fingerprint .. (self.part and " " .. self.part or "")}
end

-- loader:set_state(state) -> whether the data is the same. The next batch is the one that followed
-- when the state was saved.
function Loader:set_state(state)
  arguments.need(type(state) == "table", "set_state", "the state", state,
                 "{epoch=, position=, seed=} is needed")
  for _, name in ipairs {"epoch", "position", "seed"} do
    arguments.whole("set_state", name, state[name], 0)
  end
  forget_queue(self)
  self.epoch_number, self.seed, self.order_epoch, self.ended = state.epoch, state.seed, nil, false
  self.position = math.min(state.position, self.count or state.position)
  return state.fingerprint == self:state().fingerprint
end

function Loader:batch_tokens() return self.rows * self.context end

function Loader:__tostring()
  local count = self.count and ("%d examples"):format(self.count) or "examples"
  return ("loader of %s of %s, %d in a batch"):format(count, self.name, self.rows)
end

--- nn.data{arrays={x = X, y = Y}, batch=1, shuffle=false, drop_last=false, seed=0, fields=,
--- dtypes=, classes=, name=, context=1} -> loader of examples. One of these options is the source:
--- arrays: by the name of the field, tensors, whose first axis counts examples, lists, and C arrays
--- {data=, shape=, dtype=}, which need no tensor;
--- read: a function, read(i) -> example i, {x = ..., y = ...}; with count, their number;
--- stream: a function that returns, for each epoch, a function that returns the next example, and
--- nil at the end;
--- images: a folder of PNG and JPEG files: see nn.read_image for size, crop, channels and dtype.
--- Subfolders are classes. Fields: image (batch,channels,height,width) and, with subfolders, label
--- (batch) i32, which counts loader.classes from 0. threads (0: one per CPU): of those that decode
--- the next two batches while the program computes;
--- csv: a file of comma-separated values (RFC 4180) with names in its first line.
--- columns={x = {"width", "height"}, y = "kind"}: x is (batch,2); default: each column is a field.
--- A column is of numbers if its first cell is one, and no code such as 01234 (dtypes={zip =
--- "text"}: of texts);
--- jsonl: a file of JSON objects of numbers, lists and texts, one a line or in one list; columns as
--- for csv. Numbers of more digits than a 64-bit float keeps are texts.
--- `for batch in loader do` or `for i, batch in ipairs(loader) do` visits an epoch; batch.x and
--- batch.y are tensors, or lists of texts, whose first axis has `batch` examples, the last one of
--- an epoch fewer unless drop_last. loader.count and loader.batches are the numbers of examples and
--- batches of an epoch (nil for a stream). shuffle: each epoch has another order, which depends
--- only on the seed. Values become f32 (booleans bool) unless dtypes={y = "i32"}; whole numbers
--- that f32 cannot hold need one. fields={"x", "y"}: the fields that loader:batch() returns, in
--- this order (default: all, by name).
--- classes="y": the texts of this field become i32 numbers from 0; loader.classes lists the texts,
--- sorted. context, name: tokens of an example and a name, for reports. Errors: unknown options;
--- examples that differ in fields, kinds or shapes; files that are missing or damaged.
---     local loader = nn.data {arrays = {x = nn.rand(10, 3), y = nn.rand(10)}, batch = 4}
---     for batch in loader do print(batch.x:dims()) end  --> 4	3...4	3...2	3
---     local squares = nn.data {read = function(i) return {x = i, y = i * i} end, count = 4}
---     squares:batch()  --> {1}, {1}
---     nn.data {arrays = {x = nn.rand(3)}, bach = 2}  --> error: ...did you mean 'batch'?
function M.data(given, kind)
  check_options(given, kind)
  local source = kinds[kind](given)
  local loader = new {
    source = source, count = source.count, name = given.name or source.name,
    classes = source.classes,
    batch_size = arguments.whole("data", "batch", given.batch or 1),
    context = arguments.whole("data", "context", given.context or 1),
    seed = arguments.whole("data", "seed", given.seed or 0, 0),
    shuffle = given.shuffle or false, drop_last = given.drop_last or false,
    fields = given.fields, dtypes = given.dtypes or {},
  }
  if loader.count then look(loader) end
  return loader
end

return M
