-- Several ranks: the bits of one process, the bytes that they send, and the end of all when one
-- fails. Skipped where MPI is not installed or not built in.
-- Runs alone: a rank that is silent for seconds counts as lost.
local t = require "nn.test"
local files = require "nn.io.files"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"
local program, need_mpi = mpi.program, mpi.need
local model = root .. "/tests/lua/support/ranks_model.lua"

-- Runs nnlua -> its output, its messages, its exit status.
local function run(words, environment)
  local errors = os.tmpname()
  local pipe = io.popen(("timeout 100 env %s '%s' %s 2>%s; echo status $?"):format(
    environment or "", program, words, errors))
  local out = pipe:read "*a"
  pipe:close()
  local messages = files.read(errors)
  os.remove(errors)
  local text, status = out:match "^(.*)status (%d+)\n$"
  return text, messages, tonumber(status)
end

local function train(ranks, arguments)
  local how = ranks > 1 and "--ranks " .. ranks .. " " or ""
  local text, messages, status = run(how .. model .. " " .. arguments)
  t.check(status == 0, ("%d ranks end with status %d: %s"):format(ranks, status, messages))
  return text, messages
end

-- The bytes that all ranks sent in the last step, and those of the weights.
local function bytes_sent(messages)
  local all, weights = 0, nil
  for sent, of_weights in messages:gmatch "sent rank %d+ messages %d+ bytes (%d+) weights (%d+)" do
    all, weights = all + tonumber(sent), tonumber(of_weights)
  end
  return all, weights
end

local alone = {}
local function same_bits(ranks, arguments)
  need_mpi()
  alone[arguments] = alone[arguments] or train(1, arguments)
  local text, messages = train(ranks, arguments)
  t.check(text:find "loss" and text:find "weight", "no losses and weights: " .. text)
  t.check(text == alone[arguments], ("one rank:\n%s\n%d ranks:\n%s"):format(alone[arguments], ranks,
                                                                        text))
  return messages
end

t.case("2 ranks give the bits of one process, and send each weight and gradient once", function()
  local all, weights = bytes_sent(same_bits(2, "shards=4 accum=4"))
  t.check(all >= 2 * weights and all <= 2.1 * weights,
          ("%d bytes were sent for weights of %d bytes"):format(all, weights))
end)

t.case("3 ranks, of which one has more shards, give the bits of one process", function()
  local all, weights = bytes_sent(same_bits(3, "shards=4 accum=4"))
  t.check(all >= 4 * weights and all <= 4.2 * weights,
          ("%d bytes were sent for weights of %d bytes"):format(all, weights))
end)

t.case("2 ranks without clipping and with microbatches give the bits of one process", function()
  same_bits(2, "shards=2 accum=4 clip=0 steps=4")
end)

t.case("2 ranks that keep a part of the weights each train with Lion to the bits of one", function()
  same_bits(2, "shards=2 shard=weights optim=Lion dtype=bf16")
end)

local function sum_of(messages, name)
  local sum = 0
  for bytes in messages:gmatch(name .. " (%d+)") do sum = sum + tonumber(bytes) end
  return sum
end

t.case("ranks that keep a part of the weights each give the bits of one process", function()
  for ranks = 2, 3 do
    local how = ("shards=%d accum=%d layers=6 batch=12 embd=128 shard="):format(ranks, ranks)
    local messages = same_bits(ranks, how .. "weights")
    local all, weights = bytes_sent(messages)
    local once = (ranks - 1) * weights           -- every weight sent to all other ranks
    t.check(all >= 2 * once and all <= 3.05 * once,
            ("%d bytes were sent for weights of %d bytes"):format(all, weights))
    -- Weights and two moments; small tiles of weights are on every rank.
    local kept, before = sum_of(messages, "kept"), sum_of(same_bits(ranks, how .. "optimizer"),
                                                          "kept")
    t.check(kept <= 3.5 * weights and kept < before - 0.7 * once,
            ("the ranks keep %d bytes for weights of %d bytes, %d before"):format(kept, weights,
                                                                                  before))
  end
  same_bits(2, "shards=4 accum=8 layers=3 embd=128 shard=weights dtype=bf16")
end)

-- RANKS_TIERS: how many random cases.
t.case("ranks that have RAM and a disk of their own give the bits of one process", function()
  local disk, cases = t.folder(), tonumber(os.getenv "RANKS_TIERS") or 4
  math.randomseed(tonumber(os.getenv "NNLUA_TEST_SEED") or 5)
  local function one_of(list) return list[math.random(#list)] end
  for number = 1, cases do
    local ranks, times = 2 + number % 2, math.random(3)
    local shards = math.random(ranks, 4)
    local settings = "shards=%d accum=%d batch=%d layers=%d embd=%d clip=%d dtype=%s shard=%s"
    local words = settings:format(
      shards, shards * times, shards * times, math.random(3), one_of {96, 128}, math.random(0, 1),
      one_of {"f32", "bf16"}, number % 4 < 2 and "weights" or "optimizer")
    local peak = 0
    for bytes in same_bits(ranks, words):gmatch "peak (%d+)" do
      peak = math.max(peak, tonumber(bytes))
    end
    local ram, text, messages, status = math.floor(peak * (0.3 + 0.6 * math.random()))
    for _ = 1, 10 do             -- the least memory of one rank may be more than that of another
      text, messages, status = run(
        ("--ranks %d %s %s ram=%d disk=%s"):format(ranks, model, words, ram, disk),
        number % 2 == 0 and "NNLUA_CHECKS=tiles NNLUA_DELAYS=" .. math.random(1e6))
      local least = messages:match "a plan for this program needs at least .- of RAM %((%d+) "
      if not least then break end
      ram = math.floor(1.05 * tonumber(least))
    end
    t.check(status == 0 and text == alone[words], ("%s, %d ranks, status %d:\n%s%s"):format(
      words, ranks, status, messages, text))
    t.check(sum_of(messages, "written") > 0, "nothing was written to the disk: " .. messages)
  end
  t.same(files.list(disk), {})
end)

t.case("a weight that another rank keeps can be read by compiled functions only", function()
  need_mpi()
  local path = t.folder() .. "/read.lua"
  files.write(path, [[
    local nn = require "nn"
    nn.cluster {shard = "weights"}
    local w = nn.parameter({160, 160}, {value = 2})
    print("sum", nn.compile(function() return w:sum() end)():item())
    print("eager sum", w:sum():item())
  ]])
  local text, messages = run("--ranks 2 " .. path)
  t.check(text:find "sum%s+51200" and messages:find "only rank 0 keeps.*compiled function",
          text .. messages)
end)

t.case("a model in a folder is read and written by ranks that keep a part of it each", function()
  need_mpi()
  local folder = t.folder()
  files.write(folder .. "/copy.lua", [[
    local nn, GPT2 = require "nn", require "models.gpt2"
    nn.seed(3)
    nn.cluster {shard = "weights"}
    local from, to = arg[1], arg[2]
    local model = from == "new" and GPT2 {layers = 1, heads = 2, embd = 96, vocab = 120,
                                          context = 16} or nn.load_hf(from)
    nn.save_hf(to, model)
  ]])
  local function copy(ranks, from, to)
    local _, messages, status = run(("--ranks %d %s/copy.lua %s %s/%s"):format(
      ranks, folder, from == "new" and from or folder .. "/" .. from, folder, to))
    t.check(status == 0, messages)
    return files.crc32(files.read(("%s/%s/model.safetensors"):format(folder, to)))
  end
  local expected = copy(1, "new", "one")
  t.same(copy(2, "new", "two"), expected)
  t.same(copy(2, "one", "copy"), expected)
end)

t.case("nn.cluster keeps what is not given, and does not divide weights that exist", function()
  need_mpi()
  local path = t.folder() .. "/cluster.lua"
  files.write(path, [[
    local nn = require "nn"
    local cluster = require "nn.base.cluster"
    local function refused(options) print((select(2, pcall(nn.cluster, options)))) end
    refused {}
    refused {shard = "gradients"}
    nn.cluster {shard = "weights"}
    local first, second = nn.Linear(160, 160), nn.Linear(160, 160)
    nn.cluster {shards = 4}
    refused {shard = "optimizer"}
    print("shards", cluster.shards(), cluster.shards_weights())
    first:load(second:state())
    local same = nn.compile(function() return (first.weight - second.weight):abs():sum() end)
    print("difference", same():item())
    local optim = nn.AdamW(second)
    local step = nn.compile(function(x)
      optim:zero_grad()
      second(x):sum():backward()
      return optim:step()
    end)
    print("norm", step(nn.ones(2, 160)):item() > 0)
    print("changed", same():item() > 0)
  ]])
  local text, messages, status = run("--ranks 2 " .. path)
  t.check(status == 0, messages)
  for _, expected in ipairs {"give shards=, shard= or both", "shard is 'gradients'",
                             "comes too late", "shards%s+4%s+true", "difference%s+0\n",
                             "norm%s+true", "changed%s+true"} do
    t.check(text:find(expected), expected .. ": " .. text)
  end
end)

-- All ranks end with one message, which names the rank and the cause.
local function ends(how, expected, environment, steps)
  need_mpi()
  local _, messages, status = run(("--ranks 2 %s shards=2 steps=%d fail=%s"):format(
    model, steps or 1000, how), environment)
  t.check(status ~= 0 and status ~= 124, "the status is " .. status)
  messages = messages:gsub("sent rank [^\n]*\n", "")
  local count = select(2, messages:gsub("nnlua: ", ""))
  t.check(count == 1 and messages:find(expected),
          ("expected one message with '%s': %s"):format(expected, messages))
end

t.case("an error of one rank ends all", function()
  ends("error", "%[rank 1 on .-%] .*a rank fails")
end)
t.case("a killed rank ends all", function() ends("kill", "rank 1 on .- ended without an error") end)
t.case("a frozen rank ends all", function()
  ends("stop", "rank 1 on .- has been silent for 3 s", "NNLUA_HEARTBEAT=3")
end)

t.case("a rank that freezes after its last step ends all", function()
  ends("late", "rank 1 on .- has been silent for 3 s", "NNLUA_HEARTBEAT=3", 2)
end)

t.case("a pause of all ranks, longer than the limit, ends none", function()
  need_mpi()
  local _, messages, status = run(("--ranks 2 %s shards=2 steps=4 fail=pause"):format(model),
                                  "NNLUA_HEARTBEAT=2")
  t.check(status == 0, messages)
end)

t.case("a session and too few shards are refused", function()
  need_mpi()
  local _, messages = run "--ranks 2 -i"
  t.check(messages:find "a session runs on one rank only", messages)
  _, messages = run("--ranks 2 " .. model .. " shards=1")
  t.check(messages:find "shards=1 is too few for 2 ranks", messages)
end)

t.case("all ranks multiply as rank 0 does", function()
  need_mpi()
  local code = [[io.stderr:write(nn.version():match "products [^\n]*", "\n")]]
  local function rank(way)
    return ("-n 1 env NNLUA_PRODUCTS=%s '%s' -e '%s'"):format(way, program, code)
  end
  local command = "mpirun --quiet --allow-run-as-root --oversubscribe --bind-to none "
    .. rank "openblas" .. " : " .. rank "auto"
  local status, output = t.shell("timeout 60 " .. command)
  t.check(status == 0 and select(2, output:gsub("products f32 OpenBLAS, bf16 OpenBLAS", "")) == 2,
          output)
end)

t.case("all ranks use the ways of shapes that rank 0 measured or kept", function()
  need_mpi()
  local arguments = "shards=2 embd=128 batch=16"           -- products large enough for oneDNN
  local function command(cache, words)
    return ("env -u NNLUA_PRODUCTS -u NNLUA_ISA XDG_CACHE_HOME=%s %s '%s' %s"):format(
      cache, words or "", program, model .. " " .. arguments)
  end
  local folders, outputs = {t.folder(), t.folder()}, {}
  for way, cache in ipairs(folders) do
    t.shell(command(cache) .. " 2>&1")
    t.shell(("sed -i -E '2,$s/ [0-9]+$/ %d/' $(grep -l '^products by shape' %s/nnlua/choices-*)")
            :format(way - 1, cache))
    outputs[way] = select(2, t.shell(command(cache) .. " 2>/dev/null"))
    t.check(outputs[way]:find "loss", outputs[way])
  end
  if outputs[1] == outputs[2] then return end              -- no oneDNN
  local status, output = t.shell(
    "timeout 100 mpirun --quiet --allow-run-as-root --oversubscribe --bind-to none -n 1 "
    .. command(folders[2]) .. " : -n 1 " .. command(folders[1]) .. " 2>/dev/null")
  t.same(status, 0)
  t.same(output, outputs[2])
end)

t.case("ranks divide the batches of an evaluation, and all know its loss", function()
  need_mpi()
  local path, text = t.folder() .. "/evaluate.lua", t.folder() .. "/text.txt"
  files.write(path, [[
    local nn, GPT2 = require "nn", require "models.gpt2"
    nn.seed(1)
    nn.cluster {shard = arg[2]}
    local model = GPT2 {layers = 1, heads = 2, embd = 128, vocab = 65, context = 16}
    local data = nn.data({text = arg[1], val = arg[1], batch = 4}, {context = 16})
    local loss
    local profile = nn.profile(function() loss = nn.evaluate(model, data.val, 7) end)
    print(("loss %.17g tasks %d"):format(loss, profile.recorded))
  ]])
  files.write(text, ("the quick brown fox jumps over the lazy dog. "):rep(60))
  local function evaluate(ranks, shard)
    local output, messages, status = run(("--ranks %d %s %s %s"):format(ranks, path, text, shard),
                                         "NNLUA_ALL_RANKS=1")
    t.check(status == 0, messages)
    local losses, tasks = {}, 0
    for loss, count in output:gmatch "loss (%S+) tasks (%d+)" do
      losses[#losses + 1], tasks = loss, tasks + tonumber(count)
    end
    return losses, tasks
  end
  local expected, all_tasks = evaluate(1, "optimizer")
  local losses, tasks = evaluate(3, "optimizer")
  t.same(losses, {expected[1], expected[1], expected[1]})
  t.same(tasks, all_tasks)
  t.same(evaluate(3, "weights"), losses)
end)

t.case("numbers of ranks and names of hosts are checked before mpirun sees them", function()
  for _, number in ipairs {" 2", "+2", "2x", "0", "70000"} do
    local _, messages, status = run(("--ranks '%s' -e 'print(1)'"):format(number))
    t.check(status == 1 and messages:find("--ranks is '" .. number .. "'; a number", 1, true),
            messages)
  end
  for _, hosts in ipairs {"-oProxyCommand=x", "a,-b", "a,,b", "a b", "a;b", "a$(b)"} do
    local _, messages, status = run(("--ranks 2 --hosts '%s' -e 'print(1)'"):format(hosts))
    t.check(status == 1 and messages:find("--hosts is '" .. hosts .. "', in which", 1, true),
            messages)
  end
  local _, messages, status = run "--ranks '' -e 'print(1)'"
  t.check(status == 2 and messages:find "%-%-ranks needs an argument", messages)
end)

t.case("a host that cannot be reached is named", function()
  need_mpi()
  local folder = t.folder()
  files.write(folder .. "/ssh", "#!/bin/sh\nexit 255\n")
  os.execute("chmod +x " .. folder .. "/ssh")
  local _, messages, status = run("--ranks 2 --hosts localhost,nowhere.invalid -e 'print(1)'",
                                  "PATH=" .. folder .. ":$PATH")
  t.check(status == 255 and messages:find "%(localhost,nowhere.invalid%) must accept", messages)
end)

t.case("without mpirun the launcher says what to install", function()
  local _, messages, status = run("--ranks 2 -e 'print(1)'", "PATH=/nonexistent")
  t.check(status == 1 and messages:find "Install Debian's packages openmpi%-bin", messages)
end)

t.finish()
