-- Recurrent layers, RNN, LSTM and GRU, and their cells. Parameters have PyTorch's names and shapes.
-- The products with the inputs of all time steps are one product; the loop over time has the rest.

local arguments = require "nn.base.arguments"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local stack = require("nn.core.shapes").stack
local tensor = require "nn.core.tensor"

local M = {}

-- The kinds of cells. gates: the number of parts in the products' results; states: of tensors that
-- a cell passes on; step(a, b, h, c) -> h, c: the next state, from the products a with the input
-- and b with the state.
local kinds = {
  tanh = {gates = 1, states = 1, step = function(a, b) return (a + b):tanh() end},
  relu = {gates = 1, states = 1, step = function(a, b) return (a + b):relu() end},
  lstm = {gates = 4, states = 2, step = function(a, b, _, c)
    local input, forget, new, output = (a + b):chunk(4, -1)
    c = forget:sigmoid() * c + input:sigmoid() * new:tanh()
    return output:sigmoid() * c:tanh(), c
  end},
  gru = {gates = 3, states = 1, step = function(a, b, h)
    local reset_a, update_a, new_a = a:chunk(3, -1)
    local reset_b, update_b, new_b = b:chunk(3, -1)
    local new = (new_a + (reset_a + reset_b):sigmoid() * new_b):tanh()
    return new + (update_a + update_b):sigmoid() * (h - new)
  end},
}

-- Creates the parameters of a cell as fields with this end of their names. They start normal with
-- the variance of PyTorch's, 1 / (3 size).
local function add_parameters(self, inputs, suffix, options)
  local rows = self.kind.gates * self.size
  local function add(name, ...)
    self[name .. suffix] = module.parameter({rows, ...}, {
      std = (3 * self.size) ^ -0.5, dtype = options.dtype,
    })
  end
  add("weight_ih", inputs)
  add("weight_hh", self.size)
  if arguments.flag(self.class_name, options, "bias", true) then
    add "bias_ih"
    add "bias_hh"
  end
end

-- The product of x with one of these parameters, plus the bias: which = "ih" or "hh".
local function product(self, x, which, suffix)
  local bias = rawget(self, "bias_" .. which .. suffix)
  return (ops.call("linear", x, self["weight_" .. which .. suffix], {bias = bias}))
end

-- The state given by the caller, checked, or zeros; a nil c where there is none.
local function starting(self, x, shape, h, c)
  local given, out = {h, c}, {}
  for i = 1, self.kind.states do
    local state = given[i]
    if state == nil then
      state = ops.call("full", shape, 0, {dtype = x.dtype})
    elseif not tensor.is_tensor(state) or table.concat(state.shape, ",") ~= table.concat(shape, ",")
    then
      lib.misuse("%s: the state %s is %s; it must be %s", self.class_name, i == 1 and "h" or "c",
                 tensor.is_tensor(state) and tensor.shape_text(state.shape)
                   or arguments.describe(state), tensor.shape_text(shape))
    end
    out[i] = state
  end
  return out[1], out[2]
end

-- Appends the elements of the first axis to `out`. Halving makes the work of the backward pass
-- proportional to the length times its logarithm, since the gradient of a slice is as large as what
-- it is taken from.
local function append_steps(x, out)
  local n = x:dim(1)
  if n == 1 then
    out[#out + 1] = x:reshape(x:dim(2), x:dim(3))
    return out
  end
  local half = math.floor(n / 2)
  append_steps(x:slice(1, 1, half), out)
  return append_steps(x:slice(1, half + 1, n), out)
end

-- One direction of one layer over x (time, batch, inputs): (time, batch, size), and the last state.
local function run_direction(self, x, suffix, backwards, h, c)
  local steps, out = append_steps(product(self, x, "ih", suffix), {}), {}
  for i = 1, #steps do
    local t = backwards and #steps + 1 - i or i
    h, c = self.kind.step(steps[t], product(self, h, "hh", suffix), h, c)
    out[t] = h
  end
  return stack(out), h, c
end

local function check_sequences(self, x)
  if not tensor.is_tensor(x) or #x.shape ~= 3 or x:dim(3) ~= self.inputs then
    lib.misuse("%s: x is %s; (batch, time, %d) is needed", self.class_name, tensor.is_tensor(x)
               and tensor.shape_text(x.shape) or arguments.describe(x), self.inputs)
  end
end

-- y (batch, time, directions size), and the last state (layers directions, batch, size).
local function run_layers(self, x, h, c)
  check_sequences(self, x)
  local directions = self.bidirectional and 2 or 1
  local shape = {self.num_layers * directions, x:dim(1), self.size}
  h, c = starting(self, x, shape, h, c)
  local y, last_h, last_c = x:transpose(1, 2), {}, {}
  for i = 1, self.num_layers do
    if i > 1 and self.dropout > 0 and layers.training() then
      y = ops.call("dropout", y, self.dropout)
    end
    local out = {}
    for d = 1, directions do
      local number = #last_h + 1
      out[d], last_h[number], last_c[number] = run_direction(
        self, y, "_l" .. i - 1 .. (d == 2 and "_reverse" or ""), d == 2, h[number],
        c and c[number])
    end
    y = directions == 1 and out[1] or ops.call("cat", out, -1)
  end
  return y:transpose(1, 2), stack(last_h), c and stack(last_c) or nil
end

local options_of_layers = "num_layers bias bidirectional dropout batch_first dtype"

local function init_layers(self, kind, inputs, size, options)
  local who = self.class_name
  self.kind = kind
  self.inputs = arguments.whole(who, "the number of inputs", inputs)
  self.size = arguments.whole(who, "the size", size)
  self.num_layers = arguments.whole(who, "num_layers", options.num_layers or 1)
  self.bidirectional = arguments.flag(who, options, "bidirectional", false)
  self.dropout = options.dropout or 0
  if not arguments.flag(who, options, "batch_first", true) then
    lib.misuse("%s: batch_first = false is not supported; x is (batch, time, inputs)", who)
  end
  if type(self.dropout) ~= "number" or not (self.dropout >= 0 and self.dropout < 1) then
    lib.misuse("%s: dropout is %s; it must be in [0, 1)", who, arguments.describe(self.dropout))
  end
  for i = 0, self.num_layers - 1 do
    local width = i == 0 and inputs or size * (self.bidirectional and 2 or 1)
    add_parameters(self, width, "_l" .. i, options)
    if self.bidirectional then add_parameters(self, width, "_l" .. i .. "_reverse", options) end
  end
end

local layer_options = arguments.names(options_of_layers)
local rnn_options = arguments.names(options_of_layers .. " nonlinearity")

local function nonlinearity(who, options)
  local name = options.nonlinearity or "tanh"
  if name ~= "tanh" and name ~= "relu" then
    lib.misuse("%s: nonlinearity is %s; 'tanh' or 'relu' is needed", who, arguments.describe(name))
  end
  return kinds[name]
end

local RNN = module.module "RNN"
M.RNN = RNN
--- nn.RNN(inputs, size, {num_layers=1, bidirectional=false, dropout=0, bias=true,
--- nonlinearity="tanh"}): rnn(x, h) -> y, h, as nn.LSTM without c; h = tanh or relu of the sum of
--- both products.
---     local y, h = nn.RNN(3, 4)(nn.zeros(2, 5, 3))
---     h:dims()  --> 1, 2, 4
function RNN:init(inputs, size, options)
  options = arguments.options("RNN", options, rnn_options)
  init_layers(self, nonlinearity("RNN", options), inputs, size, options)
end
RNN.forward = run_layers

local LSTM = module.module "LSTM"
M.LSTM = LSTM
--- nn.LSTM(inputs, size, {num_layers=1, bidirectional=false, dropout=0, bias=true}): lstm(x, h, c)
--- -> y, h, c for x (batch, time, inputs): y (batch, time, size) are the states of the last layer,
--- twice as wide if bidirectional; h and c (layers directions, batch, size) are the last states of
--- all layers. Those given are the first ones, by default 0. Parameters have PyTorch's names, such
--- as weight_ih_l0, and its order of gates; they start normal with variance 1 / (3 size). dropout
--- is between layers. Errors: x or a state of another shape.
---     local y, h, c = nn.LSTM(3, 4)(nn.zeros(2, 5, 3))
---     y:dims()  --> 2, 5, 4
---     c:dims()  --> 1, 2, 4
function LSTM:init(inputs, size, options)
  options = arguments.options("LSTM", options, layer_options)
  init_layers(self, kinds.lstm, inputs, size, options)
end
LSTM.forward = run_layers

local GRU = module.module "GRU"
M.GRU = GRU
--- nn.GRU(inputs, size, {num_layers=1, bidirectional=false, dropout=0, bias=true}): gru(x, h) ->
--- y, h, as nn.LSTM without c.
---     local y, h = nn.GRU(3, 4, {num_layers = 2, bidirectional = true})(nn.zeros(2, 5, 3))
---     y:dims()  --> 2, 5, 8
---     h:dims()  --> 4, 2, 4
function GRU:init(inputs, size, options)
  options = arguments.options("GRU", options, layer_options)
  init_layers(self, kinds.gru, inputs, size, options)
end
GRU.forward = run_layers

local cell_options = arguments.names "bias dtype"
local rnn_cell_options = arguments.names "bias dtype nonlinearity"

local function init_cell(self, kind, inputs, size, options)
  self.kind = kind
  self.inputs = arguments.whole(self.class_name, "the number of inputs", inputs)
  self.size = arguments.whole(self.class_name, "the size", size)
  add_parameters(self, inputs, "", options)
end

local function run_cell(self, x, h, c)
  if not tensor.is_tensor(x) or #x.shape ~= 2 or x:dim(2) ~= self.inputs then
    lib.misuse("%s: x is %s; (batch, %d) is needed", self.class_name, tensor.is_tensor(x)
               and tensor.shape_text(x.shape) or arguments.describe(x), self.inputs)
  end
  h, c = starting(self, x, {x:dim(1), self.size}, h, c)
  return self.kind.step(product(self, x, "ih", ""), product(self, h, "hh", ""), h, c)
end

local RNNCell = module.module "RNNCell"
M.RNNCell = RNNCell
--- nn.RNNCell(inputs, size, {bias=true, nonlinearity="tanh"}): cell(x, h) -> h, one time step of
--- nn.RNN for x (batch, inputs) and h (batch, size), by default 0.
---     nn.RNNCell(3, 4)(x):dims()  --> 2, 4
function RNNCell:init(inputs, size, options)
  options = arguments.options("RNNCell", options, rnn_cell_options)
  init_cell(self, nonlinearity("RNNCell", options), inputs, size, options)
end
RNNCell.forward = run_cell

local LSTMCell = module.module "LSTMCell"
M.LSTMCell = LSTMCell
--- nn.LSTMCell(inputs, size, {bias=true}): cell(x, h, c) -> h, c, one time step of nn.LSTM for x
--- (batch, inputs), h and c (batch, size), by default 0.
---     local h, c = nn.LSTMCell(3, 4)(x)
---     c:dims()  --> 2, 4
function LSTMCell:init(inputs, size, options)
  init_cell(self, kinds.lstm, inputs, size,
            arguments.options("LSTMCell", options, cell_options))
end
LSTMCell.forward = run_cell

local GRUCell = module.module "GRUCell"
M.GRUCell = GRUCell
--- nn.GRUCell(inputs, size, {bias=true}): cell(x, h) -> h, one time step of nn.GRU for x (batch,
--- inputs) and h (batch, size), by default 0.
---     nn.GRUCell(3, 4)(x):dims()  --> 2, 4
function GRUCell:init(inputs, size, options)
  init_cell(self, kinds.gru, inputs, size,
            arguments.options("GRUCell", options, cell_options))
end
GRUCell.forward = run_cell

return M
