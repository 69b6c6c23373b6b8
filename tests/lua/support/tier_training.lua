-- Training of a small model for a few steps, whose results are compared between processes to the
-- bit: tiers.lua trains one, tier_models.lua many.
local compile = require "nn.core.compile"
local nn = require "nn"
local step_plan = require "nn.plan.step"
local GPT2 = require "models.gpt2"
local Llama = require "models.llama"
local checksums = require "checksums"

local M = {}

local defaults = {model = "gpt2", ram = 0, disk = ".", seed = 1, layers = 6, embd = 128, heads = 4,
                  context = 32, vocab = 700, batch = 4, accum = 1, clip = 1, dropout = 0,
                  dtype = "f32", rounding = "nearest", steps = 5, tile = 0, eager = 0,
                  activations = "keep", memory = 0}

--- read(words) -> the settings of words NAME=VALUE, and those that are no settings of a training.
function M.read(words)
  local cfg, others = {}, {}
  for name, value in pairs(defaults) do cfg[name] = value end
  for _, word in ipairs(words) do
    local name, value = word:match "^(%w+)=(.*)$"
    local to = defaults[name] ~= nil and cfg or others
    to[name] = type(defaults[name] or 0) == "number" and tonumber(value) or value
  end
  return cfg, others
end

-- A step of the model; gpt2 has a tied head, llama its own, tied_llama is llama with a tied one.
local function build(cfg)
  local sizes = {layers = cfg.layers, heads = cfg.heads, embd = cfg.embd, vocab = cfg.vocab,
                 context = cfg.context, dropout = cfg.dropout, dtype = cfg.dtype}
  if cfg.model ~= "gpt2" then sizes.tied = cfg.model == "tied_llama" end
  local model = (cfg.model == "gpt2" and GPT2 or Llama)(sizes)
  local optim = nn.AdamW(model, {lr = 1e-3, weight_decay = 0.1, clip = cfg.clip,
                                 rounding = cfg.rounding})
  return model, optim, nn.compile(function(ids, targets)
    optim:zero_grad()
    local loss = nn.accumulate(model, cfg.accum, ids, targets)
    return loss, optim:step()
  end)
end

-- Token ids that depend on the step.
local function ids(cfg, shift)
  local rows = {}
  for i = 1, cfg.batch do
    rows[i] = {}
    for j = 1, cfg.context do rows[i][j] = (i * 37 + j * 101 + shift * 13) % cfg.vocab end
  end
  return nn.tensor(rows, {dtype = "i32"})
end

local function prepare(cfg)
  nn.activations(cfg.activations)
  nn.seed(cfg.seed)
  nn.tiles {tokens = cfg.tile}
end

--- plan(cfg) -> the plan of a step, without computing or creating anything.
function M.plan(cfg)
  prepare(cfg)
  return step_plan.step(function()
    local model, optim, step = build(cfg)
    local x = nn.zeros({cfg.batch, cfg.context}, {dtype = "i32"})
    local y = nn.zeros({cfg.batch, cfg.context}, {dtype = "i32"})
    return function() return step(compile.argument(x), compile.argument(y)) end,
           {weights = model, optimizer = optim, other = {x, y}}
  end, false)
end

--- run(cfg): trains, and prints the results of every step and a checksum of every parameter and
--- moment.
function M.run(cfg)
  prepare(cfg)
  local model, optim, step = build(cfg)
  for i = 1, cfg.steps do
    optim.lr = 1e-3 / i
    local loss, norm = step(ids(cfg, i), ids(cfg, i + 1))
    print(("step %d %.17g %.17g"):format(i, loss:item(), norm:item()))
    if i == cfg.eager then
      print(("sum %.17g"):format(model:parameters()[1].tensor:sum():item()))
    end
  end
  checksums.print_all(model, optim)
end

return M
