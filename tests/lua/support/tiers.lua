-- Trains a small GPT-2 for a few steps and prints the results of every step and a checksum of every
-- parameter and moment, for tests/lua/tiers.lua. Arguments: NAME=VALUE; ram=BYTES plans the memory.
local nn = require "nn"
local GPT2 = require "models.gpt2"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"

local cfg = {ram = 0, disk = ".", seed = 1, layers = 6, embd = 128, heads = 4, context = 32,
             vocab = 700, batch = 4, accum = 1, clip = 1, dropout = 0, dtype = "f32",
             rounding = "nearest", steps = 5, tile = 0, eager = 0, activations = "keep",
             memory = 0}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  cfg[name] = type(cfg[name]) == "number" and tonumber(value) or value
end

if cfg.memory > 0 then nn.memory_budget(cfg.memory) end
nn.activations(cfg.activations)
if cfg.ram > 0 then nn.memory_tiers {ram = cfg.ram, disk = cfg.disk} end
nn.seed(cfg.seed)
if cfg.tile > 0 then nn.tiles {tokens = cfg.tile} end
local model = GPT2 {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
                    context = cfg.context, dropout = cfg.dropout, dtype = cfg.dtype}
local optim = nn.AdamW(model, {lr = 1e-3, weight_decay = 0.1, clip = cfg.clip,
                               rounding = cfg.rounding})
local step = nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = nn.accumulate(model, cfg.accum, ids, targets)
  return loss, optim:step()
end)

-- Token ids that depend on the step.
local function ids(shift)
  local rows = {}
  for i = 1, cfg.batch do
    rows[i] = {}
    for j = 1, cfg.context do rows[i][j] = (i * 37 + j * 101 + shift * 13) % cfg.vocab end
  end
  return nn.tensor(rows, {dtype = "i32"})
end

for i = 1, cfg.steps do
  optim.lr = 1e-3 / i
  local loss, norm = step(ids(i), ids(i + 1))
  print(("step %d %.17g %.17g"):format(i, loss:item(), norm:item()))
  if i == cfg.eager then print(("sum %.17g"):format(model:parameters()[1].tensor:sum():item())) end
end
checksums.print_all(model, optim)
io.stderr:write(("peak %.0f read %.0f written %.0f\n"):format(
  nn.memory().peak, nn.memory().disk.read, nn.memory().disk.written))
