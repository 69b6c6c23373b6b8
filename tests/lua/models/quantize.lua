-- Models with weights of bf16 and of 8 bits, for generation and evaluation.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local GPT2, Llama = require "models.gpt2", require "models.llama"
local root = require("nn.host").root
local folder = t.folder()

local function new_llama(tied)
  nn.seed(1)
  return Llama {layers = 2, heads = 4, kv_heads = 2, embd = 64, vocab = 300, context = 32,
                tied = tied}
end
local prompts = {{1, 2, 3}, {9, 8, 7, 6}}

t.case("a quantized matrix is off by at most half a step of each row, and products follow it",
       function()
  nn.seed(2)
  local w, x, bias = nn.randn(70, 130), nn.randn(20, 130), nn.randn(70)
  local bytes, scale = nn.quantize(w)
  local rounded = (bytes:to "f32" - 128) * scale:reshape(70, 1)
  local step = w:abs():max(2):reshape(70, 1) / 127
  t.check(((rounded - w):abs() / step):max():item() < 0.5001, "more than half a step")
  for _, rows in ipairs {1, 2, 12, 20} do                    -- one way for few rows, one for many
    local part = x:slice(1, 1, rows)
    t.near(nn.quantized_linear(part, bytes, scale, bias),
           (nn.linear(part, rounded, bias)), {rel = 1e-5, abs = 1e-4})
  end
end)

t.case("a quantized model computes what the rounded weights give, cached and not", function()
  for _, tied in ipairs {true, false} do
    local model, twin = new_llama(tied), new_llama(tied)
    nn.no_grad(function()
      for _, p in ipairs(twin:parameters()) do
        if #p.tensor.shape == 2 and not p.path:find "^tok" then
          local bytes, scale = nn.quantize(p.tensor)
          p.tensor:copy_((bytes:to "f32" - 128) * scale:reshape(p.tensor:dim(1), 1))
        end
      end
    end)
    t.same(nn.quantize_weights(model), model)
    local ids = nn.tensor({{5, 6, 7, 8, 9}}, {dtype = "i32"})
    local targets = nn.tensor({{6, 7, 8, 9, -100}}, {dtype = "i32"})
    -- The head of a tied model is rounded, but not its embedding.
    local tolerance = {abs = tied and 0.02 or 1e-5, rel = tied and 0.02 or 1e-5}
    nn.no_grad(function()
      t.near(model(ids), twin(ids), tolerance)
      t.near(model(ids, targets):item(), twin(ids, targets):item(), tolerance)
      t.near(model(ids, targets, {scale = 3}):item(), 3 * model(ids, targets):item(), {rel = 1e-6})
    end)
    local whole = setmetatable({config = model.config}, {
      __call = function(_, input) return model(input) end})
    local all = nn.generate(model, prompts, {tokens = 12, temperature = 0})
    for i, prompt in ipairs(prompts) do
      t.same((nn.generate(whole, prompt, {tokens = 12, temperature = 0})), all[i])
    end
  end
end)

t.case("generation with bytes has the same bits for any number of workers", function()
  local script = folder .. "/bits.lua"
  files.write(script, [[
    local nn = require "nn"
    nn.seed(1)
    local model = nn.quantize_weights(require "models.gpt2" {layers = 2, heads = 2, embd = 64,
                                                             vocab = 2000, context = 32})
    local _, info = nn.generate(model, {{1, 2, 3}, {4}}, {tokens = 8, logprobs = true})
    for _, row in ipairs(info.logprobs) do
      for _, x in ipairs(row) do print(("%.17g"):format(x)) end
    end]])
  local first
  for cpus = 1, 3 do
    local status, output = t.shell(("NNLUA_CPUS=%d $NNLUA %s 2>/dev/null"):format(cpus, script))
    t.check(status == 0, output)
    first = first or output
    t.same(output, first)
  end
end)

t.case("load_model takes the weights as f32, bf16 or int8, from a folder or a checkpoint",
       function()
  local path, model = folder .. "/hf", new_llama(false)
  nn.save_hf(path, model)
  local run = nn.save_checkpoint(folder .. "/run/checkpoint-000001", {
    step = 1, model = model, config = {model = model.config}})
  local ids = nn.tensor({{5, 6, 7}}, {dtype = "i32"})
  local logits = nn.no_grad(model, ids)
  for _, from in ipairs {path, run} do
    t.near(nn.no_grad(nn.load_model(from), ids), logits, {abs = 0})
    local half = nn.load_model(from, nil, {weights = "bf16"})
    t.same(half.blocks[1].mlp.down.weight.dtype, "bf16")
    t.near(nn.no_grad(half, ids):to "f32", logits, {abs = 0.02})
    local bytes = nn.load_model(from, nil, {weights = "int8"})
    t.near(nn.no_grad(bytes, ids), logits, {abs = 0.02})
    t.same(bytes.blocks[1].mlp.down.weight, nil)
  end
  t.fails(function() nn.load_model(path, nil, {weights = "int4"}) end,
          "load_model: weights is 'int4'; f32, bf16 or int8 is needed")
end)

t.case("a quantized model can be neither saved, quantized again nor trained", function()
  local model = nn.quantize_weights(new_llama(true))
  t.fails(function() nn.save_hf(folder .. "/bytes", model) end,
          "save_hf: the model has weights of 8 bits (nn.quantize_weights); save it before")
  t.same(files.exists(folder .. "/bytes"), false)
  t.fails(function() nn.quantize_weights(model) end,
          "quantize_weights: the model is quantized already")
  t.fails(function()
    model(nn.tensor({{1, 2}}, {dtype = "i32"}), nn.tensor({{2, 3}}, {dtype = "i32"})):backward()
  end, "does not depend on anything that needs a gradient")
  t.fails(function() nn.quantize_weights {} end, "a module is needed")
end)

t.case("the recipes evaluate and generate with each kind of weights, and plan for it", function()
  local words = nn.vocabulary("char", "abcdefgh 12+=")
  nn.seed(1)
  local model = GPT2 {layers = 2, heads = 2, embd = 64, vocab = words.size, context = 16}
  nn.save_hf(folder .. "/chars", model, words)
  files.write(folder .. "/text", ("1+2= abc "):rep(30))
  local found = {}
  for _, weights in ipairs {"f32", "bf16", "int8"} do
    local status, output = t.shell(("$NNLUA %s/recipes/gpt2_eval.lua model=%s/chars text=%s/text "
      .. "weights=%s 2>&1"):format(root, folder, folder, weights))
    t.check(status == 0, output)
    found[weights] = tonumber(output:match "perplexity ([%d%.]+)")
    status, output = t.shell(("$NNLUA %s/recipes/gpt2_generate.lua model=%s/chars prompt=abc "
      .. "tokens=5 weights=%s 2>&1"):format(root, folder, weights))
    t.check(status == 0 and output:find("abc", 1, true), output)
    status, output = t.shell(("$NNLUA %s/recipes/gpt2_generate.lua model=%s/chars prompt=abc "
      .. "tokens=5 weights=%s --plan 2>&1"):format(root, folder, weights))
    t.check(status == 0 and output:find "peak", output)
  end
  t.near(found.bf16, found.f32, {rel = 0.02})
  t.near(found.int8, found.f32, {rel = 0.02})
end)

t.finish()
