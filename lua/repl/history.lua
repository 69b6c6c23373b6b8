-- What was entered before: in memory, and in a file that all sessions share. An entry is kept once,
-- where it was last entered; one of several lines stays whole.
local ffi = require "ffi"
local files = require "nn.io.files"

local M = {}
local History = {}
History.__index = History

local most = 10000        -- entries in the file

-- One line of the file for each entry.
local function encode(entry) return (entry:gsub("\\", "\\\\"):gsub("\n", "\\n")) end
local function decode(line)
  return (line:gsub("\\(.)", function(c) return c == "n" and "\n" or c end))
end

--- default_path() -> where the history lies: nnlua/history in $XDG_STATE_HOME or ~/.local/state;
--- nil where there is no home.
function M.default_path()
  local state, home = os.getenv "XDG_STATE_HOME", os.getenv "HOME"
  if state and state:sub(1, 1) == "/" then return files.join(state, "nnlua/history") end
  return home and home ~= "" and files.join(home, ".local/state/nnlua/history") or nil
end

-- Only the last one of equal entries stays. Returns how many there were.
local function unique(entries)
  local last, count = {}, #entries
  for i, entry in ipairs(entries) do last[entry] = i end
  local kept = {}
  for i, entry in ipairs(entries) do
    if last[entry] == i then kept[#kept + 1] = entry end
  end
  return kept, count
end

local function read(path)
  local file = io.open(path)
  local entries = {}
  for line in (file and file:read "*a" or ""):gmatch "([^\n]+)\n" do
    entries[#entries + 1] = decode(line)
  end
  if file then file:close() end
  return entries
end

local open_append, create_private = 1 + 64 + 1024, 1 + 64 + 512    -- O_WRONLY | O_CREAT | ...

-- Writes text to a file that only its owner reads; one call, so that sessions do not mix.
local function write(path, text, flags)
  local fd = ffi.C.open(path, flags, ffi.cast("int", 384))         -- rw-------
  if fd < 0 then return false end
  local done = tonumber(ffi.C.write(fd, text, #text))
  ffi.C.close(fd)
  return done == #text
end

-- A file with many entries that were entered again is written anew.
local function shorten(path, entries)
  local lines = {}
  for i, entry in ipairs(entries) do lines[i] = encode(entry) .. "\n" end
  local new = path .. ".new"
  if write(new, table.concat(lines), create_private) then files.rename(new, path) end
end

--- open(path) -> history. nil: it is kept in memory only, as it is where the file cannot be
--- written.
function M.open(path)
  local self = setmetatable({entries = {}, path = path}, History)
  if not path then return self end
  if not pcall(files.make_folder, path:match "^(.*)/") then
    self.path = nil
    return self
  end
  local kept, lines = unique(read(path))
  local first = math.max(1, #kept - most + 1)
  for i = first, #kept do self.entries[#self.entries + 1] = kept[i] end
  if lines > most + 1000 or lines > 2 * #self.entries + 100 then shorten(path, self.entries) end
  return self
end

--- history:add(text): as the newest entry, which goes to the file at once. Blank text and text that
--- starts with a space are not kept.
function History:add(text)
  text = text:gsub("%s+$", "")
  if text == "" or text:find "^ " then return end
  local newest = self.entries[#self.entries]
  if text == newest then return end
  for i, entry in ipairs(self.entries) do
    if entry == text then
      table.remove(self.entries, i)
      break
    end
  end
  self.entries[#self.entries + 1] = text
  if self.path and not write(self.path, encode(text) .. "\n", open_append) then self.path = nil end
end

--- history:find(from, step, matches) -> the position of the next entry from there for which
--- matches(entry), going back (step -1) or forth (1); nil where there is none.
function History:find(from, step, matches)
  local i = step < 0 and math.min(from + step, #self.entries) or math.max(from + step, 1)
  while i >= 1 and i <= #self.entries do
    if matches(self.entries[i]) then return i end
    i = i + step
  end
end

return M
