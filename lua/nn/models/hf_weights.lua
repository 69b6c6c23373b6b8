-- The tensors in the files of a Hugging Face folder, and which of them are the parameters of a
-- model. Every tensor must be read, be the copy of one that is read, or be one that the model does
-- without (`repeats` and `unused` in hugging_face.lua).
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local registry = require "nn.models.registry"
local safetensors = require "nn.io.safetensors"
local sorted_keys = require("nn.base.tables").sorted_keys
local tensor = require "nn.core.tensor"

ffi.cdef "int memcmp(const void *a, const void *b, size_t size);"

local M = {}
-- Buffers of older files, which follow from config.json.
local buffers = {"%.rotary_emb%.inv_freq$", "%.masked_bias$", "%.position_ids$"}
local Weights = {}
Weights.__index = Weights

local function full_name(prefix, name)
  return name:sub(1, 1) == "/" and name:sub(2) or prefix .. name
end
M.full_name = full_name

--- name_in_files(class, path, settings) -> the name in files (without prefix) of a parameter, and
--- whether it is stored transposed; or the list of its parts, {name=, rows=, first=}.
function M.name_in_files(class, path, settings)
  local name, transposed = class.hugging_face.name(path, settings)
  if not name then
    lib.deny("'%s' is not a parameter of %s in transformers", path, class.class_name)
  end
  if type(name) == "string" then return name, transposed end
  local parts = {}
  for i, part in ipairs(name) do
    parts[i] = {name = part[1], rows = part[2], first = part[3] or 0}
  end
  return parts
end

-- The path of the weights in a folder: model.safetensors (preferred, as in transformers) or an
-- index of shards; nil if there is neither.
local function find_files(folder)
  local whole = files.join(folder, "model.safetensors")
  if files.exists(whole) then return whole end
  local index = whole .. ".index.json"
  return files.exists(index) and index or nil
end

-- Raises the error for a folder without weights: what it has instead.
local function refuse_files(folder)
  local instead = ""
  for _, name in ipairs(files.list(folder)) do
    if name:find "%.safetensors$" then
      instead = ("; transformers uses no file of the name %s"):format(name)
    elseif name:find "^pytorch_model.*%.bin$" then
      instead = ("; %s can run any code and is not read: in Python, AutoModelForCausalLM.from_"
                 .. "pretrained(FOLDER).save_pretrained(OTHER) writes safetensors"):format(name)
    end
  end
  lib.deny("'%s' has neither model.safetensors nor model.safetensors.index.json%s", folder, instead)
end

-- The entry of a tensor, or nil.
local function lookup(self, name)
  local by_name, old = self.by_name, self.format.old_name and self.format.old_name(name)
  return by_name[full_name(self.prefix, name)] or by_name[name]
    or old and by_name[full_name(self.prefix, old)]
end

-- What a wrapper has put before a name that the model expects, such as "_orig_mod." of
-- torch.compile() or "module." of DataParallel; nil if the files have the name itself, or none that
-- ends with it.
local function wrapper_of(self, name)
  local found
  for _, wanted in ipairs {full_name(self.prefix, name), full_name("", name)} do
    if self.by_name[wanted] then return nil end
    for full in pairs(self.by_name) do
      local outer = full:sub(1, -#wanted - 1)
      local fits = full:sub(-#wanted - 1) == "." .. wanted
      if fits and not (found and #found <= #outer) then found = outer end
    end
    if found then return found end
  end
end

-- Leaves out a wrapper's prefix that all names have. `wrapper` stays for errors where not all do.
local function leave_out_wrapper(self, settings)
  local name = self.format.name("tok.weight", settings)
  self.wrapper = type(name) == "string" and not lookup(self, name) and wrapper_of(self, name)
  if not self.wrapper then return end
  local inner = {}
  for full, entry in pairs(self.by_name) do
    if full:sub(1, #self.wrapper) ~= self.wrapper then return end
    inner[full:sub(#self.wrapper + 1)] = entry
  end
  lib.warn_once(("%s: the names of all tensors begin with '%s', which is left out"):format(
    self.folder, self.wrapper))
  self.by_name, self.wrapper = inner, nil
end

--- open(folder, class, settings, assumed) -> the weights in a folder, for a model of a class with
--- these settings. assumed: {name = default} of the sizes that config.json does not state.
--- Errors: there are none, or an index is wrong.
function M.open(folder, class, settings, assumed)
  local path, format = find_files(folder), class.hugging_face
  if not path then refuse_files(folder) end
  local by_name = path:find "%.json$" and safetensors.open_index(path)
    or safetensors.open(path).by_name
  local self = setmetatable({folder = folder, class = class, format = format, by_name = by_name,
                             prefix = format.prefix or "", read = {}, assumed = assumed or {}},
                            Weights)
  leave_out_wrapper(self, settings)
  return self
end

-- The entry of a copy of a tensor, where the files have only that. An untied head is no copy.
local function lookup_copy(self, name, settings)
  local head = settings.tied == false and self.format.name("head.weight", settings)
  for _, copy in ipairs(sorted_keys(self.format.repeats or {})) do
    local entry = self.format.repeats[copy] == name and lookup(self, copy)
    if entry and not (head and full_name("", head) == copy) then return entry end
  end
end

-- "'a' (2,3), 'b' (4) and 7 more": some of these tensors, by name.
local function listed(entries)
  local names = sorted_keys(entries)
  local shown = {}
  for i = 1, math.min(4, #names) do
    local entry = entries[names[i]]
    shown[i] = ("'%s' %s"):format(entry.name, tensor.shape_text(entry.shape))
  end
  return table.concat(shown, ", ") .. (#names > 4 and (" and %d more"):format(#names - 4) or "")
end

local function refuse_missing(self, name, shape, settings)
  local prefix, why = self.prefix, ""
  if settings.tied == false and self.format.name("head.weight", settings) == name then
    why = ", which tie_word_embeddings = false needs"
  end
  if self.wrapper then
    why = why .. ("; it would fit behind the prefix '%s', but not all names have that"):format(
      self.wrapper)
  end
  lib.deny("'%s' has no tensor '%s' %s%s%s; it has %s", self.folder, full_name("", name),
           tensor.shape_text(shape), prefix == "" and ""
           or (" (nor with the prefix '%s')"):format(prefix), why, listed(self.by_name))
end

-- "; vocab_size = 9 is transformers' default, since config.json states none", for those of the
-- sizes in which two shapes differ that config.json does not state; else "".
local function note_on_defaults(self, given, expected)
  local note = ""
  for _, name in ipairs(sorted_keys(self.assumed)) do
    local differs = false
    for i, extent in ipairs(expected) do
      differs = differs or extent == self.assumed[name] and extent ~= given[i]
    end
    if differs then
      note = ("%s; %s = %d is transformers' default, since config.json states none"):format(
        note, name, self.assumed[name])
    end
  end
  return note
end

-- The entry of a tensor that is read, which must have this shape.
local function find(self, name, shape, settings)
  local entry = lookup(self, name) or lookup_copy(self, name, settings)
    or refuse_missing(self, name, shape, settings)
  local given, expected = tensor.shape_text(entry.shape), tensor.shape_text(shape)
  if given ~= expected then
    lib.deny("%s: '%s' is %s; config.json implies %s%s", entry.file.path, entry.name, given,
             expected, note_on_defaults(self, entry.shape, shape))
  end
  local problem = safetensors.problem(entry)
  if problem then lib.deny("%s: '%s' %s", entry.file.path, entry.name, problem) end
  self.read[name] = entry
  return entry
end

--- weights:parameter(path, shape, settings) -> the entry of a parameter of the model, and whether
--- it is stored transposed; or its parts, with their entries. Errors: it is missing, or has another
--- shape.
function Weights:parameter(path, shape, settings)
  local name, transposed = M.name_in_files(self.class, path, settings)
  if type(name) == "string" then
    return find(self, name, transposed and {shape[2], shape[1]} or shape, settings), transposed
  end
  local rows = {}                                            -- of each tensor
  for _, part in ipairs(name) do rows[part.name] = (rows[part.name] or 0) + part.rows end
  for _, part in ipairs(name) do
    part.entry = find(self, part.name, {rows[part.name], unpack(shape, 2)}, settings)
  end
  return name
end

--- weights:check_shapes(settings) refuses sizes that the files do not have, before a model of these
--- sizes is created.
function Weights:check_shapes(settings)
  if not self.class.shapes then return end
  local shapes, full = registry.shapes(self.class, settings)
  if not shapes then lib.deny("%s: %s", files.join(self.folder, "config.json"), full) end
  local paths = sorted_keys(shapes)
  for i = #paths, 1, -1 do   -- tok.weight first: wrong heads would make many parts of a block's
    self:parameter(paths[i], shapes[paths[i]], full)
  end
end

-- Whether two entries have the same dtype and bytes.
local function are_equal(a, b)
  if a.dtype ~= b.dtype or a.bytes ~= b.bytes then return false end
  local p, q, at, same = a.file:data(a.name), b.file:data(b.name), 0, true
  while same and at < a.bytes do
    local size = math.min(a.bytes - at, 2 ^ 26)
    same, at = ffi.C.memcmp(p + at, q + at, size) == 0, at + size
    lib.check_interrupt()
  end
  files.check(a.file.map)
  files.check(b.file.map)
  return same
end

--- settle_tie(folder, class, settings, weights): makes `tied` false in the settings of a class that
--- has it, where the folder has weights with a head of its own. transformers uses it in spite of
--- tie_word_embeddings. weights: those of the folder, if they are open.
function M.settle_tie(folder, class, settings, weights)
  local field = class.fields and class.fields().tied
  local is_tied = settings.tied
  if is_tied == nil then is_tied = field and field.default end
  if not (field and is_tied and find_files(folder)) then return end
  weights = weights or M.open(folder, class, settings)
  local function entry_of(path)
    local name = class.hugging_face.name(path, settings)
    return type(name) == "string" and lookup(weights, name)
  end
  local head = entry_of "head.weight"
  local tokens = entry_of "tok.weight"
    or lookup_copy(weights, class.hugging_face.name("tok.weight", settings), {tied = false})
  if head and tokens and not are_equal(head, tokens) then settings.tied = false end
end

-- Whether a tensor that is not read is the copy of one that is. Errors: the two differ.
local function is_copy(self, entry, name)
  local other = self.read[(self.format.repeats or {})[name]]
  if not other then return false end
  if not are_equal(entry, other) then
    lib.deny("%s: '%s' differs from '%s', which nnlua's %s uses in its place", entry.file.path,
             entry.name, other.name, self.class.class_name)
  end
  return true
end

local function is_unused(self, name)
  for _, list in ipairs {buffers, self.format.unused or {}} do
    for _, pattern in ipairs(list) do
      if name:find(pattern) then return true end
    end
  end
end

--- weights:check_all_read() refuses files with tensors that no parameter() has read, which would
--- make another model. Those that are copies, or that the model does without, are excepted.
function Weights:check_all_read()
  local unread, is_read = {}, {}
  for _, entry in pairs(self.read) do is_read[entry] = true end
  for full, entry in pairs(self.by_name) do
    local has_prefix = full:sub(1, #self.prefix) == self.prefix
    local name = has_prefix and full:sub(#self.prefix + 1) or full
    if not is_read[entry] and not is_unused(self, name) and not is_copy(self, entry, name) then
      unread[full] = entry
    end
  end
  local count = #sorted_keys(unread)
  if count == 0 then return end
  lib.deny("'%s' has %d tensor%s that nnlua's %s with this config.json does not read, so it would "
           .. "compute something else: %s. nn.load_hf(FOLDER, {unread = \"ignore\"}) loads the "
           .. "rest", self.folder, count, count == 1 and "" or "s", self.class.class_name,
           listed(unread))
end

return M
