-- Completion with Tab: variables, fields and methods; options of the function being called; names
-- for help, commands; files inside strings. Never runs the user's code.
local code_names = require "repl.names"
local commands = require "repl.commands"
local files = require "nn.io.files"
local lexer = require "repl.lexer"
local pretty = require "repl.pretty"

local M = {}

-- Names that start with "_", and ops that only gradients use, appear only when typed in part.
local function is_hidden(name, typed)
  local op = require("nn.core.op").ops[name]
  return name:sub(1, 1) == "_" and typed == ""
    or op and op.gradient_of and not typed:find "_b"
end

-- Names that start as typed, each once, sorted.
local function matching(names, typed)
  local items, seen = {}, {}
  for _, name in ipairs(names) do
    if name:sub(1, #typed) == typed and not seen[name] and not is_hidden(name, typed) then
      seen[name] = true
      items[#items + 1] = name
    end
  end
  table.sort(items)
  return items
end

-- Files whose path starts as typed; folders end in "/". `home`: expand "~/".
local function paths(typed, at, quote, home)
  local folder, start = typed:match "^(.*/)(.-)$"
  folder, start = folder or "", start or typed
  local real = home and folder:gsub("^~/", (os.getenv "HOME" or "~") .. "/") or folder
  local names = {}
  for _, name in ipairs(files.list(real == "" and "." or real) or {}) do
    local hidden = name:sub(1, 1) == "." and start:sub(1, 1) ~= "."
    if name:sub(1, #start) == start and not hidden then
      local is_folder = files.list(real .. name) ~= nil
      names[#names + 1] = name .. (is_folder and "/" or "")
    end
  end
  local single = #names == 1 and names[1]:sub(-1) ~= "/"
  return {from = at - #start, items = names, suffix = single and quote or nil}
end

-- The name being typed, the tokens before it, and the last token of any kind.
local function split(before)
  local tokens, last = lexer.code_tokens(before)
  local is_name = last and (last.kind == "name" or last.kind == "keyword")
  if is_name then tokens[#tokens] = nil end
  return is_name and last.text or "", tokens, last
end

local function words(text, typed)
  local list = {}
  for _, token in ipairs(lexer.tokens(text)) do
    if token.kind == "name" and token.text ~= typed then list[#list + 1] = token.text end
  end
  for word in pairs(lexer.keywords) do list[#list + 1] = word end
  code_names.add_names(_G, list)
  return list
end

-- Names after tokens that end in "." or ":".
local function fields(tokens, typed)
  local value = code_names.value_of(tokens, #tokens - 1)
  if value == nil then return {} end
  return matching(code_names.fields(value, tokens[#tokens].text == ":"), typed)
end

-- In a table of options: their names, followed by " = ". Elsewhere in a call: the signature.
local function in_call(tokens, typed)
  local callee, in_table = code_names.call_around(tokens)
  if not callee then return nil end
  local last = tokens[#tokens].text
  if in_table and (last == "{" or last == ",") then
    local items = matching(code_names.options(callee), typed)
    if #items > 0 then return {items = items, suffix = " = "} end
  end
  if typed == "" then return {items = {}, note = require("nn.help.lookup").signature(callee)} end
end

local function code(text, at)
  local typed, tokens, last = split(text:sub(1, at))
  if last and last.kind == "comment" and not last.closed then return {from = at, items = {}} end
  if last and last.kind == "string" and not last.closed then
    local quote = last.text:sub(1, 1)
    return paths(last.text:sub(2), at, text:sub(at + 1, at + 1) ~= quote and quote or nil)
  end
  local before, found = tokens[#tokens]
  if before and (before.text == "." or before.text == ":") then
    found = {items = fields(tokens, typed)}
  else
    found = in_call(tokens, typed)
      or {items = typed ~= "" and matching(words(text, typed), typed) or {}}
  end
  found.from = at - #typed
  return found
end

local function help(before, at)
  local typed, items = before:match "[%w_]*$", {}
  if before:find "[.:][%w_]*$" then
    local _, tokens = split(before:match "^%s*%?+%s*(.*)$")
    items = fields(tokens, typed)
  end
  if #items > 0 then return {from = at - #typed, items = items} end
  local names = pretty.sorted_keys(commands.all)
  for _, name in ipairs(require("nn.help.lookup").names()) do names[#names + 1] = name end
  return {from = at - #typed, items = matching(names, typed)}
end

--- complete(text, at) -> {from=, items=, suffix=, note=}: the candidates for the text from offset
--- `from` to the cursor at `at`; `suffix` is appended to a single candidate; `note` is shown if
--- there is none.
function M.complete(text, at)
  local before = text:sub(1, at)
  if before:find "^%s*%?" then return help(before, at) end
  if before:find "^;" then return paths(before:match "[^%s;]*$", at, " ", true) end
  local file = before:match "^%s*%%run%s+([^%s]*)$"
  if file then return paths(file, at, " ") end
  local command = before:match "^%s*(%%%a*)$"
  if command then
    return {from = at - #command, items = matching(pretty.sorted_keys(commands.all), command),
            suffix = " "}
  end
  local rest = before:match "^%s*%%%a+%s+()"
  if not rest then return code(text, at) end
  local found = code(text:sub(rest), at - rest + 1)
  found.from = found.from + rest - 1
  return found
end

return M
