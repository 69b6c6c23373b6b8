-- Numbers with units, as text.
local M = {}

--- duration(seconds) -> "41s", "1:12" (minutes), "3:05:10" (hours) or "2d 04:10".
function M.duration(seconds)
  local s = math.floor(seconds + 0.5)
  if s < 60 then return s .. "s" end
  local minutes, hours = math.floor(s / 60), math.floor(s / 3600)
  if hours == 0 then return ("%d:%02d"):format(minutes, s % 60) end
  if hours < 24 then return ("%d:%02d:%02d"):format(hours, minutes % 60, s % 60) end
  return ("%dd %02d:%02d"):format(math.floor(hours / 24), hours % 24, minutes % 60)
end

--- seconds(s) -> "1.23 s", "45.6 ms", "7.89 us": three digits.
function M.seconds(s)
  if s == 0 then return "0 s" end
  local unit = s >= 1 and {1, "s"} or s >= 1e-3 and {1e-3, "ms"} or {1e-6, "us"}
  local x = s / unit[1]
  return ("%." .. (x < 9.995 and 2 or x < 99.95 and 1 or 0) .. "f %s"):format(x, unit[2])
end

--- rough_duration(seconds) -> "250 ms", "41 seconds", "12 minutes", "5.2 hours", "36 hours",
--- "3.5 days".
function M.rough_duration(seconds)
  if seconds < 1 then return M.seconds(seconds) end
  local size, name = 1, "seconds"
  for _, unit in ipairs {{60, "minutes"}, {3600, "hours"}, {86400, "days"}} do
    if seconds >= 2 * unit[1] then size, name = unit[1], unit[2] end
  end
  local x = seconds / size
  local number = (x < 9.95 and "%.1f" or "%.0f"):format(x):gsub("%.0$", "")
  return number .. " " .. (number == "1" and "second" or name)
end

--- bytes(n) -> "40 B", "1.2 kB", "812 MB", "1.4 GB".
function M.bytes(n)
  local names, i = {"B", "kB", "MB", "GB", "TB"}, 1
  while n >= 999.5 and i < #names do n, i = n / 1000, i + 1 end
  return ((i > 3 or i > 1 and n < 9.95) and "%.1f %s" or "%.0f %s"):format(n, names[i])
end

--- read_bytes("6GB") -> 6e9: a text with a unit, B, kB, MB, GB or TB, or a number of bytes. nil if
--- it is neither, or not from 1 to 2^62 bytes.
function M.read_bytes(size)
  local bytes = type(size) == "number" and size
  if type(size) == "string" then
    local number, unit = size:match "^%s*([%d.]+)%s*([BkKMGT]B?)%s*$"
    local factor = {B = 1, k = 1e3, K = 1e3, M = 1e6, G = 1e9, T = 1e12}
    bytes = unit ~= "BB" and tonumber(number) and tonumber(number) * factor[unit:sub(1, 1)]
  end
  return bytes and bytes >= 1 and bytes < 2 ^ 62 and bytes or nil
end

--- number(n) -> "812", "16.4k", "1.56M", "124M", "1.56B": three digits.
function M.number(n)
  for _, unit in ipairs {{1e9, "B"}, {1e6, "M"}, {1e3, "k"}} do
    if n >= unit[1] * 0.9995 then
      local x = n / unit[1]
      return ("%." .. (x < 9.995 and 2 or x < 99.95 and 1 or 0) .. "f%s"):format(x, unit[2])
    end
  end
  return ("%.0f"):format(n)
end

--- count(n, word) -> "1 token", "2 tokens".
function M.count(n, word) return ("%d %s%s"):format(n, word, n == 1 and "" or "s") end

return M
