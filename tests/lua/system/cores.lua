-- Workers: as many as the process may use cores, by its affinity mask and the quota of its control
-- group; and where the system refuses to bind threads.
local ffi = require "ffi"
local files = require "nn.io.files"
local root = require("nn.host").root
local t = require "nn.test"
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local folder = t.folder()
local count = "$NNLUA -e 'local cores, why = require(\"nn.base.engine\").host_limits() "
  .. "print((nn.workers()), cores, why)'"
local function shell(command)
  return t.shell(("cd '%s'; unset NNLUA_CPUS; %s"):format(folder, command))
end

-- The command in which binding a thread (and what else these numbers mean) is refused by errno.
local set_affinity = ({x64 = 203, arm64 = 122})[ffi.arch]
local function denied(errno, command)
  if not set_affinity then t.skip("the number of sched_setaffinity on " .. ffi.arch) end
  local status, output = shell(("$NNLUA %s/tests/lua/support/deny.lua %d %d %s 2>&1"):format(
    root, errno, set_affinity, command))
  if status == 77 then t.skip "this system has no filters for system calls" end
  return output, status
end

t.case("where the system refuses to bind threads, workers run unbound, and one line says so",
       function()
  for errno, reason in pairs {[1] = "Operation not permitted", [22] = "Invalid argument"} do
    local output, status = denied(errno, "$NNLUA -e 'print(nn.ones(3):sum():item())'")
    t.same(output, ("nnlua: warning: the system refuses to bind threads to cores (%s), so workers "
                    .. "may move between cores, which can be slower\n3\n"):format(reason))
    t.same(status, 0)
  end
  t.check(denied(22, "$NNLUA --health"):find "\n  %a+ +%d+ workers.-\nMemory")
end)

t.case("ranks where binding is refused divide the cores all the same", function()
  mpi.need()
  local output, status = denied(22, "$NNLUA --ranks 2 -e 'print(nn.workers())'")
  local _, alone = shell "$NNLUA -e 'print(nn.workers())'"
  t.same(status, 0, output)
  local workers = tonumber(output:match "\n(%d+)\t0\n" or output:match "^(%d+)\t0\n")
  t.check(workers and workers <= math.max(1, math.ceil(tonumber(alone:match "%d+") / 2)), output)
end)

t.case("an affinity mask of one core gives one worker, and is named", function()
  if shell "taskset -c 0 true" ~= 0 then t.skip "there is no taskset" end
  local status, output = shell("taskset -c 0 " .. count)
  t.same(status, 0, output)
  local _, all = shell(count)
  if all:find "^1\t" then t.skip "the machine has one core" end
  t.check(output:find "^1\t1\tthe affinity mask or cpuset of this process allows 1 of %d+ cores",
          output)
end)

-- Runs a command in a control group with this quota within one with that quota, in percent of a
-- core.
local function with_quotas(outer, inner, command)
  files.write(folder .. "/group.sh", ([[
    version=$([ -e /sys/fs/cgroup/cpu/cpu.cfs_period_us ] && echo 1 || echo 2)
    root=/sys/fs/cgroup; [ $version = 2 ] || root=$root/cpu
    group=$root/nnlua-cores-$$
    put() { if [ $version = 1 ]; then echo $(($2 * 1000)) >$1/cpu.cfs_quota_us
            else echo $(($2 * 1000)) 100000 >$1/cpu.max; fi; }
    exec 3>&2 2>/dev/null
    trap 'cat $group/inner/cgroup.procs | xargs -r -n 1 kill -9; echo $$ >$root/cgroup.procs
          rmdir $group/inner $group' EXIT
    mkdir $group || exit 77
    [ $version = 1 ] || echo +cpu >$group/cgroup.subtree_control || exit 77
    mkdir $group/inner && put $group %d && put $group/inner %d || exit 77
    sh -c 'echo $$ >'$group'/inner/cgroup.procs || exit 77; exec "$@"' sh %s 2>&3]]):format(
      outer, inner, command))
  local status, output = shell "sh group.sh"
  if status == 77 then t.skip "no control group with a quota can be made here" end
  t.same(status, 0, output)
  return output
end

t.case("the quota of a control group gives so many whole workers, and is named", function()
  local _, all = shell(count)
  local cores = tonumber(all:match "^(%d+)")
  if cores < 2 then t.skip "the machine has one core" end
  local why = "the quota of the control group allows %s of %d cores"
  local function expect(outer, inner, workers, quota)
    t.same(with_quotas(outer, inner, count),
           ("%d\t%d\t%s\n"):format(workers, workers, why:format(quota, cores)))
  end
  expect(150, 150, 1, "1.5")
  expect(100 * cores, 50, 1, "0.5")
  expect(100 * cores, 100, 1, "1")
  t.same(with_quotas(100 * cores, 100 * cores, count), all)
  files.write(folder .. "/in.txt", ("to be, or not to be. "):rep(60))
  local output = with_quotas(150, 150, "$NNLUA recipes/gpt2_train.lua data.text=in.txt steps=1 "
    .. "model.layers=1 model.heads=1 model.embd=16 model.context=16 model.dtype=f32 "
    .. "final_batches=1 sample.tokens=0")
  t.check(output:find("\n1 CPU worker: " .. why:format("1.5", cores) .. "\n", 1, true)
          or output:find("1 CPU worker: " .. why:format("1.5", cores), 1, true) == 1, output)
  t.check(with_quotas(150, 150, "$NNLUA --health 2>&1 || true"):find(
            "1 workers: " .. why:format("1.5", cores), 1, true))
end)

t.finish()
