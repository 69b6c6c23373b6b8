-- The memory that the system allows a process: resource limits, control groups, failed allocations.
-- Each case must give one error immediately; nothing hangs, and no process is killed.
-- MEMORY_LIMITS=long trains more and larger models in the memory that their plans state.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local function limited(limit, code)
  return t.shell(("ulimit %s; NNLUA_CPUS=2 timeout -k 1 60 $NNLUA -e '%s'"):format(limit, code))
end

t.case("a tensor beyond ulimit -v or ulimit -d is out of memory at once", function()
  for _, limit in ipairs {"-v 1500000", "-d 1500000"} do
    local status, output = limited(limit, "nn.zeros(1e9) nn.sync()")
    t.check(status == 1, output)
    t.check(output:find "out of memory: full's result .* of 4.0 GB does not fit", output)
    status, output = limited(limit, "local x = nn.ones(500, 500) print(x:matmul(x):sum():item())")
    t.same({status, output}, {0, "125000000\n"})
  end
end)

t.case("a limit that leaves no memory for tensors is refused with what to change", function()
  local status, output = limited("-v 400000", "nn.ones(3):sum():item()")
  t.check(status == 1, output)
  t.check(output:find("leave no memory for tensors with 2 workers; raise the limits, or start "
                      .. "fewer (NNLUA_CPUS)", 1, true), output)
end)

t.case("a budget beyond the memory of the process is refused", function()
  for _, bytes in ipairs {1e15, 1e30, -1, 0 / 0} do
    t.fails(function() nn.memory_budget(bytes) end, "memory")
  end
  local status, output = limited("-v 2000000", "print(pcall(nn.memory_budget, 3e9))")
  t.same(status, 0)
  t.check(output:find("memory budget: 3.0 GB; this process can use 2.0 GB at most", 1, true),
          output)
end)

t.case("the default budget counts the memory of tensors that exist as theirs", function()
  local before = nn.memory().budget
  local x = nn.ones(1000, 1000, 250)                       -- 1 GB
  nn.sync()
  nn.memory_budget(0)
  t.check(nn.memory().budget > before - 0.5e9, "less for tensors by the tensors themselves")
  t.same(x:at(1, 1, 1), 1)
end)

t.case("the default budget subtracts the rest of the process once, also with workers", function()
  local status, output = limited("-v 2500000", [[
    local before = nn.memory().budget
    local function lost()
      nn.memory_budget(0)
      local m = nn.memory()
      print(before - m.budget, m.budget - m.in_use - m.cached - m.available)
    end
    local x = nn.ones(500, 500)
    nn.sync()
    lost()
    print(x:matmul(x):sum():item())
    lost()]])
  t.check(status == 0, output)
  local count = 0
  for lost, between in output:gmatch "(%-?%d+)\t(%-?%d+)\n" do
    t.check(math.abs(lost) < 100e6 and math.abs(between) < 10e6, output)
    count = count + 1
  end
  t.same(count, 2)
end)

t.case("a default budget that was measured again follows the number of workers", function()
  local status, output = limited("-v 2500000", [[
    nn.memory_budget(0)
    local before = nn.memory().budget
    nn.devices {cpus = 1}
    print(nn.memory().budget - before)]])
  t.same(status, 0, output)
  t.check(tonumber(output) > 100e6, output)
end)

t.case("a limit that leaves no memory refuses budgets and plans with the same words", function()
  local status, output = limited("-v 400000", [[
    print(nn.memory().budget)
    print(pcall(nn.memory_budget, 0))
    print(pcall(nn.plan_step, function(batch)
      local layer, input = nn.Linear(10, 10), nn.zeros(batch, 10)
      return function() return layer(input):sum() end, {weights = layer, other = {input}}
    end))]])
  t.same(status, 0, output)
  local _, count = output:gsub("false\t[^\n]*leave no memory for tensors with 2 workers", "")
  t.check(output:find "^0\n" and count == 2, output)
end)

-- Lowers the limit of address space to what the process has and `room` bytes; nil: no limit.
local set_limit = [[
  local ffi = require "ffi"
  ffi.cdef "int prlimit(int pid, int resource, const unsigned long *now, unsigned long *before);"
  local function allow(room)
    local status = io.open "/proc/self/status":read "*a"
    local now = 1024 * tonumber(status:match "VmSize:%s*(%d+)") + (room or 1e12)
    assert(ffi.C.prlimit(0, 9, ffi.new("unsigned long[2]", now, -1), nil) == 0)
  end
]]

t.case("an allocation that the system refuses fails its op, and the program continues", function()
  local status, output = t.shell("NNLUA_CPUS=2 timeout -k 1 60 $NNLUA -e '" .. set_limit .. [[
    local x = nn.ones(300, 300)
    print(x:matmul(x):sum():item())
    allow(100e6)
    local f = nn.compile(function(a) return (a + nn.ones(1e8):sum()):sum() end)
    for _, make in ipairs {
      function() return nn.zeros(1e8) end,
      function() return f(x) end,
      function() return nn.zeros(1e8) * 2 end,
    } do
      local result
      print(pcall(function()
        result = make()
        nn.sync()
      end))
      print(pcall(function() return result:sum():item() end))
    end
    local y = nn.zeros(1e8)
    pcall(nn.sync)
    print("again", pcall(function() y:fill_(3) nn.sync() end))
    allow()
    y:fill_(3)
    print(y:sum():item(), f(x):item(), (x * 2):sum():item())']])
  t.check(status == 0, output)
  t.check(output:find "^27000000\n", output)
  local _, times = output:gsub("out of memory: the system cannot allocate", "")
  t.check(times >= 4, output)
  t.check(output:find("again\tfalse", 1, true), output)
  t.check(output:find "\n300000000\t[%d.e+]+\t180000\n$", output)
end)

t.case("host data that finds no memory is out of memory, and then fits again", function()
  local status, output = t.shell("NNLUA_CPUS=2 timeout -k 1 60 $NNLUA -e '" .. set_limit .. [[
    local data, from_host = ffi.new("float[?]", 3e7), nn.from_host
    for i = 0, 3e7 - 1 do data[i] = 1 end
    nn.ones(3):sum():item()
    allow(50e6)
    print(pcall(from_host, data, {3e7}, "f32"))
    allow()
    print(from_host(data, {3e7}, "f32"):sum():item())']])
  t.check(status == 0, output)
  t.check(output:find("out of memory: the system cannot allocate", 1, true), output)
  t.check(output:find "30000000\n$", output)
end)

t.case("a machine rate that no thread can measure is an error, not a negative rate", function()
  local status, output = t.shell("NNLUA_CPUS=6 timeout -k 1 60 $NNLUA -e '" .. set_limit .. [[
    print(nn.product_gflops(64) > 0)
    allow(2e6)
    local good, message = pcall(nn.product_gflops, 64)
    allow()
    print(good, message)
    print(nn.product_gflops(64) > 0)']])
  t.check(status == 0, output)
  t.check(output:find("true\nfalse\t[^\n]*no memory or thread to measure products of size 64"),
          output)
  t.check(output:find "true\n$", output)
end)

-- A new control group with a limit of so many MB, as a command that enters it; nil without rights.
local function group(mb)
  local status, output = t.shell(([[
    for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do
      group=$root/nnlua-test-$$
      mkdir $group 2>/dev/null || continue
      for limit in memory.limit_in_bytes memory.max; do
        [ -e $group/$limit ] && echo %d000000 >$group/$limit && echo $group && exit 0
      done
      rmdir $group
    done
    exit 1]]):format(mb))
  return status == 0 and output:match "%S+" or nil
end

t.case("a model in a control group trains or is refused, and is never killed", function()
  local folder = t.folder()
  files.write(folder .. "/train.lua", [[
    local nn = require "nn"
    local GPT2 = require "models.gpt2"
    local model = GPT2 {layers = 4, heads = 4, embd = 256, vocab = 2000, context = 128}
    local optim = nn.AdamW(model, {lr = 1e-3, clip = 1})
    local step = nn.compile(function(x, y)
      optim:zero_grad()
      local loss = model(x, y)
      loss:backward()
      return loss, optim:step()
    end)
    local ids = nn.uniform({16, 128}, {low = 0, high = 2000, axes = "batch,time"}):to("i32")
    for _ = 1, 5 do step(ids, ids):item() end
    print "trained"]])
  local trained, refused = 0, 0
  for _, mb in ipairs {100, 200, 220, 230, 240, 250, 260, 280, 400} do
    local name = group(mb)
    if not name then t.skip "no control group can be created here" end
    local status, output = t.shell(([[
      (echo $BASHPID >%s/cgroup.procs; NNLUA_CPUS=2 exec timeout -k 1 60 $NNLUA %s/train.lua)
      status=$?; rmdir %s; exit $status]]):format(name, folder, name))
    t.check(output:find(status == 0 and "trained" or "out of memory: ", 1, true),
            ("%d MB: status %s: %s"):format(mb, status, output))
    if status == 0 then trained = trained + 1 else refused = refused + 1 end
  end
  t.check(trained > 0 and refused > 0, trained .. " sizes are enough")
end)

local long = os.getenv "MEMORY_LIMITS" == "long"
local training = "data.text= eval_every=0 save_every=3 memory.disk=disk memory.disk_in_ram=true "
  .. (long and "model.layers=6 model.embd=256 model.dropout=0.1 memory.ram=25MB steps=20"
      or "model.layers=3 model.embd=192 data.context=32 memory.ram=8MB memory.plan_seconds=1 "
         .. "steps=4 final_batches=2 sample.tokens=40")

-- Runs the recipe in a control group of so many bytes, after a command -> its output.
local function train_within(bytes, settings, before)
  local folder = t.folder()
  local status, output = t.shell(([[
    cd %s; %s
    NNLUA_CPUS=2 timeout -k 1 %d %s/tests/limited %.0f $NNLUA %s/recipes/gpt2_train.lua %s %s
    status=$?; kill $busy 2>/dev/null; exit $status]]):format(folder, before or "",
    long and 1500 or 200, host.root, bytes, host.root, training, settings))
  if status == 77 then t.skip(output) end
  t.check(status == 0, ("%.0f bytes: %s"):format(bytes, output))
  return output
end

local function bytes_of(output, pattern)
  local number, unit = output:match(pattern)
  t.check(number, output)
  return tonumber(number) * (unit == "GB" and 1e9 or 1e6)
end

-- A training in exactly the RAM that its plan states. With so little memory, the plan measures no
-- tasks, whose operands would take more than the training.
local function keeps_its_promise(settings, before)
  local plan = train_within(200e6, settings .. " --plan")
  local limit = bytes_of(plan, "\nprocess +([%d.]+) (%a+) of RAM")
  local output = train_within(limit, settings .. " out=out", before)
  t.check(output:find "\nlimited: limit %d+, peak %d+, killed 0\n", output)
  local most = bytes_of(output, "\nmemory: at most ([%d.]+) (%a+) of RAM for the process")
  print(("  %s: %.0f MB stated, %.0f MB at most"):format(settings, limit / 1e6, most / 1e6))
  t.check(most <= 1.03 * limit, output)
end

for _, accum in ipairs {1, 8, 32} do
  for _, dtype in ipairs {"f32", "bf16"} do
    local settings = ("data.accum=%d model.dtype=%s"):format(accum, dtype)
    t.case(("%d microbatches in %s train in the RAM that their plan states"):format(accum, dtype),
           function() keeps_its_promise(settings) end)
  end
end

local busy_cores = [[
  export NNLUA_DELAYS=1
  for core in 1 2 3; do timeout 1500 sh -c "while :; do :; done" & busy="$busy $!"; done]]
t.case("delayed tasks and transfers and busy cores do not exceed the RAM of the plan", function()
  for _, accum in ipairs(long and {1, 8, 32} or {8}) do
    keeps_its_promise("model.dtype=f32 data.accum=" .. accum, busy_cores)
    if long then keeps_its_promise("model.dtype=bf16 data.accum=" .. accum, busy_cores) end
  end
end)

t.finish()
