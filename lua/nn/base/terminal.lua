-- The terminal: its size, and whether it shows colours.
local ffi = require "ffi"
local lib = require "nn.base.capi"

ffi.cdef [[
  typedef struct { unsigned short rows, columns, width, height; } nn_window;
  int ioctl(int fd, unsigned long request, ...);
]]

local M = {}
local window = ffi.new "nn_window"

--- size() -> columns and rows of the terminal; 80 and 24 if standard output is not a terminal.
function M.size()
  local known = ffi.C.ioctl(1, 0x5413, window) == 0 and window.columns > 0     -- TIOCGWINSZ
  if not known then return 80, 24 end
  return window.columns, math.max(1, window.rows)
end

--- is_terminal(fd) -> whether a file descriptor is a terminal. mpirun gives rank 0 one of its own;
--- the launcher sets NNLUA_RANKS_OUTPUT=file if its output is not a terminal.
function M.is_terminal(fd)
  if fd == 1 and os.getenv "NNLUA_RANKS_OUTPUT" == "file" then return false end
  return lib.C.isatty(fd) == 1
end

--- has_colors(fd) -> whether to write colours: to a terminal, unless NO_COLOR or TERM forbid it.
function M.has_colors(fd)
  return M.is_terminal(fd) and (os.getenv "NO_COLOR" or "") == "" and os.getenv "TERM" ~= "dumb"
end

--- shows_utf8() -> whether the locale has UTF-8.
function M.shows_utf8()
  local locale = os.getenv "LC_ALL" or os.getenv "LC_CTYPE" or os.getenv "LANG" or ""
  return locale:lower():find "utf%-?8" ~= nil
end

return M
