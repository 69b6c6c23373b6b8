-- Cost of checkpoints: compares training steps with and without a checkpoint being written in the
-- background, in turns. Checks that the file is identical to one written while training waits.
--   nnlua recipes/bench_checkpoint.lua model=gpt2 batch=4 tokens=256 every=10 rounds=3
local ffi = require "ffi"
local checkpoint = require "nn.models.checkpoint"
local files = require "nn.io.files"
local units = require "nn.base.units"
local nn, GPT2 = require "nn", require "models.gpt2"

ffi.cdef "int memcmp(const void *a, const void *b, size_t count);"
local cfg = nn.config({
  model = nn.field("gpt2", "gpt2, gpt2-medium, gpt2-large or gpt2-xl"),
  batch = nn.field(4, "sequences per step", {min = 1}),
  tokens = nn.field(256, "tokens per sequence", {min = 1}),
  every = nn.field(10, "steps between checkpoints", {min = 1}),
  rounds = nn.field(3, "rounds, each with and without a checkpoint", {min = 1}),
  out = nn.field("", "output folder, removed afterwards; empty: a new one in /tmp", {path = true}),
}, arg)
local out = cfg.out
if out == "" then
  out = os.tmpname()
  os.remove(out)
end
files.make_folder(out, "the output folder")

local size = GPT2.size(cfg.model)
local model = GPT2(size)
local optim = nn.AdamW(model, {lr = 1e-4, weight_decay = 0.1, clip = 1})
local step = nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = model(ids, targets)
  loss:backward()
  return loss, optim:step()
end)
local function tokens()
  local options = {low = 0, high = size.vocab, axes = "batch,time"}
  return nn.uniform({cfg.batch, cfg.tokens}, options):to("i32")
end
local ids, targets = tokens(), tokens()

-- Seconds of f() and of all tasks that it submits.
local function seconds(f)
  local start = nn.now()
  f()
  nn.sync()
  return nn.now() - start
end
local function train()
  for _ = 1, cfg.every do step(ids, targets):item() end
end
local function parts(number) return {step = number, model = model, optim = optim, config = cfg} end

local function median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

local function same_bytes(a, b)
  for _, name in ipairs {"model.safetensors", "optimizer.safetensors"} do
    local x, y = files.map(files.join(a, name)), files.map(files.join(b, name))
    if x.size ~= y.size or ffi.C.memcmp(x.data, y.data, x.size) ~= 0 then return false end
  end
  return true
end

train()
local plain, saving, waiting, equal = {}, {}, {}, true
for round = 1, cfg.rounds do
  plain[round] = seconds(train)
  local waited, overlapped
  waiting[round] = seconds(function() waited = nn.save_checkpoint(out, parts(2 * round)) end)
  saving[round] = seconds(function()
    local writing = checkpoint.start(out, parts(2 * round + 1))
    train()
    overlapped = writing:finish()
  end)
  equal = equal and same_bytes(waited, overlapped)
  files.remove(waited)
  files.remove(overlapped)
end
files.remove(out)

local bytes, ratios = 0, {}
for _, list in ipairs {model:state(), optim:state()} do
  for _, entry in ipairs(list) do bytes = bytes + entry.tensor:bytes() end
end
for i = 1, cfg.rounds do ratios[i] = plain[i] / saving[i] end
local function line(name, ...) print(("%-44s "):format(name) .. string.format(...)) end
line("size of a checkpoint", "%s", units.bytes(bytes))
line(("%d steps, medians of %d"):format(cfg.every, cfg.rounds), "%.2f s", median(plain))
line("the same while a checkpoint is written", "%.2f s", median(saving))
line("throughput with / without a checkpoint", "%.3f (%.3f to %.3f)", median(ratios), ratios[1],
     ratios[#ratios])
line("a checkpoint while training waits", "%.2f s", median(waiting))
line("both checkpoints are identical", "%s", equal)
if not equal then os.exit(1) end
