-- What all tokenizers can do: encode texts and decode ids. bpe.lua and reader.lua make them.
local arguments = require "nn.base.arguments"
local chat = require "nn.text.chat"
local decoders = require "nn.text.decoders"
local ffi = require "ffi"
local lib = require "nn.base.capi"
local native = require "nn.text.native"
local tensor = require "nn.core.tensor"

local Tokenizer = {}
Tokenizer.__index = Tokenizer
Tokenizer.chat = chat.chat
local M = {Tokenizer = Tokenizer, LARGEST = 2 ^ 20}            -- the limit of ids

--- new(fields) -> tokenizer. fields: kind, symbols (the texts of the tokens, by id + 1), special
--- (ids by text), ref (of native.lua), decoder (of decoders.lua), template (of processors.lua).
function M.new(fields)
  fields.size = #fields.symbols
  fields.id_type = fields.size <= 65536 and "uint16_t" or "uint32_t"
  return setmetatable(fields, Tokenizer)
end

-- ### Encoding

-- The ids of bytes. What the library tokenizers drops without a word is dropped with a warning.
local function encoded(self, p, size, special)
  local ids, count = native.encode(self.ref, p, size, special, self.id_type)
  local dropped = not self.has_warned and native.dropped(self.ref)
  if dropped then
    self.has_warned = true
    local function hex(c) return ("\\x%02X"):format(c:byte()) end
    lib.warn_once(("%s: a text has '%s', for which the vocabulary has no token; such characters "
                   .. "are left out, as by the library tokenizers"):format(
      self.path or "the tokenizer", (dropped:gsub("[%c\128-\255]", hex))))
  end
  return ids, count
end

--- tokenizer:encode_bytes(p, size) -> array, count: the ids of the bytes p[0 .. size - 1], an array
--- of tokenizer.id_type. Special tokens are plain text here.
---     local tokenizer, ffi = nn.train_tokenizer("aaaa", {size = 258}), require "ffi"
---     local ids, count = tokenizer:encode_bytes(ffi.cast("const char *", "aa"), 2)
---     count  --> 1
function Tokenizer:encode_bytes(p, size)
  return encoded(self, ffi.cast("const char *", p), size, false)
end

-- The ids of the texts A and B with those that the template adds; and the type of every id.
local function with_template(self, a, b, add_special)
  local texts, total = {A = a, B = b}, 0
  local items = self.template[b and "pair" or "single"]
  -- A template may use a text several times.
  for _, item in ipairs(items) do
    total = total + (item.text and texts[item.text].count or #item.ids)
  end
  local out = ffi.new(self.id_type .. "[?]", math.max(1, total))
  local types, count = ffi.new("uint8_t[?]", math.max(1, total)), 0
  for _, item in ipairs(items) do
    local text = texts[item.text]
    local n = text and text.count or add_special and #item.ids or 0
    for i = 0, n - 1 do
      out[count + i] = text and text.ids[i] or item.ids[i + 1]
      types[count + i] = item.type
    end
    count = count + n
  end
  return out, count, types
end

local encode_options = arguments.names "special add_special pair"

--- tokenizer:encode(text, name, {special=false, add_special=false, pair=nil}) -> array, count,
--- types: ids as a C array from 0, of uint16_t, or uint32_t for more than 65536 tokens. With
--- `special`, the text of a special token such as <|endoftext|> becomes that token; by default it
--- is ordinary text, which is safe for untrusted data. With `add_special`, adds the tokens that the
--- model expects around a text, such as BERT's [CLS] and [SEP]. `pair`: a second text; then `types`
--- is an array with 0 for the ids of the first text and 1 for those of the second. Any bytes can be
--- encoded. Nothing is cut off: the settings `truncation` and `padding` of tokenizer.json have no
--- effect, since the length of a batch is a matter of the model and the data.
---     local tokenizer = nn.train_tokenizer("to be or not to be", {size = 260})
---     local ids, count = tokenizer:encode "to be"
---     count < 5  --> true
function Tokenizer:encode(text, _, options)
  arguments.need(type(text) == "string", "encode", "the text", text, "a string is needed")
  options = arguments.options("encode", options, encode_options)
  local second = options.pair
  arguments.need(second == nil or type(second) == "string", "encode", "pair", second,
                 "a string is needed")
  local special = options.special and true or false
  local ids, count = encoded(self, text, #text, special)
  if not options.add_special and not second then return ids, count end
  local a, b = {ids = ids, count = count}, nil
  if second then
    b = {}
    b.ids, b.count = encoded(self, second, #second, special)
  end
  return with_template(self, a, b, options.add_special)
end

--- vocabulary:ids(text), tokenizer:ids(text, {special=false, add_special=true, pair=nil}) -> a list
--- of ids, with the tokens that the model expects around a text, such as <s> of Llama or [CLS] and
--- [SEP] of BERT: those of tokenizer(text) in transformers. Without them, as for a text that
--- tokenizer:chat() has made or one that continues another: add_special = false. Unlike there, the
--- text of a special token is ordinary text, unless `special` is true. Errors and options: as
--- encode(), which adds nothing by default.
---     nn.vocabulary("char", "hello"):ids "hell"  --> {1, 0, 2, 2}
---     nn.vocabulary("char", "hello"):ids "help"  --> error: ...'p' at byte 3 is not in...
function Tokenizer:ids(text, options)
  options = arguments.options("ids", options, encode_options)
  local array, count = self:encode(text, nil, {
    special = options.special, add_special = options.add_special ~= false, pair = options.pair})
  local list = {}
  for i = 1, count do list[i] = array[i - 1] end
  return list
end

-- ### Decoding

local decode_options = arguments.names "special"

--- vocabulary:decode(ids), tokenizer:decode(ids, {special=true}) -> the text of ids, a list or a
--- tensor of one axis. An unknown id becomes <id>. special=false leaves out special tokens. The
--- second result of nn.generate is no option, so decode(nn.generate(...)) is possible.
---     nn.vocabulary("byte"):decode{72, 105, 300}  --> "Hi<300>"
function Tokenizer:decode(ids, options)
  if type(options) == "table" and options.reason ~= nil then options = nil end
  options = arguments.options("decode", options, decode_options)
  arguments.need(type(ids) == "table", "decode", "the argument", ids, "a list of ids is needed")
  if tensor.is_tensor(ids) then
    if #ids.shape ~= 1 then
      lib.misuse("decode: the tensor has %d axes; give a row, such as ids[1]", #ids.shape)
    end
    ids = ids:table()
  end
  local parts, next_part = {}, self:stream(options)
  for i = 1, arguments.list("decode", "the argument", ids) do parts[i] = next_part(ids[i]) end
  return table.concat(parts)
end

--- vocabulary:stream(), tokenizer:stream({special=true}) -> function(id), which returns the text
--- that the next id adds: a generated text as it grows. The texts of all ids together are those
--- of decode().
---     local next_part = nn.vocabulary("byte"):stream()
---     next_part(72) .. next_part(105)  --> "Hi"
function Tokenizer:stream(options)
  options = arguments.options("stream", options, decode_options)
  local part = self.decoder and decoders.start(self.decoder)
  local hidden = {}
  if options.special == false then
    for _, id in pairs(self.special or {}) do hidden[id] = true end
  end
  return function(id)
    arguments.whole("decode", "an id", id, 0)
    if hidden[id] then return "" end
    local text = self.symbols[id + 1]
    if not text then return "<" .. id .. ">" end
    return part and part(text) or text
  end
end

local names = {bpe = "byte-level BPE", unigram = "unigram tokenizer", wordpiece = "WordPiece"}

Tokenizer.__tostring = function(self)
  local name = self.kind == "bpe" and not self.of_bytes and "BPE" or names[self.kind]
  return ("%s of %d tokens"):format(name, self.size)
end

return setmetatable(M, {__index = Tokenizer})
