-- The command line of a run, and the one that resumes it, as a user types them.
local cluster = require "nn.base.cluster"
local files = require "nn.io.files"
local host = require "nn.host"

local M = {}

-- A word as the shell needs it.
local function quoted(word)
  if word ~= "" and not word:find "[^%w_./=,:@%%+-]" then return word end
  return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- The program and, if ranks run, their number. ./nnlua sets NNLUA_PROGRAM to its own name.
local function program_of(words, named)
  local first = 0
  while words[first - 1] do first = first - 1 end
  local usable = named ~= "" and (not named:find "/" or files.exists(named))
  local out = {usable and named or words[first]}
  if cluster.several() then out[2], out[3] = "--ranks", tostring(cluster.ranks().ranks) end
  return out
end

-- recipes/NAME.lua for a recipe of nnlua, which is found from any folder.
local function script_of(path)
  local name = path:sub(#host.root + 2)
  local is_found = name:find "^recipes/" and path == files.join(host.root, name)
  return is_found and not files.exists(name) and name or path
end

local function joined(words)
  for i, word in ipairs(words) do words[i] = quoted(word) end
  return table.concat(words, " ")
end

--- typed(words, named) -> the command line of this process; nil without a script. words: `arg`;
--- named: the value of NNLUA_PROGRAM.
function M.typed(words, named)
  words = words or arg
  if not words or not words[0] then return nil end
  local out = program_of(words, named or os.getenv "NNLUA_PROGRAM" or "")
  out[#out + 1] = script_of(words[0])
  for _, word in ipairs(words) do out[#out + 1] = word end
  return joined(out)
end

--- resume(folder, words, named) -> the command that continues the run in a folder. Its settings are
--- those of the checkpoint, so only what is no setting is repeated. words, named: as in typed().
function M.resume(folder, words, named)
  words = words or arg
  if not words or not words[0] then return quoted("resume=" .. folder) end
  local out = program_of(words, named or os.getenv "NNLUA_PROGRAM" or "")
  out[#out + 1] = script_of(words[0])
  for _, word in ipairs(words) do
    if not word:find "^%-*[%w_.]+=" and not word:find "^%-%-" then out[#out + 1] = word end
  end
  out[#out + 1] = "resume=" .. folder
  return joined(out)
end

return M
