-- Padding in the texts of encoders and of T5, at any place, against transformers
-- (tests/golden/make_masks.py): the logits of seen tokens to 1e-5.
local eval_mode = require("nn.models.evaluate").eval_mode
local files = require "nn.io.files"
local json = require "nn.io.json"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small, some_logits = require "small_models", require "some_logits"
local golden, folder = json.read(root .. "/tests/golden/masks.json"), t.folder()
local i32 = {dtype = "i32"}

-- 1 for rows with a seen token.
local function rows_seen(mask) return (mask:to "f32"):max(2) end

-- The logits of a case, 0 where nothing is seen; those of a row of padding must be finite.
local function logits_of(model, case)
  local ids, mask = nn.tensor(case.ids, i32), nn.tensor(case.mask, i32)
  local options = {mask = mask}
  local writes = model.kind == "encoder_decoder"
  if writes then options.inputs = ids:slice(2, 1, 5):clone() end
  local logits = eval_mode(model, ids, nil, options)
  for _, x in ipairs(logits:reshape(logits:count()):table()) do
    t.check(x == x and math.abs(x) < 1e6, "a logit is not finite")
  end
  if writes then return logits * rows_seen(mask):reshape(2, 1, 1) end
  if #logits.shape == 2 then return logits * rows_seen(mask):reshape(2, 1) end
  return logits * mask:to "f32":unsqueeze(3)
end

for name, model in pairs(golden) do
  local path, tensors = folder .. "/" .. name:gsub("%W", "_"), {}
  for _, entry in ipairs(model.shapes) do
    tensors[entry[1]] = small.weight_of(entry[1], entry[2])
  end
  small.write_folder(path, files.json(model.config, ""), tensors)
  for _, case in ipairs(model.cases) do
    t.case(("%s: padding %s gives the logits of transformers to 1e-5"):format(name, case.padding),
           function()
      local d = some_logits.distance(logits_of(nn.load_hf(path), case), case.values)
      t.check(d <= 1e-5, ("logits are off by %.2g"):format(d))
    end)
  end
end

t.finish()
