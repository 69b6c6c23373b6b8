-- The decoders in models/ against transformers (tests/golden/make_decoders.py): logits, gradients,
-- training, generation, and folders read and written in the format of transformers.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local golden = require("nn.host").root .. "/tests/golden/decoders/"
local folder = t.folder()

-- The function weight_of of make_decoders.py.
local function weight_of(name, shape)
  local count, values = 1, {}
  for _, size in ipairs(shape) do count = count * size end
  local state = files.crc32(name) % 2147483647
  local is_scale = (name:find "norm" or name:find "ln_") and name:find "weight$" and count < 100
  local factor, base = is_scale and 0.5 or 1, is_scale and 1 or 0
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

local function close(got, expected, tolerance, what)
  t.same(got.shape, expected.shape)
  local d = distance(got, expected)
  t.check(d <= tolerance, ("%s is off by %.2g relative; %g is allowed"):format(what, d, tolerance))
end

-- Writes the folder of a model as transformers does, with the weights of weight_of.
local function write_folder(name, shapes)
  local path, tensors = folder .. "/" .. name, {}
  files.make_folder(path)
  files.write(path .. "/config.json", files.read(golden .. name .. "/config.json"))
  for _, entry in ipairs(shapes) do tensors[entry[1]] = weight_of(entry[1], entry[2]) end
  nn.save_safetensors(path .. "/model.safetensors", tensors, {format = "pt"})
  return path
end

local function case(name, title, f)
  t.case(name .. ": " .. title, function()
    local expected, metadata = nn.load_safetensors(golden .. name .. ".safetensors")
    local shapes = files.parse_json(metadata.shapes)
    f(write_folder(name, shapes), expected, shapes)
  end)
end

local names = {}
for _, file in ipairs(files.list(golden)) do
  names[#names + 1] = file:match "^(.*)%.safetensors$"
end

for _, name in ipairs(names) do
  case(name, "logits equal those of transformers to 1e-5", function(path, expected)
    local model = nn.load_hf(path)
    close(model(expected.ids), expected.logits, 1e-5, "logits")
    close(model(expected.ids:retile {1, 6}), expected.logits, 1e-5, "logits of tiles")
  end)

  case(name, "100 greedy tokens are those of transformers, with and without caches",
       function(path, expected)
    local model, wanted = nn.load_hf(path), expected.greedy:table()
    local prompt, how = {unpack(wanted, 1, 5)}, {tokens = 100, temperature = 0}
    t.same(nn.generate(model, prompt, how), wanted)
    local shorter = {unpack(wanted, 1, 3)}                       -- prompts of different lengths
    t.same(nn.generate(model, {prompt, shorter}, how)[1], wanted)
    model.caches = false
    how.tokens = 12
    t.same(nn.generate(model, prompt, how), {unpack(wanted, 1, 17)})
  end)

  case(name, "gradients equal those of transformers to 1e-4", function(path, expected, shapes)
    local model = nn.load_hf(path)
    local ids, time = expected.ids, expected.ids:dim(2)
    model(ids:slice(2, 1, time - 1):clone(), ids:slice(2, 2, time):clone()):backward()
    nn.no_grad(function()
      for _, p in ipairs(model:parameters()) do
        assert(p.tensor.grad, p.path .. " has no gradient")
        p.tensor:copy_(p.tensor.grad)
      end
    end)
    nn.save_hf(path .. "/gradients", model)                      -- under their names
    local gradients = nn.load_safetensors(path .. "/gradients/model.safetensors")
    for i, entry in ipairs(shapes) do
      local gradient, norm = gradients[entry[1]], expected.gradients:at(i, 1)
      t.near(gradient:square():sum():sqrt():item(), norm, {rel = 1e-4, abs = 1e-6}, entry[1])
      for k = 0, 2 do
        local vector = weight_of(("probe %d %s"):format(k, entry[1]), entry[2])
        t.near((gradient * vector):sum():item(), expected.gradients:at(i, k + 2),
               {rel = 1e-4, abs = 1e-4 * norm + 1e-6}, entry[1])
      end
    end
  end)

  case(name, "20 steps of training give the losses and norms of PyTorch to 1e-4",
       function(path, expected)
    local model = nn.load_hf(path)
    local optim = nn.AdamW(model, {lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8,
                                   weight_decay = 0.1, clip = 1})
    local step = nn.compile(function(ids, targets)
      optim:zero_grad()
      local loss = model(ids, targets)
      loss:backward()
      return loss, optim:step()
    end)
    for i = 1, 20 do
      local ids = expected["train/ids"]:slice(1, i, i):reshape(3, 11)
      local loss, norm = step(ids:slice(2, 1, 10):clone(), ids:slice(2, 2, 11):clone())
      t.near(loss:item(), expected["train/loss"]:at(i), {rel = 1e-4})
      t.near(norm:item(), expected["train/grad_norm"]:at(i), {rel = 1e-4})
    end
  end)

  case(name, "a saved folder has the tensors and the settings of the one it was loaded from",
       function(path)
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
  end)
end

t.case("settings that transformers does not have are not saved as others", function()
  local Llama = require "models.llama"
  local size = {layers = 2, heads = 2, embd = 16, vocab = 20, context = 8}
  for _, more in ipairs {{window = 4, window_from = 1}, {window = 4, bias = "attention"},
                         {qk_norm = true, bias = "qkv"}, {qk_norm = true, bias = "all"}} do
    for name, value in pairs(size) do more[name] = value end
    t.fails(function() nn.save_hf(t.folder() .. "/new", Llama(more)) end,
            "transformers has no model of this bias, qk_norm and window")
  end
  local path = t.folder() .. "/neo"
  size.window = 0
  nn.save_hf(path, require "models.gpt_neo" (size))
  t.same(files.parse_json(files.read(path .. "/config.json")).window_size, size.context)
end)

t.finish()
