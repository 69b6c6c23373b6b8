-- Trains GPT-2 on a text or a token file, in any size from a model that trains in a minute on a
-- laptop to GPT-2 XL; or fine-tunes an existing model.
--   nnlua recipes/gpt2_train.lua                                   a minute, on nnlua's own sources
--   nnlua recipes/gpt2_train.lua preset=char data.text=input.txt   nanoGPT's small CPU setting
--   nnlua recipes/gpt2_train.lua preset=gpt2 data.bin=train.bin data.val=val.bin
--   nnlua recipes/gpt2_train.lua preset=finetune init=gpt2/ data.text=input.txt
--   nnlua recipes/gpt2_train.lua preset=gpt3-175b --plan           memory and time of a step
-- Any setting can be given as a.b=value. --help lists the settings, --plan reports what a step
-- would cost, --profile shows where the time of some steps goes.
local nn, GPT2 = require "nn", require "models.gpt2"
local language, precision = require "nn.train.language", require "nn.train.precision"

local field = nn.field
local schema = {
  preset = field("demo", "named set of defaults"),
  model = {
    layers = field(4, "transformer blocks", {min = 1}),
    heads = field(4, "attention heads; embd must be a multiple", {min = 1}),
    embd = field(128, "hidden size", {min = 1}),
    context = field(64, "context length in tokens", {min = 1}),
    vocab = field(0, "vocabulary size; 0: that of the text, or 50257 for a .bin", {min = 0}),
    dropout = field(0, "dropout probability in training", {min = 0, max = 0.99, real = true}),
    dtype = precision.field(),
  },
  data = nn.data_fields {},
  nn.language_fields {},
  nn.run_fields {},
}

-- The settings of a published size; the vocabulary is that of the data.
local function preset(name, settings)
  local size = GPT2.size(name)
  settings.about = ("%d layers, hidden size %d"):format(size.layers, size.embd)
  settings.model = {layers = size.layers, heads = size.heads, embd = size.embd,
                    context = size.context, dtype = "auto", vocab = settings.vocab}
  settings.vocab, settings.eval_every, settings.final_batches = nil, 1000, 200
  return settings
end
-- A released size with nanoGPT's settings: half a million tokens per step.
local function gpt2(name, lr, batch)
  return preset(name, {data = {batch = batch, accum = 480 / batch},
                       optim = {lr = lr, beta2 = 0.95},
                       schedule = {min_lr = lr / 10, warmup = 2000}, steps = 600000})
end
-- GPT-3 (Brown et al. 2020, table 2.1 and appendix B): 300 billion tokens, about `tokens` per step.
local function gpt3(name, lr, tokens)
  return preset(name, {vocab = 50257, data = {batch = 1, accum = math.floor(tokens / 2000)},
                       optim = {lr = lr, beta2 = 0.95},
                       schedule = {min_lr = lr / 10, warmup = math.floor(375e6 / tokens)},
                       steps = math.floor(3e11 / tokens / 1000 + 0.5) * 1000})
end
local presets = language.presets {
  ["gpt2"] = gpt2("gpt2", 6e-4, 12), ["gpt2-medium"] = gpt2("gpt2-medium", 3e-4, 8),
  ["gpt2-large"] = gpt2("gpt2-large", 2.5e-4, 6), ["gpt2-xl"] = gpt2("gpt2-xl", 2e-4, 4),
  ["gpt3-2.7b"] = gpt3("gpt3-2.7b", 1.6e-4, 1e6), ["gpt3-6.7b"] = gpt3("gpt3-6.7b", 1.2e-4, 2e6),
  ["gpt3-175b"] = gpt3("gpt3-175b", 6e-5, 3.2e6),
}
presets.char.model = {dtype = "auto"}
local cfg = nn.config(schema, arg, {presets = presets})
language.check(cfg)
local lr = language.schedule(cfg)
local run = nn.run(cfg)              -- folder, seed, resume, signals, checkpoints, metrics
precision.choose(cfg, run)
local words = run.vocabulary
if cfg.init ~= "" then
  words = language.start_from(cfg, GPT2, run.checkpoint and run.checkpoint.path or cfg.init, words)
end
-- The released sizes are for GPT-2's tokens.
local on_characters = cfg.preset:find "^gpt" and cfg.data.bin == "" and not words
  and cfg.model.vocab == 0 and not require("nn.io.config").given(cfg, "data.vocabulary")
if on_characters then
  local found = require("nn.text.tokenizer").find_gpt2(cfg.data.text:match "^(.*)/" or ".")
  if found then
    cfg.data.vocabulary, on_characters = found, false
    run:say(("using GPT-2's tokenizer in %s (data.vocabulary)"):format(found))
  end
end
local data = nn.data(cfg.data, {context = cfg.model.context, vocab = cfg.model.vocab,
                                seed = cfg.seed, vocabulary = words})
language.describe_data(run, data)
cfg.model.vocab = data.vocab
if on_characters then
  run:say(("preset=%s trains on %d characters, because GPT-2's tokenizer was not found; to use its "
           .. "50257 tokens, give data.vocabulary=FOLDER with GPT-2's tokenizer.json, or data.bin "
           .. "(see recipes/tokens_prepare.lua)"):format(cfg.preset, data.vocab))
end

local function build(from_init)
  local model = GPT2(cfg.model)
  if from_init then model:load(nn.load_model(cfg.init):state()) end
  local optim = language.optimizer(model, cfg)
  return model, optim, nn.compile(function(ids, targets)   -- recorded once, then replayed
    local loss = nn.accumulate(model, cfg.data.accum, ids, targets)        -- forward and backward
    return loss, optim:step()                              -- returns the gradient norm
  end)
end
local requirements = GPT2.requirements(cfg.model, cfg.data.batch * data.train.context)
if not run:plan(build, data.train, requirements) then return end  -- does it fit?
local model, optim, train_step = build(cfg.init ~= "" and not run.checkpoint)
collectgarbage()

local function sample() language.sample(run, model, data, cfg) end
run:track {model = model, optim = optim, data = data.train, vocabulary = data.vocabulary}

for step in run:steps() do
  optim.lr = lr(step)
  run:record(train_step(data.train:batch()))
  run:every(cfg.eval_every, function()
    run:report {val_loss = run:validate(model, data.val, cfg.eval_batches)}
  end)
  run:every(cfg.sample_every, sample)
end
local val_loss = run:validate(model, data.val, cfg.final_batches)
if cfg.sample_every == 0 or cfg.steps % cfg.sample_every > 0 then sample() end
run:done {val_loss = val_loss}
