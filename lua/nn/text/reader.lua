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

-- The text of a token's name, as decoders write it: of a byte-level vocabulary the bytes that the
-- name stands for, unless it has other characters.
local function text_of(name, of_bytes) return of_bytes and byte_names.bytes(name) or name end

-- Whether a setting is true. Errors: another value than true, false or null; also null and a
-- missing one where the library tokenizers `needs` it.
local function truth(object, name, path, needs)
  local value = object[name]
  need(type(value) == "boolean" or not needs and not is_set(value), path,
       "%s is %s; true or false is needed", name, steps.shown(value))
  return value == true
end

-- ### Vocabularies

-- Stores the text of a token in symbols[id + 1].
local function place(symbols, id, text, path)
  need(type(id) == "number" and id >= 0 and id % 1 == 0 and id < LARGEST, path,
       "the id %s of '%s' is not a whole number below 2^20", tostring(id), text)
  need(not symbols[id + 1], path, "'%s' and another token have the id %d", text, id)
  symbols[id + 1] = text
end

-- The texts of tokens by id + 1 from a vocabulary {name = id}. With `of_bytes`, names stand for
-- bytes; the model cannot make a token with another name, which is in the second result.
local function from_object(vocab, of_bytes, path)
  local symbols, foreign = {}, {}
  for name, id in pairs(vocab) do
    need(type(name) == "string", path, "its vocabulary is a list, not an object")
    place(symbols, id, text_of(name, of_bytes), path)
    if of_bytes and not byte_names.bytes(name) then foreign[id + 1] = name end
  end
  for id in pairs(foreign) do symbols[id] = "" end
  return symbols, foreign
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

local readers = {}

-- Whether a byte-level model has a token for every byte.
local function has_all_bytes(symbols)
  local known = {}
  for _, text in pairs(symbols) do known[text] = true end
  for byte = 0, 255 do
    if not known[string.char(byte)] then return false end
  end
  return true
end

function readers.BPE(model, of_bytes, path)
  need(type(model.vocab) == "table" and type(model.merges) == "table", path,
       "it has no model.vocab or model.merges")
  check_unset(model, path, "dropout", "continuing_subword_prefix", "end_of_word_suffix")
  local symbols, foreign = from_object(model.vocab, of_bytes, path)
  local unknown
  if not (of_bytes and has_all_bytes(symbols)) then
    unknown = unknown_id(model, model.vocab, path)
  end
  local flags = (truth(model, "fuse_unk", path) and FUSE or 0)
    + (truth(model, "byte_fallback", path) and FALLBACK or 0)
    + (of_bytes and BYTES or 0) + (truth(model, "ignore_merges", path) and WHOLE or 0)
  return {kind = "bpe", symbols = symbols, foreign = foreign, merges = merge_ids(model, path),
          unknown = unknown, flags = flags}, model.vocab
end

function readers.Unigram(model, of_bytes, path)
  need(type(model.vocab) == "table", path, "it has no model.vocab")
  need(not of_bytes, path, "a Unigram model behind a ByteLevel pre_tokenizer is not supported")
  local symbols, ids, scores = from_list(model.vocab, path)
  local unknown = model.unk_id
  need(type(unknown) == "number" and unknown % 1 == 0 and unknown >= 0 and unknown < #symbols, path,
       "model.unk_id is %s; a token of %d is needed", steps.shown(unknown), #symbols)
  local falls_back = truth(model, "byte_fallback", path, model.byte_fallback ~= nil)
  return {kind = "unigram", symbols = symbols, scores = scores, unknown = unknown,
          flags = falls_back and FALLBACK or 0}, ids
end

function readers.WordPiece(model, of_bytes, path)
  need(type(model.vocab) == "table", path, "it has no model.vocab")
  need(not of_bytes, path, "a WordPiece model behind a ByteLevel pre_tokenizer is not supported")
  local longest, prefix = model.max_input_chars_per_word, model.continuing_subword_prefix
  need(type(longest) == "number" and longest % 1 == 0 and longest > 0 and longest < 1e6, path,
       "model.max_input_chars_per_word is %s", steps.shown(longest))
  need(type(prefix) == "string" and not prefix:find "%z", path,
       "model.continuing_subword_prefix is %s", steps.shown(prefix))
  local unknown = unknown_id(model, model.vocab, path)
  need(unknown, path, "it has no model.unk_token")
  return {kind = "wordpiece", symbols = from_object(model.vocab, false, path),
          unknown = unknown, longest_word = longest, prefix = prefix}, model.vocab
end

-- ### Added tokens

-- The added tokens in their order. As in the library, one without content and one that is there
-- twice do nothing.
local function added_tokens(content, path)
  local by_text, list = {}, {}
  local given = content.added_tokens
  need(given == nil or type(given) == "table" and (next(given) == nil or #given > 0), path,
       "added_tokens is %s; a list is needed", type(given) == "table" and "an object"
       or steps.shown(given))
  for _, token in ipairs(given or {}) do
    need(type(token) == "table" and type(token.content) == "string", path,
         "an entry of added_tokens has no content")
    local text, flags = token.content, 0
    need(type(token.id) == "number", path, "the added token '%s' has no id", text)
    for name, flag in pairs(added_flags) do
      flags = flags + (truth(token, name, path .. ": the added token " .. text, true) and flag or 0)
    end
    local before = by_text[text]
    need(not before or before.flags == flags, path, "it has the added token '%s' twice", text)
    if text ~= "" and not before then
      by_text[text] = {content = text, id = token.id, flags = flags, special = token.special}
      list[#list + 1] = by_text[text]
    end
  end
  return list
end

-- Sets the ids of added tokens as the library does: those of the vocabulary, else the next ones.
-- The ids in the file say nothing else, except where somebody wrote it by hand.
local function number_added(list, ids, count, path)
  local largest, changed = -1, nil
  for _, token in ipairs(list) do
    local id = ids[token.content] or math.max(largest + 1, count)
    if id ~= token.id then
      changed = changed or ("'%s' has the id %s there, but %d"):format(token.content,
                                                                     tostring(token.id), id)
    end
    token.id, largest = id, math.max(largest, id)
  end
  if changed then
    lib.warn_once(("%s: the added token %s in the library tokenizers, which counts on from the "
                   .. "vocabulary"):format(path, changed))
  end
end

-- Adds the tokens to the native tokenizer; returns the ids of the special ones by text.
local function add_tokens(ref, list, path)
  local special = {}
  for _, token in ipairs(list) do
    native.added(ref, token.content, token.id, token.flags, path)
    if token.special then special[token.content] = token.id end
  end
  return special
end

-- ### The whole

local entries = {version = true, truncation = true, padding = true, added_tokens = true,
                 normalizer = true, pre_tokenizer = true, post_processor = true, decoder = true,
                 model = true}

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
  if model.type ~= nil then return model.type end
  return type(model.merges) == "table" and "BPE" or "Unigram"
end

-- Refuses what the library does: another version, entries that it does not know.
local function check_entries(content, path)
  need(content.version == nil or content.version == "1.0", path, "its version is %s; 1.0 is known",
       steps.shown(content.version))
  for name in pairs(content) do
    need(entries[name], path, "its entry '%s' is not known", tostring(name))
  end
end

-- The texts of all tokens by id + 1; false where an id has no token. Completes those of the model,
-- which does not know added tokens outside its vocabulary; their scores are not the lowest.
local function all_symbols(fields, ids, list, of_bytes, path)
  local symbols, foreign = {}, fields.foreign or {}
  for id, text in pairs(fields.symbols) do symbols[id] = foreign[id] or text end
  for _, token in ipairs(list) do
    local text = text_of(token.content, of_bytes)
    if ids[token.content] then symbols[token.id + 1] = nil end
    place(symbols, token.id, text, path)
  end
  for id = 1, table.maxn(symbols) do
    symbols[id] = symbols[id] or false
    fields.symbols[id] = fields.symbols[id] or ""
    if fields.scores then fields.scores[id] = fields.scores[id] or math.huge end
  end
  return symbols
end

--- from_json(content, path, source) -> tokenizer of a parsed tokenizer.json. source: its text,
--- which save() writes again; path: for errors. Errors: damaged files; what is not supported.
function M.from_json(content, path, source)
  local model = content.model
  check_entries(content, path)
  local read = readers[kind_of(model, path)]
  need(read, path, "its model is %s; nnlua reads BPE, Unigram and WordPiece",
       steps.shown(kind_of(model, path)))
  local normalizers = steps.normalizers(content.normalizer, path)
  local splitters = steps.splitters(content.pre_tokenizer, path)
  local decoder_steps = steps.flat(content.decoder, "decoders", path)
  local of_bytes = is_byte_level(splitters, decoder_steps, path)
  local list = added_tokens(content, path)
  local fields, ids = read(model, of_bytes, path)
  local count = 0
  for _ in pairs(fields.symbols) do count = count + 1 end
  number_added(list, ids, count, path)
  local symbols = all_symbols(fields, ids, list, of_bytes, path)
  local ref = native.new(fields, path)
  for _, step in ipairs(normalizers) do native.step(ref, step, path) end
  for _, step in ipairs(splitters) do native.step(ref, step, path) end
  return encoder.new {kind = fields.kind, of_bytes = of_bytes, symbols = symbols, ref = ref,
                      merges = fields.merges, source = source, path = path,
                      special = add_tokens(ref, list, path),
                      decoder = decoders.new(decoder_steps, path, is_set(content.decoder)),
                      template = processors.new(content.post_processor, path, #symbols)}
end

return M
