-- Models by name: a file models/NAME.lua with a new model can be trained, saved, loaded, planned
-- and used for generation like GPT-2.
local files = require "nn.io.files"
local nn = require "nn"
local registry = require "nn.models.registry"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

-- A decoder whose hidden state is the mean of the embeddings so far.
local bag = [[
local nn = require "nn"
local Bag = nn.module "Bag"
Bag.dimensions = {"embd", "context", "vocab"}

function Bag:init(config)
  config = nn.options("bag", config, {embd = true, context = true, vocab = true})
  self.config = {embd = config.embd or 16, context = config.context or 32, vocab = config.vocab}
  self.tok = nn.Embedding(self.config.vocab, self.config.embd)
  self.up = nn.Linear(self.config.embd, 64, {gelu = true})
  self.out = nn.Linear(64, self.config.vocab)
end

function Bag:forward(ids, targets, options)
  local time = ids:dim(2)
  local position = nn.arange(time, {dtype = "f32"})
  local seen = position:reshape(time, 1):ge(position:reshape(1, time)):to "f32"
  local mean = (seen / (position + 1):reshape(time, 1)):matmul(self.tok(ids))
  local logits = self.out(self.up(mean))
  if not targets then return logits end
  return nn.cross_entropy(logits, targets) * (options and options.scale or 1)
end

function Bag:caches(batch) return {nn.zeros(batch, self.config.embd)} end

function Bag:next(ids, caches, start, last)
  local batch, time = ids:dim(1), ids:dim(2)
  local x, count = self.tok(ids), (start + 1):to "f32"
  if last then                     -- prompts, padded at their end
    local first = nn.arange(batch, {step = time, dtype = "f32"})
    count = last:to "f32" - first + 1
    local seen = count:reshape(batch, 1):gt(nn.arange(time, {dtype = "f32"}):reshape(1, time))
    x = x * seen:to "f32":reshape(batch, time, 1)
  end
  caches[1]:add_(x:sum(2))
  return self.out(self.up(caches[1] / count:reshape(batch, 1)))
end

function Bag:flops_per_token() return 6 * 64 * (self.config.embd + self.config.vocab) end

Bag.hugging_face = {
  types = {bag_of_embeddings = "BagLMHeadModel"},
  settings = {embd = "hidden_size", context = "max_position_embeddings", vocab = "vocab_size"},
  fixed = {hidden_act = "gelu_new"},
  name = function(path) return "bag." .. path, path:find "^up%.weight" ~= nil end,
}

return Bag
]]

local train = [[
local nn, Bag = require "nn", require "models.bag"
local cfg = nn.config({model = {embd = 8, context = 16, vocab = 0}, data = nn.data_fields {},
                       nn.run_fields {steps = 60, out = "run", eval_every = 0}}, arg)
local run = nn.run(cfg)
local data = nn.data(cfg.data, {context = cfg.model.context})
cfg.model.vocab = data.vocab
local function build()
  local model = Bag(cfg.model)
  local optim = nn.AdamW(model, {lr = 0.01})
  return model, optim, nn.compile(function(ids, targets)
    optim:zero_grad()
    return nn.accumulate(model, cfg.data.accum, ids, targets), optim:step()
  end)
end
if not run:plan(build, data.train) then return end
local model, optim, step = build()
run:track {model = model, optim = optim, data = data.train, vocabulary = data.vocabulary}
for _ in run:steps() do run:record(step(data.train:batch())) end
run:done {val_loss = nn.evaluate(model, data.val, 4)}
]]

local folder, root = t.folder(), require("nn.host").root
files.make_folder(folder .. "/models")
files.write(folder .. "/models/bag.lua", bag)
files.write(folder .. "/train.lua", train)
files.write(folder .. "/input.txt", ("to be, or not to be: that is the question. "):rep(40))

local function shell(command)
  local status, output = t.shell(("cd '%s'\n%s"):format(folder, command))
  t.check(status == 0, output)
  return output
end

t.case("a user's own model is planned and trained like any other", function()
  local data = "data.text=input.txt data.batch=2 data.accum=2"
  local plan = shell("$NNLUA train.lua --plan " .. data)
  t.check(plan:find "^parameters" and plan:find "\nlargest batch +data.batch=%d+", plan)
  local output = shell("$NNLUA train.lua " .. data)
  t.check(tonumber(output:match "val_loss (%d%.%d+)") < 2.5, output)
  t.same(nn.open_checkpoint(folder .. "/run/checkpoint-000060").state.model, "bag")
end)

t.case("the recipes for GPT-2 evaluate and plan it, and generate text with it", function()
  shell(("$NNLUA %s/recipes/gpt2_eval.lua model=run text=input.txt batch=2"):format(root))
  local command = ("$NNLUA %s/recipes/gpt2_generate.lua model=run prompt=to tokens=30 %%s"):format(
    root)
  t.check(shell(command:format "temperature=0"):find "^to", "it continues the prompt")
  t.check(shell(command:format "samples=3 --plan"):find "\n  cache +%d", "its cache is counted")
  t.check(shell(("$NNLUA %s/recipes/gpt2_eval.lua model=run --plan"):format(root)):find "^param")
end)

t.case("it loads in the format of transformers, and generates with and without its caches",
       function()
  shell [[$NNLUA -e '
    local t = require "nn.test"
    local model, words = nn.load_model "run"
    nn.save_hf("there", model, words)
    local again = nn.load_model "there"
    for i, p in ipairs(again:parameters()) do t.same(p.tensor, model:parameters()[i].tensor) end
    local names = nn.load_safetensors "there/model.safetensors"
    t.same({names["bag.up.weight"]:dims()}, {8, 64})
    local prompts, how = {words:ids "to be", words:ids "question"}, {tokens = 7, temperature = 0}
    local cached = nn.generate(again, prompts, how)
    getmetatable(again).caches = nil
    t.same(nn.generate(again, prompts, how), cached)']]
end)

t.case("a checkpoint without a model's name is loaded as GPT-2", function()
  local settings = {layers = 1, heads = 2, embd = 16, context = 16, vocab = 256}
  local model = GPT2(settings)
  t.same(registry.name_of(model), "gpt2")
  local path = nn.save_checkpoint(folder .. "/old", {step = 1, model = model,
                                                     config = {model = settings}})
  local state = files.read(path .. "/state.json"):gsub('  "model": "gpt2",\n', "")
  local text = state:match '^{"crc32":"%x+",(.*)\n$'
  t.check(not text:find "gpt2")
  files.write(path .. "/state.json",
              ('{"crc32":"%08x",%s\n'):format(files.crc32(text), text))
  t.same(nn.load_model(path).tok.weight, model.tok.weight)
end)

t.case("files of models that are none are refused by one line", function()
  local own = folder .. "/wrong"
  files.make_folder(own .. "/models/within")
  for name, case in pairs {
    empty = {"return {}", "empty.lua returns a table that is no class of nn.module; end it with"},
    number = {"return 3", "number.lua returns no class; end it with `return CLASS`"},
    broken = {"local x =\nreturn 3", "broken.lua:2: unexpected symbol near 'return'"},
    within = {nil, "models/within/init.lua is not looked for: make it models/within.lua"},
  } do
    files.write(("%s/models/%s.lua"):format(own, case[1] and name or "within/init"),
                case[1] or "return {}")
    local status, output = t.shell(("cd '%s'; $NNLUA %s/recipes/train.lua model=%s --plan 2>&1")
                                   :format(own, root, name))
    t.check(status == 1 and output:find(case[2], 1, true) and not output:find "traceback", output)
    t.same(select(2, output:gsub("\n", "")), 1, output)
    files.remove(("%s/models/%s.lua"):format(own, name))
  end
end)

t.case("an unknown model is an error that lists the known ones", function()
  t.fails(function() registry.find "gpt3" end, "unknown model 'gpt3' in models/; did you mean")
  t.fails(function() registry.find "../gpt2" end, "unknown model '../gpt2' in models/")
  t.fails(function() registry.find "xyz" end, "choose one of bert, gpt2")
  files.make_folder(folder .. "/other")
  local function refused(config, message)
    files.write(folder .. "/other/config.json", config)
    t.fails(function() nn.load_hf(folder .. "/other") end, message)
  end
  refused('{"model_type": "xlnet"}',
          "config.json: model_type is 'xlnet', which no model in models/ has")
  refused('{"model_type": "lama"}', "did you mean 'llama'?")
  refused('{"architectures": ["T5WithLMHeadModel"], "layer_norm_epsilon": 1e-6}',
          "config.json has no model_type (T5WithLMHeadModel), so it is not that of")
  refused('{}', "config.json has no model_type, so it is not that of")
  local Own = nn.module "Own"
  function Own:init() self.layer = nn.Linear(2, 2) end
  local path = nn.save_checkpoint(folder .. "/own", {step = 1, model = Own(),
                                                     config = {model = {}}})
  t.fails(function() nn.load_model(path) end, "a model of no file models/NAME.lua; load it with")
  t.fails(function() nn.save_hf(folder .. "/own-hf", Own()) end, "a Own; its class needs")
end)

t.finish()
