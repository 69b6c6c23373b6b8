-- What is typed as code: cut into statements and expressions that run one after the other, with
-- locals that stay.
local lexer = require "repl.lexer"

local M = {}

-- A chunk of an expression if it is one, else of statements; or nil, whether the text goes on in
-- the next line, and the error.
local function load(text)
  local chunk, expression_err = loadstring("return " .. text, "=nn>")
  if chunk then return chunk end
  local err
  chunk, err = loadstring(text, "=nn>")
  if chunk then return chunk end
  -- what fails at its first word was meant as an expression
  local word = err:match "unexpected symbol near '(.-)'$"
  if word and text:match "^%s*(.*)":sub(1, #word) == word then err = expression_err end
  -- a quoted string never does, but for "\" at the end; nor does the name of a method
  local function goes_on(message)
    return message:find "'<eof>'$" and not message:find "function arguments expected"
           and (not message:find "unfinished string near" or text:find "\\$")
  end
  return nil, (goes_on(err) or goes_on(expression_err)) and true or false, err
end

-- Whether a text ends in ";", and the text without it.
local function split_end(text)
  local tokens = lexer.without_space(lexer.tokens(text))
  local last = tokens[#tokens]
  if not last or last.text ~= ";" then return false, text end
  return true, text:sub(1, last.from - 1) .. " " .. text:sub(last.to + 1)
end

-- Names behind `local` at tokens[i], and the position of the token behind them.
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

-- The edits that make globals of what the `local` at tokens[i] declares: {from=, to=, text=}.
local function global_edits(tokens, i, declare)
  local here, behind = tokens[i], tokens[i + 1]
  local drop = {from = here.from, to = here.to, text = ""}
  if behind and behind.text == "function" then return {drop} end
  local names, after = local_names(tokens, i)
  if not names then return {} end
  for _, name in ipairs(names) do declare(name) end
  if tokens[after] and tokens[after].text == "=" then return {drop} end
  local last = tokens[after - 1].to
  return {drop, {from = last + 1, to = last, text = " = nil"}}
end

--- keep_locals(text, declare) -> the text with every `local` outside blocks taken off, so that the
--- names are still there in the next input. declare(name) is called for each.
function M.keep_locals(text, declare)
  local tokens, depth, edits = lexer.without_space(lexer.tokens(text)), 0, {}
  for i, token in ipairs(tokens) do
    if depth == 0 and token.kind == "keyword" and token.text == "local" then
      for _, edit in ipairs(global_edits(tokens, i, declare)) do edits[#edits + 1] = edit end
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
  local chunk, unfinished, err = load(M.keep_locals(code, declare))
  if not chunk then return nil, unfinished, err end
  return {chunk = chunk, silent = silent}
end

-- What stands between the ";" outside of blocks, on the lines where it stands.
local function pieces(text)
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

-- Units of a text that is one chunk, or several with ";" between them, of which only the last shows
-- its value: "x = 1; x". Else nil, whether the text goes on, and the error.
local function units_of(text, declare)
  local whole, unfinished, err = unit(text, declare)
  if whole then return {whole} end
  local list, parts = {}, pieces(text)
  if #parts < 2 then return nil, unfinished, err end
  for i, part in ipairs(parts) do
    local piece, goes_on = unit(part, declare)
    if not piece then return nil, i == #parts and goes_on, err end
    piece.silent = i < #parts or split_end(text)
    list[i] = piece
  end
  return list
end

local function ignore() end

-- The units of each line, or of the lines that belong together, as if typed one after the other;
-- what is left at the end; and whether that can never be code.
local function by_lines(text, declare)
  local list, pending = {}, nil
  for line in (text .. "\n"):gmatch "(.-)\n" do
    pending = pending and pending .. "\n" .. line or line
    if pending:find "%S" then
      local made, unfinished = units_of(pending, declare)
      for _, one in ipairs(made or {}) do list[#list + 1] = one end
      if made then pending = nil end
      if not made and not unfinished then return list, pending, true end
    end
  end
  return list, pending and pending:find "%S" and pending, false
end

--- unfinished(text) -> whether the text is code that goes on in the next line.
function M.unfinished(text)
  local _, pending, failed = by_lines(text, ignore)
  if not failed then return pending ~= nil end
  local _, unfinished = units_of(text, ignore)
  return unfinished or false
end

--- units(text, declare) -> list of {chunk=, silent=}: each line, or the lines that belong together,
--- as if typed one after the other; the whole text where only that makes sense. Or nil and the
--- error.
function M.units(text, declare)
  local list, pending, failed = by_lines(text, declare)
  if not failed and not pending then return list end
  local whole, _, err = units_of(text, declare)
  return whole, err
end

return M
