-- Generates docs/reference.md: every public name with its docstring, from the same source as the
-- help at the prompt (docs.lua). `nnlua --doc` writes it; a test fails if it is out of date.

local config = require "nn.io.config"
local docs = require "nn.help.docs"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local tables = require "nn.base.tables"

local M = {}

-- The reference in order: topics of sections. A section has a title and what it consists of: files
-- of lua/nn, `models` for the folder of that name, and categories of ops.
local topics = {
  {"Tensors and ops",
   {"Tensors", "core/tensor"}, {"Creation", "core/creation", "op creation", "op random"},
   {"Shapes", "core/shapes", "op views"},
   {"Arithmetic", "core/methods", "op pointwise"}, {"Products", "op products", "core/einsum"},
   {"Matrices", "core/matrices"}, {"Reductions", "op reductions", "op rows"},
   {"Indexing and sorting", "core/indexing", "op indexing", "op sorting"},
   {"Changes in place", "op in place"}},
  {"Models",
   {"Modules", "core/module", "core/module_methods"}, {"Layers", "core/layers", "op layers"},
   {"Initial weights", "core/initializers"},
   {"Convolutions and pooling", "core/conv", "op convolution"}, {"Norms", "core/norms"},
   {"Recurrent layers", "core/recurrent"}, {"Losses", "core/losses", "op losses"},
   {"Language models", "models/class", "models/decoder", "models/encoder",
    "models/encoder_decoder", "models/cached"},
   {"Architectures", "models"}, {"Model files", "models/load"},
   {"Hugging Face models", "models/hugging_face"}, {"Rounded weights", "models/quantize"}},
  {"Training",
   {"Gradients", "core/tape", "core/custom", "core/gradients"},
   {"Optimizers", "core/optimizer", "core/optim", "op optimizers"},
   {"Learning rates", "train/schedule", "train/lr_schedulers"},
   {"Compiled functions", "core/compile"}, {"Scalars", "core/scalar"},
   {"Microbatches", "core/accumulate"}, {"Several processes", "base/cluster"}},
  {"Data and text",
   {"Data", "data/loader", "data/examples", "data/images"},
   {"Masked tokens and spans", "data/masking", "data/spans"},
   {"Vocabularies", "text/vocabulary"}, {"Tokenizers", "text/encoder"},
   {"Tokenizer files", "text/tokenizer", "text/bpe_files"},
   {"Training a tokenizer", "text/bpe_train"}, {"Chat templates", "text/chat", "io/ordered"}},
  {"Evaluation and generation",
   {"Generation", "models/generate"}, {"Evaluation", "models/evaluate"},
   {"Masked texts", "models/fill"}},
  {"Recipes and runs",
   {"Settings", "io/config"}, {"Settings of a run", "train/settings", "train/language"},
   {"Runs", "train/run"}, {"Checkpoints", "models/checkpoint"},
   {"Tensor files", "io/safetensors"}},
  {"Memory, plans and measurements",
   {"Workers, random numbers, signals", "base/engine"}, {"Memory", "base/budget", "train/memory"},
   {"Plans", "plan/step", "plan/gpu_budget"}, {"Measuring", "measure/profile"}},
  {"Tools",
   {"Plots", "plot/curves", "plot/histogram", "plot/image"},
   {"Tasks", "core/task"}, {"Errors and options", "base/capi", "base/arguments"},
   {"Tests", "test"}},
  {"Ops that compute gradients", {"Backward ops", "op gradients"}},
}

local function code(lines, text)
  lines[#lines + 1] = "```lua\n" .. text .. "\n```\n"
end

local escapes = {["<"] = "&lt;", ["*"] = "\\*"}
local function plain(text) return (text:gsub("[<*]", escapes)) end

-- A heading with the call, and the description, from a docstring that begins with the call.
local function add_function(lines, entry)
  local text = entry.prose
  local call = text:match "^[%w_.:]+%s*%b()" or text:match "^[%w_.:]+%s*%b{}" or entry.key
  local rest = text:sub(#call + 1):gsub("^[:%s]+", ""):gsub("^%->%s*", "→ ")
  rest = rest:gsub("^%l", string.upper)
  lines[#lines + 1] = ("#### `%s`\n\n%s\n"):format(call:gsub("%s*\n%s*", " "), plain(rest))
end

local function add_op(lines, entry)
  local text = entry.op.doc:gsub("\n    [^\n]*", "")
  lines[#lines + 1] = ("#### `nn.%s`\n\n%s\n"):format(
    text:match "^[^\n]*", plain(text:gsub("^[^\n]*\n", "")))
  local attributes = docs.attributes(entry.op)
  for _, a in ipairs(attributes) do
    lines[#lines + 1] = ("* `%s`: %s"):format(a.name, plain(a.text))
  end
  if #attributes > 0 then lines[#lines + 1] = "" end
  local gradient = docs.gradient(entry.op)
  lines[#lines + 1] = plain(gradient:gsub("^%l", string.upper)) .. ".\n"
end

local function add_entry(lines, entry)
  if entry.op then add_op(lines, entry) else add_function(lines, entry) end
  if entry.example then code(lines, entry.example) end
end

-- {[part of a section] = its entries}
local function entries_by_part()
  local by_part = {}
  local function add(part, entry)
    by_part[part] = by_part[part] or {}
    table.insert(by_part[part], entry)
  end
  for _, entry in ipairs(docs.library()) do
    local model = entry.file:find "^models/" and "models"
    if entry.key then add(model or entry.file:match "^lua/nn/(.*)%.lua$", entry) end
  end
  for _, entry in ipairs(docs.ops()) do add("op " .. entry.section, entry) end
  return by_part
end

local function anchor(title) return (title:lower():gsub("[^%w%- ]", ""):gsub(" ", "-")) end

local function add_section(lines, title, entries)
  lines[#lines + 1] = ("### %s\n"):format(title)
  for _, entry in ipairs(entries) do add_entry(lines, entry) end
  return ("[%s](#%s)"):format(title, anchor(title))
end

local function add_topics(lines, contents)
  local by_part = entries_by_part()
  for _, topic in ipairs(topics) do
    local links = {}
    lines[#lines + 1] = ("## %s\n"):format(topic[1])
    for i = 2, #topic do
      local entries = {}
      for k = 2, #topic[i] do
        local part = topic[i][k]
        if not by_part[part] then lib.fail("nnlua --doc: '%s' has no docs; remove it", part) end
        for _, entry in ipairs(by_part[part]) do entries[#entries + 1] = entry end
        by_part[part] = nil
      end
      links[#links + 1] = add_section(lines, topic[i][1], entries)
    end
    contents[#contents + 1] = ("* **%s**: %s"):format(topic[1], table.concat(links, ", "))
  end
  local without = tables.sorted_keys(by_part)
  if #without > 0 then
    lib.fail("nnlua --doc: no section has the docs of %s; add them to `topics` in "
             .. "lua/nn/help/reference.lua", table.concat(without, ", "))
  end
end

local function add_settings(lines, contents)
  contents[#contents + 1] = "* [**Settings of the recipes**](#settings-of-the-recipes)"
  lines[#lines + 1] = "## Settings of the recipes\n"
  for _, recipe in ipairs(docs.recipes()) do
    local cfg = config.config(recipe.schema, {}, recipe.options)
    lines[#lines + 1] = ("### `%s`\n\n```\n%s\n```\n"):format(recipe.path, recipe.about)
    lines[#lines + 1] = "| setting | meaning |\n|---|---|"
    for _, setting in ipairs(config.settings(cfg)) do
      local choices = setting.choices and ": " .. table.concat(setting.choices, ", ") or ""
      local meaning = setting.meaning .. choices
      lines[#lines + 1] = ("| `%s=%s` | %s |"):format(setting.path, setting.text,
                                                      (meaning:gsub("|", "\\|")))
    end
    lines[#lines + 1] = ""
  end
end

local head = [[
# Reference

The docstrings of all public names; `?name` at the prompt of `nnlua` shows the same text. Generated
by `nnlua --doc`; do not edit.

Axes and elements count from 1, token ids from 0. Tensors are row-major, and float32 by default.
`{axis=-1, keepdim=false}` at the end of a signature are options with their defaults, passed as a
table: `x:sum{axis = 1}`. An op `nn.softmax(x)` is also a method of its first tensor:
`x:softmax()`.

In examples, the result of the code follows `-->`: numbers to the given digits, tensors as nested
tables, `...` for anything. The name before a method is that of its object:
%s. Examples use these variables, and `input.txt`, a text file:
]]

--- text() -> the text of docs/reference.md.
function M.text()
  local lines, contents, objects, names = {}, {}, {}, {}
  for name, what in pairs(docs.objects) do
    if what:find "^an? " then
      objects[#objects + 1] = ("`%s` %s"):format(name, what)
    end
  end
  table.sort(objects)
  for i, name in ipairs(docs.preamble) do names[i] = name[1] .. " = " .. name[2] end
  add_topics(lines, contents)
  add_settings(lines, contents)
  local start = {head:format(table.concat(objects, ", "))}
  code(start, table.concat(names, "\n"))
  return table.concat(start, "\n") .. "\n" .. table.concat(contents, "\n") .. "\n\n"
    .. table.concat(lines, "\n")
end

--- write(): writes docs/reference.md of this source tree. Errors: failures of the disk.
function M.write()
  local path = files.join(host.root, "docs/reference.md")
  if not files.exists(files.join(host.root, "docs")) then
    lib.fail("there is no folder docs in %s; --doc needs the source tree", host.root)
  end
  files.write(path, M.text())
  print("wrote " .. path)
end

return M
