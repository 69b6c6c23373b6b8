-- Tokenizers of the model families against the library tokenizers
-- (tests/golden/make_tokenizers.py): byte-level BPE with several regular expressions,
-- SentencePiece's BPE and Unigram, WordPiece, with their normalizers, added tokens, templates and
-- decoders; what is refused.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local token_sums = require "token_sums"

local golden_folder = host.root .. "/tests/golden/tokenizers/"
local golden = files.parse_json(files.read(golden_folder .. "expected.json"))
local folder = t.folder()

local kinds = {}
for name in pairs(golden.kinds) do kinds[#kinds + 1] = name end
table.sort(kinds)

local loaded = {}
local function tokenizer_of(kind)
  loaded[kind] = loaded[kind] or nn.tokenizer(golden_folder .. kind .. ".json")
  return loaded[kind]
end

local summary, text_crc, sum_of = token_sums.summary, token_sums.text_crc, token_sums.sum_of

local function encoded(kind, text, special)
  return summary(tokenizer_of(kind):encode(text, nil, {special = special}))
end

t.case("hard texts have the ids that the library gives them, with and without special tokens",
       function()
  for _, kind in ipairs(kinds) do
    for i, text in ipairs(golden.texts) do
      local label = ("%s, text %d: %s"):format(kind, i, text)
      t.same(encoded(kind, text, false), golden.kinds[kind].plain[i], label)
      t.same(encoded(kind, text, true), golden.kinds[kind].special[i], label)
    end
  end
end)

t.case("ids decode to the texts that the library gives, whole and token by token", function()
  for _, kind in ipairs(kinds) do
    local tokenizer = tokenizer_of(kind)
    for i, text in ipairs(golden.texts) do
      local ids = tokenizer:ids(text, {special = true})
      local label = ("%s, text %d: %s"):format(kind, i, text)
      local whole = tokenizer:decode(ids)
      t.same(text_crc(whole), golden.kinds[kind].decoded[i], label)
      t.same(text_crc(tokenizer:decode(ids, {special = false})), golden.kinds[kind].hidden[i],
             label)
      local next_part, parts = tokenizer:stream(), {}
      for at, id in ipairs(ids) do parts[at] = next_part(id) end
      t.same(table.concat(parts), whole, label)
    end
  end
end)

t.case("the tokens around a text and between two texts are the library's", function()
  for _, kind in ipairs(kinds) do
    local tokenizer, expected = tokenizer_of(kind), golden.kinds[kind]
    t.same(tokenizer:ids("to be", {add_special = true}), expected.added, kind)
    local ids, count, types = tokenizer:encode("to be", nil, {add_special = true, pair = "or not"})
    local got, got_types = {}, {}
    for i = 1, count do got[i], got_types[i] = ids[i - 1], types[i - 1] end
    t.same(got, expected.pair, kind)
    t.same(got_types, expected.types, kind)
  end
end)

local chunks

local function unicode_chunks()
  chunks = chunks or token_sums.unicode_chunks(#golden.kinds[kinds[1]].unicode, golden.chunk)
  return chunks
end

t.case("code points are normalized and split as the library does it", function()
  for _, kind in ipairs(kinds) do
    for i, text in ipairs(unicode_chunks()) do
      t.same(encoded(kind, text), golden.kinds[kind].unicode[i],
             ("%s, code points from %X on"):format(kind, (i - 1) * golden.chunk))
    end
  end
end)

t.case("random texts have the library's ids", function()
  local texts = token_sums.random(golden.bunch * #golden.kinds[kinds[1]].random, golden.alphabet)
  for _, kind in ipairs(kinds) do
    for number, sums in ipairs(golden.kinds[kind].random) do
      local first = (number - 1) * golden.bunch + 1
      t.same(sum_of(tokenizer_of(kind), texts, first, number * golden.bunch), sums,
             ("%s, bunch %d"):format(kind, number))
    end
  end
end)

-- A tokenizer of single bytes with one step, so that ids show the text behind it.
local function with_step(step)
  local path = folder .. "/step.json"
  files.write(path, files.json {
    normalizer = step.normalizer, pre_tokenizer = step.pre_tokenizer,
    model = {type = "BPE", vocab = golden.steps.vocab, merges = {}, unk_token = "<unk>",
             byte_fallback = true}})
  return nn.tokenizer(path)
end

t.case("every normalizer and pre-tokenizer gives the library's text", function()
  local random = token_sums.random(golden.bunch * #golden.kinds[kinds[1]].random, golden.alphabet)
  for _, step in ipairs(golden.steps.list) do
    local tokenizer = with_step(step)
    t.same(sum_of(tokenizer, golden.texts), step.texts, step.name)
    for i, text in ipairs(unicode_chunks()) do
      t.same(summary(tokenizer:encode(text)), step.unicode[i],
             ("%s, code points from %X on"):format(step.name, (i - 1) * golden.chunk))
    end
    for number, sums in ipairs(step.random) do
      local first = (number - 1) * golden.bunch + 1
      t.same(sum_of(tokenizer, random, first, number * golden.bunch), sums,
             ("%s, bunch %d"):format(step.name, number))
    end
  end
end)

-- The tokenizer of a golden file of which change(content) changes the content.
local function changed(kind, change)
  local content = files.parse_json(files.read(golden_folder .. kind .. ".json"))
  change(content)
  files.write(folder .. "/changed.json", files.json(content))
  return nn.tokenizer(folder .. "/changed.json")
end

t.case("a template can use a text several times", function()
  local function part(name) return {Sequence = {id = name, type_id = 0}} end
  local tokenizer = changed("bert", function(content)
    content.post_processor = {
      type = "TemplateProcessing", single = {part "A", part "A", part "A"},
      pair = {part "B", part "A", part "B", part "B"}, special_tokens = {}}
  end)
  local a, b = ("to be "):rep(500), ("or not "):rep(300)
  local function repeated(...)
    local all = {}
    for _, text in ipairs {...} do
      for _, id in ipairs(tokenizer:ids(text)) do all[#all + 1] = id end
    end
    return all
  end
  t.same(tokenizer:ids(a, {add_special = true}), repeated(a, a, a))
  t.same(tokenizer:ids(a, {add_special = true, pair = b}), repeated(b, a, b, b))
end)

t.case("an added token outside the vocabulary of a unigram model changes no other ids", function()
  local id
  local tokenizer = changed("t5", function(content)
    id = #content.model.vocab
    table.insert(content.added_tokens, {id = id, content = "<outside>", special = true})
  end)
  for i, text in ipairs(golden.texts) do
    t.same(summary(tokenizer:encode(text)), golden.kinds.t5.plain[i], text)
  end
  local ids = tokenizer:ids("be<outside>be", {special = true})
  local be = tokenizer:ids "be"
  t.same({ids[#be + 1], #ids, tokenizer:decode {id}}, {id, 2 * #be + 1, "<outside>"})
  t.fails(function()
    require("nn.text.native").new({kind = "unigram", symbols = {"a", "b"}, scores = {1},
                                   unknown = 0}, "x.json")
  end, "x.json: 1 scores of 2 tokens; each needs one")
end)

t.case("files with settings of the wrong kind are refused with the reason", function()
  local function refused(kind, change, message)
    t.fails(function() changed(kind, change) end, message)
  end
  refused("bert", function(c) c.normalizer = 7 end, "a step is 7; an object with a type is needed")
  refused("bert", function(c) c.decoder = "WordPiece" end, "a step is WordPiece")
  refused("bert", function(c) c.post_processor = true end, "a step is true")
  refused("llama3", function(c) c.pre_tokenizer.pretokenizers[1] = "Split" end, "a step is Split")
  refused("bert", function(c) c.added_tokens = "[PAD]" end, "added_tokens is [PAD]; a list")
  refused("bert", function(c) c.added_tokens = {a = 1} end, "added_tokens is an object; a list")
  refused("mistral", function(c) table.insert(c.decoder.decoders, 1, {type = "Fuse"})
                                 c.decoder.decoders[2] = {type = "ByteLevel"} end,
          "its pre_tokenizer must be ByteLevel too")
  refused("gpt2", function(c) c.decoder = {type = "Sequence", decoders = {
    {type = "Fuse"}, {type = "ByteLevel"}}} end, "its decoder must be ByteLevel and nothing else")
  refused("bert", function(c) c.pre_tokenizer = {type = "Sequence", pretokenizers = {}}
    for i = 1, 101 do c.pre_tokenizer.pretokenizers[i] = {type = "Whitespace"} end
  end, "100 pre-tokenizers at most")
end)

t.finish()
