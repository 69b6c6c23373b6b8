-- Prints the bits of a short training in bf16 and of one in f32. Most of the products are large
-- enough for every implementation. tests/lua/system/products.lua runs it in processes with
-- different settings.

local nn = require "nn"
local GPT2 = require "models.gpt2"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"

for _, dtype in ipairs {"bf16", "f32"} do
  nn.tiles {tokens = 96, vocab = 300}
  nn.seed(1)
  local model = GPT2 {layers = 2, heads = 4, embd = 128, vocab = 501, context = 64, dtype = dtype}
  local optim = nn.AdamW(model, {lr = 1e-3, clip = 1})
  local step = nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
  for i = 1, 4 do
    local function tokens()
      return nn.uniform({6, 64}, {low = 0, high = 501, axes = "batch,time"}):to "i32"
    end
    local loss = step(tokens(), tokens())
    print(dtype, "loss", i, ("%.17g"):format(loss:item()))
  end
  checksums.print_all(model, nil, dtype .. " ")
end
