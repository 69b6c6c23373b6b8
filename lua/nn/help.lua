-- Help at the prompt: the docs of ops, from the registry, and of the library's functions and
-- methods, from the `---` comments of its own source files, read when first asked for.

local files = require "nn.files"
local host = require "nn.host"
local near = require "nn.near"

local M = {}
local library     -- {names = {name = true, ...}, text=, where=}, in the order of files and lines

-- Names that a comment is about: what its first line calls, and what the code behind it defines.
local function names_of(text, code)
  local names, first = {}, text:match "^[^\n]*"
  for name in first:gmatch "[%w_]+[.:]([%a_][%w_]*)[%s]*[%({]" do names[name] = true end
  local called = first:match "^([%a_][%w_]*)%s*[%({]"
  local defined = code:match "^function%s+[%w_]+[.:]([%w_]+)"
  if called then names[called] = true end
  if defined and not next(names) then names[defined] = true end
  return names
end

local function add_docs(out, folder, file)
  local block, start, number = {}, nil, 0
  for line in (files.read(files.join(host.root, folder .. "/" .. file)) .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    local comment = line:match "^%-%-%- ?(.*)$"
    if comment then
      block[#block + 1], start = comment, start or number
    elseif #block > 0 then
      local text = table.concat(block, "\n")
      out[#out + 1] = {names = names_of(text, line), text = text,
                       where = ("%s/%s:%d"):format(folder, file, start)}
      block, start = {}, nil
    end
  end
end

local function read_library()
  if library then return library end
  library = {}
  for _, folder in ipairs {"lua/nn", "models"} do
    for _, file in ipairs(files.list(files.join(host.root, folder)) or {}) do
      if file:find "%.lua$" then add_docs(library, folder, file) end
    end
  end
  return library
end

local function op_text(op)
  local lines = {op.doc}
  for _, a in ipairs(op.attributes) do
    local has_default = a.fallback ~= "" and a.fallback ~= "nil"
    local default = has_default and (" (default " .. a.fallback .. ")") or ""
    lines[#lines + 1] = ("  %-14s %s%s"):format(a.name, a.doc, default)
  end
  lines[#lines + 1] = op.no_gradient == "" and "has a gradient"
    or "no gradient: it " .. op.no_gradient
  return table.concat(lines, "\n")
end

-- Entries about a name, by its last word.
local function entries(name)
  local list = {}
  for _, entry in ipairs(read_library()) do
    if entry.names[name] then list[#list + 1] = entry end
  end
  return list
end

--- names() -> every name that there is help on.
function M.names()
  local seen, list = {}, {}
  for name in pairs(require("nn.op").ops) do seen[name] = true end
  for _, entry in ipairs(read_library()) do
    for name in pairs(entry.names) do seen[name] = true end
  end
  for name in pairs(seen) do list[#list + 1] = name end
  return list
end

--- signature(name) -> the first sentence on an op or a function; nil where there is nothing.
function M.signature(name)
  local op = require("nn.op").ops[name]
  local found = entries(name)[1]
  local text = op and op.doc or found and found.text
  if not text then return nil end
  return text:match "^.-[.:]%f[%s%z]" or text
end

--- options(name) -> names of the options that the signature of a function shows: {lr=1e-3, ...}.
function M.options(name)
  local list = {}
  for _, entry in ipairs(entries(name)) do
    local text = entry.text:gsub("\n%s*", " ")
    local call = text:match "^(.-) %->" or text:match "^.-%. " or text
    for group in call:gmatch "%b{}" do
      for option in (group:sub(2, -2) .. ","):gmatch "%s*([%a_][%w_]*)%s*=?[^,]*," do
        list[#list + 1] = option
      end
    end
  end
  return list
end

--- about(name) -> what there is to say about an op, a function or a method ("nn.compile", "AdamW",
--- "x:dim"), or that there is none, with the nearest name.
function M.about(name)
  local ops = require("nn.op").ops
  local last = name:match "([%a_][%w_]*)%W*$" or ""
  local parts, known = {}, {}
  if ops[last] then parts[1] = op_text(ops[last]) end
  for _, entry in ipairs(entries(last)) do
    parts[#parts + 1] = entry.text .. "\n(" .. entry.where .. ")"
  end
  for _, key in ipairs(M.names()) do known[key] = true end
  if #parts > 0 then return table.concat(parts, "\n\n") end
  local longer = {}
  for key in pairs(known) do
    if #last > 1 and key:sub(1, #last) == last then longer[#longer + 1] = key end
  end
  table.sort(longer)
  local hint = #longer > 1 and "; these begin so: " .. table.concat(longer, ", ")
    or near.suggestion(last, known)
  return ("there is no help on '%s'%s"):format(name, hint)
end

--- search(word) -> the first lines of all docs that contain a word.
function M.search(word)
  local lines = {}
  local function look(text, first)
    if text:lower():find(word:lower(), 1, true) then lines[#lines + 1] = first end
  end
  local registry = require "nn.op"
  for _, name in ipairs(registry.names) do
    local doc = registry.ops[name].doc
    look(doc, doc:match "^[^\n]*")
  end
  for _, entry in ipairs(read_library()) do
    if next(entry.names) then look(entry.text, entry.text:match "^[^\n]*") end
  end
  return #lines > 0 and table.concat(lines, "\n") or ("no doc has '%s'"):format(word)
end

return M
