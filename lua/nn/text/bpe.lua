-- GPT-2's byte-level BPE (Sennrich et al. 2016; Radford et al. 2019). Text is split into pieces
-- (pieces.lua). In every piece, the pair of adjacent tokens with the lowest rank is merged until no
-- known pair is left. bpe_files.lua reads and writes tokenizers, bpe_train.lua trains them.
local arguments = require "nn.base.arguments"
local ffi = require "ffi"
local heap = require "nn.base.heap"
local lib = require "nn.base.capi"
local pieces = require "nn.text.pieces"
local tensor = require "nn.core.tensor"

local LARGEST = 2 ^ 20                     -- the limit of ids
local CACHED, CACHED_LENGTH = 2 ^ 18, 64   -- pieces in the cache, and the longest of them in bytes
local CHECK_EVERY = lib.CHECK_EVERY
local Tokenizer = {}
Tokenizer.__index = Tokenizer
local M = {LARGEST = LARGEST, Tokenizer = Tokenizer}

-- ### Making a tokenizer

local function pair_key(a, b) return a * LARGEST + b end

--- new(symbols, merges, special, name) -> tokenizer. symbols[id + 1]: the bytes of a token; merges:
--- a list of {left id, right id, merged id} in the order of training; special: ids by text; name:
--- the file, for errors. Errors: a byte that is not a symbol.
function M.new(symbols, merges, special, name)
  local self = setmetatable({kind = "bpe", symbols = symbols, size = #symbols, merges = merges,
                             special = special, byte_ids = ffi.new "int32_t[256]", ranks = {},
                             joined = ffi.new("int32_t[?]", #merges + 1), cache = {}, cached = 0},
                            Tokenizer)
  self.id_type = #symbols <= 65536 and "uint16_t" or "uint32_t"
  local id_of = {}
  for i, symbol in ipairs(symbols) do
    if not id_of[symbol] and not special[symbol] then id_of[symbol] = i - 1 end
  end
  self.id_of = id_of
  for byte = 0, 255 do
    local id = id_of[string.char(byte)]
    if not id then lib.fail("%s: the vocabulary has no token for byte %d", name, byte) end
    self.byte_ids[byte] = id
  end
  for rank, merge in ipairs(merges) do
    local key = pair_key(merge[1], merge[2])
    self.ranks[key] = self.ranks[key] or rank
    self.joined[rank] = merge[3]
  end
  return self
end

-- ### Encoding

-- The piece that is being encoded: its tokens from left to right as a linked list (-1: the end),
-- and a heap of pairs as rank * 2^32 + position of the left token, so that the lowest rank comes
-- first, and of equal ranks the leftmost. Pairs that have changed since are skipped.
local scratch = {room = 0, queue = {}}

local function make_room(n)
  if n <= scratch.room then return end
  scratch.room = 2 * n
  for _, name in ipairs {"id", "after", "before"} do
    scratch[name] = ffi.new("int32_t[?]", scratch.room)
  end
end

local function earlier(a, b) return a < b end

-- Encodes the piece p[first .. last - 1] to a linked list in scratch that begins at 0.
local function merge(self, p, first, last)
  local count = last - first
  make_room(count)
  local id, after, before, queue = scratch.id, scratch.after, scratch.before, scratch.queue
  local ranks, joined = self.ranks, self.joined
  for i = #queue, 1, -1 do queue[i] = nil end        -- the remains of an interrupted call
  for i = 0, count - 1 do
    id[i], before[i], after[i] = self.byte_ids[p[first + i]], i - 1, i + 1
    if i > 0 then
      local rank = ranks[pair_key(id[i - 1], id[i])]
      if rank then heap.push(queue, rank * 2 ^ 32 + i - 1, earlier) end
    end
    if i % CHECK_EVERY == CHECK_EVERY - 1 then lib.check_interrupt() end
  end
  after[count - 1] = -1
  local steps = 0
  while #queue > 0 do
    steps = steps + 1
    if steps % CHECK_EVERY == 0 then lib.check_interrupt() end
    local top = heap.pop(queue, earlier)
    local rank = math.floor(top / 2 ^ 32)
    local at = top - rank * 2 ^ 32
    local right = id[at] >= 0 and after[at] or -1
    if right >= 0 and ranks[pair_key(id[at], id[right])] == rank then
      local left, further = before[at], after[right]
      id[at], id[right], after[at] = joined[rank], -1, further
      if further >= 0 then
        before[further] = at
        local next_rank = ranks[pair_key(id[at], id[further])]
        if next_rank then heap.push(queue, next_rank * 2 ^ 32 + at, earlier) end
      end
      if left >= 0 then
        local next_rank = ranks[pair_key(id[left], id[at])]
        if next_rank then heap.push(queue, next_rank * 2 ^ 32 + left, earlier) end
      end
    end
  end
  return id, after
end

-- Appends the ids of a piece that is not in the cache to `out`; caches them if the piece is short.
local function encode_new(self, piece, p, first, last, out, count)
  local id, after = merge(self, p, first, last)
  local at, begin = 0, count
  while at >= 0 do
    out[count] = id[at]
    count, at = count + 1, after[at]
  end
  if last - first > CACHED_LENGTH then return count end
  if self.cached == CACHED then self.cache, self.cached = {}, 0 end
  local ids = count == begin + 1 and out[begin] or {}
  if count > begin + 1 then
    for i = begin, count - 1 do ids[i - begin + 1] = out[i] end
  end
  self.cache[piece] = ids
  self.cached = self.cached + 1
  return count
end

--- tokenizer:encode_bytes(p, first, last, out, count) -> the new count: appends the ids of the
--- bytes p[first .. last - 1] (a uint8_t pointer) to the array `out` of tokenizer.id_type, which
--- must have room for one id per byte. Special tokens are plain text here.
---     local tokenizer, ffi = nn.train_tokenizer("aaaa", {size = 258}), require "ffi"
---     local ids = ffi.new(tokenizer.id_type .. "[2]")
---     tokenizer:encode_bytes(ffi.cast("const uint8_t *", "aa"), 0, 2, ids, 0)  --> 1
function Tokenizer:encode_bytes(p, first, last, out, count)
  local piece_end, text_of, steps = pieces.piece_end, ffi.string, 0
  while first < last do
    local stop = piece_end(p, first, last)
    local piece = text_of(p + first, math.min(stop - first, CACHED_LENGTH + 1))
    steps = steps + 1
    if steps % CHECK_EVERY == 0 then lib.check_interrupt() end
    local ids = self.cache[piece]
    if type(ids) == "number" then
      out[count] = ids
      count = count + 1
    elseif ids then
      for i = 1, #ids do
        out[count] = ids[i]
        count = count + 1
      end
    else
      count = encode_new(self, piece, p, first, stop, out, count)
    end
    first = stop
  end
  return count
end

-- A function(at) that returns the first special token at or after `at`: its first and last byte and
-- its id; of several at the same position, the longest. `at` must not decrease between calls.
local function special_finder(self, text)
  local positions = {}                    -- the next position of each token; false: none
  return function(at)
    local first, last, id
    for name, number in pairs(self.special) do
      local position = positions[name]
      if position == nil or position and position < at then
        position = text:find(name, at, true) or false
        positions[name] = position
      end
      local stop = position and position + #name - 1
      if position and (not first or position < first or position == first and stop > last) then
        first, last, id = position, stop, number
      end
    end
    return first, last, id
  end
end

local encode_options = arguments.names "special"

--- tokenizer:encode(text, name, {special=false}) -> array, count: ids as a C array from 0, of
--- uint16_t, or uint32_t for more than 65536 tokens. With `special`, the text of a special token
--- such as <|endoftext|> becomes that token; by default it is ordinary text, which is safe for
--- untrusted data. Any bytes can be encoded.
---     local tokenizer = nn.train_tokenizer("to be or not to be", {size = 260})
---     local ids, count = tokenizer:encode "to be"
---     count < 5  --> true
function Tokenizer:encode(text, _, options)
  arguments.need(type(text) == "string", "encode", "the text", text, "a string is needed")
  options = arguments.options("encode", options, encode_options)
  local out = ffi.new(self.id_type .. "[?]", math.max(1, #text))
  local p, count, at = ffi.cast("const uint8_t *", text), 0, 1
  if options.special then
    local next_special = special_finder(self, text)
    local first, last, id = next_special(at)
    while first do
      count = self:encode_bytes(p, at - 1, first - 1, out, count)
      out[count] = id
      count, at = count + 1, last + 1
      first, last, id = next_special(at)
    end
  end
  return out, self:encode_bytes(p, at - 1, #text, out, count)
end

--- vocabulary:ids(text), tokenizer:ids(text) -> a list of ids. Errors: as encode().
---     nn.vocabulary("char", "hello"):ids "hell"  --> {1, 0, 2, 2}
---     nn.vocabulary("char", "hello"):ids "help"  --> error: ...'p' at byte 3 is not in...
function Tokenizer:ids(text)
  local array, count = self:encode(text)
  local list = {}
  for i = 1, count do list[i] = array[i - 1] end
  return list
end

--- vocabulary:decode(ids), tokenizer:decode(ids) -> the text of ids, a list or a tensor of one
--- axis. An unknown id becomes <id>.
---     nn.vocabulary("byte"):decode{72, 105, 300}  --> "Hi<300>"
function Tokenizer:decode(ids)
  arguments.need(type(ids) == "table", "decode", "the argument", ids, "a list of ids is needed")
  if tensor.is_tensor(ids) then
    if #ids.shape ~= 1 then
      lib.misuse("decode: the tensor has %d axes; give a row, such as ids[1]", #ids.shape)
    end
    ids = ids:table()
  end
  local parts = {}
  for i = 1, arguments.list("decode", "the argument", ids) do
    local id = arguments.whole("decode", "an id", ids[i], 0)
    parts[i] = self.symbols[id + 1] or "<" .. id .. ">"
  end
  return table.concat(parts)
end

Tokenizer.__tostring = function(self)
  return ("byte-level BPE of %d tokens"):format(self.size)
end

return M
