-- Loss and perplexity of a model on a text or a token file, with a sliding window. Each token is
-- predicted once, from at least context - stride preceding tokens (fewer at the start of the text).
-- Of a model that does not read from left to right: the loss on hidden tokens of windows that do
-- not overlap, as in training; for BERT 15 % of the tokens, for T5 spans. The same ones each time.
--   nnlua recipes/gpt2_eval.lua model=runs/char text=input.txt
--   nnlua recipes/gpt2_eval.lua model=gpt2 bin=val.bin stride=256
--   nnlua recipes/gpt2_eval.lua model=gpt2 batch=8 --plan          memory and time of a batch
local ffi = require "ffi"
local nn = require "nn"
local known_ids = require "nn.text.known_ids"
local token_file, token_source = require "nn.data.token_file", require "nn.data.token_source"
local model_file, model_plan = require "nn.models.load", require "nn.plan.inference"

local cfg = nn.config({
  model = nn.field("", "folder of a run, a checkpoint or a Hugging Face model", {path = true}),
  tokenizer = nn.field("", "folder of the tokenizer, if the model has none", {path = true}),
  text = nn.field("", "text to predict: files, separated by commas; also .jsonl, .csv",
                  {path = "list"}),
  field = nn.field("text", "field of a JSON object or column of a table with the text"),
  separator = nn.field("auto", "special token after each record, or each of several files; auto: "
                       .. "the tokenizer's end of text; empty: none"),
  bin = nn.field("", "token file to predict, instead of a text", {path = true}),
  dtype = nn.field("auto", "dtype of the ids in a bin without a header; auto: uint16, if they can "
                   .. "be token ids", {choices = token_file.dtypes}),
  context = nn.field(0, "tokens in a window; 0: the model's context, or 512 if it has none",
                     {min = 0}),
  stride = nn.field(0, "distance between windows in tokens; 0: half of the context", {min = 0}),
  batch = nn.field(4, "windows per batch", {min = 1}),
  tokens = nn.field(0, "evaluate only this many leading tokens; 0: all", {min = 0}),
  weights = nn.field("saved", "f32, bf16, or int8 with a scale per row; saved: as the model is",
                     {choices = {"saved", "f32", "bf16", "int8"}}),
  plan = nn.field(false, "only report what a batch would cost and whether it fits"),
  nn.memory_fields(),
}, arg)
nn.use_memory(cfg)
local options = {weights = cfg.weights ~= "saved" and cfg.weights or nil}

-- The length of windows. Errors: a model that predicts no tokens; a longer window than its context.
local function context_of(model)
  local most = model.config.context
  if (model.config.labels or 0) ~= 0 then
    nn.fail("'%s' %s and predicts no tokens; give a model with a head for tokens", cfg.model,
            model.config.labels > 0 and "classifies texts" or "has no head")
  end
  if not most then return cfg.context > 0 and cfg.context or 512 end
  if cfg.context <= most then return cfg.context > 0 and cfg.context or most end
  nn.fail("context=%d is more than the model's context of %d", cfg.context, most)
end

if cfg.plan then
  local outline = model_file.outline(cfg.model, nil, options)
  print(model_plan.evaluation(outline, cfg.batch, context_of(outline)))
  return
end
if (cfg.text == "") == (cfg.bin == "") then nn.fail "give text=FILE or bin=FILE" end

local model, words = nn.load_model(cfg.model, cfg.tokenizer, options)
if cfg.bin == "" and cfg.dtype ~= "auto" then
  nn.fail("dtype=%s is the dtype of the ids in a bin, which is not given; leave it out", cfg.dtype)
end
local context, vocab = context_of(model), model.config.vocab
model_plan.check_evaluation(model, cfg.batch, context)

-- The loss of a model on hidden tokens.
local function print_hidden_loss(hide)
  local path = cfg.text .. cfg.bin
  if not words then nn.fail("'%s' has no tokenizer; give tokenizer=FOLDER", cfg.model) end
  local data = nn.data({text = cfg.text, field = cfg.field, bin = cfg.bin, val = path,
                        separator = cfg.separator, dtype = cfg.dtype, batch = cfg.batch},
                       {context = context, vocab = vocab, vocabulary = words})
  local needed = hide(data)
  if needed > vocab then nn.fail("hidden tokens need %d ids, the model has %d", needed, vocab) end
  if cfg.tokens > 0 then data.val.count = math.min(data.val.count, cfg.tokens + 1) end
  local windows = math.floor((data.val.count - 1) / data.val.length)
  if windows == 0 then nn.fail("%d tokens are fewer than a window", data.val.count - 1) end
  local began = nn.now()
  local loss = nn.evaluate(model, data.val)
  print(("%d windows of %d tokens, 15 %% hidden"):format(windows, data.val.length))
  print(("loss %.4f  perplexity %.3f"):format(loss, math.exp(loss)))
  print(("%.0f tokens/s"):format(windows * data.val.length / (nn.now() - began)))
end

if model.kind == "encoder" then return print_hidden_loss(nn.mask_tokens) end
if model.kind == "encoder_decoder" then return print_hidden_loss(nn.corrupt_spans) end
local source, bytes
if cfg.bin ~= "" then
  source = token_file.open(cfg.bin, "bin", cfg.dtype)
  token_file.check_ids(source, vocab)
else
  if not words then nn.fail("'%s' has no tokenizer; give tokenizer=FOLDER", cfg.model) end
  source = token_source.from_text(cfg.text, cfg.field, "text", words, cfg.separator)
  bytes = source.bytes
  if source.note then print(source.note) end
end
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
    if id >= vocab and words then known_ids.refuse(cfg.text .. cfg.bin, id, vocab, words) end
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
