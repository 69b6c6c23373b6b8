-- The setting verify=K on several ranks: all compare a training in little memory with one in
-- enough, to the bit, and a wrong value of any rank is found. Skipped where MPI is not installed or
-- not built in.
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local folder, disk = t.folder(), t.folder()
files.write(folder .. "/text.txt", files.read(root .. "/README.md"))
local settings = "data.batch=4 data.text=text.txt data.vocabulary=byte model.layers=6 "
  .. "model.heads=4 model.embd=128 model.context=32 model.dtype=f32 memory.disk=" .. disk
  .. " memory.disk_in_ram=true verify=2 "

-- A recipe on several ranks -> its exit status and output. The folders stay empty.
local function recipe(ranks, words, before)
  mpi.need()
  local status, output = t.shell(("cd %s; %s timeout 200 '%s' --ranks %d %s/recipes/gpt2_train.lua "
    .. "%s%s 2>&1"):format(folder, before or "", mpi.program, ranks, root, settings, words))
  t.same({files.list(disk), files.list(folder)}, {{}, {"text.txt"}})
  return status, output
end

for _, case in ipairs {{2, "optimizer", 8}, {2, "weights", 6}, {3, "weights", 5}} do
  local ranks, shard, megabytes = unpack(case)
  t.case(("%d ranks that divide their %s verify"):format(ranks, shard), function()
    local status, output = recipe(ranks, ("cluster.shard=%s memory.ram=%dMB data.accum=%d"):format(
      shard, megabytes, ranks))
    local layers, tensors, read = output:match(
      "\nverified: 2 steps of (%d+) of 6 layers .- equal the same steps without memory.disk bit "
      .. "for bit: (%d+) tensors, losses .-; ([%d.]+ %aB) read and [%d.]+ %aB written by rank 0\n$")
    t.check(status == 0 and layers and read ~= "0 B", output)
    t.same(tonumber(tensors), 3 * (4 + 12 * tonumber(layers)))
  end)
end

t.case("a wrong value of rank 1 is found", function()
  for shard, megabytes in pairs {optimizer = 8, weights = 6} do
    local status, output = recipe(2, ("cluster.shard=%s memory.ram=%dMB"):format(shard, megabytes),
                                  "NNLUA_PLANT=load_astray:20:1,load_lost:30:1")
    local found = output:match "nnlua: .-verify: with memory.disk, ([^:]+)"
    t.same(status, 1)
    t.check(found == "other bits than in RAM" or found == "an error that did not occur in RAM",
            output)
    t.check(not output:find "verified", output)
  end
end)

t.finish()
