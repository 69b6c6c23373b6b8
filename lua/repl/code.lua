-- Splits input into units (statements or an expression) that run one after the other, with locals
-- that stay.
local lexer = require "repl.lexer"

local M = {}

-- Compiles an expression, else statements. Returns the chunk and whether it is an expression; or
-- nil, whether the text continues in the next line, and the error.
local function load(text)
  local chunk, expression_err = loadstring("return " .. text, "=nn>")
  if chunk then return chunk, true end
  local err
  chunk, err = loadstring(text, "=nn>")
  if chunk then return chunk, false end
  -- text that fails at its first word was meant as an expression
  local word = err:match "unexpected symbol near '(.-)'$"
  if word and text:match "^%s*(.*)":sub(1, #word) == word then err = expression_err end
  -- a quoted string continues only after "\"; a method's name without a call never does
  local function continues(message)
    return message:find "'<eof>'$" and not message:find "function arguments expected"
           and (not message:find "unfinished string near" or text:find "\\$")
  end
  return nil, (continues(err) or continues(expression_err)) and true or false, err
end

-- Whether a text ends in ";", and the text without it.
local function split_end(text)
  local tokens = lexer.code_tokens(text)
  local last = tokens[#tokens]
  if not last or last.text ~= ";" then return false, text end
  return true, text:sub(1, last.from - 1) .. " " .. text:sub(last.to + 1)
end

-- The names after the `local` at tokens[i], and the index of the token after them.
local function local_names(tokens, i)
  local names = {}
  repeat
    i = i + 1
    if not tokens[i] or tokens[i].kind ~= "name" then return nil end
    names[#names + 1] = tokens[i].text
    i = i + 1
  until not tokens[i] or tokens[i].text ~= ","
  return names, i
end

-- Appends the edits, {from=, to=, text=}, that turn the `local` at tokens[i] into globals.
local function add_edits(edits, tokens, i, declare)
  local function edit(from, to, text) edits[#edits + 1] = {from = from, to = to, text = text} end
  local names, after = local_names(tokens, i)
  local is_function = tokens[i + 1] and tokens[i + 1].text == "function"
  if not names and not is_function then return end
  edit(tokens[i].from, tokens[i].to, "")
  for _, name in ipairs(names or {}) do declare(name) end
  if is_function or tokens[after] and tokens[after].text == "=" then return end
  local last = tokens[after - 1].to
  edit(last + 1, last, " = nil")
end

-- The text with every `local` outside blocks removed, so that the names exist in the next input.
-- Calls declare(name) for each.
local function keep_locals(text, declare)
  local tokens, depth, edits = lexer.code_tokens(text), 0, {}
  for i, token in ipairs(tokens) do
    if depth == 0 and token.kind == "keyword" and token.text == "local" then
      add_edits(edits, tokens, i, declare)
    end
    depth = depth + lexer.depth_change(token)
  end
  local parts, at = {}, 1
  for _, edit in ipairs(edits) do
    parts[#parts + 1] = text:sub(at, edit.from - 1) .. edit.text
    at = edit.to + 1
  end
  return table.concat(parts) .. text:sub(at)
end

local function unit(text, declare)
  local silent, code = split_end(text)
  local chunk, answer, err = load(keep_locals(code, declare))
  if not chunk then return nil, answer, err end
  return {chunk = chunk, silent = silent, text = code, is_expression = answer}
end

-- The parts of a text between ";" outside blocks. Newlines before each keep its line numbers.
local function split(text)
  local list, depth, at, lines = {}, 0, 1, 0
  local function add(to)
    local piece = text:sub(at, to)
    if piece:find "%S" then list[#list + 1] = ("\n"):rep(lines) .. piece end
    lines = lines + select(2, piece:gsub("\n", ""))
  end
  for _, token in ipairs(lexer.tokens(text)) do
    depth = depth + lexer.depth_change(token)
    if depth == 0 and token.text == ";" and token.kind == "operator" then
      add(token.from - 1)
      at = token.to + 1
    end
  end
  add(#text)
  return list
end

-- The units of the parts between ";". Or nil, whether the text continues, and the error.
local function units_of_parts(text, declare)
  local list, pieces = {}, split(text)
  for i, piece in ipairs(pieces) do
    local made, continues, err = unit(piece, declare)
    if not made then return nil, i == #pieces and continues, err end
    made.silent = i < #pieces or split_end(text)
    list[i] = made
  end
  return list
end

-- The units of a text: one, or several with ";" between them, of which only the last shows its
-- value: "x = 1; x", "x = f(); x:sum()". Or nil, whether the text continues, and the error.
local function units_of(text, declare)
  local whole, unfinished, err = unit(text, declare)
  if whole and whole.is_expression then return {whole} end
  local parts, continues = units_of_parts(text, declare)
  if parts and (not whole or parts[#parts].is_expression) then return parts end
  if whole then return {whole} end
  return nil, unfinished or continues, err
end

-- The units of a text whose lines are entered one after the other; the unfinished rest; and whether
-- that rest has an error.
local function by_lines(text, declare)
  local list, pending = {}, nil
  for line in (text .. "\n"):gmatch "(.-)\n" do
    pending = pending and pending .. "\n" .. line or line
    if pending:find "%S" then
      local made, unfinished = units_of(pending, declare)
      if not made and not unfinished then return list, pending, true end
      for _, one in ipairs(made or {}) do list[#list + 1] = one end
      if made then pending = nil end
    end
  end
  return list, pending and pending:find "%S" and pending, false
end

local function ignore() end

--- unfinished(text) -> whether the text is code that continues in the next line.
function M.unfinished(text)
  local _, pending, failed = by_lines(text, ignore)
  if not failed then return pending ~= nil end
  local _, unfinished = units_of(text, ignore)
  return unfinished or false
end

--- units(text, declare) -> list of {chunk=, silent=, text=}: as if the lines were entered one after
--- the other, or of the whole text where only that compiles. Or nil and the error. Calls
--- declare(name) for each local outside blocks, which becomes a global.
function M.units(text, declare)
  local list, pending, failed = by_lines(text, declare)
  if not failed and not pending then return list end
  local whole, _, err = units_of(text, declare)
  return whole, err
end

return M
