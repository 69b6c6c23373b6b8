-- The entries of the prompt: in memory, and in a file that all sessions share. An entry is kept
-- once, at its latest position; one of several lines stays whole.
local ffi = require "ffi"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local temporary = require "nn.io.temporary"

local M = {}
local History = {}
History.__index = History

local most = 10000        -- entries in the file

-- The file has one line for each entry.
local function encode(entry) return (entry:gsub("\\", "\\\\"):gsub("\n", "\\n")) .. "\n" end
local function decode(line)
  return (line:gsub("\\(.)", function(c) return c == "n" and "\n" or c end))
end

--- default_path(name) -> the history file: nnlua/NAME in $XDG_STATE_HOME or ~/.local/state; nil
--- without a home folder.
function M.default_path(name)
  local state, home = os.getenv "XDG_STATE_HOME", os.getenv "HOME"
  if state and state:sub(1, 1) == "/" then return files.join(state, "nnlua/" .. name) end
  return home and home ~= "" and files.join(home, ".local/state/nnlua/" .. name) or nil
end

-- The newest `most` entries, each only where it occurs last; and how many the file has.
local function read(path)
  local file = io.open(path)
  local text = file and file:read "*a" or ""
  if file then file:close() end
  local all, seen, newest, entries = {}, {}, {}, {}
  for line in text:gmatch "([^\n]+)\n" do all[#all + 1] = decode(line) end
  for i = #all, 1, -1 do
    if not seen[all[i]] and #newest < most then newest[#newest + 1] = all[i] end
    seen[all[i]] = true
  end
  for i = #newest, 1, -1 do entries[#entries + 1] = newest[i] end
  return entries, #all
end

local open_append, create_private = 1 + 64 + 1024, 1 + 64 + 512    -- O_WRONLY | O_CREAT | ...

-- Writes text to a file that only its owner can read; in one call, so that sessions do not mix.
local function write(path, text, flags)
  local fd = ffi.C.open(path, flags, ffi.cast("int", 384))         -- rw-------
  if fd < 0 then return false end
  local done = tonumber(ffi.C.write(fd, text, #text))
  ffi.C.close(fd)
  return done == #text
end

-- Replaces a file that has many outdated lines.
local function rewrite(path, entries)
  local lines = {}
  for i, entry in ipairs(entries) do lines[i] = encode(entry) end
  local new = path .. ".new"
  if not pcall(file_type.make_way, new) then return end
  temporary.claim(new)
  if not write(new, table.concat(lines), create_private) then return temporary.discard(new) end
  temporary.keep(new)
  files.rename(new, path)
end

-- The file to use for a path: where its links lead. nil if it cannot be one.
local function file_for(path)
  if not path or not pcall(files.make_folder, path:match "^(.*)/") then return nil end
  local good, file = pcall(file_type.replaced, path)
  return good and file or nil
end

--- open(path) -> history. It is kept in memory only where path is nil or cannot be written.
function M.open(path)
  local self = setmetatable({entries = {}, path = file_for(path)}, History)
  path = self.path
  if not path then return self end
  local lines
  self.entries, lines = read(path)
  if lines > most + 1000 or lines > 2 * #self.entries + 100 then rewrite(path, self.entries) end
  return self
end

--- history:add(text): makes it the newest entry and writes it to the file. Blank text and text that
--- starts with a space are not kept.
function History:add(text)
  text = text:gsub("%s+$", "")
  local entries = self.entries
  if text == "" or text:find "^ " or text == entries[#entries] then return end
  local same = self:find(#entries + 1, -1, function(entry) return entry == text end)
  if same then table.remove(entries, same) end
  entries[#entries + 1] = text
  if self.path and not write(self.path, encode(text), open_append) then self.path = nil end
end

--- history:find(from, step, matches) -> the index of the next entry after `from` for which
--- matches(entry), going back (step -1) or forward (1); nil if none.
function History:find(from, step, matches)
  local i = step < 0 and math.min(from + step, #self.entries) or math.max(from + step, 1)
  while i >= 1 and i <= #self.entries do
    if matches(self.entries[i]) then return i end
    i = i + step
  end
end

return M
