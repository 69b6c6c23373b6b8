-- Training data: token ids from a mapped token file or from a text, split for training and
-- validation. A training batch consists of random windows, as in nanoGPT. They depend only on the
-- seed and a counter, so a checkpoint stores just the counter.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local config = require "nn.io.config"
local creation = require "nn.core.creation"
local examples = require "nn.data.examples"
local files = require "nn.io.files"
local is_tensor = require("nn.core.tensor").is_tensor
local known_ids = require "nn.text.known_ids"
local lib = require "nn.base.capi"
local random = require("nn.data.random").random
local token_file = require "nn.data.token_file"
local token_source = require "nn.data.token_source"

local from_host, zeros = creation.from_host, creation.zeros

local M = {}

local Loader = {}
Loader.__index = Loader

-- All ids are checked before training; later ones can only come from a file that has changed.
local function wrong_id(self, id, position)
  local place = (" at position %d (from 0)"):format(position)
  if self.words then known_ids.refuse(self.name, id, self.vocab, self.words, place) end
  lib.deny("%s: token %d%s is outside the vocabulary of %d", self.name, id, place, self.vocab)
end

-- Copies the window of context + 1 tokens from `start` into row `row` of both host arrays.
local function copy_window(self, start, row, ids, targets)
  local tokens, context, vocab = self.tokens, self.context, self.vocab
  local at = row * context
  for t = 0, context do
    local id = tokens[start + t]
    if id < 0 or id >= vocab then wrong_id(self, id, start + t) end
    if t < context then ids[at + t] = id end
    if t > 0 then targets[at + t - 1] = id end
  end
end

-- The `length` tokens from `start` as a host array.
local function tokens_at(self, start)
  local out = ffi.new("int32_t[?]", self.length)
  for t = 0, self.length - 1 do
    local id = self.tokens[start + t]
    if id < 0 or id >= self.vocab then wrong_id(self, id, start + t) end
    out[t] = id
  end
  return out
end

-- Windows as two tensors i32, (rows,T) and (rows,S); starts[1..rows] are positions in the data.
-- `number`: that of the first window, for masking.lua and spans.lua.
local function windows_at(self, starts, number)
  local rows, context, answer = #starts, self.context, self.answer or self.context
  local ids = ffi.new("int32_t[?]", rows * context)
  local targets = ffi.new("int32_t[?]", rows * answer)
  for row, start in ipairs(starts) do
    local x, y = ids + (row - 1) * context, targets + (row - 1) * answer
    if self.corrupt then
      self.corrupt(tokens_at(self, start), x, y, number + row)
    else
      copy_window(self, start, row - 1, ids, targets)
      if self.hide then self.hide(x, y, number + row) end
    end
  end
  if self.keep.map then files.check(self.keep.map) end
  local axes = {axes = "batch,time"}
  return from_host(ids, {rows, context}, "i32", axes),
         from_host(targets, {rows, answer}, "i32", axes)
end

--- loader:batch() -> ids, targets: both (batch * accum, context) i32; targets are the ids shifted
--- by one token. Windows are drawn at random, with replacement. Errors: a token id outside the
--- model's vocabulary, with file and position.
---     local ids, targets = data.train:batch()
---     ids:dims()  --> 2, 16
---     ids:slice(2, 2, 16):eq(targets:slice(2, 1, 15)):sum()  --> 30
function Loader:batch()
  local starts = {}
  for row = 1, self.rows do
    local drawn = random(self.seed, self.counter * self.rows + row)
    starts[row] = self.first + math.floor(drawn * (self.count - self.length))
  end
  self.counter = self.counter + 1
  return windows_at(self, starts, (self.counter - 1) * self.rows)
end

--- loader:peek() -> the results of the next batch(), without advancing.
---     local first = data.train:peek()
---     data.train:batch():eq(first):sum()  --> 32
function Loader:peek()
  local ids, targets = self:batch()
  self.counter = self.counter - 1
  return ids, targets
end

--- loader:windows(batches) -> iterator of ids, targets, rows over the loader's tokens in order, in
--- windows that do not overlap; the number of its batches, of which the last may have fewer rows;
--- and that of all batches. `batches` (0: all) limits their number: evenly spaced, always the same.
---     local rows = 0
---     for ids, targets, count in data.val:windows(3) do rows = rows + count end
---     rows  --> 6
function Loader:windows(batches)
  batches = arguments.whole("windows", "the number of batches", batches or 0, 0)
  local all = math.floor((self.count - 1) / self.length)
  local used = batches > 0 and math.min(all, batches * self.batch_size) or all
  local done = 0
  return function()
    if done >= used then return nil end
    local starts = {}
    for row = 1, math.min(self.batch_size, used - done) do
      local window = math.floor((done + row - 1) * all / used)
      starts[row] = self.first + window * self.length
    end
    local ids, targets = windows_at(self, starts, done)
    done = done + #starts
    return ids, targets, #starts
  end, math.ceil(used / self.batch_size), math.ceil(all / self.batch_size)
end

--- loader:inputs(rows) -> tensors like those of a batch of `rows` windows, for plans.
---     data.train:inputs(3):dims()  --> 3, 16
function Loader:inputs(rows)
  local options = {dtype = "i32", axes = "batch,time"}
  return zeros({rows, self.context}, options), zeros({rows, self.answer or self.context}, options)
end

--- loader:state() -> {counter=, fingerprint=}: the number of batches drawn, and a checksum of the
--- data.
---     data.train:batch()
---     data.train:state().counter  --> 1
function Loader:state() return {counter = self.counter, fingerprint = self.fingerprint} end

--- loader:set_state(state) -> whether the data is the same. batch() continues from that state.
---     local state, first = data.train:state(), data.train:batch()
---     data.train:set_state(state)  --> true
---     data.train:batch():eq(first):sum()  --> 32
function Loader:set_state(state)
  arguments.need(type(state) == "table", "set_state", "the state", state, "{counter=} is needed")
  arguments.whole("set_state", "counter", state.counter, 0)
  self.counter = state.counter
  return state.fingerprint == self.fingerprint
end

function Loader:__ipairs()
  lib.misuse("ipairs: windows of a text are drawn without end; call loader:batch() in a loop")
end

function Loader:__tostring()
  local text = "loader of %.0f tokens of %s, %d x %d in a batch"
  return text:format(self.count, self.name, self.rows, self.context)
end

--- loader:batch_tokens() -> the number of tokens per batch().
---     data.train:batch_tokens()  --> 32
function Loader:batch_tokens() return self.rows * self.context end

local function new_loader(source, first, count, options)
  return setmetatable({
    tokens = source.tokens, keep = source, name = source.name, fingerprint = source.fingerprint,
    first = first, count = count, vocab = options.vocab,
    words = options.words,
    context = options.context, length = options.context,
    batch_size = options.batch, rows = options.batch * (options.accum or 1),
    seed = options.seed or 0, counter = 0,
  }, Loader)
end

-- Searches the tokens of a text for ids that the model lacks.
local function check_ids(loader)
  local tokens, vocab, last = loader.tokens, loader.vocab, loader.first + loader.count
  for i = loader.first, last - 1 do
    if tokens[i] >= vocab then wrong_id(loader, tokens[i], i) end
  end
end

local function need_length(name, count, context, hint)
  if count < context + 1 then
    lib.deny("%s: %d tokens are too few for a context of %d, which needs at least %d; %s", name,
             count, context, context + 1, hint)
  end
end

-- What the data's files do not state, for the first lines of a run. assumed: nothing states the
-- size of the vocabulary.
local function notes_of(source, assumed, vocab)
  local notes = {source.note}
  if source.guessed then
    notes[1] = ("%s has no header: %s ids (data.dtype)"):format(source.name, source.dtype)
  end
  if assumed then
    notes[#notes + 1] = ("%s has no tokenizer in its folder: a vocabulary of %d (model.vocab)")
      :format(source.name, vocab)
  end
  return notes
end

-- Default settings.
local defaults = {text = "", field = "text", separator = "auto", bin = "", dtype = "auto", val = "",
                  split = 0.9, vocabulary = "char", batch = 12, accum = 1, context = 0}
local names = {}                 -- of settings and, for suggestions, of sources of examples
for name in pairs(defaults) do names[name] = true end
for _, kind in ipairs(examples.kinds) do names[kind] = true end
local data_options = arguments.names "context vocab seed vocabulary"

local function check_settings(cfg, options)
  for name, default in pairs(defaults) do
    arguments.need(type(cfg[name]) == type(default), "data", name, cfg[name],
                   "a " .. type(default) .. " is needed")
  end
  for name, low in pairs {batch = 1, accum = 1, context = 0} do
    arguments.whole("data", name, cfg[name], low)
  end
  arguments.need(cfg.split >= 0 and cfg.split <= 1, "data", "split", cfg.split,
                 "a number from 0 to 1 is needed")
  for _, name in ipairs {"vocab", "seed"} do
    if options[name] ~= nil then arguments.whole("data", name, options[name], 0) end
  end
  local words = options.vocabulary
  arguments.need(words == nil or type(words) == "table" and words.encode, "data", "vocabulary",
                 words, "a result of nn.vocabulary or nn.tokenizer is needed")
end

--- nn.data(cfg, {context=, vocab=0, seed=0, vocabulary=}) -> data with train and val (loaders),
--- vocabulary (nil if unknown), vocab (its size), name, own (true for nnlua's sources), and notes
--- (texts about what the files do not state). cfg: settings (nn.data_fields). cfg.text: UTF-8
--- files, separated by commas, plain or compressed (.gz, .zst); of JSON lines and lists (.jsonl,
--- .json) and tables (.csv, .tsv) it is the texts in cfg.field. After each of these, or of several
--- files, comes the token cfg.separator ("auto": the tokenizer's end of text; "": none), or a line
--- end where there is none. cfg.bin is a token file: llm.c's, numpy's .npy, or ids without a
--- header, of cfg.dtype ("auto": uint16); without both the data is nnlua's own sources.
--- cfg.vocabulary: "char", "byte", or the folder of a tokenizer; by default a token file uses the
--- tokenizer in its folder. cfg.val: a validation file of the same kind; without it, the first
--- cfg.split (0.9) of the tokens are for training and the rest for validation. cfg.context: the
--- length of windows, if shorter than the model's `context`. `vocab`: ids must be below it; 0: the
--- size of the vocabulary, or 50257 if unknown. `vocabulary`: that of a checkpoint, instead of a
--- new one from the text. Examples that are no text: see nn.data{arrays=...}. Errors: files that
--- are missing, empty, damaged, not UTF-8, or too short for a window of context + 1 tokens for
--- training or validation; a bin of another kind, or with ids outside `vocab`: all are read once.
---     local d = nn.data({text = "input.txt", batch = 4}, {context = 8})
---     d.train:batch():dims()  --> 4, 8
---     d.vocabulary:decode{3, 11, 8}, d.vocab  --> "The", 30
function M.data(given, options)
  local cfg = {}
  arguments.need(not is_tensor(given), "data", "the argument", given,
                 "options are needed, such as {arrays = {x = X, y = Y}, batch = 32}")
  local kind = type(given) == "table" and examples.kind_of(given)
  if kind then return examples.data(given, kind) end
  local checked = type(given) == "table" and getmetatable(given) ~= nil     -- settings of nn.config
  given = checked and given or arguments.options("data", given, names)
  options = arguments.options("data", options, data_options)
  local context = arguments.whole("data", "context", options.context)
  for name, default in pairs(defaults) do
    cfg[name] = default
    if given[name] ~= nil then cfg[name] = given[name] end
  end
  check_settings(cfg, options)
  if cfg.context > context then
    lib.deny("data.context=%d is more than the model's context of %d", cfg.context, context)
  end
  if cfg.context > 0 then context = cfg.context end
  local source, val, words = token_source.open(cfg, options.vocabulary)
  local vocab = options.vocab or 0
  local assumed = vocab == 0 and not words
  if assumed and source.numpy then
    lib.deny("%s is a numpy file, and nothing states the vocabulary of its ids; give "
             .. "data.vocabulary=FOLDER with their tokenizer, or model.vocab, 50257 for GPT-2's",
             source.name)
  end
  if vocab == 0 then vocab = words and words.size or 50257 end
  if words and words.kind == "char" and not options.vocabulary and words.size > vocab then
    lib.deny("%s has %d different symbols, but model.vocab is %d; use model.vocab=0", source.name,
             words.size, vocab)
  end
  local part = val and source.count or math.floor(source.count * cfg.split)
  local rest = val and val.count or source.count - part
  need_length(source.name .. (val and "" or ", training part"), part, context,
              "give more data or a smaller model.context")
  need_length((val or source).name .. (val and "" or ", validation part"), rest, context,
              "give more data, a smaller model.context, or a validation file (data.val)")
  local all = {context = context, vocab = vocab, words = words, seed = options.seed,
               batch = cfg.batch, accum = cfg.accum}
  local train = new_loader(source, 0, part, all)
  local validation = new_loader(val or source, val and 0 or part, rest, all)
  if cfg.bin ~= "" then
    token_file.check_ids(source, vocab, words)
    if val then token_file.check_ids(val, vocab, words) end
  elseif words.size > vocab then
    check_ids(validation)
    check_ids(train)
  end
  return {train = train, vocab = vocab, vocabulary = words, val = validation, name = source.name,
          notes = notes_of(source, assumed, vocab), own = cfg.text == "" and cfg.bin == ""}
end

--- nn.data_fields{batch=12, ...} -> the settings of nn.data, for a recipe's schema; the table
--- overrides defaults. Errors: an unknown name, a default that the setting does not allow.
---     nn.config({data = nn.data_fields {batch = 4}}, {}).data.batch  --> 4
function M.data_fields(others)
  local field = config.field
  return config.override("data_fields", {
    text = field(defaults.text,
                 "UTF-8 text to train on, or several, separated by commas; also .jsonl, .csv; "
                 .. "without text and bin: nnlua's own sources", {path = "list"}),
    field = field(defaults.field, "field of a JSON object or column of a table with the text"),
    separator = field(defaults.separator, "special token after each record, or each of several "
                      .. "files; auto: the tokenizer's end of text; empty: none"),
    bin = field(defaults.bin, "token file of nanoGPT, llm.c, numpy (.npy) or tokens_prepare.lua, "
                .. "instead of a text", {path = true}),
    dtype = field(defaults.dtype, "dtype of the ids in a bin without a header; auto: uint16, if "
                  .. "they can be token ids", {choices = token_file.dtypes}),
    val = field(defaults.val,
                "validation file of the same kind; empty: the rest of the training file",
                {path = "list"}),
    split = field(defaults.split, "fraction for training if val is empty", {min = 0, max = 1}),
    vocabulary = field(defaults.vocabulary, "char, byte, or the folder of a tokenizer",
                       {path = true}),
    batch = field(defaults.batch, "sequences per microbatch", {min = 1}),
    context = field(defaults.context, "tokens per sequence; 0: the model's context", {min = 0}),
    accum = field(defaults.accum, "microbatches per step", {min = 1}),
  }, others)
end

return M
