-- Hints in errors for users of PyTorch and nanoGPT: nnlua's equivalents of their names, and Lua's
-- equivalents of Python's syntax.

local pytorch = require "nn.base.pytorch"
local suggest = require "nn.base.suggest"

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

-- Names of Python that no script defines.
local names = {
  torch = "the library is nn", import = 'load modules with require "NAME"', None = "it is nil",
  True = "it is true", False = "it is false", range = "write for i = 1, n do ... end",
  len = "the length of a list is #list, a tensor's size x:dim(1)", str = "it is tostring",
  int = "it is math.floor", float = "it is tonumber", isinstance = "type(x) is a text: 'table'",
  enumerate = "write for i, x in ipairs(list) do ... end", np = "the library is nn",
}

--- name(name, variables) -> a hint for an unknown global variable, or "". variables: a set of the
--- local ones.
function M.name(name, variables)
  if names[name] then return "; " .. names[name] end
  local near = suggest.suggestion(name, variables or {})
  return near ~= "" and near or suggest.suggestion(name, _G)
end

local nil_element = "if it is an element of a list: they count from 1 to #list"
-- Lua's messages for common mistakes, and hints. A function gets what the pattern captures.
local habits = {
  {"attempt to compare %w+ with table$",
   "methods compare the elements of a tensor: x:gt(2), x:le(2)"},
  {"attempt to compare table with %w+$",
   "methods compare the elements of a tensor: x:gt(2), x:le(2)"},
  {"attempt to index local 'self' %(a nil value%)$",
   "was a method called with '.' instead of ':'?"},
  {"field '%?' %(a nil value%)$", nil_element}, {"attempt to index a nil value$", nil_element},
  {"attempt to perform arithmetic on a nil value$", nil_element},
  {"attempt to index field 'tokenizer' %(a function value%)$",
   "use nn.tokenizer(FOLDER) and nn.train_tokenizer(TEXT, {size = N}), their new names"},
  {"%(number expected, got table%)$", "the number in a tensor of one element is x:item()"},
  {"global '([%w_]+)' %(a nil value%)$", M.name},
  {"attempt to call method '([%w_]+)' %(a nil value%)$",
   function(name) return M.equivalent("model", name) end},
}

--- advice(text, variables) -> a hint to append to the text of a Lua error, or "". variables: see
--- name().
function M.advice(text, variables)
  for _, habit in ipairs(habits) do
    local hint, captured = habit[2], text:match(habit[1])
    if captured then
      return type(hint) == "function" and (hint(captured, variables) or "") or "; " .. hint
    end
  end
  return ""
end

local lists = "lists are in braces: {1, 2}"
-- Patterns of a line in Python's syntax, and the equivalent in Lua.
local python = {
  {"!=", "'not equal' is ~="},
  {":=", "write local x = ..."},
  {"[%w_%]]%s*[-+*/]=[^=]", "Lua has no +=; write x = x + 1"},
  {"%+%+", "Lua has no ++; write x = x + 1"},
  {"%*%*", "a power is x ^ 2"},
  {"&&", "write a and b"}, {"||", "write a or b"},
  {"^%s*import%s", 'load modules with local m = require "NAME"'},
  {"^%s*from%s+%S+%s+import", 'load modules with local m = require "NAME"'},
  {"^%s*def%s", "write function f(x) ... end"}, {"%f[%a]lambda%s", "write function(x) ... end"},
  {"^%s*class%s", 'write local Net = nn.module "Net"'},
  {"^%s*with%s", "write nn.no_grad(function() ... end)"},
  {"^%s*try%s*:", "write local good, err = pcall(function() ... end)"},
  {"^%s*for%s.*:%s*$", "write for i = 1, n do ... end"},
  {"^%s*if%s.*:%s*$", "write if a then ... end"}, {"^%s*elif%s", "write elseif a then"},
  {"^%s*else%s*:", "write else, without a colon"},
  {"^%s*while%s.*:%s*$", "write while a do ... end"},
  {"%sif%s.*%selse%s", "write a and b or c"},
  {"^%s*#", "comments begin with --"}, {"%s#%s", "comments begin with --"},
  {"%[[^%]]*:[^%]]*%]", "slice a tensor with x:slice(axis, first, last)"},
  {"%(%[", lists}, {"%(%(", lists}, {"=%s*%[[^%[=]", lists},
}

--- syntax(code) -> a hint to append to a syntax error in code that looks like Python, or "".
function M.syntax(code)
  for line in code:gmatch "[^\n]+" do
    for _, habit in ipairs(python) do
      if line:find(habit[1]) then return "; " .. habit[2] end
    end
  end
  return ""
end

return M
