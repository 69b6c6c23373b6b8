-- The line editor without a terminal: bytes in; text, cursor and screen out; history, completion.
local code = require "repl.code"
local complete = require "repl.complete"
local editors = require "repl.editor"
local files = require "nn.io.files"
local histories = require "repl.history"
local indent = require "repl.indent"
local keys = require "repl.keys"
local layout = require "repl.layout"
local nn = require "nn"
local pretty = require "repl.pretty"
local screens = require "repl.screen"
local t = require "nn.test"
local text_of = require "repl.text"

_G.nn = nn        -- as at the prompt

-- An editor with these history entries. type(bytes) feeds it and returns its last request.
local function new_editor(...)
  local history = histories.open(nil)
  for _, entry in ipairs {...} do history:add(entry) end
  local editor = editors.new {history = history, unfinished = code.unfinished, indent = indent,
                              complete = complete.complete}
  local decoder = keys.decoder()
  function editor.type(_, bytes)
    local ask
    for _, key in ipairs(decoder:feed(bytes, true)) do ask = editor:key(key) end
    return ask
  end
  -- The text with the cursor as "|".
  function editor.state() return editor.text:sub(1, editor.at) .. "|"
    .. editor.text:sub(editor.at + 1) end
  return editor
end

local function after(bytes, ...)
  local editor = new_editor(...)
  editor:type(bytes)
  return editor:state()
end

local up, down, left, right = "\27[A", "\27[B", "\27[D", "\27[C"

t.case("bytes decode to the same keys however they are split", function()
  local all = "a\27[A\27OH\27[3~\27[1;5D\27bé\27[200~x\r\ny\27[201~\r\127\1"
  local expected = {{"text", "a"}, "up", "home", "delete", "C-left", "M-b", {"text", "é"},
                    {"paste", "x\r\ny"}, "enter", "backspace", "C-a"}
  t.same(keys.decoder():feed(all), expected)
  local decoder, got = keys.decoder(), {}
  for i = 1, #all do
    for _, key in ipairs(decoder:feed(all:sub(i, i))) do got[#got + 1] = key end
  end
  t.same(got, expected)
  t.same(keys.decoder():feed "\27", {})
  t.same(keys.decoder():feed("\27", true), {"escape"})
  t.same(keys.decoder():feed("\27[?1;2c\27[99;5u"), {})      -- replies of a terminal are ignored
end)

t.case("any bytes leave the cursor inside the text, between characters", function()
  math.randomseed(7)
  local editor = new_editor("first", "second\nthird")
  for _ = 1, 3000 do
    local bytes = {}
    for i = 1, 12 do bytes[i] = string.char(math.random(0, 255)) end
    editor:type(table.concat(bytes))
    t.check(editor.at >= 0 and editor.at <= #editor.text)
    local here = 0
    while here < editor.at do here = text_of.next(editor.text, here) end
    t.same(here, editor.at)
    layout.rows {prompt = {text = "nn> ", more = "    "}, text = editor.text, at = editor.at,
                 columns = 20, height = 10}
    if #editor.text > 300 then editor:start() end
  end
end)

t.case("Emacs' keys move, kill and yank", function()
  t.same(after "abc def\1X", "X|abc def")
  t.same(after "abc def\1\6\6X", "abX|c def")
  t.same(after "abc def\27b\11", "abc |")
  t.same(after "abc def\27b\11\1\25", "def|abc ")
  t.same(after "abc def ghi\23\23\25", "abc def ghi|")            -- kills in a row are one
  t.same(after "one\21two\21\25\27y", "one|")
  t.same(after "abc.def\27\127", "abc.|")
  t.same(after "abc def\1\27dX", "X| def")
  t.same(after "abc def\1\4", "|bc def")
  t.same(after "ab\20", "ba|")
  t.same(after "abc def\1\27u\27c", "ABC Def|")
  t.same(after("abc" .. left .. left .. "\127"), "|bc")
  t.same(after("abc def\27[1;5DX\27[HY\27[FZ"), "Yabc XdefZ|")
  t.same(after "abc def\31", "abc|")                              -- undo, a word at a time
  t.same(after "abc def\31\31", "|")
end)

t.case("characters of several bytes and those that combine are one step", function()
  t.same(after("aé日" .. left .. left .. "X"), "aX|é日")
  t.same(after "ae\204\129\127", "a|")
  t.same(after "日本\8", "日|")
  t.same(text_of.width "aé日e\204\129", 5)
  t.same(text_of.width "\27[1;31mred\27[0m", 3)
  t.same(text_of.visible "\1", "^A")
  t.same(text_of.visible "\255", "<ff>")
  t.same(text_of.wrap("one two three", 8), {"one two", "three"})
end)

t.case("Enter submits complete code, else starts an indented line", function()
  local editor = new_editor()
  t.same(editor:type "1 + 1\r", "submit")
  editor:start()
  t.same(editor:type "for i = 1, 2 do\rif i then\rprint(i)\relse\rf {\r1,\r}\rend\rend\r",
         "submit")
  t.same(editor.text, "for i = 1, 2 do\n  if i then\n    print(i)\n  else\n    f {\n      1,\n    }"
         .. "\n  end\nend")
  editor:start()
  t.same(editor:type "x = 1 +\r2", nil)
  t.same(editor.text, "x = 1 +\n2")
  editor:start()
  editor:type "1\27\r2"                                            -- Alt-Enter
  t.same(editor.text, "1\n2")
  t.same({editor:type "\3", editor:type "\26", editor:type "\12"},
         {"interrupt", "suspend", "clear"})
  editor:start()
  t.same(editor:type "\4", "eof")
end)

t.case("a text of several lines is edited like one", function()
  local editor = new_editor()
  editor:type("\27[200~ab\ncdef\ng\27[201~" .. up .. "X" .. up .. "Y" .. down .. down .. "Z")
  t.same(editor:state(), "abY\ncXdef\ngZ|")
  editor:type "\1\1"
  t.same(editor:state(), "|abY\ncXdef\ngZ")
  editor:type "\11\11"
  t.same(editor:state(), "|cXdef\ngZ")
end)

t.case("a paste drops the prompts and output copied with the code", function()
  t.same(after "\27[200~x = 1\r\ny = 2\n\27[201~", "x = 1\ny = 2|")
  t.same(after "\27[200~nn> f(1,\n    2)\n3\nnn> g()\n  0.5\n\27[201~", "f(1,\n2)\ng()|")
  t.same(after "\27[200~a\27[31mb\tc\27[201~", "a[31mb\tc|")
end)

t.case("complete lines run at Enter, whatever the last one is", function()
  local loop = "x = 1\nfor i = 1, 2 do\n  x = x + i\nend\nx"
  for _, text in ipairs {loop, "x = 1\nx", "x:sum", "x = 1\n+ 2"} do
    t.same(code.unfinished(text), false, text)
  end
  for _, text in ipairs {"x = 1\nfor i = 1, 2 do", "f(\n1", "x = {", "x = 1\ny =", "s = [[a"} do
    t.same(code.unfinished(text), true, text)
  end
end)

t.case("Up finds entries that start with the text before the cursor, and Down returns", function()
  local entries = {"print(1)", "x = 2", "print(3)", "y\n= 4"}
  t.same(after(up, unpack(entries)), "y\n= 4|")
  t.same(after("pr" .. up, unpack(entries)), "print(3)|")
  t.same(after("pr" .. up .. up, unpack(entries)), "print(1)|")
  t.same(after("pr" .. up .. up .. up .. down, unpack(entries)), "print(3)|")
  t.same(after("pr" .. up .. up .. down .. down, unpack(entries)), "pr|")
  t.same(after("none" .. up, unpack(entries)), "none|")
  t.same(after("typed\27<", unpack(entries)), "print(1)|")
  t.same(after("typed\27<\27>", unpack(entries)), "typed|")
end)

t.case("Ctrl-R and Ctrl-S search the history, and Escape restores the typed text", function()
  local entries = {"alpha beta", "gamma", "beta\nnext"}
  t.same(after("\18bet", unpack(entries)), "bet|a\nnext")
  t.same(after("\18bet\18", unpack(entries)), "alpha bet|a")
  t.same(after("\18bet\18\19", unpack(entries)), "bet|a\nnext")
  t.same(after("old\18bet\27", unpack(entries)), "old|")
  t.same(after("old\18gam\7", unpack(entries)), "old|")
  t.same(after("\18gam\1X", unpack(entries)), "X|gamma")
  t.same(after("\18bexx\127\127", unpack(entries)), "be|ta\nnext")
  local editor = new_editor(unpack(entries))
  t.same(editor:type "\18gamm\r", "submit")
  t.same(editor.text, "gamma")
  editor:start()
  editor:type "\18zzz"
  t.check(editor.search.failed)
end)

t.case("a hint shows the rest of an entry, and Right accepts it", function()
  local editor = new_editor("print(1)", "print(22)")
  editor:type "pri"
  t.same(editor:hint(), "nt(22)")
  editor:type(left)
  t.same(editor:hint(), nil)
  editor:type(right .. right)
  t.same(editor:state(), "print(22)|")
end)

t.case("sessions share a history file that keeps each entry once and whole", function()
  local path = t.folder() .. "/deep/history"
  local one, two = histories.open(path), histories.open(path)
  one:add "a = 1"
  two:add "for i = 1, 2 do\n  print '\\n'\nend  "
  one:add "b\\n"
  one:add "a = 1"
  one:add "a = 1"
  one:add " secret"
  one:add ""
  t.same(histories.open(path).entries, {"for i = 1, 2 do\n  print '\\n'\nend", "b\\n", "a = 1"})
  t.same(files.read(path), "a = 1\nfor i = 1, 2 do\\n  print '\\\\n'\\nend\nb\\\\n\na = 1\n")
  local _, mode = t.shell("stat -c %a " .. path)
  t.same(mode, "600\n")
end)

t.case("a history file with many repeated entries is rewritten", function()
  local path = t.folder() .. "/history"
  files.write(path, ("x\ny\n"):rep(200))
  t.same(histories.open(path).entries, {"x", "y"})
  t.same(files.read(path), "x\ny\n")
  local memory_only = histories.open "/proc/nowhere/history"
  memory_only:add "still here"
  t.same(memory_only.entries, {"still here"})
end)

local function offered(text) return complete.complete(text, #text) end

t.case("Tab completes globals, fields, methods, ops and files", function()
  t.same(offered("pri").items, {"print"})
  t.same(offered("nn.log_s").items, {"log_softmax"})
  t.same(offered("nn.softmax_b").items, {"softmax_backward"})
  t.same(offered("nn.AdamW").items, {"AdamW"})                    -- loaded when first used
  t.same(offered("nn.is_tenso").items, {"is_tensor"})
  _G.box = {inner = {{name = nn.zeros(2)}}, ["not a name"] = 1}
  t.same(offered("box.").items, {"inner"})
  t.same(offered("f(box.inner[1].na").items, {"name"})
  t.same(offered("box.inner[1].name:unsq").items, {"unsqueeze"})
  t.same(offered("box['inner'][1].name.sha").items, {"shape"})
  t.same(offered("('x'):rep").items, {})                          -- would need a call
  t.same(offered("local variable = 1; vari").items, {"variable"})
  t.same(offered("-- pri").items, {})
  _G.box = nil
  local folder = t.folder()
  files.write(folder .. "/weights.bin", "")
  files.make_folder(folder .. "/where")
  t.same(offered("io.open('" .. folder .. "/w").items, {"weights.bin", "where/"})
  t.same(offered("io.open('" .. folder .. "/we"),
         {from = #("io.open('" .. folder .. "/"), items = {"weights.bin"}, suffix = "'"})
  t.same(offered(";cat " .. folder .. "/we").items, {"weights.bin"})
end)

t.case("Tab completes options of calls, help, commands; after ( it shows the signature", function()
  t.same(offered("nn.AdamW(model, {lr = 1, wei").items, {"weight_decay"})
  t.same(offered("x:sum {ax").items, {"axis"})
  t.same(offered("nn.data({te").items, {"text"})
  t.same(offered("nn.run_fie").items, {"run_fields"})
  t.check(offered("nn.softmax(").note:find("softmax(x, {axis=-1})", 1, true))
  t.same(offered("?softma").items, {"softmax"})
  t.same(offered("?nn.log_s").items, {"log_softmax"})
  t.same(offered("%ti").items, {"%time", "%timeit"})
  local here = files.list "tests/lua/prompt"
  t.same(offered("%run tests/lua/prompt/edi").items, here and {"editor.lua"} or {})
  t.same(offered("%time nn.log_s"), {from = 9, items = {"log_softmax"}})
end)

t.case("completion runs none of the user's code", function()
  local touched = false
  _G.trap = setmetatable({}, {__index = function() touched = true end})
  t.same(offered("trap.x.y").items, {})
  t.same(offered("trap.").items, {})
  t.same(touched, false)
  _G.trap = nil
end)

t.case("Tab inserts the common start, then lists; on a blank line it indents", function()
  local editor = new_editor()
  editor:type "string.fo\t"
  t.same(editor:state(), "string.format|")
  editor:start()
  editor:type "nn.softp\t"
  t.same(editor:state(), "nn.softplus|")
  editor:start()
  editor:type "string.re\t"
  t.same(editor.list, {"rep", "reverse"})
  editor:start()
  editor:type "nn.AdamW(m, {weight\t0.1"
  t.same(editor:state(), "nn.AdamW(m, {weight_decay = 0.1|")
  editor:start()
  editor:type "\tx"
  t.same(editor:state(), "  x|")
end)

-- The rows of a text; "|" is the cursor.
local function shown(text, columns, height)
  local at = text:find("|", 1, true) - 1
  local rows, cursor = layout.rows {
    prompt = {text = "> ", more = ". "}, text = text:gsub("|", "", 1), at = at, columns = columns,
    height = height or 10,
  }
  for i, row in ipairs(rows) do rows[i] = row:gsub("\27%[[%d;]*m", "") end
  return table.concat(rows, "/"), cursor.row, cursor.column
end

t.case("long lines wrap, wide characters stay whole, and the cursor follows", function()
  t.same({shown("abc|", 8)}, {"> abc", 1, 5})
  t.same({shown("abcdefgh|i", 8)}, {"> abcdef/ghi", 2, 2})
  t.same({shown("abcdef|", 8)}, {"> abcdef/", 2, 0})              -- after a full row
  t.same({shown("abcde日|x", 8)}, {"> abcde/日x", 2, 2})
  t.same({shown("ab\n|cd", 8)}, {"> ab/. cd", 2, 2})
  t.same({shown("1\n2\n3\n4|\n5\n6", 8, 3)}, {". 3/. 4/. 5", 2, 3})
  t.same(layout.columns_of({"a", "bbb", "c", "d", "e"}, 12), {"a    d", "bbb  e", "c"})
end)

-- Emulates a terminal for the escape sequences that screen.lua writes.
local function terminal(rows_above)
  local lines, row, column = {unpack(rows_above)}, #rows_above + 1, 0
  lines[row] = ""
  local emulate = {}
  function emulate.write(text)
    local i = 1
    while i <= #text do
      local number, letter = text:match("^\27%[(%d*)(%a)", i)
      if letter then
        local n = tonumber(number) or 1
        if letter == "A" then row = row - n elseif letter == "B" then row = row + n end
        if letter == "C" then column = column + n end
        if letter == "K" or letter == "J" then lines[row] = lines[row]:sub(1, column) end
        if letter == "J" then for j = #lines, row + 1, -1 do lines[j] = nil end end
        i = i + 2 + #number
      elseif text:sub(i, i) == "\r" then column = 0
      elseif text:sub(i, i) == "\n" then
        row = row + 1
        lines[row] = lines[row] or ""
      else
        local line = lines[row]
        lines[row] = line:sub(1, column) .. text:sub(i, i) .. line:sub(column + 2)
        column = column + 1
      end
      i = i + 1
    end
  end
  function emulate.state() return table.concat(lines, "/"), row, column end
  return emulate
end

t.case("the screen always shows the rows that are painted", function()
  math.randomseed(3)
  local screen, shows = screens.new(), terminal {"before"}
  for _ = 1, 500 do
    local rows = {}
    for i = 1, math.random(1, 6) do rows[i] = ("abc"):rep(math.random(0, 3)) end
    local cursor = {row = math.random(1, #rows)}
    cursor.column = math.random(0, #rows[cursor.row])
    shows.write(screen:paint(rows, cursor))
    local text, row, column = shows.state()
    local expected = "before/" .. table.concat(rows, "/")
    t.same(text:gsub("/+$", ""), (expected:gsub("/+$", "")))
    t.same({row, column}, {cursor.row + 1, cursor.column})
  end
  shows.write(screen:leave())
  t.same(select(3, shows.state()), 0)
end)

t.case("tables print nested, filled and elided; cycles are marked", function()
  local function same(value, text) t.same(pretty.value(value, 40), text) end
  same({1, "a", {b = true}}, '{1, "a", {b = true}}')
  same({["end"] = 1, [2.5] = 2, x = {}}, '{[2.5] = 2, ["end"] = 1, x = {}}')
  local cyclic = {1}
  cyclic.me = cyclic
  same(cyclic, "{1, me = {<cycle>}}")
  local list = {}
  for i = 1, 100 do list[i] = i end
  t.check(pretty.value(list, 40):find "\n  1, 2, 3.*\n.*39,%s+40,%s+%.%.%. 60 more,\n}$")
  local long = ("x"):rep(30)
  same({first = long, second = 2}, '{\n  first = "' .. long .. '",\n  second = 2,\n}')
  same("a\n\"b\"\\ é\1", [["a\n\"b\"\\ é\001"]])
  t.check(pretty.value(("k"):rep(9000)):find 'kk" %.%.%. 7000 bytes %.%.%. "kk')
  t.check(pretty.value(function(a, b, ...) return a, b, ... end):find
          "^function%(a, b, %.%.%.%) at .*editor.lua:%d+$")
  same(print, "a built-in function")
  same({nn.zeros(2, 3)}, "{2x3 tensor f32}")
  same({nn.Linear(2, 3)}, "{Linear, 9 parameters}")
end)

t.finish()
