-- Text from a trained model: a run of recipes/gpt2_train.lua or a GPT-2 of transformers.
--   nnlua recipes/gpt2_generate.lua model=runs/char prompt="ROMEO:" tokens=500
--   nnlua recipes/gpt2_generate.lua model=gpt2 prompt="Once upon a time" top_k=50 samples=3
local nn = require "nn"

local cfg = nn.config({
  model = nn.field("", "folder of a run, of a checkpoint, or of a model of transformers"),
  tokenizer = nn.field("", "folder of the tokenizer, where the model has none"),
  prompt = nn.field("", "text to go on from; empty: a document's beginning"),
  tokens = nn.field(200, "tokens to generate", {min = 1}),
  samples = nn.field(1, "texts to generate, at once", {min = 1}),
  temperature = nn.field(0.8, "below 1: likelier tokens; 0: the likeliest only", {min = 0}),
  top_k = nn.field(0, "draw from that many; 0: all", {min = 0}),
  top_p = nn.field(1, "draw from the likeliest that hold this part of the probability",
                   {min = 0, max = 1, real = true}),
  repetition_penalty = nn.field(1, "above 1: against repetition", {min = 0.001, real = true}),
  stop = nn.field("", "text behind which a sample ends; it ends at <|endoftext|> anyway"),
  seed = nn.field(1, "of the samples", {min = 0}),
  logprobs = nn.field(false, "print the mean log-probability of each sample's tokens"),
}, arg)

local model, words = nn.load_model(cfg.model, cfg.tokenizer)
if not words then nn.fail("'%s' has no tokenizer; give tokenizer=FOLDER", cfg.model) end
local last = words.special and words.special["<|endoftext|>"]
local prompt = words:ids(cfg.prompt)
if #prompt == 0 then prompt = {last or 0} end

local prompts = {}
for i = 1, cfg.samples do prompts[i] = prompt end
local stream = cfg.samples == 1                    -- a token's bytes may be part of a character
if stream then io.write(cfg.prompt) end
local start = nn.now()
local all, info = nn.generate(model, prompts, {
  tokens = cfg.tokens, temperature = cfg.temperature, top_k = cfg.top_k, top_p = cfg.top_p,
  repetition_penalty = cfg.repetition_penalty, seed = cfg.seed, tokenizer = words,
  stop = cfg.stop ~= "" and {cfg.stop} or nil, stop_ids = {last}, logprobs = cfg.logprobs,
  on_token = stream and function(id)
    io.write(id == last and "" or words:decode {id})
    io.flush()
  end or nil})
local seconds, count = nn.now() - start, 0
if stream then print() end
for i, ids in ipairs(all) do
  count = count + #ids - #prompt
  if not stream then
    if ids[#ids] == last then ids[#ids] = nil end
    print(("--- %d"):format(i))
    print(words:decode(ids))
  end
  if cfg.logprobs then
    local sum = 0
    for _, x in ipairs(info.logprobs[i]) do sum = sum + x end
    print(("mean log-probability %.4f"):format(sum / #info.logprobs[i]))
  end
end
io.stderr:write(("%d tokens, %.1f tokens/s\n"):format(count, count / seconds))
