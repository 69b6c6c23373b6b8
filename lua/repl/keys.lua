-- Decodes bytes from a terminal into keys: names such as "C-a", "M-b", "up", "C-left", "enter";
-- {"text", "é"} for text, {"paste", ...} for a bracketed paste.
local M = {}
local Decoder = {}
Decoder.__index = Decoder

local control = {[0] = "C-space", [8] = "backspace", [9] = "tab", [10] = "enter", [13] = "enter",
                 [27] = "escape", [28] = "C-\\", [29] = "C-]", [30] = "C-^", [31] = "C-_",
                 [127] = "backspace"}

-- The last letter of "ESC [ ... A" and "ESC O A", and the number of "ESC [ 3 ~".
local letters = {A = "up", B = "down", C = "right", D = "left", H = "home", F = "end", Z = "S-tab",
                 M = "enter", P = "f1", Q = "f2", R = "f3", S = "f4"}
local numbers = {[1] = "home", [2] = "insert", [3] = "delete", [4] = "end", [5] = "page-up",
                 [6] = "page-down", [7] = "home", [8] = "end"}
local paste_start, paste_end = "\27[200~", "\27[201~"

--- decoder() -> decoder, which keeps incomplete sequences between calls of feed.
function M.decoder() return setmetatable({pending = ""}, Decoder) end

-- xterm's modifiers: 1 + shift 1, alt 2, control 4. The editor ignores shift.
local function modified(name, modifier)
  local bits = (modifier or 1) - 1
  local alt, ctrl = math.floor(bits / 2) % 2 == 1, math.floor(bits / 4) % 2 == 1
  return (ctrl and "C-" or "") .. (alt and "M-" or "") .. name
end

-- A control sequence "ESC [ digits;digits letter": its name ("" for an unknown one) and its length;
-- nil where it is incomplete.
local function sequence(text)
  local parameters, letter = text:match "^\27[%[O]([%d;:?<>=]*)([^%d;:?<>=])"
  if not letter then return nil end
  local first, second = parameters:match "^(%d*);?(%d*)"
  local name
  if letter == "~" then name = numbers[tonumber(first)] else name = letters[letter] end
  return name and modified(name, tonumber(second)) or "", 3 + #parameters
end

local function utf8_length(byte)
  return byte >= 0xF0 and byte <= 0xF4 and 4 or byte >= 0xE0 and byte < 0xF0 and 3
    or byte >= 0xC2 and byte < 0xE0 and 2 or 1
end

-- The first key of a text, and its length; nil where it is incomplete. `all`: no more bytes come,
-- so that a lone escape is a key.
local function next_key(text, all)
  local byte = text:byte()
  if text:sub(1, #paste_start) == paste_start then
    local from, to = text:find(paste_end, 1, true)
    if from then return {"paste", text:sub(#paste_start + 1, from - 1)}, to end
    return nil
  end
  if byte == 27 then
    if #text == 1 then return all and "escape" or nil, 1 end
    if text:find "^\27[%[O]" then
      local name, length = sequence(text)
      if name then return name, length end
      if all then return #text == 2 and "M-" .. text:sub(2) or "", #text end
      return nil
    end
    local key, length = next_key(text:sub(2), all)
    if not key then return nil end
    if type(key) == "table" then return key[1] == "text" and "M-" .. key[2] or key, length + 1 end
    return "M-" .. key, length + 1
  end
  if byte < 32 or byte == 127 then return control[byte] or "C-" .. string.char(byte + 96), 1 end
  local length = utf8_length(byte)
  if #text < length and not all then return nil end
  return {"text", text:sub(1, length)}, length
end

--- decoder:feed(bytes, all) -> list of keys. Keeps what may be the beginning of a longer sequence
--- for the next call, unless `all` says that no more bytes come. A paste always waits for its end.
function Decoder:feed(bytes, all)
  self.pending = self.pending .. bytes
  local keys = {}
  while self.pending ~= "" do
    local key, length = next_key(self.pending, all)
    if not key then break end
    self.pending = self.pending:sub(length + 1)
    if key ~= "" then keys[#keys + 1] = key end
  end
  return keys
end

--- decoder:is_ambiguous() -> whether the pending bytes are a key or the beginning of a longer one.
function Decoder:is_ambiguous()
  return self.pending ~= "" and self.pending:sub(1, #paste_start) ~= paste_start
end

return M
