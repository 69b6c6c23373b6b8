-- Files of byte-level BPE tokenizers, as Hugging Face's libraries read and write them:
-- tokenizer.json, or vocab.json and merges.txt.
local bit = require "bit"
local bpe = require "nn.text.bpe"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"

local M = {}
local Tokenizer = bpe.Tokenizer
local LARGEST = bpe.LARGEST

-- ### The names of bytes in vocabulary files: a printable character is its own name; the other
-- bytes have the characters from U+0100.

local function utf8(code)
  if code < 0x80 then return string.char(code) end
  return string.char(0xC0 + bit.rshift(code, 6), 0x80 + bit.band(code, 0x3F))
end

local name_of_byte, byte_of_name = {}, {}
do
  local others = 0
  for byte = 0, 255 do
    local printable = byte >= 33 and byte <= 126 or byte >= 161 and byte ~= 173
    local name = utf8(printable and byte or 256 + others)
    if not printable then others = others + 1 end
    name_of_byte[string.char(byte)], byte_of_name[name] = name, string.char(byte)
  end
end

local function name_of(symbol) return (symbol:gsub(".", name_of_byte)) end

-- The bytes of a name; nil if it contains other characters.
local function bytes_of(name)
  local parts = {}
  for character in name:gmatch "[%z\1-\127\194-\244][\128-\191]*" do
    local byte = byte_of_name[character]
    if not byte then return nil end
    parts[#parts + 1] = byte
  end
  return table.concat(parts)
end

--- byte_symbols() -> the 256 bytes in GPT-2's order of ids: by the code points of their names.
function M.byte_symbols()
  local first, others = {}, {}
  for byte = 0, 255 do
    local symbol = string.char(byte)
    local list = #name_of_byte[symbol] == 1 and first or others
    list[#list + 1] = symbol
  end
  table.sort(others, function(a, b) return name_of_byte[a] < name_of_byte[b] end)
  for _, symbol in ipairs(others) do first[#first + 1] = symbol end
  return first
end

-- ### Writing

-- Joins JSON entries with one per line, so that editors can show files of 50,000 tokens.
local function json_lines(open, entries, close)
  return open .. "\n" .. table.concat(entries, ",\n") .. "\n" .. close
end

local function added_token(text, id)
  return ('{"id":%d,"content":%s,"single_word":false,"lstrip":false,"rstrip":false,'
          .. '"normalized":false,"special":true}'):format(id, files.json(text))
end

-- Vocabulary and merges as lists of JSON texts, and special tokens sorted by id.
local function json_parts(self)
  local vocab, merges, added = {}, {}, {}
  for i, symbol in ipairs(self.symbols) do
    local name = self.special[symbol] == i - 1 and symbol or name_of(symbol)
    vocab[i] = files.json(name) .. ":" .. i - 1
  end
  for i, merge in ipairs(self.merges) do
    merges[i] = name_of(self.symbols[merge[1] + 1]) .. " " .. name_of(self.symbols[merge[2] + 1])
  end
  for text, id in pairs(self.special) do added[#added + 1] = {text = text, id = id} end
  table.sort(added, function(a, b) return a.id < b.id end)
  for i, token in ipairs(added) do added[i] = added_token(token.text, token.id) end
  return vocab, merges, added
end

local BYTE_LEVEL = '{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,'
  .. '"use_regex":true}'

--- tokenizer:json() -> the text of a tokenizer.json for the library tokenizers.
---     #nn.train_tokenizer("aaaa", {size = 258}):json() > 1000  --> true
function Tokenizer:json()
  local vocab, merges, added = json_parts(self)
  for i, line in ipairs(merges) do merges[i] = files.json(line) end
  return table.concat {
    '{"version":"1.0","truncation":null,"padding":null,\n"added_tokens":[',
    table.concat(added, ","), '],\n"normalizer":null,\n"pre_tokenizer":', BYTE_LEVEL,
    ',\n"post_processor":', BYTE_LEVEL, ',\n"decoder":', BYTE_LEVEL, ',\n"model":',
    '{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"",',
    '"end_of_word_suffix":"","fuse_unk":false,"byte_fallback":false,"ignore_merges":false,\n',
    json_lines('"vocab":{', vocab, "},\n"), json_lines('"merges":[', merges, "]}}\n")}
end

--- tokenizer:save(folder): writes tokenizer.json, vocab.json, merges.txt and tokenizer_config.json,
--- for AutoTokenizer of transformers. Errors: failures of the disk.
---     nn.train_tokenizer("to be or not to be", {size = 260}):save "my-tokenizer"
---     nn.tokenizer("my-tokenizer").size  --> 260
function Tokenizer:save(folder)
  files.make_folder(folder, "the tokenizer's folder")
  local vocab, merges = json_parts(self)
  files.remove(files.join(folder, "vocabulary.json"))           -- of another vocabulary
  files.write(files.join(folder, "tokenizer.json"), self:json())
  files.write(files.join(folder, "vocab.json"), json_lines("{", vocab, "}\n"))
  files.write(files.join(folder, "merges.txt"),
              "#version: 0.2\n" .. table.concat(merges, "\n") .. "\n")
  local config = {tokenizer_class = "GPT2Tokenizer", add_prefix_space = false}
  local last = self.special["<|endoftext|>"] and "<|endoftext|>"
  config.bos_token, config.eos_token, config.unk_token = last, last, last
  files.write(files.join(folder, "tokenizer_config.json"), files.json(config, "") .. "\n")
end

--- tokenizer:state() -> {kind="bpe", json=}: the tokenizer as a checkpoint stores it.
---     nn.train_tokenizer("aaaa", {size = 258}):state().kind  --> "bpe"
function Tokenizer:state() return {kind = "bpe", json = self:json()} end

-- ### Reading

-- A tokenizer from a file's vocabulary (ids by name), merges ({left, right}) and added tokens.
local function build(path, vocab, pairs_of_names, added)
  local symbols, id_of_name, special = {}, {}, {}
  local function place(id, symbol, name)
    if type(id) ~= "number" or id < 0 or id % 1 ~= 0 or id >= LARGEST then
      lib.fail("%s: the id %s of '%s' is not a whole number below 2^20", path, tostring(id), name)
    end
    if symbols[id + 1] and symbols[id + 1] ~= symbol then
      lib.fail("%s: '%s' and another token have the id %d", path, name, id)
    end
    symbols[id + 1] = symbol
  end
  for _, token in ipairs(added) do
    special[token.content] = token.id
    place(token.id, token.content, token.content)
  end
  for name, id in pairs(vocab) do
    if type(name) ~= "string" then lib.fail("%s: its vocabulary is a list, not an object", path) end
    if not special[name] then
      local symbol = bytes_of(name)
        or lib.fail("%s: the token '%s' is not byte-level", path, name)
      place(id, symbol, name)
      id_of_name[name] = id
    end
  end
  local count, last = 0, table.maxn(symbols) - 1
  for _ in pairs(symbols) do count = count + 1 end
  if count ~= last + 1 then
    lib.fail("%s: %d tokens, but ids up to %d; all ids must be used", path, count, last)
  end
  local merges = {}
  for i, pair in ipairs(pairs_of_names) do
    local left, right = id_of_name[pair[1]], id_of_name[pair[2]]
    local joined = id_of_name[pair[1] .. pair[2]]
    if not left or not right or not joined then
      lib.fail("%s: merge %d joins '%s' and '%s'; both and the result must be tokens", path, i,
               pair[1], pair[2])
    end
    merges[i] = {left, right, joined}
  end
  return bpe.new(symbols, merges, special, path)
end

local function need(condition, path, text, ...)
  if not condition then lib.fail("%s: " .. text, path, ...) end
end

-- Rejects a tokenizer.json of any other kind than GPT-2's.
local function check_kind(content, path)
  local model, before = content.model, content.pre_tokenizer
  need(type(model) == "table" and (model.type == nil or model.type == "BPE"), path,
       "its model is not BPE")
  need(type(model.vocab) == "table" and type(model.merges) == "table", path,
       "it has no model.vocab or model.merges")
  need(type(before) == "table" and before.type == "ByteLevel" and before.use_regex ~= false
       and before.add_prefix_space ~= true, path,
       "it splits text differently from GPT-2 (pre_tokenizer must be ByteLevel, without a prefix "
       .. "space); nnlua supports only GPT-2's splitting")
  need(type(content.normalizer) ~= "table", path, "it has a normalizer; GPT-2 has none")
  need(model.ignore_merges ~= true, path, "it sets model.ignore_merges; GPT-2 does not")
end

--- from_json(content, path) -> tokenizer of a parsed tokenizer.json; `path`: for errors.
function M.from_json(content, path)
  check_kind(content, path)
  local list, added = {}, {}
  for i, line in ipairs(content.model.merges) do
    if type(line) == "string" then line = {line:match "^(%S+) (%S+)$"} end
    need(type(line) == "table" and type(line[1]) == "string" and type(line[2]) == "string"
         and #line == 2, path, "merge %d is not a pair", i)
    list[i] = line
  end
  for _, token in ipairs(type(content.added_tokens) == "table" and content.added_tokens or {}) do
    need(type(token) == "table" and type(token.content) == "string" and token.content ~= "", path,
         "an entry of added_tokens has no content")
    added[#added + 1] = token
  end
  return build(path, content.model.vocab, list, added)
end

--- from_two_files(vocab_path, merges_path) -> tokenizer of a vocab.json and a merges.txt.
function M.from_two_files(vocab_path, merges_path)
  local vocab, list, number = json.read(vocab_path), {}, 0
  for line in files.read(merges_path):gmatch "([^\r\n]*)\r?\n?" do
    number = number + 1
    if line ~= "" and not (number == 1 and line:find "^#version") then
      local left, right = line:match "^(%S+) (%S+)$"
      need(left, merges_path, "line %d is not a pair of tokens", number)
      list[#list + 1] = {left, right}
    end
  end
  local added = {}
  for name, id in pairs(vocab) do
    if type(name) == "string" and name:find "^<|.*|>$" then
      added[#added + 1] = {content = name, id = id}
    end
  end
  local added_path = vocab_path:gsub("vocab%.json$", "added_tokens.json")
  if files.exists(added_path) then
    for name, id in pairs(json.read(added_path)) do
      need(type(name) == "string" and name ~= "", added_path, "it is a list, not an object")
      added[#added + 1] = {content = name, id = id}
    end
  end
  return build(vocab_path, vocab, list, added)
end

return M
