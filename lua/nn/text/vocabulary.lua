-- Vocabularies of plain text: "char" (the UTF-8 characters of a training text, sorted) and "byte"
-- (all 256). A vocabulary is small, and every checkpoint stores it.
local arguments = require "nn.base.arguments"
local bpe = require "nn.text.bpe"
local encoder = require "nn.text.encoder"
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local utf8 = require "nn.base.utf8"
require "nn.text.bpe_files"    -- adds save() to tokenizers

local M = {}
local Vocabulary = {}
Vocabulary.__index = Vocabulary

-- Calls each(character, position) for every UTF-8 character.
local function each_character(text, name, each)
  local p, at, size, steps = ffi.cast("const uint8_t *", text), 0, #text, 0
  while at < size do
    steps = steps + 1
    if steps % lib.CHECK_EVERY == 0 then lib.check_interrupt() end
    local _, length = utf8.decode(p, at, size)
    if not length then
      lib.deny("%s: byte %d is not UTF-8 text; convert the file, or use data.vocabulary=byte",
               name, at)
    end
    each(text:sub(at + 1, at + length), at)
    at = at + length
  end
end

local function of_symbols(kind, symbols)
  local self = {kind = kind, symbols = symbols, size = #symbols, id_of = {}}
  for i, symbol in ipairs(symbols) do self.id_of[symbol] = i - 1 end
  return setmetatable(self, Vocabulary)
end

--- nn.vocabulary(kind, text, name) -> vocabulary with :ids(text), :decode(ids), .size, ...
--- kind: "char", the UTF-8 characters of `text` sorted, or "byte", all 256. Ids count from 0.
--- `name`: the source of the text, for errors. Errors: text that is not UTF-8 ("char").
---     local v = nn.vocabulary("char", "hello")
---     v:decode{0, 1}, v.size  --> "eh", 4
function M.vocabulary(kind, text, name)
  local symbols = {}
  if kind == "byte" then
    for byte = 0, 255 do symbols[byte + 1] = string.char(byte) end
    return of_symbols(kind, symbols)
  end
  if kind ~= "char" then
    lib.deny("unknown vocabulary '%s'; choose char or byte", tostring(kind))
  end
  arguments.need(type(text) == "string", "vocabulary", "the text", text, "a string is needed")
  if text == "" then lib.deny("%s is empty", name or "the text") end
  local seen = {}
  each_character(text, name or "the text", function(character)
    if not seen[character] then
      seen[character] = true
      symbols[#symbols + 1] = character
    end
  end)
  table.sort(symbols)
  if #symbols > 65536 then
    lib.deny("%s: %d different characters; at most 65536 are supported", name, #symbols)
  end
  return of_symbols(kind, symbols)
end

--- vocabulary:state() -> {kind=, symbols=}: the vocabulary as a checkpoint stores it.
---     nn.vocabulary("char", "hello"):state().symbols  --> "ehlo"
function Vocabulary:state()
  return {kind = self.kind, symbols = self.kind == "char" and table.concat(self.symbols) or nil}
end

--- vocabulary:save(folder): writes files for nn.tokenizer(folder): a byte vocabulary as a BPE
--- without merges, which transformers can load; a char vocabulary as vocabulary.json. Errors:
--- failures of the disk.
---     nn.vocabulary("char", "hello"):save "letters"
---     nn.tokenizer("letters"):ids "hell"  --> {1, 0, 2, 2}
function Vocabulary:save(folder)
  if self.kind == "byte" then
    return bpe.new(self.symbols, {}, {}, "the byte vocabulary"):save(folder)
  end
  files.make_folder(folder, "the vocabulary's folder")
  files.write_in(folder, "vocabulary.json", files.json(self:state(), "") .. "\n")
  for _, name in ipairs {"tokenizer.json", "vocab.json", "merges.txt"} do
    files.remove(files.join(folder, name))                    -- of another vocabulary
  end
end

--- vocabulary:encode(text, name) -> array, count: ids as a uint16_t array from 0.
--- Errors: a character that is not in the vocabulary, with its position in bytes.
---     local ids, count = nn.vocabulary("byte"):encode "abc"
---     ids[0], count  --> 97, 3
function Vocabulary:encode(text, name)
  arguments.need(type(text) == "string", "encode", "the text", text, "a string is needed")
  local ids, count, of = ffi.new("uint16_t[?]", math.max(1, #text)), 0, self.id_of
  if self.kind == "byte" then
    for i = 1, #text do ids[i - 1] = text:byte(i) end
    return ids, #text
  end
  each_character(text, name or "the text", function(character, at)
    local id = of[character]
    if not id then
      lib.deny("%s: the character '%s' at byte %d is not in the vocabulary", name or "the text",
               character, at)
    end
    ids[count] = id
    count = count + 1
  end)
  return ids, count
end

Vocabulary.ids, Vocabulary.decode = encoder.ids, encoder.decode
Vocabulary.stream = encoder.stream

Vocabulary.__tostring = function(self)
  return ("%s vocabulary of %d symbols"):format(self.kind, self.size)
end

return M
