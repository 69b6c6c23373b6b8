-- Gradients of linear layers with GELU. In a compiled function the kernel of the next layer's
-- product also computes the gradients of GELU's input and of its bias (the pass fuse_epilogues).
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

  t.case("GELU followed by " .. way[1] .. ": a compiled function gives the bits of an eager one",
         function()
    local function gradients(...)
      return nn.grad(function(...) return way[2](up(...)) end)(...)
    end
    local compiled = nn.compile(gradients)
    for _, arguments in ipairs {{x, w, b}, {x:retile {4, 3}, w:retile {3, 2}, b:retile {2}},
                                {x:retile {2, 0}, w, b}} do
      local want, got = {gradients(unpack(arguments))}, {compiled(unpack(arguments))}
      for i = 1, 4 do t.near(got[i], want[i], {abs = 0}) end
    end
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
    return {nn.compile(function(...)
      return select(2, nn.grad(function(input, weight, bias, second, shift)
        return nn.linear(first(input, weight, bias), second, shift):square():sum()
      end)(...))
    end)(unpack(list))}
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

t.case("a compiled step of GPT-2 has no separate tasks for the gradients of GELU", function()
  local model = GPT2 {layers = 2, heads = 2, embd = 16, context = 8, vocab = 32}
  local ids = nn.zeros({2, 8}, {dtype = "i32"})
  local function step(tokens)
    local loss = model(tokens, tokens)
    loss:backward()
    return loss, model.blocks[1].mlp.up.bias.grad, model.blocks[2].mlp.up.weight.grad
  end
  local function calls(f)
    local out = {}
    for _, kernel in ipairs(nn.profile(f).kernels) do out[kernel.name] = kernel.calls end
    return {out.gemm_dgelu or 0, out.gelu_bias_backward or 0}
  end
  local compiled = nn.compile(step)
  compiled(ids)
  t.same(calls(function() compiled(ids) end), {2, 0})
  t.same(calls(function() step(ids) end), {0, 2})
end)

t.finish()
