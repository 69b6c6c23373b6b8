-- Gradients of linear layers with GELU: the kernel of the next layer's product also computes the
-- gradients of GELU's input and of its bias.
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

nn.seed(5)
local function random(...) return nn.randn(..., {dtype = "f64"}) end
local x, w, b = random {9, 4}, random {7, 4}, random {7}
local v, c, u = random {5, 7}, random {5}, random {3, 5}

local function norm(a) return a:square():sum():item() ^ 0.5 end
local function up(input, weight, bias) return nn.linear(input, weight, bias, {gelu = true}) end

-- Ways to use the result of up() and GELU's input.
local ways = {
  {"a layer", function(h) return nn.linear(h, v, c):square():sum() end},
  {"two layers, one without a bias", function(h)
    return nn.linear(h, v, c):square():sum() + nn.linear(h, v):tanh():sum()
  end},
  {"a layer and more", function(h) return nn.linear(h, v, c):square():sum() + h:square():sum() end},
  {"a layer with GELU and another", function(h)
    return nn.linear((up(h, v, c)), u):square():sum()
  end},
  {"a layer, and use of GELU's input", function(h, pre)
    return nn.linear(h, v, c):square():sum() + pre:square():sum()
  end},
  {"use of GELU's input alone", function(_, pre) return pre:square():sum() end},
  {"use of both", function(h, pre)
    return nn.linear(h, v, c):square():sum() + (pre * h):sum()
  end},
}

for _, way in ipairs(ways) do
  t.case("GELU followed by " .. way[1] .. ": gradients equal finite differences", function()
    local function f(...) return way[2](up(...)) end
    t.gradcheck(f, {x, w, b})
    t.gradcheck(f, {x:retile {4, 3}, w:retile {3, 2}, b:retile {2}})
  end)
end

-- The same layers with GELU as a separate op.
local function apart(input, weight, bias)
  local pre = nn.linear(input, weight, bias)
  return pre:gelu(), pre
end

t.case("the second layer's accumulated gradients equal those with a separate GELU", function()
  local function gradients(first)
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
  local got, want = gradients(up), gradients(apart)
  for i = 1, 5 do t.near(got[i], want[i], {abs = 1e-11, rel = 1e-11}) end
end)

t.case("in bf16 the gradients are f32, as accurate as with a separate GELU", function()
  local function gradients(first, dtype)
    local list = {}
    for i, leaf in ipairs {x, w, b, v, c} do list[i] = leaf:to(dtype) end
    local _, a1, a2, a3, a4, a5 = nn.grad(function(input, weight, bias, second, shift)
      return nn.linear(first(input, weight, bias), second, shift):square():sum()
    end)(unpack(list))
    return {a1, a2, a3, a4, a5}
  end
  local exact = gradients(apart, "f64")
  local fused, separate = gradients(up, "bf16"), gradients(apart, "bf16")
  for i = 1, 5 do
    t.same(fused[i].dtype, separate[i].dtype)
    local function off(list) return norm(list[i]:to "f64" - exact[i]) end
    local size = norm(exact[i])
    t.check(off(fused) <= off(separate) * 1.5 + 0.002 * size,
            ("gradient %d: %g and %g of %g"):format(i, off(fused), off(separate), size))
  end
end)

t.case("a step of GPT-2 has no separate tasks for the gradients of GELU", function()
  local model = GPT2 {layers = 2, heads = 2, embd = 16, context = 8, vocab = 32}
  local ids = nn.zeros({2, 8}, {dtype = "i32"})
  local calls = {}
  local profile = nn.profile(function() model(ids, ids):backward() end)
  for _, kernel in ipairs(profile.kernels) do calls[kernel.name] = kernel.calls end
  t.same({calls.gemm_dgelu, calls.gelu_bias_backward}, {2, nil})
end)

t.case("x_pre must have the shape of x, and needs dx", function()
  local dy = random {9, 5}
  t.fails(function() nn.linear_backward(dy, random {9, 7}, v, {x_pre = random {9, 6}}) end,
          "x_pre is (9,6) where (9,7) is needed")
  t.fails(function()
    nn.linear_backward(dy, random {9, 7}, v, {x_pre = random {9, 7}, need_dx = false})
  end, "x_pre is given, but dx is not wanted")
end)

t.finish()
