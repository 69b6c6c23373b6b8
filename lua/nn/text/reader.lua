-- Reads tokenizer.json, the format of the library tokenizers: models BPE, Unigram and WordPiece
-- with the steps around them. What is not supported is refused by name.
local byte_names = require "nn.text.byte_names"
local decoders = require "nn.text.decoders"
local encoder = require "nn.text.encoder"
local lib = require "nn.base.capi"
local native = require "nn.text.native"
local processors = require "nn.text.processors"
local steps = require "nn.text.steps"

local M = {}
local LARGEST = encoder.LARGEST
-- flags of models and of added tokens (bindings/nn_text.h)
local FUSE, FALLBACK, BYTES, WHOLE = 1, 2, 4, 8
local added_flags = {special = 1, normalized = 2, single_word = 4, lstrip = 8, rstrip = 16}

local function need(condition, path, text, ...)
  if not condition then lib.deny("%s: " .. text, path, ...) end
end

local is_set = steps.is_set

-- ### Vocabularies

-- Stores the text of a token in symbols[id + 1].
local function place(symbols, id, text, path)
  need(type(id) == "number" and id >= 0 and id % 1 == 0 and id < LARGEST, path,
       "the id %s of '%s' is not a whole number below 2^20", tostring(id), text)
  need(not symbols[id + 1] or symbols[id + 1] == text, path,
       "'%s' and another token have the id %d", text, id)
  symbols[id + 1] = text
end

-- The texts of tokens by id + 1 from a vocabulary {name = id}. With `of_bytes`, names stand for
-- bytes, except names of added tokens ({name = token}).
local function from_object(vocab, added, of_bytes, path)
  local symbols = {}
  for name, id in pairs(vocab) do
    need(type(name) == "string", path, "its vocabulary is a list, not an object")
    local text = of_bytes and byte_names.bytes(name) or not of_bytes and name
    need(text or added[name], path, "the token '%s' is not byte-level", name)
    place(symbols, id, text or name, path)
  end
  return symbols
end

-- The texts, ids by text and scores of a list {{text, score}, ...}.
local function from_list(vocab, path)
  local symbols, ids, scores = {}, {}, {}
  for i, pair in ipairs(vocab) do
    need(type(pair) == "table" and type(pair[1]) == "string" and type(pair[2]) == "number", path,
         "token %d of its vocabulary is not [text, score]", i - 1)
    symbols[i], scores[i], ids[pair[1]] = pair[1], pair[2], i - 1
  end
  need(#symbols > 0, path, "its vocabulary is no list of tokens")
  return symbols, ids, scores
end

-- Checks that every id has a token.
local function check_complete(symbols, path)
  local count, last = 0, table.maxn(symbols) - 1
  for _ in pairs(symbols) do count = count + 1 end
  need(count == last + 1, path, "%d tokens, but ids up to %d; all ids must be used", count, last)
end

-- ### Models. Each reader returns the fields of native.new(), and the ids by the names of tokens.

-- Whether the file sets a value that would change the result.
local function check_unset(model, path, ...)
  for _, name in ipairs {...} do
    local value = model[name]
    need(not is_set(value) or value == "" or value == 0 or value == false, path,
         "model.%s is %s; nnlua supports only models without it", name, tostring(value))
  end
end

-- The id of the token for unknown text, or nil.
local function unknown_id(model, ids, path)
  if not is_set(model.unk_token) then return nil end
  local id = ids[model.unk_token]
  need(type(id) == "number", path, "the unk_token '%s' is not in the vocabulary",
       tostring(model.unk_token))
  return id
end

-- {left, right, joined, left, ...}: the ids of the merges.
local function merge_ids(model, path)
  local out, ids = {}, model.vocab
  for i, line in ipairs(model.merges) do
    local left, right
    if type(line) == "string" then
      left, right = line:match "^([^ ]+) ([^ ]+)$"
    elseif type(line) == "table" and #line == 2 then
      left, right = line[1], line[2]
    end
    need(type(left) == "string" and type(right) == "string", path, "merge %d is not a pair", i)
    local joined = ids[left .. right]
    need(ids[left] and ids[right] and joined, path,
         "merge %d joins '%s' and '%s'; both and the result must be tokens", i, left, right)
    out[3 * i - 2], out[3 * i - 1], out[3 * i] = ids[left], ids[right], joined
  end
  return out
end

local function check_fallback(ids, path)
  for byte = 0, 255 do
    need(ids[("<0x%02X>"):format(byte)], path,
         "it sets byte_fallback, but the vocabulary has no token <0x%02X>", byte)
  end
end

local readers = {}

function readers.BPE(model, added, of_bytes, path)
  need(type(model.vocab) == "table" and type(model.merges) == "table", path,
       "it has no model.vocab or model.merges")
  check_unset(model, path, "dropout", "continuing_subword_prefix", "end_of_word_suffix")
  local symbols = from_object(model.vocab, added, of_bytes, path)
  local unknown, falls_back = unknown_id(model, model.vocab, path), model.byte_fallback == true
  if falls_back then check_fallback(model.vocab, path) end
  need(of_bytes or unknown or falls_back, path, "it would drop unknown characters without a word: "
       .. "it has neither unk_token nor byte_fallback")
  local flags = (model.fuse_unk == true and FUSE or 0) + (falls_back and FALLBACK or 0)
    + (of_bytes and BYTES or 0) + (model.ignore_merges == true and WHOLE or 0)
  return {kind = "bpe", symbols = symbols, merges = merge_ids(model, path), unknown = unknown,
          flags = flags}, model.vocab
end

function readers.Unigram(model, _, of_bytes, path)
  need(type(model.vocab) == "table", path, "it has no model.vocab")
  need(not of_bytes, path, "a Unigram model behind a ByteLevel pre_tokenizer is not supported")
  local symbols, ids, scores = from_list(model.vocab, path)
  local unknown = model.unk_id
  need(type(unknown) == "number" and unknown % 1 == 0 and unknown >= 0 and unknown < #symbols, path,
       "model.unk_id is %s; a token of %d is needed", tostring(unknown), #symbols)
  local falls_back = model.byte_fallback == true
  if falls_back then check_fallback(ids, path) end
  return {kind = "unigram", symbols = symbols, scores = scores, unknown = unknown,
          flags = falls_back and FALLBACK or 0}, ids
end

function readers.WordPiece(model, added, of_bytes, path)
  need(type(model.vocab) == "table", path, "it has no model.vocab")
  need(not of_bytes, path, "a WordPiece model behind a ByteLevel pre_tokenizer is not supported")
  local longest = is_set(model.max_input_chars_per_word) and model.max_input_chars_per_word or 100
  need(type(longest) == "number" and longest % 1 == 0 and longest > 0 and longest < 1e6, path,
       "model.max_input_chars_per_word is %s", tostring(longest))
  local prefix = is_set(model.continuing_subword_prefix) and model.continuing_subword_prefix or "##"
  need(type(prefix) == "string" and not prefix:find "%z", path,
       "model.continuing_subword_prefix is %s", tostring(prefix))
  local unknown = unknown_id(model, model.vocab, path)
  need(unknown, path, "it has no model.unk_token")
  return {kind = "wordpiece", symbols = from_object(model.vocab, added, false, path),
          unknown = unknown, longest_word = longest, prefix = prefix}, model.vocab
end

-- ### Added tokens

-- {content = token}, and the tokens in the order of their ids.
local function added_tokens(content, path)
  local by_text, list = {}, {}
  local given = content.added_tokens
  need(not is_set(given) or type(given) == "table" and (next(given) == nil or #given > 0), path,
       "added_tokens is %s; a list is needed", type(given) == "table" and "an object"
       or tostring(given))
  for _, token in ipairs(type(given) == "table" and given or {}) do
    need(type(token) == "table" and type(token.content) == "string" and token.content ~= "", path,
         "an entry of added_tokens has no content")
    need(type(token.id) == "number", path, "the added token '%s' has no id", token.content)
    by_text[token.content] = token
    list[#list + 1] = token
  end
  table.sort(list, function(a, b) return a.id < b.id end)
  return by_text, list
end

-- Adds the tokens to the native tokenizer; returns the ids of the special ones by text.
local function add_tokens(ref, list, path)
  local special = {}
  for _, token in ipairs(list) do
    local flags = 0
    for name, flag in pairs(added_flags) do flags = flags + (token[name] == true and flag or 0) end
    native.added(ref, token.content, token.id, flags, path)
    if token.special == true then special[token.content] = token.id end
  end
  return special
end

-- ### The whole

-- Whether the pieces become bytes; then the decoder must be ByteLevel too.
local function is_byte_level(splitters, decoder_steps, path)
  local of_bytes, decodes_bytes = false, false
  for _, step in ipairs(decoder_steps) do
    decodes_bytes = decodes_bytes or step.type == "ByteLevel"
  end
  for _, step in ipairs(splitters) do
    need(not of_bytes, path, "a pre_tokenizer behind ByteLevel is not supported")
    of_bytes = step.kind == "ByteLevel"
  end
  need(not of_bytes or #decoder_steps == 1 and decodes_bytes, path,
       "its pre_tokenizer is ByteLevel, so its decoder must be ByteLevel and nothing else")
  need(of_bytes or not decodes_bytes, path,
       "its decoder is ByteLevel, so its pre_tokenizer must be ByteLevel too")
  return of_bytes
end

-- The kind of a model; old files do not write it.
local function kind_of(model, path)
  need(type(model) == "table", path, "it has no model")
  if is_set(model.type) then return model.type end
  return type(model.merges) == "table" and "BPE" or "Unigram"
end

--- from_json(content, path, source) -> tokenizer of a parsed tokenizer.json. source: its text,
--- which save() writes again; path: for errors. Errors: damaged files; what is not supported.
function M.from_json(content, path, source)
  local model = content.model
  local read = readers[kind_of(model, path)]
  need(read, path, "its model is %s; nnlua reads BPE, Unigram and WordPiece",
       tostring(kind_of(model, path)))
  local normalizers = steps.normalizers(content.normalizer, path)
  local splitters = steps.splitters(content.pre_tokenizer, path)
  local decoder_steps = steps.flat(content.decoder, "decoders", path)
  local of_bytes = is_byte_level(splitters, decoder_steps, path)
  local added, list = added_tokens(content, path)
  local fields, ids = read(model, added, of_bytes, path)
  local symbols = {}
  for id, text in pairs(fields.symbols) do symbols[id] = text end
  for _, token in ipairs(list) do
    need(not ids[token.content] or ids[token.content] == token.id, path,
         "the added token '%s' has the id %d, but %s in the vocabulary", token.content, token.id,
         tostring(ids[token.content]))
    symbols[token.id + 1] = ids[token.content] and token.content or symbols[token.id + 1]
    place(symbols, token.id, token.content, path)
  end
  check_complete(symbols, path)
  -- The model does not know tokens outside its vocabulary; their scores are not the lowest.
  for id = 1, #symbols do
    fields.symbols[id] = fields.symbols[id] or ""
    if fields.scores then fields.scores[id] = fields.scores[id] or math.huge end
  end
  local ref = native.new(fields, path)
  for _, step in ipairs(normalizers) do native.step(ref, step, path) end
  for _, step in ipairs(splitters) do native.step(ref, step, path) end
  return encoder.new {kind = fields.kind, of_bytes = of_bytes, symbols = symbols, ref = ref,
                      merges = fields.merges, source = source,
                      special = add_tokens(ref, list, path),
                      decoder = decoders.new(decoder_steps, path),
                      template = processors.new(content.post_processor, path, #symbols)}
end

return M
