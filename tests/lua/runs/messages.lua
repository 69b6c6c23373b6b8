-- What a run says at its start and at its end: ranks, what it resumes, the command that resumes it,
-- validations and their time.
local beginning = require "nn.train.beginning"
local command = require "nn.train.command"
local files = require "nn.io.files"
local host = require "nn.host"
local log = require "nn.train.log"
local metrics = require "nn.train.metrics"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local quietly = require "printed"

local folder = t.folder()
local text = files.join(folder, "text")
files.write(text, ("some text. "):rep(200))

local function settings()
  return nn.config({nn.run_fields {steps = 2, out = t.folder(), save_every = 0}}, {})
end

t.case("resume=RUN goes on in the folder of the run; a checkpoint begins another one", function()
  local out = t.folder()
  local default = folder .. "/default"
  local function opened(...)
    local run = nn.run(nn.config({preset = "x", nn.run_fields {steps = 1, out = default}}, {...}))
    if run.lock then run.lock:release() end
    return run.out, run.checkpoint.path
  end
  local path = nn.save_checkpoint(out, {step = 1, model = nn.Linear(1, 1), config = {}})
  t.same({opened("resume=" .. out .. "/")}, {out, path})
  t.same({opened("resume=" .. out, "preset=y")}, {out, path})
  t.same({opened("resume=" .. path)}, {default, path})
  for _, name in ipairs {folder .. "/none", default} do
    t.fails(function() opened("resume=" .. name, "out=" .. name) end,
            ("there is no checkpoint in '%s'; resume must be"):format(name))
  end
  t.same({opened("resume=" .. path, "out=" .. folder .. "/other")}, {folder .. "/other", path})
end)

t.case("resume=auto says that there is no run, and which ones there are", function()
  local place = t.folder()
  local function said() return beginning.nothing_to_resume(place .. "/chra") end
  t.same(said(), ("resume=auto: there is no run in %s/chra yet; starting at step 1"):format(place))
  for _, name in ipairs {"char", "no run", "demo"} do files.make_folder(place .. "/" .. name) end
  for _, name in ipairs {"char", "demo"} do
    files.write(files.join(place, name .. "/metrics.jsonl"), "")
  end
  t.check(said():find((". Runs beside it: %s/char, %s/demo (resume=RUN resumes one)"):format(
    place, place), 1, true), said())
end)

t.case("the command that resumes is what a user types", function()
  local function commands(named, ...)
    local words = {[-1] = "build/nnlua", [0] = "recipes/train.lua", ...}
    return {command.resume("runs/my run", words, named), command.typed(words, named)}
  end
  t.same(commands("", "preset=char", "optim.lr=1", "--profile", "a file", "out=runs/my run"), {
    "build/nnlua recipes/train.lua 'a file' 'resume=runs/my run'",
    "build/nnlua recipes/train.lua preset=char optim.lr=1 --profile 'a file' 'out=runs/my run'"})
  t.same(commands("no/nnlua")[2], "build/nnlua recipes/train.lua")     -- from another folder
  t.same(commands("nnlua")[2], "nnlua recipes/train.lua")              -- in PATH
  t.same(commands(host.root .. "/nnlua")[2], host.root .. "/nnlua recipes/train.lua")
  local function script(path) return command.typed({[-1] = "nnlua", [0] = path}, "") end
  t.same(script(host.root .. "/recipes/no.lua"), "nnlua recipes/no.lua")
  t.same(script(host.root .. "/no.lua"), "nnlua " .. host.root .. "/no.lua")
end)

t.case("a validation shows its progress, and each result names its batches", function()
  local cfg, shown = settings(), {}
  local printed = quietly(function()
    local run = nn.run(cfg)
    local data = nn.data({text = text, batch = 2, vocabulary = "byte"}, {context = 8})
    local model = GPT2 {layers = 1, heads = 1, embd = 4, context = 8, vocab = 256}
    run:track {model = model, data = data.train}
    function run.log.validating(_, done, total)
      shown[#shown + 1] = done .. "/" .. total
      if done == total and total > 2 then os.execute "sleep 1" end
    end
    for _ in run:steps() do run:record(nn.tensor(1)) end
    run:report {val_loss = run:validate(model, data.val, 2), other = 3}
    run:report {val_loss = 1}
    run:done {val_loss = run:validate(model, data.val)}
  end)
  t.same(table.concat(shown, " "):sub(1, 23), "0/2 1/2 2/2 0/14 1/14 2")
  t.same(shown[#shown], "14/14")
  t.check(printed:find "\nstep 2/2  other 3%.0000  val_loss %d%.%d+ %(2 of 14 batches%)\n", printed)
  t.check(printed:find("\nstep 2/2  val_loss 1.0000\n", 1, true), printed)
  local total, training, validation = printed:match("\ndone after (%d+)s %((%d+)s of training, "
    .. "(%d+)s of validation%): val_loss %d%.%d+ %(all 14 batches%); saved in ")
  t.check(tonumber(total) >= 1 and tonumber(training) == 0 and tonumber(validation) >= 1, printed)
  t.same(require("nn.train.validation").label {batches = 1, all = 1}, "1 batch")
  local done = metrics.read(cfg.out).done
  t.same({done.validation.batches, done.validation.all}, {14, 14})
  t.check(done.seconds >= done.train_seconds + done.validation.seconds, done.seconds)
end)

t.case("run:done() without numbers ends a run", function()
  local cfg = settings()
  local printed = quietly(function()
    local run = nn.run(cfg)
    run:track {model = GPT2 {layers = 1, heads = 1, embd = 4, context = 8, vocab = 256}}
    for _ in run:steps() do run:record(nn.tensor(1)) end
    run:done()
  end)
  t.check(printed:find("\ndone after %d[^\n]* of training%); saved in "), printed)
  t.same({metrics.read(cfg.out).done.step, metrics.read(cfg.out).done.val_loss}, {2})
end)

t.case("without a terminal, a long validation is a line every ten seconds", function()
  local printed = quietly(function()
    local quiet = log.new(folder)
    for done = 0, 10 do quiet:validating(done, 10, 3 * done) end
  end)
  t.same(printed, "validating: batch 4 of 10  eta 18s\nvalidating: batch 8 of 10  eta 6s\n")
end)

t.case("ranks that share a core are warned about", function()
  local crowded = beginning.crowded
  t.same(crowded {"a 0", "a 1", "b 0-3"}, nil)
  t.same(crowded {"b 0", "a 0", "a 1", "a 0"}, "3 ranks share 2 cores on a, and a rank that waits "
         .. "keeps another one from computing; start at most 2 there")
  t.same(crowded({"a 0", "a 0"}):match "^[^,]*", "2 ranks share 1 core on a")
end)

t.finish()
