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
      local ids = tokenizer:ids(text, {special = true, add_special = false})
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
    t.same(tokenizer:ids "to be", expected.added, kind)
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
      for _, id in ipairs(tokenizer:ids(text, {add_special = false})) do all[#all + 1] = id end
    end
    return all
  end
  t.same(tokenizer:ids(a), repeated(a, a, a))
  t.same(tokenizer:ids(a, {pair = b}), repeated(b, a, b, b))
end)

t.case("an added token outside the vocabulary of a unigram model changes no other ids", function()
  local id
  local tokenizer = changed("t5", function(content)
    id = #content.model.vocab
    table.insert(content.added_tokens, {id = id, content = "<outside>", special = true,
                                        single_word = false, lstrip = false, rstrip = false,
                                        normalized = false})
  end)
  for i, text in ipairs(golden.texts) do
    t.same(summary(tokenizer:encode(text)), golden.kinds.t5.plain[i], text)
  end
  local ids = tokenizer:ids("be<outside>be", {special = true, add_special = false})
  local be = tokenizer:ids("be", {add_special = false})
  t.same({ids[#be + 1], #ids, tokenizer:decode {id}}, {id, 2 * #be + 1, "<outside>"})
  t.fails(function()
    require("nn.text.native").new({kind = "unigram", symbols = {"a", "b"}, scores = {1},
                                   unknown = 0}, "x.json")
  end, "x.json: 1 scores of 2 tokens; each needs one")
end)

-- The GPT-2 tokenizer of tests/golden with these files beside it, and the folder.
local function with_files(config, map, added)
  local path = t.folder()
  files.write(path .. "/tokenizer.json", files.read(golden_folder .. "gpt2.json"))
  for name, content in pairs {["tokenizer_config.json"] = config or false,
                              ["special_tokens_map.json"] = map or false,
                              ["added_tokens.json"] = added or false} do
    if content then files.write(path .. "/" .. name, content) end
  end
  return nn.tokenizer(path), path
end

-- As AutoTokenizer of transformers 5.24 does it.
t.case("special_tokens_map.json beside a tokenizer.json wins, unless the config has a decoder",
       function()
  local token, other = "<|endoftext|>", "a"
  local id = tokenizer_of "gpt2".special[token]
  local function eos(config, map)
    local tokenizer, path = with_files(config and files.json(config), map)
    tokenizer:save(path .. "/saved")
    t.same(nn.tokenizer(path .. "/saved").eos, tokenizer.eos, "saved")
    t.same(require("nn.text.tokenizer").from_state(tokenizer:state()).eos, tokenizer.eos, "stored")
    return tokenizer.eos
  end
  local text = ('{"eos_token": "%s"}'):format(token)
  t.same(eos({}, ('{"eos_token": {"content": "%s", "lstrip": false}}'):format(token)), id)
  t.same(eos({eos_token = other}, text), id)
  t.same(eos(nil, text), id)
  t.same(eos({eos_token = token}, '{"eos_token": null}'), nil)
  t.same(eos({eos_token = token}, "{}"), id)
  local decoder = {[tostring(id)] = {content = token, special = true}}
  t.same(eos({eos_token = token, added_tokens_decoder = decoder}, '{"eos_token": null}'), id)
  for _, case in ipairs {
    {'{"eos_token": ["</s>"]}', nil, "tokenizer_config.json: eos_token is a list; a text, or an"},
    {'{"eos_token": 0}', nil, "tokenizer_config.json: eos_token is 0; a text"},
    {'{"eos_token": {"lstrip": true}}', nil, "eos_token is an object without content"},
    {nil, '{"pad_token": false}', "special_tokens_map.json: pad_token is false; a text"},
    {nil, '["a"]', "special_tokens_map.json: it is a list; an object is needed"},
    {'{"added_tokens_decoder": null}', "{}", "added_tokens_decoder is null; an object is needed"},
    {'{"added_tokens_decoder": {"0": "a"}}', nil, "token 0 of added_tokens_decoder is no object"},
    {'{"additional_special_tokens": "a"}', nil, "additional_special_tokens is a; a list is"},
  } do t.fails(function() with_files(case[1], case[2]) end, case[3]) end
end)

t.case("files beside a tokenizer.json that change its added tokens in transformers: one warning",
       function()
  local function warned(expected, ...)
    local lib, warnings = require "nn.base.capi", {}
    local before = lib.warn_once
    lib.warn_once = function(text) warnings[#warnings + 1] = text end
    local good, problem = pcall(with_files, ...)
    lib.warn_once = before
    if not good then error(problem, 0) end
    t.same(#warnings, expected and 1 or 0, (...))
    if expected then t.check(warnings[1]:find(expected, 1, true), warnings[1]) end
  end
  warned("tokenizer.json: the files beside it name '<new>', which is not among its added_tokens",
         nil, nil, '{"<new>": 280}')
  for _, config in ipairs {'"additional_special_tokens": ["<new>"]', '"eos_token": "<new>"',
                           '"image_token": "<new>"', '"extra_special_tokens": {"x": "<new>"}',
                           '"added_tokens_decoder": {"280": {"content": "<new>"}}'} do
    warned("'<new>'", "{" .. config .. "}")
  end
  warned("'<new>'", nil, '{"additional_special_tokens": [{"content": "<new>"}]}')
  warned("'<|endoftext|>' with another lstrip", '{"added_tokens_decoder": {"5": {"content": '
         .. '"<|endoftext|>", "lstrip": true, "rstrip": false}}}')
  warned(nil, '{"eos_token": "<|endoftext|>", "pad_token": null, "add_bos_token": false}', "{}")
end)

t.case("files with settings of the wrong kind are refused with the reason", function()
  local function refused(kind, change, message)
    t.fails(function() changed(kind, change) end, message)
  end
  refused("bert", function(c) c.normalizer = 7 end, "a step is 7; an object with a type is needed")
  refused("bert", function(c) c.decoder = "WordPiece" end, "a step is WordPiece")
  refused("bert", function(c) c.post_processor = true end, "a step is true")
  refused("llama3", function(c) c.pre_tokenizer.pretokenizers[1] = "Split" end, "a step is Split")
  refused("bert", function(c) c.normalizer.type = nil end, "a normalizer has no type")
  refused("bert", function(c) c.pre_tokenizer = {a = 1} end, "a pre_tokenizer has no type")
  refused("bert", function(c) c.decoder.type = nil end, "a decoder has no type")
  refused("bert", function(c) c.post_processor.type = nil end, "a post_processor has no type")
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
