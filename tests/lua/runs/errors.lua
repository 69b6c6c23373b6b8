-- Errors that end a training run: each names the checkpoint to resume from, and a checkpoint that
-- was begun before the error is completed if its values are good.
local files = require "nn.io.files"
local t = require "nn.test"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local training = require "training"

local run = training.new()

local function remains(out)
  local list = {}
  for _, name in ipairs(files.list(files.join(run.folder, out))) do
    if name:find "%.tmp$" or name:find "%.old$" then list[#list + 1] = name end
  end
  return list
end

-- Trains until kernel `call` fails -> the step that the error ended, the newest checkpoint's step.
local function train_until(call, out, settings)
  local command = "NNLUA_FAIL_KERNEL=%s ./train steps=1000 %s out=%s 2>&1"
  local status, output = run.shell(command:format(call, settings, out))
  t.same(status, 1, output)
  local error_text = output:match "\nnnlua: (.*)$"
  t.check(error_text and error_text:find("NNLUA_FAIL_KERNEL", 1, true), output)
  local newest = run.newest(out)
  local step = newest and newest.state.step or 0
  local expected = newest and ("The last checkpoint is %s/checkpoint-%06d"):format(out, step)
    or "No checkpoint was saved yet"
  t.check(error_text:find(expected, 1, true), error_text)
  t.check(not newest or error_text:find("o resume:\n  %S+ %S+ resume=" .. out .. "\n$"), error_text)
  t.same(remains(out), {})
  local events = run.events(out)
  t.same(events[#events].event, "error")
  t.check(error_text:find(("\nThe error came in step %d.\n"):format(events[#events].step), 1, true),
          error_text)
  return events[#events].step, step
end

t.case("a failed kernel loses no checkpoint that was begun, and the message names it", function()
  local calls = tonumber(os.getenv "FAIL_CALLS") or 6
  for i = 1, calls do
    local step = 3 + i                       -- the optimizer has 16 tasks in a step
    local _, saved = train_until(("adamw:%d"):format(16 * (step - 1) + 1 + 5 * i % 16), "step" .. i,
                                 "save_every=1 keep=3")
    t.same(saved, step - 1)
  end
end)

t.case("whichever kernel fails, the message names a checkpoint that loads", function()
  for _, kernel in ipairs {"gemm", "layernorm", "attention", "embedding"} do
    local failed, saved = train_until(kernel .. ":90", kernel, "save_every=1 keep=3")
    t.check(saved >= failed - 3, ("%s: step %d failed, %d is saved"):format(kernel, failed, saved))
  end
end)

t.case("an error before the first checkpoint says so", function()
  local _, step = train_until("gemm:150", "none", "save_every=0")
  t.same(step, 0)
end)

-- Code that makes the loop of a run raise an error in step 7.
local mistake = [[
  local nn = require "nn"
  local original = nn.run
  function nn.run(...)
    local run = original(...)
    local record = run.record
    function run.record(...)
      record(...)
      if run.step == 7 then error "my mistake" end
    end
    return run
  end
]]

t.case("an error in the user's own loop completes the checkpoint in progress", function()
  local own = training.new(mistake)
  local status, output = own.shell "./train steps=50 save_every=6 out=own"
  t.same(status, 1)
  t.check(output:find("my mistake", 1, true), output)
  t.check(output:find("The last checkpoint is own/checkpoint-000006; to resume:", 1, true), output)
  t.same(own.newest("own").state.step, 6)
  local command = output:match "to resume:\n  ([^\n]+)\n$"
  status, output = own.shell(command .. " steps=6")
  t.check(status == 0 and output:find("resumed after step 6", 1, true), output)
end)

t.case("an error says that the checkpoint in progress could not be completed", function()
  local own = training.new([[
    local nn, checkpoint = require "nn", require "nn.models.checkpoint"
    local start = checkpoint.start
    function checkpoint.start(...)
      local saving = start(...)
      if saving.state.step == 6 then function saving.finish() nn.fail "the disk is full" end end
      return saving
    end
  ]] .. mistake)
  for every, newest in pairs {[3] = "The last checkpoint is lost3/checkpoint-000003\nTo resume:\n ",
                              [6] = "No checkpoint was saved yet\n"} do
    local status, output = own.shell(("./train steps=50 save_every=%d out=lost%d"):format(every,
                                                                                         every))
    t.same(status, 1)
    t.check(output:find("my mistake", 1, true), output)
    t.check(output:find("The checkpoint in progress could not be completed: the disk is full. "
                        .. newest, 1, true), output)
  end
end)

t.case("a task that failed before the checkpoint's tiles were ready makes it invalid", function()
  -- The optimizer's tasks of step 3 fail: checkpoint 3 would mix values of steps 2 and 3.
  local steps = 3
  local _, saved = train_until("adamw:" .. (steps - 1) * 16 + 5, "mixed", "save_every=1 keep=9")
  local whole = run.shell "./train steps=3 save_every=1 keep=9 out=whole"
  t.same(whole, 0)
  for step = 1, saved do
    local name = ("/checkpoint-%06d/"):format(step)
    for _, file in ipairs {"model.safetensors", "optimizer.safetensors"} do
      local a = files.read(run.folder .. "/mixed" .. name .. file)
      t.check(a == files.read(run.folder .. "/whole" .. name .. file), name .. file)
    end
  end
end)

t.case("an error at the prompt ends the run: Ctrl-C works, and the checkpoint is named", function()
  local status, output = t.shell(([[
    cd %s; cat > in.lua <<'END'
cfg = nn.config({nn.run_fields {steps = 9, save_every = 2, out = "prompt"}}, {})
model = nn.Linear(2, 2)
run = nn.run(cfg)
run:track {model = model}
for n in run:steps() do run:record(nn.ones(1):sum()) if n == 3 then error "oh" end end
ffi = require "ffi"
ffi.cdef "int getpid(void); int kill(int process, int signal);"
ffi.C.kill(ffi.C.getpid(), 2) while true do end
print("at the prompt again")
END
    timeout 60 $NNLUA <in.lua]]):format(run.folder))
  t.same(status, 1)
  t.check(output:find("oh\n", 1, true), output)
  t.check(output:find("The last checkpoint is prompt/checkpoint-000002", 1, true), output)
  t.check(output:find("interrupted\nat the prompt again\n", 1, true), output)
end)

t.case("an error at the prompt after the loop leaves the run, and run:done ends it", function()
  local _, output = t.shell(([[
    cd %s; cat > left.lua <<'END'
cfg = nn.config({nn.run_fields {steps = 9, save_every = 2, out = "left"}}, {})
run = nn.run(cfg)
run:track {model = nn.Linear(2, 2)}
for n in run:steps() do run:record(nn.ones(1):sum()) if n == 5 then break end end
x = typo.y
ffi = require "ffi"
ffi.cdef "int getpid(void); int kill(int process, int signal);"
ffi.C.kill(ffi.C.getpid(), 2) while true do end
run:done {}
END
    timeout 60 $NNLUA <left.lua; cat left/metrics.jsonl]]):format(run.folder))
  t.check(output:find("typo", 1, true), output)
  t.check(output:find("\ninterrupted\n", 1, true), output)
  t.check(output:find("saved in left/checkpoint-000005", 1, true), output)
  t.check(not output:find("to resume", 1, true), output)
  t.check(output:find('"event":"done"', 1, true), output)
end)

t.finish()
