-- Operators of tensors, and elementwise functions and reductions that are compositions of ops.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local scalar = require "nn.core.scalar"
local tensor = require "nn.core.tensor"
local is_tensor, Tensor, Scalar = tensor.is_tensor, tensor.Tensor, scalar.Scalar

-- Operators. `*` is always elementwise; comparisons are methods, since Lua converts the results of
-- < and == to booleans. #x is 0, since LuaJIT ignores __len of tables; x:dim(1) is the size.
local function kind_of(a)
  return is_tensor(a) and "tensor" or scalar.is_scalar(a) and "scalar" or type(a)
end
local combines = arguments.names "tensor scalar number"
-- sign: nil if it cannot combine two scalars.
local function operator(event, name, sign)
  local function apply(a, b)
    if not combines[kind_of(a)] or not combines[kind_of(b)] then
      lib.misuse("%s: cannot combine a %s and a %s", name, kind_of(a), kind_of(b))
    end
    if is_tensor(a) or is_tensor(b) then return ops.call(name, a, b) end
    if not sign then lib.misuse("%s: scalars have + - * / and ^", name) end
    return scalar.computed(sign, a, b)
  end
  Tensor[event], Scalar[event] = apply, apply
end
operator("__add", "add", "+")
operator("__sub", "sub", "-")
operator("__mul", "mul", "*")
operator("__div", "div", "/")
operator("__pow", "pow", "^")
operator("__mod", "remainder")
Tensor.__unm = function(a) return ops.call("neg", a) end
Scalar.__unm = function(a) return scalar.computed("*", a, -1) end
-- Lua calls these for two different tensors, or two scalars, only.
local function compare(event, sign, name)
  Tensor[event] = function()
    lib.misuse("%s cannot compare two tensors; a:%s(b) gives a tensor of booleans", sign, name)
  end
  Scalar[event] = function()
    lib.misuse("%s cannot compare two scalars; compare their numbers, s:get()", sign)
  end
end
compare("__lt", "< or >", "lt")
compare("__le", "<= or >=", "le")
compare("__eq", "==", "eq")
Tensor.__concat = function(a, b) return tostring(a) .. tostring(b) end

--- x:masked_fill(mask, value): value where the mask is true, x elsewhere. The mask broadcasts.
---     x:masked_fill(x:gt(4), 0)  --> {{1, 2, 3}, {4, 0, 0}}
function Tensor:masked_fill(mask, value)
  arguments.need(is_tensor(mask), "masked_fill", "the mask", mask, "a tensor is needed")
  return mask:where(value, self)
end
-- What x:std(2, {correction = 0}) or x:std{axis = 2, correction = 0} reduces, as the options of
-- x:sum; and all options.
local function reduction(who, axis, options, known)
  if type(axis) == "table" and options == nil and axis[1] == nil then
    axis, options = axis.axis, axis
  end
  options = arguments.options(who, options, known)
  return {axis = axis, keepdim = options.keepdim or false}, options
end

--- x:clamp(min, max) -> y: x, but at least min and at most max: numbers or tensors, of which one
--- may be nil; also x:clamp{min = 0}. The gradient is 0 where x is outside.
---     x:clamp(2, 4)  --> {{2, 2, 3}, {4, 4, 4}}
function Tensor:clamp(min, max)
  if type(min) == "table" and not combines[kind_of(min)] then
    local options = arguments.options("clamp", min, {min = true, max = true})
    min, max = options.min, options.max
  end
  arguments.need(min ~= nil or max ~= nil, "clamp", "min", min, "give min, max or both")
  local y = min ~= nil and ops.call("clamp_min", self, min) or self
  return max ~= nil and ops.call("clamp_max", y, max) or y
end

-- Ops whose second operand has a default.
for name, value in pairs {leaky_relu = 0.01, elu = 1} do
  Tensor[name] = function(x, second)
    return ops.call(name, x, second == nil and value or second)
  end
end
--- x:selu() -> y: 1.0507 times x:elu(1.6733) (Klambauer et al. 2017).
---     nn.tensor{-1, 2}:selu()  --> {-1.1113, 2.1014}
function Tensor:selu() return self:elu(1.6732632423543772) * 1.0507009873554805 end
--- x:celu(alpha=1) -> y: x where x > 0, else alpha (e^(x / alpha) - 1).
---     nn.tensor{-1, 2}:celu(2)  --> {-0.7869, 2}
function Tensor:celu(alpha)
  alpha = alpha or 1
  return (self / alpha):elu() * alpha
end
--- x:logsigmoid() -> y: log(sigmoid(x)), without overflow.
---     nn.tensor{0, -100}:logsigmoid()  --> {-0.6931, -100}
function Tensor:logsigmoid() return -(-self):softplus() end
--- x:softsign() -> y: x / (1 + |x|).
---     nn.tensor{-1, 3}:softsign()  --> {-0.5, 0.75}
function Tensor:softsign() return self / (self:abs() + 1) end
--- x:hardsigmoid() -> y: x / 6 + 1/2, between 0 and 1.
---     nn.tensor{-5, 0, 1.5}:hardsigmoid()  --> {0, 0.5, 0.75}
function Tensor:hardsigmoid() return (self / 6 + 0.5):clamp(0, 1) end
--- x:hardswish() -> y: x x:hardsigmoid().
---     nn.tensor{-5, 0, 1.5}:hardswish()  --> {0, 0, 1.125}
function Tensor:hardswish() return self * self:hardsigmoid() end
--- x:frac() -> y: x - x:trunc(), the part after the point.
---     nn.tensor{-1.25, 2.5}:frac()  --> {-0.25, 0.5}
function Tensor:frac() return self - self:trunc() end

--- x:lerp(y, weight) -> x + weight (y - x); weight is a number or a tensor.
---     nn.zeros(2):lerp(nn.ones(2), 0.25)  --> {0.25, 0.25}
function Tensor:lerp(y, weight) return self + (y - self) * weight end
--- x:addcmul(a, b, value=1) -> x + value a b.
---     nn.ones(2):addcmul(nn.tensor{1, 2}, nn.tensor{3, 4}, 2)  --> {7, 17}
function Tensor:addcmul(a, b, value)
  return self + ops.call("mul", a, b) * (value or 1)
end
--- x:addcdiv(a, b, value=1) -> x + value a / b.
---     nn.ones(2):addcdiv(nn.tensor{1, 2}, nn.tensor{2, 8}, 2)  --> {2, 1.5}
function Tensor:addcdiv(a, b, value)
  return self + ops.call("div", a, b) * (value or 1)
end

--- x:nan_to_num(nan=0, posinf, neginf) -> y: x with numbers for NaN and the infinities; by default
--- the largest and the smallest number of x's dtype for the infinities.
---     nn.tensor{0/0, 1/0, 2}:nan_to_num(0, 9)  --> {0, 9, 2}
function Tensor:nan_to_num(nan, posinf, neginf)
  local largest = {f32 = 3.4028234663852886e38, f64 = 1.7976931348623157e308,
                   bf16 = 3.3895313892515355e38}
  local limit = largest[self.dtype]
  if not limit then return self end
  local y = self:isnan():where(nan or 0, self)
  y = y:eq(math.huge):where(posinf or limit, y)
  return y:eq(-math.huge):where(neginf or -limit, y)
end

local axis_options = arguments.names "axis keepdim"

--- x:any(axis, {keepdim=false}) -> bool: whether an element is not 0, over an axis, a list of axes,
--- or all.
---     x:gt(3):any(2)  --> {false, true}
function Tensor:any(axis, options)
  return self:ne(0):max((reduction("any", axis, options, axis_options)))
end
--- x:all(axis, {keepdim=false}) -> bool: whether no element is 0, over an axis, a list of axes, or
--- all.
---     x:gt(3):all(2)  --> {false, true}
function Tensor:all(axis, options)
  return self:ne(0):min((reduction("all", axis, options, axis_options)))
end
--- x:count_nonzero(axis) -> the number of elements that are not 0, as i64, over an axis, a list of
--- axes, or all.
---     x:gt(3):count_nonzero(2)  --> {0, 3}
function Tensor:count_nonzero(axis)
  return self:ne(0):sum((reduction("count_nonzero", axis, nil, axis_options)))
end

local variance_options = arguments.names "axis keepdim correction"

local function variance(who, x, axis, options)
  local over
  over, options = reduction(who, axis, options, variance_options)
  local correction = arguments.number(who, options, "correction", 1, -math.huge)
  local mean = x:mean {axis = over.axis, keepdim = true}
  local n = x:count() / mean:count()
  return (x - mean):square():sum(over) / math.max(0, n - correction)
end

--- x:var(axis, {correction=1, keepdim=false}) -> variance over an axis, a list of axes, or all: the
--- sum of (x - mean)^2 over n - correction for n elements; also x:var{axis = 2, correction = 0}.
---     x:var(2)  --> {1, 1}
function Tensor:var(axis, options) return variance("var", self, axis, options) end

-- x^(1/p) for x >= 0, with gradient 0 instead of infinity at 0.
local function root(x, p)
  local zero = x:eq(0)
  local positive = zero:where(1, x)
  return zero:where(0, p == 2 and positive:sqrt() or positive ^ (1 / p))
end

--- x:std(axis, {correction=1, keepdim=false}) -> standard deviation: the square root of x:var.
---     x:std{axis = 2, correction = 0}  --> {0.8165, 0.8165}
function Tensor:std(axis, options) return root(variance("std", self, axis, options), 2) end

--- x:norm(p=2, axis, {keepdim=false}) -> the p-norm over an axis, a list of axes, or all: the p-th
--- root of the sum of |x|^p. p may be math.huge (the largest |x|), -math.huge (the smallest) or 0
--- (the number of elements that are not 0). The gradient at 0 is 0.
---     nn.tensor{{3, 4}, {6, 8}}:norm(2, 2)  --> {5, 10}
function Tensor:norm(p, axis, options)
  local over = reduction("norm", axis, options, axis_options)
  p = p or 2
  arguments.need(type(p) == "number", "norm", "p", p, "a number is needed")
  if p == 2 then return root(self:square():sum(over), 2) end
  local size = self:abs()
  if p == math.huge then return size:max(over) end
  if p == -math.huge then return size:min(over) end
  if p == 0 then return self:ne(0):sum(over):to(self.dtype) end
  if p == 1 then return size:sum(over) end
  return root((size ^ p):sum(over), p)
end

--- x:allclose(y, {rtol=1e-5, atol=1e-8}) -> whether |x - y| <= atol + rtol |y| everywhere: true or
--- false. Waits for the values.
---     x:allclose(x + 1e-7)  --> true
function Tensor:allclose(y, options)
  options = arguments.options("allclose", options, {rtol = true, atol = true})
  tensor.need("allclose", "y", y)
  local bound = y:abs() * (options.rtol or 1e-5) + (options.atol or 1e-8)
  return self:eq(y):logical_or((self - y):abs():le(bound)):all():item()
end

return tensor.functions
