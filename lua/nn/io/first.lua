-- Values that rank 0 alone reads from files or measures, for all ranks. Their hosts need not share
-- the files, and each would measure something else.
local cluster = require "nn.base.cluster"
local files = require "nn.io.files"

local M = {}

--- on_first(what, f) -> the result of f(), which rank 0 alone calls: a number, a text, a table that
--- JSON can hold, or nil. Every rank calls it at the same point of the script; `what` names that
--- point, for errors. With one rank, it is f().
function M.on_first(what, f)
  if not cluster.several() then return f() end
  local mine = cluster.is_first() and files.json {value = f()} or ""
  return files.parse_json(cluster.gather(what, mine)[1]).value
end

return M
