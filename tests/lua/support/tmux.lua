-- A terminal for tests (tmux): what a user sees and types.
local ffi = require "ffi"
local files = require "nn.io.files"
local t = require "nn.test"

ffi.cdef "int usleep(unsigned microseconds);"

local M = {folder = t.folder()}
local has_tmux = t.shell "command -v tmux >/dev/null" == 0
local socket, sessions = nil, 0

--- command(text) -> what the tmux command prints.
function M.command(text)
  local status, output = t.shell(("tmux -f /dev/null -S %s %s"):format(socket, text))
  t.check(status == 0, output)
  return output
end

--- screen() -> the screen's lines without empty ones at the end.
function M.screen() return (M.command "capture-pane -p":gsub("%s+$", "")) end

--- lines() -> all lines since the start, also those above the screen; wrapped ones are joined.
function M.lines() return M.command "capture-pane -p -J -S -" end

local function wait_until(good, expected)
  local now
  for _ = 1, 200 do
    now = M.screen()
    if good(now) then return now end
    ffi.C.usleep(100000)
  end
  t.check(false, ("the screen should %s but is\n%s"):format(expected, now))
end

--- wait(text): waits until the screen ends in it, and returns the screen; after 20 seconds fails
--- and shows the screen.
function M.wait(text)
  return wait_until(function(now) return now:sub(-#text) == text end, "end in\n" .. text .. "\n")
end

--- wait_for(pattern): waits until the screen contains it.
function M.wait_for(pattern)
  return wait_until(function(now) return now:find(pattern) ~= nil end, "contain " .. pattern)
end

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

--- type(text), press(keys), enter(line), paste(text): the user's input. keys: by tmux's names.
function M.type(text) M.command("send-keys -l " .. quote((text:gsub(";$", "\\;")))) end
function M.press(keys) M.command("send-keys " .. keys) end
function M.enter(text)
  M.type(text)
  M.press "Enter"
end
function M.paste(text)
  files.write(M.folder .. "/paste", text)
  M.command("load-buffer " .. M.folder .. "/paste")
  M.command "paste-buffer -p"
end

--- case(name, command, f, size): a case with a fresh terminal of 60x20 or `size` ("-x 100 -y 30");
--- `command` runs there in a shell.
function M.case(name, command, f, size)
  t.case(name, function()
    if not has_tmux then t.skip "there is no tmux" end
    sessions = sessions + 1
    socket = ("%s/socket%d"):format(M.folder, sessions)    -- the last server may still be ending
    local script = M.folder .. "/start"
    files.write(script, ("export XDG_STATE_HOME=%s/state%d TERM=screen PS1='$ '\n%s\n"):format(
      M.folder, sessions, (command:gsub("NNLUA", (t.program():gsub("%%", "%%%%"))))))
    M.command(("new-session -d %s bash --norc %s"):format(size or "-x 60 -y 20", script))
    local good, problem = pcall(f)
    t.shell(("tmux -S %s kill-server"):format(socket))
    if not good then error(problem, 0) end
  end)
end

return M
