-- nn.accumulate against one pass: what a microbatch leaves for the next one, and targets that do
-- not count. The parameters are those of ordinary ops too; gradients of all of them are compared.
local GPT2 = require "models.gpt2"
local nn = require "nn"
local t = require "nn.test"

local V, C, T, B = 12, 6, 5, 8

-- (rows, T) i32 of each(i, t)
local function grid(rows, each)
  local out = {}
  for i = 1, rows do
    out[i] = {}
    for k = 1, T do out[i][k] = each(i, k) end
  end
  return nn.tensor(out, {dtype = "i32"})
end
local ids = grid(B, function(i, k) return (7 * i + 3 * k) % V end)
-- Row i has 0 to 4 targets that do not count.
local targets = grid(B, function(i, k) return k <= i % 5 and -100 or (5 * i + k) % V end)

-- A class whose mix(h) is that of `define`, between an embedding and a head.
local function class_with(define)
  local Mixed = nn.module "Mixed"
  function Mixed:init(dtype)
    self.tok, self.head = nn.Embedding(V, C, {dtype = dtype}), nn.Linear(C, V, {dtype = dtype})
    self.p = nn.parameter({C}, {value = 0.5, dtype = dtype})
    self.mean = nn.buffer(nn.ones(1, {dtype = dtype}))
  end
  function Mixed:forward(x, y, options)
    local loss = nn.cross_entropy(self.head(self:mix(self.tok(x))), y)
    return loss * (options and options.scale or 1)
  end
  define(Mixed)
  return Mixed
end

-- The loss and the gradients of all parameters in so many microbatches, as lists of numbers.
local function results_of(define, dtype, microbatches, compiled)
  nn.seed(4)
  local model = class_with(define)(dtype)
  local function step(x, y)
    model:zero_grad()
    local out = {nn.accumulate(model, microbatches, x, y)}
    for _, p in ipairs(model:parameters()) do
      local grad = p.tensor.grad
      out[#out + 1] = grad and grad:to "f64" or nn.zeros(1)
    end
    return unpack(out)
  end
  local out = {}
  for _, result in ipairs {(compiled and nn.compile(step) or step)(ids, targets)} do
    for _, number in ipairs(result:reshape(-1):table()) do out[#out + 1] = number end
  end
  return out
end

local function largest_difference(a, b)
  local worst = #a == #b and 0 or math.huge
  for i = 1, math.min(#a, #b) do worst = math.max(worst, math.abs(a[i] - b[i])) end
  return worst
end

-- Each uses the parameter p in another way, by ordinary ops.
local uses = {
  ["a sum"] = function(_, h, p) return h + p end,
  ["a product"] = function(_, h, p) return h * p end,
  ["a slice"] = function(_, h, p) return h * p:slice(1, 2, 2) end,
  ["several uses"] = function(_, h, p) return (h + p) * p - p:square() end,
  ["a matmul"] = function(_, h, p) return h + h:matmul(p:reshape(C, 1)) end,
  ["the tutorial's RMSNorm"] = function(_, h, p)
    return h * (h:square():mean {axis = -1, keepdim = true} + 1e-6):rsqrt() * p
  end,
  ["an embedding's weight in an op"] = function(self, h) return h * self.tok.weight:sum() end,
}

for name, use in pairs(uses) do
  t.case("the gradient does not depend on the number of microbatches: " .. name, function()
    local function define(class)
      function class:mix(h) return use(self, h, self.p) end
    end
    for dtype, tolerance in pairs {f32 = 1e-6, f64 = 1e-13, bf16 = 4e-3} do
      local whole = results_of(define, dtype, 1, false)
      for _, microbatches in ipairs {2, 4, 8} do
        for _, compiled in ipairs {false, true} do
          local worst = largest_difference(results_of(define, dtype, microbatches, compiled), whole)
          t.check(worst <= tolerance, dtype, microbatches, compiled, worst)
        end
      end
    end
  end)
end

-- Each leaves something for the next microbatch, so that the batch in parts is not the whole batch;
-- a compiled step must do what eager execution does.
local states = {
  ["a number"] = function(class)
    function class:mix(h)
      self.calls = (self.calls or 0) + 1
      return h * self.calls
    end
  end,
  ["a tensor that is replaced"] = function(class)
    function class:mix(h)
      local mean = h:mean():detach()
      self.average = self.average and self.average * 0.5 + mean * 0.5 or mean
      return h + self.average
    end
  end,
  ["a tensor that is replaced and not read"] = function(class)
    function class:mix(h)
      self.last = h:detach()
      return h * self.p
    end
  end,
  ["a buffer that changes in place"] = function(class)
    function class:mix(h)
      nn.no_grad(function() self.mean:add_(h:mean():reshape(1)) end)
      return h * self.mean:clone()
    end
  end,
  ["an upvalue"] = function(class)
    local last
    function class:mix(h)
      if last then h = h + last end
      last = h:mean():detach()
      return h
    end
  end,
  ["a parameter that only the first one uses"] = function(class)
    local used = false
    function class:mix(h)
      if used then return h end
      used = true
      return h * self.p
    end
  end,
  ["a parameter that the first one does not use"] = function(class)
    local calls = 0
    function class:mix(h)
      calls = calls + 1
      return calls > 1 and h * self.p or h
    end
  end,
  ["two tensors in turns"] = function(class)
    local one, other = nn.ones(C), nn.full({C}, 2)
    function class:mix(h)
      one, other = other, one
      return h * one:to(h.dtype)
    end
  end,
  ["a number in a coroutine"] = function(class)
    local numbers = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i) end end)
    function class:mix(h) return h * numbers() end
  end,
  ["a number far down in a list"] = function(class)
    local list = {}
    for i = 1, 2000 do list[i] = 0 end
    function class:mix(h)
      list[2000] = list[2000] + 1
      return h * list[2000]
    end
  end,
  ["gradients that are clipped"] = function(class)
    function class:mix(h)
      if self.tok.weight.grad then nn.clip_grad_norm_(self, 0.01) end
      return h * self.p
    end
  end,
}

for name, define in pairs(states) do
  t.case("compiled microbatches leave the next ones what eager ones do: " .. name, function()
    for dtype, tolerance in pairs {f32 = 0, bf16 = 4e-3} do
      for _, microbatches in ipairs {2, 4, 8} do
        local eager = results_of(define, dtype, microbatches, false)
        local worst = largest_difference(results_of(define, dtype, microbatches, true), eager)
        t.check(worst <= tolerance, dtype, microbatches, worst)
      end
    end
  end)
end

t.case("a shard weighs by its targets that count", function()
  local function trained(shards, microbatches, compiled)
    nn.cluster {shards = shards}
    nn.seed(1)
    local model = GPT2 {layers = 1, heads = 2, embd = 16, context = T, vocab = V}
    local optim = nn.SGD(model, {lr = 0})
    local function step(x, y)
      optim:zero_grad()
      local loss = nn.accumulate(model, microbatches, x, y)
      return loss, optim:step()
    end
    local loss, norm = (compiled and nn.compile(step) or step)(ids, targets)
    nn.cluster {shards = 1}
    return loss:item(), norm:item()
  end
  local loss, norm = trained(1, 1, false)
  for _, shards in ipairs {1, 2, 4} do
    for _, compiled in ipairs {false, true} do
      local l, n = trained(shards, 4, compiled)
      t.near(l, loss, {rel = 1e-6}, shards)
      t.near(n, norm, {rel = 1e-6}, shards)
    end
  end
end)

t.case("other targets of a microbatch than those given weigh right or are refused", function()
  local function loss_of(change, options)
    nn.seed(2)
    local model = class_with(function(class) function class:mix(h) return h end end)()
    return function(microbatches, y)
      return nn.accumulate(function(x, part, o)
        local logits = model.head(model.tok(x)):reshape(-1, V)
        return nn.cross_entropy(logits, change(part), options) * o.scale
      end, microbatches, ids, y or targets):item()
    end
  end
  local flat = loss_of(function(y) return y:reshape(-1) end)
  t.near(flat(4), flat(1), {rel = 1e-6})
  local wide = loss_of(function(y) return y:reshape(-1):to "i64" end)
  t.near(wide(4), flat(1), {rel = 1e-6})
  local detached = loss_of(function(y) return y:detach():to "f32":to "i32":reshape(-1) end)
  t.near(detached(4), flat(1), {rel = 1e-6})
  local smooth = loss_of(function(y) return y:reshape(-1) end, {label_smoothing = 0.1})
  t.near(smooth(4), smooth(1), {rel = 1e-6})
  local zero = targets:eq(-100):where(0, targets)
  local other = loss_of(function(y) return y:reshape(-1) end, {ignore_index = 0})
  t.near(other(4, zero), other(1, zero), {rel = 1e-6})
  for _, change in ipairs {function(y) return y:eq(3):where(-100, y):reshape(-1) end,
                           function(y) return (y:to "f32" + 0):to "i32":reshape(-1) end} do
    local hidden = loss_of(change)
    t.fails(function() hidden(4) end, "computes the targets of its loss from the microbatch")
    t.check(hidden(1) > 0)
  end
end)

t.case("ids that are targets too weigh by those that count", function()
  nn.seed(2)
  local tok, head = nn.Embedding(V, C), nn.Linear(C, V)
  local function own(x, _, o)
    return nn.cross_entropy(head(tok(x)), x, {ignore_index = 0}) * (o and o.scale or 1)
  end
  for _, microbatches in ipairs {2, 4, 8} do
    t.near(nn.accumulate(own, microbatches, ids, targets):item(), own(ids):item(), {rel = 1e-6})
  end
end)

t.case("what the first microbatch keeps for all others does not end the loop", function()
  local function tiles(define, microbatches)
    local model = class_with(define)()
    local step = nn.compile(function(x, y)
      return nn.accumulate(model, microbatches, x:expand(microbatches, T):clone(),
                           y:expand(microbatches, T):clone())
    end)
    return step:plan(ids:slice(1, 1, 1), targets:slice(1, 1, 1)).tiles
  end
  local function cached(class)
    local mask
    function class:mix(h)
      mask = mask or nn.full({C}, 0.5):exp()
      return h * mask
    end
  end
  local function counted(class)
    local calls = 0
    function class:mix(h)
      calls = calls + 1
      return h * calls
    end
  end
  local grown = tiles(cached, 32) - tiles(cached, 8)
  t.check(grown < 24 * 4, grown)                       -- rows of the batch
  local each = tiles(counted, 32) - tiles(counted, 8)
  t.check(each > 24 * 10, each)                        -- all tiles of each
end)

t.case("a tape that was used keeps no tensor while the loss is alive", function()
  local w, kept = nn.parameter({8}, {std = 1}), {}
  local alive = setmetatable({}, {__mode = "k"})
  for i = 1, 20 do
    local h = w:exp()
    alive[h] = true
    kept[i] = (h * h):sum()
    kept[i]:backward()
  end
  collectgarbage()
  collectgarbage()
  local count = 0
  for _ in pairs(alive) do count = count + 1 end
  t.check(count <= 1 and #kept == 20, count)
end)

t.case("a batch without targets that count has loss 0 in any number of microbatches", function()
  local function define(class)
    function class:mix(h) return h * self.p end
  end
  local none = nn.full({B, T}, -100, {dtype = "i32"})
  local given = targets
  targets = none
  for _, microbatches in ipairs {1, 2, 4} do
    for _, number in ipairs(results_of(define, "f32", microbatches, true)) do t.same(number, 0) end
  end
  targets = given
end)

t.case("one label a row, and images", function()
  local classifier, conv, linear = nn.Linear(4, 3), nn.Conv2d(1, 2, 3), nn.Linear(8, 1)
  local function labels(x, y, o)
    return nn.cross_entropy(classifier(x), y) * (o and o.scale or 1)
  end
  local function images(x, y, o)
    return nn.mse(linear(conv(x):reshape(x:dim(1), 8)), y) * (o and o.scale or 1)
  end
  local some = nn.tensor({0, 1, -100, -100, 1, 2, 0, 1}, {dtype = "i32"})
  for _, given in ipairs {{labels, nn.randn(8, 4), some},
                          {images, nn.randn(8, 1, 4, 4), nn.randn(8, 1)}} do
    local f, x, y = unpack(given)
    for _, microbatches in ipairs {1, 2, 4, 8} do
      t.near(nn.accumulate(f, microbatches, x, y):item(), f(x, y):item(), {rel = 1e-5})
    end
  end
  t.fails(function() nn.accumulate(labels, 2, nn.ones(4, 4), some) end,
          "ids have 4 rows, targets 8")
end)

-- A loader of batches whose targets count unequally.
local function loader_of(batches)
  return {windows = function()
    local i = 0
    return function()
      i = i + 1
      local given = batches[i]
      if given then return given[1]:clone(), given[2]:clone(), given[1]:dim(1) end
    end, #batches, #batches
  end}
end

t.case("an evaluation is the mean over all targets that count", function()
  nn.seed(1)
  local model = GPT2 {layers = 1, heads = 2, embd = 16, context = T, vocab = V}
  local split = loader_of {{ids:slice(1, 1, 3), targets:slice(1, 1, 3)},
                           {ids:slice(1, 4, 4), targets:slice(1, 4, 4)},
                           {ids:slice(1, 5, 8), targets:slice(1, 5, 8)}}
  t.near(nn.evaluate(model, split), model(ids, targets):item(), {rel = 1e-6})
  local Mean = nn.module "Mean"                        -- of rows, without targets
  function Mean:forward(x, y) return nn.mse(x:to "f32", y:to "f32") end
  t.near(nn.evaluate(Mean(), split), Mean()(ids, targets):item(), {rel = 1e-6})
end)

t.finish()
