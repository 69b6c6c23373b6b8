-- Collects all docs at first use: from the op registry (engine/ops and kernels/pointwise.inc) and
-- from the `---` comments of the library's files. lookup.lua shows them at the prompt,
-- reference.lua writes docs/reference.md, and tests/lua/project/docs.lua runs every example in a
-- process of its own.
--
-- The first line of a docstring begins with the documented name, such as nn.tensor(...) or
-- x:dim(axis); see M.objects for the names before : and "." Lines indented by four spaces are an
-- example. In `code  --> value`, the value is the result of the code, compared to the given digits
-- (a tensor as nested tables), or "error: ...", or printed text; `...` matches anything.

local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local ops = require "nn.core.op"
local registry = require "nn.models.registry"

local M = {}

--- objects: the objects whose methods are documented, by their names in the docs.
M.objects = {
  x = "a tensor", tile = "a tile of a tensor", model = "a module", optim = "an optimizer",
  f = "a compiled function", rate = "a scalar", loader = "a loader of nn.data",
  scheduler = "a learning-rate scheduler",
  vocabulary = "a vocabulary", tokenizer = "a tokenizer", checkpoint = "a checkpoint",
  run = "a run", nn = "the library", t = "nn.test",
  Model = "a class of nn.decoder, nn.encoder or nn.encoder_decoder",
}

--- preamble: the variables that examples may use; each example that names one gets a new value.
--- `model` is the example of a class in models/.
M.preamble = {
  {"nn", 'require "nn"'},
  {"t", 'require "nn.test"'},
  {"x", "nn.tensor{{1, 2, 3}, {4, 5, 6}}"},
  {"optim", "nn.AdamW(model, {lr = 1e-3})"},
  {"data", 'nn.data({text = "input.txt", vocabulary = "byte", batch = 2}, {context = 16})'},
  {"cfg", "nn.config({nn.run_fields {steps = 4}, data = nn.data_fields {}}, {})"},
  {"step", [[nn.compile(function(ids, targets)
  optim:zero_grad()
  local loss = model(ids, targets)
  loss:backward()
  return loss, optim:step()
end)]]},
}

-- The Lua files in a folder of nnlua and in its subfolders, sorted.
local function scripts_in(folder, out)
  for _, name in ipairs(files.list(files.join(host.root, folder)) or {}) do
    local path = folder .. "/" .. name
    if name:find "%.lua$" then out[#out + 1] = path else scripts_in(path, out) end
  end
  return out
end

for _, path in ipairs(scripts_in("models", {})) do
  local name = path:match "^models/(.*)%.lua$"
  local class = registry.find(name)
  M.objects[class.class_name] = path
  table.insert(M.preamble, 3, {class.class_name, ('require "models.%s"'):format(name)})
  if class.example then table.insert(M.preamble, 5, {"model", class.example}) end
end

-- The prose and the example (nil if none) of a docstring, without indentation.
local function split(text)
  local prose, example = {}, {}
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local code = line:match "^    (.*)$"
    table.insert(code and example or prose, code or line)
  end
  return table.concat(prose, "\n"), #example > 0 and table.concat(example, "\n") or nil
end

local function new_entry(fields)
  fields.prose, fields.example = split(fields.text)
  fields.signature = fields.prose:match "^[^\n]*"
  return fields
end

local op_docs, library

--- attributes(op) -> {{name=, text=}, ...}: the docs of its attributes, with defaults.
function M.attributes(op)
  local out = {}
  for _, a in ipairs(op.attributes) do
    local default = a.default_value
    local note = default and default ~= "nil" and (" (default " .. default .. ")") or ""
    out[#out + 1] = {name = a.name, text = a.doc .. note}
  end
  return out
end

--- gradient(op) -> a text: that it has a gradient, or why not.
function M.gradient(op)
  return op.no_gradient and "no gradient: it " .. op.no_gradient or "has a gradient"
end

-- The doc of an op as help shows it: signature, text, attributes, gradient, example.
local function op_text(op)
  local prose, example = split(op.doc)
  local lines = {prose}
  for _, a in ipairs(M.attributes(op)) do
    lines[#lines + 1] = ("  %-14s %s"):format(a.name, a.text)
  end
  lines[#lines + 1] = M.gradient(op)
  for line in (example and example .. "\n" or ""):gmatch "(.-)\n" do
    lines[#lines + 1] = "    " .. line
  end
  return table.concat(lines, "\n")
end

--- ops() -> {entry, ...} sorted by name: key ("nn.softmax"), op, text, signature, prose, example.
function M.ops()
  if op_docs then return op_docs end
  op_docs = {}
  for i, name in ipairs(ops.names) do
    local op = ops.ops[name]
    op_docs[i] = new_entry {key = "nn." .. name, op = op, names = {[name] = true},
                            text = op_text(op), section = op.category, where = op.source}
  end
  return op_docs
end

-- The names that a comment documents: those in its first line, else that of the function below it.
local function names_of(text, code)
  local names, first = {}, text:match "^[^\n]*"
  for name in first:gmatch "[%w_]+[.:]([%a_][%w_]*)[%s]*[%({]" do names[name] = true end
  local called = first:match "^([%a_][%w_]*)%s*[%({]" or first:match "^nn%.([%a_][%w_]*)"
  local defined = code:match "^function%s+[%w_]+[.:]([%w_]+)"
  if called then names[called] = true end
  if defined and not next(names) then names[defined] = true end
  return names
end

-- The key of a docstring, such as "nn.tensor" or "x:dim"; nil if it is internal.
local function key_of(text)
  local object, name = text:match "^([%w_]+)[.:]([%a_][%w_]*)"
  if object and M.objects[object] then return text:match "^[%w_]+[.:][%w_]+" end
  local callee = text:match "^([%w_]+)%s*[%({]"
  return M.objects[callee] and callee or name and nil
end

local function add_docs(out, path)
  local block, start, number = {}, nil, 0
  for line in (files.read(files.join(host.root, path)) .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    local comment = line:match "^%-%-%- ?(.*)$"
    if comment then
      block[#block + 1], start = comment, start or number
    elseif #block > 0 then
      local text = table.concat(block, "\n")
      out[#out + 1] = new_entry {
        key = key_of(text), names = names_of(text, line), text = text, file = path,
        where = ("%s:%d"):format(path, start)}
      block, start = {}, nil
    end
  end
end

--- library() -> {entry, ...} in the order of files and lines: names = {name = true}, key ("x:dim";
--- nil if internal), text, signature, prose, example, file, where.
function M.library()
  if library then return library end
  library = {}
  for _, path in ipairs(scripts_in("models", scripts_in("lua/nn", {}))) do
    add_docs(library, path)
  end
  return library
end

--- about(name) -> the entries of all ops, functions and methods of that name.
function M.about(name)
  local found = {}
  for _, list in ipairs {M.ops(), M.library()} do
    for _, entry in ipairs(list) do
      if entry.names[name] then found[#found + 1] = entry end
    end
  end
  return found
end

-- The schema and the options that a recipe passes to nn.config; the recipe runs only to that call.
local function schema_of(path)
  local caught = {}
  local own, words = nn.config, _G.arg
  rawset(nn, "config", function(schema, _, options)
    caught.schema, caught.options = schema, options
    error(caught, 0)
  end)
  rawset(_G, "arg", {[0] = path})
  local good, problem = pcall(assert(loadfile(path)))
  rawset(nn, "config", own)
  rawset(_G, "arg", words)
  if not good and problem ~= caught then error(problem, 0) end
  return caught.schema, caught.options
end

--- recipes() -> {{path=, schema=, options=, about=}, ...} of the recipes with settings, sorted by
--- path; about: the comment at the top of the file.
function M.recipes()
  local out = {}
  for _, file in ipairs(files.list(files.join(host.root, "recipes")) or {}) do
    local path = files.join(host.root, "recipes/" .. file)
    local text = file:find "%.lua$" and files.read(path) or ""
    if text:find("nn.config", 1, true) then
      local schema, options = schema_of(path)
      local about = {}
      for line in text:gmatch "(.-)\n" do
        if not line:find "^%-%-" then break end
        about[#about + 1] = line:match "^%-%- ?(.*)$"
      end
      out[#out + 1] = {path = "recipes/" .. file, schema = schema, options = options,
                       about = table.concat(about, "\n")}
    end
  end
  return out
end

return M
