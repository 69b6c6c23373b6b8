-- Kinds of tensors: plans and profiles report bytes by kind.
local lib = require "nn.base.capi"

local M = {names = {"other", "weights", "gradients", "optimizer", "activations", "cache"}}
local numbers = {}
for i, name in ipairs(M.names) do numbers[name] = i - 1 end

--- set(tensor, name): the kind of a tensor: "weights", "gradients", "optimizer", "activations",
--- "cache" (of keys and values) or "other".
function M.set(x, name) lib.check(lib.C.nn_tensor_kind(x.ref, numbers[name])) end

return M
