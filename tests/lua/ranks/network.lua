-- Ranks on different hosts, whose links fail. tests/network pretends the hosts; skipped where the
-- system makes no network namespaces, and where MPI is not installed or not built in.
-- Runs alone: a rank that is silent for seconds counts as lost.
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"
local nn = require "nn"
local model = root .. "/tests/lua/support/ranks_model.lua shards=2 accum=2 layers=4 steps=80"

-- Trains on two hosts; `during` runs beside it, after the first steps. limit: seconds of silence
-- that end a run -> the status, standard output, messages.
local function train(during, limit)
  mpi.need()
  local folder = t.folder()
  local begin = ("for i in $(seq 600); do grep -q loss %s/out && break; sleep 0.1; done; "
    .. "sleep 0.5; "):format(folder)
  local status = t.shell(("NNLUA='%s' NNLUA_CPUS=1 NNLUA_HEARTBEAT=%d DURING='%s' "
    .. "timeout -k 5 240 %s/tests/network 2 400mbit %s >%s/out 2>%s/errors"):format(
      mpi.program, limit, begin .. during, root, model, folder, folder))
  local messages = files.read(folder .. "/errors")
  if status == 77 then t.skip(messages) end
  return status, files.read(folder .. "/out"), messages
end

t.case("a run goes on after its link was down for seconds", function()
  local _, expected = t.shell(("NNLUA_CPUS=1 '%s' %s 2>/dev/null"):format(mpi.program, model))
  local status, output, messages = train("link 1 down; sleep 3; link 1 up", 30)
  t.check(status == 0, messages)
  t.same(output, expected)
end)

t.case("a link that stays down ends all ranks and mpirun", function()
  local begin = nn.now()
  local status, output, messages = train("link 1 down", 6)
  t.check(status == 1, output .. messages)
  t.check(messages:find "rank 1 on host1 has been silent for 6 s", messages)
  t.check(messages:find "mpirun did not end", messages)
  t.check(nn.now() - begin < 60, ("it took %d s"):format(nn.now() - begin))
end)

t.finish()
