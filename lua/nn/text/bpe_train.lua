-- Trains a byte-level BPE: the most frequent pair of adjacent tokens becomes a token, repeatedly.
-- Pairs are counted per distinct piece, and a merge updates only the counts that it changes. Of
-- equally frequent pairs, the one with smaller ids comes first, as in the library tokenizers, so
-- both give the same merges.
local bit = require "bit"
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local bpe = require "nn.text.bpe"
local byte_names = require "nn.text.byte_names"
local files = require "nn.io.files"
local heap = require "nn.base.heap"
local lib = require "nn.base.capi"
local signatures = require "nn.io.signatures"
local native = require "nn.text.native"
require "nn.text.bpe_files"     -- adds save() to tokenizers

local M = {}
local PAIR = 2 ^ 21                -- a pair of ids as one number: left * PAIR + right
local CHECK_EVERY = lib.CHECK_EVERY

local WINDOW = 2 ^ 20              -- bytes that are cut into pieces at once

-- The end of a window of text that begins at `at`: before a character.
local function window_end(p, at, size, window)
  local stop = at + window
  if stop >= size then return size end
  for i = stop, stop - 3, -1 do
    if bit.band(p[i], 0xC0) ~= 0x80 then return i end
  end
  return stop
end

-- Adds the number of occurrences of each piece in p[0 .. size - 1] to `counts`. The last piece in a
-- window may continue behind it, and may be one with that before it, as ' and r where 're follows;
-- so the next window begins with these two.
local function count_pieces(splitter, p, size, counts)
  local at, window = 0, WINDOW
  p = ffi.cast("const uint8_t *", p)
  while at < size do
    local stop = window_end(p, at, size, window)
    local ends, count = native.pieces(splitter, ffi.cast("const char *", p + at), stop - at)
    if stop < size then count = math.max(0, count - 2) end
    local first = 0
    for i = 0, count - 1 do
      local last = tonumber(ends[i])
      local piece = ffi.string(p + at + first, last - first)
      counts[piece] = (counts[piece] or 0) + 1
      first = last
    end
    lib.check_interrupt()
    at, window = at + first, count > 0 and WINDOW or 2 * window
  end
end

-- The order of pairs: the most frequent first.
local function before(a, b)
  if a.count ~= b.count then return a.count > b.count end
  return a.pair < b.pair
end

-- ### Learning. Arrays store all distinct pieces, one after the other. The tokens of a piece are
-- a linked list of their first bytes, so that a merge takes time only for its own occurrences.

local Learner = {}
Learner.__index = Learner

-- Adds `often` occurrences of the pair that begins at `at`.
local function add_pair(self, pair, at, often)
  self.counts[pair] = (self.counts[pair] or 0) + often
  local places = self.places[pair]
  if not places then
    places = {}
    self.places[pair] = places
  end
  places[#places + 1] = at
end

local function remove_pair(self, pair, often)
  self.counts[pair] = (self.counts[pair] or 0) - often
end

-- Appends a piece that occurs `often` times at the position `at`; returns the position behind it.
local function add_piece(self, piece, often, at)
  local id, after, previous = self.id, self.after, self.previous
  for i = 1, #piece do
    local here = at + i - 1
    id[here], previous[here], after[here] = self.byte_ids[piece:byte(i)], here - 1, here + 1
    self.often[here] = often
    if i > 1 then add_pair(self, id[here - 1] * PAIR + id[here], here - 1, often) end
    if i % CHECK_EVERY == 0 then lib.check_interrupt() end
  end
  previous[at], after[at + #piece - 1] = -1, -1
  return at + #piece
end

-- symbols: the 256 bytes in the order of ids; texts: {[piece] = count}.
local function new_learner(symbols, texts)
  local self = setmetatable({symbols = symbols, id_of = {}, merges = {}, counts = {}, places = {},
                             heap = {}, byte_ids = {}}, Learner)
  for i, symbol in ipairs(symbols) do
    self.id_of[symbol], self.byte_ids[symbol:byte()] = i - 1, i - 1
  end
  local bytes, at = 0, 0
  for piece in pairs(texts) do bytes = bytes + #piece end
  for _, name in ipairs {"id", "after", "previous"} do
    self[name] = ffi.new("int32_t[?]", bytes)
  end
  self.often = ffi.new("double[?]", bytes)
  for piece, often in pairs(texts) do
    at = add_piece(self, piece, often, at)
  end
  for pair, count in pairs(self.counts) do
    heap.push(self.heap, {pair = pair, count = count}, before)
  end
  return self
end

-- Merges the pair that begins at `at`, if it is still there; adds pairs that became more frequent
-- to `grown`.
local function join(self, at, left, right, joined, grown)
  local id, after, previous = self.id, self.after, self.previous
  local second = id[at] == left and after[at] or -1
  if second < 0 or id[second] ~= right then return end
  local last, further, often = previous[at], after[second], self.often[at]
  if last >= 0 then
    local pair = id[last] * PAIR + joined
    remove_pair(self, id[last] * PAIR + left, often)
    add_pair(self, pair, last, often)
    grown[pair] = true
  end
  if further >= 0 then
    local pair = joined * PAIR + id[further]
    remove_pair(self, right * PAIR + id[further], often)
    add_pair(self, pair, at, often)
    grown[pair] = true
    previous[further] = at
  end
  id[at], id[second], after[at] = joined, -1, further
end

-- The most frequent pair. Entries of the heap with outdated counts are pushed again.
local function most_frequent(self)
  while #self.heap > 0 do
    local top = heap.pop(self.heap, before)
    local count = self.counts[top.pair]
    if top.count == count then return top.pair, count end
    if count and count > 0 then heap.push(self.heap, {pair = top.pair, count = count}, before) end
  end
end

-- Adds one merge; returns false if no pair occurs min_count times.
function Learner:step(min_count)
  local pair, count = most_frequent(self)
  if not pair or count < min_count then return false end
  lib.check_interrupt()
  local left, right = math.floor(pair / PAIR), pair % PAIR
  local text = self.symbols[left + 1] .. self.symbols[right + 1]
  local joined = self.id_of[text]
  if not joined then
    joined = #self.symbols
    self.symbols[joined + 1], self.id_of[text] = text, joined
  end
  local merges = self.merges
  local last = #merges
  merges[last + 1], merges[last + 2], merges[last + 3] = left, right, joined
  local grown, places = {}, self.places[pair]
  if left == right then table.sort(places) end     -- "aaa" is aa, a
  for i, at in ipairs(places) do
    join(self, at, left, right, joined, grown)
    if i % CHECK_EVERY == 0 then lib.check_interrupt() end
  end
  self.counts[pair], self.places[pair] = nil, nil
  for other in pairs(grown) do
    local now = self.counts[other]
    if now then heap.push(self.heap, {pair = other, count = now}, before) end
  end
  return true
end

local known = arguments.names "size min_count special"

local function check_special(special)
  arguments.need(type(special) == "table", "train_tokenizer", "special", special,
                 "a list of texts is needed")
  local seen = {}
  for _, name in ipairs(special) do
    arguments.need(type(name) == "string" and #name > 1 and not seen[name], "train_tokenizer",
                   "a special token", name,
                   "distinct texts of at least two bytes are needed")
    seen[name] = true
  end
end

--- nn.train_tokenizer(text, {size=8192, min_count=2, special={"<|endoftext|>"}}) -> tokenizer
--- Trains a byte-level BPE of `size` tokens: the 256 bytes, merges, and the special tokens last.
--- Pairs that occur less than min_count times are not merged, so a short text may give fewer
--- tokens. `text`: a string, {files = {path, ...}}, or a function(visit) that calls visit(pointer,
--- bytes) for each chunk. Errors: a size below the number of bytes and special tokens.
---     local tokenizer = nn.train_tokenizer({files = {"input.txt"}}, {size = 280})
---     #tokenizer:ids "The quick brown fox"  --> 8
function M.train_tokenizer(text, options)
  options = arguments.options("train_tokenizer", options, known)
  arguments.need(type(text) == "string" or type(text) == "function"
                 or type(text) == "table" and type(text.files) == "table", "train_tokenizer",
                 "the text", text, "a string, {files = {path, ...}} or a function is needed")
  local size, special = options.size or 8192, options.special or {"<|endoftext|>"}
  local least = arguments.whole("train_tokenizer", "min_count", options.min_count or 2)
  check_special(special)
  if type(size) ~= "number" or size % 1 ~= 0 or size < 256 + #special or size >= 2 ^ 20 then
    lib.misuse("train_tokenizer: size is %s; a whole number from %d (bytes and special tokens) to "
               .. "2^20 - 1 is needed", tostring(size), 256 + #special)
  end
  local counts, bytes_only = {}, byte_names.symbols()
  local splitter = bpe.new({unpack(bytes_only)}, {}, {}).ref
  if type(text) == "string" then
    count_pieces(splitter, ffi.cast("const uint8_t *", text), #text, counts)
  elseif type(text) == "function" then
    text(function(p, bytes) count_pieces(splitter, p, bytes, counts) end)
  else
    for _, path in ipairs(text.files) do
      local map = files.map(path)
      signatures.need_text(path, map.data, map.size)
      local mark = signatures.mark_size(map.data, map.size)
      count_pieces(splitter, map.data + mark, map.size - mark, counts)
      files.check(map)
      files.unmap(map)
    end
  end
  local learner = new_learner(bytes_only, counts)
  while #learner.symbols < size - #special and learner:step(least) do end
  local ids = {}
  for _, name in ipairs(special) do
    ids[name] = #learner.symbols
    learner.symbols[ids[name] + 1] = name
  end
  return bpe.new(learner.symbols, learner.merges, ids)
end

return M
