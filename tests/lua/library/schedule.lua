-- Learning-rate schedules. The oracle is nanoGPT's formula, as in tests/bench/torch_char.py.
local nn = require "nn"
local t = require "nn.test"

t.case("cosine with warm-up is nanoGPT's", function()
  local lr = nn.schedule {kind = "cosine", lr = 1e-3, min_lr = 1e-4, warmup = 100, steps = 2000}
  for step = 1, 2000 do
    local k = step - 1                                   -- nanoGPT counts from 0
    local expected = 1e-3 * (k + 1) / 101
    if k >= 100 then
      local progress = (k - 100) / 1900
      expected = 1e-4 + 0.5 * (1 + math.cos(math.pi * progress)) * 9e-4
    end
    t.near(lr(step), expected, {rel = 1e-12})
  end
  t.near(lr(5000), 1e-4, {rel = 1e-12})                  -- constant after the end
end)

t.case("constant does not change after the warm-up", function()
  local lr = nn.schedule {kind = "constant", lr = 0.5, warmup = 3}
  t.near({lr(1), lr(2), lr(3), lr(4), lr(1e6)}, {0.125, 0.25, 0.375, 0.5, 0.5})
end)

t.case("linear decreases by the same amount each step", function()
  local lr = nn.schedule {kind = "linear", lr = 1, min_lr = 0.5, warmup = 0, steps = 10}
  t.near({lr(1), lr(2), lr(6), lr(11)}, {1, 0.95, 0.75, 0.5})
end)

t.case("wsd is constant, then decreases in the last fifth", function()
  local lr = nn.schedule {kind = "wsd", lr = 1, min_lr = 0, warmup = 10, steps = 110}
  t.near({lr(5), lr(11), lr(91), lr(101), lr(111)}, {5 / 11, 1, 1, 0.5, 0})
end)

t.case("a schedule without a setting that it needs is an error", function()
  local function says(options, message) t.fails(function() nn.schedule(options) end, message) end
  says({kind = "cosin", lr = 1}, "unknown kind 'cosin'; choose one of constant, cosine, "
       .. "linear, wsd")
  says({kind = "linear", lr = 1}, "the kind 'linear' needs `steps`")
  says({steps = 1}, "give lr")
  says({lr = 1, min_lr = 2, steps = 1}, "min_lr=2 is larger than lr=1")
end)

t.finish()
