-- Python's formatting with %: "%s of %d" % (a, b).
local checks = require "nn.chat.checks"
local values = require "nn.chat.values"
local writing = require "nn.chat.writing"

local shown, whole = writing.shown, checks.whole

local function real(need, value, who)
  need(values.kind(value) == "number", "%s needs a number", who)
  return values.plain(value)
end

-- The text of a value, by the letter of its format, and the format of Lua that pads it.
local function formatted(need, flags, letter, value)
  if letter == "s" or letter == "r" then
    need(not flags:find "[^-%d]", "the format %%%s%s is not supported", flags, letter)
    local text = letter == "s" and shown(need, value) or writing.repr(need, value)
    local width = tonumber(flags:match "%d+")
    if not width then return text end
    local blank = (" "):rep(width - #values.characters(text))
    return flags:find "^-" and text .. blank or blank .. text
  end
  local number = letter:find "[eEfFgG]" and real(need, value, "%" .. letter)
    or values.kind(value) == "number" and values.is_real(value) and letter:find "[di]"
    and math.floor(math.abs(values.plain(value))) * (values.plain(value) < 0 and -1 or 1)
    or whole(need, value, "%" .. letter)
  if letter:find "[eEfFgG]" then return values.printed("%" .. flags .. letter, number) end
  need(math.abs(number) < 2 ^ 53, "%%%s of a number beyond 2^53", letter)
  if letter:find "[xXo]" and number < 0 then
    need(flags == "", "the format %%%s%s of a negative number is not supported", flags, letter)
    return "-" .. ("%" .. letter):format(-number)
  end
  return ("%" .. flags .. letter):format(number)
end

--- printf(need, text, value) -> the text with a value, or with those of a tuple.
return function(need, text, value)
  local list, at, size = values.is_tuple(value) and value or {value}, 0, #text
  text = text:gsub("%%([-+ #0]*%d?%d?%.?%d?%d?)(.?)", function(flags, letter)
    if letter == "%" then return "%" end
    need(letter:find "^[sdifeEgGxXor]$", "the format %%%s%s is not supported", flags, letter)
    at = at + 1
    need(list[at] ~= nil, "'%%' has too few values")
    local part = formatted(need, flags, letter, list[at])
    size = size + #part
    checks.size(need, size)
    return part
  end)
  need(at == #list, "'%%' has too many values")
  return text
end
