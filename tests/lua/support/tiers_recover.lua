-- Trains a small model in little memory while transfers of the disk fail, and goes on as a session
-- at the prompt would: for tests/lua/tiers/faults.lua. Every value that can be read must be one
-- that the undisturbed training has before or after the failed step; when all are restored, the
-- training goes on to the same bits. Prints the number of errors and of unreadable tensors.
-- Arguments: the folder of the disk; bytes of RAM, 0 for all.
local files = require "nn.io.files"
local nn = require "nn"
local GPT2 = require "models.gpt2"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"

local folder, ram = arg[1], tonumber(arg[2])
local STEPS = 6
if ram > 0 then nn.memory_tiers {ram = ram, disk = folder, disk_in_ram = true} end
nn.seed(1)

local function ids(shift)
  local rows = {}
  for i = 1, 2 do
    rows[i] = {}
    for j = 1, 16 do rows[i][j] = (i * 37 + j * 101 + shift * 13) % 300 end
  end
  return nn.tensor(rows, {dtype = "i32"})
end

-- Calls f until it succeeds -> its result and the number of errors.
local function insist(f)
  local errors = 0
  while true do
    local good, result = pcall(f)
    if good then return result, errors end
    result = tostring(result)
    assert(result:find("the disk folder '" .. folder, 1, true)
           or result:find("since a task before it failed", 1, true), result)
    errors = errors + 1
    assert(errors < 1000, result)
  end
end

local model = insist(function()
  nn.seed(1)
  return GPT2 {layers = 4, heads = 4, embd = 128, vocab = 300, context = 16}
end)
local optim = insist(function()
  return nn.AdamW(model, {lr = 1e-3, weight_decay = 0.1, clip = 1})
end)
local step = nn.compile(function(x, y)
  optim:zero_grad()
  local loss = model(x, y)
  loss:backward()
  return loss, optim:step()
end)

local tensors = {}
for _, p in ipairs(model:parameters()) do table.insert(tensors, p.tensor) end
for _, s in ipairs(optim:state()) do table.insert(tensors, s.tensor) end
local first = {}                 -- the values to restore
for i, tensor in ipairs(tensors) do first[i] = insist(function() return tensor:host() end) end
local numbers = optim:numbers()

-- The checksums of all tensors after each step: from a file that the undisturbed run writes.
local path, expected = folder .. "/../sums", {}
if ram > 0 then expected = files.parse_json(files.read(path)) end

local total, unreadable, wrong = 0, 0, 0
local function check(s, i)
  local good, result = pcall(checksums.of, tensors[i])
  if not good then unreadable = unreadable + 1 return end
  for near = math.max(1, s - 1), math.min(STEPS + 1, s + 1) do
    if expected[near][i] == result then return end
  end
  wrong = wrong + 1
  io.stderr:write(("wrong: tensor %d after step %d\n"):format(i, s))
end

-- Trains; at an error checks all values, restores them and begins again.
local function train()
  for s = 1, STEPS do
    local good, problem = pcall(function()
      local loss, norm = step(ids(s), ids(s + 1))
      loss:item()
      norm:item()
    end)
    if not good then
      problem = tostring(problem)
      total = total + 1
      assert(problem:find("the disk folder '" .. folder, 1, true)
             or problem:find("since a task before it failed", 1, true), problem)
      for i in ipairs(tensors) do check(s, i) end
      return false
    end
    if ram == 0 then
      expected[s + 1] = {}
      for i, tensor in ipairs(tensors) do expected[s + 1][i] = checksums.of(tensor) end
    end
  end
  return true
end
local function restore()
  for i, tensor in ipairs(tensors) do
    insist(function() return tensor:copy_from_host(first[i]) end)
  end
  optim:set_numbers(numbers)
end

if ram == 0 then
  expected[1] = {}
  for i, tensor in ipairs(tensors) do expected[1][i] = checksums.of(tensor) end
end
-- Whether all values at the end are read, and right.
local function ends_well()
  for i, tensor in ipairs(tensors) do
    local good, last = pcall(checksums.of, tensor)
    if not good then
      total = total + 1
      return false
    end
    assert(last == expected[STEPS + 1][i], "a wrong value at the end")
  end
  return true
end
while not (train() and ends_well()) do restore() end      -- a failure is injected once
if ram == 0 then files.write(path, files.json(expected)) end
print(("%d errors, %d unreadable, %d wrong"):format(total, unreadable, wrong))
