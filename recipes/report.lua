-- Compares runs on one page: overlaid curves, differences between their settings, samples.
--   nnlua recipes/report.lua runs/char runs/char-2 out=compare.html
--   nnlua recipes/report.lua runs/char runs/char-2 out=compare.csv     the curves as a table
local nn = require "nn"
local report, units = require "nn.train.report", require "nn.base.units"

local folders, settings = {}, {}
for _, word in ipairs(arg) do
  local is_setting = word:find "^[%w_.]+=" or word:find "^%-"
  table.insert(is_setting and settings or folders, word)
end
local out = nn.field("compare.html", "output file: .html, or .csv for the curves", {path = true})
local cfg = nn.config({out = out}, settings, {usage = "RUN... [out=compare.html]"})
if #folders == 0 then nn.fail "give one or more run folders, such as runs/char runs/char-2" end

report.write(cfg.out, folders)
print(("%s: %s"):format(cfg.out, units.count(#folders, "run")))
