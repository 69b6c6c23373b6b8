-- Common mistakes, and the one line that reports each: no traceback, no C++ frames, status 1. Most
-- cases run the recipe as a user does; the last ones call the library.
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local folder = t.folder()
local fox = ("the quick brown fox jumps over the lazy dog.\n"):rep(50)
local function write(name, text) files.write(files.join(folder, name), text) end
local function write_ids(name, count, value)
  local ids = ffi.new("uint16_t[?]", count)
  for i = 0, count - 1 do ids[i] = value or i % 8 end
  write(name, ffi.string(ids, 2 * count))
end
write("text.txt", fox)

local small = "model.layers=1 model.embd=32 model.heads=2 model.dtype=f32 model.context=16 "
  .. "data.batch=4 steps=4 eval_every=0 final_batches=2 sample.tokens=4 schedule.warmup=1 "
  .. "log_every=1 "
-- Leaves out what a plan says that takes more than a second, as on a busy machine.
local function train(arguments)
  local status, output = t.shell(("cd %s && $NNLUA %s/recipes/gpt2_train.lua %s%s"):format(
    folder, host.root, small, arguments))
  return status, (output:gsub("planning: [^\n]*\n", ""))
end
-- The recipe with these settings must print exactly this line to standard error, with status 1.
local function says(arguments, message)
  local status, output = train(arguments .. " 2>&1 >/dev/null")
  t.same(output, "nnlua: " .. message .. "\n")
  t.same(status, 1)
end

t.case("unknown and mistyped settings", function()
  says("optim.lrr=1", "unknown setting 'optim.lrr'; did you mean 'optim.lr'?")
  says("model.layers=many", "'model.layers' must be a whole number, not 'many'")
  says("model.layers=1.5", "'model.layers' must be a whole number, not '1.5'")
  says("preset=gtp2", "unknown preset 'gtp2'; did you mean 'gpt2'? "
       .. "(presets: char, demo, finetune, gpt2, gpt2-large, gpt2-medium, gpt2-xl, "
       .. "gpt3-175b, gpt3-2.7b, gpt3-6.7b)")
  says("--plam", "unknown setting 'plam'; did you mean 'plan'?")
  t.same(files.list(folder), {"text.txt"})              -- nothing was made
end)

t.case("a learning rate below the schedule's end", function()
  for _, more in ipairs {"", " --plan"} do
    says("optim.lr=1e-5" .. more, "schedule: min_lr=0.0001 is larger than lr=1e-05; lower "
         .. "schedule.min_lr or raise optim.lr")
  end
  t.same(files.list(folder), {"text.txt"})              -- nothing was made
end)

t.case("missing, empty and too short data", function()
  write("empty.txt", "")
  write("short.txt", ("x"):rep(100))
  write_ids("short.bin", 17)
  write_ids("enough.bin", 100)
  write("odd.bin", "abc")
  says("data.text=none.txt", "cannot read data.text 'none.txt': No such file or directory")
  says("data.text=/tmp", "data.text '/tmp' is a folder; convert its files: nnlua "
       .. "recipes/tokens_prepare.lua input=/tmp out=data; then use data.bin=data/train.bin "
       .. "data.val=data/val.bin")
  says("data.text=none.txt.gz", "cannot read data.text 'none.txt.gz': No such file or directory")
  says("data.text=empty.txt", "data.text 'empty.txt' is empty")
  says("data.text=short.txt", "data.text 'short.txt', validation part: 10 tokens are too few for a "
       .. "context of 16, which needs at least 17; give more data, a smaller model.context, or a "
       .. "validation file (data.val)")
  says("data.text=text.txt model.context=4000", "data.text 'text.txt', training part: 2025 tokens "
       .. "are too few for a context of 4000, which needs at least 4001; give more data or a "
       .. "smaller model.context")
  says("data.bin=none.bin", "cannot read data.bin 'none.bin': No such file or directory")
  says("data.bin=empty.txt", "data.bin 'empty.txt' is empty")
  says("data.bin=odd.bin", "data.bin 'odd.bin' has 3 bytes, an odd number; it must contain uint16 "
       .. "token ids, or have a header")
  says("data.bin=enough.bin data.val=empty.txt", "data.val 'empty.txt' is empty")
  write_ids("sixteen.bin", 16)
  says("data.bin=enough.bin data.val=sixteen.bin", "data.val 'sixteen.bin': 16 tokens are too few "
       .. "for a context of 16, which needs at least 17; give more data, a smaller model.context, "
       .. "or a validation file (data.val)")
  local status = train "data.bin=short.bin data.val=short.bin model.vocab=8"
  t.same(status, 0)                                     -- 17 tokens suffice
  says("data.text=text.txt data.bin=enough.bin", "give data.text or data.bin, not both")
  says("data.text=odd.bin data.val=text.txt", "data.val 'text.txt': the character 't' at byte 0 is "
       .. "not in the vocabulary")
end)

t.case("pipes, devices and sockets are refused where a file is read", function()
  t.shell(("mkfifo %s/pipe; cp %s/text.txt %s/real.txt"):format(folder, folder, folder))
  local why = "it is a pipe; a regular file is needed"
  says("data.text=pipe", "cannot read data.text 'pipe': " .. why)
  says("data.bin=pipe", "cannot read data.bin 'pipe': " .. why)
  says("data.text=real.txt data.val=pipe", "cannot read data.val 'pipe': " .. why)
  says("data.text=/dev/zero", "cannot read data.text '/dev/zero': it is a device; a regular file "
       .. "is needed")
  for _, action in ipairs {"nn.tokenizer 'pipe.json'", "nn.load_safetensors 'pipe'",
                           "nn.train_tokenizer {files = {'pipe'}}", "nn.machine 'pipe'",
                           "require('nn.io.stream').open 'pipe'"} do
    t.shell(("ln -sf pipe %s/pipe.json"):format(folder))
    local status, output = t.shell(('cd %s; timeout 20 $NNLUA -e "%s" 2>&1'):format(folder, action))
    t.same({status, output:find "cannot read" ~= nil}, {1, true}, action)
  end
end)

t.case("token ids outside the vocabulary", function()
  local count = 2000
  local ids = ffi.new("uint16_t[?]", count)
  ids[1950] = 5030                                      -- in the validation split
  write("high.bin", ffi.string(ids, 2 * count))
  write_ids("all.bin", 400, 9)
  local status, output = train "data.bin=high.bin model.vocab=999 final_batches=0 2>&1 >/dev/null"
  t.same(output, "nnlua: data.bin 'high.bin': token 5030 at position 1950 (from 0), the largest "
         .. "one, is outside the vocabulary of 999; nothing in the file says that it has 16-bit "
         .. "ids; give its tokenizer (data.vocabulary), or state the dtype of its ids "
         .. "(data.dtype)\n")
  t.same(status, 1)
  status, output = train "data.bin=all.bin data.dtype=uint16 model.vocab=9 2>&1 >/dev/null"
  t.same(output, "nnlua: data.bin 'all.bin': token 9 at position 0 (from 0), the largest one, is "
         .. "outside the vocabulary of 9; set model.vocab to the vocabulary size of the file\n")
  t.same(status, 1)
  write_ids("good.bin", 400)
  status, output = train "data.bin=good.bin data.val=all.bin model.vocab=9 final_batches=1 2>&1"
  t.check(output:find("nnlua: data.val 'all.bin': token 9 at position 0 (from 0), the largest one, "
          .. "is outside the vocabulary of 9; nothing in the file", 1, true), output)
  t.check(not output:find("step ", 1, true), "it is found before the first step")
  t.same(status, 1)
  says("data.text=text.txt model.vocab=5", "data.text 'text.txt' has 29 different symbols, but "
       .. "model.vocab is 5; use model.vocab=0")
end)

t.case("text that is not UTF-8", function()
  write("latin1.txt", fox .. "na\239ve " .. fox)
  says("data.text=latin1.txt", "data.text 'latin1.txt': byte 2252 is not UTF-8 text; convert the "
       .. "file, or use data.vocabulary=byte")
  t.same(train "data.text=latin1.txt data.vocabulary=byte", 0)
end)

t.case("a hidden size that is not a multiple of the heads", function()
  says("data.text=text.txt model.heads=5", "gpt2: embd = 32 is not a multiple of heads = 5; choose "
       .. "one, such as 35")
end)

t.case("a model or a step that cannot fit is refused before anything is computed", function()
  local status, output = train("data.text=text.txt memory_gb=2 model.layers=48 model.embd=1600 "
                               .. "model.heads=25 2>&1 >/dev/null")
  t.same(status, 1)
  t.check(output:find("^nnlua: the training cannot fit: 1%.48B parameters in 580 tiles and %d+ "
          .. "tokens a step, in microbatches of %d+, need at least 17%.%d GB, 2%.0 GB are "
          .. "available; lower"), output)
  status, output = train "data.text=text.txt data.batch=6000 memory_gb=0.05 2>&1 >/dev/null"
  t.same(status, 1)
  t.check(output:find("^nnlua: the training cannot fit: a step needs %d+ MB %(%d+ bytes: %d+ kB of "
          .. "parameters and moments, %d+ MB of gradients and activations%), 50 MB "
          .. "%(50000000 bytes%) are available; to make it fit: a lower data%.batch %(and a "
          .. "higher data%.accum%); or %d+ MB of RAM %(memory_gb%); or memory%.disk=FOLDER, with "
          .. "which %-%-plan shows the speed; or a lower model%.context, model%.layers or "
          .. "model%.embd\n$"), output)
  local before = files.list(folder)
  t.same(train "data.text=text.txt data.batch=8192 memory_gb=0.05 out=a/b", 1)
  t.same(files.list(folder), before)   -- no file was created
end)

t.case("a smaller batch or a disk is advised only where it makes the training fit", function()
  local large = "data.text=text.txt model.layers=4 model.embd=256 model.heads=4 data.batch=4 "
  local function advice(settings)
    local status, output = train(large .. settings .. " out=c 2>&1 >/dev/null")
    t.check(status == 1 and output:find "^nnlua: the training cannot fit: ", output)
    return output:find("data.batch", 1, true) ~= nil, output:find("memory.disk", 1, true) ~= nil
  end
  local function with_disk(ram)
    return t.shell(("cd %s && $NNLUA %s/recipes/gpt2_train.lua %s%s memory.ram=%s memory.disk=. "
      .. "memory.disk_in_ram=true --plan"):format(folder, host.root, small, large, ram))
  end
  -- Parameters and moments alone need more.
  t.same({advice "memory_gb=0.02"}, {false, true})
  t.same((with_disk "20MB"), 0)
  -- Not even the largest task fits.
  t.same({advice "memory_gb=0.005"}, {false, false})
  local status, output = with_disk "5MB"
  t.check(status == 1 and output:find "is 5%.0 MB; raise memory%.ram\n$", output)
  -- Activations are what is missing; ids and targets are never on the disk.
  t.same({advice "memory_gb=0.1 data.batch=60000"}, {true, true})
  t.same({advice "memory_gb=0.1 data.accum=10000000"}, {true, false})
  -- A batch of 1 needs too much, by the plan and not by arithmetic alone.
  t.same({advice "memory_gb=0.045 data.batch=1"}, {false, true})
  t.check(select(2, train(large .. "memory_gb=0.045 data.batch=1 out=c 2>&1")):find "a step needs")
end)

t.case("an output folder that cannot be written to is found before training", function()
  says("data.text=text.txt out=text.txt/run", "cannot create the output folder 'text.txt/run': "
       .. "Not a directory")
  says("out=text.txt", "the output folder 'text.txt' is not a folder")
  says("out=/proc/nnlua", "cannot create the output folder '/proc/nnlua': No such file or "
       .. "directory")
  says("out=/proc/self", "cannot write '/proc/self/run.lock': No such file or directory")
end)

t.case("a diverging learning rate stops the run at the step, with what to do", function()
  local status, output = train "data.text=text.txt optim.lr=1e38 steps=20 out=nan 2>&1 >/dev/null"
  t.same(status, 1)
  t.check(output:find("^nnlua: the [%w ]+ is %-?[naif]+ at step %d; lower optim.lr or lengthen "
          .. "schedule.warmup, or skip such steps with on_nan=skip. No checkpoint was saved "
          .. "yet\n$"), output)
  status, output = train "data.text=text.txt optim.lr=1e38 steps=60 out=nan2 on_nan=skip 2>&1"
  t.same(status, 1)
  t.check(output:find "step %d: the [%w ]+ is %-?[naif]+; this step changes nothing\n", output)
  t.check(output:find "%(20 steps in a row were skipped%)%. No checkpoint was saved yet\n$", output)
end)

t.case("a damaged checkpoint stops resume=PATH; resume=auto takes the previous one", function()
  t.same(train "data.text=text.txt out=saved save_every=2 keep=5", 0)
  local path = files.join(folder, "saved/checkpoint-000004/model.safetensors")
  local text = files.read(path)
  files.write(path, text:sub(1, 500) .. "\1" .. text:sub(502))
  local why = "model.safetensors is damaged (its CRC-32 differs from the saved one)"
  says("data.text=text.txt out=other resume=saved/checkpoint-000004",
       "the checkpoint 'saved/checkpoint-000004' cannot be used: " .. why)
  local status, output = train "data.text=text.txt out=saved resume=auto save_every=2 keep=5"
  t.same(status, 0)
  t.check(output:find("warning: 'saved/checkpoint-000004' cannot be used: " .. why .. "\n", 1, true)
          and output:find("resumed after step 2 from saved/checkpoint-000002", 1, true), output)
  files.remove(files.join(folder, "saved/checkpoint-000002/optimizer.safetensors"))
  files.remove(files.join(folder, "saved/checkpoint-000004/state.json"))
  says("data.text=text.txt out=saved resume=auto",
       "no checkpoint in 'saved' can be used; to start again, use another out=")
  says("data.text=text.txt out=new resume=nowhere", "there is no checkpoint in 'nowhere'; resume "
       .. "must be none, auto, a checkpoint or a run's folder")
  says("data.text=text.txt out=saved", "'saved' already contains a run, up to step 4; resume it "
       .. "with resume=auto, or choose another out=")
end)

t.case("a checkpoint of another model is refused", function()
  t.same(train "data.text=text.txt out=narrow", 0)
  says("data.text=text.txt out=narrow resume=auto model.embd=64", "'narrow/checkpoint-000004' "
       .. "belongs to another model: model.embd=64 (it was 32)")
end)

t.case("more tokens than the model's context", function()
  local model = GPT2 {layers = 1, heads = 1, embd = 8, context = 4, vocab = 10}
  local ids = nn.tensor({{1, 2, 3, 4, 5}}, {dtype = "i32"})
  t.fails(function() model(ids) end, "bad_input.lua:242: gpt2: 5 tokens are more than the model's "
          .. "context of 4")
end)

t.case("an invalid number of workers, and a script without its extension", function()
  for _, number in ipairs {"x", "0", "-1", "1.5", "2x", "100000"} do
    local _, output = t.shell(("NNLUA_CPUS=%s $NNLUA -e 'nn.ones(3):sum():item()' 2>&1"):format(
      number))
    local what = ("NNLUA_CPUS is '%s'; a number of workers from 1 to "):format(number)
    t.check(output:find(what, 1, true), output)
  end
  local status, output = t.shell(("cd %s; $NNLUA recipes/runs 2>&1"):format(host.root))
  t.same({status, output}, {1, "nnlua: cannot open recipes/runs: No such file or directory; did "
                            .. "you mean 'recipes/runs.lua'?\n"})
end)

t.case("scripts have nn, and errors explain what cannot be loaded", function()
  files.write(folder .. "/own.lua", "local x = nn.ones(1)\nprint(x:item())\n")
  files.write(folder .. "/python.lua", "local x = 1\nx += 1\n")
  local _, output = t.shell(([[cd %s; for script in own python own_ recipes/gpt2_trian
    do $NNLUA $script.lua; done; echo 'print(nn.ones(1):item() + 1)' | $NNLUA -]]):format(folder))
  t.same(output, "1\nnnlua: python.lua:2: '=' expected near '+'; Lua has no +=; write x = x + 1\n"
         .. "nnlua: cannot open own_.lua: No such file or directory; did you mean 'own.lua'?\n"
         .. "nnlua: cannot open recipes/gpt2_trian.lua: No such file or directory; did you mean "
         .. "'recipes/gpt2_train.lua'?\n2\n")
end)

t.case("more workers than cores give one warning", function()
  local status, output = t.shell [[
    NNLUA_CPUS=$((2 * $(nproc))) $NNLUA -e '
      nn.ones(3):sum():item(); print(nn.ones(2):sum():item())' 2>&1]]
  t.same(status, 0)
  local said = "nnlua: warning: NNLUA_CPUS=%d+ asks for more workers than the %d+ cores? "
  t.same(select(2, output:gsub(said, "")), 1, output)
  t.check(output:find "2\n$", output)
end)

t.case("shapes and dtypes that do not match name both", function()
  local function message(code)
    local status, output = t.shell("$NNLUA -e '" .. code .. "' 2>&1")
    t.same(status, 1)
    t.check(not output:find("\n.", 1), output)          -- one line
    return output
  end
  local shapes = message "return nn.ones(2, 3):matmul(nn.ones(4, 5))"
  t.check(shapes:find "matmul: .*%(2,3%).*%(4,5%)", shapes)
  local dtypes = message "return nn.ones(2, 3):matmul(nn.ones(3, 5, {dtype = \"f64\"}))"
  t.check(dtypes:find "matmul: .*f64.*f32", dtypes)
  local ids = message "nn.Embedding(4, 2)(nn.ones(1, 3))"
  t.check(ids:find "embedding: .*f32", ids)
end)

t.finish()
