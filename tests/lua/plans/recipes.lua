-- Plans of the recipes for settings of any size, and the message about the vocabulary.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local precision = require "nn.train.precision"
local t = require "nn.test"

local folder = t.folder()
local text = files.join(folder, "text.txt")
files.write(text, ("To be, or not to be, that is the question.\n"):rep(3000))

-- Runs a recipe in the test's folder; it must end within a minute.
local function recipe(name, words)
  return t.shell(("cd %s; HF_HOME=%s timeout -k 5 60 $NNLUA %s/recipes/%s.lua %s"):format(
    folder, folder, host.root, name, words))
end
local function train(words) return recipe("gpt2_train", "data.text=text.txt " .. words) end

-- The largest batch, or its estimate if the search took too long on a busy machine.
local function largest(output)
  local line = output:match "\nlargest batch +([^\n]+)"
  return tonumber(line:match "=(%d+), which" or line:match "; the largest is about (%d+)")
end

t.case("a plan finds the same largest batch from any batch", function()
  local found = {}
  for i, batch in ipairs {1, 12, 100000, 100000000} do
    local status, output = train("preset=char --plan memory_gb=2 data.batch=" .. batch)
    t.same(status, 0)
    found[i] = largest(output) or error(output)
    t.check(batch < 1000 or output:find ": it does not fit", output)
  end
  for i = 2, #found do t.near(found[i], found[1], {rel = 0.02}) end
  local status, output = train("preset=char --plan memory_gb=2 data.batch="
                               .. math.floor(0.97 * found[1]))
  t.check(status == 0 and output:find ": it fits", output)
end)

t.case("settings that cannot fit are refused at once, before anything is recorded", function()
  for _, setting in ipairs {"model.layers=100000", "model.layers=1000000000000000",
                            "model.embd=100000000", "model.vocab=1000000000000",
                            "data.batch=100000000", "data.accum=1000000000"} do
    local status, output = train("preset=char out=refused " .. setting)
    t.check(status == 1 and output:find "nnlua: the training cannot fit: ", output)
    t.check(output:find "need at least [%d.]+ .B, [%d.]+ GB are available; lower ", output)
    t.check(output:find(setting:match "^[^=]+", output:find "lower ", true), output)
  end
  t.check(not files.exists(files.join(folder, "refused/config.json")))
end)

t.case("a step of too many tasks is refused before it is recorded", function()
  local status, output = train "preset=char out=tasks data.batch=1 data.accum=3000000"
  t.check(status == 1 and output:find "tasks of a step take about [%d.]+ .B to record.*data.accum",
          output)
end)

t.case("--plan answers for any setting: with a plan, or that it cannot fit", function()
  for _, setting in ipairs {"model.embd=1000000", "data.accum=100000000", "model.heads=128"} do
    local status, output = train("preset=char --plan " .. setting)
    t.check(status == 0 and output:find "\navailable .*: it .*fit", output)
  end
  for setting, size in pairs {["model.layers=100000"] = "19.8B parameters in 1.20M tiles",
                              ["model.vocab=1000000000"] = "128B parameters in 488k tiles"} do
    local status, output = train("preset=char --plan " .. setting)
    t.check(status == 1 and output:find("cannot fit: " .. size, 1, true), output)
  end
end)

t.case("a plan that takes long says what it is doing, and Ctrl-C ends it", function()
  local status, output = t.shell(([[cd %s
    env --default-signal $NNLUA %s/recipes/gpt2_train.lua data.text=text.txt preset=char --plan \
      model.embd=8 model.heads=1 model.context=8 model.layers=60000 >long.log 2>&1 & process=$!
    (timeout 120 tail --pid=$process -f /dev/null || kill -KILL $process) >/dev/null 2>&1 &
    for i in $(seq 600); do grep -qs planning: long.log && break; sleep 0.1; done
    start=$(date +%%s); kill -INT $process; wait $process; status=$?
    echo "seconds $(($(date +%%s) - start))"; cat long.log; exit $status]]):format(folder,
                                                                                     host.root))
  t.check(output:find "planning: [%d.]+k parameters recorded\n", output)
  t.same(status, 130, output)
  t.check(tonumber(output:match "seconds (%d+)") < 25, output)
end)

t.case("plans of evaluation and generation answer for any number of sequences", function()
  local model = require("models.gpt2") {layers = 2, heads = 2, embd = 32, context = 32, vocab = 256}
  nn.save_hf(files.join(folder, "model"), model, nn.vocabulary "byte")
  for name, word in pairs {gpt2_eval = "batch", gpt2_generate = "samples"} do
    local found = {}
    for i, count in ipairs {4, 100000000} do
      local status, output = recipe(name, ("model=model --plan %s=%d"):format(word, count))
      t.same(status, 0)
      found[i] = largest(output) or error(output)
    end
    t.near(found[2], found[1], {rel = 0.1})          -- two digits of an estimate
    local input = name == "gpt2_eval" and "text=text.txt" or ""
    local status, output = recipe(name, ("model=model %s=100000000 %s"):format(word, input))
    t.check(status == 1 and output:find(("%s=100000000 needs [%%d.]+ .B"):format(word)), output)
  end
end)

-- A tokenizer of GPT-2's size: all bytes, 50,000 pairs of them, and the special token.
local function save_tokenizer(path)
  local bytes, vocab, merges = {}, {}, {}
  local learned = nn.train_tokenizer("ab ab", {size = 257})
  learned:save(path)
  local json = files.parse_json(files.read(files.join(path, "tokenizer.json")))
  for symbol, id in pairs(json.model.vocab) do
    if id < 256 then bytes[id + 1], vocab[symbol] = symbol, id end
  end
  for i = 0, 49999 do
    local a, b = bytes[math.floor(i / 256) + 1], bytes[i % 256 + 1]
    merges[i + 1], vocab[a .. b] = a .. " " .. b, 256 + i
  end
  vocab["<|endoftext|>"] = 50256
  files.remove(files.join(path, "tokenizer.json"))
  files.write(files.join(path, "vocab.json"), files.json(vocab))
  table.insert(merges, 1, "#version: 0.2")
  files.write(files.join(path, "merges.txt"), table.concat(merges, "\n") .. "\n")
end

t.case("preset=gpt2 on a text says that it trains on characters, and how not to", function()
  local status, output = train "preset=gpt2 --plan"
  t.same(status, 0)
  t.check(output:find "preset=gpt2 trains on %d+ characters, because GPT%-2's tokenizer was not "
          and output:find("data.vocabulary=FOLDER", 1, true), output)
  t.check(output:find "\nparameters +85%.9M", output)
  status, output = train "preset=gpt2 --plan data.vocabulary=char"
  t.check(status == 0 and not output:find "trains on %d+ characters", output)
  status, output = train "preset=char --plan"
  t.check(status == 0 and not output:find "trains on %d+ characters", output)
end)

t.case("preset=gpt2 uses GPT-2's tokenizer if one is given or found", function()
  save_tokenizer(files.join(folder, "words"))
  local status, output = train "preset=gpt2 --plan data.vocabulary=words"
  t.check(status == 0 and output:find "parameters +124M", output)
  t.check(not output:find "trains on %d+ characters", output)
  for _, place in ipairs {"gpt2", "hub/models--gpt2/snapshots/607a30d7"} do
    t.shell(("cd %s; mkdir -p %s; cp words/* %s"):format(folder, place, place))
    status, output = train "preset=gpt2 --plan"
    t.check(status == 0 and output:find "\nparameters +124M", output)
    t.check(output:find("using GPT%-2's tokenizer in %S*" .. place:gsub("%-", "%%-")), output)
    files.remove(files.join(folder, place))
  end
end)

t.case("model.dtype=auto is bf16 where its products are much faster than f32's", function()
  t.same({precision.faster(100, 200, 0)},
         {"bf16", "a core multiplies bf16 at 200 GFLOP/s, f32 at 100"})
  t.same({precision.faster(100, 120, 0)},
         {"f32", "a core multiplies bf16 at 120 GFLOP/s, f32 at 100"})
  t.same({precision.faster(100, 0, 0)}, {"f32", "this processor has no AVX-512 BF16"})
  t.same({precision.faster(50e3, 600e3, 1)},
         {"bf16", "the GPU multiplies bf16 at 600 TFLOP/s, f32 at 50"})
  t.same({precision.faster(700e3, 720e3, 2)},
         {"f32", "the GPUs multiply bf16 at 720 TFLOP/s, f32 at 700"})
end)

t.case("the larger presets choose the dtype and say why, and a resumed run keeps it", function()
  for name, words in pairs {gpt2_train = "preset=gpt2", train = "preset=110m"} do
    local status, output = t.shell(([[cd %s
      NNLUA_PRODUCTS=openblas $NNLUA %s/recipes/%s.lua %s data.text=text.txt \
        data.batch=1 data.accum=1 --plan]]):format(folder, host.root, name, words))
    t.check(status == 0 and output:find("model.dtype=auto: f32, since NNLUA_PRODUCTS or NNLUA_ISA "
                                        .. "replaces the measured products", 1, true), output)
  end
  local small = "preset=char out=kept eval_every=0 final_batches=1 sample.tokens=1 model.layers=1 "
  local status, output = train(small .. "steps=1 model.dtype=bf16")
  t.check(status == 0 and not output:find "dtype=auto", output)
  status, output = train(small .. "steps=2 model.dtype=auto resume=auto")
  local line = "model.dtype=auto: bf16, since the resumed checkpoint uses it"
  t.check(status == 0 and output:find(line, 1, true), output)
  local kept = nn.open_checkpoint(files.join(folder, "kept/checkpoint-000002")).state.config
  t.same(kept.model.dtype, "bf16")
end)

-- The plan of a step that exceeds memory.gpu or memory.ram on a described machine.
local function planned(machine, words)
  return t.shell(("cd %s; NNLUA_MACHINE='%s' timeout -k 5 60 $NNLUA %s/recipes/gpt2_train.lua "
    .. "data.text=text.txt preset=char model.embd=384 model.heads=6 out=never %s"):format(
    folder, machine, host.root, words))
end

local function seconds(output)
  local number, unit = output:match "\ntime +about ([%d.]+) (m?s)"
  return tonumber(number) * (unit == "ms" and 1e-3 or 1)
end

t.case("a plan for a described GPU moves what exceeds memory.gpu over its link", function()
  if select(2, nn.workers()) > 0 then t.skip "this machine has a GPU" end
  local gpu = "gpus=1 gpu_gflops=100e3 gpu_bandwidth=1TB/s gpu_memory=2GB gpu_link="
  local _, slow = planned(gpu .. "1GB/s", "memory.gpu=60MB --plan")
  local _, fast = planned(gpu .. "20GB/s", "memory.gpu=60MB --plan")
  for _, output in ipairs {slow, fast} do
    t.check(output:find "\nGPU +6[%d.]+ MB: .-\nRAM +[%d.]+ MB\n  read +[%d.]+ MB", output)
  end
  t.check(slow:find "bound by +the link to the GPU", slow)
  t.check(seconds(slow) > 3 * seconds(fast), slow .. fast)
  local status, refused = planned(gpu .. "1GB/s", "memory.gpu=60MB steps=1")
  t.check(status == 1 and refused:find "memory.gpu needs a GPU, .-; it can only plan for", refused)
  status, refused = planned(gpu .. "1GB/s", "memory.gpu=1.9GB --plan")
  t.check(status == 1 and refused:find "of the GPU's 1.8 GB must remain", refused)
end)

t.case("a plan recomputes as few activations as hide the transfers", function()
  if select(2, nn.workers()) > 0 then t.skip "this machine has a GPU" end
  local machine = "ram=64GB gpus=1 gpu_gflops=100e3 gpu_bandwidth=1TB/s gpu_memory=8GB gpu_link="
  local function plan(activations, more)
    local _, output = planned(machine .. "20GB/s", "model.layers=8 model.embd=512 model.heads=8 "
      .. "model.vocab=5000 model.context=256 data.context=256 data.batch=16 model.dtype=bf16 "
      .. "memory.gpu=600MB memory.activations=" .. activations .. (more or "") .. " --plan")
    return seconds(output), tonumber(output:match "takes (%d+) %% of the computation"), output
  end
  local kept, all, auto = plan "keep", {plan "recompute"}, {plan "auto"}
  t.check(auto[1] < 0.97 * all[1] and auto[1] < 0.6 * kept, kept .. all[3] .. auto[3])
  t.check(auto[2] > 0 and auto[2] < all[2], all[3] .. auto[3])
  -- At the peak with recomputation, all gradients are in memory.
  local _, _, narrow = plan("recompute", " optim.gradients=bf16")
  local function peak(output) return tonumber(output:match "\nmemory +([%d.]+) MB at the peak") end
  t.check(peak(narrow) < 0.97 * peak(all[3]), narrow .. all[3])
end)

t.case("a plan takes the rates of a described disk", function()
  local disk = "cpus=2 ram=1GB gflops=50 disk=10GB disk_read=%sMB/s disk_write=2GB/s"
  local words = "memory.ram=60MB memory.disk=disk memory.disk_in_ram=true --plan"
  local _, slow = planned(disk:format "50", words)
  local _, fast = planned(disk:format "2000", words)
  t.check(slow:find "bound by +the disk; .-the disk is busy %d+ %%", slow)
  t.check(seconds(slow) > 2 * seconds(fast), slow .. fast)
end)

t.finish()
