-- Loads every small model of tests/golden and saves it as transformers does, for
-- tests/bench/load_saved.py:
--   SAVED=FOLDER nnlua tests/lua/support/save_models.lua
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small = require "small_models"

local out = assert(os.getenv "SAVED", "set SAVED to a folder")
for _, kind in ipairs {"decoders", "encoders", "encoder_decoders"} do
  local golden = ("%s/tests/golden/%s/"):format(root, kind)
  local case = small.cases(golden, t.folder())
  for _, name in ipairs(small.names(golden)) do
    case(name, "is saved", function(path)
      nn.save_hf(("%s/%s.%s"):format(out, kind, name), nn.load_hf(path), nil,
                 {shard_bytes = 20000})
    end)
  end
end
t.finish()
