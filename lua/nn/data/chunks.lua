-- Reads a file in chunks of some megabytes, decompressed, so that memory does not grow with it. It
-- refuses what is no text, and drops a byte order mark.
local ffi = require "ffi"
local lib = require "nn.base.capi"
local signatures = require "nn.io.signatures"
local stream = require "nn.io.stream"

ffi.cdef "void *memmove(void *to, const void *from, size_t size);"

-- SIZE: bytes that are read at a time. LONGEST: bytes of a record, or of text without white space.
local M = {SIZE = 2 ^ 22, LONGEST = 2 ^ 28}

--- refuse(bad, format, ...): calls bad(message); without `bad`, raises the message as an error.
function M.refuse(bad, format, ...)
  local message = format:format(...)
  if not bad then lib.deny("%s", message) end
  bad(message)
end

--- attempt(bad, f, ...) -> f(...); with `bad`, calls it with the message of an error about a file,
--- and returns nil.
function M.attempt(bad, f, ...)
  if not bad then return f(...) end
  local good, result = lib.protected(f, ...)
  if good then return result end
  if not lib.is_error(result) or result.trace then error(result, 0) end
  bad(result.message)
end

-- Twice the room, up to LONGEST; nil and an error beyond.
local function larger(path, buffer, room, filled, unit, bad)
  if room >= M.LONGEST then
    return M.refuse(bad, "'%s': a %s of more than %.0f bytes; is it a text?", path, unit or "line",
                    room)
  end
  local new = ffi.new("uint8_t[?]", 2 * room)
  ffi.copy(new, buffer, filled)
  return new
end

local spare      -- the buffer of the previous file, for reuse

-- Fills the buffer -> the bytes in it, whether the stream has ended.
local function fill(input, buffer, filled, room, bad)
  while filled < room do
    local count = M.attempt(bad, input.read, input, buffer + filled, room - filled) or 0
    if count == 0 then return filled, true end
    filled = filled + count
  end
  return filled, false
end

--- each(path, reader, moved, bad): calls reader.take(p, size) for consecutive chunks of a file,
--- which end at the positions that reader.cut(p, size) returns, nil: none yet; the last one ends
--- with the file. moved(bytes): bytes of the file read so far. reader.unit: what is not cut, for
--- errors. bad: see texts.lua. Errors: a missing file, one that is no text in UTF-8, damage.
function M.each(path, reader, moved, bad)
  local room = M.SIZE
  local buffer = spare and spare.room == room and spare.buffer or ffi.new("uint8_t[?]", room)
  spare = nil
  local input = M.attempt(bad, stream.open, path)
  if not input then return end
  local filled, ended = fill(input, buffer, 0, room, bad)
  if not M.attempt(bad, signatures.need_text, path, buffer, filled) then return input:close() end
  local from = signatures.mark_size(buffer, filled)
  while true do
    lib.check_interrupt()
    moved(input:position())
    local stop = ended and filled or reader.cut(buffer + from, filled - from)
    if stop and not ended then stop = stop + from end
    if stop then
      if stop > from then reader.take(buffer + from, stop - from) end
      ffi.C.memmove(buffer, buffer + stop, filled - stop)
      filled, from = filled - stop, 0
    else
      buffer = larger(path, buffer, room, filled, reader.unit, bad)
      if not buffer then break end
      room = 2 * room
    end
    if ended then break end
    filled, ended = fill(input, buffer, filled, room, bad)
  end
  input:close()
  if room == M.SIZE then spare = {buffer = buffer, room = room} end
end

return M
