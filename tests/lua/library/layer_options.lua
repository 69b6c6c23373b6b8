-- Every combination of the options of a layer is refused when the layer is made, or works: a call
-- and backward(), in training and not, gives each parameter a gradient.

local nn = require "nn"
local t = require "nn.test"

local nan, none = 0 / 0, {}              -- none: the option is not given

-- All tables with one of these values for each name.
local function combinations(values)
  local all = {{}}
  for name, list in pairs(values) do
    local longer = {}
    for _, chosen in ipairs(all) do
      for _, value in ipairs(list) do
        local copy = {}
        for k, v in pairs(chosen) do copy[k] = v end
        if value ~= none then copy[name] = value end
        longer[#longer + 1] = copy
      end
    end
    all = longer
  end
  return all
end

local function text_of(options)
  local parts = {}
  for name, value in pairs(options) do
    local list = type(value) == "table" and "{" .. table.concat(value, ",") .. "}"
    parts[#parts + 1] = name .. "=" .. (list or tostring(value))
  end
  table.sort(parts)
  return table.concat(parts, " ")
end

local function use(layer, x)
  (layer(x)):sum():backward()
  for _, p in ipairs(layer:parameters()) do t.check(p.tensor.grad, "no gradient of " .. p.path) end
end

-- x: the input; values: those of each option; the rest are the arguments before the options.
local function case(name, x, values, ...)
  local before = {...}
  t.case("options of " .. name .. " are refused when it is made, or work", function()
    local works, refused = 0, 0
    for _, options in ipairs(combinations(values)) do
      local given = {unpack(before)}
      given[#given + 1] = options
      local good, layer = pcall(function() return nn[name](unpack(given)) end)
      works, refused = works + (good and 1 or 0), refused + (good and 0 or 1)
      for _, training in ipairs(good and {true, false} or {}) do
        nn.training(training)
        local called, problem = pcall(use, layer, x)
        nn.training(true)
        t.check(called, ("%s is accepted, but: %s"):format(text_of(options), tostring(problem)))
      end
    end
    t.check(works > 0 and refused > 0, ("%d work, %d are refused"):format(works, refused))
  end)
end

local flag, small = {none, true, false, 0}, {none, 1, 2, 0, 1.5, "a"}
local ids = nn.tensor({{0, 1}, {2, 0}}, {dtype = "i32"})
local function input(...) return nn.randn(..., {grad = true}) end

case("Linear", input {2, 3}, {bias = flag, gelu = flag, std = {none, 0, -1, nan},
                              glu = {none, "silu", "gelu", "gelu_exact", "relu", true}}, 3, 4)
case("Linear", input {2, 3}, {glu = {none, "silu"}}, 3, 5)
case("LayerNorm", input {2, 3}, {eps = {none, 0.1, 0, -1, nan, "a"}}, 3)
case("RMSNorm", input {2, 3}, {eps = {none, 0.1, 0, -1, nan, "a"}}, 3)
case("Embedding", ids, {std = {none, 0, 1, -1, nan, "a"}}, 5, 4)
for _, name in ipairs {"BatchNorm1d", "BatchNorm2d"} do
  case(name, input(name:find "1d" and {4, 3, 2} or {4, 3, 2, 2}),
       {affine = flag, track_running_stats = flag, momentum = {none, 0, 1, nan},
        eps = {none, -1}}, 3)
end
case("GroupNorm", input {2, 4, 3}, {affine = flag, eps = {none, 0, nan}}, 2, 4)
case("InstanceNorm2d", input {2, 4, 3, 3}, {affine = flag, eps = {none, 0, nan}}, 4)
local places = {none, 1, "same", "valid", "full", -1, {1, 2}}
case("Conv1d", input {2, 4, 9}, {bias = {none, 0}, stride = small, padding = places,
                                 dilation = {none, 2, 0}, groups = {none, 2, 3}}, 4, 4, 3)
case("Conv2d", input {1, 2, 7, 7}, {bias = {none, false}, stride = {none, 2, {1, 2}, {1}, 0, "a"},
                                    padding = {none, "same", {1, 2, 0, 1}, {1, 2, 3}, -1},
                                    dilation = {none, {2, 1}, 0}, groups = {none, 2, 0}}, 2, 2, 3)
for _, name in ipairs {"MaxPool1d", "AvgPool1d", "MaxPool2d", "AvgPool2d"} do
  local x = input(name:find "1d" and {2, 4, 9} or {2, 2, 5, 5})
  local values = {stride = small, padding = {none, 1, -1, 2}}
  if name:find "Avg" then values.count_include_pad = flag end
  for _, size in ipairs {2, 3} do case(name, x, values, size) end
end
for _, name in ipairs {"RNN", "LSTM", "GRU"} do
  local values = {bias = {none, false, 0}, bidirectional = {none, true, 0}, num_layers = {none, 0},
                  dropout = {none, nan}, batch_first = {none, false}}
  if name == "RNN" then values.nonlinearity = {none, "relu", "x"} end
  case(name, input {2, 2, 3}, values, 3, 2)
  case(name .. "Cell", input {2, 3}, {bias = flag}, 3, 2)
end

t.case("sizes that never fit are refused when a layer is made", function()
  for name, sizes in pairs {MaxPool1d = {0, 1.5, "a", {2, 2}, none}, AvgPool2d = {0, {2}, none},
                            AdaptiveAvgPool2d = {0, 1.5, "a", none}, Dropout = {1, -1, nan, "a"},
                            Flatten = {0, 1.5, "a", 9}} do
    for _, size in ipairs(sizes) do
      t.fails(function() nn[name](size ~= none and size or nil) end, name)
    end
  end
end)

t.case("GELU without a bias is the op gelu after the product", function()
  local layer, x = nn.Linear(3, 4, {gelu = true, bias = false, std = 1}), nn.randn(2, 3)
  t.near(layer(x):table(), x:matmul(layer.weight:t()):gelu():table(), {abs = 1e-6})
end)

t.finish()
