-- safetensors files (github.com/huggingface/safetensors): 8 bytes little-endian length, a JSON
-- header, raw row-major data. Files come from anywhere, so a reader believes nothing unchecked.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local creation = require "nn.core.creation"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local suggest = require "nn.base.suggest"
local tensor = require "nn.core.tensor"
local C, check = lib.C, lib.check

local M = {}
local HEADER_LIMIT = 100e6
local names = {f32 = "F32", f64 = "F64", bf16 = "BF16", i32 = "I32", i64 = "I64", u8 = "U8",
               bool = "BOOL"}
local dtypes = {}
for dtype, name in pairs(names) do dtypes[name] = dtype end
-- Bytes of an element, also of the dtypes that can be listed but not loaded.
local sizes = {F32 = 4, F64 = 8, BF16 = 2, I32 = 4, I64 = 8, U8 = 1, BOOL = 1, F16 = 2, I8 = 1,
               I16 = 2, U16 = 2, U32 = 4, U64 = 8, F8_E4M3 = 1, F8_E5M2 = 1}

-- The shape in the file; an entry that is `transposed` has its two axes in the other order there.
local function shape_of(entry)
  local shape = entry.tensor.shape
  return entry.transposed and {shape[2], shape[1]} or shape
end

-- The header, and the length of the whole file.
local function header_of(entries, metadata)
  local parts, at = {}, 0
  if metadata then parts[1] = '"__metadata__":' .. files.json(metadata) end
  for _, entry in ipairs(entries) do
    local t = entry.tensor
    local last = at + t:bytes()
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

--- start(path, entries, metadata) -> writing. Begins to write {{path=, tensor=}, ...}, what
--- model:state() gives, as the values are now, while other work goes on: what changes a tile later
--- waits for that tile alone. `metadata`: a table of texts. Errors: what the disk refused; a full
--- one shows here, or in writing:finish().
function M.start(path, entries, metadata)
  local header, bytes = header_of(entries, metadata)
  local length, ref = ffi.new("uint64_t[1]", #header), ffi.new "nn_ref"
  check(C.nn_file_create(path, bytes, ref))
  local self = setmetatable({ref = ffi.gc(ref, C.nn_release), bytes = bytes}, Writing)
  check(C.nn_file_append(ref, length, 8))
  check(C.nn_file_append(ref, header, #header))
  for _, entry in ipairs(entries) do
    local source = entry.transposed and entry.tensor:detach():t() or entry.tensor
    check(C.nn_file_append_tensor(ref, source.ref))
    if source ~= entry.tensor then
      check(C.nn_file_drain(ref))                       -- one such copy at a time
      source:release()
    end
  end
  check(C.nn_file_close(ref))
  return self
end

--- writing:done() -> whether the file is complete and on the disk, or has failed.
function Writing:done()
  local done = ffi.new "int32_t[1]"
  check(C.nn_file_done(self.ref, done))
  return done[0] ~= 0
end

--- writing:finish() -> bytes, crc32, once the file is on the disk. Errors: what the disk refused.
function Writing:finish()
  local crc = ffi.new "uint32_t[1]"
  check(C.nn_file_wait(self.ref, crc))
  self:abandon()
  return self.bytes, crc[0]
end

--- writing:abandon(): what is not written yet stays unwritten.
function Writing:abandon() check(C.nn_release(self.ref)) end

--- write(path, entries, metadata) -> bytes, crc32: start() and finish().
function M.write(path, entries, metadata) return M.start(path, entries, metadata):finish() end

-- Consecutive entries of at most `limit` bytes together, at least one.
local function shards_of(entries, limit)
  local shards, bytes = {}, math.huge
  for _, entry in ipairs(entries) do
    bytes = bytes + entry.tensor:bytes()
    if bytes > limit then
      shards[#shards + 1] = {}
      bytes = entry.tensor:bytes()
    end
    table.insert(shards[#shards], entry)
  end
  return shards
end

-- Removes what an earlier model of this name left beside the files that are there now: a reader
-- would take that one, or carry it along.
local function remove_others(folder, name, files_now)
  for _, file in ipairs(files.list(folder)) do
    local shard = file:sub(1, #name + 1) == name .. "-" and file:sub(#name + 1)
    local ours = file == name .. ".safetensors"
      or shard and shard:find "^%-%d%d%d%d%d%-of%-%d%d%d%d%d%.safetensors$"
    if ours and not files_now[file] then files.remove(files.join(folder, file)) end
  end
end

--- write_shards(folder, name, entries, metadata, limit): writes NAME.safetensors, or files of at
--- most `limit` bytes of tensors and NAME.safetensors.index.json, which says where each is. What
--- was there stays until all is written, and then goes.
function M.write_shards(folder, name, entries, metadata, limit)
  local shards, total, where, now = shards_of(entries, limit), 0, {}, {}
  local function remove_all()
    for _, path in pairs(now) do files.remove(path .. ".tmp") end
  end
  lib.guarded(remove_all, function()
    for i, shard in ipairs(shards) do
      local file = #shards == 1 and name .. ".safetensors"
        or ("%s-%05d-of-%05d.safetensors"):format(name, i, #shards)
      now[file] = files.join(folder, file)
      M.write(now[file] .. ".tmp", shard, metadata)
      for _, entry in ipairs(shard) do
        total, where[entry.path] = total + entry.tensor:bytes(), file
      end
    end
  end)
  for _, path in pairs(now) do files.rename(path .. ".tmp", path) end
  local index = files.join(folder, name .. ".safetensors.index.json")
  if #shards == 1 then
    files.remove(index)
  else
    local text = files.json({metadata = {total_size = total}, weight_map = where}, "")
    files.write(index, text .. "\n")
  end
  remove_others(folder, name, now)
end

--- nn.save_safetensors(path, tensors, metadata): writes a table of tensors by name, sorted by name,
--- or what model:state() gives, in its order.
---     nn.save_safetensors("weights.safetensors", {weight = x, bias = nn.zeros(3)})
---     nn.load_safetensors("weights.safetensors").weight:sum()  --> 21
function M.save_safetensors(path, tensors, metadata)
  arguments.need(type(path) == "string", "save_safetensors", "the path", path, "a text is needed")
  local entries, temporary = module.entries("save_safetensors", tensors), path .. ".tmp"
  lib.guarded(function() files.remove(temporary) end, M.write, temporary, entries, metadata)
  files.rename(temporary, path)                       -- what was there stays until all is written
end

local function is_whole(x) return type(x) == "number" and x >= 0 and x % 1 == 0 and x <= 2 ^ 53 end

-- {dtype=, shape=, first=, bytes=} of a header's entry. `wrong` raises.
local function checked_entry(name, value, room, wrong)
  if type(value) ~= "table" then wrong("the entry '%s' is no object", name) end
  local size, shape, offsets = sizes[value.dtype], value.shape, value.data_offsets
  if not size then wrong("'%s' has the unknown dtype '%s'", name, tostring(value.dtype)) end
  local bytes = json.is_list(shape) and #shape <= 8 and size or math.huge
  for _, extent in ipairs(bytes < math.huge and shape or {}) do
    bytes = is_whole(extent) and bytes * extent or math.huge
  end
  if bytes > 2 ^ 53 then wrong("'%s' has no valid shape", name) end
  if not json.is_list(offsets) or #offsets ~= 2 or not is_whole(offsets[1])
    or not is_whole(offsets[2]) or offsets[1] > offsets[2] then
    wrong("'%s' has no valid data_offsets", name)
  end
  local first, last = offsets[1], offsets[2]
  if last > room then wrong("'%s' ends at byte %.0f of the data's %.0f", name, last, room) end
  if last - first ~= bytes then
    wrong("'%s' has %.0f bytes; its shape and dtype need %.0f", name, last - first, bytes)
  end
  return {name = name, dtype = value.dtype, shape = shape, first = first, bytes = bytes}
end

local function checked_metadata(value, wrong)
  if type(value) ~= "table" then wrong "its __metadata__ is no object" end
  for name, text in pairs(value) do
    if type(text) ~= "string" then wrong("'%s' of its __metadata__ is no text", tostring(name)) end
  end
  return value
end

-- The header as a Lua table, and where the data begins.
local function parse_header(path, map, wrong)
  if map.size < 8 then wrong("%d bytes are too few for a header", map.size) end
  if ffi.string(map.data, math.min(map.size, 22)) == "version https://git-lf" then
    wrong "it is a pointer of Git LFS to the file; `git lfs pull` in that folder gets it"
  end
  local length = 0
  for i = 0, 7 do length = length + map.data[i] * 2 ^ (8 * i) end
  if length > HEADER_LIMIT or length + 8 > map.size then
    wrong("a header of %.0f bytes in a file of %.0f", length, map.size)
  end
  local subject = path .. " is no valid safetensors file: its header"
  return json.object(ffi.string(map.data + 8, length), subject), 8 + length
end

local File = {}
File.__index = File

--- open(path) -> file with `entries` ({name=, dtype=, shape=, bytes=, file=} in the order of the
--- data), `metadata`, and file:tensor(name). Everything is checked: sizes, shapes, dtypes, and
--- offsets, which must lie inside the file and neither overlap nor leave holes.
--- Errors: the file and what is wrong with it.
function M.open(path)
  local function wrong(text, ...)
    lib.fail("%s is no valid safetensors file: " .. text, path, ...)
  end
  local map = files.map(path)
  local header, begin = parse_header(path, map, wrong)
  local self = {path = path, map = map, begin = begin, entries = {}, by_name = {}, metadata = {}}
  for name, value in pairs(header) do
    if name == "__metadata__" then
      self.metadata = checked_metadata(value, wrong)
    else
      local entry = checked_entry(tostring(name), value, map.size - begin, wrong)
      entry.file = self
      self.entries[#self.entries + 1], self.by_name[entry.name] = entry, entry
    end
  end
  table.sort(self.entries, function(a, b)
    if a.first ~= b.first then return a.first < b.first end
    if a.bytes ~= b.bytes then return a.bytes < b.bytes end
    return a.name < b.name
  end)
  local at = 0
  for _, entry in ipairs(self.entries) do
    if entry.first < at then wrong("'%s' overlaps the tensor before it", entry.name) end
    if entry.first > at then wrong("there is a hole before '%s'", entry.name) end
    at = at + entry.bytes
  end
  local rest = map.size - begin - at
  if rest ~= 0 then wrong("%.0f bytes at its end belong to no tensor", rest) end
  return setmetatable(self, File)
end

local function find(self, name)
  return self.by_name[name] or lib.fail("%s holds no tensor '%s'%s", self.path, name,
                                        suggest.suggestion(name, self.by_name))
end

--- file:data(name) -> the raw bytes (uint8_t*), valid as long as the file is referred to.
function File:data(name) return self.map.data + self.begin + find(self, name).first end

-- The values of F16 (IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction), by their bits.
local halves

local function half(bits)
  local exponent, fraction = math.floor(bits / 1024) % 32, bits % 1024
  if exponent == 31 then return fraction == 0 and math.huge or 0 / 0 end
  if exponent == 0 then return fraction * 2 ^ -24 end
  return (1 + fraction / 1024) * 2 ^ (exponent - 15)
end

-- The same numbers as floats, which hold every F16.
local function floats_of(data, count)
  if not halves then
    halves = ffi.new "float[65536]"
    for bits = 0, 32767 do halves[bits], halves[bits + 32768] = half(bits), -half(bits) end
  end
  local from, out = ffi.cast("const uint16_t *", data), ffi.new("float[?]", count)
  for i = 0, count - 1 do out[i] = halves[from[i]] end
  return out
end

--- file:tensor(name) -> a new tensor; of F16 one of f32, with the same values.
--- Errors: no such name, or a dtype that nnlua does not compute with.
function File:tensor(name)
  local entry = find(self, name)
  local is_half = entry.dtype == "F16"
  local dtype = is_half and "f32" or dtypes[entry.dtype]
  if not dtype then
    lib.fail("%s: '%s' is %s; nnlua reads F32, F64, BF16, F16, I32, I64, U8 and BOOL", self.path,
             name, entry.dtype)
  end
  if entry.bytes == 0 then
    lib.fail("%s: '%s' is %s: a tensor of nnlua has at least one element", self.path, name,
             tensor.shape_text(entry.shape))
  end
  local data = self:data(name)
  local made = creation.from_host(is_half and floats_of(data, entry.bytes / 2) or data, entry.shape,
                                dtype)
  files.forget(self.map, self.begin + entry.first, entry.bytes)
  return made
end

--- file:copy_into(name, tensor): fills a tensor of the same shape and dtype.
--- Errors: where there is no such name, or shape or dtype differ.
function File:copy_into(name, target)
  local entry = find(self, name)
  local there, here = tensor.shape_text(entry.shape), tensor.shape_text(target.shape)
  if there ~= here or entry.dtype ~= names[target.dtype] then
    lib.fail("%s: '%s' is %s %s, but %s %s is needed", self.path, name, entry.dtype, there,
             names[target.dtype], here)
  end
  target:copy_from_host(self:data(name))
  files.forget(self.map, self.begin + entry.first, entry.bytes)
end

--- open_index(path) -> entries by name (as open()'s, whose `file` has :tensor() and :copy_into())
--- of the files that a NAME.safetensors.index.json names. Errors: an index that is malformed, or
--- names a file that is not beside it or does not hold the tensor.
function M.open_index(path)
  local map, folder = json.read(path).weight_map, path:match "^(.*)/[^/]*$" or "."
  if type(map) ~= "table" then lib.fail("%s has no weight_map", path) end
  local opened, by_name = {}, {}
  for name, shard in pairs(map) do
    if type(shard) ~= "string" or shard:find "[/\\%z]" or shard:find "^%.*$" then
      lib.fail("%s: '%s' is in '%s', which is no file name", path, name, tostring(shard))
    end
    if not opened[shard] then
      local full = files.join(folder, shard)
      if not files.exists(full) then
        lib.fail("%s: '%s' is in '%s', which is missing", path, name, shard)
      end
      opened[shard] = M.open(full)
    end
    by_name[name] = opened[shard].by_name[name]
      or lib.fail("%s: '%s' is not in %s", path, name, shard)
  end
  return by_name
end

--- nn.load_safetensors(path) -> a table of tensors by name, and the file's metadata. Of tensors in
--- several files, the path is that of their NAME.safetensors.index.json.
--- Errors: the file and what is wrong with it.
---     nn.save_safetensors("a.safetensors", {x = x}, {made_by = "me"})
---     local tensors, metadata = nn.load_safetensors "a.safetensors"
---     tensors.x:dim(2), metadata.made_by  --> 3, "me"
function M.load_safetensors(path)
  arguments.need(type(path) == "string", "load_safetensors", "the path", path, "a text is needed")
  local file = path:find "%.index%.json$" and {by_name = M.open_index(path), metadata = {}}
    or M.open(path)
  local tensors = {}
  for name, entry in pairs(file.by_name) do tensors[name] = entry.file:tensor(name) end
  return tensors, file.metadata
end

return M
