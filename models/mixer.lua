-- MLP-Mixer (Tolstikhin et al. 2021): an image as a sequence of patches, and blocks of two MLPs,
-- one across the patches of each channel, one across the channels of each patch. Sizes as in timm.
-- Shapes: B images of `channels` x size x size, P patches, C = embd.
local nn, class = require "nn", require "nn.models.class"
local field = nn.field

local MLP, Block, Mixer = nn.module "MLP", nn.module "Block", nn.module "Mixer"

function Mixer.fields()
  return {
    layers = field(8, "blocks", {min = 1, needed = true}),
    embd = field(512, "hidden size", {min = 1, needed = true}),
    size = field(224, "height and width of an image in pixels", {min = 1, needed = true}),
    patch = field(16, "height and width of a patch, a divisor of size", {min = 1, needed = true}),
    classes = field(1000, "classes of images", {min = 1, needed = true}),
    channels = field(3, "channels of an image, such as 1 (grey) or 3 (colours)", {min = 1}),
    patch_inner = field(0, "hidden size of the MLP across patches; 0: embd / 2", {min = 0}),
    inner = field(0, "hidden size of the MLP across channels; 0: 4 embd", {min = 0}),
    eps = field(1e-6, "added to the variance in norms", {min = 0}),
    dropout = field(0, "dropout in the MLPs in training", {min = 0, max = 0.99, real = true}),
    dtype = field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  }
end
Mixer.dimensions = {"layers", "embd", "size", "patch", "classes", "channels"}
function Mixer.shapes(given) return class.shapes(Mixer, given) end

-- Weights start with the variance 1 / inputs, as in the paper's program (LeCun et al. 1998).
local function linear(inputs, outputs, c)
  return nn.Linear(inputs, outputs, {std = 1 / math.sqrt(inputs), dtype = c.dtype})
end

function MLP:init(width, inner, c)
  self.up, self.down = linear(width, inner, c), linear(inner, width, c)
  self.drop = nn.Dropout(c.dropout)
end

function MLP:forward(x)
  return self.drop(self.down(self.drop(nn.gelu_exact(self.up(x)))))
end

function Block:init(c)
  local norm = {eps = c.eps, dtype = c.dtype}
  self.norm1, self.across_patches = nn.LayerNorm(c.embd, norm), MLP(c.patches, c.patch_inner, c)
  self.norm2, self.across_channels = nn.LayerNorm(c.embd, norm), MLP(c.embd, c.inner, c)
end

-- x (B,P,C): the residual stream, delta: the output of the previous layer, which norm1 adds to x.
function Block:forward(x, delta)
  local h
  if delta then x, h = self.norm1(x, delta) else h = self.norm1(x) end
  x, h = self.norm2(x, self.across_patches(h:transpose(2, 3)):transpose(2, 3))
  return x, self.across_channels(h)
end

--- Mixer{layers, embd, size, patch, classes, channels=3, patch_inner=embd/2, inner=4 embd,
--- eps=1e-6, dropout=0, dtype="f32"} -> a classifier of images with random weights. Errors:
--- missing, unknown or invalid settings.
---     Mixer({layers = 2, embd = 32, size = 28, patch = 7, classes = 10}):count()  --> 23178
function Mixer:init(given)
  local c = class.checked(Mixer, given)
  if c.size % c.patch ~= 0 then
    nn.fail("mixer: size = %d is not a multiple of patch = %d", c.size, c.patch)
  end
  if c.patch_inner == 0 then c.patch_inner = math.ceil(c.embd / 2) end
  if c.inner == 0 then c.inner = 4 * c.embd end
  self.config, self.patches = c, (c.size / c.patch) ^ 2
  local sizes = setmetatable({patches = self.patches}, {__index = c})
  self.stem = linear(c.channels * c.patch ^ 2, c.embd, c)
  self.blocks = nn.list(c.layers, function() return Block(sizes) end)
  self.norm = nn.LayerNorm(c.embd, {eps = c.eps, dtype = c.dtype})
  self.head = nn.Linear(c.embd, c.classes, {std = 0, dtype = c.dtype})
end

-- Images (B, channels, size, size) as patches (B, P, channels patch patch).
function Mixer:cut(images)
  local c, batch = self.config, images:dim(1)
  local n, p = c.size / c.patch, c.patch
  local cut = images:reshape(batch, c.channels, n, p, n, p):permute {1, 3, 5, 2, 4, 6}
  return cut:reshape(batch, n * n, c.channels * p * p)
end

--- model(images) -> logits (B, classes) for images (B, channels, size, size).
--- model(images, labels, {scale=1}) -> scale * mean cross-entropy, for labels (B) i32 from 0.
--- Errors: images of another shape.
---     local model = Mixer {layers = 1, embd = 8, size = 4, patch = 2, classes = 3}
---     model(nn.rand(5, 3, 4, 4)):dims()  --> 5, 3
function Mixer:forward(images, labels, options)
  local c = self.config
  local shape = nn.is_tensor(images) and table.concat(images.shape, ",", 2) or ""
  local needed = table.concat({c.channels, c.size, c.size}, ",")
  if shape ~= needed then
    nn.fail("mixer: the images are %s; (batch,%s) is needed",
            shape ~= "" and ("(batch,%s)"):format(shape) or "no tensor of 4 axes", needed)
  end
  local x, delta = self.stem(self:cut(images:to(c.dtype)))
  for _, block in ipairs(self.blocks) do x, delta = block(x, delta) end
  local _, h = self.norm(x, delta)
  local logits = self.head(h:mean(2))
  if not labels then return logits end
  options = nn.options("mixer", options, {scale = true})
  return nn.cross_entropy(logits, labels) * (options.scale or 1)
end

--- model:flops_per_token() -> FLOPs per patch, forward and backward.
---     Mixer({layers = 1, embd = 8, size = 4, patch = 2, classes = 3}):flops_per_token()  --> 4068
function Mixer:flops_per_token()
  local c = self.config
  local block = 2 * c.embd * (c.patch_inner + c.inner)
  local stem, head = c.channels * c.patch ^ 2 * c.embd, c.embd * c.classes / self.patches
  return 6 * (stem + c.layers * block + head)
end

return Mixer
