-- Texts and records as tokens: what ends each of them in training data and in the files that
-- recipes/tokens_prepare.lua writes, and what that leaves out.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local prepare = require "nn.data.prepare"
local t = require "nn.test"
local texts = require "nn.data.texts"
local token_file = require "nn.data.token_file"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local chunked = require "chunked"

local folder = t.folder()
local path, write = chunked.folder(folder)
local with_chunks = chunked.with_chunks

local words = nn.train_tokenizer(("hello world, a b c\n"):rep(9),
                                 {size = 270, special = {"<|endoftext|>", "<|im_end|>"}})
local last = words.special["<|endoftext|>"]
words:save(path "words")

-- The ids of a text, and of documents that each end with `last`.
local function ids_of(...)
  local ids = {}
  for _, document in ipairs {...} do
    for _, id in ipairs(words:ids(document)) do ids[#ids + 1] = id end
    ids[#ids + 1] = last
  end
  return ids
end
local function data_ids(list, options)
  local cfg = {text = list, vocabulary = path "words", split = 0.5}
  for name, value in pairs(options or {}) do cfg[name] = value end
  local data, ids = nn.data(cfg, {context = 1}), {}
  for i = 1, data.train.count + data.val.count do ids[i] = data.train.tokens[i - 1] end
  return ids, data
end

t.case("the tokenizer's end of text follows each record, and each of several files", function()
  local a, b = write("a.txt", "hello world, a b c"), write("b.txt", "a b c")
  local lines = write("e.jsonl", '{"text": "hello"}\n{"text": "world<|endoftext|>"}\n')
  local list = write("e.json", '[{"text": "hello"}, {"text": "world"}]')
  local cells = write("e.csv", "text\nhello\nworld\n")
  for _, file in ipairs {lines, list, cells} do t.same(data_ids(file), ids_of("hello", "world")) end
  t.same(data_ids(a .. "," .. b), ids_of("hello world, a b c", "a b c"))
  local ids, data = data_ids(a)
  t.same({ids, data.notes}, {words:ids "hello world, a b c", {}})
  t.same(select(2, data_ids(lines)).notes, {("data.text '%s': '<|endoftext|>' ends each of 2 "
         .. "documents"):format(lines)})
  ids, data = data_ids(lines, {separator = ""})
  t.same(ids, words:ids "hello\nworld<|endoftext|>")
  t.check(data.notes[1]:find("a line end separates 2 documents, as no token does", 1, true))
  t.same(select(2, data_ids(lines, {vocabulary = "char"})).notes, data.notes)
  t.fails(function() data_ids(lines, {separator = "<|x|>"}) end,
          "the tokenizer has no special token '<|x|>'; give one of its special tokens, or "
          .. "data.separator= for none")
  local config = path "words/tokenizer_config.json"
  files.write(config, '{"eos_token": "<|im_end|>"}')
  ids = data_ids(write("f.jsonl", '{"text": "a"}\n{"text": "b"}\n'))
  local eos = nn.tokenizer(path "words").eos
  files.remove(config)
  t.same({eos, ids[2], ids[4], #ids}, {words.special["<|im_end|>"], eos, eos, 4})
end)

-- Converts files with `words` -> the ids for training, and what was left out.
local function convert(input, options)
  local cfg = {tokenizer = words, out = path "out", format = "nanogpt", val = 0, seed = 1,
               field = "text", separator = "auto", sources = texts.sources(input, "jsonl")}
  for name, value in pairs(options or {}) do cfg[name] = value end
  local counts = prepare.prepare(cfg)
  local file, ids = token_file.open(path "out/train.bin", nil, "uint16"), {}
  for i = 1, file.count do ids[i] = file.tokens[i - 1] end
  return ids, counts.bad
end

t.case("a conversion leaves out what it cannot read, and lists it", function()
  local good = write("g.jsonl", '{"text": "hello"}\n')
  local function left_out(name, text, documents, ...)
    local messages = {...}
    for _, size in ipairs {16, 2 ^ 22} do
      with_chunks(size, function()
        local ids, bad = convert(good .. "," .. write(name, text))
        t.same(ids, ids_of("hello", unpack(documents)))
        t.same(bad.count, #messages)
      end)
    end
    local _, bad = convert(good .. "," .. path(name))
    for i, message in ipairs(messages) do t.check(bad[i]:find(message, 1, true), bad[i]) end
  end
  left_out("x.jsonl", '{"text": "a"}\n{"text"\n{"text": null}\n{"b": 1}\n{"text": "b"}\n',
           {"a", "b"}, "x.jsonl', line 2 is not a JSON object", "line 3: 'text' is null",
           "line 4 has no field")
  left_out("x.json", '[{"text": "a"}, 5, {"text": "b"}, {"text"', {"a", "b"}, "record 2 is 5",
           "the list ends within record 4")
  left_out("x.csv", 'text,n\na,1\nb\nc,2\n"x', {"a", "c"}, "line 3 has 1 cells", "a quote opens")
  left_out("u.jsonl", '{"text": "a"}\n{"text": "caf\233"}\n', {"a"}, "line 2: 'text' is not UTF-8")
  left_out("p.jsonl", "PAR1" .. ("\0\1"):rep(99), {}, "p.jsonl' is a Parquet file")
  write("cut.jsonl", ('{"text": "a"}\n'):rep(3000))
  t.same(t.shell(("cd %s && gzip -k cut.jsonl"):format(folder)), 0)
  local packed = files.read(path "cut.jsonl.gz")
  write("cut.jsonl.gz", packed:sub(1, #packed - 12))
  with_chunks(64, function()
    local ids, bad = convert(path "cut.jsonl.gz" .. "," .. good)
    t.check(bad.count >= 1 and bad[1]:find("it ends too early", 1, true), bad[1])
    t.check(#ids > 1000, "what comes before is read")
  end)
end)

t.case("nothing is written between records that no token ends", function()
  local lines = write("l.jsonl", '{"text": "to be"}\n{"text": ""}\n{"text": "or not"}\n')
  local more, byte = write("m.txt", "that is"), nn.vocabulary "byte"
  for input, expected in pairs {[lines] = "to beor not", [more .. "," .. more] = "that isthat is",
                                [lines .. "," .. more] = "to beor notthat is"} do
    for _, size in ipairs {16, 2 ^ 22} do
      with_chunks(size, function()
        t.same(byte:decode((convert(input, {tokenizer = byte}))), expected)
        t.same(byte:decode((convert(input, {tokenizer = byte, separator = ""}))), expected)
      end)
    end
  end
  t.fails(function() convert(lines, {tokenizer = byte, separator = "<|end|>"}) end,
          "the tokenizer has no special token '<|end|>'; give one of its special tokens, or "
          .. "separator= for none")
end)

t.case("a text that is no UTF-8 keeps its bytes, and is no record that is left out", function()
  write("latin.txt", "caf\233\n")
  local status, output = t.shell(([[cd %s && for bad in 0 1; do
    $NNLUA %s/recipes/tokens_prepare.lua input=latin.txt val=0 tokenizer=words out=kept \
      skip_bad=$bad 2>&1
    echo status $?; done]]):format(folder, host.root))
  t.same(status, 0)
  for _, text in ipairs {"latin.txt': byte 3 is not UTF-8 text; its bytes are kept",
                         "1 of 1 document is no UTF-8; kept has their bytes; skip_bad=1",
                         "status 1", "status 0"} do
    t.check(output:find(text, 1, true), output)
  end
  t.check(not output:find "could not be read", output)
  local ids, file = {}, token_file.open(path "kept/train.bin")
  for i = 1, file.count - 1 do ids[i] = file.tokens[i - 1] end
  t.same(words:decode(ids), "caf\233\n")
end)

t.case("the recipe writes the others, exits with status 1, and skip_bad accepts some", function()
  local lines = {}
  for i = 1, 40 do lines[i] = '{"text": "hello world"}' end
  lines[7], lines[9] = '{"text": ', '{"text": 1}'
  write("s.jsonl", table.concat(lines, "\n"))
  local function run(options)
    return t.shell(([[cd %s && rm -rf made && $NNLUA %s/recipes/tokens_prepare.lua input=s.jsonl \
      tokenizer=words val=0 out=made %s 2>&1]]):format(folder, host.root, options))
  end
  local status, output = run ""
  t.same(status, 1)
  for _, text in ipairs {"s.jsonl', line 7 is not a JSON object", "line 9: 'text' is 1",
                         "2 of 40 records could not be read; made has the others; skip_bad=0.05",
                         "'<|endoftext|>' ends each document"} do
    t.check(output:find(text, 1, true), output)
  end
  local made = token_file.open(path "made/train.bin")       -- tokens.json states its format
  t.same({made.count, made.guessed}, {38 * #ids_of "hello world", false})
  t.same(files.parse_json(files.read(path "made/tokens.json")).unreadable, 2)
  t.same(run "skip_bad=0.05", 0)
  t.same(run "skip_bad=0.04", 1)
end)

t.case("a text that is converted in pieces has the tokens of the whole, with every tokenizer",
       function()
  local text = ("Hello world, this is  a test; isn't it\nfine (well)? 12 \195\156n <x> </s>!\n\n  "
                .. "Yes .\t ok a\r\nb \n"):rep(6)
  local file, tried = write("pieces.txt", text), 0
  local function check(tokenizer, name)
    local pieces = 0
    local counted = setmetatable({save = function() end, encode_bytes = function(_, p, size)
      pieces = pieces + 1
      return tokenizer:encode_bytes(p, size)
    end}, {__index = tokenizer})
    for _, size in ipairs {64, 200} do
      with_chunks(size, function()
        local ids = convert(file, {tokenizer = counted, format = "llmc", separator = ""})
        local whole = tokenizer:ids(text, {add_special = false})
        for i, id in ipairs(whole) do
          if ids[i] ~= id then error(("%s, chunks of %d: id %d"):format(name, size, i), 0) end
        end
        t.same(#ids, #whole)
      end)
    end
    tried = tried + 1
    return pieces
  end
  local golden = host.root .. "/tests/golden/"
  for _, name in ipairs(files.list(golden .. "tokenizers")) do
    if name ~= "expected.json" then              -- some with tokens around a text, such as [CLS]
      local pieces = check(nn.tokenizer(golden .. "tokenizers/" .. name), name)
      t.check(pieces > 10, ("%s: %d pieces"):format(name, pieces))
    end
  end
  for _, name in ipairs(files.list(golden .. "sentencepiece")) do
    if name:find "%.model$" then
      files.make_folder(path(name))
      files.write(path(name) .. "/tokenizer.model", files.read(golden .. "sentencepiece/" .. name))
      check(nn.tokenizer(path(name)), name)
    end
  end
  t.same(tried > 20, true)
end)

t.case("ids of a list of JSON records are those of its lines, through the recipe", function()
  local parts = {}
  for i = 1, 300 do parts[i] = ('{"prompt": "say %d", "text": "number %d"}'):format(i, i) end
  write("c.json", "[" .. table.concat(parts, ",\n") .. "]")
  write("c.jsonl", table.concat(parts, "\n"))
  local status = t.shell(([[cd %s && for f in json jsonl; do $NNLUA %s/recipes/tokens_prepare.lua \
    input=c.$f tokenizer=words out=c-$f 2>/dev/null || exit 1; done
    cmp c-json/train.bin c-jsonl/train.bin && cmp c-json/val.bin c-jsonl/val.bin]]):format(folder,
    host.root))
  t.same(status, 0)
  t.same(nn.data({jsonl = path "c.json"}).count, 300)
end)

t.finish()
