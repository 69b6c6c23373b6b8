-- Loss and perplexity of a model on a text or a token file, with a sliding window: each token is
-- predicted once, from at least context - stride tokens before it (but for the first ones).
--   nnlua recipes/gpt2_eval.lua model=runs/char text=input.txt
--   nnlua recipes/gpt2_eval.lua model=gpt2 bin=val.bin stride=256
local nn = require "nn"
local files, token_file = require "nn.files", require "nn.token_file"

local cfg = nn.config({
  model = nn.field("", "folder of a run, of a checkpoint, or of a model of transformers"),
  tokenizer = nn.field("", "folder of the tokenizer, where the model has none"),
  text = nn.field("", "text to predict"),
  bin = nn.field("", "or token file"),
  stride = nn.field(0, "tokens between windows; 0: half of the context", {min = 0}),
  batch = nn.field(4, "windows at a time", {min = 1}),
  tokens = nn.field(0, "only the first so many; 0: all", {min = 0}),
}, arg)
if (cfg.text == "") == (cfg.bin == "") then nn.fail "give text=FILE or bin=FILE" end

local model, words = nn.load_model(cfg.model, cfg.tokenizer)
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
if stride > context then nn.fail("stride=%d is more than the context of %d", stride, context) end

-- The window from `start` on as ids and targets; targets below `scored` were predicted before.
local function window(start, scored)
  local ids, targets, new = {}, {}, 0
  for i = 1, context do
    local at = start + i                             -- of the target, from 0
    local id = source.tokens[math.min(at - 1, count - 1)]
    if id >= vocab then nn.fail("token %d is outside the model's vocabulary of %d", id, vocab) end
    ids[i], targets[i] = id, -100
    if at >= scored and at < count then
      targets[i], new = source.tokens[at], new + 1
    end
  end
  return ids, targets, new
end

local loss_of = nn.compile(function(ids, targets) return model(ids, targets) end)
nn.training(false)
local sum, scored, start, began = 0, 1, 0, nn.now()
while scored < count do
  local ids, targets, new = {}, {}, 0
  while #ids < cfg.batch do                          -- windows beyond the end count nothing
    local x, y, n = window(math.min(start, math.max(0, count - 1)), scored)
    ids[#ids + 1], targets[#targets + 1], new = x, y, new + n
    scored, start = math.min(count, math.max(scored, start + context + 1)), start + stride
  end
  local i32 = {dtype = "i32"}
  local loss = nn.no_grad(loss_of, nn.tensor(ids, i32), nn.tensor(targets, i32)):item()
  sum = sum + loss * new
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
