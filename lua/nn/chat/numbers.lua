-- Arithmetic as Python does it: with whole numbers, which are exact or refused, and floats.
local values = require "nn.chat.values"

local M = {}

-- The quotient and the remainder of Python, with the sign of `y`.
local function divided(x, y)
  local rest = math.fmod(x, y)
  local quotient = (x - rest) / y
  if rest ~= 0 and (rest < 0) ~= (y < 0) then rest, quotient = rest + y, quotient - 1 end
  local down = math.floor(quotient)
  return quotient - down > 0.5 and down + 1 or down, rest
end

local arithmetic = {
  ["+"] = function(a, b) return a + b end, ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b) return a * b end, ["/"] = function(a, b) return a / b end,
  ["//"] = divided, ["%"] = function(a, b) return (select(2, divided(a, b))) end,
  ["**"] = function(a, b) return a ^ b end,
}

--- calculate(need, operator, a, b) -> a number of two numbers or booleans. Errors: a division by
--- zero; a power that is not real; whole numbers beyond 2^53.
function M.calculate(need, operator, a, b)
  local x, y = values.plain(a), values.plain(b)
  local divides = operator == "/" or operator == "//" or operator == "%"
  need(not divides or y ~= 0, "a division by zero")
  need(operator ~= "**" or x > 0 or y % 1 == 0 and (x ~= 0 or y >= 0), "%g ** %g", x, y)
  local has_float = values.is_real(a) or values.is_real(b)
  local is_exact = has_float or not values.is_long(a) and not values.is_long(b)
  need(is_exact, "a whole number beyond 2^53")
  local result = arithmetic[operator](x, y)
  if has_float or operator == "/" or operator == "**" and y < 0 then return values.real(result) end
  need(math.abs(result) <= 2 ^ 53, "a whole number beyond 2^53")
  return result
end

--- round(need, value, precision, method) -> the number with so many decimals (0 to 100), which is a
--- float unless `value` is whole and the method is "common". method: "common", "ceil" or "floor".
function M.round(need, value, precision, method)
  need(precision >= 0 and precision <= 100, "round needs a precision of 0 to 100")
  need(not values.is_long(value), "a whole number beyond 2^53")
  local number = values.plain(value)
  if method == "ceil" or method == "floor" then
    return values.real(math[method](number * 10 ^ precision) / 10 ^ precision)
  end
  need(method == nil or method == "common", "round needs the method common, ceil or floor")
  if not values.is_real(value) then return number end
  return values.real(tonumber(values.printed("%." .. precision .. "f", number)))
end

return M
