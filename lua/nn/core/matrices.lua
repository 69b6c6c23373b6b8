-- Matrices: triangles, diagonals, outer products and products of any axes.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local tensor = require "nn.core.tensor"
require "nn.core.shapes"
local is_tensor, Tensor = tensor.is_tensor, tensor.Tensor

local M = setmetatable({}, {__index = tensor.functions})

local function need_matrix(who, x)
  tensor.need(who, "x", x)
  if #x.shape < 2 then
    lib.misuse("%s: x is %s; at least two axes are needed", who, tensor.shape_text(x.shape))
  end
end

-- (rows, columns): column - row, as i32.
local function offsets(rows, columns)
  local row = ops.call("arange", rows, {dtype = "i32"})
  return ops.call("arange", columns, {dtype = "i32"}) - row:unsqueeze(2)
end

--- nn.eye(n, columns=n, {dtype="f32"}) -> a matrix with ones on the diagonal.
---     nn.eye(2, 3)  --> {{1, 0, 0}, {0, 1, 0}}
function M.eye(n, columns, options)
  if type(columns) == "table" then columns, options = nil, columns end
  options = arguments.options("eye", options, {dtype = true})
  arguments.whole("eye", "the number of rows", n)
  columns = arguments.whole("eye", "the number of columns", columns or n)
  return offsets(n, columns):eq(0):to(options.dtype or "f32")
end

local function triangle(who, keeps)
  return function(x, diagonal)
    need_matrix(who, x)
    diagonal = arguments.whole(who, "the diagonal", diagonal or 0, -2 ^ 31)
    return ops.call(keeps, offsets(x:dim(-2), x:dim(-1)), diagonal):where(x, 0)
  end
end
--- x:tril(diagonal=0) -> x with 0 above a diagonal of its last two axes; positive ones are above
--- the main diagonal.
---     nn.ones(2, 3):tril()  --> {{1, 0, 0}, {1, 1, 0}}
Tensor.tril = triangle("tril", "le")
--- x:triu(diagonal=0) -> x with 0 below a diagonal of its last two axes; see x:tril.
---     nn.ones(2, 3):triu(1)  --> {{0, 1, 1}, {0, 0, 1}}
Tensor.triu = triangle("triu", "ge")

--- The main diagonal of the last two axes, which have equal sizes.
function M.last_diagonal(x)
  local n = x:dim(-1)
  return offsets(n, n):eq(0):where(x, 0):sum {axis = -1}:to(x.dtype)
end

--- x:diag(diagonal=0) -> the diagonal of a matrix, or a matrix with the vector x on its diagonal
--- and 0 elsewhere. Positive diagonals are above the main one.
---     nn.tensor{{1, 2}, {3, 4}}:diag()  --> {1, 4}
---     nn.tensor{1, 2}:diag()  --> {{1, 0}, {0, 2}}
function Tensor:diag(diagonal)
  local k = arguments.whole("diag", "the diagonal", diagonal or 0, -2 ^ 31)
  if #self.shape == 1 then
    local n = self:dim(1) + math.abs(k)
    local row = self:pad {math.max(0, k), math.max(0, -k)}
    return offsets(n, n):eq(k):where(row, 0)
  end
  if #self.shape ~= 2 then
    lib.misuse("diag: x is %s; one or two axes are needed", tensor.shape_text(self.shape))
  end
  local top, left = math.max(0, -k), math.max(0, k)
  local n = math.min(self:dim(1) - top, self:dim(2) - left)
  if n < 1 then
    lib.misuse("diag: %s has no diagonal %d", tensor.shape_text(self.shape), k)
  end
  return M.last_diagonal(self:slice(1, top + 1, top + n):slice(2, left + 1, left + n))
end
--- x:trace() -> the sum of the diagonal of a matrix.
---     nn.tensor{{1, 2}, {3, 4}}:trace()  --> 5
function Tensor:trace()
  if #self.shape ~= 2 then
    lib.misuse("trace: x is %s; two axes are needed", tensor.shape_text(self.shape))
  end
  return self:diag():sum()
end
--- x:outer(y) -> the matrix of products x[i] y[j] of two vectors.
---     nn.tensor{1, 2}:outer(nn.tensor{3, 4})  --> {{3, 4}, {6, 8}}
function Tensor:outer(y)
  if #self.shape ~= 1 or not is_tensor(y) or #y.shape ~= 1 then
    lib.misuse("outer: takes two vectors; the first is %s", tensor.shape_text(self.shape))
  end
  return self:unsqueeze(2) * y
end
--- nn.cdist(x, y, p=2) -> (..., n, m): the p-norms of all differences of rows of x (..., n, size)
--- and y (..., m, size).
---     nn.cdist(nn.tensor{{0, 0}, {3, 0}}, nn.tensor{{3, 4}})  --> {{5}, {4}}
function M.cdist(x, y, p)
  need_matrix("cdist", x)
  need_matrix("cdist", y)
  return (x:unsqueeze(-2) - y:unsqueeze(-3)):norm(p, -1)
end

return M
