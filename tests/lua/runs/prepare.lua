-- Token files, compressed input, and the conversion of texts to token files.
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local prepare = require "nn.data.prepare"
local stream = require "nn.io.stream"
local texts = require "nn.data.texts"
local t = require "nn.test"
local token_file = require "nn.data.token_file"

local folder = t.folder()
local function path(name) return files.join(folder, name) end
local function ids_of(name)
  local file, list = token_file.open(path(name)), {}
  for i = 1, file.count do list[i] = file.tokens[i - 1] end
  return list
end
local sentence = "The quick brown fox, aged 7, doesn't jump over  the lazy dog;\nit sleeps.\n"
local text = sentence:rep(40)
local tokenizer = nn.train_tokenizer(text, {size = 300})
local last = tokenizer.special["<|endoftext|>"]

-- Runs prepare with these settings and the tokenizer above.
local function run(settings)
  local cfg = {tokenizer = tokenizer, out = path "out", format = "nanogpt", val = 0, seed = 1,
               field = "text", separator = "<|endoftext|>"}
  for name, value in pairs(settings) do cfg[name] = value end
  cfg.sources = texts.sources(cfg.input, "txt,jsonl")
  local counts = prepare.prepare(cfg)
  return {train = counts.train, val = counts.val}, counts.bad
end

local function expected(...)
  local list = {}
  for _, document in ipairs {...} do
    for _, id in ipairs(tokenizer:ids(document)) do list[#list + 1] = id end
    list[#list + 1] = last
  end
  return list
end

t.case("ids written in each format read back", function()
  for _, case in ipairs {{"nanogpt", 300}, {"llmc", 300}, {"llmc", 70000}} do
    local format, vocab = case[1], case[2]
    local writer = token_file.create(path "ids.bin", format, vocab)
    for i = 1, 3 do
      writer:write(ffi.new(writer.id_type .. "[2]", i, vocab - i), 2)
    end
    t.check(not files.exists(path "ids.bin"), "the name comes last")
    t.same(writer:close(), 6)
    t.same(ids_of "ids.bin", {1, vocab - 1, 2, vocab - 2, 3, vocab - 3})
    files.remove(path "ids.bin")
  end
end)

t.case("llm.c's header is the one that llm.c writes", function()
  local writer = token_file.create(path "header.bin", "llmc", 50257)
  writer:write(ffi.new("uint16_t[3]", 7, 8, 9), 3)
  writer:close()
  local map = files.map(path "header.bin")
  local header = ffi.cast("const int32_t *", map.data)
  t.same({header[0], header[1], header[2], map.size}, {20240520, 1, 3, 1024 + 6})
end)

t.case("token files that are damaged or cannot hold the ids are refused", function()
  files.write(path "odd.bin", "abc")
  t.fails(function() token_file.open(path "odd.bin", "data.bin") end,
          "data.bin '.*' has 3 bytes, an odd number")
  files.write(path "words.bin", ("a text, not a token file\n"):rep(4))
  t.fails(function() token_file.open(path "words.bin", "data.bin") end,
          "data.bin '.*words.bin' is a text, not a token file; give it as data.text=FILE")
  files.write(path "short.bin", files.read(path "header.bin"):sub(1, -3))
  t.fails(function() token_file.open(path "short.bin") end, "its header says 3 tokens")
  t.fails(function() token_file.create(path "large.bin", "nanogpt", 70000) end,
          "use format=llmc")
end)

t.case("plain, gzip and zstd files read the same, several frames too", function()
  files.write(path "a.txt", text)
  local status = t.shell(("cd %s && gzip -k a.txt && cat a.txt.gz >> a.txt.gz.tmp"):format(folder))
  t.same(status, 0)
  local names = {"a.txt", "a.txt.gz"}
  if t.shell(("cd %s && zstd -q a.txt"):format(folder)) == 0 then names[3] = "a.txt.zst" end
  for _, name in ipairs(names) do
    t.same(stream.unpacked_size(path(name)), #text)
    local once = files.read(path(name))
    files.write(path "twice", name == "a.txt" and text .. text or once .. once)
    t.same(stream.unpacked_size(path "twice"), 2 * #text)
    if name ~= "a.txt" then
      files.write(path "cut", once:sub(1, -9))
      t.fails(function() stream.unpacked_size(path "cut") end, "it ends too early")
      files.write(path "flipped", once:sub(1, 20) .. "\255\0\255\0" .. once:sub(25))
      t.fails(function() stream.unpacked_size(path "flipped") end, "cannot decompress")
    end
  end
end)

t.case("the end of a text, from the start of a line, is for validation", function()
  files.write(path "a.txt", text)
  t.same(run {input = path "a.txt"}, {train = #expected(text), val = 0})
  t.same(ids_of "out/train.bin", expected(text))
  run {input = path "a.txt", val = 0.25}
  local train, val = sentence:rep(30), sentence:rep(10)
  t.same(ids_of "out/train.bin", expected(train))
  t.same(ids_of "out/val.bin", expected(val))
end)

t.case("a long text read in chunks has the tokens of the whole", function()
  local long = text:rep(2500)                       -- more than one chunk of 4 MB
  files.write(path "long.txt", long)
  run {input = path "long.txt"}
  local file = token_file.open(path "out/train.bin")
  local ids, count = tokenizer:encode(long)
  t.same(file.count, count + 1)
  t.same(files.crc32(file.map.data, 2 * count), files.crc32(ids, 2 * count))
end)

t.case("lines of JSON are documents, some of them for validation, the same for the same seed",
       function()
  local lines, documents = {}, {}
  for i = 1, 200 do
    documents[i] = ("Document %d:\n\"été\" %s"):format(i, ("x"):rep(i % 9))
    lines[i] = files.json {id = i, text = documents[i]}
  end
  files.write(path "d.jsonl", table.concat(lines, "\n") .. "\n\n")
  run {input = path "d.jsonl"}
  t.same(ids_of "out/train.bin", expected(unpack(documents)))
  local counts = run {input = path "d.jsonl", val = 0.3}
  local first = ids_of "out/val.bin"
  t.check(counts.val > 0.2 * (counts.train + counts.val), "about 0.3 of them")
  t.check(counts.val < 0.4 * (counts.train + counts.val), "about 0.3 of them")
  t.same(counts.train + counts.val, #expected(unpack(documents)))
  run {input = path "d.jsonl", val = 0.3}
  t.same(ids_of "out/val.bin", first)
end)

t.case("an error in the input names file and line, and leaves no folder", function()
  local function refused(name, content, message)
    files.write(path(name), content)
    t.fails(function() run {input = path(name), out = path "none"} end, message)
    t.check(not files.exists(path "none"), "it leaves no folder")
  end
  refused("b.jsonl", '{"text":', "b.jsonl', line 1 is not a JSON object")
  refused("b.jsonl", '\n\n{"body":"b"}\n', "line 3 has no field 'text'; it has body")
  refused("b.jsonl", '{"text":null}\n', "line 1: 'text' is null; a text is needed")
  refused("b.jsonl", "\n\n", "the input has no text")
  refused("b.json", "[1,\n2]", "b.json', record 1 is 1, not a JSON object; no file was written")
  refused("b.jsonl", ('{"body":"b"}\n'):rep(1000), "has no field 'text'; it has body; choose one "
          .. "with field=. 100 of the first 100 records are unreadable; no file was written")
  t.fails(function() run {input = path "a.txt", val = 1e-6, out = path "none"} end,
          "val=1e-06 leaves no text for validation")
  t.check(not files.exists(path "none"), "it leaves no folder")
  t.fails(function() run {input = path "nothing"} end, "No such file")
  t.fails(function() texts.sources(path "", "xyz") end, "no file with an extension of xyz")
  t.fails(function() run {input = path "a.txt", separator = "<|x|>"} end,
          "has no special token '<|x|>'")
end)

t.case("if the tokenizer cannot be written, the earlier tokens stay", function()
  run {input = path "a.txt", val = 0.2, out = path "both"}
  local before = files.list(path "both")
  local train, val = files.read(path "both/train.bin"), files.read(path "both/val.bin")
  local full = setmetatable({save = function() nn.fail "no room" end}, {__index = tokenizer})
  t.fails(function()
    run {input = path "a.txt", val = 0.5, out = path "both", tokenizer = full}
  end, "no room")
  t.same(files.list(path "both"), before)
  t.same({files.read(path "both/train.bin") == train, files.read(path "both/val.bin") == val},
         {true, true})
end)

t.case("a byte order mark, a last line without newline, and another JSON extension", function()
  files.write(path "mark.json", '\239\187\191{"text":"one"}\r\n{"text":"two"}')
  run {input = path "mark.json"}
  t.same(ids_of "out/train.bin", expected("one", "two"))
end)

t.case("a byte vocabulary is stored with its tokens, and training finds it", function()
  run {input = path "a.txt", tokenizer = nn.vocabulary "byte", val = 0.2, out = path "bytes",
       separator = "auto"}
  local data = nn.data({bin = path "bytes/train.bin", val = path "bytes/val.bin"}, {context = 8})
  t.same({data.vocab, data.vocabulary:decode {72, 105}}, {256, "Hi"})
end)

t.case("thousands of small files leave no memory or mappings in use", function()
  files.make_folder(path "many")
  for i = 1, 3000 do
    local file = io.open(path(("many/%d.txt"):format(i)), "w")
    file:write("file ", i, "\n")
    file:close()
  end
  local status, output = t.shell(([[cd %s && $NNLUA -e 'arg = {"input=many", "val=0", "out=few"}
    dofile "%s/recipes/tokens_prepare.lua"
    local maps = 0
    for _ in io.lines "/proc/self/maps" do maps = maps + 1 end
    for line in io.lines "/proc/self/status" do print(line) end
    print("maps", maps)' 2>/dev/null]]):format(folder, host.root))
  t.same(status, 0)
  t.check(tonumber(output:match "VmHWM:%s+(%d+) kB") < 200e3, "memory of one file")
  t.check(tonumber(output:match "maps%s+(%d+)") < 2000, "no map of each")
end)

t.case("the recipe writes files that training reads, with the tokenizer", function()
  local status, output = t.shell(([[
    cd %s && mkdir corpus && cp a.txt d.jsonl corpus/ &&
    $NNLUA %s/recipes/tokens_prepare.lua input=corpus learn=320 val=0.2 out=made 2>/dev/null
  ]]):format(folder, host.root))
  t.same(status, 0)
  t.check(output:find "2 files, byte%-level BPE of 320 tokens\n", output)
  local made = nn.tokenizer(path "made")
  t.same(made.size, 320)
  local counts = files.parse_json(files.read(path "made/tokens.json"))
  t.same(token_file.open(path "made/train.bin").count, counts.train)
  t.same(token_file.open(path "made/val.bin").count, counts.val)
  local data = nn.data({bin = path "made/train.bin", val = path "made/val.bin"}, {context = 8})
  t.same({data.vocab, data.vocabulary.size}, {320, 320})
  t.same(data.vocabulary:decode(made:ids "lazy dog"), "lazy dog")
end)

t.case("the tokenizer beside token files may be a model of SentencePiece", function()
  files.make_folder(path "given")
  files.write(path "given/tokenizer.model",
              files.read(host.root .. "/tests/golden/sentencepiece/bpe_bytes.model"))
  local status = t.shell(([[
    cd %s && $NNLUA %s/recipes/tokens_prepare.lua input=a.txt tokenizer=given separator="</s>" \
      out=pieces 2>/dev/null]]):format(folder, host.root))
  t.same(status, 0)
  local data = nn.data({bin = path "pieces/train.bin", val = path "pieces/val.bin"}, {context = 8})
  t.same({data.vocab, data.vocabulary.size}, {420, 420})
  t.same(data.vocabulary:decode(data.vocabulary:ids "lazy dog"), "lazy dog")
end)

t.case("a model trained on token files generates text and is evaluated, from its run's folder",
       function()
  local status, output = t.shell(([[
    cd %s && R=%s/recipes && set -e
    $NNLUA $R/gpt2_train.lua data.bin=made/train.bin data.val=made/val.bin steps=60 out=run \
      model.layers=1 model.embd=32 model.heads=2 model.context=16 data.batch=8 optim.lr=1e-2 \
      schedule.warmup=2 sample.tokens=5 model.dtype=f32 > log
    $NNLUA $R/gpt2_generate.lua model=run prompt="The quick" tokens=8 logprobs=true 2>/dev/null
    $NNLUA $R/gpt2_eval.lua model=run text=a.txt
    $NNLUA $R/gpt2_eval.lua model=run bin=made/val.bin stride=16
  ]]):format(folder, host.root))
  t.check(output:find "^The quick", output)
  local sum, tokens = 0, 0
  for logprob in output:match("(.-)mean log"):gmatch '\n +(%-%d+%.%d+)  "' do
    sum, tokens = sum + tonumber(logprob), tokens + 1
  end
  t.same(tokens, 8)
  t.near(tonumber(output:match "\nmean log%-probability (%-%d+%.%d+)\n"), sum / 8, {abs = 1e-4})
  t.check(output:find "loss %d%.%d+  perplexity %d+%.%d+  bits per byte %d%.%d+\n", output)
  t.same(status, 0)
end)

t.case("a batch of prompts of different lengths gives the text of each prompt alone",
       function()
  files.write(path "prompts.txt", "The quick\nIt sleeps, over the lazy dog; \nThe\n")
  local function generated(settings)
    local status, output = t.shell(([[cd %s && $NNLUA %s/recipes/gpt2_generate.lua model=run \
      tokens=10 temperature=0 %s 2>/dev/null]]):format(folder, host.root, settings))
    t.same(status, 0)
    return output
  end
  local all = generated "prompts=prompts.txt"
  for line in io.lines(path "prompts.txt") do
    local one = generated(("prompt=%q"):format(line))
    t.check(all:find("---%s%d\n" .. one:gsub("%p", "%%%0")), all .. "\n" .. one)
  end
  local whole = generated 'prompt="The quick"'
  local stop = whole:sub(-3, -2)
  local stopped = generated(([[prompt="The quick" stop='||zzz||%s']]):format(stop))
  local from, to = whole:find(stop, #"The quick" + 1, true)
  t.check(from and stopped == whole:sub(1, #stopped - 1) .. "\n" and #stopped - 1 >= to, stopped)
end)

-- The mean loss of predicting every token from the window that the recipe documents.
local function expected_loss(model, ids, stride)
  local context, sum, scored = model.config.context, 0, 1
  for start = 0, #ids, stride do
    local count = math.min(context, #ids - start)
    if count < 1 or scored >= #ids then break end
    local input = nn.tensor({{unpack(ids, start + 1, start + count)}}, {dtype = "i32"})
    local logp = nn.no_grad(function() return model(input):log_softmax() end):table()[1]
    for at = math.max(scored, start + 1), math.min(start + count, #ids - 1) do
      sum = sum - logp[at - start][ids[at + 1] + 1]
    end
    scored = math.max(scored, start + context + 1)
  end
  return sum / (#ids - 1)
end

t.case("the recipe evaluates the loss of each token in its window", function()
  nn.training(false)
  local model, words = nn.load_model(path "run")
  files.write(path "short.txt", text:sub(1, 300))
  local ids = words:ids(text:sub(1, 300))
  for _, stride in ipairs {1, 7, 8, 16} do
    local _, output = t.shell(("cd %s && $NNLUA %s/recipes/gpt2_eval.lua model=run text=short.txt "
                               .. "stride=%d batch=3"):format(folder, host.root, stride))
    t.near(tonumber(output:match "loss (%d+%.%d+)"), expected_loss(model, ids, stride),
           {abs = 6e-5})
  end
end)

t.case("memory does not grow with the input: text, lines of JSON, gzip", function()
  local line = sentence:gsub("\n", " ")
  local made = t.shell(([[cd %s && set -e
    yes '%s' | head -c 4000000 > small.txt;  yes '%s' | head -c 60000000 > large.txt
    yes '{"text":"%s"}' | head -n 60000 > small.jsonl; gzip -1 -k small.jsonl
    for i in 1 2 3 4 5 6 7 8; do cat small.jsonl.gz; done > large.jsonl.gz
  ]]):format(folder, line:gsub("'", "'\\''"), line:gsub("'", "'\\''"), line:gsub("'", "")))
  t.same(made, 0)
  local function peak(name)
    local status, output = t.shell(([[cd %s && $NNLUA -e 'arg = {"input=%s", "out=grown"}
      dofile "%s/recipes/tokens_prepare.lua"
      for line in io.lines "/proc/self/status" do print(line) end' 2>/dev/null]]):format(folder,
      name, host.root))
    t.same(status, 0)
    return tonumber(output:match "VmHWM:%s+(%d+) kB") / 1024
  end
  for small, large in pairs {["small.txt"] = "large.txt", ["small.jsonl.gz"] = "large.jsonl.gz"} do
    local before, after = peak(small), peak(large)
    t.check(after < before + 24, ("%.0f MB for %s, %.0f MB for %s"):format(before, small, after,
                                                                           large))
  end
end)

t.finish()
