-- 322 names that users of PyTorch type, by family.

return {
  {"torch", [[
    tensor as_tensor from_numpy zeros ones full empty zeros_like ones_like arange linspace
    logspace eye rand randn randint randperm rand_like randn_like normal bernoulli multinomial
    manual_seed cat concat stack hstack vstack split chunk unbind reshape flatten squeeze
    unsqueeze transpose permute movedim flip roll tile repeat_interleave where masked_select
    index_select gather scatter nonzero sort argsort topk kthvalue max min argmax argmin amax amin
    sum mean median std var prod any all norm cumsum cumprod logsumexp count_nonzero unique clamp
    clip abs neg sqrt rsqrt exp log log2 log10 pow square sin cos tan asin acos atan atan2 tanh
    sigmoid softmax round floor ceil sign erf reciprocal maximum minimum add sub mul div
    floor_divide remainder fmod matmul mm bmm dot outer einsum tensordot tril triu diag trace
    cdist meshgrid isnan isinf isfinite eq equal allclose isclose logical_and logical_not lerp
    nan_to_num no_grad inference_mode is_tensor numel save load compile device float32 bfloat16
    int64]]},
  {"Tensor", [[
    shape dtype size dim ndim numel item tolist numpy detach clone contiguous cpu cuda to float
    long int type view reshape expand expand_as repeat permute transpose t T unsqueeze squeeze
    flatten split chunk narrow select sum mean std var max argmax any all norm cumsum sort topk
    median masked_fill masked_select index_select gather scatter scatter_add clamp matmul add_
    mul_ zero_ fill_ copy_ normal_ clamp_ masked_fill_ gt ge backward grad requires_grad
    requires_grad_ is_cuda diagonal register_hook]]},
  {"nn", [[
    Module Parameter ModuleList ModuleDict Sequential Linear Embedding LayerNorm RMSNorm Dropout
    Identity Flatten ReLU LeakyReLU ELU GELU SiLU Tanh Sigmoid Softmax Conv1d Conv2d ConvTranspose2d
    MaxPool2d AvgPool2d AdaptiveAvgPool2d BatchNorm1d BatchNorm2d GroupNorm RNN LSTM GRU
    MultiheadAttention TransformerEncoderLayer CrossEntropyLoss NLLLoss MSELoss L1Loss SmoothL1Loss
    HuberLoss BCELoss BCEWithLogitsLoss KLDivLoss CosineSimilarity]]},
  {"F", [[
    relu leaky_relu elu selu gelu silu softplus hardtanh hardswish relu6 logsigmoid log_softmax
    dropout linear embedding one_hot layer_norm pad normalize conv2d max_pool2d interpolate
    cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss
    smooth_l1_loss huber_loss kl_div cosine_similarity pairwise_distance
    scaled_dot_product_attention]]},
  {"optim", "SGD Adam AdamW RMSprop Adagrad LBFGS"},
  {"lr_scheduler", [[
    StepLR MultiStepLR ExponentialLR LinearLR LambdaLR CosineAnnealingLR OneCycleLR
    ReduceLROnPlateau]]},
  {"Module", [[
    parameters named_parameters state_dict load_state_dict train eval to cuda zero_grad
    register_buffer register_forward_hook named_modules apply]]},
}
