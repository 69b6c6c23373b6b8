-- Random small modules of ordinary ops, each from a seed: for tests that compare one pass over a
-- batch with microbatches (accumulation.lua). A module consists of the parts of random_layers.lua
-- and of others that are derived from the registry: every differentiable op, on its samples.
-- Parameters are shared, frozen, used often or never, and read as a whole, as a slice or as a view.
local files = require "nn.io.files"
local nn = require "nn"
local layers = require "random_layers"
local samples = require "samples"

local M = {}
local T, C, V = layers.time, layers.width, layers.vocab
local PARTS, MOST_PARAMETERS = 5, 6
M.rows = 24                      -- of a batch; divisible by 1, 2, 3, 4 and 8

-- Ways to hold a parameter of each kind: the shape that is stored, and what reads it.
local function whole(p) return p end
local kinds = {
  vector = {
    {"whole", {C}, whole}, {"slice", {2 * C}, function(p) return p:slice(1, 3, C + 2) end},
    {"view", {C, 1}, function(p) return p:reshape(C) end},
    {"element of rows", {3, C}, function(p) return p[2] end},
    {"chunk", {2 * C}, function(p) return (p:chunk(2, 1)) end},
  },
  matrix = {
    {"whole", {C, C}, whole}, {"transposed", {C, C}, function(p) return p:t() end},
    {"slice", {C + 2, C}, function(p) return p:slice(1, 2, C + 1) end},
    {"view", {C * C}, function(p) return p:reshape(C, C) end},
  },
  time_matrix = {{"whole", {T, T}, whole}, {"slice", {T, T + 1}, function(p)
    return p:slice(2, 2, T + 1)
  end}},
  table = {{"whole", {V, C}, whole}, {"slice", {V + 3, C}, function(p)
    return p:slice(1, 1, V)
  end}},
  row = {{"whole", {1, C}, whole}, {"three axes", {1, 1, C}, whole}},
  column = {{"whole", {T, 1}, whole}, {"view", {T}, function(p) return p:reshape(T, 1) end}},
  grid = {{"whole", {T, C}, whole}, {"one example", {1, T, C}, function(p)
    return p:squeeze(1)
  end}},
  scalar = {{"one element", {1}, whole}, {"no axes", {}, whole}, {"two axes", {1, 1}, whole}},
}
-- A value in the range of a sample's input, from any value.
local function in_range(spec, z)
  local low, high = spec.lo or -1, spec.hi or 1
  return z:sigmoid() * (high - low) + low
end

local function single(declared)
  return #declared.outputs == 1 and #declared.attributes == 0 and not declared.list
end

-- Parts of an op that works element by element on x, or on x and a parameter.
local function pointwise_part(declared)
  local spec = samples.parse(declared.samples[1])
  local a, b = declared.inputs[1].name, (declared.inputs[2] or {}).name
  local f = nn[declared.name]
  if #declared.inputs == 1 then
    return {wants = {"vector"}, run = function(x, p)
      return x + f(in_range(spec[a], x * p[1])) * 0.3
    end}
  end
  return {wants = {"vector"}, run = function(x, p)
    local y, q = in_range(spec[a], x), in_range(spec[b], p[1])
    return x + f(y, q) * 0.2
  end}
end

local is_float = {f32 = true, f64 = true, bf16 = true}

-- A part that applies an op to parameters alone, with the arguments of a sample; the result, as one
-- number, scales x.
local function sample_part(declared, text)
  return {wants = {}, make = function(o)
    local inputs, values = samples.arguments(declared, text, o.dtype)
    local held = {values = values, inputs = inputs}
    for i = 1, table.maxn(inputs) do
      local x = inputs[i]
      if nn.is_tensor(x) and is_float[x.dtype] then
        inputs[i] = x:clone()
        inputs[i].requires_grad, inputs[i].role = true, "parameter"
      end
    end
    return held
  end, run = function(x, _, held)
    local results = {require("nn.core.op").invoke(declared.name, held.inputs, {unpack(held.values,
      1, table.maxn(held.values))})}
    local sum
    for i, output in ipairs(declared.outputs) do
      local y = results[i]
      if y and output.differentiable and is_float[y.dtype] then
        local weights = nn.arange(y:count(), {dtype = "f64"}):sin():reshape(y.shape):to(y.dtype)
        local term = (y * weights):mean()
        sum = sum and sum + term:to(sum.dtype) or term
      end
    end
    return x * (1 + sum:to(x.dtype):tanh() * 0.5)
  end}
end

-- Whether two passes over the same rows may differ: masks of dropout.
local function is_random(declared, text)
  return declared.mask ~= nil and (declared.name == declared.mask or text:find "dropout" ~= nil
                                   or declared.name == "dropout")
end

-- The names of all parts: `first` with one sample of each op, `others`.
local by_name, first, others = {}, {}, {}
local function add(list, name, part)
  by_name[name] = part
  list[#list + 1] = name
end
for name, part in pairs(layers.parts) do add(first, name, part) end
samples.each(function(declared, text)
  if is_random(declared, text) then return end
  local is_first = text == declared.samples[1]
  if is_first and declared.category == "pointwise" and #declared.inputs < 3
     and single(declared) then
    add(others, "pointwise " .. declared.name, pointwise_part(declared))
  end
  add(is_first and first or others, ("op %s %s"):format(declared.name, text),
      sample_part(declared, text))
end, function(declared) return not declared.no_gradient and #declared.inputs > 0 end,
{"bf16", "i32", "f64"})

-- A random generator of its own, so that a seed makes the same module in every process.
local function generator(seed)
  local next_number = samples.random(files.crc32("module " .. seed) % 2147483646 + 1)
  local r = {}
  function r.number(low, high) return next_number(low, high) end
  function r.one_of(list) return list[next_number(1, #list)] end
  function r.chance(percent) return next_number(1, 100) <= percent end
  return r
end

-- Losses of logits (rows, T, V); counted: whether targets may be ignored.
local losses = {
  cross_entropy = function(logits, targets) return (nn.cross_entropy(logits, targets)) end,
  flat = function(logits, targets)
    return (nn.cross_entropy(logits:reshape(-1, V), targets:reshape(-1)))
  end,
  smoothed = function(logits, targets)
    return nn.cross_entropy(logits, targets, {label_smoothing = 0.1})
  end,
  nll = function(logits, targets) return nn.nll_loss(logits:log_softmax(), targets) end,
}
-- Losses of every element, which ignore no target.
local plain = {
  mse = function(y, z) return nn.mse(y, z) end,
  l1 = function(y, z) return nn.l1_loss(y, z) end,
  huber = function(y, z) return nn.huber_loss(y, z, {delta = 0.7}) end,
  smooth_l1 = function(y, z) return nn.smooth_l1_loss(y, z) end,
  logits = function(y, z) return nn.binary_cross_entropy_with_logits(y, z:sigmoid()) end,
  probabilities = function(y, z) return nn.binary_cross_entropy(y:sigmoid(), z:sigmoid()) end,
  kl_div = function(y, z) return nn.kl_div(y:log_softmax(), z:softmax()) end,
  cosine = function(y, z)
    return nn.cosine_embedding_loss(y:reshape(-1, C), z:reshape(-1, C), nn.ones(y:count() / C))
  end,
  triplet = function(y, z)
    return nn.triplet_margin_loss(y:reshape(-1, C), z:reshape(-1, C), (y * 0.3):reshape(-1, C))
  end,
}
local heads = {"Linear", "tied", "linear_cross_entropy"}

local function sorted(t)
  local out = {}
  for key in pairs(t) do out[#out + 1] = key end
  table.sort(out)
  return out
end

local Random = nn.module "Random"

local function new_parameter(kind, way, dtype)
  local shape, std = way[2], kind == "vector" and 0.6 or 0.4
  if #shape == 0 then return nn.tensor(0.7, {dtype = dtype, grad = true}) end
  return nn.parameter(shape, {std = std, dtype = dtype})
end

-- A parameter of this kind: one that the module has already, or a new one -> what reads it, and
-- text for messages.
local function take(self, r, kind, dtype)
  local pool = self.pool[kind] or {}
  self.pool[kind] = pool
  local count = #self.own
  if #pool > 0 and (r.chance(50) or count >= MOST_PARAMETERS) then return r.one_of(pool) end
  local way = r.one_of(kinds[kind])
  local p = new_parameter(kind, way, dtype)
  self.own[count + 1] = p
  local held = {read = function() return way[3](p) end, tensor = p,
                text = ("%s %d (%s)"):format(kind, count + 1, way[1])}
  pool[#pool + 1] = held
  return held
end

-- Adds a part with its parameters.
local function add_part(self, r, name, dtype)
  local found = by_name[name]
  local entry = {name = name, run = found.run, p = {}, text = name}
  for i, kind in ipairs(found.wants) do
    entry.p[i] = take(self, r, kind, dtype)
    entry.text = entry.text .. ", " .. entry.p[i].text
  end
  if found.make then entry.layers = found.make {dtype = dtype} end
  self.steps[#self.steps + 1] = entry
end

function Random:init(description)
  local r, dtype = description.random, description.dtype
  self.own, self.pool, self.steps = {}, {}, {}
  self.tok = nn.Embedding(V, C, {std = 0.7, dtype = dtype})
  self.pos = r.chance(50) and nn.Embedding(T + 2, C, {std = 0.3, dtype = dtype}) or nil
  for _, name in ipairs(description.parts) do add_part(self, r, name, dtype) end
  self.head_kind, self.loss_kind = description.head, description.loss
  if self.head_kind ~= "tied" then
    self.head = nn.Linear(C, V, {std = 0.5, dtype = dtype, bias = r.chance(50)})
  end
  self.side = description.side
  if r.chance(30) then self.unused = nn.parameter({3}, {std = 1, dtype = dtype}) end
  local some = r.one_of(#self.own > 0 and self.own or {self.tok.weight})
  if r.chance(30) and #self.own > 1 then
    some.requires_grad, some.role = nil, "parameter"
    self.frozen = true
  end
end

-- x after all parts.
function Random:hidden(ids)
  local x = self.tok(ids, self.pos)
  for _, step in ipairs(self.steps) do
    local p = {}
    for i, held in ipairs(step.p) do p[i] = held.read() end
    x = step.run(x, p, step.layers, ids)
  end
  return x
end

function Random:forward(ids, targets, options)
  local scale = options and options.scale or 1
  local x = self:hidden(ids)
  local loss
  if self.head_kind == "linear_cross_entropy" then
    local head = self.head
    loss = nn.linear_cross_entropy(x, head.weight, targets, {bias = head.bias, scale = scale})
  else
    local logits = self.head and self.head(x) or x:matmul(self.tok.weight:t())
    loss = losses[self.loss_kind](logits, targets) * scale
  end
  if self.side then
    local z = (ids:unsqueeze(-1) * nn.arange(C, {start = 1, dtype = "f64"})):sin():to(x.dtype)
    loss = loss + plain[self.side](x, z):to(loss.dtype) * (0.3 * scale)
  end
  return loss
end

-- The order in which modules take parts: all of them before one comes again, those in `first`
-- first.
local order = {}
for _, names in ipairs {first, others} do
  local r = generator(#order)
  table.sort(names)
  while #names > 0 do order[#order + 1] = table.remove(names, r.number(1, #names)) end
end
M.parts = #order

--- describe(seed) -> what a module of this seed consists of; ignored: which targets are.
function M.describe(seed)
  local r = generator(seed)
  local d = {seed = seed, random = r, parts = {}}
  for i = 1, PARTS do d.parts[i] = order[((seed - 1) * PARTS + i - 1) % #order + 1] end
  d.dtype = r.one_of {"f32", "f32", "f32", "f64", "bf16"}
  d.head, d.loss = r.one_of(heads), r.one_of(sorted(losses))
  d.ignored = r.one_of {"none", "equal", "unequal"}
  d.smooth = true                -- whether gradients are slopes
  for _, name in ipairs(d.parts) do
    if layers.other_gradient[name] then d.smooth = false end
  end
  d.side = d.ignored ~= "unequal" and r.chance(40) and r.one_of(sorted(plain)) or nil
  return d
end

--- make(seed, dtype) -> {model=, ids=, targets=, text=, ignored=, dtype=}: the module of this seed,
--- and a batch for it. dtype: instead of its own one.
function M.make(seed, dtype)
  local d = M.describe(seed)
  d.dtype = dtype or d.dtype
  nn.seed(seed)
  local model = Random(d)
  local ids, targets = {}, {}
  for row = 1, M.rows do
    ids[row], targets[row] = {}, {}
    for time = 1, T do
      ids[row][time] = d.random.number(0, V - 1)
      local hidden = d.ignored == "equal" and time == 2
        or d.ignored == "unequal" and time <= (row * 5 + math.floor(row / 4)) % (T + 1)
      targets[row][time] = hidden and -100 or d.random.number(0, V - 1)
    end
  end
  local text = {}
  for i, step in ipairs(model.steps) do text[i] = step.text end
  return {seed = seed, model = model, dtype = d.dtype, ignored = d.ignored,
          ids = nn.tensor(ids, {dtype = "i32"}), targets = nn.tensor(targets, {dtype = "i32"}),
          text = ("seed %d, %s, %s, %s%s%s: %s"):format(
            seed, d.dtype, d.head, d.head == "linear_cross_entropy" and "" or d.loss,
            d.side and " and " .. d.side or "", model.frozen and ", one frozen" or "",
            table.concat(text, "; "))}
end

local first_choice = {
  one_of = function(list) return list[1] end, chance = function() return false end,
}

--- single(part, loss, side) -> a module in f64 of one part, whose parameters are read as a whole.
function M.single(part, loss, side)
  nn.seed(1)
  return Random {random = first_choice, dtype = "f64", parts = {part}, head = "Linear",
                 loss = loss or "cross_entropy", side = side}
end

--- losses, sides: the names of losses.
M.losses, M.sides = sorted(losses), sorted(plain)

--- twin(m) -> the module of the same seed in f64, with the values of m.
function M.twin(m)
  local twin, of_path = M.make(m.seed, "f64"), {}
  for _, p in ipairs(m.model:parameters()) do of_path[p.path] = p.tensor:to "f64" end
  nn.no_grad(function()
    for _, p in ipairs(twin.model:parameters()) do p.tensor:copy_(of_path[p.path]) end
  end)
  return twin
end

return M
