-- Generates docs/reference.md: every public name with its docstring, from the same source as the
-- help at the prompt (docs.lua). `nnlua --doc` writes it; a test fails if it is out of date.

local config = require "nn.io.config"
local docs = require "nn.help.docs"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"

local M = {}

-- The sections of the reference in order: title, files. Other files come last, under their names.
local titles = {
  {"Tensors", "core/tensor"}, {"Creating tensors", "core/creation"}, {"Shapes", "core/methods"},
  {"Gradients", "core/tape"}, {"Modules", "core/module", "core/module_methods"},
  {"Layers", "core/layers", "core/conv", "core/norms", "core/recurrent"},
  {"Optimizers", "core/optim"}, {"Learning rates", "train/schedule"},
  {"Compiled functions", "core/compile"}, {"Scalars", "core/scalar"},
  {"Data", "data/loader"}, {"Vocabularies", "text/vocabulary"}, {"Tokenizers", "text/encoder"},
  {"Tokenizer files", "text/tokenizer", "text/bpe_files"},
  {"Chat templates", "text/chat", "io/ordered"},
  {"Training a tokenizer", "text/bpe_train"},
  {"Generation and evaluation", "models/generate", "models/evaluate"},
  {"Model files", "models/load"}, {"Hugging Face models", "models/hugging_face"},
  {"Tensor files", "io/safetensors"}, {"Checkpoints", "models/checkpoint"},
  {"Settings", "io/config"}, {"Settings of a run", "train/settings"}, {"Runs", "train/run"},
  {"Microbatches", "core/accumulate"}, {"Plans", "plan/step"},
  {"Workers, random numbers, signals", "base/engine"}, {"Memory", "base/budget"},
  {"Measuring", "measure/profile"}, {"Tasks", "core/task"},
  {"Errors and options", "base/capi", "base/arguments"}, {"Tests", "test"},
}
local categories = {
  "creation", "random", "pointwise", "reductions", "rows", "products", "views", "indexing",
  "layers", "losses", "in place", "optimizers", "gradients",
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
  lines[#lines + 1] = ("### `%s`\n\n%s\n"):format(call:gsub("%s*\n%s*", " "), plain(rest))
end

local function add_op(lines, entry)
  local text = entry.op.doc:gsub("\n    [^\n]*", "")
  lines[#lines + 1] = ("### `nn.%s`\n\n%s\n"):format(
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

-- {{title=, entries=}, ...}: entries grouped by title_of(entry), in the order of the titles `first`
-- and then of the entries.
local function group(entries, first, title_of)
  local sections, by_title = {}, {}
  local function section(title)
    if not by_title[title] then
      by_title[title] = {title = title, entries = {}}
      sections[#sections + 1] = by_title[title]
    end
    return by_title[title]
  end
  for _, title in ipairs(first) do section(title) end
  for _, entry in ipairs(entries) do table.insert(section(title_of(entry)).entries, entry) end
  return sections
end

local function library_sections()
  local order, title_of, public = {}, {}, {}
  for i, title in ipairs(titles) do
    order[i] = title[1]
    for k = 2, #title do title_of[title[k]] = title[1] end
  end
  for _, entry in ipairs(docs.library()) do
    if entry.key then public[#public + 1] = entry end
  end
  return group(public, order, function(entry)
    return title_of[entry.file:match "^lua/nn/(.*)%.lua$" or entry.file] or entry.file
  end)
end

local function anchor(title) return (title:lower():gsub("[^%w%- ]", ""):gsub(" ", "-")) end

local function add_sections(lines, contents, sections, prefix)
  for _, section in ipairs(sections) do
    if #section.entries > 0 then
      local title = prefix .. section.title
      contents[#contents + 1] = ("* [%s](#%s)"):format(title, anchor(title))
      lines[#lines + 1] = ("## %s\n"):format(title)
      for _, entry in ipairs(section.entries) do add_entry(lines, entry) end
    end
  end
end

local function add_settings(lines, contents)
  contents[#contents + 1] = "* [Settings of the recipes](#settings-of-the-recipes)"
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
  add_sections(lines, contents, library_sections(), "")
  add_sections(lines, contents, group(docs.ops(), categories, function(entry)
    return entry.section
  end), "Ops: ")
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
