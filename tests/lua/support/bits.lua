-- Prints the bits of everything: every op on its samples, and short trainings. Run by
-- tests/lua/system/workers.lua in processes with different numbers of workers.

local nn = require "nn"
local GPT2 = require "models.gpt2"
local Llama = require "models.llama"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local samples = require "samples"
local checksums = require "checksums"

local function print_bits(name, x) print(name, checksums.of(x)) end

samples.each(function(declared, text)
  local inputs, values = samples.arguments(declared, text, "f32")
  local cut = samples.cut(declared, inputs, samples.random(#text))
  local results = {samples.apply(declared, cut, values)}
  for i = 1, table.maxn(results) do
    if results[i] then print_bits(declared.name .. text .. i, results[i]) end
  end
end)

local function train(model, steps)
  local optim = nn.AdamW(model, {lr = 1e-3, clip = 1, weight_decay = 0.1})
  local step = nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = model(ids, targets)
    loss:backward()
    return loss, optim:step()
  end)
  for i = 1, steps do
    local function tokens()
      return nn.uniform({5, 48}, {low = 0, high = 101, axes = "batch,time"}):to("i32")
    end
    local loss, norm = step(tokens(), tokens())
    print_bits("loss " .. i, loss)
    print_bits("norm " .. i, norm)
  end
  checksums.print_all(model)
end

nn.tiles {tokens = 20, vocab = 30}
nn.seed(1)
train(GPT2 {layers = 2, heads = 4, embd = 64, vocab = 101, context = 48, dropout = 0.1}, 20)
for _, dtype in ipairs {"f32", "bf16"} do
  for _, activation in ipairs {"silu", "gelu"} do
    train(Llama {layers = 1, heads = 4, embd = 64, vocab = 101, context = 48, bias = "all",
                 activation = activation, dtype = dtype}, 3)
  end
end

-- Workers share these products of one row.
nn.tiles {tokens = 0, vocab = 0}
local large = GPT2 {layers = 2, heads = 4, embd = 256, vocab = 3001, context = 48}
local ids, info = nn.generate(large, {{1, 2, 3}, {4}}, {tokens = 44, seed = 1, logprobs = true})
for i = 1, 2 do
  for j, logprob in ipairs(info.logprobs[i]) do
    print("token", ids[i][j], ("%.17g"):format(logprob))
  end
end
