-- Trains a model that reads a text and writes another one, such as T5 (model=NAME, default t5), by
-- span corruption: it writes the parts of a text that are hidden from it. Or trains an existing one
-- further.
--   nnlua recipes/train_span.lua                                   a minute, on nnlua's own sources
--   nnlua recipes/train_span.lua data.text=input.txt data.vocabulary=t5-small/
--   nnlua recipes/train_span.lua preset=small data.bin=train.bin data.val=val.bin
--   nnlua recipes/train_span.lua preset=finetune init=t5-small/ data.text=input.txt
-- Any setting can be given as a.b=value. --help lists the settings, --plan reports what a step
-- would cost, --profile shows where the time of some steps goes.
local nn, language = require "nn", require "nn.train.language"

local Model, words_left = language.class_of(arg, "t5", "demo", "encoder_decoder")
local model = Model.fields()                           -- its settings, with defaults for the demo
model.vocab = nn.field(0, "vocabulary size; 0: that of the text, with sentinels", {min = 0})
local schema = {
  preset = nn.field("demo", "named set of defaults"), model = model,
  data = nn.data_fields {context = 64},
  hidden = nn.field(0.15, "share of the tokens that are hidden", {min = 0, max = 1}),
  span = nn.field(3, "mean length of a hidden span in tokens", {min = 1, real = true}),
  nn.language_fields {}, nn.run_fields {},
}
local presets = language.presets {
  small = {about = "T5 small: 6 layers, hidden size 512, 128 x 512 tokens per step",
           model = {layers = 6, heads = 8, embd = 512, inner = 2048, dropout = 0.1},
           data = {batch = 8, accum = 16, context = 512}, steps = 500000, eval_every = 1000,
           final_batches = 200, optim = {lr = 1e-3, beta2 = 0.999, weight_decay = 0.01},
           schedule = {min_lr = 1e-5, warmup = 10000}},
}
local cfg = nn.config(schema, words_left,
                      {usage = "[model=NAME] [a.b=value ...]", presets = presets})
language.check(cfg)
local lr = language.schedule(cfg)

local run = nn.run(cfg)              -- folder, seed, resume, signals, checkpoints, metrics
local words = run.vocabulary
if cfg.init ~= "" then
  words = language.start_from(cfg, Model, run.checkpoint and run.checkpoint.path or cfg.init, words)
end
local data = nn.data(cfg.data, {context = cfg.data.context, vocab = cfg.model.vocab,
                                seed = cfg.seed, vocabulary = words})
language.describe_data(run, data)
local vocab, last = nn.corrupt_spans(data, {share = cfg.hidden, span = cfg.span})
if cfg.model.vocab > 0 and vocab > cfg.model.vocab then
  nn.fail("model.vocab is %d, but the sentinels need %d", cfg.model.vocab, vocab)
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

-- Reports a window of the validation data with what the model writes for the first sentinels.
local function sample()
  local ids = data.val:windows(1)():slice(1, 1, 1):table()[1]
  local how, known = cfg.sample, data.vocabulary
  local answer = nn.generate(net, ids, {tokens = math.min(how.tokens, data.val.answer),
    temperature = how.temperature, top_k = how.top_k, seed = cfg.seed, stop_ids = last})
  run:sample(("%s\n--- for the gaps: %s"):format(known:decode(ids), known:decode(answer)))
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
