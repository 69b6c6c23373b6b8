-- Trains an MLP-Mixer on images of digits that this file draws: shifted, slanted, of several sizes
-- and strengths, with noise. A token is a patch of an image.
--   nnlua recipes/mixer_train.lua                                  a minute
--   nnlua recipes/mixer_train.lua model.layers=8 model.embd=128 steps=2000
--   nnlua recipes/mixer_train.lua --plan                           memory and time of a step
local ffi = require "ffi"
local nn, Mixer = require "nn", require "models.mixer"
local random = require("nn.data.random").random

local fields = Mixer.fields()
local function field(name, default, limits)            -- of the model, with a default for digits
  fields[name] = nn.field(default, fields[name].meaning, limits or {min = 1})
end
field("layers", 4)
field("embd", 64)
field("size", 28, {min = 20})
field("patch", 4)
field("channels", 1, {min = 1, max = 1})
field("classes", 10, {min = 10, max = 10})
local cfg = nn.config({
  model = fields,
  data = {
    images = nn.field(6000, "images for training", {min = 1}),
    val_images = nn.field(1000, "images for validation", {min = 1}),
    noise = nn.field(0.3, "largest difference of a pixel from the drawing", {min = 0, max = 1}),
    batch = nn.field(64, "images per step", {min = 1}),
  },
  optim = {
    lr = nn.field(2e-3, "peak learning rate", {min = 0}),
    weight_decay = nn.field(0.05, "weight decay of matrices", {min = 0}),
    clip = nn.field(1, "largest gradient norm; 0: no limit", {min = 0, real = true}),
  },
  nn.run_fields {steps = 800, eval_every = 100, out = "runs/mixer"},
}, arg)

-- ### Images

local glyphs = {                                       -- 7 rows of 5 pixels, row by row
  [0] = ".###.#...##...##...##...##...#.###.", "..#...##....#....#....#....#...###.",
  ".###.#...#....#...#...#...#...#####", "####.....#....#.###.....#....#####.",
  "...#...##..#.#.#..#.#####...#....#.", "######....####.....#....##...#.###.",
  ".###.#....#....####.#...##...#.###.", "#####....#...#...#...#....#....#...",
  ".###.#...##...#.###.#...##...#.###.", ".###.#...##...#.####....#....#.###.",
}

-- Draws image `number` of a set to pixels (size, size), values from 0 to 1; returns its digit.
local function draw(pixels, size, set, number)
  local count = 0
  local function uniform(low, high)
    count = count + 1
    return low + (high - low) * random(set, number * 4096 + count)
  end
  local digit = math.floor(uniform(0, 10))
  local width, height = uniform(2, 3.2), uniform(2, 2.8)             -- pixels per pixel of a glyph
  local left = (size - 5 * width) / 2 + uniform(-4, 4)
  local top = (size - 7 * height) / 2 + uniform(-4, 4)
  local slant, strength = uniform(-0.35, 0.35), uniform(0.5, 1)
  for y = 0, size - 1 do
    local row = math.floor((y + 0.5 - top) / height)
    for x = 0, size - 1 do
      local column = math.floor((x + 0.5 - left) / width + slant * (row - 3))
      local inside = row >= 0 and row < 7 and column >= 0 and column < 5
      local at = 5 * row + column + 1
      local ink = inside and glyphs[digit]:sub(at, at) == "#" and strength or 0
      local value = ink + uniform(-cfg.data.noise, cfg.data.noise)
      pixels[y * size + x] = math.max(0, math.min(1, value))
    end
  end
  return digit
end

local function digits(set, count)
  local size = cfg.model.size
  local values, labels = ffi.new("float[?]", count * size * size), ffi.new("int32_t[?]", count)
  for i = 0, count - 1 do labels[i] = draw(values + i * size * size, size, set, i) end
  return nn.data {
    arrays = {image = {data = values, shape = {count, 1, size, size}, dtype = "f32"},
              label = {data = labels, shape = {count}, dtype = "i32"}},
    fields = {"image", "label"}, batch = cfg.data.batch, shuffle = true, seed = cfg.seed,
    name = "drawn digits", context = math.ceil(size / cfg.model.patch) ^ 2}
end

-- ### Training

local run = nn.run(cfg)
local train, val = digits(1, cfg.data.images), digits(2, cfg.data.val_images)
local lr = nn.schedule {kind = "cosine", lr = cfg.optim.lr, warmup = math.min(50, cfg.steps),
                        steps = cfg.steps}

local function build()
  local net = Mixer(cfg.model)
  local optim = nn.AdamW(net, {clip = cfg.optim.clip > 0 and cfg.optim.clip or nil,
                               weight_decay = cfg.optim.weight_decay})
  return net, optim, nn.compile(function(images, labels)
    optim:zero_grad()
    local loss = net(images, labels)
    loss:backward()
    return loss, optim:step()
  end)
end
if not run:plan(build, train) then return end
local net, optim, step = build()

local classify = nn.compile(function(images) return net(images):argmax {axis = -1} end)
local function accuracy()
  local right, total = 0, 0
  nn.training(false)
  for images, labels, count in val:windows() do
    right = right + nn.no_grad(classify, images):eq(labels):sum():item()
    total = total + count
  end
  nn.training(true)
  return right / total
end

run:track {model = net, optim = optim, data = train}
for n in run:steps() do
  optim.lr = lr(n)
  run:record(step(train:batch()))
  run:every(cfg.eval_every, function()
    run:report {val_loss = run:validate(net, val), accuracy = accuracy()}
  end)
end
run:done {val_loss = run:validate(net, val), accuracy = accuracy()}
