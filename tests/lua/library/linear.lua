-- Gradients of linear layers with GELU and of gated ones. In a compiled function the kernel of the
-- next layer's product also computes the gradients of the activation's input and of the bias (the
-- pass fuse_epilogues).
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"
local Llama = require "models.llama"

nn.seed(5)
local function random(...) return nn.randn(..., {dtype = "f64"}) end
local x, v, c, u, z = random {9, 4}, random {5, 7}, random {5}, random {3, 5}, random {9, 3}

local function norm(a) return a:square():sum():item() ^ 0.5 end

-- A layer with these options gives its result and the activation's input.
local function whole(options)
  return function(input, weight, bias) return nn.linear(input, weight, bias, options) end
end
-- The same with separate ops.
local function gelu_apart(input, weight, bias)
  local pre = nn.linear(input, weight, bias)
  return pre:gelu(), pre
end
local function gated_apart(activation)
  return function(input, weight, bias)
    local pre = nn.linear(input, weight, bias)
    local n = pre:dim(-1) / 2
    local gate, up = pre:slice(-1, 1, n), pre:slice(-1, n + 1, 2 * n)
    return gate[activation](gate) * up, pre
  end
end

-- rows: of the weight, for each output.
local layers = {
  {name = "GELU", rows = 1, whole = whole {gelu = true}, apart = gelu_apart},
  {name = "SwiGLU", rows = 2, whole = whole {glu = "silu"}, apart = gated_apart "silu"},
  {name = "GeGLU", rows = 2, whole = whole {glu = "gelu"}, apart = gated_apart "gelu"},
  {name = "exact GeGLU", rows = 2, whole = whole {glu = "gelu_exact"},
   apart = gated_apart "gelu_exact"},
}
for _, layer in ipairs(layers) do
  layer.w, layer.b = random {7 * layer.rows, 4}, random {7 * layer.rows}
  layer.second_w, layer.second_b = random {5 * layer.rows, 7}, random {5 * layer.rows}
end

-- Ways to use the result h of a layer and the activation's input.
local ways = {
  {"a layer", function(h) return nn.linear(h, v, c):square():sum() end},
  {"a layer with a cut weight", function(h)
    return nn.linear(h, v:retile {2, 0}, c:retile {2}):square():sum()
  end},
  {"two layers, one without a bias", function(h)
    return nn.linear(h, v, c):square():sum() + nn.linear(h, v):tanh():sum()
  end},
  {"a layer and more", function(h) return nn.linear(h, v, c):square():sum() + h:square():sum() end},
  {"a reshape and a product", function(h) return h:reshape(7, 9):matmul(z):square():sum() end},
  {"the same kind of layer and another", function(h, _, layer)
    return nn.linear((layer.whole(h, layer.second_w, layer.second_b)), u):square():sum()
  end},
  {"a layer, and use of its input", function(h, pre)
    return nn.linear(h, v, c):square():sum() + pre:square():sum()
  end},
  {"use of its input alone", function(_, pre) return pre:square():sum() end},
  {"use of both", function(h, pre)
    return nn.linear(h, v, c):square():sum() + (pre:reshape(9, -1, 7) * h:reshape(9, 1, 7)):sum()
  end},
}

local function check_bits(f, arguments)
  local function gradients(...) return nn.grad(f)(...) end
  local want, got = {gradients(unpack(arguments))}, {nn.compile(gradients)(unpack(arguments))}
  for i = 1, #arguments + 1 do t.near(got[i], want[i], {abs = 0}) end
end

local function check(layer, way)
  local name, w, b = layer.name .. " followed by " .. way[1], layer.w, layer.b
  local function f(...)
    local h, pre = layer.whole(...)
    return way[2](h, pre, layer)
  end
  t.case(name .. ": gradients equal finite differences", function()
    t.gradcheck(f, {x, w, b})
    t.gradcheck(f, {x:retile {4, 3}, w:retile {3, 2}, b:retile {2}})
  end)
  t.case(name .. ": a compiled function gives the bits of an eager one", function()
    check_bits(f, {x, w, b})
    check_bits(f, {x:retile {4, 3}, w:retile {3, 2}, b:retile {2}})
    check_bits(f, {x:retile {2, 0}, w, b})
  end)
end
for _, layer in ipairs(layers) do
  for _, way in ipairs(ways) do check(layer, way) end
end

t.case("in f32 too, a compiled function gives the bits of an eager one for ragged tiles", function()
  for _, layer in ipairs(layers) do
    local function f(input, weight, bias, second)
      return nn.linear((layer.whole(input, weight, bias)), second):square():sum()
    end
    local input, weight = nn.randn(150, 70), nn.randn(257 * layer.rows, 70)
    local bias, second = nn.randn(257 * layer.rows), nn.randn(90, 257)
    check_bits(f, {input, weight, bias, second})
    check_bits(f, {input:retile {64, 0}, weight, bias, second:retile {40, 0}})
    check_bits(f, {input:retile {3, 0}, weight, bias, second})
  end
end)

t.case("a product of a gated linear unit with its input has the right gradient", function()
  local function f(a) return nn.glu(a):matmul(a):square():sum() end
  local a = random {4, 8}
  t.gradcheck(f, {a})
  check_bits(f, {a})
end)

t.case("a task that adds to the sums of earlier tasks stays a task", function()
  local a, b, pre = nn.ones(3, 4), nn.ones(4, 5), nn.randn(3, 10)
  local function f(first, second, input)
    local dx, sums = nn.zeros(3, 10), nn.ones(10)
    local dy = first:matmul(second)
    nn.task {"glu_backward", write = {dx = dx:tile_at(1, 1)}, update = {dbias = sums:tile_at(1)},
             read = {dy = dy:tile_at(1, 1), x = input:tile_at(1, 1)},
             params = {rows = 3, cols = 5, activation = 0, first = 0}}
    return sums, dx
  end
  local sums, dx = nn.compile(f)(a, b, pre)
  t.near(sums, dx:sum(1) + 1, {abs = 1e-5})
end)

t.case("the second layer's accumulated gradients equal those with separate ops", function()
  local function gradients(first, w, b)
    local list = {x, w, b, v, c}
    for i, leaf in ipairs(list) do
      list[i] = leaf:retile(#leaf.shape == 2 and {4, 3} or {3}):detach()
      list[i].requires_grad = true
    end
    for _ = 1, 3 do
      local h = first(list[1], list[2], list[3])
      nn.linear(h, list[4], list[5]):square():sum():backward()
    end
    for i, leaf in ipairs(list) do list[i] = leaf.grad end
    return list
  end
  for _, layer in ipairs(layers) do
    local got = gradients(layer.whole, layer.w, layer.b)
    local want = gradients(layer.apart, layer.w, layer.b)
    for i = 1, 5 do t.near(got[i], want[i], {abs = 1e-11, rel = 1e-11}) end
  end
end)

-- The gradients of a layer, in `dtype`, that another layer follows.
local function gradients_in(dtype, first, arguments)
  local list = {}
  for i, argument in ipairs(arguments) do list[i] = argument:to(dtype) end
  return {nn.compile(function(...)
    return select(2, nn.grad(function(input, weight, bias, second, shift)
      return nn.linear(first(input, weight, bias), second, shift):square():sum()
    end)(...))
  end)(unpack(list))}
end

t.case("in bf16 the gradients are f32, as accurate as with separate ops", function()
  for _, layer in ipairs(layers) do
    local arguments = {nn.randn(70, 24), nn.randn(33 * layer.rows, 24), nn.randn(33 * layer.rows),
                       nn.randn(35, 33), nn.randn(35)}
    for i, argument in ipairs(arguments) do arguments[i] = argument:to "bf16" end
    for _, rows in ipairs {70, 32, 3} do
      arguments[1] = arguments[1]:retile {rows, 0}
      local exact = gradients_in("f64", layer.apart, arguments)
      local together = gradients_in("bf16", layer.whole, arguments)
      local separate = gradients_in("bf16", layer.apart, arguments)
      for i = 1, 5 do
        t.same(together[i].dtype, separate[i].dtype)
        local function off(list) return norm(list[i]:to "f64" - exact[i]) / norm(exact[i]) end
        t.check(off(together) <= off(separate) * 1.2 + 1e-4, ("%s, %d rows, gradient %d: %g and %g")
                :format(layer.name, rows, i, off(together), off(separate)))
      end
    end
  end
end)

-- How often a step, eager and compiled, runs these two kernels.
local function calls(model, grads, names)
  local ids = nn.zeros({2, 8}, {dtype = "i32"})
  local function step(tokens)
    local loss = model(tokens, tokens)
    loss:backward()
    return loss, grads()
  end
  local function count(f)
    local out = {}
    for _, kernel in ipairs(nn.profile(f).kernels) do out[kernel.name] = kernel.calls end
    return {out[names[1]] or 0, out[names[2]] or 0}
  end
  local compiled = nn.compile(step)
  compiled(ids)
  return {eager = count(function() step(ids) end), compiled = count(function() compiled(ids) end)}
end

t.case("a compiled step of GPT-2 has no separate tasks for the gradients of GELU", function()
  local model = GPT2 {layers = 2, heads = 2, embd = 16, context = 8, vocab = 32}
  local function grads()
    return model.blocks[1].mlp.up.bias.grad, model.blocks[2].mlp.up.weight.grad
  end
  t.same(calls(model, grads, {"gemm_dgelu", "gelu_bias_backward"}),
         {eager = {0, 2}, compiled = {2, 0}})
end)

t.case("a compiled step of Llama has no separate tasks for the gradients of SwiGLU", function()
  for _, dtype in ipairs {"f32", "bf16"} do
    local model = Llama {layers = 2, heads = 2, embd = 16, context = 8, vocab = 32, dtype = dtype}
    local function grads()
      return model.blocks[1].mlp.up.weight.grad, model.blocks[2].mlp.up.weight.grad
    end
    t.same(calls(model, grads, {"gemm_dglu", "glu_backward"}), {eager = {0, 2}, compiled = {2, 0}})
  end
end)

t.finish()
