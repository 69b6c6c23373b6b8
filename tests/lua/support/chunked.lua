--- For tests of files that are read in chunks.
local chunks = require "nn.data.chunks"
local files = require "nn.io.files"
local M = {}

--- folder(path) -> path_of(name) -> path, write(name, text) -> path
function M.folder(path)
  local function path_of(name) return files.join(path, name) end
  local function write(name, text)
    local file = assert(io.open(path_of(name), "wb"))
    file:write(text)
    file:close()
    return path_of(name)
  end
  return path_of, write
end

--- with_chunks(size, f): runs f with chunks of so many bytes.
function M.with_chunks(size, f)
  local before = chunks.SIZE
  chunks.SIZE = size
  local good, problem = pcall(f)
  chunks.SIZE = before
  if not good then error(problem, 0) end
end

return M
