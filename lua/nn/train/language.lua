-- What the recipes that train language models share: their settings of the optimizer, the schedule
-- and the samples, the start from another model, and samples during training.
local checkpoint = require "nn.models.checkpoint"
local config = require "nn.io.config"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local generate = require "nn.models.generate"
local home = require "nn.io.home"
local lib = require "nn.base.capi"
local load = require "nn.models.load"
local optimizers = require "nn.core.optim"
local registry = require "nn.models.registry"
local schedules = require "nn.train.schedule"
local settings = require "nn.train.settings"

local M = {}
local field = config.field

--- nn.language_fields(defaults) -> the settings init, optim, schedule and sample for the schema of
--- a recipe that trains a language model, with its own defaults by name, also in groups.
---     local cfg = nn.config({nn.language_fields {optim = {lr = 6e-4}}}, {})
---     cfg.optim.lr, cfg.schedule.kind  --> 0.0006, "cosine"
function M.language_fields(defaults)
  return config.override("language_fields", {
    init = field("", "run, checkpoint or Hugging Face folder whose weights, sizes and vocabulary "
                 .. "the training starts from", {path = true}),
    optim = {
      kind = field("adamw", "optimizer; lion needs 3 to 10 times lower rates, and as many times "
                   .. "larger decay", {choices = {"adamw", "adam", "lion"}}),
      lr = field(1e-3, "peak learning rate", {min = 0}),
      beta1 = field(0.9, "decay of the first moment", {min = 0, max = 1}),
      beta2 = field(0.99, "decay of the second moment", {min = 0, max = 1}),
      weight_decay = field(0.1, "weight decay of matrices", {min = 0}),
      clip = field(1, "largest gradient norm; 0: no clipping", {min = 0, real = true}),
      rounding = field("nearest", "rounding of bf16 weights; stochastic needs no masters",
                       {choices = {"nearest", "stochastic"}}),
      gradients = field("f32", "dtype of the gradients of bf16 weights; bf16 takes half the "
                        .. "memory where the tokens of a step are one tile, as on one GPU",
                        {choices = {"f32", "bf16"}}),
    },
    schedule = {
      kind = field("cosine", "learning-rate schedule", {choices = schedules.schedules}),
      min_lr = field(1e-4, "final learning rate", {min = 0}),
      warmup = field(100, "steps of linear warmup", {min = 0}),
    },
    sample = {
      tokens = field(300, "tokens per sample", {min = 0}),
      temperature = field(0.8, "below 1 favours likely tokens; 0: always the likeliest", {min = 0}),
      top_k = field(200, "sample from the k likeliest tokens; 0: from all", {min = 0}),
    },
  }, defaults)
end

--- presets(own) -> the presets `own` of a recipe that trains a language model, and demo, char and
--- finetune.
function M.presets(own)
  own.demo = {base = "char", about = "char with fewer steps: about a minute", steps = 1500,
              final_batches = 100}
  own.char = {about = "nanoGPT's small CPU setting: 2000 steps of 12 x 64 characters"}
  own.finetune = {
    about = "for init=FOLDER: 200 steps of 8 x 128 tokens with a low learning rate", steps = 200,
    data = {batch = 8, context = 128}, eval_every = 50, eval_batches = 10, final_batches = 50,
    save_every = 100, sample = {tokens = 100}, optim = {lr = 3e-5, beta2 = 0.95},
    schedule = {warmup = 20, min_lr = 3e-6},
  }
  return own
end

--- check(cfg) raises an error if preset finetune has nothing to start from.
function M.check(cfg)
  if cfg.preset == "finetune" and cfg.init == "" then
    lib.fail "preset finetune needs init=FOLDER: a run, a checkpoint or a Hugging Face folder"
  end
end

local classes = {adamw = "AdamW", adam = "Adam", lion = "Lion"}

--- optimizer(model, cfg) -> the optimizer of the settings cfg.optim, after a choice of the dtype of
--- gradients. Errors: a rounding that the optimizer lacks.
function M.optimizer(model, cfg)
  local o = cfg.optim
  local rounds = o.kind ~= "lion"
  if not rounds and o.rounding ~= "nearest" then
    lib.fail("optim.rounding=%s is for adamw and adam; leave it out, or change optim.kind",
             o.rounding)
  end
  engine.gradient_dtype(o.gradients)
  return optimizers[classes[o.kind]](model, {
    lr = o.lr, beta1 = o.beta1, beta2 = o.beta2, clip = o.clip, weight_decay = o.weight_decay,
    rounding = rounds and o.rounding or nil, skip_nonfinite = true})
end

--- schedule(cfg) -> the function from a step to its learning rate.
function M.schedule(cfg)
  local s = cfg.schedule
  return schedules.schedule {kind = s.kind, lr = cfg.optim.lr, min_lr = s.min_lr,
                             warmup = s.warmup, steps = cfg.steps}
end

-- The class of the model at a path; nil if there is none. Errors: a checkpoint whose model's file
-- is missing or cannot be loaded; no other class may take its place.
local function class_at(path)
  local good, problem, _, class = lib.attempt(load.sizes, path)
  if good then return class end
  local is_saved = #checkpoint.list(path) > 0 or files.exists(files.join(path, "state.json"))
  if is_saved then error(problem, 0) end
end

-- The run or checkpoint that is resumed, or nil. preset: the recipe's default.
local function resumed_by(given, preset)
  if given.resume ~= "auto" then return given.resume end
  if (given.out or "") ~= "" then return given.out end
  return settings.default_folder {preset = given.preset or preset, resume = "auto"}
end

-- What the classes of a kind do, and the recipe that trains them.
local kinds = {
  decoder = {"continues texts", "recipes/train.lua"},
  encoder = {"predicts masked tokens", "recipes/train_masked.lua"},
  encoder_decoder = {"reads a text and writes another one", "recipes/train_span.lua"},
}

-- The number of classes of the model at a path, if it classifies texts, -1 if it has no head,
-- else 0.
local function labels_at(path)
  local good, model = lib.attempt(load.outline, path)
  return good and model.config.labels or 0
end

-- "T5, which reads a text and writes another one; recipes/train_span.lua trains it". labels: of
-- the model, as labels_at gives them.
local function description_of(class, labels)
  local known, name = kinds[class.kind], class.class_name or "an unnamed class"
  if labels > 0 then
    return ("%s, which classifies texts there (%d classes); no recipe trains that. A script can: "
            .. "model(ids, labels) is the loss, with a label for each text"):format(name, labels)
  end
  if labels < 0 then
    return ("%s, which has no head there; no recipe trains that, since without a head there is no "
            .. "loss"):format(name)
  end
  if not known then return ("%s, which a recipe of its own trains"):format(name) end
  return ("%s, which %s; %s trains it"):format(name, known[1], known[2])
end

local of_paths = {init = true, out = true, resume = true}

--- class_of(words, default, preset, kind) -> the class of the model to train, and the words of
--- the command line without model=NAME: that of model=NAME, else that of the model which is resumed
--- or at init, else models/DEFAULT.lua. preset: the recipe's default. kind: that of the classes
--- which the recipe trains, by default "decoder". Errors: an unknown NAME, another class than that
--- which is resumed, one of another kind.
function M.class_of(words, default, preset, kind)
  local rest, given = {[0] = words[0]}, {}
  for _, word in ipairs(words) do
    local name, value = word:match "^(%w+)=(.*)$"
    if name then given[name] = of_paths[name] and home.expand(value) or value end
    if name ~= "model" then rest[#rest + 1] = word end
  end
  local resumed = resumed_by(given, preset)
  local saved = resumed and class_at(resumed)
  local class = given.model and registry.find(given.model) or saved
    or given.init and class_at(given.init) or registry.find(default)
  if saved and class ~= saved then
    lib.fail("model=%s, but '%s' is a %s; leave model= out", given.model, resumed,
             saved.class_name)
  end
  kind = kind or "decoder"
  if class.kind ~= kind then
    lib.fail("this recipe trains a model that %s; %s is %s", kinds[kind][1],
             given.model and "model=" .. given.model or resumed or "init=" .. given.init,
             description_of(class, not given.model and labels_at(resumed or given.init) or 0))
  end
  return class, rest
end

--- describe_data(run, data): writes into the first lines of a run what the data is, where the files
--- do not state it.
function M.describe_data(run, data)
  if data.own then run:say "training on nnlua's own sources; data.text=FILE trains on yours" end
  for _, note in ipairs(data.notes) do run:say(note) end
end

local of_training = {dropout = true, dtype = true}     -- settings that a new training may change

--- start_from(cfg, class, path, words) -> the vocabulary of the training that starts from the model
--- at `path` (init, or the checkpoint that is resumed), of which it copies the settings to
--- cfg.model; `words` is preferred. Errors: another class; settings of cfg that conflict.
function M.start_from(cfg, class, path, words)
  local model, known = load.outline(path)
  local found, labels = getmetatable(model), model.config.labels or 0
  if found ~= class or labels ~= 0 then
    lib.fail("this recipe trains %s%s; init=%s is %s%s", class.class_name,
             labels ~= 0 and class.kind == "encoder" and " to predict masked tokens" or "",
             cfg.init, description_of(found, labels),
             labels == 0 and found.kind == class.kind and ", without model=" or "")
  end
  for name, value in pairs(model.config) do
    if not of_training[name] then
      local setting, wanted = "model." .. name, cfg.model[name]
      local source = config.given(cfg, setting)
      if source and wanted ~= value and not (name == "vocab" and wanted == 0) then
        lib.fail("%s=%s of %s conflicts with init=%s, a model with %s=%s: leave it out%s, or train "
                 .. "a new model without init", setting, tostring(wanted), source, cfg.init,
                 setting, tostring(value),
                 name == "context" and " (data.context sets the length of the sequences)" or "")
      end
      cfg.model[name] = value
    end
  end
  cfg.data.context = math.min(cfg.data.context, model.config.context or math.huge)
  words = words or known
  if not words and cfg.data.bin == "" and not files.list(cfg.data.vocabulary) then
    lib.fail("init '%s' has no tokenizer; give data.vocabulary=FOLDER, or a token file as data.bin",
             cfg.init)
  end
  return words
end

--- sample(run, model, data, cfg): generates a text by cfg.sample and reports it.
function M.sample(run, model, data, cfg)
  local how, words = cfg.sample, data.vocabulary
  local special = words and words.special or {}
  local first = words and words.bos or special["<|endoftext|>"]      -- precedes documents
  if first and first >= cfg.model.vocab then first = nil end         -- the model lacks it
  local ids = generate.generate(model, {first or 0}, {tokens = how.tokens, top_k = how.top_k,
                                                      temperature = how.temperature,
                                                      seed = cfg.seed})
  if first then table.remove(ids, 1) end
  run:sample(words and words:decode(ids)
             or "token ids (data.vocabulary=FOLDER with a tokenizer would give text): "
                .. table.concat(ids, " "))
end

return M
