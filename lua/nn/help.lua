-- Help at the prompt: docs of ops, functions and methods as docs.lua gathers them.

local docs = require "nn.docs"
local near = require "nn.near"

local M = {}

--- names() -> every name that there is help on.
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

--- signature(name) -> the first sentence on an op or a function; nil where there is nothing.
function M.signature(name)
  local entry = docs.about(name)[1]
  if not entry then return nil end
  return entry.prose:match "^.-[.:]%f[%s%z]" or entry.prose
end

--- options(name) -> names of the options that the signature of a function shows: {lr=1e-3, ...}.
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

--- about(name) -> what there is to say about an op, a function or a method ("nn.compile", "AdamW",
--- "x:dim"), or that there is none, with the nearest name.
function M.about(name)
  local last = name:match "([%a_][%w_]*)%W*$" or ""
  local parts = {}
  for _, entry in ipairs(docs.about(last)) do
    parts[#parts + 1] = entry.where and entry.text .. "\n(" .. entry.where .. ")" or entry.text
  end
  if #parts > 0 then return table.concat(parts, "\n\n") end
  local known, longer = {}, {}
  for _, key in ipairs(M.names()) do
    known[key] = true
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
  for _, list in ipairs {docs.ops(), docs.library()} do
    for _, entry in ipairs(list) do
      if next(entry.names) and entry.text:lower():find(word:lower(), 1, true) then
        lines[#lines + 1] = entry.signature
      end
    end
  end
  return #lines > 0 and table.concat(lines, "\n") or ("no doc has '%s'"):format(word)
end

return M
