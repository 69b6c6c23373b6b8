-- Errors inside a task, an op or a compiled function: each is reported once, no wrong value can be
-- read, and parameters do not change.
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local function index_outside()
  return nn.tensor({9, 0, 0}, {dtype = "i64"}), nn.ones(3)
end

t.case("the result of a failed task cannot be read, nor what depends on it", function()
  local index, x = index_outside()
  local y = x:gather(index)
  t.fails(nn.sync, "gather: index 9 is outside [0,3)")
  t.fails(function() return y:table() end, "not computed, since a task before it failed")
  t.fails(function() return (y * 2):table() end, "not computed, since a task before it failed")
end)

t.case("tasks in flight fail only if they depend on a failed value", function()
  local index, x = index_outside()
  local f = nn.compile(function(a, b)
    local y = b:gather(a)
    return y, y * 2, b * 3
  end)
  local y, twice, other = f(index, x)
  t.fails(nn.sync, "gather: index 9 is outside [0,3)")
  t.fails(function() return y:table() end, "not computed")
  t.fails(function() return twice:table() end, "not computed")
  t.same(other, nn.ones(3) * 3)
end)

t.case("a failed tensor is valid again once it is written", function()
  local index, x = index_outside()
  local y = x:gather(index)
  t.fails(nn.sync, "outside")
  y:fill_(4)
  t.same(y:table(), {4, 4, 4})
end)

t.case("a step with a wrong token id changes no parameter, eager and compiled", function()
  nn.seed(1)
  local model = GPT2 {layers = 1, heads = 2, embd = 16, vocab = 20, context = 8}
  local optim = nn.AdamW(model, {lr = 1e-2, clip = 1})
  local function eager(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end
  local good, bad = nn.full({2, 8}, 3, {dtype = "i32"}), nn.full({2, 8}, 25, {dtype = "i32"})
  for _, step in ipairs {eager, nn.compile(eager)} do
    step(good, good):item()
    local before = {}
    for i, p in ipairs(model:parameters()) do before[i] = p.tensor:table() end
    -- the embedding and the loss both find the id, either first
    t.fails(function() step(bad, bad):item() end, "25 is outside the vocabulary of 20")
    for i, p in ipairs(model:parameters()) do t.same(p.tensor:table(), before[i]) end
    local first, last = step(good, good):item(), nil
    for _ = 1, 3 do last = step(good, good):item() end
    t.check(last < first, "training continues")
  end
end)

t.case("an op that fails half-way changes nothing", function()
  local x, weight = nn.ones(4, 1000), nn.ones(1000, 1000)
  local dweight, dbias = nn.zeros(1000, 1000), nn.zeros(1000)
  nn.sync()
  local op = require "nn.core.op"
  nn.memory_budget(nn.memory().tensors + 8000)
  local function backward() return op.call("linear_backward", x, weight, nn.ones(4, 1000), nil,
                                           dweight, dbias) end
  t.check(not pcall(backward), "it must not fit")
  nn.memory_budget(0)
  t.same(dbias:sum():item(), 0)
end)

t.case("a compiled function that changes an argument in place is refused", function()
  local function run(f) return function() return nn.compile(f)(nn.ones(3)) end end
  t.fails(run(function(a)
    a:fill_(7)
    return nn.ones(1)
  end), "fill_ changes an argument of the compiled function in place")
  t.fails(run(function(a)
    a:add_(1 + a)
    return a
  end), "add_ changes an argument of the compiled function in place")
end)

t.case("an nn.scalar that would become a constant in a compiled function is refused", function()
  local s = nn.scalar(2)
  t.fails(function() return nn.compile(function() return nn.arange(2, {start = s}) end)() end,
          "'start' cannot be an nn.scalar in a compiled function; give a number, with which the "
          .. "function is recorded again when it changes")
  t.same(nn.arange(2, {start = s}):table(), {2, 3})
end)

t.case("changing a tensor in place is refused while an argument needs a gradient", function()
  local x = nn.tensor({1, 2, 3}, {grad = true})
  local y = x * 2
  local text = "cannot change a tensor in place while an argument needs a gradient"
  t.fails(function() y:add_(x) end, text)
  t.fails(function() nn.zeros(3):copy_(y) end, text)
  nn.no_grad(function() x:add_(x) end)
  t.same(x:table(), {2, 4, 6})
end)

t.case("an injected failure is one error with op and tile, and the program continues", function()
  local status, output = t.shell [[NNLUA_FAIL_KERNEL=gemm:2 $NNLUA -e '
    local x = nn.ones(4, 5)
    local first = x:matmul(x:t()):sum():item()
    local good, message = pcall(function() return x:matmul(x:t()):table() end)
    local again = x:matmul(x:t()):sum():item()
    print(first, good, message, again)']]
  t.same(status, 0)
  t.check(output:find("^80\tfalse\t.*matmul: failed by NNLUA_FAIL_KERNEL %(kernel gemm, f32, "
                      .. "tile 1 of shape %(4,4%)%)\t80\n$"), output)
end)

t.case("an injected failure of an unknown kernel is refused", function()
  local status, output = t.shell [[NNLUA_FAIL_KERNEL=gem:2 $NNLUA -e 'nn.ones(3):sum():item()']]
  t.same(status, 1)
  t.check(output:find("NNLUA_FAIL_KERNEL is 'gem:2'; give a kernel's name", 1, true), output)
end)

local hang = [[NNLUA_WATCHDOG=1.5 NNLUA_FAIL_KERNEL=%s NNLUA_CPUS=2 timeout 60 $NNLUA -e '
  local x, w = nn.ones(4, 5), nn.ones(7)
  %s']]

t.case("a hung kernel is one error with op, tile and worker, and the program ends", function()
  local status, output = t.shell(hang:format("gemm:2:hang", [[
    x:matmul(x:t()):table()
    x:matmul(x:t()):table()]]))
  t.same(status, 1)
  t.check(output:find("^nnlua: [^\n]*a task hangs, or takes more than 1.5 s: matmul %(kernel gemm, "
                      .. "f32, tile 1 of shape %(4,4%)%) on CPU %d; NNLUA_WATCHDOG="),
          output)
  local _, times = output:gsub("a task hangs", "")
  t.same(times, 1)
end)

t.case("a hang is an error for every kind of wait, and os.exit ends the program too", function()
  for _, wait in ipairs {"nn.sync()", "y:item()", "print(pcall(nn.sync)); os.exit(3)"} do
    local status, output = t.shell(hang:format("reduce:1:hang", "local y = w:sum() " .. wait))
    t.same(status, wait:find "os.exit" and 3 or 1)
    local _, times = output:gsub("a task hangs", "")
    t.same(times, 1)
  end
end)

-- Calls a compiled function whose fourth product hangs.
local compiled_hang = hang:format("gemm:4:hang", [[
  local f = nn.compile(function(a) return a:matmul(a:t()):sum() end)
  local function calls() for i = 1, 6 do f(x):item() end end
  %s]])

t.case("a hang in a compiled function ends the program, its session and os.exit", function()
  local one = "calls()"
  for _, code in ipairs {
    one, "print(pcall(calls)); os.exit(3)", "print(pcall(calls))",
    "pcall(calls); f = nil; collectgarbage(); collectgarbage(); error 'over'",
  } do
    local status, output = t.shell(compiled_hang:format(code))
    t.same(status, code:find "os.exit" and 3 or 1, output)
    t.check(output:find(code:find "over" and "over" or "a task hangs, or takes more than 1.5 s: "
                        .. "matmul", 1, true), output)
  end
  local status, output = t.shell([[printf 'pcall(calls)\nf = nil collectgarbage()\nnn.sync()\n' |]]
    .. compiled_hang:format("_G.calls, _G.f = calls, f"):gsub("$NNLUA", "%0 -i"))
  t.same(status, 1, output)
  t.check(output:find("a task hangs", 1, true), output)
end)

t.case("without a watchdog, the first SIGINT ends a program with a hung kernel", function()
  for _, code in ipairs {
    "nn.compile(function(a) return a:matmul(a:t()):sum() end)(x):item()",
    "f = nn.compile(function(a) return a:matmul(a:t()):sum() end) f(x)",
    "x:matmul(x:t()):table()", "x:matmul(x:t())",
  } do
    local status, output = t.shell(([[
      log=$(mktemp)
      NNLUA_WATCHDOG=0 NNLUA_FAIL_KERNEL=gemm:1:hang $NNLUA -e '
        local x = nn.ones(4, 5); io.stderr:write "started\n"; %s' 2>$log & pid=$!
      for i in $(seq 1200); do grep -q started $log && break; sleep 0.05; done
      sleep 0.5; kill -INT $pid
      (sleep 30; kill -9 $pid) >/dev/null 2>&1 & killer=$!
      wait $pid; status=$?; kill $killer; cat $log; rm $log; exit $status]]):format(code))
    t.same(status, 130, output)
  end
end)

t.case("a slow task is reported, and then the program continues", function()
  local status, output = t.shell(hang:format("reduce:1:4", [[
    local y = w:sum()
    local good, message = pcall(nn.sync)
    print(good, tostring(message):match "reduce, f32")
    while not pcall(nn.sync) do end
    print(y:item())]]))
  t.same(status, 0)
  t.same(output, "false\treduce, f32\n7\n")
end)

t.case("tasks below the limit are not reported, however many wait", function()
  local status, output = t.shell(hang:format("reduce:1:0.3", [[
    local y, start = w:sum(), nn.now()
    repeat w = w + 0 until nn.now() - start > 3
    print(y:item(), w:sum():item())]]))
  t.same(status, 0)
  t.same(output, "7\t7\n")
end)

t.case("an invalid NNLUA_WATCHDOG is refused", function()
  local status, output = t.shell [[NNLUA_WATCHDOG=soon $NNLUA -e 'nn.ones(3):sum():item()']]
  t.same(status, 1)
  t.check(output:find("NNLUA_WATCHDOG is 'soon'; a number of seconds is needed", 1, true), output)
end)

t.case("the program waits for running tasks at its end, and reports their errors", function()
  local status, output = t.shell(
    [[$NNLUA -e 'local y = nn.zeros(3):gather(nn.tensor({9}, {dtype = "i64"}))']])
  t.same(status, 1)
  t.check(output:find("gather: index 9 is outside", 1, true), output)
end)

t.case("a program ends when the reader of its output is gone", function()
  local _, output = t.shell [[
    timeout 20 $NNLUA -e 'for i = 1, 1e9 do print(i) end' | head -1; echo ${PIPESTATUS[0]}]]
  t.same(output, "1\n141\n")
end)

t.finish()
