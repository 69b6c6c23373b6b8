-- Data: windows and splits, vocabularies, the state of a loader, and errors.
local ffi = require "ffi"
local files = require "nn.io.files"
local nn = require "nn"
local random = require("nn.data.random").random
local t = require "nn.test"

local folder = t.folder()
local function write(name, text)
  local path = folder .. "/" .. name
  local file = io.open(path, "wb")
  file:write(text)
  file:close()
  return path
end
local function write_bin(name, ids)
  local array = ffi.new("uint16_t[?]", #ids, ids)
  return write(name, ffi.string(array, 2 * #ids))
end
local function settings(...)
  return nn.config({data = nn.data_fields {batch = 3}}, {...}).data
end
local function count_up(n)
  local ids = {}
  for i = 1, n do ids[i] = i - 1 end
  return ids
end

t.case("targets are the next ids, and the splits do not mix", function()
  local path = write_bin("count.bin", count_up(1000))
  local data = nn.data(settings("data.bin=" .. path), {context = 8, vocab = 1000})
  t.same(data.vocab, 1000)
  for _ = 1, 50 do
    local ids, targets = data.train:batch()
    t.same({ids.shape, ids.dtype, targets.shape}, {{3, 8}, "i32", {3, 8}})
    ids, targets = ids:table(), targets:table()
    for row = 1, 3 do
      for i = 1, 8 do
        t.same({ids[row][i], targets[row][i]}, {ids[row][1] + i - 1, ids[row][1] + i})
        t.check(targets[row][i] < 900, "the training part ends at token 899")
      end
    end
  end
  for ids in data.val:windows() do t.check(ids:min():item() >= 900, "validation begins at 900") end
end)

t.case("random windows reach the first and the last token of their split", function()
  local path = write_bin("sixty.bin", count_up(60))
  local data = nn.data(settings("data.bin=" .. path, "data.split=0.3"),
                       {context = 4, vocab = 60, seed = 3})
  local seen, least, most = {}, 99, 0
  local loader = data.train                              -- 18 tokens: starts 0 to 13
  for _ = 1, 100 do
    for _, row in ipairs(loader:batch():table()) do
      seen[row[1]] = (seen[row[1]] or 0) + 1
      least, most = math.min(least, row[1]), math.max(most, row[1])
    end
  end
  t.same({least, most}, {0, 13})
  for start = 0, 13 do t.check(seen[start] > 5, "start " .. start .. " is drawn too seldom") end
end)

t.case("validation windows are all of the split in order, or evenly spread", function()
  local path = write_bin("hundred.bin", count_up(100))
  local data = nn.data(settings("data.bin=" .. path, "data.split=0.5"), {context = 4, vocab = 100})
  local function starts(batches)
    local out, rows = {}, 0
    for ids, _, count in data.val:windows(batches) do
      rows = rows + count
      for _, row in ipairs(ids:table()) do out[#out + 1] = row[1] end
    end
    t.same(rows, #out)
    return out
  end
  t.same(starts(), {50, 54, 58, 62, 66, 70, 74, 78, 82, 86, 90, 94})
  t.same(starts(2), {50, 58, 66, 74, 82, 90})
  t.same(starts(2), starts(2))
  t.same(starts(1000), starts(0))
end)

t.case("a loader continues exactly where its state was saved", function()
  local path = write_bin("state.bin", count_up(500))
  local function loader(seed)
    return nn.data(settings("data.bin=" .. path), {context = 8, vocab = 500, seed = seed}).train
  end
  local a = loader(1)
  for _ = 1, 7 do a:batch() end
  local state, peeked = a:state(), a:peek()
  local expected = {a:batch():table(), a:batch():table()}
  t.same(peeked, expected[1])
  local b = loader(1)
  t.same(b:set_state(state), true)
  t.same({b:batch():table(), b:batch():table()}, expected)
  local c = loader(2)
  c:set_state(state)
  local other = c:batch():table()
  t.check(other[1][1] ~= expected[1][1][1] or other[2][1] ~= expected[1][2][1], "another seed")
  local d = nn.data(settings("data.bin=" .. write_bin("other.bin", count_up(501))),
                    {context = 8, vocab = 501}).train
  t.same(d:set_state(state), false)
end)

t.case("a batch with accumulation has the rows of all its microbatches", function()
  local path = write_bin("accum.bin", count_up(99))
  local data = nn.data(settings("data.bin=" .. path, "data.accum=4"), {context = 8, vocab = 99})
  t.same({data.train:batch().shape, data.train:batch_tokens()}, {{12, 8}, 96})
end)

t.case("random numbers are uniform and depend on seed and counter alone", function()
  local sum, square, bins = 0, 0, {}
  for i = 1, 20000 do
    local x = random(5, i)
    t.check(x >= 0 and x < 1, "in [0,1)")
    sum, square = sum + x, square + x * x
    local bin = math.floor(x * 10)
    bins[bin] = (bins[bin] or 0) + 1
  end
  t.near(sum / 20000, 0.5, {abs = 0.01})                 -- 5 standard deviations
  t.near(square / 20000, 1 / 3, {abs = 0.011})
  for bin = 0, 9 do t.near(bins[bin], 2000, {abs = 220}) end
  t.same(random(5, 17), random(5, 17))
  t.check(random(5, 17) ~= random(6, 17), "another seed")
end)

t.case("a character vocabulary is the sorted UTF-8 characters of the training text", function()
  local words = nn.vocabulary("char", "zebra äöü 漢字 zebra")
  t.same(words.symbols, {" ", "a", "b", "e", "r", "z", "ä", "ö", "ü", "字", "漢"})
  t.same(words:ids "bär", {2, 6, 4})
  t.same(words:decode {2, 6, 4, 10, 99}, "bär漢<99>")
  t.fails(function() words:ids "bad" end, "the character 'd' at byte 2 is not in the vocabulary")
  t.fails(function() nn.vocabulary("char", "ab\255c", "x.txt") end, "x.txt: byte 2 is not UTF-8")
  t.fails(function() nn.vocabulary("char", "ab\xe6\xbc", "x.txt") end, "x.txt: byte 2 is not UTF-8")
  t.fails(function() nn.vocabulary("word", "a") end, "unknown vocabulary 'word'")
end)

t.case("a byte vocabulary encodes any bytes", function()
  local words = nn.vocabulary("byte")
  local text = "a\0\255ä\n"
  t.same({words.size, words:decode(words:ids(text))}, {256, text})
end)

t.case("a vocabulary can be restored from its state", function()
  local tokenizer = require "nn.text.tokenizer"
  for _, words in ipairs {nn.vocabulary("char", 'a"\\/\n漢b'), nn.vocabulary "byte"} do
    local back = tokenizer.from_state(files.parse_json(files.json(words:state())))
    t.same(back.symbols, words.symbols)
  end
end)

t.case("a text is read as characters", function()
  local path = write("text.txt", ("hello wörld\n"):rep(20))
  local data = nn.data(settings("data.text=" .. path), {context = 11})
  t.same({data.vocab, data.vocabulary.size, data.own}, {10, 10, false})
  local ids = {}
  for i, id in ipairs(data.val:windows()():table()[1]) do ids[i] = id end
  t.same(data.vocabulary:decode(ids), "hello wörld")
end)

t.case("without data, the loader uses nnlua's own sources", function()
  local data = nn.data(settings(), {context = 64})
  t.check(data.own and data.train.count > 100000 and data.vocab > 80, "some hundred kB of text")
  t.check(require("nn.data.token_source").own_text():find("GPT-2 (Radford", 1, true),
          "models/gpt2.lua is part of it")
end)

t.case("ids in a validation file that the tokenizer lacks are detected at once", function()
  local own = t.folder()
  nn.train_tokenizer("abab abab", {size = 258}):save(own)
  for name, ids in pairs {train = {1, 2, 3, 257, 5}, val = {1, 2, 258, 4, 5}} do
    files.write(files.join(own, name .. ".bin"),
                ffi.string(ffi.new("uint16_t[5]", ids), 10))
  end
  local function open(val)
    return nn.data({bin = own .. "/train.bin", val = own .. "/" .. val}, {context = 4})
  end
  t.same(open("train.bin").vocab, 258)
  t.fails(function() open "val.bin" end, "val.bin': token 258 at position 2 (from 0), the largest "
          .. "one, is outside the vocabulary of 258")
end)

t.case("a .bin file of any size is mapped, not read", function()
  local path = folder .. "/large.bin"
  os.execute(("truncate -s 8G '%s'"):format(path))       -- sparse: takes no space
  local data = nn.data(settings("data.bin=" .. path), {context = 64, vocab = 65536})
  t.same(data.train:batch():sum():item(), 0)             -- all 16-bit ids are below 65536: no check
  t.same(data.train.count, math.floor(2 ^ 32 * 0.9))
  os.remove(path)
end)

t.finish()
