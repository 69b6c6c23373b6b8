-- Forged files: the values of every file that the library reads, replaced by values that a careless
-- or hostile writer could put there. Each either works, or is refused by one message that names the
-- file; none raises an internal error, hangs or takes all memory. FORGED=all tries every value (a
-- minute), FORGED=N every N-th, by default every seventh.
local ffi = require "ffi"
local checkpoint = require "nn.models.checkpoint"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local metrics = require "nn.train.metrics"
local model_file = require "nn.models.load"
local nn = require "nn"
local report = require "nn.train.report"
local settings = require "nn.train.settings"
local t = require "nn.test"
local GPT2 = require "models.gpt2"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local mutate = require "mutate"

local wish = os.getenv "FORGED" or "7"
local every = wish == "all" and 1 or tonumber(wish)
local folder = t.folder()
local raw = {"attempt to ", "bad argument", "stack traceback", "stack overflow", "not enough mem",
             "table index is", "expected, got", "cannot convert", "invalid value", "%.lua:%d"}

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

-- Runs one reading of a forged file; returns whether it worked. An error must be a message of the
-- library with the folder's path.
local function try(name, how, f)
  local start = nn.now()
  local good, problem = pcall(f)
  local text = tostring(problem)
  local function bad(what) error(("%s, forged ...%s: %s: %s"):format(name, how, what, text), 0) end
  if nn.now() - start > 30 then bad "it takes long" end
  if good then return true end
  if not lib.is_error(problem) then bad "an internal error" end
  for _, pattern in ipairs(raw) do
    if problem.message:find(pattern) then bad "an internal error" end
  end
  if not text:find(folder, 1, true) then bad "the file is not named" end
  return false
end

-- Tries the forged texts of a file, which save(text) writes; read: functions that read it; step:
-- tries every step-th text.
local function sweep(name, text, save, read, step)
  local number, tried, worked, problems = 0, 0, 0, {}
  for forged, how in mutate.forged(text) do
    number = number + 1
    if number % (step or every) == 0 then
      save(forged)
      for _, f in ipairs(read) do
        tried = tried + 1
        local good, result = pcall(try, name, how, f)
        if not good then problems[#problems + 1] = result end
        worked = worked + (good and result and 1 or 0)
      end
      if tried % 512 == 0 then collectgarbage() end
    end
  end
  save(text)
  for _, f in ipairs(read) do f() end
  print(("        %s: %d readings of forged files: %d worked, %d refused, %d failed"):format(
    name, tried, worked, tried - worked - #problems, #problems))
  t.check(#problems == 0, table.concat(problems, "\n", 1, math.min(#problems, 20)))
  t.check(worked < tried, "some are refused")
end

-- ### Checkpoints

local sizes = {layers = 2, heads = 2, embd = 8, context = 8, vocab = 29}
write(folder .. "/text.txt", ("the quick brown fox jumps over the lazy dog.\n"):rep(20))

local function parts_of(words)
  local data = nn.data({text = folder .. "/text.txt", batch = 2}, {context = 8, vocabulary = words})
  local dimensions = {}
  for name, value in pairs(sizes) do dimensions[name] = value end
  dimensions.vocab = data.vocab
  local model = GPT2(dimensions)
  return {model = model, optim = nn.AdamW(model), data = data.train, vocabulary = data.vocabulary},
         dimensions
end

local function save_forged(path)
  return function(text)
    text = text:sub(2)
    write(path, ('{"crc32":"%08x",'):format(files.crc32(text)) .. text .. "\n")
  end
end

local schema = {model = {layers = 1, heads = 1, embd = 8, context = 8, vocab = 0},
                data = nn.data_fields {}, nn.run_fields {}}

for kind, words in pairs {char = false, bpe = true} do
  t.case("a forged state.json with a " .. kind .. " vocabulary is refused by name, or works",
         function()
    words = words and nn.train_tokenizer(("the other "):rep(9), {size = 259}) or nil
    local out, parts, dimensions = files.join(folder, kind), parts_of(words)
    parts.step, parts.best = 5, {step = 5, val_loss = 2.5}
    parts.config = {model = dimensions, steps = 10, data = {batch = 2, text = "text.txt"}}
    local path = nn.save_checkpoint(out, parts)
    local name = files.join(path, "state.json")
    local text = files.read(name):match '^{"crc32":"%x+",(.*)\n$'
    if words then                                     -- without the long text of the tokenizer
      text = text:gsub('"vocabulary":{.*}}$', '"vocabulary":{"json":"{}","kind":"bpe"}}')
    end
    sweep("state.json", "{" .. text, save_forged(name), words and {
      function() nn.open_checkpoint(path):vocabulary() end,
    } or {
      function() nn.load_model(path) end,
      function() model_file.sizes(path) end,
      function() nn.open_checkpoint(path):restore(parts) end,
      function()
        local cfg = nn.config(schema, {"resume=" .. path})
        settings.compare(cfg, checkpoint.find(out, path, error), function() end)
      end,
    })
  end)
end

-- ### Hugging Face folders and tokenizers

t.case("a forged config.json or index of a Hugging Face folder is refused by name, or works",
       function()
  local path = files.join(folder, "hf")
  files.make_folder(path)
  nn.save_hf(path, (nn.load_hf(host.root .. "/tests/golden/hf_gpt2")), nil, {shard_bytes = 30000})
  local ids = nn.tensor({{1, 2, 3}}, {dtype = "i32"})
  for _, name in ipairs {"config.json", "model.safetensors.index.json"} do
    local full = files.join(path, name)
    sweep(name, files.read(full), function(text) write(full, text) end, {function()
      local model = nn.load_hf(path)
      nn.no_grad(model, ids)
      for _, p in ipairs(model:parameters()) do p.tensor:release() end
    end})
  end
end)

-- Encodes and decodes with the tokenizer in a file or folder. A forged vocabulary may have other
-- characters.
local function check_tokenizer(path)
  local words = nn.tokenizer(path)
  local text = words.kind == "char" and words.symbols[1]:rep(3) or "the other"
  t.same(words:decode(words:ids(text)), text)
end

t.case("forged files of tokenizers are refused by name, or restore text", function()
  local path = files.join(folder, "words")
  nn.train_tokenizer(("the other "):rep(9), {size = 259}):save(path)
  local function sweep_file(name, step)
    local full = files.join(path, name)
    sweep(name, files.read(full), function(text) write(full, text) end,
          {function() check_tokenizer(path) end}, step)
  end
  sweep_file("tokenizer.json", 20 * every)          -- it has 256 entries of bytes that are alike
  files.remove(files.join(path, "tokenizer.json"))
  sweep_file("vocab.json", 20 * every)
  nn.vocabulary("char", "the other"):save(path)
  sweep_file("vocabulary.json", every)
end)

-- ### The files of a run, which reports read

t.case("forged metrics.jsonl and config.json of a run do not break reports", function()
  local path = files.join(folder, "run")
  files.make_folder(path)
  local config = '{"steps":10,"model":{"layers":2},"data":{"text":"x","split":0.9}}'
  local events = {
    '{"event":"start","step":0,"parameters":900,"cpus":2,"gpus":0,"product_gflops":50.5,'
      .. '"time":"2026-01-02T03:04:05Z","version":"nnlua 1","process":{"pid":99999,"start":"7"}}',
    '{"event":"step","step":1,"seconds":0.5,"loss":2.5,"lr":0.001,"grad_norm":1,"mfu":0.5,'
      .. '"tokens_per_s":1000,"memory":5000}',
    '{"event":"eval","step":1,"val_loss":2.25}', '{"event":"sample","step":1,"text":"a <b>"}',
    '{"event":"resume","step":1,"parameters":900,"time":"x"}',
    '{"event":"step","step":2,"seconds":0.5,"loss":2.25}',
    '{"event":"done","step":2,"val_loss":2,"train_seconds":1}',
  }
  local function lines(changed, by)
    local list = {unpack(events)}
    list[changed] = by
    return table.concat(list, "\n") .. "\n"
  end
  local function check_run()
    local run = metrics.read(path)
    metrics.facts(run)
    report.page({run}, "a run")
  end
  local number, tried = 0, 0
  local function try_all(name, text, save)
    for forged, how in mutate.forged(text) do
      number = number + 1
      if number % every == 0 then
        save(forged)
        tried = tried + 1
        t.check(try(name, how, check_run), "a report was refused")
      end
    end
  end
  write(path .. "/config.json", config)
  for i, line in ipairs(events) do
    try_all("metrics.jsonl", line, function(forged)
      write(path .. "/metrics.jsonl", lines(i, forged))
    end)
  end
  write(path .. "/metrics.jsonl", lines(1, events[1]))
  try_all("config.json", config, function(forged) write(path .. "/config.json", forged) end)
  write(path .. "/config.json", config)
  local run = metrics.read(path)
  t.same({run.state, run.step, run.best.value, #run.samples, run.steps}, {"done", 2, 2, 1, 10})
  print(("        %d reports of forged runs"):format(tried))
end)

-- ### Prepared tokens

t.case("a forged header of a token file is refused by name, or matches the file", function()
  local path, tokens = folder .. "/llmc.bin", 500
  local header, ids = ffi.new "int32_t[256]", ffi.new("uint16_t[?]", tokens)
  local numbers = {0, 1, 2, 7, -1, 499, 501, 250, 2 ^ 31 - 1, -2 ^ 31, 20240520, 20240801, 65536}
  local worked, refused = 0, 0
  local function read()
    local data = nn.data({bin = path, batch = 2}, {context = 8, vocab = 50257})
    data.train:batch()
    nn.sync()
  end
  for place = 0, 3 do
    for _, number in ipairs(numbers) do
      header[0], header[1], header[2], header[3] = 20240520, 1, tokens, 0
      header[place] = number
      write(path, ffi.string(header, 1024) .. ffi.string(ids, 2 * tokens))
      local good = try("llmc.bin", ("%d: %d"):format(place, number), read)
      worked, refused = worked + (good and 1 or 0), refused + (good and 0 or 1)
    end
  end
  t.check(worked > 0 and refused > 0, ("%d worked, %d refused"):format(worked, refused))
end)

t.finish()
