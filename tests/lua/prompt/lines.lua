-- The prompt with input from a pipe: continued lines, locals, errors, help, the exit status.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"

local input = t.folder() .. "/lines"
-- What a session prints for these lines, errors included, and its exit status.
local function session(...)
  files.write(input, table.concat({...}, "\n") .. "\n")
  local status, output = t.shell("$NNLUA < " .. input)
  return output, status
end

t.case("an expression or a block continues in the next line", function()
  t.same(session("1 +", "2"), "3\n")
  t.same(session("x =", "3", "x"), "3\n")
  t.same(session("for i = 1, 2 do", "  print(i)", "end"), "1\n2\n")
end)

t.case("locals outside blocks persist, with and without a value", function()
  t.same(session("local z", "z == nil", "z = 4", "z"), "true\n4\n")
  t.same(session("local a, b;", "b == nil", "local n = nil", "n == nil", "local s = 'x'", "s"),
         'true\ntrue\n"x"\n')
  t.same(session("local function g() return 1 end", "g()"), "1\n")
end)

t.case("an error shows the user's lines only, and ends piped input with status 1", function()
  local output, status = session('error("x")', "7")
  t.same({output, status}, {"error: x\n7\n", 1})      -- stdout waits in its buffer
  t.same(session "error {3, k = 1}", "error: error value: {3, k = 1}\n")
  t.same(session "nn.zeros(2):dim(3)",
         "error: dim: there is no axis 3; axes are 1 to 1, or -1 to -1 from the end\n")
  t.same({session "7"}, {"7\n", 0})
  t.same(select(2, session ")"), 1)
end)

t.case("a failed task is reported at its own line, and the session continues", function()
  t.same(session("y = nn.zeros(3):gather(nn.tensor({9}, {dtype = 'i64'}))", "1 + 1"),
         "error: gather: index 9 is outside [0,3) (kernel gather, f32, tile 1 of shape (1))\n2\n")
end)

t.case("input may end in an expression, on one line or several", function()
  t.same(session("local q = 7; q + 1"), "8\n")
  t.same(session("x = 3 -- why", "x -- so;", "(x)"), "3\n3\n")
  t.same(session("x = 5; -- silent", "x;", "ans"), "5\n")
  t.same(session("x = nn.ones(2); x:sum()", "ans:item()"), "scalar tensor f32  2.0000\n2\n")
  t.same(session("x = 1; x = x + 1; tostring(x);", "f = print; f(x); x; x"), "2\n2\n")
  t.same(session("local a = 4; local b = {", "a}; (b[1])"), "4\n")
  t.same(session("if true then local hidden = 1 end", "y = 1; local z = y; return z"), "1\n")
end)

t.case("typed names are globals; unknown ones are an error in typed code only", function()
  t.same(session("g = 4", "loadstring('return g')()", "rawget(_G, 'g')"), "4\n4\n")
  t.same(session("loadstring('return never_set')() == nil"), "true\n")
  t.same(session("gg = 1", "g = 1", "print(gf)"),
         "error: nn>:1: there is no variable 'gf'; did you mean 'g'?\n")
end)

t.case("an invalid expression reports its error as an expression", function()
  t.same(session "1 +* 2", "error: nn>:1: unexpected symbol near '*'\n")
end)

t.case("%time prints the value, then the time until all tasks are done", function()
  local output = session "%time nn.ones(3):sum()"
  t.check(output:find "^scalar tensor f32  3.0000\n[%d.]+ m?u?s, 2 tasks, memory of tensors: ",
          output)
  t.same(session "%time", "error: usage: %time CODE\n")
  t.same(session "%tme 1",
         "error: unknown command %tme; did you mean '%time'? (%help lists them)\n")
  t.same(session("%time error 'x'"), "error: x\n")
end)

t.case("a command followed by code continues in the next line", function()
  t.check(session("%time (function()", "  return 5", "end)()"):find "^5\n[%d.]+ ")
end)

t.case("%profile lists the ops that code runs, %tasks the kernels", function()
  local output = session "%profile nn.ones(64, 64):matmul(nn.ones(64, 64)):at(1, 1)"
  t.check(output:find "^64\n", output)
  t.check(output:find "\nmatmul +1 +", output)
  t.check(output:find "\nfull +2 +", output)
  t.check(output:find "\nnothing submitted +", output)
  t.check(output:find "workers?, busy: CPU 0 %d+%%", output)
  output = session("for i = 1, 5 do nn.zeros(2) end", "%tasks nn.zeros(2) + 1; nn.zeros(3)",
                   "%tasks")
  t.check(output:find "\n +2  fill +mean", output)
  t.check(output:find "\n +3  tasks, 0 of them recorded\n", output)
  t.check(output:find "\n8 tasks so far, 0 unfinished; workers: %d+ CPU, %d+ GPU\n$", output)
end)

t.case("%memory lists tensors by size under the names that lead to them", function()
  local output = session(
    "w = nn.zeros(1000, 1000)", "box = {deep = {small = nn.ones(10)}}",
    "model = nn.Linear(100, 50)", "adam = nn.AdamW(model)", "f = function() return w, hidden end",
    "do local held = nn.ones(5000); function keep() return held end end",
    "x = nn.ones({4}, {grad = true}); (x * x):sum():backward()", "e = nn.empty(123)", "%memory")
  local function row(pattern)
    t.check(output:find("\n +" .. pattern), pattern .. " in\n" .. output)
  end
  t.check(output:find "4.0 MB +f32 %(1000,1000%) +RAM +w\n", output)
  row "40 B +f32 %(10%) +RAM +box.deep.small\n"
  row "20 kB +f32 %(50,100%) +RAM +model.weight\n"
  row "20 kB +f32 %(5000%) +RAM +keep %-> held\n"
  row "16 B +f32 %(4%) +RAM +x.grad\n"
  row "492 B +f32 %(123%) +not computed +e\n"
  t.check(output:find "in use of a budget of", output)
  t.check(not output:find("(1000,1000).*(1000,1000)"), output)
  t.check(session("a = nn.ones(3)", "b = nn.ones(2)", "%memory 1"):find "\n +8 B +in 1 more\n")
end)

t.case("%who lists variables, %help the commands", function()
  t.same(session("a = {1, 2}", "%who"), "a                {1, 2}\n")
  local help = session "%help"
  for _, name in ipairs {"%time CODE", "%memory", "%tasks", "%profile CODE", "%who"} do
    t.check(help:find(name, 1, true), help)
  end
  t.check(session "?%time":find("%time CODE: runs CODE", 1, true))
end)

t.case("exit, quit and help do what other prompts do, unless they are variables", function()
  for line, expected in pairs {["exit"] = 0, ["quit() ;"] = 0, ["exit(3)"] = 3} do
    t.same({session(line, "print 'still here'")}, {"", expected})
  end
  local lines = {"exit = 4; exit", "quit = {5}; quit[1]"}
  for _, line in ipairs {"help", "?", "help()", "help(nn.softmax)", "?nn.softmax", "help 'AdamW'",
                         "help AdamW", "?AdamW", "help = {6}", "help[1]"} do
    lines[#lines + 1] = line
    lines[#lines + 1] = "print '---'"
  end
  local parts = {}
  for part in session(unpack(lines)):gmatch "(.-)%-%-%-\n" do parts[#parts + 1] = part end
  local tour = parts[2]
  t.check(tour:find "^Values print themselves", tour)
  t.same({parts[1], parts[3]}, {"4\n5\n" .. tour, tour})
  t.check(parts[4]:find "^softmax%(x, " and parts[6]:find "^nn.AdamW%(", parts[4] .. parts[6])
  t.same({parts[4], parts[6], parts[7]}, {parts[5], parts[8], parts[8]})
  t.same(parts[10], "6\n")
end)

t.case("%timeit runs code until its time is certain, %run a script, %history needs a terminal",
function()
  local output = session("n = 0", "%timeit n = n + 1; nn.ones(2):sum()", "n > 7")
  t.check(output:find "^[%d.]+ m?u?s, the median of 7 rounds of [%d,]+ runs?; from .*\ntrue\n$",
          output)
  t.same(session "%timeit )", "error: nn>:1: unexpected symbol near ')'\n")
  local script = t.folder() .. "/a script.lua"
  files.write(script, "made = {arg[0]:match '[^/]*$', #arg, ...}\nif ... == 'fail' then f() end")
  t.same(session(("%%run '%s' 'two words' b=1"):format(script), "made", "arg[0] == nil"),
         '{"a script.lua", 2, "two words", "b=1"}\ntrue\n')
  t.check(session(("%%run '%s' fail"):format(script)):find "a script.lua:2: attempt to call")
  t.check(session "%run nothing.lua":find "^error: cannot open")
  t.same(session "%run", "error: usage: %run FILE [ARGUMENTS]\n")
  t.same(session "%history", "error: no history: input is not a terminal\n")
end)

t.case("; runs a shell command, and cd stays", function()
  local folder = t.folder()
  t.same(session(";cd " .. folder, ";cd /", ";cd -", ";cd -"), folder .. "\n/\n")
  t.same(session ";cd -", "error: cd -: there was no cd before\n")
  t.same(session(";echo hi"), "hi\n")
  t.same(session(";cd " .. folder, ";pwd"), folder .. "\n")
  t.same(session ";cd /nowhere", "error: there is no folder /nowhere\n")
end)

t.case("-i keeps the globals of the script", function()
  local path = t.folder() .. "/script.lua"
  files.write(path, "made = 5; function double() return made * 2 end")
  files.write(input, "double();\n%who\n")
  local status, output = t.shell(("$NNLUA -i %s < %s"):format(path, input))
  t.same(status, 0)
  t.same(output, "ans              10\ndouble           function() at " .. path
                 .. ":1\nmade             5\n")
end)

-- A shell command up to Python code that follows. The code has a session in a terminal, and
-- wait(text, keys, seconds), which types keys and returns whether the text appears.
local in_terminal = [[
    python3 - <<'END'
import os, pty, select, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "dumb"
    os.execv(os.environ["NNLUA"], ["nnlua"])
def wait(text, more, seconds=20):
    os.write(terminal, more)
    seen, end = b"", time.time() + seconds
    while text not in seen and time.time() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096)
    return text in seen
]]

t.case("Ctrl-C at the prompt drops the line and nothing else", function()
  if t.shell "command -v python3 >/dev/null" ~= 0 then t.skip "there is no python3" end
  local _, output = t.shell(in_terminal .. [[
for text, more in [(b"nn> ", b""), (b"\r\nnn> ", b"abc\x03"), (b"  > ", b"for i = 1, 2 do\r"),
                   (b"\r\nnn> ", b"\x03"), (b"42\r\n", b"6 * 7\r")]:
    print(wait(text, more))
os.write(terminal, b"\x04")
END]])
  t.same(output, ("True\n"):rep(5))
end)

t.case("a loop with pcall ends after two Ctrl-C, and the session goes on", function()
  if t.shell "command -v python3 >/dev/null" ~= 0 then t.skip "there is no python3" end
  local _, output = t.shell(in_terminal .. [[
wait(b"nn> ", b"")
endless = b"while true do end"
inner = b"while true do pcall(function() " + endless + b" end) end"
for loop in [inner, b"while true do pcall(function() " + inner + b" end) end",
             b"while true do xpcall(function() " + endless + b" end, tostring) end",
             b"while true do pcall(nn.no_grad, function() " + endless + b" end) end",
             b"coroutine.wrap(function() " + inner + b" end)()"]:
    wait(b"ready", b"print('rea' .. 'dy') " + loop + b"\r")
    stopped = wait(b"interrupted\r\nnn> ", b"\x03", 2) or wait(b"interrupted\r\nnn> ", b"\x03")
    print(stopped, wait(b"\r\n42\ttrue", b"print(6 * 7, nn.grad_enabled())\r"))
os.write(terminal, b"\x04")
END]])
  t.same(output, ("True True\n"):rep(5))
end)

t.case("# of a tensor is refused with the name and what to write", function()
  local _, output = t.shell [[
    $NNLUA <<'END' 2>&1
x = nn.ones(2, 3); t = {a = {x}}
#x
for i = 1, #t.a[1] do print(i) end
#x.shape, #t.a, #"x"
END]]
  t.same(output, [[
error: #x: Lua's # is 0 for every tensor; x:dim(1) is the number of rows, ]]
    .. [[x:count() the number of elements
error: #t.a[1]: Lua's # is 0 for every tensor; t.a[1]:dim(1) is the number of rows, ]]
    .. [[t.a[1]:count() the number of elements
2
1
1
]])
end)

t.case("an error inside no_grad, scope or compile shows its own line", function()
  local path = t.folder() .. "/mistake.lua"
  files.write(path, [[local nn = require "nn"
    local function inner(z)
      return z.field.more
    end
    local how = ...
    if how == "no_grad" then nn.no_grad(function() inner {} end) end
    if how == "scope" then nn.scope(function() inner {} end) end
    if how == "compile" then nn.compile(function(x) inner {} end)(nn.zeros(1)) end]])
  for line, how in pairs {[6] = "no_grad", [7] = "scope", [8] = "compile"} do
    local status, output = t.shell(("$NNLUA %s %s"):format(path, how))
    t.same(status, 1)
    t.check(output:find "mistake.lua:3: attempt to index field 'field'", output)
    t.check(output:find("mistake.lua:3: in function 'inner'", 1, true), output)
    t.check(output:find(("mistake.lua:%d: in main chunk"):format(line), 1, true), output)
    t.check(not output:find "builtin", output)
  end
  t.same(select(2, pcall(nn.no_grad, error, {5})), {5})
end)

t.case("names and syntax of other prompts get advice", function()
  t.same(session "print(exit)", "error: nn>:1: there is no variable 'exit'; Ctrl-D leaves\n")
  t.check(session "x = help":find("'help'; ? shows an overview", 1, true))
  t.same(session("tall = nn.ones(3)", "?tall"),
         "tall is 3 tensor f32; Tab after tall: lists its methods, such as x:abs\n")
  t.check(session "nn.ones(2) > 1":find("methods compare the elements of a tensor", 1, true))
  t.same(session "?q", "there is no help on 'q'\n")
  t.same(session "print(None)", "error: nn>:1: there is no variable 'None'; it is nil\n")
  for code, advice in pairs {
    ["q = 1; q != 2"] = "'not equal' is ~=", ["q += 1"] = "write x = x + 1",
    ["import torch"] = "load modules with local m = require",
    ["q = nn.tensor([1, 2])"] = "lists are in braces: {1, 2}",
    ["q[1:2]"] = "slice a tensor with x:slice(axis, first, last)",
  } do
    t.check(session(code):find(advice, 1, true), code .. ": " .. session(code))
  end
  t.same(session "1 +* 2", "error: nn>:1: unexpected symbol near '*'\n")
end)

t.case("? knows ops, functions, layers, methods and models; ?? searches them", function()
  local function has(line, text)
    local output = session(line)
    t.check(output:find(text, 1, true), ("%s prints %s, not %s"):format(line, output, text))
  end
  has("?softmax", "softmax(x, {axis=-1}) -> y\n")
  has("?softmax", "(engine/ops/softmax.cc:")
  has("?gelu", "(kernels/pointwise.inc:")
  has("?nn.compile", "nn.compile(f, {programs=32}) -> a function of tensors that returns tensors.")
  has("?AdamW", "nn.AdamW(model, {lr=1e-3")
  has("?Linear", "nn.Linear(inputs, outputs, {bias=true")
  has("?x:dim", "x:dim(axis) -> the size of an axis")
  has("?GPT2", "GPT2{layers, heads, embd")
  has("?flops_per_token", "FLOPs per token")
  has("?data.accum", "data.accum=1  microbatches per step\n  a setting of recipes/")
  has("?optim.clip", "optim.clip=1  largest gradient norm; 0: no clipping")
  has("??fine-tune", "recipes/gpt2_train.lua: Trains GPT-2 on a text")
  has("??show_curve", "log:show_curve(name): draws a series")
  has("??perplexity", "recipes/gpt2_eval.lua: Loss and perplexity")
  has("?compil", "there is no help on 'compil'; did you mean 'compile'?")
  has("??warm-up", "schedule{kind=")
  has("??softmax", "softmax(x, {axis=-1}) -> y\n")
  has("??nowhereatall", "no doc has 'nowhereatall'")
end)

t.case("the library, compiled functions and loaders print descriptions", function()
  local data = nn.data({}, {context = 4})
  t.check(tostring(nn):find "^the library nn, nnlua ", tostring(nn))
  local text = tostring(data.val)
  t.check(text:find "^loader of %d+ tokens of nnlua's own sources, 12 x 4 in a batch$", text)
  local f = nn.compile(function(x) return x end)
  f(nn.zeros(1))
  t.check(tostring(f):find "lines.lua:%d+, recorded for 1 shapes of its arguments$", tostring(f))
end)

t.finish()
