-- The parts of random modules (random_modules.lua): layers and uses of parameters in ordinary ops,
-- each a function of x (rows, time, width) that keeps its shape. Every row of the result depends on
-- the same row of x alone, so that a batch and its microbatches have the same gradients.
local nn = require "nn"

local M = {}
local T, C, V = 4, 6, 11
M.time, M.width, M.vocab = T, C, V

--- parts: {[name] = {wants=, make=, run=}}. wants: kinds of parameters; make(options) -> layers;
--- run(x, p, layers, ids) -> y, for the parameters p of these kinds.
local parts = {}
M.parts = parts

local function part(name, wants, run, make)
  local kinds = {}
  for kind in wants:gmatch "%S+" do kinds[#kinds + 1] = kind end
  parts[name] = {wants = kinds, run = run, make = make}
end

local function even_columns() return nn.arange(C):remainder(2):eq(0) end
local function earlier() return nn.arange(T):reshape(T, 1):lt(nn.arange(T)) end
local function channels_first(f)
  return function(x, p, layers) return f(x:transpose(2, 3), p, layers):transpose(2, 3) end
end

-- Arithmetic with a vector (width).
part("add", "vector", function(x, p) return x + p[1] end)
part("sub", "vector", function(x, p) return p[1] - x end)
part("mul", "vector", function(x, p) return x * p[1] end)
part("div", "vector", function(x, p) return x / (p[1] * p[1] + 1) end)
part("neg", "vector", function(x, p) return x + -p[1] end)
part("lerp", "vector", function(x, p) return x:lerp(p[1]:expand(x.shape), 0.3) end)
part("addcmul", "vector vector", function(x, p) return x:addcmul(p[1], p[2], 0.5) end)
part("addcdiv", "vector vector", function(x, p) return x:addcdiv(p[1], p[2]:square() + 1) end)
part("where", "vector", function(x, p) return even_columns():where(x, p[1]) end)
part("where of data", "vector", function(x, p) return x:gt(p[1]):where(x, p[1] * 0.5) end)
part("masked_fill", "vector", function(x, p)
  return (x + p[1]):masked_fill(even_columns():expand(x.shape), 0.5)
end)
part("expand", "vector", function(x, p)
  return x * p[1]:reshape(1, 1, C):expand(x.shape)
end)
part("often", "vector", function(x, p)
  for _ = 1, 4 do x = x + x:sin() * p[1] * 0.2 + p[1] * 0.1 end
  return x
end)
part("detach", "vector", function(x, p) return x * p[1]:detach() + p[1] end)
part("no_grad", "vector", function(x, p)
  return x + p[1] * 0.5 + nn.no_grad(function() return x * p[1] end)
end)
part("to", "vector", function(x, p)
  return (x:to "f64" + p[1]:to "f64"):to(x.dtype)
end)
part("clone", "vector", function(x, p) return x + p[1]:clone() end)
part("custom", "vector", function(x, p)
  return nn.custom {name = "product", forward = function(a, b) return a * b, a, b end,
    backward = function(g, a, b)
      return g * b, (g * a):sum {axis = {1, 2}}
    end}(x, p[1])
end)

-- Shapes, with a vector.
part("flip", "vector", function(x, p) return x + p[1]:flip(1) end)
part("roll", "vector", function(x, p) return x + p[1]:roll(2, 1) end)
part("pad", "vector", function(x, p) return x + p[1]:pad {2, 1}:slice(1, 2, C + 1) end)
part("repeat_interleave", "vector", function(x, p)
  return x + p[1]:slice(1, 2, C / 2 + 1):repeat_interleave(2, 1)
end)
part("tile", "vector", function(x, p) return x + p[1]:slice(1, 1, C / 2):tile(2) end)
part("chunk", "vector", function(x, p)
  local first, second = p[1]:chunk(2, 1)
  local a, b = x:chunk(2, -1)
  return nn.cat({b * first, a + second}, -1)
end)
part("stack", "vector vector", function(x, p) return x * nn.stack({p[1], p[2]}, 1):mean(1) end)
part("cat", "vector", function(x, p)
  local first = p[1]:reshape(1, 1, C):expand(x:dim(1), 1, C)
  return nn.cat({first, x}, 2):slice(2, 1, T)
end)
part("permute", "grid", function(x, p)
  return (x:permute {2, 3, 1} * p[1]:reshape(T, C, 1)):permute {3, 1, 2}
end)

-- Reductions, sorting and scans of a vector.
for _, name in ipairs {"max", "min", "mean", "sum", "prod", "var", "std", "norm", "logsumexp"} do
  part(name, "vector", function(x, p) return x * (1 + 0.2 * nn[name](p[1])) end)
end
part("normalize", "vector", function(x, p) return x + p[1]:normalize(2, 1) end)
part("softmax of p", "vector", function(x, p) return x * p[1]:softmax() * 3 end)
part("log_softmax", "vector", function(x, p) return x + p[1]:log_softmax() * 0.2 end)
part("cumsum", "vector", function(x, p) return x + p[1]:cumsum() * 0.3 end)
part("cumprod", "vector", function(x, p) return x * (p[1] * 0.2 + 1):cumprod() end)
part("sort", "vector", function(x, p) return x + (p[1]:sort()) end)
part("topk", "vector", function(x, p) return x + (p[1]:topk(3)):mean() end)
part("median", "vector", function(x, p) return x + (p[1]:median()) end)
part("softmax", "vector", function(x, p) return (x * p[1]):softmax() * 4 end)
part("cosine_similarity", "vector", function(x, p)
  return x + nn.cosine_similarity(x, p[1]:expand(x.shape), 3):unsqueeze(-1)
end)

-- Products.
part("matmul", "matrix", function(x, p) return x:matmul(p[1]) end)
part("matmul trans_w", "matrix", function(x, p) return x:matmul(p[1], {trans_w = true}) end)
part("matmul over time", "time_matrix", function(x, p) return p[1]:matmul(x) end)
part("matmul of a vector", "matrix vector", function(x, p) return x + p[1]:matmul(p[2]) end)
part("linear", "matrix vector", function(x, p) return (nn.linear(x, p[1], p[2])) end)
part("linear gelu", "matrix vector", function(x, p)
  return (nn.linear(x, p[1], p[2], {gelu = true}))
end)
part("einsum", "matrix", function(x, p) return nn.einsum("btc,cd->btd", x, p[1]) end)
part("einsum of three", "matrix", function(x, p)
  return x + nn.einsum("btc,cd,btd->bt", x, p[1], x):unsqueeze(-1) * 0.1
end)
part("tensordot", "matrix", function(x, p) return nn.tensordot(x, p[1], 1) end)
part("tril", "matrix", function(x, p) return x + x:matmul(p[1]:tril()) end)
part("triu", "matrix", function(x, p) return x + x:matmul(p[1]:triu(1)) end)
part("trace", "matrix", function(x, p) return x + p[1]:trace() * 0.2 end)
part("diag", "vector", function(x, p) return x + x:matmul(p[1]:diag()) end)
part("outer", "vector vector", function(x, p) return x + x:matmul(p[1]:outer(p[2])) end)
part("unbind", "matrix", function(x, p) return x * p[1][1] + p[1][2] + p[1]:select(1, -1) end)
part("cdist", "matrix", function(x, p)
  return nn.cdist(x:reshape(-1, C), p[1]):reshape(x.shape) * 0.3
end)
part("attention of ops", "time_matrix", function(x, p)
  local scores = x:matmul(x:transpose(2, 3)) * 0.4 + p[1]
  return x + scores:masked_fill(earlier():expand(scores.shape), -1e9):softmax():matmul(x)
end)

-- Other shapes that broadcast.
part("add row", "row", function(x, p) return x + p[1] end)
part("mul row", "row", function(x, p) return x * p[1] end)
part("add column", "column", function(x, p) return x + p[1] end)
part("mul column", "column", function(x, p) return x * p[1] end)
part("add grid", "grid", function(x, p) return x + p[1] end)
part("mul grid", "grid", function(x, p) return x * p[1] end)
part("add scalar", "scalar", function(x, p) return x + p[1] end)
part("mul scalar", "scalar", function(x, p) return x * p[1] end)

-- Tables, read by token.
part("embedding", "table", function(x, p, _, ids) return x + (nn.embedding(ids, p[1])) end)
part("one_hot", "table", function(x, p, _, ids)
  return x + nn.one_hot(ids, V, {dtype = x.dtype}):matmul(p[1])
end)
part("gather", "table", function(x, p, _, ids)
  local all = p[1]:mean(-1):reshape(1, V):expand(x:dim(1), V)
  return x + all:gather(ids):unsqueeze(-1)
end)
part("scatter_add", "table", function(x, p, _, ids)
  local columns = ids:remainder(C):unsqueeze(2):expand(x:dim(1), T, T)
  return x + (x:slice(3, 1, T) + p[1]:mean()):scatter_add(columns, {size = C, axis = -1}) * 0.1
end)
part("index_select", "table", function(x, p) return x + p[1]:index_select(1, {2, 5, 5, 9}) end)
part("index_add", "table", function(x, p)
  return x + p[1]:slice(1, 1, T):index_add(1, {2, 3}, p[1]:slice(1, 8, 9))
end)

-- Layers.
local function layer(name, make, run)
  part(name, "", function(x, _, l) return run and run(x, l) or l.a(x) end, function(o)
    local a, b = make(o)
    return {a = a, b = b}
  end)
end
local wide = 0.4                   -- the standard deviation of weights
local function with(o, more)
  local out = {dtype = o.dtype}
  for name, value in pairs(more or {}) do out[name] = value end
  return out
end
layer("Linear", function(o) return nn.Linear(C, C, with(o, {std = wide})) end)
layer("Linear without bias", function(o)
  return nn.Linear(C, C, with(o, {std = wide, bias = false}))
end)
layer("Linear gelu", function(o) return nn.Linear(C, C, with(o, {std = wide, gelu = true})) end)
layer("Linear glu", function(o) return nn.Linear(C, 2 * C, with(o, {std = wide, glu = "silu"})) end)
layer("Sequential", function(o)
  return nn.Sequential {nn.Linear(C, 2 * C, with(o, {std = wide})), nn.tanh,
                        nn.Linear(2 * C, C, with(o, {std = wide})), nn.Dropout(0), nn.Identity()}
end)
layer("LayerNorm", function(o) return nn.LayerNorm(C, o) end)
layer("RMSNorm", function(o) return nn.RMSNorm(C, o) end)
local function with_delta(x, l)
  local sum, y = l.a(x, x * 0.5)
  return sum * 0.3 + y
end
layer("LayerNorm with delta", function(o) return nn.LayerNorm(C, o) end, with_delta)
layer("RMSNorm with delta", function(o) return nn.RMSNorm(C, o) end, with_delta)
local function over_channels(x, l) return channels_first(function(y) return l.a(y) end)(x) end
layer("GroupNorm", function(o) return nn.GroupNorm(2, C, o) end, over_channels)
layer("Conv1d", function(o) return nn.Conv1d(C, C, 3, with(o, {padding = "same"})) end,
      over_channels)
layer("Conv1d with groups", function(o)
  return nn.Conv1d(C, C, 2, with(o, {groups = 3, bias = false, dilation = 3, padding = 2}))
end, function(x, l) return channels_first(function(y) return l.a(y):slice(3, 1, T) end)(x) end)
layer("Conv2d", function(o) return nn.Conv2d(1, 2, 3, with(o, {padding = "same"})) end,
      function(x, l) return l.a(x:unsqueeze(2)):mean(2) end)
layer("InstanceNorm2d", function(o) return nn.InstanceNorm2d(2, with(o, {affine = true})) end,
      function(x, l) return l.a(x:reshape(-1, 2, T / 2, C)):reshape(-1, T, C) end)
part("pooling", "vector", channels_first(function(x, p)
  local padded = (x + p[1]:unsqueeze(-1)):pad {1, 1}
  return nn.max_pool1d(padded, 3, {stride = 1}) + nn.avg_pool1d(padded, 3, {stride = 1})
end))
part("adaptive_avg_pool2d", "vector", function(x, p)
  return x + nn.adaptive_avg_pool2d((x * p[1]):unsqueeze(2), 2):mean {axis = {2, 3, 4}}
    :reshape(-1, 1, 1)
end)
for _, name in ipairs {"RNN", "LSTM", "GRU"} do
  layer(name, function(o) return nn[name](C, C, o) end, function(x, l) return x + (l.a(x)) end)
end
layer("GRU in both directions", function(o) return nn.GRU(C, C / 2, with(o, {bidirectional = true}))
end, function(x, l) return (l.a(x)) end)
for _, name in ipairs {"RNNCell", "LSTMCell", "GRUCell"} do
  layer(name, function(o) return nn[name](C, C, o) end, function(x, l)
    return x + (l.a(x:select(2, 1))):unsqueeze(2)
  end)
end
local function attention(o) return nn.Linear(C, 3 * C, with(o, {std = wide})) end
layer("attention", attention, function(x, l) return x + (nn.attention(l.a(x), {heads = 2})) end)
layer("attention with a mask", attention, function(x, l)
  local mask = nn.ones(x:dim(1), T, {dtype = "i32"})
  return x + (nn.attention(l.a(x), mask, {heads = 2, causal = false}))
end)
layer("attention with rope", attention, function(x, l)
  local turned = nn.rope(l.a(x):slice(3, 1, 3 * C), {heads = 1})
  return x + (nn.attention(turned, {heads = 1, window = 2}))
end)
layer("cross_attention", function(o)
  return nn.Linear(C, C, with(o, {std = wide})), nn.Linear(C, 2 * C, with(o, {std = wide}))
end, function(x, l) return x + (nn.cross_attention(l.a(x), l.b(x:flip(2)), {heads = 2})) end)
layer("glu", function(o) return nn.Linear(C, 2 * C, with(o, {std = wide})) end,
      function(x, l) return nn.glu(l.a(x), {activation = "gelu"}) end)
layer("backward hook", function(o)
  local linear = nn.Linear(C, C, with(o, {std = wide}))
  linear:register_full_backward_hook(function(_, g) return g and g * 0.5 end)
  return linear
end)

--- other_gradient: parts whose gradient is not the slope of their value.
M.other_gradient = {detach = true, no_grad = true, ["backward hook"] = true}

-- The layers of docs/tutorial.md.
local RMSNorm = nn.module "TutorialNorm"
function RMSNorm:init(size, eps, o)
  self.eps = eps or 1e-6
  self.weight = nn.parameter({size}, {value = 1, dtype = o.dtype})
end
function RMSNorm:forward(h)
  local mean_square = h:square():mean {axis = -1, keepdim = true}
  return h * (mean_square + self.eps):rsqrt() * self.weight
end
local GatedMLP = nn.module "GatedMLP"
function GatedMLP:init(embd, hidden, o)
  self.norm = RMSNorm(embd, nil, o)
  local options = with(o, {bias = false, std = wide})
  self.gate, self.up = nn.Linear(embd, hidden, options), nn.Linear(embd, hidden, options)
  self.down = nn.Linear(hidden, embd, options)
end
function GatedMLP:forward(h)
  local normed = self.norm(h)
  return h + self.down(self.gate(normed):silu() * self.up(normed))
end
layer("RMSNorm of the tutorial", function(o) return RMSNorm(C, nil, o) end)
layer("GatedMLP of the tutorial", function(o) return GatedMLP(C, 8, o) end)

return M
