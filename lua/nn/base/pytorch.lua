-- Names of PyTorch that nnlua does not have, and what to write instead.

local M = {}

local no_devices = "not needed: there are no devices"

--- tensor: methods and fields of tensors.
M.tensor = {
  size = "x:dims(), or x:dim(axis)", ndim = "#x.shape", nelement = "x:count()", T = "x:t()",
  mT = "x:t()", cpu = no_devices, cuda = no_devices, device = no_devices, is_cuda = no_devices,
  numpy = "x:table(), or x:host()", tolist = "x:table()", data = "x:detach()", float = 'x:to "f32"',
  double = 'x:to "f64"', half = 'x:to "bf16"', bfloat16 = 'x:to "bf16"', int = 'x:to "i32"',
  long = 'x:to "i64"', bool = 'x:to "bool"', type = "x.dtype, or x:to(dtype)",
  type_as = "x:to(y.dtype)", zero_ = "x:fill_(0)", requires_grad_ = "x.requires_grad = true",
  contiguous = "not needed: every tensor is",
  register_hook = "nn.custom, for a gradient of your own",
  retain_grad = "nn.grad(f)(x), which returns f(x) and its gradient",
  view_as = "x:reshape(y.shape)", reshape_as = "x:reshape(y.shape)",
  one_hot = "nn.one_hot(ids, classes)", bernoulli = "nn.bernoulli(x)",
  expand_as = "x:expand(y.shape)", ["repeat"] = "x:tile(counts)", swapdims = "x:transpose(a, b)",
  adjoint = "x:t()", arctan2 = "x:atan2(y)", sgn = "x:sign()", fix = "x:trunc()",
  places = "x:memory_nodes(), its new name",
  take_along_dim = "x:gather(index, axis)", take_along_axis = "x:gather(index, axis)",
  index_put_ = "nn.where(mask, y, x) or x:index_copy(axis, index, source)",
}

local function layer(name) return name .. ", a function" end
-- Parameters change in place only where no gradient is recorded.
local function changed(code) return ("nn.no_grad(function() %s end)"):format(code) end

--- library: names of torch, torch.nn, torch.nn.functional, torch.optim and its lr_scheduler.
M.library = {
  place = "nn.run_tasks_on, its new name", sgemm_gflops = "nn.product_gflops, its new name",
  concat = "nn.cat", concatenate = "nn.cat",
  hstack = "nn.cat(list, 2), for vectors nn.cat(list)",
  vstack = "nn.cat(list), for vectors nn.stack(list)",
  load = "nn.load_safetensors, nn.load_model or nn.load_hf",
  save = "nn.save_safetensors, nn.save_hf, or a checkpoint", manual_seed = "nn.seed",
  from_pretrained = "nn.load_hf", from_numpy = "nn.from_host(array, shape, dtype)",
  as_tensor = "nn.tensor", empty_like = "nn.zeros_like",
  logspace = "10 ^ nn.linspace(first, last, count)", is_grad_enabled = "nn.grad_enabled",
  set_grad_enabled = "nn.no_grad(function() ... end)",
  enable_grad = "not needed: gradients are on outside nn.no_grad",
  inference_mode = "nn.no_grad(function() ... end)",
  autograd = "nn.grad(f)(x), which returns f(x) and its gradient, or y:backward(gradient)",
  bincount = "nn.one_hot(ids, n):sum(1)", view = "x:view(shape)", ger = "nn.outer",
  threshold = "nn.where(x:gt(t), x, value)", layer_norm = "nn.layernorm", rms_norm = "nn.rmsnorm",
  pairwise_distance = "(x - y):norm(2, -1)", PairwiseDistance = "(x - y):norm(2, -1)",
  scaled_dot_product_attention = "nn.attention",
  MultiheadAttention = "nn.attention; models/gpt2.lua has such a layer",
  TransformerEncoderLayer = "the blocks of a model in models/, such as models/bert.lua",
  InstanceNorm1d = "nn.GroupNorm(channels, channels, {affine = false})",
  Parameter = "nn.parameter(shape, {std = 0.02})", Module = 'nn.module "Name"',
  ModuleList = "nn.list, or a table as a field", ModuleDict = "a table as a field",
  ParameterList = "a table as a field",
  ReLU = layer "nn.relu", LeakyReLU = layer "nn.leaky_relu", ELU = layer "nn.elu",
  SELU = layer "nn.selu", CELU = layer "nn.celu", GELU = layer "nn.gelu_exact",
  SiLU = layer "nn.silu", Mish = layer "nn.mish", Tanh = layer "nn.tanh",
  Sigmoid = layer "nn.sigmoid", Softplus = layer "nn.softplus", Softsign = layer "nn.softsign",
  Hardswish = layer "nn.hardswish", Hardsigmoid = layer "nn.hardsigmoid",
  LogSigmoid = layer "nn.logsigmoid", ReLU6 = "x:clamp(0, 6)", Hardtanh = "x:clamp(-1, 1)",
  PReLU = "x:leaky_relu(weight)", Softmax = layer "nn.softmax", LogSoftmax = layer "nn.log_softmax",
  ZeroPad2d = "x:pad(widths)", ReflectionPad2d = 'x:pad(widths, {mode = "reflect"})',
  Unflatten = "x:reshape(shape)", CosineSimilarity = layer "nn.cosine_similarity",
  CrossEntropyLoss = layer "nn.cross_entropy", NLLLoss = layer "nn.nll_loss",
  MSELoss = layer "nn.mse_loss", L1Loss = layer "nn.l1_loss",
  SmoothL1Loss = layer "nn.smooth_l1_loss", HuberLoss = layer "nn.huber_loss",
  BCELoss = layer "nn.binary_cross_entropy",
  BCEWithLogitsLoss = layer "nn.binary_cross_entropy_with_logits", KLDivLoss = layer "nn.kl_div",
  CosineEmbeddingLoss = layer "nn.cosine_embedding_loss",
  TripletMarginLoss = layer "nn.triplet_margin_loss",
  NAdam = "nn.Adam", Adamax = "nn.Adam", Adadelta = "nn.RMSprop", RAdam = "nn.AdamW with a warmup",
  clip_grad_norm = "nn.clip_grad_norm_", clip_grad_value = "nn.clip_grad_value_",
  value_and_grad = "nn.grad, which returns the value too",
  constant_ = changed "w:fill_(value)", zeros_ = changed "w:fill_(0)", ones_ = changed "w:fill_(1)",
  uniform_ = changed "w:copy_(nn.rand(w.shape, {low = -a, high = a}))",
  trunc_normal_ = changed "w:normal_{std = 0.02}",
  functional = "nn itself", F = "nn itself", optim = "nn itself", utils = "nn itself",
  DataLoader = "nn.data", Dataset = "nn.data{read = f, count = n}",
  TensorDataset = "nn.data{arrays = {x = X, y = Y}}", ImageFolder = 'nn.data{images = "folder"}',
  random_split = "loader:split(share)",
  DataParallel = "nnlua --ranks N", DistributedDataParallel = "nnlua --ranks N", cuda = no_devices,
  device = no_devices, float32 = 'the dtype "f32"', float = 'the dtype "f32"',
  float64 = 'the dtype "f64"', double = 'the dtype "f64"', bfloat16 = 'the dtype "bf16"',
  float16 = 'the dtype "bf16"', half = 'the dtype "bf16"', int32 = 'the dtype "i32"',
  int = 'the dtype "i32"', int64 = 'the dtype "i64"', long = 'the dtype "i64"',
  uint8 = 'the dtype "u8"', bool = 'the dtype "bool"',
  init = "nn.xavier_uniform_(w), nn.kaiming_normal_(w), or " .. changed "w:fill_(0)",
  lr_scheduler = "nn.StepLR, nn.CosineAnnealingLR, ...: schedulers are in nn itself",
  CyclicLR = "nn.LambdaLR", MultiplicativeLR = "nn.LambdaLR with the product",
  ChainedScheduler = "nn.SequentialLR",
}

-- Functions that are also methods.
for name, hint in pairs {
  numel = "x:count()", mm = "x:matmul(y)", bmm = "x:matmul(y)", mv = "x:matmul(y)",
  dot = "(x * y):sum()", broadcast_to = "x:expand(shape)", swapaxes = "x:transpose(a, b)",
  narrow = "x:slice(axis, first, last)", diagonal = "x:diag(), for matrices",
  unflatten = "x:reshape(shape)", amax = "x:max(axes)", amin = "x:min(axes)",
  aminmax = "x:min(axes) and x:max(axes)", absolute = "x:abs()", negative = "x:neg()",
  clip = "x:clamp(min, max)", multiply = "x:mul(y)", divide = "x:div(y)", subtract = "x:sub(y)",
  true_divide = "x:div(y)", floor_divide = "(x / y):floor()", fmod = "x - (x / y):trunc() * y",
  greater = "x:gt(y)", greater_equal = "x:ge(y)", less = "x:lt(y)", less_equal = "x:le(y)",
  not_equal = "x:ne(y)", equal = "x:eq(y):all():item()",
  isclose = "(x - y):abs():le(1e-5 * y:abs() + 1e-8)",
  arcsin = "x:asin()", arccos = "x:acos()", arctan = "x:atan()",
  asinh = "(x + (x * x + 1):sqrt()):log()", acosh = "(x + (x * x - 1):sqrt()):log()",
  atanh = "((1 + x) / (1 - x)):log() / 2", erfc = "1 - x:erf()", relu6 = "x:clamp(0, 6)",
  hardtanh = "x:clamp(-1, 1)", hypot = "(x * x + y * y):sqrt()",
  take = "x:reshape(-1)[index]", addmm = "a + x:matmul(y)", baddbmm = "a + x:matmul(y)",
  var_mean = "x:var(axis) and x:mean(axis)", std_mean = "x:std(axis) and x:mean(axis)",
  prelu = "x:leaky_relu(weight)", tanhshrink = "x - x:tanh()",
} do
  M.tensor[name], M.library[name] = hint, hint
end

--- model: methods of modules.
M.model = {
  train = "nn.training(true), the default",
  eval = "nn.training(false); nn.evaluate and nn.generate do that themselves",
  half = 'model:to "bf16"', bfloat16 = 'model:to "bf16"', float = 'model:to "f32"',
  double = 'model:to "f64"', named_children = "model:children()",
  buffers = "model:state(), with the parameters",
  named_buffers = "model:state(), with the parameters", freeze = "model:requires_grad_(false)",
  cuda = no_devices, cpu = no_devices, state_dict = "model:state()",
  load_state_dict = "model:load(state)", named_parameters = "model:parameters()",
  register_parameter = "nn.parameter(shape) in a field", add_module = "a module in a field",
  generate = "nn.generate(model, ids, {tokens = 100})",
  named_modules = "model:modules()", num_parameters = "model:count()",
  from_pretrained = "nn.load_hf(folder)",
  save_pretrained = "nn.save_hf(folder, model)",
}

--- optimizer: fields and methods of optimizers.
M.optimizer = {
  param_groups = "optim.groups", state_dict = "optim:state()",
  load_state_dict = "checkpoint:restore {model = model, optim = optim}",
  add_param_group = "nn.AdamW({{params = a}, {params = b, lr = 1e-4}}, {lr = 1e-3})",
}

--- option: names of arguments. The first word is that of the option in nnlua.
M.option = {
  dim = "axis, which counts from 1", dims = "axis, which counts from 1", unbiased = "correction",
  betas = "beta1 and beta2", batch_size = "batch",
}

--- missing: names of functions that nnlua neither has nor has an equivalent for.
M.missing = {}
for name in ([[
  bucketize cholesky combinations cov corrcoef cross cummax cummin det diff digamma erfinv fft
  fold frombuffer gradient grid_sample histc i0 interpolate inverse isin kron lgamma linalg
  logaddexp logcumsumexp lstsq matrix_exp mode nanmean nansum pinverse polygamma quantile qr renorm
  rot90 scatter_reduce sinc slogdet solve svd unfold unique unique_consecutive vander vmap xlogy
  ASGD AdaptiveMaxPool2d BatchNorm3d Bilinear CTCLoss Conv3d ConvTranspose1d ConvTranspose2d
  Dropout2d EmbeddingBag Fold LBFGS PixelShuffle Rprop SparseAdam Unfold Upsample
  adaptive_max_pool2d conv3d conv_transpose2d ctc_loss]]):gmatch "%S+" do
  M.missing[name] = true
end

return M
