-- Standard input as a terminal: raw keys while a line is edited, the user's modes while code runs,
-- so that Ctrl-C is a signal then.
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
  int kill(int process, int signal);
]]

local M = {}
local C = ffi.C
local usual, raw = ffi.new "nn_termios", ffi.new "nn_termios"
local capacity = 4096
local buffer = ffi.new("uint8_t[?]", capacity)
local input = ffi.new("nn_pollfd[1]", {{fd = 0, events = 1}})  -- POLLIN
local after_output = 1                                     -- TCSADRAIN keeps what was typed ahead

local ICRNL, INLCR, IGNCR, IXON = 0x100, 0x40, 0x80, 0x400
local ISIG, ICANON, ECHO, IEXTEN = 0x1, 0x2, 0x8, 0x8000
local VTIME, VMIN = 5, 6

local function without(flags, ...) return bit.band(flags, bit.bnot(bit.bor(...))) end

--- open() -> whether standard input is a terminal whose modes can be set.
function M.open() return C.tcgetattr(0, usual) == 0 end

--- start(): raw keys and bracketed pastes.
function M.start()
  C.tcgetattr(0, usual)                                    -- a command may have changed them
  ffi.copy(raw, usual, ffi.sizeof(raw))
  raw.input = without(raw.input, ICRNL, INLCR, IGNCR, IXON)
  raw.local_ = without(raw.local_, ISIG, ICANON, ECHO, IEXTEN)
  raw.characters[VMIN], raw.characters[VTIME] = 1, 0
  M.restart()
  M.write "\27[?2004h"
end

--- restart(): raw keys again, after a shell reset the modes and continued the program.
function M.restart() C.tcsetattr(0, after_output, raw) end

--- stop(): restores the modes from before start().
function M.stop()
  M.write "\27[?2004l"
  C.tcsetattr(0, after_output, usual)
end

--- write(text): all of it, after what the program has printed so far.
function M.write(text)
  io.stdout:write(text)
  io.stdout:flush()
end

--- read(timeout) -> bytes; "" at the end of input; nil after a signal, or where nothing came within
--- so many milliseconds (-1: no limit).
function M.read(timeout)
  if C.poll(input, 1, timeout) <= 0 then return nil end
  local count = tonumber(C.read(0, buffer, capacity))
  if count < 0 then return nil end
  return ffi.string(buffer, count)
end

--- wait_for_line(is_interrupted): waits until a line or the end of input can be read, or until
--- is_interrupted() is true. A blocking read would miss a signal that arrives just before it.
function M.wait_for_line(is_interrupted)
  repeat until C.poll(input, 1, 100) > 0 or is_interrupted()
end

--- suspend(): stops this process group until the shell's `fg`, as Ctrl-Z does.
function M.suspend()
  M.stop()
  C.kill(0, 20)                                            -- SIGTSTP
  M.start()
end

return M
