-- Weights of 8 bits for inference: each row of a matrix is rounded to multiples of its own scale.
-- Generating a token reads a quarter of the bytes of f32.
local arguments = require "nn.base.arguments"
local layer_path = require "nn.core.layer_path"
local layers = require "nn.core.layers"
local lib = require "nn.base.capi"
local module = require "nn.core.module"
local ops = require "nn.core.op"
local sorted_keys = require("nn.base.tables").sorted_keys
local tape = require "nn.core.tape"
local tensor = require "nn.core.tensor"

local M = {}
local QuantizedLinear = module.module "QuantizedLinear"

-- from: a Linear, or {weight=} alone. bytes (outputs, inputs) u8 and scale (outputs) replace the
-- weight.
function QuantizedLinear:init(from)
  self.bytes, self.scale = ops.call("quantize", from.weight)
  self.bias, self.gelu, self.glu = from.bias, from.gelu, from.glu
end
function QuantizedLinear:forward(x)
  return (ops.call("quantized_linear", x, self.bytes, self.scale, {
    bias = self.bias, gelu = self.gelu, glu = self.glu,
  }))
end

-- Replaces the Linear layers in the fields of a module or list, and in those of its fields.
local function replace(value, seen)
  seen[value] = true
  for _, key in ipairs(sorted_keys(value)) do
    local field = value[key]
    if type(field) == "table" and not seen[field] and not tensor.is_tensor(field) then
      if getmetatable(field) == layers.Linear then
        value[key] = QuantizedLinear(field)
        field.weight:release()
      elseif module.is_module(field) or getmetatable(field) == nil then
        replace(field, seen)
      end
    end
  end
end

--- nn.quantize_weights(model) -> model. The weights of its Linear layers, and the head, are rounded
--- to 8 bits with a scale per row (see nn.quantize); embeddings, norms and biases stay as they are.
--- The model computes, evaluates and generates; it cannot be trained or saved. Error: a model that
--- is quantized already.
---     nn.save_hf("a-model", model)
---     local small = nn.quantize_weights(nn.load_model "a-model")
---     nn.no_grad(small, nn.tensor({{1, 2}}, {dtype = "i32"})):dims()  --> 1, 2, 256
function M.quantize_weights(model)
  arguments.need(module.is_module(model), "quantize_weights", "the model", model,
                 "a module is needed")
  if model.quantized then lib.misuse "quantize_weights: the model is quantized already" end
  tape.no_grad(function()
    replace(model, {})
    if model.next and not model.head then model.head = QuantizedLinear(model.tok) end  -- tied
  end)
  model.quantized = true
  return model
end

--- tensors(model) -> the list of tensors in QuantizedLinear layers, which are no parameters.
function M.tensors(model)
  local out = {}
  for layer in pairs(layer_path.paths(model)) do
    if getmetatable(layer) == QuantizedLinear then
      out[#out + 1], out[#out + 2] = layer.bytes, layer.scale
    end
  end
  return out
end

return M
