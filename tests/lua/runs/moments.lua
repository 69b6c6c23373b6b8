-- Ctrl-C and SIGTERM at random moments of long operations, each in a process of its own: it ends,
-- and leaves no file but the checkpoints of a training. SIGNALS: how many moments for each of the
-- two signals; by default one moment, for one of them. Prints how long the slowest end took.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local MOMENTS = tonumber(os.getenv "SIGNALS")
local LIMIT = 60                 -- seconds from the signal to the end, also of a busy machine
local WITHIN = 3                 -- seconds in which an operation that takes longer gets its signal
math.randomseed(tonumber(os.getenv "NNLUA_TEST_SEED") or 1)

local folder = t.folder()
local function shell(text) return t.shell(("cd '%s'; "):format(folder) .. text) end

-- What the operations read: texts, tables, images, and a model with random weights.
local function write_inputs()
  local words = {}
  for i = 1, 400000 do words[i] = ("%x"):format(math.random(2 ^ 20)) end
  local text = table.concat(words, " "):gsub("0 ", "\n")
  files.write(folder .. "/text.txt", text)
  local rows = {"a,b,c"}
  for i = 2, 200000 do rows[i] = ("%d,%.6f,%s"):format(i, math.random(), words[i]) end
  files.write(folder .. "/table.csv", table.concat(rows, "\n") .. "\n")
  files.make_folder(folder .. "/images")
  for i = 1, 20 do
    nn.save_image(("%s/images/%d.png"):format(folder, i), nn.rand(3, 256, 256))
  end
  local model = require "models.gpt2" {layers = 6, heads = 6, embd = 384, context = 128,
                                       vocab = 256}
  nn.save_hf(folder .. "/model", model, nn.vocabulary "byte")
  files.write(folder .. "/model/chat_template.jinja",
              "{% for m in messages %}{{ m['content'] }}{% endfor %}")
  files.make_folder(folder .. "/disk")
end
write_inputs()

local function script(text) return ("$NNLUA -e '%s'"):format(text) end
local function recipe(name, words, options)
  return ("$NNLUA %s %s/recipes/%s.lua %s"):format(options or "", host.root, name, words)
end
local tiny = "data.text=text.txt data.vocabulary=byte model.layers=2 model.heads=2 model.embd=64 "
  .. "model.context=32 data.batch=4 steps=100000 sample_every=7 eval_every=5 eval_batches=4 "
local tiers = "memory.disk=disk memory.disk_in_ram=true "

-- ends: the seconds after which it usually ends without a signal; saves: it may leave a run in
-- out/; answers: Ctrl-C ends an answer; the program ends with its input.
local operations = {
  {"planning", recipe("gpt2_train", tiny .. tiers .. "--plan memory.ram=2GB model.layers=400")},
  {"loading a model", script [[while true do nn.load_hf "model" end]]},
  {"exporting a model", recipe("export", "model=model out=out"), ends = 0.6},
  {"writing token files", recipe("tokens_prepare", "input=text.txt out=out"), ends = 0.6},
  {"learning a tokenizer", recipe("tokens_prepare", "input=text.txt out=out learn=4000"), ends = 2},
  {"reading images", script [[
    local loader = nn.data {images = "images", batch = 4}
    while true do loader:batch() end]]},
  {"reading a table", script [[while true do nn.data {csv = "table.csv", batch = 4} end]]},
  {"an evaluation", recipe("gpt2_eval", "model=model text=text.txt")},
  {"a chat", recipe("chat", "model=model tokens=100000 < <(echo hello; sleep 3)"), answers = true},
  {"recording a program", script [[
    while true do
      nn.compile(function(x)
        for _ = 1, 2000 do x = x:relu() + 1 end
        return x
      end)(nn.ones(4))
    end]]},
  {"a training that saves often",
   recipe("gpt2_train", tiny .. "out=out save_every=1 model.embd=256"), saves = true},
  {"the start of ranks", recipe("gpt2_train", tiny .. "out=out cluster.shards=2", "--ranks 2"),
   saves = true, ranks = 2},
  {"a training with memory tiers", recipe("gpt2_train", tiny .. tiers .. "out=out memory.ram=6MB "
                                     .. "model.embd=128 model.layers=4"), saves = true},
}

-- All files and folders, apart from the log.
local function listing()
  return select(2, shell "find . -mindepth 1 -not -name log | sort")
end
local before = listing()

-- Runs a command, and sends it a signal after so many seconds -> its status, the seconds from the
-- signal to the end, and the output.
local function start(command, signal, seconds)
  local _, output = shell(([[
    set -m; ulimit -c 0
    (exec env --default-signal %s) >log 2>&1 & process=$!
    (timeout %d tail --pid=$process -f /dev/null || kill -KILL $process) >/dev/null 2>&1 &
    sleep %.3f; at=$(date +%%s%%N); kill -%s $process
    wait $process; echo "$? $((($(date +%%s%%N) - at) / 1000000)) ms"; cat log]]):format(
    command, LIMIT + math.ceil(seconds), seconds, signal))
  local status, took, rest = output:match "(%d+) (%d+) ms\n(.*)$"
  return tonumber(status), tonumber(took) / 1000, rest
end

-- What is wrong after an operation ended with this status, or nil. It may have ended before.
local function problem_of(operation, signal, status)
  local expected = signal == "INT" and 130 or 143
  local is_over = status == 0 and (operation.ends or operation.answers)
  if status ~= expected and not is_over then return "status " .. tostring(status) end
  if operation.saves then
    local left = select(2, shell "find . -name '*tmp*' -o -name '*lock*' -o -path './disk/*'")
    return left ~= "" and "it left " .. left or nil
  end
  local after = listing()
  if after ~= before and not is_over then return "it left other files:\n" .. after end
end

for number, operation in ipairs(operations) do
  t.case("a signal at any moment ends " .. operation[1], function()
    if operation.ranks then mpi.need() end
    local worst = 0
    for moment = 1, MOMENTS and 2 * MOMENTS or 1 do
      local signal = (MOMENTS and moment or number) % 2 == 1 and "INT" or "TERM"
      local at = (operation.ends or WITHIN) * math.random()
      local status, took, output = start(operation[2], signal, at)
      local problem = problem_of(operation, signal, status)
      t.check(not problem, ("SIG%s after %.2f s: %s\n%s"):format(signal, at, problem or "", output))
      if status ~= 0 then worst = math.max(worst, took) end      -- else it ended by itself
      shell "rm -rf out"
    end
    print(("  %s: the slowest end took %.2f s"):format(operation[1], worst))
  end)
end

t.finish()
