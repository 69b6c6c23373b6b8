-- Cost of logging: a small training run with the default settings (metrics.jsonl, TensorBoard
-- events, report.html, the progress line), and the share of its time spent in the log. The log's
-- time is thread CPU time: the main thread shares the cores with the workers, which continue while
-- it waits for a core.
--   nnlua recipes/bench_logging.lua steps=3000 log_every=10
local ffi = require "ffi"
local files = require "nn.io.files"
local nn, GPT2 = require "nn", require "models.gpt2"

local cfg = nn.config({
  batch = nn.field(12, "sequences per step", {min = 1}),
  data = nn.data_fields {},
  nn.run_fields {steps = 3000, save_every = 0, eval_every = 0},
}, arg)
local temporary = cfg.out == ""
if temporary then
  cfg.out = os.tmpname()
  os.remove(cfg.out)
end

local run = nn.run(cfg)
cfg.data.batch = cfg.batch
local data = nn.data(cfg.data, {context = 64, vocab = 0, seed = cfg.seed})
local model = GPT2 {layers = 4, heads = 4, embd = 128, context = 64, vocab = data.vocab}
local optim = nn.AdamW(model, {lr = 1e-3, clip = 1})
local step = nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = model(ids, targets)
  loss:backward()
  return loss, optim:step()
end)

local THREAD_CPU, clock = 3, ffi.new "nn_timespec"          -- CLOCK_THREAD_CPUTIME_ID on Linux
local function on_core()
  ffi.C.clock_gettime(THREAD_CPU, clock)
  return tonumber(clock.sec) + tonumber(clock.nsec) * 1e-9
end

-- Seconds and calls of the log methods. A call inside another one counts for the outer one.
local seconds, calls, inside = {}, {}, false
local function time(name)
  local method = run.log[name]
  run.log[name] = function(...)
    if inside then return method(...) end
    inside = true
    local start = on_core()
    local result = method(...)
    seconds[name] = (seconds[name] or 0) + on_core() - start
    calls[name] = (calls[name] or 0) + 1
    inside = false
    return result
  end
end
time "event"
time "progress"
time "wants_progress"

run:track {model = model, optim = optim, data = data.train}
local start = nn.now()
for _ in run:steps() do run:record(step(data.train:batch())) end
local all, logging = nn.now() - start, 0
run:done {}
if temporary then files.remove(cfg.out) end

print()
for name, count in pairs(calls) do
  logging = logging + seconds[name]
  print(("log:%-16s %7d calls %9.2f us each"):format(name, count, seconds[name] / count * 1e6))
end
print(("%d steps %17.2f s"):format(cfg.steps, all))
print(("logging %17.4f s, %.3f %% of it"):format(logging, 100 * logging / all))
