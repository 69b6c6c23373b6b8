-- models/mixer.lua against PyTorch (tests/golden/make_mixer.py), and recipes/mixer_train.lua.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local Mixer = require "models.mixer"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small = require "small_models"

local expected, metadata = nn.load_safetensors(root .. "/tests/golden/mixer.safetensors")
local sizes, shapes = files.parse_json(metadata.sizes), files.parse_json(metadata.shapes)
local folder = t.folder()

-- The names of timm for the paths of parameters.
local function their_name(path)
  local block, rest = path:match "^blocks%.(%d+)%.(.*)$"
  if block then path = ("blocks.%d.%s"):format(block - 1, rest) end
  for ours, theirs in pairs {["^stem"] = "stem.proj", across_patches = "mlp_tokens",
                             across_channels = "mlp_channels", ["%.up"] = ".fc1",
                             ["%.down"] = ".fc2"} do
    path = path:gsub(ours, theirs)
  end
  return path
end

-- The model with the weights of small.weight_of. timm's stem is a convolution (C, channels, p, p).
local function new_model()
  local model, shape_of = Mixer(sizes), {}
  for _, entry in ipairs(shapes) do shape_of[entry[1]] = entry[2] end
  nn.no_grad(function()
    for _, p in ipairs(model:parameters()) do
      local name = their_name(p.path)
      p.tensor:copy_(small.weight_of(name, assert(shape_of[name], name)):reshape(p.tensor.shape))
      shape_of[name] = nil
    end
  end)
  t.same(next(shape_of), nil)
  return model
end

-- Images and labels number i, from 1.
local function batch(i)
  local images = (expected.images:to "f32" / 64):slice(1, i, i)
  return images:reshape(3, sizes.channels, sizes.size, sizes.size):clone(),
         expected.labels:slice(1, i, i):reshape(3):clone()
end

t.case("logits equal those of PyTorch to 1e-5, and gradients to 1e-4", function()
  local model = new_model()
  local images, labels = batch(1)
  local scale = expected.logits:abs():max():item()
  t.near(nn.no_grad(model, images), expected.logits, {abs = 1e-5 * scale})
  model(images, labels):backward()
  local gradients = {}
  for _, p in ipairs(model:parameters()) do gradients[their_name(p.path)] = p.tensor.grad end
  small.check_norms(gradients, expected, shapes)
end)

t.case("20 steps of training give the losses of PyTorch to 1e-4, and its norms to 5e-4", function()
  local model = new_model()
  small.check_training(model, expected, batch, model)
end)

t.case("settings and images that do not fit are errors", function()
  t.fails(function() Mixer {layers = 1, embd = 8, size = 10, patch = 4, classes = 2} end,
          "mixer: size = 10 is not a multiple of patch = 4")
  t.fails(function() Mixer {layers = 1, embd = 8, size = 8, patch = 4} end,
          "mixer: 'classes' is missing; Mixer{classes = 1000, ...}")
  t.fails(function() Mixer {layers = 0, embd = 8, size = 8, patch = 4, classes = 2} end,
          "mixer: layers is 0; a whole number of at least 1 is needed")
  local model = new_model()
  t.fails(function() model(nn.zeros(1, 1, 12, 12)) end,
          "mixer: the images are (batch,1,12,12); (batch,3,12,12) is needed")
  t.fails(function() model(nil) end, "mixer: the images are no tensor of 4 axes")
end)

t.case("bf16 stays near f32", function()
  local model, half = new_model(), Mixer(setmetatable({dtype = "bf16"}, {__index = sizes}))
  nn.no_grad(function()
    local theirs = model:parameters()
    for i, p in ipairs(half:parameters()) do p.tensor:copy_(theirs[i].tensor) end
  end)
  local images = batch(1)
  local scale = expected.logits:abs():max():item()
  t.near(nn.no_grad(half, images):to "f32", expected.logits, {abs = 0.05 * scale})
end)

local function recipe(words)
  return t.shell(("cd '%s'; $NNLUA %s/recipes/mixer_train.lua data.images=600 data.val_images=200 "
    .. "model.layers=2 model.embd=32 model.patch=7 %s 2>&1"):format(folder, root, words))
end

t.case("the recipe plans, trains, resumes and saves a classifier", function()
  local status, output = recipe "--plan"
  t.check(status == 0 and ("\n" .. output):find "\nparameters +20%.0k\n", output)
  t.same(files.exists(folder .. "/runs"), false)
  status, output = recipe "steps=60 eval_every=0 out=run data.noise=0"
  t.check(status == 0 and output:find "done after", output)
  status, output = recipe "steps=150 resume=auto out=run"
  t.check(status == 0 and output:find("resumed after step 60", 1, true), output)
  local accuracy = tonumber(output:match("accuracy (%d%.%d+)  val_loss [%d%.]+ "
                                         .. "%(all %d+ batches%); saved"))
  t.check(accuracy > 0.4, output)                      -- guessing gives 0.1
  local model = nn.load_model(folder .. "/run")
  t.same({model.config.patch, model(nn.zeros(2, 1, 28, 28)):dims()}, {7, 2, 10})
  status, output = recipe "model.size=30 out=other"
  t.check(status == 1 and output:find("size = 30 is not a multiple of patch = 7", 1, true), output)
end)

t.case("a resumed run has the losses of the whole one", function()
  local function losses(name, words)
    local status, output = recipe(("eval_every=0 log_every=1 save_every=4 out=%s %s"):format(name,
                                                                                      words))
    t.check(status == 0, output)
    return require("nn.train.metrics").read(folder .. "/" .. name).series.loss.value
  end
  local whole = losses("whole", "steps=8")
  t.same(losses("rest", "resume=whole/checkpoint-000004"), {unpack(whole, 5)})
end)

t.finish()
