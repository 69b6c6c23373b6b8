-- Training of a small model for a few steps, whose results are compared between processes to the
-- bit: tiers.lua trains one, tier_models.lua many, tier_turns.lua one with other programs between
-- its steps.
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
                  activations = "keep", memory = 0, shards = 0, shard = "optimizer"}

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

--- ids(cfg, shift) -> the token ids of a batch, which depend on the step.
function M.ids(cfg, shift)
  local rows = {}
  for i = 1, cfg.batch do
    rows[i] = {}
    for j = 1, cfg.context do rows[i][j] = (i * 37 + j * 101 + shift * 13) % cfg.vocab end
  end
  local cut = nn.zeros({cfg.batch, cfg.context}, {dtype = "i32", axes = "batch,time"})
  return cut:copy_(nn.tensor(rows, {dtype = "i32"}))              -- tiles as nn.tiles says
end

local function prepare(cfg)
  nn.activations(cfg.activations)
  nn.seed(cfg.seed)
  nn.tiles {tokens = cfg.tile}
  if cfg.shards > 0 then nn.cluster {shards = cfg.shards, shard = cfg.shard} end
end

--- plan(cfg) -> the plan of a step, without computing or creating anything.
function M.plan(cfg)
  prepare(cfg)
  return step_plan.step(function()
    local model, optim, step = build(cfg)
    local options = {dtype = "i32", axes = "batch,time"}
    local x = nn.zeros({cfg.batch, cfg.context}, options)
    local y = nn.zeros({cfg.batch, cfg.context}, options)
    return function() return step(compile.argument(x), compile.argument(y)) end,
           {weights = model, optimizer = optim, other = {x, y}}
  end, false)
end

--- run(cfg, between, finish): trains, and prints the results of every step and a checksum of every
--- parameter and moment, or calls finish(model, optim) instead. between(model, optim), if given,
--- returns a function that is called after each step, with its number.
function M.run(cfg, between, finish)
  prepare(cfg)
  local model, optim, step = build(cfg)
  local after = between and between(model, optim) or function() end
  for i = 1, cfg.steps do
    optim.lr = 1e-3 / i
    local loss, norm = step(M.ids(cfg, i), M.ids(cfg, i + 1))
    print(("step %d %.17g %.17g"):format(i, loss:item(), norm:item()))
    if i == cfg.eager then
      print(("sum %.17g"):format(model:parameters()[1].tensor:sum():item()))
    end
    after(i)
  end
  local last = finish or checksums.print_all
  last(model, optim)
end

return M
