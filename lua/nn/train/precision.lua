-- The dtype of a training: model.dtype=auto becomes bf16 where its products are faster.
local ffi = require "ffi"
local config = require "nn.io.config"
local engine = require "nn.base.engine"
local first = require "nn.io.first"
local lib = require "nn.base.capi"
local profile = require "nn.measure.profile"

local M = {}
local MUCH = 1.25        -- bf16 is chosen if its products are this much faster than f32's

--- field() -> the setting model.dtype, for the schema of a recipe.
function M.field()
  return config.field("f32", "dtype of weights and activations; with bf16, masters, moments and "
                      .. "sums stay f32; auto: bf16 where this machine computes it faster",
                      {choices = {"auto", "f32", "bf16"}})
end

--- faster(f32, bf16, gpus) -> "bf16" or "f32", and the reason. f32, bf16: GFLOP/s of products of
--- one core, or of all GPUs if gpus is above 0; 0 if not measured.
function M.faster(f32, bf16, gpus)
  if gpus > 0 then
    return bf16 > MUCH * f32 and "bf16" or "f32",
      ("the GPU%s multipl%s bf16 at %.0f TFLOP/s, f32 at %.0f"):format(
        gpus > 1 and "s" or "", gpus > 1 and "y" or "ies", bf16 / 1e3, f32 / 1e3)
  end
  if f32 == 0 then return "f32", "NNLUA_PRODUCTS or NNLUA_ISA replaces the measured products" end
  if bf16 == 0 then return "f32", "this processor has no AVX-512 BF16" end
  return bf16 > MUCH * f32 and "bf16" or "f32",
    ("a core multiplies bf16 at %.0f GFLOP/s, f32 at %.0f"):format(bf16, f32)
end

--- choose(cfg, run): replaces cfg.model.dtype "auto" by the dtype of the checkpoint that is
--- resumed, else by the faster one, and reports it with the reason.
function M.choose(cfg, run)
  if cfg.model.dtype ~= "auto" then return end
  local saved = run.checkpoint and run.checkpoint.state.config
  local dtype, reason = saved and saved.model.dtype, "the resumed checkpoint uses it"
  if not dtype then
    local fastest = first.on_first("the faster dtype", function()
      local machine, _, gpus = engine.machine(), engine.workers()
      if machine.described and machine.gpus > 0 then
        return {"bf16", "the described machine has GPUs"}
      end
      if gpus > 0 then
        return {M.faster(profile.product_gflops(2048, "f32"), profile.product_gflops(2048, "bf16"),
                         gpus)}
      end
      local f32, bf16 = ffi.new "double[1]", ffi.new "double[1]"
      lib.check(lib.C.nn_core_rates(f32, bf16))
      return {M.faster(f32[0], bf16[0], 0)}
    end)
    dtype, reason = fastest[1], fastest[2]
  end
  cfg.model.dtype = dtype
  run:say(("model.dtype=auto: %s, since %s"):format(dtype, reason))
end

return M
