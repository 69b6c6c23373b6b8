-- Steps of a GPT-2 on several ranks: seconds, tokens per second, and the bytes that a rank sends.
--   nnlua --ranks 2 recipes/bench_ranks.lua shard=weights
--   tests/network 2 400mbit recipes/bench_ranks.lua
--   nnlua --ranks 2 recipes/bench_ranks.lua memory.ram=40MB memory.disk=/var/tmp
-- Without --ranks, one process takes the same steps.

local nn = require "nn"
local units = require "nn.base.units"
local GPT2 = require "models.gpt2"

local cfg = nn.config({
  nn.memory_fields(),
  layers = nn.field(6, "layers", {min = 1}),
  heads = nn.field(6, "heads", {min = 1}),
  embd = nn.field(384, "hidden size", {min = 1}),
  vocab = nn.field(65, "vocabulary size", {min = 2}),
  dtype = nn.field("f32", "dtype of weights and activations", {choices = {"f32", "bf16"}}),
  batch = nn.field(4, "sequences per step", {min = 1}),
  tokens = nn.field(256, "tokens per sequence", {min = 1}),
  clip = nn.field(0, "largest gradient norm; 0: no clipping", {min = 0, real = true}),
  shards = nn.field(2, "parts of the batch; at least one per rank", {min = 1}),
  shard = nn.field("optimizer", "what each rank keeps a part of", {choices = {"optimizer",
                                                                              "weights"}}),
  warmup = nn.field(3, "steps before those that are measured", {min = 1}),
  steps = nn.field(6, "measured steps", {min = 1}),
}, arg)

nn.use_memory(cfg)
nn.seed(7)
nn.cluster {shards = cfg.shards, shard = cfg.shard}
local model = GPT2 {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
                    context = cfg.tokens, dtype = cfg.dtype}
local optim = nn.AdamW(model, {lr = 1e-3, clip = cfg.clip, weight_decay = 0.1})
local step = nn.compile(function(ids, targets)
  local loss = nn.accumulate(model, 1, ids, targets)
  optim:step()
  return loss
end)

local text = {}
for i = 1, cfg.batch * (cfg.tokens + 1) do text[i] = i * i % cfg.vocab end
local rows = nn.tensor(text, {dtype = "i32"}):reshape(cfg.batch, cfg.tokens + 1)
local ids = rows:slice(2, 1, cfg.tokens):clone()
local targets = rows:slice(2, 2, cfg.tokens + 1):clone()

-- Runs `count` steps -> seconds per step, the last loss.
local function run(count)
  local begin, loss = nn.now(), nil
  for _ = 1, count do loss = step(ids, targets) end
  nn.sync()
  return (nn.now() - begin) / count, loss:item()
end

run(cfg.warmup)
local before = nn.ranks()
local seconds, loss = run(cfg.steps)
local after = nn.ranks()
local weights = 0
for _, p in ipairs(model:parameters()) do weights = weights + p.tensor:bytes() end
local function each(name) return (after[name] - before[name]) / cfg.steps end
print(("%s: %.3f s a step, %.0f tok/s, loss %.9g"):format(units.count(after.ranks, "rank"), seconds,
                                                          cfg.batch * cfg.tokens / seconds, loss))
if cfg.memory.disk ~= "" then
  local memory = nn.memory()
  print(("rank %d: at most %s of tensors in RAM, %s on the disk, %s read, %s written"):format(
    after.rank, units.bytes(memory.peak), units.bytes(memory.disk.used),
    units.bytes(memory.disk.read), units.bytes(memory.disk.written)))
end
print(("rank %d sends %s in %.0f messages a step; the weights have %s"):format(
  after.rank, units.bytes(each "bytes_sent"), each "messages_sent", units.bytes(weights)))
