-- A model of ordinary ops, for tests of features whose other tests know only the fused layers of
-- GPT-2: parameters that +, *, matmul, slices and einsum read, of which one has no axes and most
-- have ragged sizes; one that is read three times, one that is frozen; layers made of ops; a buffer
-- that changes in place. Its loss ignores more targets in some rows than in others.
local nn = require "nn"

local M = {}
local T, C, V = 6, 10, 23        -- time, width, vocabulary
local LARGE = 20                 -- times the sizes of the large model

local Norm = nn.module "OrdinaryNorm"                       -- as in docs/tutorial.md
function Norm:init(size, dtype) self.weight = nn.parameter({size}, {value = 1, dtype = dtype}) end
function Norm:forward(h)
  return h * (h:square():mean {axis = -1, keepdim = true} + 1e-6):rsqrt() * self.weight
end

local Ordinary = nn.module "Ordinary"

--- M.new{dtype=, dropout=, large=, buffer=, recurrent=} -> the model. large: wide enough for memory
--- tiers. buffer: whether the forward pass changes one. recurrent: "LSTM" or "GRU".
function M.new(o)
  return Ordinary {dtype = o.dtype or "f32", dropout = o.dropout or 0, buffer = o.buffer ~= false,
                   width = o.large and C * LARGE or C, vocab = o.large and V * LARGE or V,
                   recurrent = o.recurrent or "GRU"}
end

function Ordinary:init(o)
  local width, dtype = o.width, o.dtype
  local function parameter(std, ...) return nn.parameter({...}, {std = std, dtype = dtype}) end
  self.width, self.dropout = width, o.dropout
  self.table = parameter(0.5, o.vocab + 3, width)           -- read three times, twice as slices
  self.time = parameter(0.3, T, width)
  self.shift = parameter(0.3, 2 * width + 1)
  self.column = parameter(0.3, T, 1)
  self.gain = nn.parameter({}, {value = 0.7, dtype = dtype})
  self.square = parameter(width ^ -0.5, width, width)
  self.mixing = parameter(width ^ -0.5, width, width + 3)
  self.fixed = parameter(0.5, width)
  self.fixed.requires_grad = nil
  self.norm, self.last = Norm(width, dtype), Norm(width, dtype)
  self.groups = nn.GroupNorm(2, width, {dtype = dtype})
  self.conv = nn.Conv1d(width, width, 3, {padding = "same", dtype = dtype})
  self.recurrent = nn[o.recurrent](width, width, {dtype = dtype})
  if o.buffer then self.running = nn.buffer(nn.zeros({width}, {dtype = "f32"})) end
end

-- Follows the mean of x, which later forward passes read.
function Ordinary:follow(x)
  if not self.running then return end
  nn.no_grad(function()
    local mean = x:detach():to("f32"):mean {axis = {1, 2}}
    self.running:copy_(self.running * 0.9 + mean * 0.1)
  end)
end

function Ordinary:hidden(ids)
  local width = self.width
  local x = (nn.embedding(ids, self.table)) + self.time * self.gain
  if self.running then x = x - self.running:to(x.dtype) end
  self:follow(x)
  x = self.norm(x) * self.fixed + self.shift:slice(1, 2, width + 1)
  x = x + x:matmul(self.square):tanh() * self.column
  x = x + nn.einsum("btc,cd->btd", x, self.mixing):gelu():slice(3, 3, width + 2)
  local across = x:transpose(2, 3)
  x = x + self.conv(self.groups(across):silu()):transpose(2, 3)
  x = x + (self.recurrent(x)) * self.shift:slice(1, width + 2, 2 * width + 1)
  if self.dropout > 0 then x = x:dropout {p = self.dropout} end
  return self.last(x + self.table[2] * 0.1)
end

--- model(ids, targets, {scale=}) -> the loss; without targets, the logits.
function Ordinary:forward(ids, targets, options)
  local x = self:hidden(ids)
  local logits = x:matmul(self.table:slice(1, 1, self.table:dim(1) - 3):t())
  if not targets then return logits end
  return (nn.cross_entropy(logits, targets)) * (options and options.scale or 1)
end

--- batch(number, rows, large) -> ids and targets of a step; a row ignores from none to all but one
--- of its targets.
function M.batch(number, rows, large)
  local vocab, ids, targets = large and V * LARGE or V, {}, {}
  for row = 1, rows do
    ids[row], targets[row] = {}, {}
    for time = 1, T do
      ids[row][time] = (row * 37 + time * 101 + number * 13) % vocab
      local hidden = time <= (row * 5 + number) % T
      targets[row][time] = hidden and -100 or (row * 41 + time * 89 + number * 29) % vocab
    end
  end
  local function cut(list)       -- into tiles, as nn.tiles says
    local x = nn.zeros({rows, T}, {dtype = "i32", axes = "batch,time"})
    return x:copy_(nn.tensor(list, {dtype = "i32"}))
  end
  return cut(ids), cut(targets)
end

return M
