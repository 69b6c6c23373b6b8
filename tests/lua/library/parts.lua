-- Every part of the random modules (support/random_layers.lua), layers and ops, and every loss, has
-- PyTorch's loss and gradients in float64, in one pass and in microbatches of a compiled step.
-- tests/golden/make_parts.py wrote the values: of each gradient its norm and three dot products.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local layers = require "random_layers"
local random_modules = require "random_modules"
local small_models = require "small_models"

nn.devices {cpus = 1}
local ROWS, T, V, TOLERANCE = 8, layers.time, layers.vocab, 1e-10
local golden, metadata = nn.load_safetensors(root .. "/tests/golden/parts.safetensors")
local paths_of = files.parse_json(metadata.config)

-- The batch of make_parts.py. One target in each row is ignored, at most.
local function batch()
  local ids, targets = {}, {}
  for i = 1, ROWS do
    ids[i], targets[i] = {}, {}
    for time = 1, T do
      ids[i][time] = (7 * i + 3 * time + i * time % 5) % V
      targets[i][time] = (i + time) % 5 == 0 and -100 or (5 * i + time * time) % V
    end
  end
  return nn.tensor(ids, {dtype = "i32"}), nn.tensor(targets, {dtype = "i32"})
end
local ids, targets = batch()

local function dot(a, b) return (a * b):sum():item() end

-- The loss, and of each gradient, by path, its norm and three dot products, as in the golden file.
local function probes(model, loss, paths, grad_of)
  local out, tensors = {{loss, loss, loss, loss}}, {}
  for _, p in ipairs(model:parameters()) do tensors[p.path] = p.tensor end
  for i, path in ipairs(paths) do
    local g = grad_of(tensors[path] or error("there is no parameter " .. path, 0), i)
    local row = {dot(g, g) ^ 0.5}
    for k = 0, 2 do
      row[k + 2] = dot(g, small_models.weight_of(("probe %d %s"):format(k, path), g.shape):to "f64")
    end
    out[i + 1] = row
  end
  return nn.tensor(out, {dtype = "f64"})
end

-- The model of a case with the weights of make_parts.py, the values there, and their paths.
local function made(case, part, loss, side)
  local expected = golden[case]
  t.check(expected, "run tests/golden/make_parts.py: it does not know this part")
  local model = random_modules.single(part, loss, side)
  t.same(#model:parameters(), #paths_of[case])
  nn.no_grad(function()
    for _, p in ipairs(model:parameters()) do
      p.tensor:copy_(small_models.weight_of(p.path, p.tensor.shape):to "f64")
    end
  end)
  return model, expected, paths_of[case], {abs = TOLERANCE * expected:abs():max():item()}
end

local function one_pass(...)
  local model, expected, paths, tolerance = made(...)
  local loss = model(ids, targets)
  loss:backward()
  t.near(probes(model, loss:item(), paths, function(x) return x.grad end), expected, tolerance)
end

local function in_microbatches(...)
  local model, expected, paths, tolerance = made(...)
  local step = nn.compile(function(x, y)
    local loss, of_path, grads = nn.accumulate(model, ROWS, x, y), {}, {}
    for _, p in ipairs(model:parameters()) do of_path[p.path] = p.tensor.grad end
    for i, path in ipairs(paths) do grads[i] = of_path[path] end
    return loss, unpack(grads)
  end)
  local results = {step(ids, targets)}
  t.near(probes(model, results[1]:item(), paths, function(_, i) return results[i + 1] end),
         expected, tolerance)
end

local cases = {}                 -- {title, case, part, loss, side}
for name in pairs(layers.parts) do cases[#cases + 1] = {name, "part " .. name, name} end
for _, loss in ipairs(random_modules.losses) do
  cases[#cases + 1] = {"the loss " .. loss, "loss " .. loss, "mul", loss}
end
for _, side in ipairs(random_modules.sides) do
  cases[#cases + 1] = {"a loss with " .. side, "side " .. side, "mul", nil, side}
end
table.sort(cases, function(a, b) return a[1] < b[1] end)

for _, case in ipairs(cases) do
  t.case(case[1] .. " has PyTorch's gradients", function() one_pass(unpack(case, 2, 5)) end)
end

t.case("all of them have PyTorch's gradients in microbatches of a compiled step", function()
  local wrong = {}
  for _, case in ipairs(cases) do
    local good, text = pcall(in_microbatches, unpack(case, 2, 5))
    if not good then wrong[#wrong + 1] = case[1] .. ": " .. tostring(text):gsub("^.-: ", "") end
  end
  t.check(#wrong == 0, ("%d of %d differ\n    %s"):format(
    #wrong, #cases, table.concat(wrong, "\n    ", 1, math.min(#wrong, 20))))
end)

t.finish()
