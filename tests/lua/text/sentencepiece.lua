-- Tokenizers of folders without a tokenizer.json, against the libraries sentencepiece and
-- transformers (tests/golden/make_sentencepiece.py): models of SentencePiece, BERT's vocab.txt;
-- what is saved; what is refused.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"
local tables = require "nn.base.tables"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local token_sums = require "token_sums"

local golden_folder = host.root .. "/tests/golden/sentencepiece/"
local golden = files.parse_json(files.read(golden_folder .. "expected.json"))
local folder = t.folder()
local made = 0

-- A new folder of files {name = text, or a value for JSON}.
local function folder_of(contents)
  made = made + 1
  local path = folder .. "/" .. made
  files.make_folder(path)
  for name, content in pairs(contents) do
    files.write(path .. "/" .. name, type(content) == "string" and content or files.json(content))
  end
  return path
end

local function model_bytes(kind)
  return files.read(golden_folder .. kind:gsub(" ", "_") .. ".model")
end

local loaded = {}
local function tokenizer_of(kind)
  loaded[kind] = loaded[kind] or nn.tokenizer(folder_of {["tokenizer.model"] = model_bytes(kind)})
  return loaded[kind]
end

local function bert(name)
  return nn.tokenizer(folder_of {["vocab.txt"] = files.read(golden_folder .. "vocab.txt"),
                                 ["tokenizer_config.json"] = golden.berts[name].config})
end

local function check_sums(tokenizer, expected, name, options)
  for i, text in ipairs(golden.texts) do
    t.same(token_sums.summary(tokenizer:encode(text, nil, options)), expected.plain[i],
           ("%s, text %d: %s"):format(name, i, text))
  end
end

local chunks, random_texts

local function check_many(tokenizer, expected, name)
  chunks = chunks or token_sums.unicode_chunks(#expected.unicode, golden.chunk)
  random_texts = random_texts or token_sums.random(golden.bunch * #expected.random,
                                                   golden.alphabet)
  for i, text in ipairs(chunks) do
    t.same(token_sums.summary(tokenizer:encode(text)), expected.unicode[i],
           ("%s, code points from %X on"):format(name, (i - 1) * golden.chunk))
  end
  for number, sums in ipairs(expected.random) do
    t.same(token_sums.sum_of(tokenizer, random_texts, (number - 1) * golden.bunch + 1,
                             number * golden.bunch),
           sums, ("%s, bunch %d"):format(name, number))
  end
end

t.case("hard texts have the ids of sentencepiece, and decode to its texts", function()
  for _, kind in ipairs(tables.sorted_keys(golden.kinds)) do
    local tokenizer, expected = tokenizer_of(kind), golden.kinds[kind]
    check_sums(tokenizer, expected, kind)
    for i, text in ipairs(golden.texts) do
      local crc = expected.decoded[i]
      if type(crc) == "number" then
        t.same(token_sums.text_crc(tokenizer:decode(tokenizer:ids(text))), crc,
               ("%s, decoded text %d: %s"):format(kind, i, text))
      end
    end
  end
end)

t.case("code points and random texts have the ids of sentencepiece", function()
  for _, kind in ipairs(tables.sorted_keys(golden.kinds)) do
    check_many(tokenizer_of(kind), golden.kinds[kind], kind)
  end
end)

t.case("the ids with BERT's vocab.txt are those of transformers", function()
  for _, name in ipairs(tables.sorted_keys(golden.berts)) do
    check_sums(bert(name), golden.berts[name], name, {special = true})
    check_many(bert(name), golden.berts[name], name)
  end
end)

local function check_around(tokenizer, expected, name)
  t.same(tokenizer:ids "to be", expected.added, name)
  t.same(tokenizer:ids("to be", {pair = "or not"}), expected.pair, name)
  t.same(tokenizer:ids(golden.special, {special = true, add_special = false}), expected.special,
         name)
  t.same(tokenizer.size, expected.size, name)
  for _, token in ipairs {"bos", "eos", "pad", "unk"} do
    local id = expected[token]
    t.same(tokenizer[token], type(id) == "number" and id or nil, name .. ", " .. token)
  end
end

t.case("special tokens are those of AutoTokenizer, also of what was saved", function()
  local function check(path, expected, name)
    local tokenizer = nn.tokenizer(path)
    check_around(tokenizer, expected, name)
    tokenizer:save(path .. "/saved")
    check_around(nn.tokenizer(path .. "/saved"), expected, name .. ", saved")
    local state = files.parse_json(files.json(tokenizer:state()))
    local restored = require("nn.text.tokenizer").from_state(state)
    check_around(restored, expected, name .. ", from a checkpoint")
    restored:save(path .. "/restored")
    for _, file in ipairs(files.list(path .. "/saved")) do
      t.same(files.read(path .. "/restored/" .. file), files.read(path .. "/saved/" .. file), file)
    end
  end
  for _, name in ipairs(tables.sorted_keys(golden.folders)) do
    local one = golden.folders[name]
    check(folder_of {[one.file] = model_bytes(one.model), ["tokenizer_config.json"] = one.config},
          one, name)
  end
  for _, name in ipairs(tables.sorted_keys(golden.berts)) do
    check(folder_of {["vocab.txt"] = files.read(golden_folder .. "vocab.txt"),
                     ["tokenizer_config.json"] = golden.berts[name].config},
          golden.berts[name], name)
  end
end)

t.case("bytes become base64 and come back", function()
  local base64 = require "nn.base.base64"
  for text, encoded in pairs {[""] = "", f = "Zg==", fo = "Zm8=", foo = "Zm9v",
                              ["\0\255"] = "AP8="} do
    t.same({base64.encode(text), base64.decode(encoded)}, {encoded, text})
  end
  t.same({base64.decode "Zm9", base64.decode "Z" == nil, base64.decode "Z?==" == nil},
         {"fo", true, true})
end)

t.case("a damaged model in a checkpoint is refused", function()
  local from_state = require("nn.text.tokenizer").from_state
  for name, value in pairs {model = "?", name = "../tokenizer.model"} do
    local state = tokenizer_of "bpe bytes":state()
    state[name] = value
    t.fails(function() from_state(state) end,
            "the checkpoint's tokenizer: its SentencePiece model is damaged")
  end
end)

t.case("the model_type of config.json stands in for a missing tokenizer_class", function()
  local one = golden.folders.t5
  local path = folder_of {["spiece.model"] = model_bytes "t5",
                          ["config.json"] = {model_type = "t5"}}
  local tokenizer = nn.tokenizer(path)
  check_around(tokenizer, one, "t5")
  tokenizer:save(path .. "/saved")
  check_around(nn.tokenizer(path .. "/saved"), one, "t5, saved")
end)

t.case("tokens of added_tokens.json and special_tokens_map.json are cut out of texts", function()
  local size = tokenizer_of "bpe bytes".size
  local contents = {["tokenizer.model"] = model_bytes "bpe bytes",
                    ["added_tokens.json"] = {["<new>"] = size, ["<pad>"] = size + 1},
                    ["special_tokens_map.json"] = {pad_token = "<pad>", mask_token = {
                      content = "<hole>", lstrip = true}}}
  local tokenizer = nn.tokenizer(folder_of(contents))
  t.same({tokenizer.size, tokenizer.pad}, {size + 3, size + 1})
  t.same(tokenizer:ids "<new>", {size})
  t.check(#tokenizer:ids "<pad>" > 1, "a special token is plain text")
  t.same(tokenizer:ids("<pad>  <hole>", {special = true}), {size + 1, size + 2})
  contents["added_tokens.json"] = {["<new>"] = 900, ["<pad>"] = 903}     -- as in transformers 5
  t.same(nn.tokenizer(folder_of(contents)):ids("<new><pad>", {special = true}), {size, size + 1})
end)

t.case("a user-defined token that the folder calls special is plain text by default", function()
  local bytes = model_bytes "bpe symbols"
  local free = nn.tokenizer(folder_of {["tokenizer.model"] = bytes})
  local config = {additional_special_tokens = {"<sep>"}}
  local safe = nn.tokenizer(folder_of {["tokenizer.model"] = bytes,
                                       ["tokenizer_config.json"] = config})
  local id = safe.special["<sep>"]
  local function has(ids)
    for _, other in ipairs(ids) do
      if other == id then return true end
    end
    return false
  end
  t.same({has(free:ids "to<sep>be"), has(safe:ids "to<sep>be"),
          has(safe:ids("to<sep>be", {special = true}))}, {true, false, true})
end)

t.case("bytes that are not UTF-8 become U+FFFD, as in sentencepiece", function()
  local tokenizer = tokenizer_of "bpe bytes"
  local sign = "\239\191\189"
  t.same(tokenizer:ids "to\255 be\226\150", tokenizer:ids("to" .. sign .. " be" .. sign .. sign))
end)

t.case("a long text of words has the ids of the words", function()
  local tokenizer = tokenizer_of "bpe bytes"
  local few, expected, count = tokenizer:ids "to be or not", {}, 3000
  for i = 1, count * #few do expected[i] = few[(i - 1) % #few + 1] end
  t.same(tokenizer:ids(("to be or not "):rep(count):sub(1, -2)), expected)
  -- With tokens across words, a text is one piece.
  local text = ("to be or not "):rep(count):sub(1, -2)
  local across = tokenizer_of "bpe across words"
  t.same(across:decode(across:ids(text)), text)
end)

-- ### What is refused

local function refused(contents, ...)
  local path = folder_of(contents)
  t.fails(function() nn.tokenizer(path) end, ...)
end

-- A field of Protocol Buffers: bytes, or a number below 128.
local function field(number, value)
  if type(value) == "number" then return string.char(8 * number, value) end
  return string.char(8 * number + 2, #value) .. value
end

local function piece(text, type) return field(1, field(1, text) .. field(3, type)) end

t.case("models that sentencepiece would refuse, and those of other kinds, are refused by name",
       function()
  local function model(...) return {["tokenizer.model"] = table.concat {...}} end
  local unknown = piece("<unk>", 2)
  refused(model "", "tokenizer.model: it is not a SentencePiece model: it has no tokens")
  refused(model "IQ== 0\nIg== 1\n", "not a SentencePiece model")
  refused(model(piece("<unk>", 2):sub(1, -2)), "is not a SentencePiece model, or is damaged")
  refused(model(piece("a", 1)), "it has no unknown token")
  refused(model(unknown, piece("<u>", 2)), "it has two unknown tokens")
  refused(model(unknown, piece("a", 1), piece("a", 4)), "it has the token 'a' twice")
  refused(model(unknown, piece("", 1)), "its token 1 is empty")
  refused(model(unknown, piece("a", 7)), "its token 1 has the type 7; 1 to 6 are possible")
  for _, score in ipairs {"\0\0\128\127", "\0\0\128\255", "\255\255\255\255"} do
    refused(model(unknown, field(1, field(1, "a") .. "\21" .. score)),
            "the score of its token 1 is not finite")
  end
  refused(model(unknown, piece("<0x00>", 6)), "a token '<0x00>' for a byte, but not byte_fallback")
  -- Field 35, byte_fallback.
  refused(model(unknown, field(2, "\152\002\001")), "but has no token <0x00> for a byte")
  refused(model(unknown, field(2, field(3, 3))), "its model_type is word; nnlua reads unigram and")
  refused(model(unknown, field(2, field(3, 9))), "its model_type is 9; nnlua reads unigram and bpe")
  refused(model(unknown, field(5, field(2, "map"))), "it has a denormalizer, which is not")
  refused(model(unknown, field(3, field(2, "map"))), "tokenizer.model: precompiled_charsmap is")
  t.same(nn.tokenizer(folder_of(model(unknown, piece("\226\150\129", 1)))):ids "  ?", {1, 0})
end)

t.case("classes of tokenizers with other ids are refused by name", function()
  local bytes = model_bytes "unigram plain"
  refused({["tokenizer.model"] = bytes, ["tokenizer_config.json"] = {
    tokenizer_class = "MBartTokenizer"}}, "tokenizer.model: the tokenizer_class MBartTokenizer may")
  refused({["sentencepiece.bpe.model"] = bytes, ["config.json"] = {model_type = "mbart"}},
          "config.json has the model_type mbart, whose tokenizer nnlua does not know; set token")
  refused({["tokenizer.model"] = model_bytes "t5", ["tokenizer_config.json"] = {
    tokenizer_class = "T5Tokenizer", extra_ids = -1}}, "extra_ids is -1; a whole number is needed")
  refused({["spiece.model"] = model_bytes "t5", ["config.json"] = {model_type = "camembert"}},
          "<unk> is the token 2 of the model; this tokenizer_class needs one before 1")
  for _, name in ipairs {"tokenizer_config.json", "config.json"} do
    refused({["vocab.txt"] = "[UNK]\n", [name] = {tokenizer_class = "BertJapaneseTokenizer"}},
            "tokenizer_class is BertJapaneseTokenizer; nnlua reads")
  end
  refused({["vocab.txt"] = "<unk>\n", ["config.json"] = {model_type = "esm"}},
          "the model_type in config.json is esm; nnlua reads")
  refused({["spiece.model"] = model_bytes "t5", ["config.json"] = {
    model_type = "t5", tokenizer_class = "PegasusTokenizer"}}, "tokenizer_class PegasusTokenizer")
  refused({["vocab.txt"] = "[UNK]\na\na\n"}, "the lines 2 and 3 are the same token 'a'")
end)

t.case("tokenizers in other formats are refused by the name of their file", function()
  for _, name in ipairs {"vocab.json", "tekken.json", "x.tiktoken", "source.spm"} do
    refused({[name] = "{}"}, name .. ": nnlua cannot read this tokenizer")
  end
  refused({["config.json"] = "{}"}, "has no tokenizer: none of tokenizer.json,")
end)

t.finish()
