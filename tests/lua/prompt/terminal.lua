-- A session in a real terminal (tmux), as a user sees it.
local ffi = require "ffi"
local files = require "nn.io.files"
local t = require "nn.test"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local tmux = require "tmux"
local wait, type, press, enter, paste = tmux.wait, tmux.type, tmux.press, tmux.enter, tmux.paste
local case, folder = tmux.case, tmux.folder

local welcome = "Ctrl-D to leave.\nnn>"

case("values print, blocks are indented, Ctrl-D leaves", "NNLUA; echo left; read -r", function()
  wait(welcome)
  enter "1 + 1"
  wait "\nnn> 1 + 1\n2\nnn>"
  for _, line in ipairs {"for i = 1, 2 do", "if i == 2 then", "print(i)", "end", "end"} do
    enter(line)
  end
  wait [[
nn> for i = 1, 2 do
      if i == 2 then
        print(i)
      end
    end
2
nn>]]
  press "C-d"
  wait "\nleft"
end)

case("Home and End move the cursor, and unknown keys do nothing", "NNLUA; echo left",
function()
  wait(welcome)
  type "2 + 3"
  press "Home"
  type "1"
  press "End"
  type "0"
  press "F1 F5 F12 Insert PPage NPage M-z C-Left End Enter"
  wait "\nnn> 12 + 30\n42\nnn>"
end)

case("history persists across sessions and keeps entries of several lines whole", "NNLUA; NNLUA",
function()
  wait(welcome)
  enter "first = 1"
  wait "nn> first = 1\nnn>"
  enter "second = {"
  enter "2}"
  wait "nn> second = {\n      2}\nnn>"
  press "C-d"
  wait(welcome)
  press "Up"
  wait "nn> second = {\n      2}"
  press "Up"
  wait(welcome .. " first = 1")
  press "C-c"
  type "sec"
  press "Up"
  wait "nn> second = {\n      2}"
  press "C-e"
  type "[1]"
  press "C-c"
  wait "^C\nnn>"
  press "C-r"
  type "rst ="
  wait "nn> first = 1\nsearch back: rst ="
  press "Enter"
  wait "nn> first = 1\nnn>"
  enter "first + 1"
  wait "\n2\nnn>"
  enter "%history 2"
  wait "\nfirst + 1\n%history 2\nnn>"
  enter "%history {"
  wait "\nsecond = {\n  2}\n%history {\nnn>"
end)

case("Tab lists, completes and shows signatures; ? helps", "NNLUA", function()
  wait(welcome)
  type "nn.log_"
  press "Tab"
  wait "nn> nn.log_softmax"
  press "C-u"
  type "string.re"
  press "Tab"
  wait "nn> string.re\nrep      reverse"
  type "v"
  press "Tab"
  wait "\nnn> string.reverse"
  press "C-c"
  type "nn.softmax("
  press "Tab"
  local text = wait "along an axis."
  t.check(text:find("nn> nn.softmax(\nsoftmax(x, {axis=-1}) -> y\n", 1, true))
  press "C-u"
  enter "?nn.mse"
  local help = wait ")\nnn>"
  t.check(help:find("nn> ?nn.mse\nnn.mse(x, y) -> mean of (x - y)^2", 1, true), help)
  t.check(help:find "%(lua/nn/core/losses.lua:%d+%)\nnn>$", help)
  enter "?sofmax"
  wait "there is no help on 'sofmax'; did you mean 'softmax'?\nnn>"
end)

case("a paste of several lines stays text until Enter", "NNLUA", function()
  wait(welcome)
  paste "nn> function add(a, b)\n      return a + b\n    end\nnn> add(1, 2)\n3\n"
  wait "nn> function add(a, b)\n      return a + b\n    end\n    add(1, 2)"
  press "Enter"
  wait "add(1, 2)\n3\nnn>"
end)

case("Ctrl-C stops code, compiled loops and tasks, and clears a line", "NNLUA", function()
  files.write(folder .. "/spin.lua", "function spin() local n = 0 while true do n = n + 1 end end")
  wait(welcome)
  for _, code in ipairs {
    "while true do end", ("dofile '%s/spin.lua'; spin()"):format(folder),
    "while true do pcall(error) end", "%timeit while true do end",
    "x = nn.rand(8); while true do x = x * 1.5 end",
    "while true do nn.zeros(1):item() end",
  } do
    press "C-l"
    enter(code .. " -- \\n")
    ffi.C.usleep(300000)
    press "C-c"
    wait "^Cinterrupted\nnn>"
  end
  type "half a line"
  press "C-c"
  wait "nn> half a line^C\nnn>"
  enter "6 * 7"
  wait "\n42\nnn>"
end)

case("errors are printed and change nothing", "NNLUA", function()
  wait(welcome)
  enter "kept = 5"
  enter "local function f(x) return x.y.z end"
  enter "f {}"
  wait [[
error: nn>:1: attempt to index field 'y' (a nil value)
stack traceback:
        nn>:1: in function <nn>:1>
nn>]]
  enter "kepd"
  wait "error: nn>:1: there is no variable 'kepd'; did you mean 'kep\nt'?\nnn>"
  enter "1 +* 2"
  wait "error: nn>:1: unexpected symbol near '*'\nnn>"
  enter "kept"
  wait "\n5\nnn>"
end)

case("a tensor larger than the screen shows its edges", "NNLUA", function()
  wait(welcome)
  enter "nn.arange(4e6, {dtype = 'i64'}):reshape(1000, 4000)"
  wait [[
1000x4000 tensor i64
        0        1        2  ...     3997     3998     3999
     4000     4001     4002  ...     7997     7998     7999
     8000     8001     8002  ...    11997    11998    11999
      ...      ...      ...  ...      ...      ...      ...
  3988000  3988001  3988002  ...  3991997  3991998  3991999
  3992000  3992001  3992002  ...  3995997  3995998  3995999
  3996000  3996001  3996002  ...  3999997  3999998  3999999
nn>]]
end)

case("wide characters, long lines and a resized terminal", "NNLUA", function()
  wait(welcome)
  type "s = '日本語 and a line that is longer than the terminal is wide: é日本'"
  wait "nn> s = '日本語 and a line that is longer than the terminal\nis wide: é日本'"
  tmux.command "resize-window -x 40 -y 20"
  wait "nn> s = '日本語 and a line that is longe\nr than the terminal is wide: é日本'"
  press "C-a"
  type "t, "
  press "Enter"
  wait "nn> t, s = '日本語 and a line that is lo\nnger than the terminal is wide: é日本'\nnn>"
end)

case("Ctrl-Z stops the program, and fg resumes the line", "set -m; NNLUA; fg; read -r", function()
  wait(welcome)
  type "1 + "
  press "C-z"
  wait "nn> 1 +"
  type "2"
  press "Enter"
  wait "\n3\nnn>"
end)

case("output without a newline stays, and input typed ahead is kept", "NNLUA",
function()
  wait(welcome)
  enter "io.write 'no end';"
  wait "\nno end%\nnn>"
  enter "os.execute 'sleep 0.5'; "
  enter "'ahead'"
  wait '\nnn> \'ahead\'\n"ahead"\nnn>'
end)

case("a dumb terminal reads plain lines", "TERM=dumb NNLUA", function()
  wait(welcome)
  enter "for i = 1, 2 do"
  wait "nn> for i = 1, 2 do\n  >"
  enter "print(i) end"
  wait "\n  > print(i) end\n1\n2\nnn>"
end)

case("SIGTERM ends the session with its status and restores the terminal",
     "NNLUA; echo status $?; read -r line; echo got $line; read -r", function()
  wait(welcome)
  enter "os.execute 'kill -TERM $PPID'"
  wait "status 143"
  enter "words"
  wait "\nwords\ngot words"
end)

t.finish()
