-- Help at the prompt: the docs of ops, functions and methods that docs.lua collects, and the
-- settings of the recipes.

local config = require "nn.io.config"
local docs = require "nn.help.docs"
local suggest = require "nn.base.suggest"

local M = {}

--- names() -> every documented name.
function M.names()
  local seen, list = {}, {}
  for _, entries in ipairs {docs.ops(), docs.library()} do
    for _, entry in ipairs(entries) do
      for name in pairs(entry.names) do
        if not seen[name] then list[#list + 1] = name end
        seen[name] = true
      end
    end
  end
  return list
end

--- signature(name) -> the first sentence of the docs of an op or a function; nil if undocumented.
function M.signature(name)
  local entry = docs.about(name)[1]
  if not entry then return nil end
  return entry.prose:match "^.-[.:]%f[%s%z]" or entry.prose
end

--- options(name) -> the names of the options in the signature of a function: {lr=1e-3, ...}.
function M.options(name)
  local list = {}
  for _, entry in ipairs(docs.about(name)) do
    local text = entry.prose:gsub("\n%s*", " ")
    local call = text:match "^(.-) %->" or text:match "^.-%. " or text
    for group in not entry.op and call:gmatch "%b{}" or function() end do
      for option in (group:sub(2, -2) .. ","):gmatch "%s*([%a_][%w_]*)%s*=?[^,]*," do
        list[#list + 1] = option
      end
    end
  end
  return list
end

-- Wraps text to 100 columns, the width of the library's docs; the rest of a long line gets the same
-- indentation. Examples are not wrapped.
local function wrapped(text)
  local lines = {}
  for line in (text .. "\n"):gmatch "(.-)\n" do
    local indent = line:match "^ *"
    while #line > 100 and #indent < 4 do
      local head = line:sub(1, 101):match "^(.*%S) "
      if not head or #head <= #indent then break end
      lines[#lines + 1], line = head, indent .. line:sub(#head + 2)
    end
    lines[#lines + 1] = line
  end
  return table.concat(lines, "\n")
end

-- Lines about the settings of recipes with the path `name`, or whose last part is `name`; with
-- accept, about those for which accept(path, meaning).
local function settings(name, accept)
  local lines, at = {}, {}
  for _, recipe in ipairs(docs.recipes()) do
    local cfg = config.config(recipe.schema, {}, recipe.options)
    for _, setting in ipairs(config.settings(cfg)) do
      local path, wanted = setting.path
      if accept then
        wanted = accept(path, setting.meaning)
      else
        wanted = path == name or not name:find(".", 1, true) and path:match "[^.]*$" == name
      end
      local line = ("%s=%s  %s"):format(path, setting.text, setting.meaning)
      if setting.choices then line = line .. ": " .. table.concat(setting.choices, ", ") end
      if wanted and not at[line] then
        lines[#lines + 1], at[line] = line .. "\n  a setting of " .. recipe.path, #lines + 1
      elseif wanted then
        lines[at[line]] = lines[at[line]] .. ", " .. recipe.path
      end
    end
  end
  return lines
end

--- about(name) -> true and the help on an op, a function, a method ("nn.compile", "AdamW",
--- "x:dim") or a setting of recipes ("data.batch"); else false and a message with the nearest name.
function M.about(name)
  local last = name:match "([%a_][%w_]*)%W*$" or ""
  local parts = {}
  for _, entry in ipairs(docs.about(last)) do
    parts[#parts + 1] = wrapped(entry.text) .. "\n(" .. entry.where .. ")"
  end
  for _, line in ipairs(settings(name:match "^%s*([%w_.]+)" or "")) do parts[#parts + 1] = line end
  if #parts > 0 then return true, table.concat(parts, "\n\n") end
  local known, longer = {}, {}
  for _, key in ipairs(M.names()) do
    known[key] = true
    if #last > 1 and key:sub(1, #last) == last then longer[#longer + 1] = key end
  end
  table.sort(longer)
  local hint = #longer > 1 and "; names that begin with it: " .. table.concat(longer, ", ")
    or suggest.suggestion(last, known)
  return false, ("there is no help on '%s'%s"):format(name, hint)
end

--- search(word) -> the first lines of all docs that contain a word, then matching recipes and
--- settings, then internal docs with their position in the source.
function M.search(word)
  local lines, own = {}, {}
  for _, list in ipairs {docs.ops(), docs.library()} do
    for _, entry in ipairs(list) do
      if next(entry.names) and entry.text:lower():find(word:lower(), 1, true) then
        if entry.key then
          lines[#lines + 1] = entry.signature
        else
          own[#own + 1] = ("%s  (%s)"):format(entry.signature, entry.where)
        end
      end
    end
  end
  for _, recipe in ipairs(docs.recipes()) do
    if recipe.about:lower():find(word:lower(), 1, true) then
      local first = recipe.about:gsub("\n", " "):match "^.-[.:]%f[%s%z]"
      lines[#lines + 1] = recipe.path .. ": " .. first
    end
  end
  local function accept(path, meaning)
    return (path .. " " .. meaning):lower():find(word:lower(), 1, true)
  end
  for _, line in ipairs(settings("", accept)) do lines[#lines + 1] = line end
  for _, line in ipairs(own) do lines[#lines + 1] = line end
  return #lines > 0 and table.concat(lines, "\n") or ("no doc has '%s'"):format(word)
end

return M
