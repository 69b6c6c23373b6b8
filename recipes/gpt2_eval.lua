-- Loss and perplexity of a model on a text or a token file, with a sliding window. Each token is
-- predicted once, from at least context - stride preceding tokens (fewer at the start of the text).
--   nnlua recipes/gpt2_eval.lua model=runs/char text=input.txt
--   nnlua recipes/gpt2_eval.lua model=gpt2 bin=val.bin stride=256
--   nnlua recipes/gpt2_eval.lua model=gpt2 batch=8 --plan          memory and time of a batch
local ffi = require "ffi"
local nn = require "nn"
local files, token_file = require "nn.io.files", require "nn.data.token_file"
local model_file, model_plan = require "nn.models.load", require "nn.plan.inference"

local cfg = nn.config({
  model = nn.field("", "folder of a run, a checkpoint or a Hugging Face model"),
  tokenizer = nn.field("", "folder of the tokenizer, if the model has none"),
  text = nn.field("", "text file to predict"),
  bin = nn.field("", "token file to predict, instead of a text"),
  stride = nn.field(0, "distance between windows in tokens; 0: half of the context", {min = 0}),
  batch = nn.field(4, "windows per batch", {min = 1}),
  tokens = nn.field(0, "evaluate only this many leading tokens; 0: all", {min = 0}),
  plan = nn.field(false, "only report what a batch would cost and whether it fits"),
  nn.memory_fields(),
}, arg)
nn.use_memory(cfg)

-- Refuses a model that sees the tokens which it is to predict.
local function checked(model)
  if (model.kind or "decoder") == "decoder" then return model end
  nn.fail("'%s' is not a decoder, which reads from left to right", cfg.model)
end

if cfg.plan then
  print(model_plan.evaluation(checked(model_file.outline(cfg.model)), cfg.batch))
  return
end
if (cfg.text == "") == (cfg.bin == "") then nn.fail "give text=FILE or bin=FILE" end

local model, words = nn.load_model(cfg.model, cfg.tokenizer)
model_plan.check_evaluation(checked(model), cfg.batch)
local source, bytes
if cfg.bin ~= "" then
  source = token_file.open(cfg.bin, "bin")
else
  if not words then nn.fail("'%s' has no tokenizer; give tokenizer=FOLDER", cfg.model) end
  local text = files.read(cfg.text, "text")
  local ids, count = words:encode(text, cfg.text)
  source, bytes = {tokens = ids, count = count}, #text
end
local context, vocab = model.config.context, model.config.vocab
local count = source.count
if cfg.tokens > 0 and cfg.tokens < count then count, bytes = cfg.tokens, nil end
if count < 2 then nn.fail("%d tokens are too few; at least 2 are needed", count) end
local stride = cfg.stride == 0 and math.max(1, math.floor(context / 2)) or cfg.stride
if stride > context then nn.fail("stride=%d is larger than the context of %d", stride, context) end

-- Copies the window that begins at `start` into row `row` (from 0) of both arrays. Returns the
-- number of its targets, except those below `scored`, which were predicted before.
local function copy_window(start, scored, ids, targets, row)
  local new = 0
  for i = 1, context do
    local at, to = start + i, row * context + i - 1  -- at: position of the target, from 0
    local id = source.tokens[math.min(at - 1, count - 1)]
    if id >= vocab then nn.fail("token %d is outside the model's vocabulary of %d", id, vocab) end
    ids[to], targets[to] = id, -100
    if at >= scored and at < count then
      targets[to], new = source.tokens[at], new + 1
    end
  end
  return new
end

local loss_of = nn.compile(function(ids, targets) return model(ids, targets) end)
nn.training(false)
local sum, scored, start, began = 0, 1, 0, nn.now()
while scored < count do
  local size, new = cfg.batch * context, 0
  local ids, targets = ffi.new("int32_t[?]", size), ffi.new("int32_t[?]", size)
  for row = 0, cfg.batch - 1 do                      -- windows past the end have no targets
    new = new + copy_window(math.min(start, math.max(0, count - 1)), scored, ids, targets, row)
    scored, start = math.min(count, math.max(scored, start + context + 1)), start + stride
  end
  local shape, axes = {cfg.batch, context}, {axes = "batch,time"}
  local x, y = nn.from_host(ids, shape, "i32", axes), nn.from_host(targets, shape, "i32", axes)
  sum = sum + nn.no_grad(loss_of, x, y):item() * new
  for _, t in ipairs {x, y} do t:release() end
  if nn.is_tty(2) then
    io.stderr:write(("\r%3.0f%%  loss %.4f\27[K"):format(100 * scored / count, sum / (scored - 1)))
  end
end
if nn.is_tty(2) then io.stderr:write "\r\27[K" end
local loss = sum / (count - 1)
print(("%d tokens, context %d, stride %d"):format(count, context, stride))
print(("loss %.4f  perplexity %.3f%s"):format(loss, math.exp(loss),
  bytes and ("  bits per byte %.4f"):format(sum / math.log(2) / bytes) or ""))
print(("%.0f tokens/s"):format((count - 1) / (nn.now() - began)))
