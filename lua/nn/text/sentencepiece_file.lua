-- Reads the model file of the library sentencepiece, a message ModelProto of Protocol Buffers:
-- tokenizer.model, spiece.model or sentencepiece.bpe.model.
local encoder = require "nn.text.encoder"
local ffi = require "ffi"
local lib = require "nn.base.capi"
local protobuf = require "nn.text.protobuf"

local M = {TYPES = {normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6}}
local TYPES = M.TYPES

-- By number: name, wire type (0 integer, "bool", 2 bytes, 5 float) and default of the fields that
-- are read; a wire type "bool" is 0 in the file.
local fields = {
  trainer = {[3] = {"model_type", 0, 1}, [24] = {"treat_whitespace_as_suffix", "bool", false},
             [35] = {"byte_fallback", "bool", false}},
  normalizer = {[2] = {"precompiled_charsmap", 2, ""}, [3] = {"add_dummy_prefix", "bool", true},
                [4] = {"remove_extra_whitespaces", "bool", true},
                [5] = {"escape_whitespaces", "bool", true}},
  piece = {[1] = {"text", 2}, [2] = {"score", 5}, [3] = {"type", 0}},
}

local function need(condition, path, text, ...)
  if not condition then lib.deny("%s: " .. text, path, ...) end
end

-- Reads the fields of a message into the table `out`.
local function read_into(out, known, file, first, last)
  local at = first
  while at < last do
    local number, wire, value, stop = protobuf.field(file.p, at, last, file.fail)
    local field = known[number]
    if field then
      local name, kind = field[1], field[2]
      need(wire == (kind == "bool" and 0 or kind), file.path,
           "it is not a SentencePiece model: its field %s has the wire type %d", name, wire)
      if kind == 2 then value = ffi.string(file.p + value, stop - value) end
      if kind == "bool" then value = value ~= 0 end
      out[name] = value
    end
    at = stop
  end
end

local function with_defaults(known)
  local out = {}
  for _, field in pairs(known) do out[field[1]] = field[3] end
  return out
end

local function add_piece(model, file, first, last)
  local piece = {text = "", score = 0, type = TYPES.normal}
  read_into(piece, fields.piece, file, first, last)
  local id = #model.symbols
  local is_hole = piece.text == "\0" and piece.type == TYPES.unused
  need(piece.text ~= "" and (is_hole or not piece.text:find "%z"), file.path,
       "its token %d is %s", id, piece.text == "" and "empty" or "a text with a zero byte")
  need(piece.type >= 1 and piece.type <= 6, file.path, "its token %d has the type %d; 1 to 6 are "
       .. "possible", id, piece.type)
  need(piece.score < math.huge, file.path, "the score of its token %d is not finite", id)
  need(id < encoder.LARGEST, file.path, "it has more than 2^20 tokens")
  model.symbols[id + 1], model.scores[id + 1], model.types[id + 1] = piece.text, piece.score,
                                                                     piece.type
end

-- ### What sentencepiece checks too

local function check_bytes(model, known, path)
  for id, type in ipairs(model.types) do
    need(type ~= TYPES.byte or model.trainer.byte_fallback, path,
         "it has a token '%s' for a byte, but not byte_fallback", model.symbols[id])
  end
  for byte = 0, model.trainer.byte_fallback and 255 or -1 do
    local name = ("<0x%02X>"):format(byte)
    local id = known[1][name]
    need(id and model.types[id] == TYPES.byte, path,
         "it sets byte_fallback, but has no token %s for a byte", name)
  end
end

-- Checks the tokens, and sets model.unknown: the id of the unknown token.
local function check(model, path)
  need(#model.symbols > 0, path, "it is not a SentencePiece model: it has no tokens")
  local known = {{}, {}}                 -- ids + 1 by text: found by their name; found in texts
  for id, text in ipairs(model.symbols) do
    local type = model.types[id]
    local is_reserved = type == TYPES.unknown or type == TYPES.control or type == TYPES.byte
    local map = known[is_reserved and 1 or 2]
    need(not map[text] or text == "\0", path, "it has the token '%s' twice", text)
    map[text] = id
    need(type ~= TYPES.unknown or not model.unknown, path, "it has two unknown tokens")
    if type == TYPES.unknown then model.unknown = id - 1 end
  end
  need(model.unknown, path, "it has no unknown token")
  check_bytes(model, known, path)
end

local kinds = {"unigram", "bpe", "word", "char"}

--- parse(bytes, path) -> {kind="unigram" or "bpe", symbols=, scores=, types=, unknown=, trainer={
--- byte_fallback=, ...}, normalizer={...}}: the texts, scores and types (TYPES) of the tokens by
--- id + 1, and the settings. path: for errors. Errors: damaged files; other kinds of models.
function M.parse(bytes, path)
  local file = {p = ffi.cast("const uint8_t *", bytes), path = path}
  function file.fail(at)
    lib.deny("%s is not a SentencePiece model, or is damaged at byte %d of %d", path, at, #bytes)
  end
  local model = {symbols = {}, scores = {}, types = {}, trainer = with_defaults(fields.trainer),
                 normalizer = with_defaults(fields.normalizer)}
  local back = with_defaults(fields.normalizer)
  local messages = {[2] = {model.trainer, fields.trainer},
                    [3] = {model.normalizer, fields.normalizer}, [5] = {back, fields.normalizer}}
  local at = 0
  while at < #bytes do
    local number, wire, first, stop = protobuf.field(file.p, at, #bytes, file.fail)
    local message = messages[number]
    if (message or number == 1) and wire ~= 2 then file.fail(at) end
    if number == 1 then add_piece(model, file, first, stop) end
    if message then read_into(message[1], message[2], file, first, stop) end
    at = stop
  end
  check(model, path)
  model.kind = kinds[model.trainer.model_type]
  need(model.kind == "unigram" or model.kind == "bpe", path,
       "its model_type is %s; nnlua reads unigram and bpe",
       model.kind or tostring(model.trainer.model_type))
  need(back.precompiled_charsmap == "", path, "it has a denormalizer, which is not supported")
  return model
end

return M
