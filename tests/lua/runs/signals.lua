-- Signals to a training run: which ones save and end it, save and continue it, or kill it.
local ffi = require "ffi"
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local training = require "training"

local run = training.new()
local shell = run.shell

-- `output` says that a run was stopped by signal `number` and saved in `out`; its checkpoint loads.
local function check_stopped(output, out, number)
  t.check(output:find("ended with " .. 128 + number .. "\n", 1, true), output)
  local step = output:match("\nnnlua: stopped after step (%d+), which is saved in " .. out .. "/")
  t.check(step, output)
  t.same(run.newest(out).state.step, tonumber(step))
  return tonumber(step)
end

t.case("every signal that asks a program to end saves the run first", function()
  local numbers = {HUP = 1, INT = 2, ALRM = 14, TERM = 15, STKFLT = 16, XCPU = 24, VTALRM = 26,
                   PROF = 27, IO = 29, PWR = 30, RTMIN = 34, RTMAX = 64}
  for name, number in pairs(numbers) do
    local _, output = shell(([[
      (train steps=100000 save_every=0 out=%s) >%s.log 2>&1 &
      await %s/metrics.jsonl '"step":2'; kill -%s $!; await_end $!
      echo "ended with $?"; cat %s.log]]):format(name, name, name, name, name))
    t.check(check_stopped(output, name, number) >= 2, output)
  end
end)

-- The third step waits for a file, which SIGTERM may not outlast.
local function give_up(options)
  files.write(run.folder .. "/wait.lua", [[
    local nn, files = require "nn", require "nn.io.files"
    local run = nn.run(nn.config({nn.run_fields {steps = 4, save_every = 1, out = "wait"}}, arg))
    local model = nn.Linear(4, 4)
    run:track {model = model}
    for n in run:steps() do
      if n == 3 then
        io.stderr:write "waiting\n"
        while not files.exists "go" do end
      end
      run:record(model(nn.ones(2, 4)):sum())
    end
    run:done {}
  ]])
  local _, output = shell(([[
    rm -rf wait wait.log go; NNLUA_GRACE=0.5 %s %s wait.lua >wait.log 2>&1 & process=$!
    await wait.log waiting; kill -TERM $process; await_end $process; echo "ended with $?"
    find wait -name '*lock*' -o -name '*.tmp*'; cat wait.log; touch go
    %s wait.lua resume=auto 2>&1]]):format(t.program(), options, t.program()))
  t.check(output:find "ended with 143\n", output)
  t.check(not output:find "143\nwait/", output)
  t.check(output:find "step did not end within 0.5 s of SIGTERM and is given up %(NNLUA_GRACE=",
          output)
  t.check(output:find "resumed after step %d from wait/checkpoint%-", output)
  t.check(output:find "\ndone after", output)
  return output
end

t.case("a step that has not ended some time after SIGTERM is given up", function()
  local output = give_up ""
  t.check(output:find "are lost: %d+%. The last checkpoint is wait/checkpoint%-0+1;", output)
end)

t.case("so is a step of several ranks", function()
  local missing = require "mpi".missing()
  if missing then t.skip(missing) end
  give_up "--ranks 2"
end)

t.case("NNLUA_GRACE that is no number is an error", function()
  local status, output = t.shell "NNLUA_GRACE=soon $NNLUA -e 'print(1)' 2>&1"
  t.check(status == 1 and output:find "NNLUA_GRACE is 'soon'; a number of seconds is", output)
end)

t.case("a run that a signal kills at once keeps its checkpoints", function()
  for _, name in ipairs {"QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "SEGV", "SYS"} do
    local _, output = shell(([[
      (train steps=100000 save_every=1 out=%s) >%s.log 2>&1 &
      await %s/metrics.jsonl 'checkpoint-000002'; kill -%s $!; await_end $!; echo "ended with $?"
      ./train steps=100000 stop_at=100 eval_every=1 resume=auto out=%s]]):format(name, name, name,
                                                                               name, name))
    local status = tonumber(output:match "ended with (%d+)\n")
    t.check(status and status > 128, name .. ": " .. output)
    t.check(tonumber(output:match "resumed after step (%d+) from") >= 2, output)
    t.check(output:find("\ndone after", 1, true), output)
  end
end)

t.case("SIGUSR1 and SIGUSR2 save a checkpoint, and the run continues", function()
  for _, name in ipairs {"USR1", "USR2"} do
    local _, output = shell(([[
      (train steps=100000 save_every=0 out=%s) >%s.log 2>&1 & process=$!
      await %s/metrics.jsonl '"step":2'; kill -%s $process; await %s.log 'the run continues'
      steps=$(grep -c . %s/metrics.jsonl)
      for i in $(seq 300); do
        [ $(grep -c . %s/metrics.jsonl) -gt $steps ] && echo "it trains" && break; sleep 0.1
      done
      kill -KILL $process; await_end $process; cat %s.log]]):format(name, name, name, name, name,
                                                                  name, name, name))
    local step = output:match("saved step (%d+) in " .. name .. "/checkpoint")
    t.check(output:find("it trains", 1, true) and step, output)
    t.same(run.newest(name).state.step, tonumber(step))
  end
  t.same({t.shell [[$NNLUA -e 'os.execute "kill -USR1 $PPID; kill -USR2 $PPID" print "alive"']]},
         {0, "alive\n"})
end)

t.case("SIGUSR1 before a run saves nothing", function()
  local status, output = shell [[$NNLUA -e '
    os.execute "kill -USR1 $PPID"
    local run = nn.run(nn.config({nn.run_fields {steps = 2, save_every = 0, out = "before"}}, {}))
    run:track {model = nn.Linear(2, 2)}
    for _ in run:steps() do run:record(nn.ones(1):sum()) end
    run:done {}']]
  t.check(status == 0 and not output:find "after a signal", output)
  t.same(run.newest("before").state.step, 2)
end)

t.case("timeout, which sends its signal twice, saves the run", function()
  for i = 1, 4 do
    local _, output = shell(([[
      (exec timeout -s TERM 100 ./train steps=100000 save_every=0 out=timeout%d) >log 2>&1 &
      await timeout%d/metrics.jsonl '"step":2'; kill -TERM $!; await_end $!
      echo "ended with $?"; cat log]]):format(i, i))
    check_stopped(output, "timeout" .. i, 15)
  end
end)

-- slow(seconds) -> a run whose first step takes as long.
local function slow(seconds)
  return ("NNLUA_FAIL_KERNEL=gemm:5:%d train steps=1000 save_every=0"):format(seconds)
end

t.case("signals within a second of the first one count as the same", function()
  local _, output = shell(([[
    (%s out=moment) >moment.log 2>&1 &
    await moment/metrics.jsonl start; kill -TERM $!; kill -HUP $!; kill -TERM $!
    await_end $!; echo "ended with $?"; cat moment.log]]):format(slow(4)))
  -- the system may deliver SIGHUP first
  check_stopped(output, "moment", output:find "ended with 129\n" and 1 or 15)
end)

t.case("a second Ctrl-C after a second ends the program at once", function()
  local _, output = shell(([[
    (%s out=twice) >twice.log 2>&1 &
    await twice/metrics.jsonl start; kill -INT $!; await twice.log "finishing this step"
    sleep 1.1; kill -INT $!; await_end $!; echo "ended with $?"; ls twice]]):format(slow(60)))
  t.check(output:find("ended with 130\n", 1, true), output)
  t.check(not output:find "checkpoint" and not output:find "lock", output)
end)

t.case("a signal that the parent ignores, as nohup does with SIGHUP, stays ignored", function()
  local _, output = shell [[
    (exec env --ignore-signal=HUP ./train steps=100000 save_every=0 out=nohup) >nohup.log 2>&1 &
    await nohup/metrics.jsonl '"step":2'; kill -HUP $!; sleep 0.3
    kill -0 $! && echo "it trains"; kill -TERM $!; await_end $!; echo "ended with $?"
    cat nohup.log]]
  t.check(output:find("it trains", 1, true), output)
  check_stopped(output, "nohup", 15)
end)

t.case("a signal while the first report is written stops the run", function()
  local early = training.new [[
    local ffi, report = require "ffi", require "nn.train.report"
    ffi.cdef "int getpid(void); int kill(int process, int signal);"
    local write = report.write
    function report.write(...)
      report.write = write
      ffi.C.kill(ffi.C.getpid(), 15)
      return write(...)
    end
  ]]
  local status, output = early.shell "timeout 60 ./train steps=100000 out=early"
  t.same(status, 143, output)
  t.check(output:find("stopped after step 1, which is saved in early/", 1, true), output)
  t.same(early.newest("early").state.step, 1)
end)

t.case("a signal that may raise an error while a report is written is not swallowed", function()
  local log, report = require "nn.train.log", require "nn.train.report"
  ffi.cdef "int getpid(void); int kill(int process, int signal);"
  local write = report.write
  function report.write()
    ffi.C.kill(ffi.C.getpid(), 15)
    nn.sync()
  end
  local folder = t.folder()
  t.fails(function() log.new(folder):event("start", {step = 0}) end, "interrupted")
  report.write = write
  t.check(files.exists(files.join(folder, "metrics.jsonl")), "the event was written before")
end)

t.case("SIGHUP ends an interactive session", function()
  local _, output = t.shell [[
    printf '%s\n' 'os.execute "kill -HUP $PPID"' 'print "still here"' |
      env --default-signal $NNLUA -i; echo "ended with $?"]]
  t.check(output:find("ended with 129\n", 1, true) and not output:find("still", 1, true), output)
end)

t.case("a program gets the same signal twice at once, and its output is not lost", function()
  local _, output
  for _attempt = 1, 5 do                 -- the second signal may be late on a busy machine
    _, output = t.shell [[
      timeout 60 $NNLUA -e 'io.write "kept "
        os.execute "kill -TERM $PPID; sleep 0.02; kill -TERM $PPID"
        while true do nn.zeros(2) end' 2>&1 | cat; echo "ended with ${PIPESTATUS[0]}"]]
    if output:find "^kept " then break end
  end
  t.check(output:find "^kept " and output:find("ended with 143\n", 1, true), output)
end)

t.case("an error after a signal that the script has handled has status 1", function()
  local script = [[
    local caught = pcall(function()
      os.execute "kill -TERM $PPID"
      while true do nn.zeros(2) end
    end)
    print(caught)
    %s
    error "later"]]
  for clear, expected in pairs {["nn.clear_interrupt()"] = 1, [""] = 143} do
    local status, output = t.shell(("timeout 60 $NNLUA -e '%s'"):format(
      script:format(clear)))
    t.check(output:find("false\n", 1, true) and output:find("later", 1, true), output)
    t.same(status, expected)
  end
end)

t.case("a signal before the first step leaves no lock and no empty folder", function()
  local folder = t.folder()
  for _, last in ipairs {"while true do nn.zeros(2) end", "os.exit(3)"} do
    local status, output = t.shell(([[cd %s; timeout 60 $NNLUA -e '
      local locks, files = require "nn.io.lock", require "nn.io.files"
      locks.lock("run.lock")
      if "%s" ~= "os.exit(3)" then os.execute "kill -TERM $PPID" end
      %s']]):format(folder, last, last))
    t.same(status, last == "os.exit(3)" and 3 or 143, output)
    t.check(not files.exists(folder .. "/run.lock"), "the lock is released")
  end
end)

t.case("what catches errors raises that of a stop signal again", function()
  local lib = require "nn.base.capi"
  for _, catch in ipairs {lib.attempt, lib.protected} do
    t.same({catch(function(x) return x end, 7)}, {true, 7})
    local good, problem = catch(lib.fail, "%d is too many", 7)
    t.check(not good and problem:find "7 is too many", tostring(problem))
    t.fails(function() catch(error, "train.lua:3: interrupted", 0) end, "interrupted")
  end
end)

-- What remains of these files after a process with this end and these options.
local function remaining(options, last)
  local folder = t.folder()
  files.write(folder .. "/script.lua", [[
    local files, temporary = require "nn.io.files", require "nn.io.temporary"
    local first = require "nn.base.cluster".is_first()
    if first then
      for _, name in ipairs {"empty", "full"} do
        files.make_folder(name)
        temporary.claim(name)
      end
      for _, name in ipairs {"empty/lock", "kept"} do
        files.write(name, "text")
        temporary.claim(name)
      end
      temporary.keep "kept"
      files.write("full/other", "text")
    end
  ]] .. last)
  local status, output = t.shell(("cd %s; timeout 60 $NNLUA %s script.lua 2>&1"):format(folder,
                                                                                     options))
  files.remove(folder .. "/script.lua")
  return files.list(folder), status, output
end

t.case("a process that ends at once removes its claimed files", function()
  for number, last in pairs {
    [3] = "os.exit(3)", [1] = "error 'end'",
    [4] = [[local ffi = require "ffi"             -- as `cd` at the prompt
            ffi.cdef "int chdir(const char *path);"
            ffi.C.chdir "/"
            os.exit(4)]],
    [143] = [[require "nn.host".end_at_once(true)
              os.execute "kill -TERM $PPID"
              while true do end]]} do
    local names, status, output = remaining("", last)
    t.same({status, names}, {number, {"full", "kept"}}, output)
  end
end)

t.case("so does a rank that another one ends by its error", function()
  local missing = require "mpi".missing()
  if missing then t.skip(missing) end
  local names, status, output = remaining("--ranks 2", [[
    while first or not files.exists "full/other" do end
    error("this rank ends", 0)
  ]])
  t.check(status ~= 0 and output:find "this rank ends", output)
  t.same(names, {"full", "kept"})
end)

t.finish()
