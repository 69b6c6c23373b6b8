-- Losses and distances, as compositions of ops.

local arguments = require "nn.base.arguments"
local lib = require "nn.base.capi"
local ops = require "nn.core.op"
local shares = require "nn.core.targets"
local tensor = require "nn.core.tensor"
local Tensor = tensor.Tensor

local M = setmetatable({}, {__index = tensor.functions})

-- The options of a loss, of which `known` names those besides reduction.
local function options_of(who, options, known)
  options = arguments.options(who, options, arguments.names("reduction " .. (known or "")))
  local reduction = options.reduction or "mean"
  if reduction ~= "mean" and reduction ~= "sum" and reduction ~= "none" then
    lib.misuse('%s: reduction is %s; "mean", "sum" or "none" is needed', who,
               arguments.describe(reduction))
  end
  return options, reduction
end

local function reduced(losses, reduction)
  if reduction == "none" then return losses end
  return reduction == "sum" and losses:sum() or losses:mean()
end

-- a - b of two tensors of one shape: other shapes broadcast in arithmetic, which in a loss hides
-- a mistake.
local function difference(who, a, b)
  tensor.need(who, "input target", a, b)
  if tensor.shape_text(a.shape) ~= tensor.shape_text(b.shape) then
    lib.misuse("%s: the input is %s, the target is %s; the shapes must be equal", who,
               tensor.shape_text(a.shape), tensor.shape_text(b.shape))
  end
  return a - b
end

--- nn.mse(x, y) -> mean of (x - y)^2 over all elements; shapes broadcast. Each is a tensor or a
--- number.
---     nn.mse(x, 0):item()  --> 15.1667
function M.mse(x, y, options)
  arguments.options("mse", options, {})            -- nn.mse_loss has some
  return ops.call("sub", x, y):square():mean()
end
--- nn.mse_loss(x, y, {reduction="mean"}) -> (x - y)^2: its mean, its sum, or with "none" each
--- element. Errors: other shapes of x and y.
---     nn.mse_loss(x, nn.zeros_like(x), {reduction = "sum"})  --> 91
function M.mse_loss(x, y, options)
  local _, reduction = options_of("mse_loss", options)
  return reduced(difference("mse_loss", x, y):square(), reduction)
end
--- nn.l1_loss(x, y, {reduction="mean"}) -> |x - y|; see nn.mse_loss.
---     nn.l1_loss(x, nn.zeros_like(x))  --> 3.5
function M.l1_loss(x, y, options)
  local _, reduction = options_of("l1_loss", options)
  return reduced(difference("l1_loss", x, y):abs(), reduction)
end
--- nn.huber_loss(x, y, {delta=1, reduction="mean"}) -> d^2 / 2 for d = |x - y| up to delta, else
--- delta (d - delta / 2); see nn.mse_loss.
---     nn.huber_loss(nn.tensor{0.5, 3}, nn.zeros(2), {reduction = "none"})  --> {0.125, 2.5}
function M.huber_loss(x, y, options)
  local o, reduction = options_of("huber_loss", options, "delta")
  local delta = arguments.number("huber_loss", o, "delta", 1, 0)
  arguments.need(delta > 0, "huber_loss", "delta", delta, "a number above 0 is needed")
  local d = difference("huber_loss", x, y):abs()
  return reduced(d:le(delta):where(d:square() * 0.5, (d - delta / 2) * delta), reduction)
end
--- nn.smooth_l1_loss(x, y, {beta=1, reduction="mean"}) -> d^2 / (2 beta) for d = |x - y| below
--- beta, else d - beta / 2; see nn.mse_loss.
---     nn.smooth_l1_loss(nn.tensor{1, 3}, nn.zeros(2), {beta = 2})  --> 1.125
function M.smooth_l1_loss(x, y, options)
  local o, reduction = options_of("smooth_l1_loss", options, "beta")
  local beta, d = arguments.number("smooth_l1_loss", o, "beta", 1, 0),
    difference("smooth_l1_loss", x, y):abs()
  if beta == 0 then return reduced(d, reduction) end
  return reduced(d:lt(beta):where(d:square() * (0.5 / beta), d - beta / 2), reduction)
end

-- log x, but -100 and gradient 0 where x is 0. Where x is negative, it is NaN.
local function safe_log(x)
  local zero = x:eq(0)
  return zero:where(-100, zero:where(1, x):log())
end
--- nn.binary_cross_entropy(p, y, {weight, reduction="mean"}) -> -y log p - (1 - y) log(1 - p) for
--- probabilities p and targets y in [0, 1]; log 0 counts as -100. Of other numbers p, such as
--- logits, the loss is NaN. weight: a factor of each element. nn.binary_cross_entropy_with_logits
--- is more accurate.
---     nn.binary_cross_entropy(nn.tensor{0.5, 1}, nn.ones(2), {reduction = "sum"})  --> 0.6931
function M.binary_cross_entropy(p, y, options)
  local o, reduction = options_of("binary_cross_entropy", options, "weight")
  difference("binary_cross_entropy", p, y)
  local losses = -(y * safe_log(p) + (1 - y) * safe_log(1 - p))
  return reduced(o.weight and losses * o.weight or losses, reduction)
end
--- nn.binary_cross_entropy_with_logits(x, y, {weight, pos_weight, reduction="mean"}) -> the binary
--- cross-entropy of the probabilities sigmoid(x). weight: a factor of each element; pos_weight: a
--- factor of the term of y = 1.
---     nn.binary_cross_entropy_with_logits(nn.zeros(2), nn.ones(2))  --> 0.6931
function M.binary_cross_entropy_with_logits(x, y, options)
  local name = "binary_cross_entropy_with_logits"
  local o, reduction = options_of(name, options, "weight pos_weight")
  difference(name, x, y)
  local losses = o.pos_weight and (1 - y) * x:softplus() + y * o.pos_weight * (-x):softplus()
    or x:softplus() - x * y
  return reduced(o.weight and losses * o.weight or losses, reduction)
end

--- nn.kl_div(input, target, {log_target=false, reduction="mean"}) -> target (log target - input)
--- for log-probabilities `input` and probabilities `target`, or their logarithms with log_target.
--- The Kullback-Leibler divergence is reduction "batchmean", the sum over the size of the first
--- axis.
---     local input = nn.tensor{{0.5, 0.5}}:log()
---     nn.kl_div(input, nn.tensor{{1, 0}}, {reduction = "batchmean"})  --> 0.6931
function M.kl_div(input, target, options)
  local batchmean = type(options) == "table" and options.reduction == "batchmean"
  local known = batchmean and {reduction = "sum", log_target = options.log_target} or options
  local o, reduction = options_of("kl_div", known, "log_target")
  difference("kl_div", input, target)
  local p, log_p = target, target
  if o.log_target then p = target:exp() else log_p = target:eq(0):where(1, target):log() end
  local total = reduced(p * (log_p - input), reduction)
  return batchmean and total / input:dim(1) or total
end
--- nn.nll_loss(log_probs, targets, {ignore_index=-100, reduction="mean"}) ->
--- -log_probs[..., target] for 0-based targets (i32 or i64) of the shape of log_probs without the
--- last axis. Targets equal to ignore_index count as nothing, also in the mean, which is 0 if all
--- are ignored. nn.cross_entropy takes logits.
---     nn.nll_loss(nn.tensor{{-1, -2}, {-3, -4}}, nn.tensor({1, 0}, {dtype = "i64"}))  --> 2.5
function M.nll_loss(log_probs, targets, options)
  local o, reduction = options_of("nll_loss", options, "ignore_index")
  tensor.need("nll_loss", "log_probs targets", log_probs, targets)
  tensor.need_ids("nll_loss", "the targets", targets)
  local shape = tensor.shape_text {unpack(log_probs.shape, 1, #log_probs.shape - 1)}
  if tensor.shape_text(targets.shape) ~= shape then
    lib.misuse("nll_loss: the targets are %s where %s is needed; log_probs is %s, with the classes "
               .. "on the last axis", tensor.shape_text(targets.shape), shape,
               tensor.shape_text(log_probs.shape))
  end
  local counted = targets:ne(o.ignore_index or -100)
  local index = counted:where(targets, 0):unsqueeze(-1)
  local losses = counted:where(-log_probs:gather(index):squeeze(-1), 0)
  if reduction ~= "mean" then return reduced(losses, reduction) end
  local count, divisor = counted:sum(), shares.divisor_of(targets, o.ignore_index)
  shares.counted(count)
  divisor = divisor and divisor:eq(0):where(1, divisor) or count:clamp_min(1)
  return losses:sum() / divisor:to(losses.dtype)
end
--- nn.cross_entropy(logits, targets, {ignore_index=-100, label_smoothing=0, reduction="mean"}): the
--- op of this name, with two more options. label_smoothing: the share of each target's probability
--- that is spread over all classes. reduction: see nn.mse_loss.
---     local targets = nn.tensor({0, 1}, {dtype = "i64"})
---     nn.cross_entropy(nn.zeros(2, 4), targets, {reduction = "sum"})  --> 2.7726
function M.cross_entropy(logits, targets, options)
  if type(options) ~= "table" or not (options.label_smoothing or options.reduction) then
    return ops.call("cross_entropy", logits, targets, options)
  end
  local o, reduction = options_of("cross_entropy", options, "label_smoothing ignore_index")
  tensor.need("cross_entropy", "logits targets", logits, targets)
  local smoothing = arguments.number("cross_entropy", o, "label_smoothing", 0, 0, 1)
  local log_probs = logits:log_softmax()
  local mixed = smoothing == 0 and log_probs
    or log_probs * (1 - smoothing) + log_probs:mean {axis = -1, keepdim = true} * smoothing
  return M.nll_loss(mixed, targets, {ignore_index = o.ignore_index, reduction = reduction})
end

--- x:normalize(p=2, axis=2, eps=1e-12) -> x over its p-norm along an axis, or over eps if that is
--- larger.
---     nn.tensor{{3, 4}}:normalize()  --> {{0.6, 0.8}}
function Tensor:normalize(p, axis, eps)
  local norm = self:norm(p, axis or 2, {keepdim = true})
  return self / norm:clamp_min(eps or 1e-12)
end
--- nn.cosine_similarity(x, y, axis=2, eps=1e-8) -> the sum of x y over the product of the norms of
--- x and y along an axis; a norm below eps counts as eps.
---     nn.cosine_similarity(nn.tensor{{1, 0}}, nn.tensor{{1, 1}})  --> {0.7071}
function M.cosine_similarity(x, y, axis, eps)
  tensor.need("cosine_similarity", "x y", x, y)
  axis, eps = axis or 2, eps or 1e-8
  return (x:normalize(2, axis, eps) * y:normalize(2, axis, eps)):sum {axis = axis}
end
--- nn.cosine_embedding_loss(x, y, target, {margin=0, reduction="mean"}) -> 1 - cos for rows with
--- target 1, max(0, cos - margin) for rows with target -1; cos is nn.cosine_similarity(x, y).
---     nn.cosine_embedding_loss(nn.tensor{{1, 0}}, nn.tensor{{0, 1}}, nn.tensor{1})  --> 1
function M.cosine_embedding_loss(x, y, target, options)
  local o, reduction = options_of("cosine_embedding_loss", options, "margin")
  tensor.need("cosine_embedding_loss", "x y target", x, y, target)
  local cos = M.cosine_similarity(x, y, -1)
  return reduced(target:gt(0):where(1 - cos, (cos - (o.margin or 0)):relu()), reduction)
end
--- nn.triplet_margin_loss(anchor, positive, negative, {margin=1, p=2, reduction="mean"}) ->
--- max(0, d(anchor, positive) - d(anchor, negative) + margin); d is the p-norm of the difference
--- plus 1e-6 over the last axis.
---     nn.triplet_margin_loss(nn.zeros(1, 2), nn.zeros(1, 2), nn.ones(1, 2))  --> 0
function M.triplet_margin_loss(anchor, positive, negative, options)
  local o, reduction = options_of("triplet_margin_loss", options, "margin p")
  tensor.need("triplet_margin_loss", "anchor positive negative", anchor, positive, negative)
  local near = (anchor - positive + 1e-6):norm(o.p, -1)
  local far = (anchor - negative + 1e-6):norm(o.p, -1)
  return reduced((near - far + (o.margin or 1)):relu(), reduction)
end

return M
