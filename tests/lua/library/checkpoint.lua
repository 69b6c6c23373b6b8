-- safetensors files, valid and not; checkpoints: exact resume, damage, and which files are kept.
local ffi = require "ffi"
local checkpoint = require "nn.models.checkpoint"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local folder = t.folder()
local function write(name, text)
  local path = files.join(folder, name)
  files.write(path, text)
  return path
end

t.case("tensors of every dtype load with the saved bits", function()
  local path = files.join(folder, "all.safetensors")
  local tensors = {scalar = nn.tensor(2.5), ["a.b"] = nn.randn(3, 5, 2), one = nn.tensor {{-1e30}}}
  for _, dtype in ipairs {"f64", "bf16", "i32", "i64", "u8"} do
    tensors[dtype] = nn.tensor({{1, 2, 3}, {4, 100, 6}}, {dtype = dtype})
  end
  tensors.bool = nn.tensor {true, false, true}
  nn.save_safetensors(path, tensors, {note = "ä \"quoted\""})
  local back, metadata = nn.load_safetensors(path)
  t.same(metadata, {note = "ä \"quoted\""})
  for name, tensor in pairs(tensors) do
    t.same({back[name].dtype, back[name].shape}, {tensor.dtype, tensor.shape})
    t.same(back[name], tensor)
  end
  local count = 0
  for _ in pairs(back) do count = count + 1 end
  t.same(count, 9)
end)

t.case("a file has the layout of the public format", function()
  local path = files.join(folder, "layout.safetensors")
  nn.save_safetensors(path, {x = nn.tensor {{1, 2}}, y = nn.tensor({7}, {dtype = "i32"})})
  local text = files.read(path)
  local header = '{"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},'
    .. '"y":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}}'
  header = header .. (" "):rep(-#header % 8)
  t.same(text:sub(1, 8), string.char(#header) .. ("\0"):rep(7))
  t.same(text:sub(9, 8 + #header), header)
  t.same(text:sub(9 + #header), "\0\0\128\63\0\0\0\64\7\0\0\0")
end)

-- Writes a file with this header and so many bytes of data.
local function forged(header, bytes, length)
  length = length or #header
  local count = ffi.new("uint64_t[1]", length)
  return write("forged.safetensors", ffi.string(count, 8) .. header .. ("\0"):rep(bytes or 0))
end

t.case("a damaged or hostile safetensors file is an error that names the problem", function()
  local function says(message, header, bytes, length)
    local path = forged(header, bytes, length)
    t.same(t.fails(function() nn.load_safetensors(path) end, ""):match "^%S+:%d+: (.*)$",
           path .. " is not a valid safetensors file: " .. message)
  end
  local function entry(dtype, shape, from, to)
    return ('{"dtype":"%s","shape":%s,"data_offsets":[%s,%s]}'):format(dtype, shape, from, to)
  end
  local path = write("short.safetensors", "abc")
  t.fails(function() nn.load_safetensors(path) end, "3 bytes are too few for a header")
  says("a header of 99 bytes in a file of 10", "{}", 0, 99)
  says("a header of 18446744073709551616 bytes in a file of 10", "{}", 0, 2ULL ^ 64 - 1)
  says("its header is not a JSON object", "7")
  t.fails(function() nn.load_safetensors(forged "{no}") end, "its header is not JSON (")
  t.fails(function() nn.load_safetensors(forged(("["):rep(5000))) end, "its header is not JSON (")
  says("the entry 'x' is not an object", '{"x":3}')
  says("'x' has no dtype, which is a text such as F32",
       '{"x":{"shape":[1],"data_offsets":[0,4]}}', 4)
  says("'x' has no valid shape", '{"x":' .. entry("F32", '"no"', 0, 4) .. "}", 4)
  says("'x' has no valid shape", '{"x":' .. entry("F32", "[-1]", 0, 4) .. "}", 4)
  says("shape is [1.5]; whole numbers in digits only are needed",
       '{"x":' .. entry("F32", "[1.5]", 0, 6) .. "}", 6)
  says("'x' has no valid shape", '{"x":' .. entry("F32", "[4294967296,4294967296]", 0, 4) .. "}", 4)
  says("'x' has no valid data_offsets", '{"x":' .. entry("F32", "[1]", 4, 0) .. "}", 4)
  says("'x' has no valid data_offsets", '{"x":' .. entry("F32", "[1]", -4, 0) .. "}", 4)
  says("'x' has no valid data_offsets", '{"x":{"dtype":"F32","shape":[1],"data_offsets":[0]}}', 4)
  says("'x' ends at byte 8 of the data's 4", '{"x":' .. entry("F32", "[2]", 0, 8) .. "}", 4)
  says("'x' has 8 bytes; its shape and dtype need 4", '{"x":' .. entry("F32", "[1]", 0, 8) .. "}",
       8)
  says("'y' overlaps the tensor before it", '{"x":' .. entry("F32", "[2]", 0, 8) .. ',"y":'
       .. entry("F32", "[2]", 4, 12) .. "}", 12)
  says("there is a hole before 'y'", '{"x":' .. entry("F32", "[1]", 0, 4) .. ',"y":'
       .. entry("F32", "[1]", 8, 12) .. "}", 12)
  says("4 bytes at its end belong to no tensor", '{"x":' .. entry("F32", "[1]", 0, 4) .. "}", 8)
  says("its __metadata__ is not an object", '{"__metadata__":3}')
  t.fails(function() nn.load_safetensors(folder .. "/none") end, "No such file or directory")
end)

t.case("no truncated header and no flipped byte of one crashes or loads wrong data", function()
  local path, wrong = files.join(folder, "fuzz.safetensors"), "not a valid safetensors"
  nn.save_safetensors(path, {x = nn.tensor {{1, 2}}, y = nn.tensor({7}, {dtype = "i32"})})
  local text = files.read(path)
  for cut = 0, #text - 1 do
    t.fails(function() nn.load_safetensors(write("cut", text:sub(1, cut))) end, wrong)
  end
  for at = 1, #text do
    for _, flip in ipairs {1, 16, 128} do
      local byte = bit.bxor(text:byte(at), flip)
      local forge = write("flip", text:sub(1, at - 1) .. string.char(byte) .. text:sub(at + 1))
      local good, problem = pcall(nn.load_safetensors, forge)
      t.check(good or tostring(problem):find(wrong, 1, true), tostring(problem))
    end
  end
end)

local config = {layers = 1, heads = 2, embd = 16, context = 8, vocab = 20, dropout = 0.1}
local function training(seed)
  nn.seed(seed)
  local model = GPT2(config)
  local optim = nn.AdamW(model, {lr = 1e-2, clip = 1})
  local ids = {}
  for i = 1, 300 do ids[i] = (i * i) % 20 end
  local bin = files.join(folder, "tokens.bin")
  files.write(bin, ffi.string(ffi.new("uint16_t[300]", ids), 600))
  local settings = nn.config({nn.data_fields {bin = bin, batch = 2}}, {})
  local data = nn.data(settings, {context = 8, vocab = 20})
  local step = nn.compile(function(x, y)
    local loss = model(x, y)
    loss:backward()
    return loss, optim:step()
  end)
  local parts = {model = model, optim = optim, data = data.train}
  local function train(steps)
    local losses = {}
    for i = 1, steps do
      local loss, norm = step(data.train:batch())
      losses[i] = {loss:item(), norm:item()}
    end
    return losses
  end
  return parts, train
end
local function save(out, parts, step, keep)
  return nn.save_checkpoint(out, {model = parts.model, optim = parts.optim, data = parts.data,
                                  step = step, keep = keep, config = {model = config}})
end

t.case("a resumed run continues to the bit, with dropout and another seed at the start", function()
  local out = t.folder()
  local parts, train = training(1)
  train(5)
  local path = save(out, parts, 5)
  local expected = train(5)
  local others, go_on = training(99)
  t.same(nn.open_checkpoint(path):restore(others), true)
  t.same(go_on(5), expected)
  for i, p in ipairs(parts.model:state()) do t.same(others.model:state()[i].tensor, p.tensor) end
  for i, p in ipairs(parts.optim:state()) do t.same(others.optim:state()[i].tensor, p.tensor) end
end)

t.case("a checkpoint written in the background equals one that training waits for", function()
  for _, tiles in ipairs {{}, {tokens = 3, vocab = 7}} do
    nn.tiles {tokens = tiles.tokens or 0, vocab = tiles.vocab or 0}
    local out = t.folder()
    local parts, train = training(1)
    train(3)
    local waited = save(files.join(out, "waited"), parts, 3)
    local saving = checkpoint.start(out, {model = parts.model, optim = parts.optim, step = 3,
                                          data = parts.data, config = {model = config}})
    t.same(#checkpoint.list(out), 0)
    train(5)
    local path = saving:finish()
    for _, name in ipairs(files.list(waited)) do
      t.check(files.read(files.join(path, name)) == files.read(files.join(waited, name)), name)
    end
    local others, go_on = training(5)
    nn.open_checkpoint(path):restore(others)
    go_on(5)
    for i, p in ipairs(parts.model:state()) do t.same(others.model:state()[i].tensor, p.tensor) end
  end
  nn.tiles {tokens = 0, vocab = 0}
end)

t.case("an abandoned checkpoint leaves no files", function()
  local out = t.folder()
  local parts = training(1)
  checkpoint.start(out, {model = parts.model, optim = parts.optim, step = 1}):abandon()
  t.same(files.list(out), {})
end)

t.case("a tensor that was not computed is not written, and the error says so", function()
  local path = files.join(folder, "failed.safetensors")
  local weight = nn.randn(5, 4)
  local x = nn.embedding(nn.tensor({1, 9}, {dtype = "i32"}), weight)
  t.fails(function() nn.save_safetensors(path, {x = x}) end, "embedding")
  nn.sync()
  t.fails(function() nn.save_safetensors(path, {x = x}) end, "a task before it failed")
end)

t.case("only the newest checkpoints are kept, and no partial ones", function()
  local out = t.folder()
  local parts = training(1)
  files.make_folder(files.join(out, "checkpoint-000002.tmp"))     -- of a killed process
  files.make_folder(files.join(out, "checkpoint-000002.bak"))     -- the user's
  for step = 1, 5 do save(out, parts, step, 2) end
  t.same(files.list(out), {"checkpoint-000002.bak", "checkpoint-000004", "checkpoint-000005"})
  files.remove(files.join(out, "checkpoint-000002.bak"))
  t.same(files.list(files.join(out, "checkpoint-000005")),
         {"model.safetensors", "optimizer.safetensors", "state.json"})
  save(out, parts, 3, 1)                              -- resumed earlier: later ones stay
  t.same(files.list(out), {"checkpoint-000003", "checkpoint-000004", "checkpoint-000005"})
end)

local function damage(path, how)
  local text = files.read(path)
  if how == "truncated" then
    files.write(path, text:sub(1, -2))
  elseif how == "missing" then
    files.remove(path)
  else
    local at = math.floor(#text / 2)
    local flipped = string.char(bit.bxor(text:byte(at + 1), 1))
    files.write(path, text:sub(1, at) .. flipped .. text:sub(at + 2))
  end
end

t.case("a damaged checkpoint names the file and the reason; auto takes the previous one", function()
  local out = t.folder()
  local parts = training(1)
  save(out, parts, 1)
  local expected = {
    ["model.safetensors"] = {truncated = "model.safetensors has %d+ bytes, not %d+",
      flipped = "model.safetensors is damaged %(its CRC%-32 differs from the saved one%)",
      missing = "model.safetensors is missing"},
    ["optimizer.safetensors"] = {truncated = "optimizer.safetensors has %d+ bytes, not %d+",
      flipped = "optimizer.safetensors is damaged", missing = "optimizer.safetensors is missing"},
    ["state.json"] = {truncated = "state.json is damaged", flipped = "state.json is damaged",
      missing = "state.json is missing"},
  }
  for name, kinds in pairs(expected) do
    for how, reason in pairs(kinds) do
      local path = save(out, parts, 2)
      damage(files.join(path, name), how)
      t.fails(function() nn.open_checkpoint(path) end,
              "the checkpoint '" .. path:gsub("%-", "%%-") .. "' cannot be used: " .. reason)
      local warned
      local found = checkpoint.find(out, "auto", function(text) warned = text end)
      t.same(found.state.step, 1)
      t.check(warned:find(reason), warned)
    end
  end
  t.same(#checkpoint.list(out), 2)
  t.fails(function() nn.open_checkpoint(out) end, "is a folder of checkpoints; give one of them")
  local path = save(out, parts, 2)
  damage(files.join(path, "state.json"), "flipped")
  t.fails(function() checkpoint.find(out, path, print) end, "cannot be used")
end)

t.case("a damaged checkpoint is replaced when training reaches its step again", function()
  local out = t.folder()
  local parts = training(1)
  local path = save(out, parts, 1)
  damage(files.join(path, "state.json"), "flipped")
  save(out, parts, 1)
  t.same(nn.open_checkpoint(path).state.step, 1)
  t.same(files.list(out), {"checkpoint-000001"})
end)

t.case("every flipped bit of state.json is detected", function()
  local path = save(t.folder(), training(1), 1)
  local name = files.join(path, "state.json")
  local text = files.read(name)
  for at = 1, #text do
    local flipped = string.char(bit.bxor(text:byte(at), 4))
    files.write(name, text:sub(1, at - 1) .. flipped .. text:sub(at + 1))
    t.check(not pcall(nn.open_checkpoint, path), "byte " .. at)
  end
end)

t.case("a checkpoint of another model names the tensor", function()
  local path = save(t.folder(), training(1), 1)
  local other = GPT2 {layers = 1, heads = 2, embd = 32, context = 8, vocab = 20}
  t.fails(function() nn.open_checkpoint(path):restore {model = other} end,
          "model.safetensors: 'tok.weight' is F32 (20,16), but F32 (20,32) is needed")
  other = GPT2 {layers = 2, heads = 2, embd = 16, context = 8, vocab = 20}
  t.fails(function() nn.open_checkpoint(path):restore {model = other} end,
          "has no tensor 'blocks.2.norm1.weight'")
end)

t.case("an invalid folder, step or model is refused by name", function()
  local model = nn.Linear(2, 2)
  t.fails(function() nn.save_checkpoint(nil, {step = 1, model = model}) end, "the folder is nil")
  t.fails(function() nn.save_checkpoint(folder, {model = model}) end, "step is nil")
  t.fails(function() nn.save_checkpoint(folder, {step = 1}) end, "model is nil; a module")
  t.fails(function() nn.save_checkpoint(folder, {step = 1, modl = model}) end, "no option 'modl'")
  t.fails(function() nn.open_checkpoint(nil) end, "the path is nil; a text is needed")
  t.fails(function() files.list(nil) end, "the path is nil")
  t.fails(function() files.read "a\0b" end, "contains a zero byte")
end)

t.case("a full disk is an error, and saved files stay", function()
  local status, output = t.shell(([[
    cd %s && mkdir small && mount -t tmpfs -o size=300k tmpfs small 2>/dev/null || exit 77
    $NNLUA - <<'END'
      local nn = require "nn"
      local model = require "models.gpt2" {layers=2, heads=2, embd=32, context=8, vocab=100}
      for step = 1, 3 do print(nn.save_checkpoint("small", {model = model, step = step})) end
END
    ls small; $NNLUA -e 'nn.open_checkpoint "small/checkpoint-000001"; print "opens"'
    umount small]]):format(folder))
  if status == 77 then t.skip "mounting a small file system needs rights" end
  t.check(output:find "cannot write 'small/checkpoint%-00000%d%.tmp/%S+': No space left on device",
          output)
  t.check(output:find "\ncheckpoint%-000001\n" and output:find "\nopens\n", output)
end)

t.case("a run on a full disk names its last checkpoint, and an incomplete log", function()
  local status, output = t.shell(([[
    cd %s && mkdir -p tiny && mount -t tmpfs -o size=3m tmpfs tiny 2>/dev/null || exit 77
    yes "some words to learn from" | head -n 400 > words.txt
    $NNLUA %s/recipes/gpt2_train.lua data.text=words.txt model.layers=2 model.embd=64 steps=60 \
      model.context=32 data.batch=4 eval_every=0 save_every=10 keep=10 out=tiny/run
    $NNLUA -e 'print("kept", nn.open_checkpoint("tiny/run/checkpoint-000020").state.step)'
    ls tiny/run; umount tiny; mount -t tmpfs -o size=16k tmpfs tiny
    $NNLUA - <<'END'
      local log = require "nn.train.log".new "tiny"
      for step = 1, 200 do log:event("step", {step = step, loss = 1 / 3}) end
END
    umount tiny]]):format(folder, host.root))
  if status == 77 then t.skip "mounting a small file system needs rights" end
  t.check(output:find("No space left on device. The last checkpoint is tiny/run/checkpoint-000020",
                      1, true), output)
  t.check(output:find "kept%s+20\n" and not output:find "%.tmp\n", output)
  local _, warnings = output:gsub("metrics.jsonl is incomplete: No space left", "")
  t.same(warnings, 1)
end)

t.finish()
