-- Trains a language model of models/ (model=NAME, default llama) on a text or a token file, or
-- fine-tunes an existing one.
--   nnlua recipes/train.lua                                        a minute, on nnlua's own sources
--   nnlua recipes/train.lua model=llama preset=15m data.bin=train.bin data.val=val.bin
--   nnlua recipes/train.lua model=gpt2 data.text=input.txt model.layers=6
--   nnlua recipes/train.lua preset=finetune init=SmolLM-135M/ data.text=input.txt
--   nnlua recipes/train.lua preset=110m model.kv_heads=4 --plan    memory and time of a step
-- Any setting can be given as a.b=value. --help lists the settings, with model=NAME those of that
-- model; --plan reports what a step would cost, --profile shows where the time of some steps goes.
local nn = require "nn"
local language, precision = require "nn.train.language", require "nn.train.precision"

local Model, words_left = language.class_of(arg, "llama", "demo")
local model = Model.fields()                           -- its settings, with defaults for the demo
model.context = nn.field(64, model.context.meaning, {min = 1})
model.dtype = model.dtype and precision.field()
model.vocab = nn.field(0, "vocabulary size; 0: that of the text, or 50257 for a .bin", {min = 0})
local schema = {
  preset = nn.field("demo", "named set of defaults"), model = model, data = nn.data_fields {},
  nn.language_fields {}, nn.run_fields {},
}

-- A model of stories or web text: about half a million tokens per step.
local function sized(about, size, lr, batch)
  return {about = about, model = size, steps = 100000, eval_every = 1000, final_batches = 200,
          data = {batch = batch, accum = 524288 / batch / size.context},
          optim = {lr = lr, beta2 = 0.95}, schedule = {min_lr = lr / 10, warmup = 1000}}
end
local presets = language.presets {
  ["15m"] = sized("6 layers, hidden size 288, context 256",
                  {layers = 6, heads = 6, embd = 288, context = 256}, 5e-4, 32),
  ["110m"] = sized("12 layers, hidden size 768, context 1024",
                   {layers = 12, heads = 12, embd = 768, context = 1024,
                    dtype = model.dtype and "auto"}, 4e-4, 8),
}
local cfg = nn.config(schema, words_left,
                      {usage = "[model=NAME] [a.b=value ...]", presets = presets})
language.check(cfg)
local lr = language.schedule(cfg)

local run = nn.run(cfg)              -- folder, seed, resume, signals, checkpoints, metrics
precision.choose(cfg, run)
local words = run.vocabulary
if cfg.init ~= "" then
  words = language.start_from(cfg, Model, run.checkpoint and run.checkpoint.path or cfg.init, words)
end
local data = nn.data(cfg.data, {context = cfg.model.context, vocab = cfg.model.vocab,
                                seed = cfg.seed, vocabulary = words})
language.describe_data(run, data)
cfg.model.vocab = data.vocab

local function build(from_init)
  local net = Model(cfg.model)
  if from_init then net:load(nn.load_model(cfg.init):state()) end
  local optim = language.optimizer(net, cfg)
  return net, optim, nn.compile(function(ids, targets)     -- recorded once, then replayed
    local loss = nn.accumulate(net, cfg.data.accum, ids, targets)          -- forward and backward
    return loss, optim:step()                              -- returns the gradient norm
  end)
end
local requirements = Model.requirements(cfg.model, cfg.data.batch * data.train.context)
if not run:plan(build, data.train, requirements) then return end  -- does it fit?
local net, optim, train_step = build(cfg.init ~= "" and not run.checkpoint)
collectgarbage()

local function sample() language.sample(run, net, data, cfg) end
run:track {model = net, optim = optim, data = data.train, vocabulary = data.vocabulary}

for step in run:steps() do
  optim.lr = lr(step)
  run:record(train_step(data.train:batch()))
  run:every(cfg.eval_every, function()
    run:report {val_loss = run:validate(net, data.val, cfg.eval_batches)}
  end)
  run:every(cfg.sample_every, sample)
end
local val_loss = run:validate(net, data.val, cfg.final_batches)
if cfg.sample_every == 0 or cfg.steps % cfg.sample_every > 0 then sample() end
run:done {val_loss = val_loss}
