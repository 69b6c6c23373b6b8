-- nn.test in users' scripts: selecting cases, output, reports, and failures.

local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"

local folder = t.folder()
local script = folder .. "/mine.lua"
files.write(script, [[
  local nn, t = require "nn", require "nn.test"
  t.case("one is one", function() t.same(1, 1) end)
  t.case("a <wrong> \"sum\"", function() t.near(nn.tensor{1, 2}:sum(), 4) end)
  t.case("what is not there", function() t.skip "there is no GPU" end)
  t.finish()]])

t.case("cases pass, fail with the difference, or are skipped with the reason", function()
  local status, output = t.shell("$NNLUA " .. script)
  t.same(status, 1)
  t.check(output:find "ok      one is one %(%d+%.%d s%)\n", output)
  t.check(output:find 'FAILED  a <wrong> "sum"\n  %S*mine.lua:3: 3, expected 4 %(tolerance', output)
  t.check(output:find("skipped what is not there: there is no GPU\n", 1, true), output)
  t.same(output:match "[^\n]*\n$", "1 passed, 1 failed, 1 skipped\n")
end)

t.case("words on the command line select cases; --times lists them", function()
  local status, output = t.shell("$NNLUA " .. script .. " --times 'one is' there")
  t.same(status, 0)
  t.same(output:match "[^\n]*\n$", "1 passed, 0 failed, 1 skipped\n")
  t.check(output:find "%d%.%d%d s  one is one\n", output)
  status, output = t.shell("$NNLUA " .. script .. " --tims")
  t.same(status, 1)
  t.check(output:find("takes --junit=FILE, --times and parts of names, not '--tims'", 1, true))
end)

t.case("--junit writes a report that an XML parser reads", function()
  if t.shell "command -v python3 >/dev/null" ~= 0 then t.skip "there is no python3" end
  t.same(t.shell(("$NNLUA %s --junit=%s/report.xml"):format(script, folder)), 1)
  local status, output = t.shell(("cd %s; python3 -c '%s'"):format(folder, [[
import xml.etree.ElementTree as E
s = E.parse("report.xml").getroot()
print(s.tag, s.get("tests"), s.get("failures"), s.get("skipped"))
for c in s:
    print(c.get("name"), float(c.get("time")) >= 0)
    for e in c: print(e.tag, e.get("message").split(":")[-1])]]))
  t.same({status, output}, {0, [[
testsuite 3 1 1
one is one True
a <wrong> "sum" True
failure  3, expected 4 (tolerance 1e-06 + 1e-05 of it)
what is not there True
skipped there is no GPU
]]})
end)

t.case("gradcheck finds a wrong factor, a wrong element and a missing gradient", function()
  local x = nn.randn(3, 4)
  local function with(backward)
    return nn.custom {forward = function(v) return v * 2 end, backward = backward}
  end
  local before = nn.random_state()
  t.gradcheck(with(function(g) return g * 2 end), {x})
  t.same(nn.random_state(), before)
  t.fails(function() t.gradcheck(with(function(g) return g * 2.0001 end), {x}) end, "the slope in")
  t.fails(function()
    t.gradcheck(with(function(g)
      return (g * 2):masked_fill(nn.arange(12):eq(5):reshape(3, 4), 0)
    end), {x})
  end, "the slope in input 1 is")
  t.fails(function()
    t.gradcheck(function(a, b) return a * b:detach() end, {x, x})
  end, "input 2 gets no gradient")
  t.fails(function() t.gradcheck(function() return x end, {3}) end, "there is no float tensor")
  t.gradcheck(function(a) return nn.dropout(a, 0.5):square() end, {x})
  t.gradcheck(function(ids, rows) return (nn.embedding(ids, rows)) end,
              {nn.tensor({{1, 0, 1}}, {dtype = "i32"}), x})
end)

t.finish()
