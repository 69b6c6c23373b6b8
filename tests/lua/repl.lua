-- The prompt, as a pipe drives it: lines that go on, locals, errors, help, the exit status.
local files = require "nn.files"
local nn = require "nn"
local t = require "nn.test"

local input = t.folder() .. "/lines"
-- What a session prints for these lines, errors among it, and its exit status.
local function session(...)
  files.write(input, table.concat({...}, "\n") .. "\n")
  local status, output = t.shell("$NNLUA < " .. input)
  return output, status
end

t.case("an expression or a block goes on in the next line", function()
  t.same(session("1 +", "2"), "3\n")
  t.same(session("x =", "3", "x"), "3\n")
  t.same(session("for i = 1, 2 do", "  print(i)", "end"), "1\n2\n")
end)

t.case("locals stay, with and without a value", function()
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

t.case("a task that fails is told at its own line, and the session goes on", function()
  t.same(session("y = nn.zeros(3):gather(nn.tensor({9}, {dtype = 'i64'}))", "1 + 1"),
         "error: gather: index 9 is outside [0,3) (kernel gather, f32, tile 1 of shape (1))\n2\n")
end)

t.case("Ctrl-C at the prompt drops the line and nothing else", function()
  if t.shell "command -v python3 >/dev/null" ~= 0 then t.skip "there is no python3" end
  local _, output = t.shell [[
    python3 - <<'END'
import os, pty, re, select, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "dumb"
    os.execv(os.environ["NNLUA"], ["nnlua"])
seen = b""
def wait(text, more=b""):
    global seen
    os.write(terminal, more)
    end = time.time() + 20
    while text not in seen and time.time() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 4096)
    print(text in seen)
    seen = b""
wait(b"nn> ")
wait(b"\r\nnn> ", b"abc\x03")
wait(b"  > ", b"for i = 1, 2 do\r")
wait(b"\r\nnn> ", b"\x03")
wait(b"42\r\n", b"6 * 7\r")
os.write(terminal, b"\x04")
END]]
  t.same(output, ("True\n"):rep(5))
end)

t.case("a mistake inside no_grad, scope or compile shows the line that made it", function()
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

t.case("? knows ops, functions, layers, methods and models; ?? searches them", function()
  local function has(line, text)
    local output = session(line)
    t.check(output:find(text, 1, true), ("%s prints %s, not %s"):format(line, output, text))
  end
  has("?softmax", "softmax(x) -> y\n")
  has("?nn.compile", "nn.compile(f) -> a function of tensors that returns tensors.")
  has("?AdamW", "nn.AdamW(model, {lr=1e-3")
  has("?Linear", "nn.Linear(inputs, outputs, {bias=true")
  has("?x:dim", "x:dim(axis) -> its size")
  has("?GPT2", "GPT2{layers, heads, embd")
  has("?flops_per_token", "FLOPs per token")
  has("?compil", "there is no help on 'compil'; did you mean 'compile'?")
  has("??warm-up", "schedule{kind=, lr=")
  has("??softmax", "softmax(x) -> y\n")
  has("??nowhereatall", "no doc has 'nowhereatall'")
end)

t.case("the library, optimizers, compiled functions and loaders say what they are", function()
  local data = nn.data({}, {context = 4})
  t.check(tostring(nn):find "^the library nn, nnlua ", tostring(nn))
  local text = tostring(data.val)
  t.check(text:find "^loader of %d+ tokens of nnlua's own sources, 12 x 4 in a batch$", text)
  local f = nn.compile(function(x) return x end)
  f(nn.zeros(1))
  t.check(tostring(f):find "repl.lua:%d+, recorded for 1 shapes of its arguments$", tostring(f))
end)

t.finish()
