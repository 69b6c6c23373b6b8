-- The table `nn`, the library of scripts. Ops come from the engine's registry, other names from the
-- files below; a file is loaded at the first use of one of its names.

local hints = require "nn.base.hints"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local suggest = require "nn.base.suggest"
local tensor = require "nn.core.tensor"
require "nn.core.methods"    -- these add methods to tensors
require "nn.core.shapes"
require "nn.core.matrices"
require "nn.core.losses"
require "nn.core.indexing"
require "nn.core.module_methods"
require "nn.core.show"
require "nn.core.tape"
require "nn.core.selection_rules"
require "nn.core.task"
require "nn.core.iterate"    -- changes ipairs and pairs

local nn, home = {}, {}      -- home: the module of each name
for name, f in pairs(ops.functions) do nn[name], home[name] = f, "nn.core.op" end
for file, names in pairs {
  ["base.arguments"] = "options", ["base.capi"] = "fail", ["base.cluster"] = "cluster ranks",
  ["base.budget"] = "activations memory measure_disk memory_budget memory_tiers reset_peak",
  ["base.engine"] = "seed random_state set_random_state devices workers machine"
    .. " run_tasks_on checks matmul_precision attention_backend gradient_dtype tiles sync"
    .. " interrupted clear_interrupt defer_interrupts version is_tty now",
  ["core.accumulate"] = "accumulate", ["core.compile"] = "compile plan",
  ["core.creation"] = "zeros ones rand randn arange zeros_like ones_like tensor from_host linspace"
    .. " rand_like randn_like randint randperm bernoulli one_hot",
  ["core.einsum"] = "einsum tensordot",
  ["core.indexing"] = "index_select masked_select multinomial nonzero",
  ["core.layers"] = "training Linear LayerNorm RMSNorm Embedding Dropout Sequential",
  ["core.losses"] = "cross_entropy mse mse_loss l1_loss huber_loss smooth_l1_loss"
    .. " binary_cross_entropy binary_cross_entropy_with_logits kl_div nll_loss normalize"
    .. " cosine_similarity cosine_embedding_loss triplet_margin_loss",
  ["core.matrices"] = "eye tril triu diag outer cdist",
  ["core.methods"] = "masked_fill clamp leaky_relu elu selu celu logsigmoid softsign hardsigmoid"
    .. " hardswish frac lerp addcmul addcdiv nan_to_num any all count_nonzero var std norm"
    .. " allclose",
  ["core.shapes"] = "transpose t unsqueeze squeeze flatten movedim split chunk select unbind flip"
    .. " roll tile repeat_interleave pad stack meshgrid",
  ["core.module"] = "module is_module parameter buffer list",
  ["core.conv"] = "conv1d max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool2d Conv1d"
    .. " Conv2d MaxPool1d MaxPool2d AvgPool1d AvgPool2d AdaptiveAvgPool2d Flatten Identity",
  ["core.norms"] = "BatchNorm1d BatchNorm2d GroupNorm InstanceNorm2d",
  ["core.recurrent"] = "RNN LSTM GRU RNNCell LSTMCell GRUCell",
  ["core.initializers"] = "xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_",
  ["core.optim"] = "AdamW Adam SGD RMSprop Adagrad Lion", ["core.scalar"] = "scalar",
  ["core.gradients"] = "grad clip_grad_norm_ clip_grad_value_",
  ["core.custom"] = "custom", ["core.tape"] = "no_grad grad_enabled gradient_rule",
  ["core.task"] = "task kernels ops", ["core.tensor"] = "is_tensor Tensor scope",
  ["data.images"] = "read_image",
  ["data.loader"] = "data data_fields",
  ["data.masking"] = "mask_tokens",
  ["data.spans"] = "corrupt_spans",
  ["io.config"] = "config field", ["io.ordered"] = "from_json",
  ["io.safetensors"] = "load_safetensors save_safetensors",
  ["measure.profile"] = "profile trace product_gflops",
  ["models.checkpoint"] = "open_checkpoint save_checkpoint",
  ["models.cached"] = "attend",
  ["models.decoder"] = "decoder",
  ["models.fill"] = "fill",
  ["models.encoder"] = "encoder", ["models.encoder_decoder"] = "encoder_decoder",
  ["models.evaluate"] = "evaluate",
  ["models.generate"] = "generate", ["models.hugging_face"] = "load_hf save_hf",
  ["models.load"] = "load_model", ["models.quantize"] = "quantize_weights",
  ["plan.gpu_budget"] = "gpu_budget", ["plot.curves"] = "plot",
  ["plot.histogram"] = "histogram", ["plot.image"] = "save_image",
  ["plan.step"] = "plan_step",
  ["text.bpe_train"] = "train_tokenizer", ["text.tokenizer"] = "tokenizer",
  ["text.vocabulary"] = "vocabulary", ["train.memory"] = "memory_fields use_memory",
  ["train.language"] = "language_fields", ["train.run"] = "run",
  ["train.lr_schedulers"] = "StepLR MultiStepLR ConstantLR LinearLR ExponentialLR PolynomialLR"
    .. " CosineAnnealingLR CosineAnnealingWarmRestarts OneCycleLR LambdaLR SequentialLR"
    .. " ReduceLROnPlateau",
  ["train.schedule"] = "schedule schedules", ["train.settings"] = "run_fields",
} do
  -- Of an op and a library function of the same name, nn has the function.
  for name in names:gmatch "%S+" do
    assert(not home[name] or home[name] == "nn.core.op", name .. " is in two files")
    nn[name], home[name] = nil, "nn." .. file
  end
end

return setmetatable(nn, {
  names = function() return home end,      -- for completion at the prompt
  __index = function(_, name)
    if not home[name] then
      lib.misuse("nn has no '%s'%s", tostring(name),
                 hints.equivalent("library", name)
                 or tensor.Tensor[name] and ("; use x:%s(...)"):format(name)
                 or suggest.suggestion(name, home))
    end
    nn[name] = require(home[name])[name]
    return nn[name]
  end,
  __tostring = function() return "the library nn, " .. nn.version():match "^[^\n]*" end,
})
