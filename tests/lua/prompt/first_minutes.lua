-- The first ten minutes of a user, on a terminal: start, help, a typo, a layer of their own,
-- training, a plot, Ctrl-C, an edit, a recipe that is interrupted and resumed, its report.
local files = require "nn.io.files"
local t = require "nn.test"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local tmux = require "tmux"
local wait, wait_for, press, enter = tmux.wait, tmux.wait_for, tmux.press, tmux.enter

local folder = tmux.folder
local layer = [[
local nn = require "nn"
local Scale = nn.module "Scale"
function Scale:init() self.w = nn.parameter({3}, {value = 0.5}) end
function Scale:forward(x) return x * self.w end
return Scale
]]

-- Start, help, a typo, a layer in a file.
local function look_around()
  wait "Ctrl-D to leave.\nnn>"
  enter "help"
  wait_for "Values print themselves"
  enter "?nn.Linear"
  wait_for "nn.Linear%(inputs, outputs, {bias=true"
  enter "nn.Liner(3, 4)"
  wait_for "error: nn>:1: nn has no 'Liner'; did you mean 'Linear'?"
  press "C-l"
  files.write(folder .. "/scale.lua", layer)
  enter "model = require 'scale'()"
  enter "model"
  wait "Scale  3 parameters\n  w: (3) f32\nnn>"
end

-- Training by hand, its curve, Ctrl-C.
local function train()
  press "C-l"
  enter "optim = nn.AdamW(model, {lr = 0.1, weight_decay = 0}); x = nn.tensor {1, 2, 3};"
  enter "target = nn.tensor {2, 4, 6}; losses = {}"
  tmux.paste [[
function step()
  optim:zero_grad()
  local loss = nn.mse(model(x), target)
  loss:backward()
  optim:step()
  losses[#losses + 1] = loss
end]]
  press "Enter"
  enter "for i = 1, 60 do step() end; losses[60]:item() < 0.01 * losses[1]:item()"
  wait "\ntrue\nnn>"
  press "C-l"
  enter "nn.plot(losses, {title = 'loss of my layer', height = 8})"
  local screen = wait_for "└.-┬"
  t.check(screen:find "loss of my layer" and screen:find "┤\226[\160-\163]", screen)
  press "C-l"
  enter "while true do step() end"
  require("ffi").C.usleep(300000)
  press "C-c"
  wait "^Cinterrupted\nnn>"
  enter "#losses > 60"
  wait "\ntrue\nnn>"
end

-- The layer changes; its weights stay.
local function edit()
  press "C-l"
  enter "before = model.w:table(); y = model(x):table();"
  wait "model(x):table();\nnn>"
  files.write(folder .. "/scale.lua", (layer:gsub("x %* self.w", "10 * %0")))
  enter "z = model(x):table(); math.abs(z[3] / y[3] - 10) < 1e-5, before[3] == model.w:at(3)"
  wait "reloaded scale.lua\ntrue\ntrue\nnn>"
  enter "exit"
end

-- A recipe that is interrupted, and resumed by the command that it prints.
local function run_recipe()
  wait_for "step +%d+/4000  loss"
  local screen = wait_for "┤"
  t.check(screen:find "━━.- loss", screen)
  wait_for "step [1-3]%d%d+/4000"
  press "C-c"
  wait_for "resume=runs/demo"
  screen = wait "\n$"
  local text = tmux.lines()
  local done, command = text:match("stopped after step (%d+), .-to resume:\n"
                                   .. "%s*([^\n]*resume=runs/demo)")
  t.check(done and not (screen:find "┤" or screen:find "│"), text)
  press "C-l"
  enter(command .. " steps=" .. done + 20)
  wait_for "done after"
  wait "\n$"
  text = tmux.lines()
  t.check(text:find("resumed after step " .. done, 1, true), text)
  t.check(text:find "curves in runs/demo/report.html", text)
  local page = files.read(folder .. "/runs/demo/report.html")
  t.check(page:find(('["step","%d of %d"]'):format(done + 20, done + 20), 1, true), "the last step")
end

tmux.case("a user's first ten minutes", ([[
cd FOLDER; export LANG=C.UTF-8
NNLUA
NNLUA recipes/gpt2_train.lua preset=demo model.layers=1 model.embd=16 model.heads=2 \
  model.context=16 steps=4000 eval_every=0 eval_batches=1 final_batches=1 plot=true
exec bash --norc]]):gsub("FOLDER", folder), function()
  look_around()
  train()
  edit()
  run_recipe()
end, "-x 100 -y 30")

t.finish()
