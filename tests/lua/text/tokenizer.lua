-- Byte-level BPE against the tokenizers library (tests/golden/make_bpe.py): learning, splitting,
-- merging; any bytes round-trip; files; errors.
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"
local utf8 = require "nn.base.utf8"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local random_texts = require "random_texts"

local golden = files.parse_json(files.read(host.root .. "/tests/golden/bpe.json"))
local folder = t.folder()

local function learned()
  return nn.train_tokenizer(golden.text, {size = golden.size, special = {}})
end

-- Number of ids and their CRC-32 as uint16, as in make_bpe.py.
local function summary(tokenizer, text)
  local ids, count = tokenizer:encode(text)
  return {count, files.crc32(ids, 2 * count)}
end

local function unicode_text(first)
  local lines = {}
  for code = first, first + golden.chunk - 1 do
    if code < 0xD800 or code >= 0xE000 then
      local c = utf8.encode(code)
      lines[#lines + 1] = ("a%s1%s! %s %s%sb\n"):gsub("%%s", function() return c end)
    end
  end
  return table.concat(lines)
end

local function check_unicode(tokenizer, expected)
  for i, sums in ipairs(expected) do
    local first = (i - 1) * golden.chunk
    t.same(summary(tokenizer, unicode_text(first)), sums, ("code points from %X on"):format(first))
  end
end

-- The random texts of make_bpe.py, in groups of 1000, and the sums of their ids.
local function check_random(tokenizer, expected, seed, draw)
  local below = random_texts.generator(seed)
  for number, sums in ipairs(expected) do
    local all, count = ffi.new "uint16_t[200000]", 0
    for i = 1, 1000 do
      local text = draw(below)
      local ids, n = tokenizer:encode(text)
      ffi.copy(all + count, ids, 2 * n)
      count = count + n
      local back = tokenizer:decode(tokenizer:ids(text))
      if back ~= text then t.same(back, text, ("text %d of bunch %d"):format(i, number)) end
    end
    t.same({count, files.crc32(all, 2 * count)}, sums, ("bunch %d"):format(number))
  end
end

local function random_text(below) return random_texts.text(below, golden.alphabet) end

local function invalid_text(below)
  local units = {}
  for i = 1, 1 + below(20) do
    units[i] = golden.units[below(#golden.units) + 1]:gsub("..", function(digits)
      return string.char(tonumber(digits, 16))
    end)
  end
  return table.concat(units)
end

local function gpt2()
  local path = host.root .. "/../shared/data/gpt2"
  if not files.exists(path) then t.skip("there is no ../shared/data/gpt2") end
  return nn.tokenizer(path)
end

t.case("the merges learned from a text are those that the tokenizers library learns", function()
  local tokenizer = learned()
  t.same(tokenizer.size, golden.size)
  tokenizer:save(folder .. "/learned")
  local names = {}
  for line in files.read(folder .. "/learned/merges.txt"):gmatch "[^\n]+" do
    names[#names + 1] = line
  end
  table.remove(names, 1)                            -- #version
  t.same(names, golden.merges)
end)

t.case("hard texts have the ids that the tokenizers library gives them", function()
  local tokenizer = learned()
  for _, case in ipairs(golden.cases) do
    t.same(tokenizer:ids(case.text), case.ids, case.text)
    t.same(tokenizer:decode(case.ids), case.text)
  end
end)

t.case("every code point is split as the tokenizers library splits it", function()
  check_unicode(learned(), golden.unicode)
end)

t.case("GPT-2's vocabulary gives the reference's ids", function()
  local tokenizer = gpt2()
  t.same(tokenizer.size, 50257)
  for i, case in ipairs(golden.cases) do
    t.same(tokenizer:ids(case.text), golden.gpt2.cases[i], case.text)
  end
  check_unicode(tokenizer, golden.gpt2.unicode)
  local path = host.root .. "/../shared/data/shakespeare/input.txt"
  if not files.exists(path) then return end
  t.same(summary(tokenizer, files.read(path)), golden.gpt2.shakespeare)
end)

t.case("10,000 random texts have the ids that the tokenizers library gives them, and come back",
       function() check_random(learned(), golden.random, 1, random_text) end)

t.case("10,000 texts of symbols and invalid UTF-8 have tiktoken's ids, and decode to themselves",
       function() check_random(learned(), golden.invalid, 2, invalid_text) end)

t.case("the same with GPT-2's vocabulary", function()
  local tokenizer = gpt2()
  check_random(tokenizer, golden.gpt2.random, 1, random_text)
  check_random(tokenizer, golden.gpt2.invalid, 2, invalid_text)
end)

t.case("10,000 random byte strings round-trip", function()
  local tokenizer = learned()
  local random = require("nn.data.random").random
  local drawn = 0
  local function below(n)
    drawn = drawn + 1
    return math.floor(random(7, drawn) * n)
  end
  local alphabets = {"\0\255", " \n'sa1\195\169", "\127\128\191\192\194\224\237\240\244\245\160"}
  for i = 1, 10000 do
    local bytes, alphabet = {}, alphabets[i % 4]
    for j = 1, below(40) do
      local at = alphabet and below(#alphabet) + 1
      bytes[j] = at and alphabet:sub(at, at) or string.char(below(256))
    end
    local text = table.concat(bytes)
    local back = tokenizer:decode(tokenizer:ids(text))
    if back ~= text then t.same(back, text) end
  end
end)

t.case("special tokens are text unless the caller enables them", function()
  local tokenizer = nn.train_tokenizer(golden.text, {size = 300})
  local last = tokenizer.special["<|endoftext|>"]
  t.same(last, 299)
  local text = "<|endoftext|>tile<|endoftext|>"
  local ids, count = tokenizer:encode(text, nil, {special = true})
  t.same({ids[0], ids[count - 1]}, {last, last})
  for _, id in ipairs(tokenizer:ids(text)) do assert(id ~= last) end
  t.same(tokenizer:decode {last}, "<|endoftext|>")
end)

t.case("of several special tokens the first wins, and at one position the longest", function()
  local words = nn.train_tokenizer("aaaa", {size = 262, special = {"<a>", "<a><b>", "<c>"}})
  local ids = words.special
  local function encode(text)
    local array, count = words:encode(text, "", {special = true})
    local list = {}
    for i = 1, count do list[i] = array[i - 1] end
    return list
  end
  t.same(encode "<c><a><b><a><c>", {ids["<c>"], ids["<a><b>"], ids["<a>"], ids["<c>"]})
  t.same(words:decode(encode "x<a>y<c><b>"), "x<a>y<c><b>")
end)

t.case("a long piece takes time that grows with its length, not its square", function()
  local tokenizer = learned()
  local text = ("tile"):rep(250000)
  t.same(tokenizer:decode(tokenizer:ids(text)), text)
end)

t.case("learning from one long word takes time that grows with its length", function()
  local letters = {}
  for i = 1, 400000 do letters[i] = string.char(97 + (i * i * 7 + math.floor(i / 3)) % 26) end
  local text, start = table.concat(letters), nn.now()
  local tokenizer = nn.train_tokenizer(text, {size = 4000, min_count = 1})
  t.check(nn.now() - start < 15, "it took long")
  t.same(tokenizer:decode(tokenizer:ids(text)), text)
end)

t.case("a piece that begins with the last two of a window is counted as one", function()
  local window = 2 ^ 20
  local text = ("a "):rep(window / 2 - 2) .. "aa're"
  t.same(#text, window + 1)
  t.same(#nn.train_tokenizer(text, {size = 300, min_count = 1}):ids "'re", 1)
end)

t.case("Ctrl-C ends learning and encoding", function()
  for _, action in ipairs {"nn.train_tokenizer(text, {size = 1e6, min_count = 1})",
                           "while true do words:ids(text) end"} do
    local status, output = t.shell(([[
      cd %s; rm -f log; env --default-signal $NNLUA -e '
        local letters = {}
        for i = 1, 4e6 do letters[i] = string.char(97 + math.random(26) - 1) end
        local text = table.concat(letters)
        local words = nn.train_tokenizer("to be or not to be", {size = 260})
        print "ready"
        io.stdout:flush()
        while true do %s end' >log 2>&1 & process=$!
      (timeout 60 tail --pid=$process -f /dev/null || kill -KILL $process) >/dev/null 2>&1 &
      for i in $(seq 600); do grep -qs ready log && break; sleep 0.1; done
      sleep 0.3; kill -INT $process
      wait $process; status=$?; cat log; exit $status]]):format(folder, action))
    t.same({status, output}, {130, "ready\nnnlua: interrupted\n"})
  end
end)

t.case("a tokenizer is the same after saving and loading, in each form", function()
  local tokenizer = nn.train_tokenizer(golden.text, {size = 350})
  tokenizer:save(folder .. "/tok")
  local from_json = nn.tokenizer(folder .. "/tok/tokenizer.json")
  files.remove(folder .. "/tok/tokenizer.json")
  local from_two = nn.tokenizer(folder .. "/tok")
  local from_state = require("nn.text.tokenizer").from_state(tokenizer:state())
  for _, other in ipairs {from_json, from_two, from_state} do
    t.same(other.symbols, tokenizer.symbols)
    t.same(other.merges, tokenizer.merges)
    t.same(other.special, tokenizer.special)
  end
end)

t.case("a large vocabulary has 32-bit ids", function()
  local tokenizer = learned()
  local symbols = {}
  for i, symbol in ipairs(tokenizer.symbols) do symbols[i] = symbol end
  for i = #symbols + 1, 70000 do symbols[i] = "unused " .. i end
  local large = require("nn.text.bpe").new(symbols, tokenizer.merges, {["<|x|>"] = 69999})
  local ids, count = large:encode("<|x|>", nil, {special = true})
  t.same({count, ids[0], large.id_type}, {1, 69999, "uint32_t"})
end)

t.case("tokens that were added to vocab.json and merges.txt are loaded", function()
  local words, path = nn.train_tokenizer("to be or not to be", {size = 260}), folder .. "/added"
  words:save(path)
  files.remove(path .. "/tokenizer.json")
  files.write(path .. "/added_tokens.json", '{"<pad>": 260}')
  local again = nn.tokenizer(path)
  t.same({again.size, again.special["<pad>"]}, {261, 260})
  t.same(again:ids "to be or", words:ids "to be or")
  files.write(path .. "/added_tokens.json", '{"<pad>": 999}')
  t.same(nn.tokenizer(path).special["<pad>"], 260)        -- as in the library tokenizers
end)

t.case("invalid arguments are refused by name", function()
  local words = nn.train_tokenizer("aaaa", {size = 258})
  local function refused(message, f, ...)
    local arguments = {...}
    t.fails(function() f(unpack(arguments)) end, message)
  end
  refused("the text is nil", nn.train_tokenizer)
  refused("has no option 'sise'", nn.train_tokenizer, "a", {sise = 300})
  for _, special in ipairs {{""}, {"a"}, {1}, {"<a>", "<a>"}} do
    refused("a special token is", nn.train_tokenizer, "aaaa", {size = 300, special = special})
  end
  refused("special is '<x>'; a list", nn.train_tokenizer, "aaaa", {size = 300, special = "<x>"})
  refused("encode: the text is nil", words.encode, words)
  refused("has no option 'specal'", words.encode, words, "a", "", {specal = true})
  refused("decode: the argument is 'a'", words.decode, words, "a")
  refused("decode: an id is 'x'", words.decode, words, {1, "x"})
  refused("the text is empty", nn.vocabulary, "char", "")
  refused("tokenizer: the path is nil", nn.tokenizer)
end)

t.case("a char vocabulary accepts standard UTF-8 only", function()
  local good = {"\0", "\127", "\194\128", "\223\191", "\224\160\128", "\237\159\191",
                "\238\128\128", "\239\191\191", "\240\144\128\128", "\244\143\191\191"}
  for _, text in ipairs(good) do t.same(nn.vocabulary("char", text).size, 1) end
  local bad = {"\128", "\192\128", "\193\191", "\194", "\224\159\191", "\237\160\128", "\226\130",
               "\240\143\191\191", "\244\144\128\128", "\245\128\128\128", "\255"}
  for _, text in ipairs(bad) do
    t.fails(function() nn.vocabulary("char", "ab" .. text) end, "byte 2 is not UTF-8")
  end
end)

t.case("files that are missing, malformed or of another kind are refused by name", function()
  local function write(name, text)
    files.make_folder(folder .. "/bad")
    files.write(folder .. "/bad/" .. name, text)
    return folder .. "/bad/" .. name
  end
  t.fails(function() nn.tokenizer(folder .. "/none") end, "there is no such folder")
  t.fails(function() nn.tokenizer(write("a.json", "{")) end, "a.json is not JSON")
  t.fails(function() nn.tokenizer(write("a.json", '{"model":{"type":"Unigram"}}')) end,
          "it has no model.vocab")
  t.fails(function() nn.tokenizer(write("a.json", '{"model":{"type":"WordLevel"}}')) end,
          "its model is WordLevel; nnlua reads BPE, Unigram and WordPiece")
  local json = learned():json()
  local function changed(from, to)
    local first, last = json:find(from, 1, true)
    return write("b.json", json:sub(1, first - 1) .. to .. json:sub(last + 1))
  end
  t.fails(function() nn.tokenizer(changed('"type":"ByteLevel"', '"type":"UnicodeScripts"')) end,
          "the pre_tokenizer 'UnicodeScripts' is not supported")
  t.fails(function() nn.tokenizer(changed('"A":32', '"A":33')) end, "have the id 33")
  t.fails(function() nn.tokenizer(changed('"A":32', '"A":-1')) end, "whole number")
  t.fails(function() nn.tokenizer(changed('"merges":[\n"', '"merges":[\n"nothing ')) end,
          "merge 1")
  t.fails(function() nn.train_tokenizer("x", {size = 100}) end, "size is 100")
end)

t.finish()
