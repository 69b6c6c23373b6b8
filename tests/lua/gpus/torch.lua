-- The PyTorch side of tests/gpu/run, with a PyTorch that computes nothing (tests/gpu/fake_torch)
-- and a GPU that only nvidia-smi reports: the parts pass arguments that the scripts take, and both
-- sides count the same FLOPs.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"
local GPT2, Llama = require "models.gpt2", require "models.llama"

local root = host.root
local environment = ("cd %s; export PYTHONPATH=%s/tests/gpu/fake_torch")
  :format(root, root)

local function need_python()
  if t.shell "python3 -c 'import sys; assert sys.version_info >= (3, 9)'" ~= 0 then
    t.skip "no Python 3.9"
  end
end

-- nnlua's count for a model of this class and these settings, without creating its parameters.
local function flops_per_token(Class, settings, tokens)
  local model = setmetatable({}, Class)
  model:configure(settings)
  return model:flops_per_token(tokens)
end

t.case("the parts with PyTorch run at full size and count nnlua's FLOPs", function()
  need_python()
  local folder = t.folder()
  files.write(folder .. "/nvidia-smi", "#!/bin/sh\necho A GPU, 580.00, 81559 MiB\n")
  local sides = "gpt2 compile,gpt2-xl compile,gpt2 eager,gpt2-xl eager"
  local status, output = t.shell(([[%s
    chmod +x %s/nvidia-smi
    PATH=%s:$PATH python3 tests/gpu/run --binaries %s --python python3 --only %q --json %s/r.json
  ]]):format(environment, folder, folder, folder, sides, folder))
  t.check(status == 0, output)
  local report = files.parse_json(files.read(folder .. "/r.json"))
  local runs = 0
  for name, speed in pairs(report.speeds) do
    local size = GPT2.size(name:match "%S+")
    local tokens = speed.tokens_per_s * speed.ms_per_step / 1e3
    t.same(math.floor(tokens + 0.5), name:find "xl" and 8 * 1024 or 16 * 1024)
    t.near(speed.flops_per_s / speed.tokens_per_s, flops_per_token(GPT2, size, 1024), {rel = 1e-9})
    runs = runs + 1
  end
  t.same(runs, 4)
end)

t.case("PyTorch's benchmarks count nnlua's FLOPs for every model", function()
  need_python()
  local status, output = t.shell(environment .. [[

    cd tests/bench; python3 - <<'END'
import sys, torch_gpt2
for model in torch_gpt2.MODELS:
    sys.argv = ["torch_gpt2.py", "--model", model, "--tokens", "512"]
    args = torch_gpt2.parse()
    print(model, args.layers, args.heads, args.embd, args.vocab, torch_gpt2.flops_per_token(args))
END]])
  t.check(status == 0, output)
  local counted = 0
  for model, layers, heads, embd, vocab, flops in
      output:gmatch "(%S+) (%d+) (%d+) (%d+) (%d+) (%d+)\n" do
    local size = {layers = tonumber(layers), heads = tonumber(heads), embd = tonumber(embd),
                  vocab = tonumber(vocab)}
    local Class = GPT2
    if model:find "^llama" then Class, size.tied = Llama, true end
    t.same({model, tonumber(flops)}, {model, flops_per_token(Class, size, 512)})
    counted = counted + 1
  end
  t.same(counted, 6)
end)

t.finish()
