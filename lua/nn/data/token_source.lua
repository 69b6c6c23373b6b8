-- Where the tokens of loader.lua come from: token files, texts, nnlua's own sources.
local document_end = require "nn.data.document_end"
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local texts = require "nn.data.texts"
local token_file = require "nn.data.token_file"
local tokenizers = require "nn.text.tokenizer"
local units = require "nn.base.units"
local utf8 = require "nn.base.utf8"
local vocabulary = require "nn.text.vocabulary"

local M = {}

-- A cheap checksum that detects another file: the size and the CRC-32 of the first megabyte.
local function fingerprint(data, bytes)
  return ("%.0f-%08x"):format(bytes, files.crc32(data, math.min(bytes, 2 ^ 20)))
end

-- {tokens=, count=, name=, fingerprint=} of a token file.
local function bin_source(path, field, dtype)
  local source = token_file.open(path, field, dtype)
  source.fingerprint = fingerprint(source.map.data, source.map.size)
  return source
end

-- The tokenizer in the folder cfg.vocabulary, or the one in the folder of a token file.
local function tokenizer_of(cfg)
  if cfg.vocabulary ~= "char" and cfg.vocabulary ~= "byte" then
    return tokenizers.tokenizer(cfg.vocabulary)
  end
  local folder = (cfg.bin:match "^(.*)/" or ".")
  for _, name in ipairs(cfg.bin ~= "" and tokenizers.SAVED or {}) do
    if files.exists(files.join(folder, name)) then return tokenizers.tokenizer(folder) end
  end
end

-- The ids of documents, each with the id `last` after it.
local function encode_documents(documents, name, words, last, last_text)
  local parts, counts, total = {}, {}, 0
  for i, text in ipairs(documents) do
    text = text:sub(1, document_end.size_without(text, #text, last_text))
    parts[i], counts[i] = words:encode(text, name)
    total = total + counts[i] + 1
  end
  local ids, at, bytes = ffi.new(words.id_type .. "[?]", total), 0, ffi.sizeof(words.id_type)
  for i, part in ipairs(parts) do
    ffi.copy(ids + at, part, counts[i] * bytes)
    at = at + counts[i]
    ids[at], at = last, at + 1
  end
  return ids, total
end

-- What separates the documents, for the first lines of a run.
local function separation(documents, name, last_text)
  local count = units.count(#documents, "document")
  if last_text then return ("%s: '%s' ends each of %s"):format(name, last_text, count) end
  return ("%s: a line end separates %s, as no token does"):format(name, count)
end

-- documents: a list, or nil for a whole text. separator: a setting, see document_end.lua; what: of
-- the text, such as data.text.
local function text_source(text, documents, name, words, separator, what)
  if #text == 0 then lib.deny("%s is empty", name) end
  local wrong = not words.id_of and utf8.invalid(text)       -- a vocabulary checks characters
  if wrong then
    lib.deny("%s: byte %d is not UTF-8 text; convert the file, or use data.vocabulary=byte", name,
             wrong)
  end
  local last, last_text
  if documents then
    last, last_text = document_end.of(words, separator, (what:match "^.*%." or "") .. "separator")
  end
  local ids, count
  if last then
    ids, count = encode_documents(documents, name, words, last, last_text)
  else
    ids, count = words:encode(text, name)
  end
  return {tokens = ids, count = count, name = name, bytes = #text,
          note = documents and separation(documents, name, last_text),
          fingerprint = fingerprint(text, #text) .. (last and "-" .. last or "")}
end

--- from_text(list, field, what, words, separator) -> {tokens=, count=, name=, bytes=, note=} of
--- files as in data.text; note: what separates documents, nil for one text.
function M.from_text(list, field, what, words, separator)
  local text, documents = texts.read(list, field, what)
  return text_source(text, documents, ("%s '%s'"):format(what, list), words, separator, what)
end

local function add_files(folder, out)
  for _, name in ipairs(files.list(folder) or {}) do
    local path = files.join(folder, name)
    if name:find "%.lua$" or name:find "%.md$" or name:find "%.cc$" or name:find "%.h$" then
      out[#out + 1] = files.read(path)
    elseif not name:find "%." then
      add_files(path, out)
    end
  end
end

--- own_text() -> nnlua's own documents and sources, so that every clone has a text to train on.
function M.own_text()
  local parts = {}
  for _, folder in ipairs {"docs", "lua", "models", "recipes", "engine", "kernels", "bindings"} do
    add_files(files.join(host.root, folder), parts)
  end
  return table.concat(parts, "\n")
end

--- open(cfg, known) -> the training source, the validation source (nil: a part of the training
--- source), the vocabulary. cfg: the settings of nn.data; known: the vocabulary, if not a new one.
function M.open(cfg, known)
  if cfg.text ~= "" and cfg.bin ~= "" then lib.deny("give data.text or data.bin, not both") end
  if cfg.bin ~= "" then
    return bin_source(cfg.bin, "data.bin", cfg.dtype),
           cfg.val ~= "" and bin_source(cfg.val, "data.val", cfg.dtype) or nil,
           known or tokenizer_of(cfg)
  end
  if cfg.dtype and cfg.dtype ~= "auto" then
    lib.deny("data.dtype=%s is the dtype of the ids in data.bin, which is not given; leave it out",
             cfg.dtype)
  end
  local own = cfg.text == ""
  local name = own and "nnlua's own sources" or ("data.text '%s'"):format(cfg.text)
  local text, documents
  if own then text = M.own_text() else
    text, documents = texts.read(cfg.text, cfg.field, "data.text")
  end
  local words = known or tokenizer_of(cfg) or vocabulary.vocabulary(cfg.vocabulary, text, name)
  local val
  if cfg.val ~= "" then
    val = M.from_text(cfg.val, cfg.field, "data.val", words, cfg.separator)
  end
  return text_source(text, documents, name, words, cfg.separator, "data.text"), val, words
end

return M
