-- Edited modules at the prompt: objects keep their weights and get the new methods.
local files = require "nn.io.files"
local t = require "nn.test"

local folder = t.folder()
local function write(text) files.write(folder .. "/mine.lua", text) end

local source = [[
local nn = require "nn"
local Inner, Mine = nn.module "Inner", nn.module "Mine"
local M = {Mine = Mine, calls = 0}
function Inner:init() self.w = nn.parameter({2}, {value = 3}) end
function Inner:forward(x) return x * self.w end
function Inner:old() return "old" end
function Mine:init() self.inner = Inner() end
function Mine:forward(x) return self.inner(x) end
local function add() M.calls = M.calls + 1 end
function M.tick() add() return M.calls end
return M
]]

-- What a session in the folder prints for these lines; "edit:" followed by a name of `edits`
-- replaces mine.lua.
local function session(edits, ...)
  write(source)
  local lines = {}
  for _, line in ipairs {...} do
    local name = line:match "^edit:(.*)"
    if name then files.write(folder .. "/" .. name, edits[name]) end
    lines[#lines + 1] = name and (";cp %s mine.lua"):format(name) or line
  end
  files.write(folder .. "/input", table.concat(lines, "\n") .. "\n")
  local status, output = t.shell(("cd %s && $NNLUA < input"):format(folder))
  return output, status
end

local start = {'m = require "mine"', "model = m.Mine(); nn.no_grad(function() "
               .. "model.inner.w:fill_(5) end)", "tick = m.tick; m.tick();"}

t.case("an edited module is loaded again: objects keep weights, methods change and disappear",
function()
  local better = source:gsub("x %* self.w", "%0 + 1"):gsub("function Inner:old.-\n", "")
  t.same(session({better = better}, start[1], start[2], start[3],
                 "model(nn.ones(2)):table()", "model.inner:old()", "edit:better",
                 "model(nn.ones(2)):table()", "model.inner.old == nil",
                 "m.Mine()(nn.ones(2)):table()",
                 'm == require "mine", getmetatable(model) == m.Mine', "m.tick()", "m.calls"),
         '{5, 5}\n"old"\nreloaded mine.lua\n{6, 6}\ntrue\n{4, 4}\ntrue\ntrue\n1\n1\n')
end)

t.case("a compiled function is recorded again after its modules were edited", function()
  local better = source:gsub("x %* self.w", "%0 + 1")
  t.same(session({better = better}, start[1], start[2],
                 "f = nn.compile(function(x) return model(x) end); f(nn.ones(2)):table()",
                 "edit:better", "f(nn.ones(2)):table()", "f(nn.ones(2)):table()",
                 "tostring(f):match 'recorded for %d'"),
         '{5, 5}\nreloaded mine.lua\n{6, 6}\n{6, 6}\n"recorded for 1"\n')
end)

t.case("an edit with an error keeps the earlier code, and the next edit is loaded", function()
  local output = session({
    syntax = source .. "x = = 2", late = source:gsub("function Inner:old.-\n", ""):gsub(
      "return M\n$", "error 'late'"), good = source:gsub('"old"', '"new"'),
  }, start[1], start[2], "edit:syntax", "model(nn.ones(2)):table(), model.inner:old()",
     "print 'again'", "edit:late", "model(nn.ones(2)):table(), model.inner:old()", "edit:good",
     "model.inner:old()")
  local kept = "mine.lua has changed, but its earlier code stays\n{5, 5}\n\"old\"\n"
  t.check(output:find("^error: ./mine.lua:12: .- near 'x'\n" .. kept .. "again\n"
                      .. "error: ./mine.lua:10: late\n.-\n" .. kept
                      .. 'reloaded mine.lua\n"new"\n$'), output)
end)

t.case("a module with an error can be required again once it is corrected", function()
  local output = session({bad = "local nn = require 'nn'; nn.nothing()", good = source}, "edit:bad",
                         'require "mine"', "edit:good", 'require("mine").calls')
  t.check(output:find "^error: ./mine.lua:1: nn has no 'nothing'" and output:find "\n0\n$", output)
end)

t.case("a model of nnlua's own folder is loaded again within 0.2 s", function()
  local copy = folder .. "/models"
  files.make_folder(copy)
  local root = package.loaded["nn.host"].root
  files.write(copy .. "/mine.lua", files.read(root .. "/models/gpt2.lua"))
  local edited = files.read(root .. "/models/gpt2.lua")
    :gsub("function MLP:forward%(x%)", "%0 calls = (calls or 0) + 1")
  t.same(select(2, edited:gsub("calls or 0", "")), 1)
  local output = session({gpt = edited}, 'GPT2 = require "models.mine"',
    "model = GPT2 {layers = 2, heads = 2, embd = 8, context = 8, vocab = 16}",
    "ids = nn.zeros(1, 4, {dtype = 'i32'}); before = model(ids):table();",
    "edit:gpt", "start = nn.now();", ";mv mine.lua models/mine.lua",
    "seconds = nn.now() - start; after = model(ids):table();",
    "calls, after[1][4][16] == before[1][4][16], getmetatable(model) == GPT2", "seconds < 0.2")
  t.same(output, "reloaded models/mine.lua\n2\ntrue\ntrue\ntrue\n")
end)

t.finish()
