-- Trains a model that predicts masked tokens, such as BERT or RoBERTa (model=NAME, default bert),
-- on a text or a token file, or trains an existing one further.
--   nnlua recipes/train_masked.lua                                 a minute, on nnlua's own sources
--   nnlua recipes/train_masked.lua data.text=input.txt data.vocabulary=bert-base-uncased/
--   nnlua recipes/train_masked.lua preset=base data.bin=train.bin data.val=val.bin
--   nnlua recipes/train_masked.lua preset=finetune init=roberta-base/ data.text=input.txt
-- Any setting can be given as a.b=value. --help lists the settings, --plan reports what a step
-- would cost, --profile shows where the time of some steps goes.
local nn, language = require "nn", require "nn.train.language"
local eval_mode = require("nn.models.evaluate").eval_mode

local Model, words_left = language.class_of(arg, "bert", "demo", "encoder")
local model = Model.fields()                           -- its settings, with defaults for the demo
model.context = nn.field(64, model.context.meaning, {min = 1})
model.vocab = nn.field(0, "vocabulary size; 0: that of the text, with a mask token", {min = 0})
model.labels, model.problem_type = nil, nil            -- a head for masked tokens
local schema = {
  preset = nn.field("demo", "named set of defaults"), model = model, data = nn.data_fields {},
  masked = nn.field(0.15, "share of the tokens that are predicted", {min = 0, max = 1}),
  nn.language_fields {}, nn.run_fields {},
}
schema[1].sample = nil                                 -- samples are predictions of masked tokens
local presets = language.presets {
  base = {about = "BERT base: 12 layers, hidden size 768, 256 x 512 tokens per step",
          model = {layers = 12, heads = 12, embd = 768, context = 512, dropout = 0.1},
          data = {batch = 8, accum = 32}, steps = 1000000, eval_every = 1000, final_batches = 200,
          optim = {lr = 1e-4, beta2 = 0.999, weight_decay = 0.01},
          schedule = {min_lr = 0, warmup = 10000}},
}
presets.finetune.sample = nil
local cfg = nn.config(schema, words_left,
                      {usage = "[model=NAME] [a.b=value ...]", presets = presets})
language.check(cfg)
local lr = language.schedule(cfg)

local run = nn.run(cfg)              -- folder, seed, resume, signals, checkpoints, metrics
local words = run.vocabulary
if cfg.init ~= "" then
  words = language.start_from(cfg, Model, run.checkpoint and run.checkpoint.path or cfg.init, words)
end
local data = nn.data(cfg.data, {context = cfg.model.context, vocab = cfg.model.vocab,
                                seed = cfg.seed, vocabulary = words})
language.describe_data(run, data)
local vocab = nn.mask_tokens(data, {share = cfg.masked})
if cfg.model.vocab > 0 and vocab > cfg.model.vocab then
  nn.fail("model.vocab is %d, but the mask token needs %d", cfg.model.vocab, vocab)
end
cfg.model.vocab = vocab

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

-- Reports a window of the validation data with the likeliest tokens in place of the masked ones.
local function sample()
  local ids, targets = data.val:windows(1)()
  local best = eval_mode(net, ids):argmax {axis = -1}
  local text, right, count = {}, 0, 0
  for t = 1, ids:dim(2) do
    local target, guess = targets:at(1, t), best:at(1, t)
    text[t] = target == -100 and ids:at(1, t) or guess
    if target ~= -100 then count, right = count + 1, right + (guess == target and 1 or 0) end
  end
  for t, id in ipairs(text) do
    if id >= data.vocabulary.size then text[t] = 0 end     -- the mask token has no text
  end
  run:sample(("%d of %d masked tokens are right: %s"):format(right, count,
                                                             data.vocabulary:decode(text)))
end
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
