-- safetensors files (github.com/huggingface/safetensors): 8 bytes little-endian length, a JSON
-- header, raw row-major data. Files may come from anywhere, so the reader checks everything.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local creation = require "nn.core.creation"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local header = require "nn.io.safetensors_header"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local sorted_keys = require("nn.base.tables").sorted_keys
local suggest = require "nn.base.suggest"
local temporary = require "nn.io.temporary"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check

local M = {}
local names = {f32 = "F32", f64 = "F64", bf16 = "BF16", i32 = "I32", i64 = "I64", u8 = "U8",
               bool = "BOOL"}
local dtypes = {}
for dtype, name in pairs(names) do dtypes[name] = dtype end
local MOST_AXES = 8              -- of a tensor of nnlua

-- The shape in the file. A `transposed` entry has its two axes swapped there; one with `rows`,
-- {{first=, count=}, ...}, is these rows (from 0) of the tensor, one range after the other.
local function shape_of(entry)
  local shape = entry.tensor.shape
  if entry.transposed then return {shape[2], shape[1]} end
  if not entry.rows then return shape end
  local count = 0
  for _, range in ipairs(entry.rows) do count = count + range.count end
  return {count, unpack(shape, 2)}
end

local function bytes_of(entry)
  local bytes = entry.tensor:bytes()
  return entry.rows and bytes / entry.tensor:dim(1) * shape_of(entry)[1] or bytes
end

-- The tensor to write: that of the entry, or a copy.
local function source_of(entry)
  if entry.transposed then return entry.tensor:detach():t() end
  if not entry.rows then return entry.tensor end
  local ranges = {}
  for i, range in ipairs(entry.rows) do
    ranges[i] = entry.tensor:detach():slice(1, range.first + 1, range.first + range.count)
  end
  return #ranges == 1 and ranges[1] or ops.call("cat", ranges, {axis = 1})
end

-- The header, and the size of the whole file.
local function header_of(entries, metadata)
  local parts, at = {}, 0
  if metadata then parts[1] = '"__metadata__":' .. files.json(metadata) end
  for _, entry in ipairs(entries) do
    local t = entry.tensor
    local last = at + bytes_of(entry)
    parts[#parts + 1] = ('%s:{"dtype":"%s","shape":[%s],"data_offsets":[%.0f,%.0f]}'):format(
      files.json(entry.path), names[t.dtype], table.concat(shape_of(entry), ","), at, last)
    at = last
  end
  local text = "{" .. table.concat(parts, ",") .. "}"
  text = text .. (" "):rep(-#text % 8)                  -- data starts at a multiple of 8
  return text, 8 + #text + at
end

local Writing = {}
Writing.__index = Writing

--- start(path, entries, metadata) -> writing. Starts writing {{path=, tensor=}, ...} (such as
--- model:state()) with the current values in the background. A later task that changes a tile waits
--- only until that tile is copied. `metadata`: a table of strings. Errors: failures of the disk,
--- here or in writing:finish(). With several ranks, only rank 0 may write, and all others call
--- cluster.collect with each tensor of the list meanwhile.
function M.start(path, entries, metadata)
  local text, bytes = header_of(entries, metadata)
  local length, ref = ffi.new("uint64_t[1]", #text), ffi.new "nn_ref"
  check(C.nn_file_create(path, bytes, ref))
  local self = setmetatable({ref = ffi.gc(ref, C.nn_release), bytes = bytes}, Writing)
  check(C.nn_file_append(ref, length, 8))
  check(C.nn_file_append(ref, text, #text))
  for _, entry in ipairs(entries) do
    local is_collected = cluster.collect(entry.tensor)
    local source = source_of(entry)
    local is_copy = not rawequal(source, entry.tensor)
    check(C.nn_file_append_tensor(ref, source.ref))
    if is_copy or is_collected then check(C.nn_file_drain(ref)) end    -- only one at a time
    if is_collected then cluster.drop(entry.tensor) end
    if is_copy then source:release() end
  end
  check(C.nn_file_close(ref))
  return self
end

--- writing:done() -> whether the file is on the disk, or writing failed.
function Writing:done()
  local done = ffi.new "int32_t[1]"
  check(C.nn_file_done(self.ref, done))
  return done[0] ~= 0
end

--- writing:finish() waits until the file is on the disk -> bytes, crc32. Errors: failures of the
--- disk.
function Writing:finish()
  local crc = ffi.new "uint32_t[1]"
  check(C.nn_file_wait(self.ref, crc))
  self:abandon()
  return self.bytes, crc[0]
end

--- writing:abandon(): stops writing.
function Writing:abandon() check(C.nn_release(self.ref)) end

--- collect(entries): on ranks other than 0, gives rank 0 what it lacks of the tensors that it
--- writes by start().
function M.collect(entries)
  for _, entry in ipairs(entries) do cluster.collect(entry.tensor) end
end

--- write(path, entries, metadata) -> bytes, crc32: start() and finish().
function M.write(path, entries, metadata) return M.start(path, entries, metadata):finish() end

-- Groups consecutive entries of at most `limit` bytes in total, at least one per group.
local function shards_of(entries, limit)
  local shards, bytes = {}, math.huge
  for _, entry in ipairs(entries) do
    bytes = bytes + bytes_of(entry)
    if bytes > limit then
      shards[#shards + 1] = {}
      bytes = bytes_of(entry)
    end
    table.insert(shards[#shards], entry)
  end
  return shards
end

-- Removes the files of an earlier model of this name, except those that were replaced now. A reader
-- could load them by mistake.
local function remove_others(folder, name, files_now)
  for _, file in ipairs(files.list(folder)) do
    local shard = file:sub(1, #name + 1) == name .. "-" and file:sub(#name + 1)
    local ours = file == name .. ".safetensors"
      or shard and shard:find "^%-%d%d%d%d%d%-of%-%d%d%d%d%d%.safetensors$"
    if ours and not files_now[file] then files.remove(files.join(folder, file)) end
  end
end

--- write_shards(folder, name, entries, metadata, limit): writes NAME.safetensors, or shards of at
--- most `limit` bytes of tensors and NAME.safetensors.index.json, which maps tensors to shards.
--- When all files are written, they replace earlier ones, and links (see files.write_in). Errors:
--- something else than a file has the name of one; failures of the disk.
function M.write_shards(folder, name, entries, metadata, limit)
  local shards, total, where, now, written = shards_of(entries, limit), 0, {}, {}, {}
  local function remove_all()
    for _, new in pairs(written) do temporary.discard(new) end
  end
  lib.guarded(remove_all, function()
    for i, shard in ipairs(shards) do
      local file = #shards == 1 and name .. ".safetensors"
        or ("%s-%05d-of-%05d.safetensors"):format(name, i, #shards)
      local path = files.join(folder, file)
      file_type.replaced(path)                          -- refuses what is not a file
      now[file], written[path] = path, temporary.begin(path)
      M.write(written[path], shard, metadata)
      for _, entry in ipairs(shard) do
        total, where[entry.path] = total + bytes_of(entry), file
      end
    end
  end)
  for _, new in pairs(written) do temporary.keep(new) end      -- all before the first one replaces
  for path, new in pairs(written) do files.rename(new, path) end
  local index = name .. ".safetensors.index.json"
  if #shards == 1 then
    files.remove(files.join(folder, index))
  else
    local text = files.json({metadata = {total_size = total}, weight_map = where}, "")
    files.write_in(folder, index, text .. "\n")
  end
  remove_others(folder, name, now)
end

--- nn.save_safetensors(path, tensors, metadata): writes a table of tensors by name, sorted by name,
--- or a list such as model:state(), in its order.
---     nn.save_safetensors("weights.safetensors", {weight = x, bias = nn.zeros(3)})
---     nn.load_safetensors("weights.safetensors").weight:sum()  --> 21
function M.save_safetensors(path, tensors, metadata)
  arguments.need(type(path) == "string", "save_safetensors", "the path", path, "a text is needed")
  local entries = module.entries("save_safetensors", tensors, true)
  if not cluster.is_first() then return M.collect(entries) end
  files.replace(path, function(new) M.write(new, entries, metadata) end)
end

local File = {}
File.__index = File

--- open(path) -> file with `entries` ({name=, dtype=, shape=, bytes=, file=} in the order of the
--- data), `metadata`, and file:tensor(name). Errors: the file and what is wrong with its header.
function M.open(path)
  local map = files.map(path)
  local self = {path = path, map = map, by_name = {}}
  self.entries, self.metadata, self.begin = header.read(path, map)
  for _, entry in ipairs(self.entries) do
    entry.file, self.by_name[entry.name] = self, entry
  end
  return setmetatable(self, File)
end

local function find(self, name)
  return self.by_name[name] or lib.deny("%s has no tensor '%s'%s", self.path, name,
                                        suggest.suggestion(name, self.by_name))
end

--- file:data(name) -> the raw bytes (uint8_t*), valid as long as the file is referenced.
function File:data(name) return self.map.data + self.begin + find(self, name).first end

-- The value of each F16 by its bits (IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction).
local halves

local function half(bits)
  local exponent, fraction = math.floor(bits / 1024) % 32, bits % 1024
  if exponent == 31 then return fraction == 0 and math.huge or 0 / 0 end
  if exponent == 0 then return fraction * 2 ^ -24 end
  return (1 + fraction / 1024) * 2 ^ (exponent - 15)
end

-- Converts F16 to float, which is exact.
local function floats_of(data, count)
  if not halves then
    halves = ffi.new "float[65536]"
    for bits = 0, 32767 do halves[bits], halves[bits + 32768] = half(bits), -half(bits) end
  end
  local from, out = ffi.cast("const uint16_t *", data), ffi.new("float[?]", count)
  for i = 0, count - 1 do out[i] = halves[from[i]] end
  return out
end

--- problem(entry) -> why nnlua cannot hold a tensor of a file; nil if it can.
function M.problem(entry)
  local shape = tensor.shape_text(entry.shape)
  if entry.dtype ~= "F16" and not dtypes[entry.dtype] then
    return ("is %s %s; nnlua reads F32, F64, BF16, F16, I32, I64, U8 and BOOL"):format(entry.dtype,
                                                                                 shape)
  elseif entry.bytes == 0 then
    return ("has shape %s; nnlua's tensors have at least one element"):format(shape)
  elseif #entry.shape > MOST_AXES then
    return ("has shape %s; nnlua's tensors have at most %d axes"):format(shape, MOST_AXES)
  end
end

--- file:tensor(name) -> a new tensor; F16 becomes f32. Errors: an unknown name; the problem().
function File:tensor(name)
  local entry = find(self, name)
  local problem, is_half = M.problem(entry), entry.dtype == "F16"
  if problem then lib.deny("%s: '%s' %s", self.path, name, problem) end
  local dtype = is_half and "f32" or dtypes[entry.dtype]
  local data = self:data(name)
  local made = creation.from_host(is_half and floats_of(data, entry.bytes / 2) or data, entry.shape,
                                dtype)
  files.check(self.map)
  files.forget(self.map, self.begin + entry.first, entry.bytes)
  return made
end

--- file:copy_into(name, tensor): fills a tensor of the same shape and dtype. Errors: an unknown
--- name, another shape or dtype.
function File:copy_into(name, target)
  local entry = find(self, name)
  local given, needed = tensor.shape_text(entry.shape), tensor.shape_text(target.shape)
  if given ~= needed or entry.dtype ~= names[target.dtype] then
    lib.deny("%s: '%s' is %s %s, but %s %s is needed", self.path, name, entry.dtype, given,
             names[target.dtype], needed)
  end
  target:copy_from_host(self:data(name))
  files.check(self.map)
  files.forget(self.map, self.begin + entry.first, entry.bytes)
end

--- open_index(path) -> the entries by name (as in open()) of all shards that a
--- NAME.safetensors.index.json names. Errors: a malformed index, a missing shard, a shard without a
--- listed tensor, a tensor in two shards.
function M.open_index(path)
  local map, folder = json.read(path).weight_map, path:match "^(.*)/[^/]*$" or "."
  if type(map) ~= "table" then lib.deny("%s has no weight_map", path) end
  local opened, by_name = {}, {}
  for name, shard in pairs(map) do
    if type(shard) ~= "string" or shard:find "[/\\%z]" or shard:find "^%.*$" then
      lib.deny("%s: '%s' is in '%s', which is not a file name", path, name, tostring(shard))
    end
    if not opened[shard] then
      local full = files.join(folder, shard)
      if not files.exists(full) then
        lib.deny("%s: '%s' is in '%s', which is missing", path, name, shard)
      end
      opened[shard] = M.open(full)
    end
    by_name[name] = opened[shard].by_name[name]
      or lib.deny("%s: '%s' is not in %s", path, name, shard)
  end
  for shard, file in pairs(opened) do                 -- and what the index does not list
    for name, entry in pairs(file.by_name) do
      if map[name] and map[name] ~= shard then
        lib.deny("%s: '%s' is in both %s and %s", path, name, map[name], shard)
      end
      by_name[name] = entry
    end
  end
  return by_name
end

-- Makes the use of tensors that were left out an error. problems: why, by name.
local function refuse_left_out(tensors, problems, path)
  local left_out = sorted_keys(problems)
  if #left_out == 0 then return end
  lib.warn_once(("%s: left out '%s', which %s%s"):format(
    path, left_out[1], problems[left_out[1]],
    #left_out > 1 and (" (and %d more)"):format(#left_out - 1) or ""))
  setmetatable(tensors, {__metatable = false, __index = function(_, name)
    if problems[name] then lib.deny("%s: '%s' %s", path, name, problems[name]) end
  end})
end

--- nn.load_safetensors(path) -> a table of tensors by name, and the file's metadata. For tensors in
--- several shards, pass the path of NAME.safetensors.index.json. A tensor that nnlua cannot hold,
--- since it has no element or a dtype such as F8_E4M3, is left out with a warning, and its use is
--- an error. Errors: an invalid file.
---     nn.save_safetensors("a.safetensors", {x = x}, {made_by = "me"})
---     local tensors, metadata = nn.load_safetensors "a.safetensors"
---     tensors.x:dim(2), metadata.made_by  --> 3, "me"
function M.load_safetensors(path)
  arguments.need(type(path) == "string", "load_safetensors", "the path", path, "a text is needed")
  local file = path:find "%.index%.json$" and {by_name = M.open_index(path), metadata = {}}
    or M.open(path)
  local tensors, problems = {}, {}
  for name, entry in pairs(file.by_name) do
    problems[name] = M.problem(entry)
    if not problems[name] then tensors[name] = entry.file:tensor(name) end
  end
  refuse_left_out(tensors, problems, path)
  return tensors, file.metadata
end

return M
