-- The small models of tests/golden/small_models.py: writes their folders, and compares what a model
-- of nnlua computes with the values of transformers.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"

local M = {}

-- The function weight_of of small_models.py.
function M.weight_of(name, shape)
  local count, values = 1, {}
  for _, size in ipairs(shape) do count = count * size end
  local state = files.crc32(name) % 2147483647
  local is_scale = (name:find "[Nn]orm" or name:find "ln_") and name:find "weight$" and count < 100
  local factor, base = is_scale and 0.5 or 1, is_scale and 1 or 0
  if name:find "Attention%.q%.weight$" then factor = 0.25 end
  for i = 1, count do
    state = state * 16807 % 2147483647
    values[i] = (math.floor(state / 1000) % 64 - 32) / 64 * factor + base
  end
  return nn.tensor(values):reshape(shape)
end

local function distance(got, expected)
  local a, n = got:numbers()
  local b = expected:numbers()
  local worst, scale = 0, 1e-30
  for i = 0, n - 1 do
    worst, scale = math.max(worst, math.abs(a[i] - b[i])), math.max(scale, math.abs(b[i]))
    if a[i] ~= a[i] then return math.huge end
  end
  return worst / scale
end

--- close(got, expected, tolerance, what): the largest difference relative to the largest value.
function M.close(got, expected, tolerance, what)
  t.same(got.shape, expected.shape)
  local d = distance(got, expected)
  t.check(d <= tolerance, ("%s is off by %.2g relative; %g is allowed"):format(what, d, tolerance))
end

--- write_folder(path, config, tensors) writes the folder of a model; config: the text of its
--- config.json, or a table; tensors: by name.
function M.write_folder(path, config, tensors)
  files.make_folder(path)
  files.write(path .. "/config.json", type(config) == "string" and config or files.json(config, ""))
  nn.save_safetensors(path .. "/model.safetensors", tensors, {format = "pt"})
end

--- read(golden) -> the text of config.json, the tensors by name (those of weight_of), the values of
--- transformers, and the names and shapes of the tensors, of a model in tests/golden.
function M.read(golden)
  local expected, metadata = nn.load_safetensors(golden .. ".safetensors")
  local shapes, tensors = files.parse_json(metadata.shapes), {}
  for _, entry in ipairs(shapes) do tensors[entry[1]] = M.weight_of(entry[1], entry[2]) end
  return files.read(golden .. "/config.json"), tensors, expected, shapes
end

--- names(golden) -> the names of the models in a folder of tests/golden.
function M.names(golden)
  local names = {}
  for _, file in ipairs(files.list(golden)) do
    names[#names + 1] = file:match "^(.*)%.safetensors$"
  end
  return names
end

--- cases(golden, folder) -> case(name, title, f), which tests f(path, expected, shapes): the folder
--- of a model, its values of transformers, and the names and shapes of its parameters there.
function M.cases(golden, folder)
  return function(name, title, f)
    t.case(name .. ": " .. title, function()
      local config, tensors, expected, shapes = M.read(golden .. name)
      M.write_folder(folder .. "/" .. name, config, tensors)
      f(folder .. "/" .. name, expected, shapes)
    end)
  end
end

--- check_norms(gradients, expected, shapes): compares gradients by their names with those of
--- PyTorch, to 1e-4: their norms, and their products with three probe vectors.
function M.check_norms(gradients, expected, shapes)
  for i, entry in ipairs(shapes) do
    local gradient, norm = gradients[entry[1]]:reshape(entry[2]), expected.gradients:at(i, 1)
    t.near(gradient:square():sum():sqrt():item(), norm, {rel = 1e-4, abs = 1e-6}, entry[1])
    for k = 0, 2 do
      local vector = M.weight_of(("probe %d %s"):format(k, entry[1]), entry[2])
      t.near((gradient * vector):sum():item(), expected.gradients:at(i, k + 2),
             {rel = 1e-4, abs = 1e-4 * norm + 1e-6}, entry[1])
    end
  end
end

--- check_gradients(model, path, expected, shapes): compares the gradients of the model's parameters
--- with those of transformers, as check_norms does.
function M.check_gradients(model, path, expected, shapes)
  nn.no_grad(function()
    for _, p in ipairs(model:parameters()) do
      assert(p.tensor.grad, p.path .. " has no gradient")
      p.tensor:copy_(p.tensor.grad)
    end
  end)
  nn.save_hf(path .. "/gradients", model)                        -- under their names
  M.check_norms(nn.load_safetensors(path .. "/gradients/model.safetensors"), expected, shapes)
end

--- check_training(model, expected, batch, loss_of): 20 steps on the tensors batch(i), of which
--- loss_of(...) is the loss, give the losses of PyTorch to 1e-4. AdamW divides by the size of the
--- gradients, so rounding in small ones grows: the norms agree to 5e-4.
function M.check_training(model, expected, batch, loss_of)
  local optim = nn.AdamW(model, {lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8,
                                 weight_decay = 0.1, clip = 1})
  local step = nn.compile(function(...)
    optim:zero_grad()
    local loss = loss_of(...)
    loss:backward()
    return loss, optim:step()
  end)
  for i = 1, 20 do
    local loss, norm = step(batch(i))
    t.near(loss:item(), expected["train/loss"]:at(i), {rel = 1e-4})
    t.near(norm:item(), expected["train/grad_norm"]:at(i), {rel = 5e-4})
  end
end

--- check_saved(path): a model loaded from the folder and saved again, in shards, has the same
--- tensors and settings.
function M.check_saved(path)
  local model = nn.load_hf(path)
  nn.save_hf(path .. "/saved", model, nil, {shard_bytes = 20000})
  local before = nn.load_safetensors(path .. "/model.safetensors")
  local after = nn.load_safetensors(path .. "/saved/model.safetensors.index.json")
  for key, x in pairs(before) do
    t.check(after[key], key .. " is missing")
    t.same(after[key]:table(), x:table(), key)
    after[key] = nil
  end
  t.same(next(after), nil)
  t.same(nn.load_hf(path .. "/saved").config, model.config)
end

return M
