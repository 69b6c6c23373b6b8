-- The terminal that the session talks to: raw keys while a line is edited, the usual modes while
-- code runs, so that Ctrl-C is a signal then.
local ffi = require "ffi"

ffi.cdef [[
  typedef struct {
    uint32_t input, output, control, local_;
    uint8_t line, characters[32];
    uint32_t input_speed, output_speed;
  } nn_termios;
  typedef struct { int fd; short events, revents; } nn_pollfd;
  int tcgetattr(int fd, nn_termios *out);
  int tcsetattr(int fd, int when, const nn_termios *modes);
  int poll(nn_pollfd *files, unsigned long count, int timeout);
  long read(int fd, void *out, size_t size);
  long write(int fd, const void *data, size_t size);
  int kill(int process, int signal);
]]

local M = {}
local C = ffi.C
local usual, raw = ffi.new "nn_termios", ffi.new "nn_termios"
local room = 4096
local buffer, waiting = ffi.new("uint8_t[?]", room), ffi.new "nn_pollfd[1]"
local after_output = 1                                     -- TCSADRAIN: typed ahead stays

local ICRNL, INLCR, IGNCR, IXON = 0x100, 0x40, 0x80, 0x400
local ISIG, ICANON, ECHO, IEXTEN = 0x1, 0x2, 0x8, 0x8000
local VTIME, VMIN = 5, 6

local function without(flags, ...)
  for _, flag in ipairs {...} do flags = bit.band(flags, bit.bnot(flag)) end
  return flags
end

--- open() -> whether standard input is a terminal whose modes can be set.
function M.open() return C.tcgetattr(0, usual) == 0 end

--- start(): raw keys, pastes in brackets. What was typed ahead is kept.
function M.start()
  C.tcgetattr(0, usual)                                    -- a command may have changed them
  ffi.copy(raw, usual, ffi.sizeof(raw))
  raw.input = without(raw.input, ICRNL, INLCR, IGNCR, IXON)
  raw.local_ = without(raw.local_, ISIG, ICANON, ECHO, IEXTEN)
  raw.characters[VMIN], raw.characters[VTIME] = 1, 0
  C.tcsetattr(0, after_output, raw)
  M.write "\27[?2004h"
end

--- again(): raw keys, where a shell has reset the modes before it let the program go on.
function M.again() C.tcsetattr(0, after_output, raw) end

--- stop(): the modes that were there before.
function M.stop()
  M.write "\27[?2004l"
  C.tcsetattr(0, after_output, usual)
end

--- write(text): all of it, behind what the program has printed so far.
function M.write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

--- read(timeout) -> bytes; "" at the end of input; nil where nothing came in so many milliseconds
--- (-1: waits on) or a signal did.
function M.read(timeout)
  waiting[0].fd, waiting[0].events = 0, 1                  -- POLLIN
  if C.poll(waiting, 1, timeout) <= 0 then return nil end
  local count = tonumber(C.read(0, buffer, room))
  if count < 0 then return nil end
  return ffi.string(buffer, count)
end

--- suspend(): stops this program and its group until the shell's `fg`, as Ctrl-Z does.
function M.suspend()
  M.stop()
  C.kill(0, 20)                                            -- SIGTSTP
  M.start()
end

return M
