-- Every op can run on a GPU: each kernel that its tasks may run exists for CUDA. The kernels that
-- an op declares are compared with those that its samples run.
local nn = require "nn"
local t = require "nn.test"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local samples = require "samples"

local built_with_cuda = not nn.version():find("CUDA not built in", 1, true)

t.case("in a build with CUDA every kernel has a CUDA implementation", function()
  if not built_with_cuda then t.skip "built without CUDA" end
  local missing = {}
  for name, kernel in pairs(nn.kernels()) do
    if not kernel.cuda then missing[#missing + 1] = name end
  end
  t.same(missing, {})
end)

t.case("nn.ops() finds no op without CUDA", function()
  if not built_with_cuda then t.skip "built without CUDA" end
  local missing = {}
  for _, op in ipairs(nn.ops()) do
    if not op.cuda then missing[#missing + 1] = op.name end
  end
  t.same(missing, {})
end)

t.case("in a build without CUDA, nn.ops() finds no op with CUDA", function()
  if built_with_cuda then t.skip "built with CUDA" end
  for _, op in ipairs(nn.ops()) do t.check(not op.cuda, op.name) end
end)

t.case("the samples of every op run only kernels that it declares", function()
  local undeclared = {}
  samples.each(function(declared, text)
    local known = {}
    for _, name in ipairs(declared.kernels) do known[name] = true end
    local inputs, values = samples.arguments(declared, text, "f32")
    local cut = samples.cut(declared, inputs, samples.random(#text))
    nn.sync()
    local profile = nn.profile(function() samples.apply(declared, cut, values) end)
    for _, kernel in ipairs(profile.kernels) do
      if not known[kernel.name] then
        undeclared[#undeclared + 1] = declared.name .. ": " .. kernel.name
      end
    end
  end)
  t.same(undeclared, {})
end)

t.case("docs/cuda.md lists the registers of every kernel in kernels/cuda", function()
  local root, missing = package.loaded["nn.host"].root, {}
  local function read(path)
    local file = assert(io.open(path))
    local text = file:read "*a"
    file:close()
    return text
  end
  local docs, count = read(root .. "/docs/cuda.md"), 0
  local _, list = t.shell("cd " .. root .. "/kernels/cuda; ls *.cu *.cuh")
  for file in list:gmatch "%S+" do
    local text = read(root .. "/kernels/cuda/" .. file):gsub("__launch_bounds__%b()", "")
    for name in text:gmatch "__global__%s+void%s+([%w_]+)" do
      count = count + 1
      if not docs:find("| `" .. name .. "` |", 1, true) then missing[#missing + 1] = name end
    end
  end
  t.check(count > 40, count .. " kernels are found")
  t.same(missing, {}, "run tests/gpu/resources --markdown")
end)

t.case("kernels bound by memory load and store 16 bytes at a time", function()
  local root = package.loaded["nn.host"].root
  local files = ("fill random softmax cross_entropy layernorm embedding optimizer gelu reduce copy "
    .. "gather attention_cache"):gsub("%S+", "kernels/cuda/%0.cu")
  local status, text = t.shell("cd " .. root .. " && tests/gpu/resources --check --arch 90 "
    .. files .. " 2>&1")
  if text:find("is missing", 1, true) then t.skip(text:match "[^\n]*is missing[^\n]*") end
  t.same(status, 0, text)
end)

t.case("the precision of f32 products on GPUs is highest until it is set", function()
  t.same(nn.matmul_precision(), "highest")
  t.same(nn.matmul_precision "high", "highest")
  t.same(nn.matmul_precision(), "high")
  t.same(nn.matmul_precision "highest", "high")
  t.fails(function() nn.matmul_precision "medium" end,
          'matmul_precision: "highest" or "high" is needed, not \'medium\'')
end)

t.case("the attention implementation on GPUs is auto until it is set", function()
  t.same(nn.attention_backend(), "auto")
  t.same(nn.attention_backend "nnlua", "auto")
  t.same(nn.attention_backend "cudnn", "nnlua")
  t.same(nn.attention_backend "auto", "cudnn")
  t.fails(function() nn.attention_backend "flash" end,
          'attention_backend: "auto", "cudnn" or "nnlua" is needed, not \'flash\'')
end)

t.finish()
