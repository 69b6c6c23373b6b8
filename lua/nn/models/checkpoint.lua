-- Checkpoints: folders OUT/checkpoint-000500 with model.safetensors, optimizer.safetensors and
-- state.json. A checkpoint is written under a temporary name, made durable, and renamed, so a
-- folder of that name is always complete, and a failure leaves earlier ones intact. Reading checks
-- the length and CRC-32 of every file. Tensors are written in the background, during training.
local arguments = require "nn.base.arguments"
local cluster = require "nn.base.cluster"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local first = require "nn.io.first"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local registry = require "nn.models.registry"
local safetensors = require "nn.io.safetensors"
local states = require "nn.models.state"
local tape = require "nn.core.tape"
local temporary = require "nn.io.temporary"
local tokenizers = require "nn.text.tokenizer"

local M = {}
local FILES = {"model.safetensors", "optimizer.safetensors", "state.json"}

local function name_of(step) return ("checkpoint-%06d"):format(step) end

-- The step of a checkpoint by its folder's name; nil for other names, which are the user's.
local function step_of(name)
  local step = tonumber(name:match "^checkpoint%-(%d+)$")
  return step and name == name_of(step) and step or nil
end

--- list(out) -> {{path=, step=}, ...}: the checkpoints in a run's folder, oldest first.
function M.list(out)
  local found = {}
  for _, name in ipairs(files.list(out) or {}) do
    local step, path = step_of(name), files.join(out, name)
    if step and files.list(path) then
      found[#found + 1] = {path = path, step = step}
    end
  end
  table.sort(found, function(a, b) return a.step < b.step end)
  return found
end

-- Writes state.json; it begins with the CRC-32 of the rest.
local function write_state(path, state)
  local text = files.json(state, ""):sub(2)
  local writer = files.create(path)
  writer:write(('{"crc32":"%08x",'):format(files.crc32(text)) .. text .. "\n")
  writer:close()
end

-- The state in a checkpoint folder, or nil and the problem.
local function parse_state(folder)
  local path = files.join(folder, "state.json")
  if not files.exists(path) then return nil, "state.json is missing" end
  local crc, text = files.read(path):match '^{"crc32":"(%x+)",(.*)\n$'
  if not crc or tonumber(crc, 16) ~= files.crc32(text) then return nil, "state.json is damaged" end
  return states.parse("{" .. text)
end

-- The same, but also checks the files that it lists.
local function read_state(folder)
  local state, reason = parse_state(folder)
  if not state then return nil, reason end
  for name, expected in pairs(state.files) do
    local full = files.join(folder, name)
    if not files.exists(full) then return nil, name .. " is missing" end
    local map = files.map(full)
    if map.size ~= expected.bytes then
      return nil, ("%s has %.0f bytes, not %.0f"):format(name, map.size, expected.bytes)
    end
    local crc_now = files.crc32(map.data, map.size)
    files.unmap(map)
    if crc_now ~= expected.crc32 then
      return nil, name .. " is damaged (its CRC-32 differs from the saved one)"
    end
  end
  return state
end

-- Removes the remains of interrupted saves (.tmp and .old), and all checkpoints up to `step` except
-- the newest `keep` and the best one. Checkpoints of later steps, from before the run was resumed,
-- are kept.
local function prune(out, keep, step, best)
  for _, name in ipairs(files.list(out) or {}) do
    local base, ending = name:match "^(.*)%.(%a+)$"
    if (ending == "tmp" or ending == "old") and step_of(base) then
      files.remove(files.join(out, name))
    end
  end
  local all = M.list(out)
  while #all > 0 and all[#all].step > step do all[#all] = nil end
  for i = 1, #all - keep do
    if all[i].step ~= best then files.remove(all[i].path) end
  end
end

-- Whether two folders have files of the same names and the same state.json, which has their CRCs.
local function same_checkpoint(a, b)
  local names, state = table.concat(files.list(a) or {}, "/"), "state.json"
  return names:find(state, 1, true) and names == table.concat(files.list(b) or {}, "/")
    and files.read(files.join(a, state)) == files.read(files.join(b, state))
end

-- Renames an entry that the program did not make, to a free name.
local function keep_aside(path)
  local other, number = path .. ".copy", 1
  while files.exists(other) or files.is_link(other) do
    number = number + 1
    other = path .. ".copy-" .. number
  end
  files.rename(path, other)
end

-- Makes OUT/best a link to the checkpoint of a step. Where a run was copied with its links
-- followed, `best` is a folder: it is removed if it equals a checkpoint, else renamed.
local function link_best(out, step)
  local best = files.join(out, "best")
  if files.exists(best) and not files.is_link(best) then
    for _, found in ipairs(M.list(out)) do
      if same_checkpoint(best, found.path) and read_state(found.path) then
        files.remove(best)
        break
      end
    end
    if files.exists(best) then keep_aside(best) end
  end
  files.link(name_of(step), best)
end

local Saving = {}
Saving.__index = Saving

--- start(out, parts) -> saving: starts writing the current state to OUT/checkpoint-STEP; `parts` as
--- for nn.save_checkpoint. saving:finish() completes the checkpoint. With several ranks, every rank
--- calls it, and rank 0 writes.
function M.start(out, parts)
  local self = setmetatable({out = out, parts = parts, writing = {}}, Saving)
  self.path = files.join(out, name_of(parts.step))
  self.elsewhere = not cluster.is_first()
  if self.elsewhere then
    safetensors.collect(parts.model:state())
    if parts.optim then safetensors.collect(parts.optim:state()) end
    return self
  end
  self.temporary = self.path .. ".tmp"
  files.remove(self.temporary)
  files.make_folder(self.temporary, "the checkpoint's folder")
  for _, path in ipairs(self:new_paths()) do temporary.claim(path) end
  self.state = {format = states.FORMAT, step = parts.step, files = {}, config = parts.config,
                model = registry.name_of(parts.model) or "",
                model_file = registry.file_of(registry.name_of(parts.model)),
                random = engine.random_state(), version = engine.version():match "^[^\n]*",
                data = parts.data and parts.data:state(), best = parts.best,
                vocabulary = parts.vocabulary and parts.vocabulary:state(),
                optimizer = parts.optim and parts.optim:numbers()}
  self:guarded(function()
    local function write(name, list)
      local path = files.join(self.temporary, name)
      self.writing[name] = safetensors.start(path, list, {format = "pt"})
    end
    write("model.safetensors", parts.model:state())
    if parts.optim then write("optimizer.safetensors", parts.optim:state()) end
  end)
  return self
end

-- The new folder, and the files there.
function Saving:new_paths()
  local paths = {self.temporary}
  for _, name in ipairs(FILES) do paths[#paths + 1] = files.join(self.temporary, name) end
  return paths
end

-- Calls f(); if it fails, removes this checkpoint.
function Saving:guarded(f)
  lib.guarded(function() self:abandon() end, f)
end

--- saving:done() -> whether all tensors are written, so that finish() does not wait for them.
function Saving:done()
  for _, writing in pairs(self.writing) do
    if not writing:done() then return false end
  end
  return true
end

--- saving:finish() waits until the checkpoint is complete and durable -> its path. Errors: failures
--- of the disk.
function Saving:finish()
  if self.elsewhere then return self.path end
  self:guarded(function()
    for name, writing in pairs(self.writing) do
      local bytes, crc = writing:finish()
      self.state.files[name] = {bytes = bytes, crc32 = crc}
    end
    write_state(files.join(self.temporary, "state.json"), self.state)
    files.sync_folder(self.temporary)
    temporary.keep(unpack(self:new_paths()))        -- before an earlier one is moved away
    if files.is_link(self.path) or files.exists(self.path) and not files.list(self.path) then
      keep_aside(self.path)                         -- a link, also a dangling one, or a file
    elseif files.exists(self.path) then             -- an earlier one of the same step
      files.remove(self.path .. ".old")
      files.rename(self.path, self.path .. ".old")
    end
    files.rename(self.temporary, self.path)
  end)
  local best = self.parts.best
  if best and best.step == self.parts.step then
    link_best(self.out, best.step)
  end
  files.sync_folder(self.out)
  prune(self.out, self.parts.keep or math.huge, self.parts.step, best and best.step)
  return self.path
end

--- saving:abandon(): stops and removes the incomplete checkpoint.
function Saving:abandon()
  if self.elsewhere then return end
  for _, writing in pairs(self.writing) do writing:abandon() end
  files.remove(self.temporary)
  temporary.keep(unpack(self:new_paths()))
end

local known = arguments.names "step model optim data vocabulary config keep best"

--- nn.save_checkpoint(out, {step=, model=, optim=, data=, vocabulary=, config=, keep=, best=})
---   -> path
--- Writes OUT/checkpoint-STEP; only `step` and `model` are required. Then removes all checkpoints
--- but the newest `keep` (default: all) and the best one, best={step=, val_loss=}; OUT/best links
--- to the best. Errors: failures of the disk, which leave older checkpoints intact.
---     nn.save_checkpoint("saved", {step = 10, model = model})  --> "saved/checkpoint-000010"
function M.save_checkpoint(out, parts)
  arguments.need(type(out) == "string", "save_checkpoint", "the folder", out, "a text is needed")
  parts = arguments.options("save_checkpoint", parts, known)
  arguments.whole("save_checkpoint", "step", parts.step, 0)
  arguments.need(module.is_module(parts.model), "save_checkpoint", "model", parts.model,
                 "a module is needed")
  if parts.keep ~= nil then arguments.whole("save_checkpoint", "keep", parts.keep) end
  if parts.best ~= nil then
    arguments.need(type(parts.best) == "table" and type(parts.best.val_loss) == "number",
                   "save_checkpoint", "best", parts.best, "{step=, val_loss=} is needed")
    arguments.whole("save_checkpoint", "best.step", parts.best.step, 0)
  end
  return M.start(out, parts):finish()
end

local Checkpoint = {}
Checkpoint.__index = Checkpoint

--- nn.open_checkpoint(path) -> checkpoint with path, state (step, config, ...) and :restore(parts).
--- Errors: a damaged or incomplete checkpoint, with the file and the reason.
---     local path = nn.save_checkpoint("out/opened", {step = 10, model = model})
---     nn.open_checkpoint(path).state.step  --> 10
function M.open_checkpoint(path)
  arguments.need(type(path) == "string", "open_checkpoint", "the path", path, "a text is needed")
  local state, reason = read_state(path)
  local inside = M.list(path)
  if not state and #inside > 0 then
    lib.deny("'%s' is a folder of checkpoints; give one of them, such as '%s'", path,
             inside[#inside].path)
  end
  if not state then lib.deny("the checkpoint '%s' cannot be used: %s", path, reason) end
  return setmetatable({path = path, state = state}, Checkpoint)
end

--- config(folder) -> the settings in the newest checkpoint of a run's folder, or in a checkpoint;
--- nil if none can be read. Does not check the weights. Errors: settings that imply tensors that
--- the file lacks.
function M.config(folder)
  local list = M.list(folder)
  for i = #list, 0, -1 do
    local path = list[i] and list[i].path or folder
    local state = parse_state(path)
    if state and type(state.config) == "table" then
      local class = state.model and registry.known(state.model)
      if class then states.check_names(class, state.config.model, path) end
      return state.config
    end
  end
end

-- The path and the state of the checkpoint that M.find describes, or nil.
local function find(out, resume, warn)
  if resume == "none" then return nil end
  local folder = resume == "auto" and out or resume
  if resume ~= "auto" and #M.list(folder) == 0 then
    if not files.exists(files.join(folder, "state.json")) then
      lib.deny("there is no checkpoint in '%s'; resume must be none, auto, a checkpoint or a run's "
               .. "folder", resume)
    end
    return {path = folder, state = M.open_checkpoint(folder).state}
  end
  local all = M.list(folder)
  for i = #all, 1, -1 do
    local state, reason = read_state(all[i].path)
    if state then return {path = all[i].path, state = state} end
    warn(("'%s' cannot be used: %s"):format(all[i].path, reason))
  end
  if #all > 0 then
    lib.deny("no checkpoint in '%s' can be used; to start again, use another out=", folder)
  end
end

--- find(out, resume, warn) -> checkpoint or nil. resume: "none"; "auto": the newest valid one in
--- the folder `out`; or the path of a checkpoint or of a run's folder, which means its newest valid
--- one. Calls warn(text) for each damaged checkpoint that it skips. With several ranks, only rank 0
--- reads the files, also those of checkpoint:restore().
function M.find(out, resume, warn)
  local found = first.on_first("the checkpoint to resume", function()
    return find(out, resume, warn)
  end)
  if not found then return nil end
  found.shared = true
  return setmetatable(found, Checkpoint)
end

-- shared: rank 0 reads the file, and gives the values to all ranks.
local function restore_tensors(path, list, shared)
  local file = (cluster.is_first() or not shared) and safetensors.open(path)
  for _, entry in ipairs(list) do
    if file then file:copy_into(entry.path, entry.tensor) end
    if shared then cluster.spread(entry.tensor) else cluster.drop(entry.tensor) end
  end
  if file and #file.entries ~= #list then
    lib.deny("%s has %d tensors, %d are needed", path, #file.entries, #list)
  end
end

-- f(...); adds the path of the checkpoint to its errors.
local function named(self, f, ...)
  local good, result = lib.protected(f, ...)
  if good then return result end
  if not lib.is_error(result) then error(result, 0) end
  lib.deny("the checkpoint '%s' cannot be used: state.json: %s", self.path, result.message)
end

--- checkpoint:restore_model(model) restores only the parameters and buffers. Errors: as restore().
---     local path = nn.save_checkpoint("out/model-only", {step = 1, model = model})
---     nn.no_grad(function() model.tok.weight:fill_(0) end)
---     nn.open_checkpoint(path):restore_model(model)
---     model.tok.weight:abs():max():item() > 0  --> true
function Checkpoint:restore_model(model)
  tape.no_grad(function()
    restore_tensors(files.join(self.path, "model.safetensors"), model:state(), self.shared)
  end)
end

--- checkpoint:restore{model=, optim=, data=} -> same_data: false if the data has changed. Restores
--- the saved state bitwise: parameters, moments, step, random state, data position. Errors: tensors
--- that the checkpoint does not have or that have another shape.
---     local path = nn.save_checkpoint("out/all", {step = 1, model = model, optim = optim,
---                                                 data = data.train})
---     nn.open_checkpoint(path):restore{model = model, optim = optim, data = data.train}  --> true
function Checkpoint:restore(parts)
  local state = self.state
  self:restore_model(parts.model)
  if parts.optim and state.optimizer then
    tape.no_grad(function()
      restore_tensors(files.join(self.path, "optimizer.safetensors"), parts.optim:state(),
                      self.shared)
    end)
    named(self, parts.optim.set_numbers, parts.optim, state.optimizer)
  end
  engine.set_random_state(state.random)
  if not parts.data or not state.data then return true end
  return named(self, parts.data.set_state, parts.data, state.data)
end

--- checkpoint:vocabulary() -> the vocabulary or tokenizer that was saved; nil if none was. Errors:
--- one that is not valid.
---     local words = nn.vocabulary("char", "hello")
---     local path = nn.save_checkpoint("out/words", {step = 1, model = model, vocabulary = words})
---     nn.open_checkpoint(path):vocabulary():decode{0, 1}  --> "eh"
function Checkpoint:vocabulary()
  local saved = self.state.vocabulary
  return saved and named(self, tokenizers.from_state, saved)
end

return M
