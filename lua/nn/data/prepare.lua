-- Converts texts to token files, for recipes/tokens_prepare.lua. Input is read in chunks of some
-- megabytes, so memory does not grow with it; output files get their final names at the end. What
-- cannot be read is left out and reported at the end, so it does not end a conversion of hours.
local chunks = require "nn.data.chunks"
local cuts = require "nn.text.cuts"
local document_end = require "nn.data.document_end"
local ffi = require "ffi"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local progress = require "nn.data.progress"
local random = require("nn.data.random").random
local stream = require "nn.io.stream"
local texts = require "nn.data.texts"
local token_file = require "nn.data.token_file"
local utf8 = require "nn.base.utf8"

local M = {}
local LISTED = 20                -- messages of unreadable records that are kept
local HOPELESS = 100             -- unreadable records, and most so far: a wrong setting

local Output = {}
Output.__index = Output

-- Appends the ids of p[0 .. size - 1] to a writer.
function Output:text(writer, p, size)
  if size == 0 then return end
  self.has_text[writer] = true
  if self.tokenizer.kind ~= "byte" then
    return writer:write(self.tokenizer:encode_bytes(p, size))
  end
  if size > self.room then
    self.room = size
    self.ids = ffi.new(writer.id_type .. "[?]", size)
  end
  for i = 0, size - 1 do self.ids[i] = p[i] end
  writer:write(self.ids, size)
end

-- Notes what cannot be read. Errors: nearly nothing can.
function Output:leave_out(message)
  local bad = self.bad
  bad.count = bad.count + 1
  if bad.count <= LISTED then bad[bad.count] = message end
  if bad.count >= HOPELESS and bad.count > self.documents then
    lib.deny("%s. %d of the first %d records are unreadable; no file was written", bad[1],
             bad.count, bad.count + self.documents)
  end
end

-- Ends a document by the token. Without one, the next document follows directly: a token file has
-- the tokens of the documents, and no other.
function Output:separator(writer)
  if self.separator_id then
    writer:write(ffi.new(writer.id_type .. "[1]", self.separator_id), 1)
  end
end

-- Notes the first bytes of a text that are not UTF-8; they are encoded as they are.
local function check_utf8(self, source, p, size, done)
  local wrong = utf8.invalid(p, size)
  if wrong then
    self.bad.kept = self.bad.kept + 1
    self:leave_out(("'%s': byte %.0f is not UTF-8 text; its bytes are kept"):format(source.path,
                                                                                done + wrong))
  end
  return wrong ~= nil
end

-- A text is one document. The end of it, a fraction `val` of its bytes from a line start, is for
-- validation.
local function write_text(self, source, moved)
  local total = chunks.attempt(function() end, stream.unpacked_size, source.path) or source.size
  local target, done, validating = total * (1 - self.val), 0, self.val == 0 and -1 or 0
  local checked = self.tokenizer.kind == "byte"
  self.documents = self.documents + 1
  texts.each_text(source.path, function(p, size)
    local from = done > 0 and self.skip_bytes or 0
    checked = checked or check_utf8(self, source, p, size, done)
    if validating == 0 and done + size >= target then
      local at = math.max(1, math.floor(target - done))
      while at < size and p[at - 1] ~= 10 do at = at + 1 end
      if at < size then
        self:text(self.train, p + from, at - from)
        from, validating = at, 1
      end
    end
    self:text(validating == 1 and self.validation or self.train, p + from, size - from)
    done = done + size
  end, moved, self.skip, self.cut)
  self:separator(self.train)
  if validating == 1 then self:separator(self.validation) end
end

-- Each line or row is a document; a fraction `val` of them, drawn at random, is for validation.
local function write_documents(self, source, moved)
  texts.each_document(source, self.field, function(p, size)
    self.documents = self.documents + 1
    local validating = random(self.seed, self.documents) < self.val
    local writer = validating and self.validation or self.train
    if self.last then
      size = document_end.size_without(ffi.string(p, size), size, self.last)
    end
    self:text(writer, p, size)
    self:separator(writer)
  end, moved, {bad = self.skip})
end

-- Shows the progress over all sources -> moved(bytes of the current source), finished(source) and
-- done(), which are to be called.
local function progress_of(sources)
  local total, before = 0, 0
  for _, source in ipairs(sources) do total = total + source.size end
  local shown = progress.new(total)
  return function(bytes)
    if engine.interrupted() then lib.fail "interrupted; no file was written" end
    shown:show(before + bytes)
  end, function(source) before = before + source.size end, function() shown:keep() end
end

local function write_all(self, sources)
  local moved, finished, done = progress_of(sources)
  for _, source in ipairs(sources) do
    (source.kind == "text" and write_text or write_documents)(self, source, moved)
    finished(source)
  end
  done()
end

-- Both files must contain text; training on them would fail otherwise.
local function need_text(self)
  if not self.has_text[self.train] then
    if self.bad[1] then lib.deny("%s; no file was written", self.bad[1]) end
    lib.fail "the input has no text; no file was written"
  end
  if self.validation and not self.has_text[self.validation] then
    lib.fail("val=%g leaves no text for validation: %s; give more text, a larger val, or val=0 "
             .. "for no validation; no file was written", self.val, self.documents == 0
             and "no line of a file begins in that fraction at its end"
             or ("none of the %d documents was drawn"):format(self.documents))
  end
end

-- Writes the tokenizer's files, renames the token files, and writes tokens.json.
local function publish(self, cfg)
  need_text(self)
  self.train:complete()
  if self.validation then self.validation:complete() end
  cfg.tokenizer:save(cfg.out)
  local counts = {val = self.validation and self.validation:close() or 0,
                  train = self.train:close()}
  files.write(files.join(cfg.out, "tokens.json"), files.json({
    train = counts.train, val = counts.val, vocab = cfg.tokenizer.size, format = cfg.format,
    separator = self.last,
    unreadable = self.bad.count > self.bad.kept and self.bad.count - self.bad.kept or nil},
    "") .. "\n")
  counts.bad, counts.documents, counts.separator = self.bad, self.documents, self.last
  return counts
end

--- learnable(sources, field) -> the texts of all sources, for nn.train_tokenizer. Leaves out what
--- cannot be read, which prepare() reports. Errors: nearly nothing can be read.
function M.learnable(sources, field)
  return function(visit)
    local good, bad = 0, 0
    texts.texts(sources, field, function(message)
      bad = bad + 1
      if bad >= HOPELESS and bad > good then lib.deny("%s; no file was written", message) end
    end)(function(p, size)
      good = good + 1
      visit(p, size)
    end)
  end
end

--- prepare(cfg) -> {train=, val=, documents=, separator=, bad=}: the numbers of tokens and of
--- documents, the text of the token that ends each (nil: they follow each other directly), and what
--- was left out: {count=, kept=, message, ...}, the first messages; kept: how many of these are
--- texts that are no UTF-8, and are in the files as they are. Writes train.bin, val.bin (unless val
--- is 0), the tokenizer, and tokens.json (a summary) to cfg.out. cfg: sources (see sources()),
--- tokenizer (of nn.tokenizer, or a "byte" vocabulary), out, format, val, seed, field, separator.
--- Errors: no text for training or for validation; failures of the disk. They leave no file, and no
--- folder that was not there.
function M.prepare(cfg)
  local tokenizer = cfg.tokenizer
  local self = setmetatable({tokenizer = tokenizer, val = cfg.val, seed = cfg.seed, has_text = {},
                             field = cfg.field, documents = 0, room = 0,
                             bad = {count = 0, kept = 0}}, Output)
  self.cut, self.skip_bytes = cuts.of(tokenizer)
  self.skip = function(message) self:leave_out(message) end
  self.separator_id, self.last = document_end.of(tokenizer, cfg.separator, "separator")
  local made = files.make_folder(cfg.out, "the output folder")
  local begun = {}                       -- an interrupt may come before self.train is known
  local function discard()
    for _, path in ipairs(begun) do lib.protected(token_file.discard, path) end
    files.remove_empty(made)
  end
  return lib.guarded(discard, function()
    token_file.check_format(cfg.format, tokenizer.size)
    local function create(name)
      begun[#begun + 1] = files.join(cfg.out, name)
      return token_file.create(begun[#begun], cfg.format, tokenizer.size)
    end
    self.train = create "train.bin"
    self.validation = cfg.val > 0 and create "val.bin"
    write_all(self, cfg.sources)
    return publish(self, cfg)
  end)
end

return M
