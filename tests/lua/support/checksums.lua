-- Bits of a training, for comparisons between processes.
local files = require "nn.io.files"

local M = {}

--- of(tensor) -> the CRC-32 of its elements.
function M.of(tensor) return files.crc32(tensor:host(), tensor:bytes()) end

--- print_all(model, optim, prefix): prints the checksum of every parameter and, if an optimizer is
--- given, of its moments, a line each. prefix: the first characters of each line.
function M.print_all(model, optim, prefix)
  local function print_one(entry)
    print(("%s%s %08x"):format(prefix or "", entry.path, M.of(entry.tensor)))
  end
  for _, parameter in ipairs(model:parameters()) do print_one(parameter) end
  for _, moment in ipairs(optim and optim:state() or {}) do print_one(moment) end
end

return M
