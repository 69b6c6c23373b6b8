-- The tokenizers of engine/text: models, the steps before them, added tokens. Loads the tables of
-- Unicode that these need.
local ffi = require "ffi"
local lib = require "nn.base.capi"

local C = lib.C
local M = {}
local loaded = {}

-- Loads the tables of lua/nn/unicode/NAME.lua once. "excluded" needs the table "canonical".
local function load_tables(name)
  if loaded[name] then return end
  local tables = require("nn.unicode." .. name)
  for key, text in pairs(tables) do
    if key ~= "excluded" then lib.check(C.nn_unicode_table(key, text)) end
  end
  if tables.excluded then lib.check(C.nn_unicode_table("excluded", tables.excluded)) end
  loaded[name] = true
end

-- Raises the error of a failed call with the name of the file.
local function check(status, path)
  if status >= 0 then return end
  local _, problem = lib.attempt(lib.check, status)
  lib.deny("%s: %s", path, problem.message)
end

local kinds = {bpe = 0, unigram = 1, wordpiece = 2, sentencepiece_unigram = 3,
               sentencepiece_bpe = 4}

--- new(model, path) -> native tokenizer. model: {kind= a name in `kinds`, symbols= texts of the
--- tokens by id + 1, merges={left, right, joined, ...}, scores=, types=, unknown=id or nil, flags=,
--- longest_word=, prefix=}, as nn_token_model_t in bindings/nn_text.h. Errors, with `path`: values
--- that do not fit together.
function M.new(model, path)
  load_tables "categories"
  load_tables "scripts"
  local count = #model.symbols
  local ends, at = ffi.new("int64_t[?]", math.max(1, count)), 0
  for i = 1, count do
    at = at + #model.symbols[i]
    ends[i - 1] = at
  end
  local bytes = table.concat(model.symbols)
  local merges = model.merges or {}
  local ranks = ffi.new("int32_t[?]", math.max(1, #merges), merges)
  if model.scores and #model.scores ~= count then
    lib.deny("%s: %d scores of %d tokens; each needs one", path, #model.scores, count)
  end
  local scores = model.scores and ffi.new("double[?]", count, model.scores)
  local types = model.types and ffi.new("uint8_t[?]", count, model.types)
  local settings = ffi.new("nn_token_model_t", {
    kind = kinds[model.kind], tokens = count, bytes = bytes, ends = ends, merges = ranks,
    n_merges = #merges / 3, scores = scores, types = types, unknown = model.unknown or -1,
    flags = model.flags or 0, longest_word = model.longest_word or 100, prefix = model.prefix})
  local out = ffi.new "nn_ref[1]"
  check(C.nn_tokenizer_new(settings, out), path)
  lib.count_bytes(3 * #bytes + 100 * count + 8 * #merges)
  return ffi.gc(ffi.new("nn_ref", out[0].index, out[0].generation), C.nn_release)
end

--- step(ref, settings, path): adds a step: {kind=, splits=true for a pre-tokenizer, text="",
--- content="", flags=0}. Errors, with `path`: a kind or a setting that is not supported.
function M.step(ref, settings, path)
  load_tables "decompositions"
  load_tables "marks"
  local text, content = settings.text or "", settings.content or ""
  check(C.nn_tokenizer_step(ref, ffi.new("nn_text_step_t", {
    kind = settings.kind, text = text, content = content, text_size = #text,
    content_size = #content, flags = settings.flags or 0, splits = settings.splits and 1 or 0})),
    path)
end

--- gpt2_step(ref, path): adds GPT-2's pre-tokenizer.
function M.gpt2_step(ref, path)
  check(C.nn_tokenizer_step(ref, ffi.new("nn_text_step_t", {kind = "ByteLevel", flags = 2,
                                                            splits = 1})), path)
end

--- added(ref, text, id, flags, path): adds a token that is cut out of texts (nn_tokenizer_added).
function M.added(ref, text, id, flags, path)
  check(C.nn_tokenizer_added(ref, text, #text, id, flags), path)
end

local count = ffi.new "int64_t[1]"

--- encode(ref, p, size, special, id_type) -> array, count: the ids of the bytes p[0 .. size - 1].
function M.encode(ref, p, size, special, id_type)
  lib.check(C.nn_tokenizer_encode(ref, p, size, special and 1 or 0, count))
  local n = tonumber(count[0])
  local ids = ffi.new(id_type .. "[?]", math.max(1, n))
  lib.check(C.nn_tokenizer_ids(ref, ids, id_type == "uint16_t" and 2 or 4))
  return ids, n
end

local first = ffi.new "char[16]"

--- dropped(ref) -> the first character or byte that encode() left out, since the model has neither
--- a token for it nor one for unknown text; nil if it has left out nothing.
function M.dropped(ref)
  lib.check(C.nn_tokenizer_dropped(ref, first, 16))
  return first[0] > 0 and ffi.string(first + 1, first[0]) or nil
end

--- pieces(ref, p, size) -> ends, count: where the pieces of the bytes p[0 .. size - 1] end.
function M.pieces(ref, p, size)
  local ends = ffi.new("int64_t[?]", math.max(1, size))
  count[0] = size
  lib.check(C.nn_tokenizer_pieces(ref, p, size, ends, count))
  return ends, tonumber(count[0])
end

return M
