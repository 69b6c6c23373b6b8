-- Generates text with a trained model of models/: a run of recipes/gpt2_train.lua or train.lua, a
-- checkpoint, or a Hugging Face folder of any of these models. T5 writes an answer to the prompt;
-- BERT and RoBERTa fill its masked tokens or classify it. Settings of sampling that are not given
-- are those of generation_config.json, if the folder has it.
--   nnlua recipes/gpt2_generate.lua model=runs/char prompt="ROMEO:" tokens=500
--   nnlua recipes/gpt2_generate.lua model=gpt2 prompt="Once upon a time" top_k=50 samples=3
--   nnlua recipes/gpt2_generate.lua model=gpt2 prompts=questions.txt temperature=0
--   nnlua recipes/gpt2_generate.lua model=bert-base-uncased prompt="Paris is in [MASK]."
--   nnlua recipes/gpt2_generate.lua model=gpt2 samples=8 --plan       memory and time of this
local nn = require "nn"
local files, units = require "nn.io.files", require "nn.base.units"
local generation_config = require "nn.models.generation_config"
local known_ids = require "nn.text.known_ids"
local model_file, model_plan = require "nn.models.load", require "nn.plan.inference"

local cfg = nn.config({
  model = nn.field("", "folder of a run, a checkpoint or a Hugging Face model", {path = true}),
  tokenizer = nn.field("", "folder of the tokenizer, if the model has none", {path = true}),
  prompt = nn.field("", "text to continue; empty: start a new document"),
  prompts = nn.field("", "file with a prompt per line, instead of prompt; runs as one batch",
                     {path = true}),
  tokens = nn.field(200, "tokens to generate", {min = 1}),
  samples = nn.field(1, "texts per prompt, generated as one batch", {min = 1}),
  temperature = nn.field(0.8, "below 1 favours likely tokens; 0: always the likeliest", {min = 0}),
  top_k = nn.field(0, "sample from the k likeliest tokens; 0: from all", {min = 0}),
  top_p = nn.field(1, "sample from the likeliest tokens with this total probability",
                   {min = 0, max = 1, real = true}),
  repetition_penalty = nn.field(1, "above 1 discourages repetition", {min = 0.001, real = true}),
  stop = nn.field("", "texts after which a sample ends, separated by ||; it always ends "
                  .. "at the tokenizer's end token and those of generation_config.json"),
  seed = nn.field(1, "seed of the samples", {min = 0}),
  logprobs = nn.field(false, "print the log-probability of each token, and their mean"),
  weights = nn.field("saved", "f32, bf16, or int8 with a scale per row; saved: that of a "
                     .. "checkpoint, f32 for a Hugging Face model",
                     {choices = {"saved", "f32", "bf16", "int8"}}),
  plan = nn.field(false, "only report what a token would cost and whether it fits"),
  nn.memory_fields(),
}, arg)
nn.use_memory(cfg)
local options = {weights = cfg.weights ~= "saved" and cfg.weights or nil}

local open = cfg.plan and model_file.outline or nn.load_model
local model, words = open(cfg.model, cfg.tokenizer, options)
if not words then nn.fail("'%s' has no tokenizer; give tokenizer=FOLDER", cfg.model) end
local from_folder = generation_config.defaults(cfg, model)
if from_folder then io.stderr:write(from_folder, "\n") end
local special = words.special or {}
local first, last = words.bos or special["<|endoftext|>"], words.eos or special["<|endoftext|>"]
local ends, is_end = generation_config.stop_ids(model, last), {}
for _, id in ipairs(ends) do is_end[id] = true end

local texts, prompts, stops = {}, {}, {}
if cfg.prompts ~= "" then
  if cfg.prompt ~= "" then nn.fail "give prompt=TEXT or prompts=FILE" end
  for line in files.read(cfg.prompts, "prompts"):gmatch "[^\r\n]+" do texts[#texts + 1] = line end
  if #texts == 0 then nn.fail("prompts '%s' has no lines", cfg.prompts) end
else
  texts[1] = cfg.prompt
end
local vocab = model.config.vocab

-- The likeliest tokens for the masks of a text, or the classes, of a model such as BERT.
local function print_filled(text)
  print(text)
  for i, found in ipairs(nn.fill(model, words, text, {top = cfg.top_k > 0 and cfg.top_k or 5})) do
    for _, at in ipairs(found) do
      local what = model.config.labels > 0 and "class " .. at.id
        or ("%d %q"):format(i, words:decode {at.id})
      print(("%9.4f  %s"):format(at.probability, what))
    end
  end
end
if model.kind == "encoder" then
  if cfg.plan then nn.fail "a model that fills masked tokens has no plan of generation" end
  for _, text in ipairs(texts) do print_filled(text) end
  return
end

local answers = model.kind == "encoder_decoder"      -- or continues the prompt
for _, text in ipairs(texts) do
  -- such as <s> of Llama; texts for T5 may contain its sentinels
  local ids = words:ids(text, {special = answers})
  ids = #ids > 0 and ids or {first or 0}
  prompts[#prompts + 1] = known_ids.check("the prompt", ids, vocab, words)
end
if cfg.plan then
  print(model_plan.generation(model, prompts, cfg.tokens, cfg.samples))
  return
end
model_plan.check_generation(model, prompts, cfg.tokens, cfg.samples)
local rows = {}                                    -- cfg.samples of each prompt
for _, ids in ipairs(prompts) do
  for _ = 1, cfg.samples do rows[#rows + 1] = ids end
end
for text in (cfg.stop .. "||"):gmatch "(.-)||" do
  if text ~= "" then stops[#stops + 1] = text end
end

local stream = #rows == 1                          -- token by token, even inside a UTF-8 character
if stream and not answers then io.write(cfg.prompt) end
local next_part = words:stream()
for _, id in ipairs(answers and {} or rows[1]) do next_part(id) end  -- the prompt, which is printed
local start = nn.now()
local all, info = nn.generate(model, rows, {
  tokens = cfg.tokens, temperature = cfg.temperature, top_k = cfg.top_k, top_p = cfg.top_p,
  repetition_penalty = cfg.repetition_penalty, seed = cfg.seed, tokenizer = words,
  stop = #stops > 0 and stops or nil, stop_ids = ends, logprobs = cfg.logprobs,
  on_token = stream and function(id)
    io.write(is_end[id] and "" or next_part(id))
    io.flush()
  end or nil})
local seconds, count = nn.now() - start, 0

local function print_logprobs(ids, logprobs)
  local sum, before = 0, #ids - #logprobs
  for i, logprob in ipairs(logprobs) do
    local text = words:decode {ids[before + i]}
    print((("%9.4f  %q"):format(logprob, text):gsub("\\\n", "\\n")))
    sum = sum + logprob
  end
  print(("mean log-probability %.4f"):format(sum / #logprobs))
end

if stream then print() end
for i, ids in ipairs(all) do
  count = count + #ids - (answers and 0 or #rows[i])
  if not stream then
    print(("--- %d"):format(i))
    if ids[1] == first then table.remove(ids, 1) end
    if is_end[ids[#ids]] then table.remove(ids) end
    print(words:decode(ids))
  end
  if cfg.logprobs then print_logprobs(ids, info.logprobs[i]) end
end
io.flush()
io.stderr:write(("%s, %.1f tokens/s\n"):format(units.count(count, "token"), count / seconds))
