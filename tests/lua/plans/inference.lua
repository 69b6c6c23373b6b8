-- Plans of evaluation and generation: predictions match measurements.
local nn = require "nn"
local t = require "nn.test"
local files = require "nn.io.files"
local model_file, model_plan = require "nn.models.load", require "nn.plan.inference"
local registry = require "nn.models.registry"
local GPT2 = require "models.gpt2"

local config = {layers = 3, heads = 4, embd = 128, context = 128, vocab = 9000}
local bf16 = {layers = 3, heads = 4, embd = 128, context = 128, vocab = 300, dtype = "bf16"}

nn.memory_budget(200e6)                  -- makes the search for the largest batch short

-- The peak of use(model) above the memory in use before the model.
local function measured(settings, use)
  for _ = 1, 2 do collectgarbage() end
  nn.sync()
  local others = nn.memory().in_use
  return nn.scope(function()
    local model = GPT2(settings)
    nn.sync()
    nn.reset_peak()
    use(model)
    nn.sync()
    return nn.memory().peak - others
  end)
end

-- A plan reports the worst of several perturbed schedules; real schedules may all need a little
-- less. So the highest of some must come near. On a busy machine a schedule can be a little worse
-- than those of the plan.
local function near(plan, settings, use)
  local highest = 0
  for _ = 1, 8 do
    highest = math.max(highest, measured(settings, use))
    if highest >= 0.95 * plan.peak then break end
  end
  t.check(highest >= 0.9 * plan.peak and highest <= 1.05 * plan.peak,
          ("%d planned, %d measured"):format(plan.peak, highest))
end

for name, case in pairs {["a batch of 4"] = {config, 4}, ["a batch of 16"] = {config, 16},
                         bf16 = {bf16, 8}} do
  t.case("evaluation takes the memory that is planned: " .. name, function()
    local settings, rows = case[1], case[2]
    local plan = model_plan.evaluation(registry.outline(GPT2, settings), rows, settings.context)
    near(plan, settings, function(model)
      local array = require("ffi").new("int32_t[?]", rows * 128, 7)
      local loss_of = nn.compile(function(ids, targets) return model(ids, targets) end)
      for _ = 1, 3 do
        local ids = nn.from_host(array, {rows, 128}, "i32", {axes = "batch,time"})
        nn.no_grad(loss_of, ids, ids):item()
        ids:release()
      end
    end)
    t.check(plan.kinds.activations > 0 and plan.kinds.gradients == 0 and plan.kinds.cache == 0)
  end)
end

for name, case in pairs {["one prompt"] = {config, 1, 20}, ["8 long prompts"] = {config, 8, 100},
                         ["32 short prompts"] = {config, 32, 4}, bf16 = {bf16, 8, 30}} do
  t.case("generating takes the memory that is planned: " .. name, function()
    local settings, rows, length = unpack(case)
    local prompts = {}
    for r = 1, rows do
      prompts[r] = {}
      for i = 1, length do prompts[r][i] = i end
    end
    local plan = model_plan.generation(registry.outline(GPT2, settings), {prompts[1]}, 5, rows)
    for _, temperature in ipairs {0, 1} do
      near(plan, settings, function(model)
        nn.generate(model, prompts, {tokens = 5, temperature = temperature})
      end)
    end
    local room = math.ceil((length + 5) / 64) * 64
    local bytes = (settings.dtype and 2 or 4) * rows * 3 * 2 * 128 * room
    t.near(plan.kinds.cache, bytes, {rel = 0.02})
    t.check(tostring(plan):find "\n  cache +%d+%.?%d* [kM]B\n" and plan.reading.seconds > 0)
  end)
end

t.case("a model's settings are known without its weights", function()
  local folder = os.tmpname()
  os.remove(folder)
  nn.save_hf(folder, GPT2(config), nn.vocabulary "byte")
  os.remove(files.join(folder, "model.safetensors"))
  for _ = 1, 2 do collectgarbage() end   -- frees that model, and tensors of the cases above
  nn.sync()
  local before = nn.memory().in_use
  local model, words = model_file.outline(folder)
  t.same({model.config.embd, model.config.vocab, words.size}, {128, 9000, 256})
  t.same(nn.memory().in_use, before)
  for recipe, name in pairs {gpt2_eval = "batch", gpt2_generate = "samples"} do
    local status, output = t.shell(("$NNLUA %s/recipes/%s.lua model=%s --plan"):format(
      require("nn.host").root, recipe, folder))
    t.same(status, 0)
    -- on a busy machine, after what --plan is doing
    t.check(("\n" .. output):find "\nparameters +1%.76M\nFLOPs +%S+ a token, ", output)
    t.check(output:find("\nlargest batch +" .. name .. "=%d+") and output:find "\ntime +about ",
            output)
  end
  files.remove(folder)
end)

t.case("prompts beyond the context have no plan, and tokens beyond it are reported", function()
  local model = registry.outline(GPT2, {layers = 1, heads = 2, embd = 16, context = 8, vocab = 20})
  t.fails(function() model_plan.generation(model, {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, 5, 1) end,
          "plan: a prompt of 9 tokens is longer than the model's context of 8")
  t.check(tostring(model_plan.generation(model, {{1, 2, 3, 4, 5, 6}}, 5, 1)):find(
    "\nbeyond +2 tokens exceed the context of 8; each reads the last 8 again"))
end)

t.case("a plan of any step counts the given tensors, and finds the largest batch", function()
  local plan = nn.plan_step(function(batch)
    local layer, input = nn.Linear(1000, 1000), nn.zeros(batch, 1000)
    return function() return nn.no_grad(layer, input):sum() end, {weights = layer, other = {input}}
  end, {batch = 64, name = "rows"})
  t.same(plan.parameters, 1001000)
  t.near({plan.kinds.weights, plan.kinds.other}, {4004000, 256000}, {rel = 0.07})   -- rounded up
  t.check(tostring(plan):find "\nlargest batch +rows=%d+", tostring(plan))
  t.fails(function()
    nn.plan_step(function() return function() end, {weight = {}} end)
  end, "plan_step: has no option 'weight'")
end)

t.finish()
