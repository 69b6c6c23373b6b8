-- Hints in errors for users of PyTorch and nanoGPT: nnlua's equivalents of their names, and Lua's
-- equivalents of Python's syntax.

local pytorch = require "nn.base.pytorch"

local M = {}

local settings = {
  batch_size = "data.batch", block_size = "model.context", n_layer = "model.layers",
  n_head = "model.heads", n_embd = "model.embd", vocab_size = "model.vocab",
  gradient_accumulation_steps = "data.accum", learning_rate = "optim.lr",
  min_lr = "schedule.min_lr", warmup_iters = "schedule.warmup", max_iters = "steps",
  max_steps = "steps", epochs = "steps", lr_decay_iters = "steps", eval_interval = "eval_every",
  eval_iters = "eval_batches", log_interval = "log_every", grad_clip = "optim.clip",
  out_dir = "out", dataset = "data.bin", init_from = "init", max_new_tokens = "tokens",
  num_samples = "samples", start = "prompt",
}

--- equivalent(kind, name) -> "; use x:dims()" for a name of PyTorch, or nil. kind: "tensor",
--- "library", "model" or "optimizer".
function M.equivalent(kind, name)
  local known = pytorch[kind][name]
  if not known and kind ~= "model" and pytorch.missing[name] then
    return "; nnlua has nothing like PyTorch's"
  end
  return known and (known:find "^not needed" and "; " or "; use ") .. known
end

local no_settings = {
  device = "; not needed: nnlua uses all cores (NNLUA_CPUS limits them)",
  compile = "; not needed: steps are always compiled",
  wandb_log = "; curves are in OUT/report.html and in TensorBoard files",
}

--- setting(name, known) -> a hint for a setting of nanoGPT: its equivalent in the list `known`, or
--- why nnlua has none; nil for other names.
function M.setting(name, known)
  for _, path in ipairs(known) do
    if path == settings[name] then return ("; use '%s'"):format(path) end
  end
  return no_settings[name]
end

-- Lua's messages for common mistakes, and hints.
local habits = {
  {"attempt to compare %w+ with table$",
   "methods compare the elements of a tensor: x:gt(2), x:le(2)"},
  {"attempt to compare table with %w+$",
   "methods compare the elements of a tensor: x:gt(2), x:le(2)"},
  {"attempt to index local 'self' %(a nil value%)$",
   "was a method called with '.' instead of ':'?"},
}

--- advice(text) -> a hint to append to the text of a Lua error, or "".
function M.advice(text)
  for _, habit in ipairs(habits) do
    if text:find(habit[1]) then return "; " .. habit[2] end
  end
  local name = text:match "attempt to call method '([%w_]+)' %(a nil value%)$"
  return name and M.equivalent("model", name) or ""
end

-- Patterns of Python's syntax, and the equivalent in Lua.
local python = {
  {"!=", "'not equal' is ~="},
  {"[%w_%]]%s*[-+*/]=%s", "Lua has no +=; write x = x + 1"},
  {"^%s*import%s", 'load modules with local m = require "NAME"'},
  {"^%s*from%s+%S+%s+import", 'load modules with local m = require "NAME"'},
  {"^%s*def%s", "write function f(x) ... end"},
  {"^%s*for%s.*:%s*$", "write for i = 1, n do ... end"},
  {"^%s*if%s.*:%s*$", "write if a then ... end"},
  {"%[[^%]]*:[^%]]*%]", "slice a tensor with x:slice(axis, first, last)"},
  {"%(%[", "lists are in braces: {1, 2}"}, {"%(%(", "lists are in braces: {1, 2}"},
}

--- syntax(code) -> a hint to append to a syntax error in code that looks like Python, or "".
function M.syntax(code)
  for _, habit in ipairs(python) do
    if code:find(habit[1]) then return "; " .. habit[2] end
  end
  return ""
end

return M
