-- Where the tokens of loader.lua come from: token files, texts, nnlua's own sources.
local files = require "nn.io.files"
local host = require "nn.host"
local lib = require "nn.base.capi"
local texts = require "nn.data.texts"
local token_file = require "nn.data.token_file"
local tokenizers = require "nn.text.tokenizer"
local vocabulary = require "nn.text.vocabulary"

local M = {}

-- A cheap checksum that detects another file: the size and the CRC-32 of the first megabyte.
local function fingerprint(data, bytes)
  return ("%.0f-%08x"):format(bytes, files.crc32(data, math.min(bytes, 2 ^ 20)))
end

-- {tokens=, count=, name=, fingerprint=} of a token file.
local function bin_source(path, field)
  local source = token_file.open(path, field)
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

local function text_source(text, name, words)
  if #text == 0 then lib.deny("%s is empty", name) end
  local ids, count = words:encode(text, name)
  return {tokens = ids, count = count, name = name, fingerprint = fingerprint(text, #text)}
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
    return bin_source(cfg.bin, "data.bin"),
           cfg.val ~= "" and bin_source(cfg.val, "data.val") or nil, known or tokenizer_of(cfg)
  end
  local own = cfg.text == ""
  local name = own and "nnlua's own sources" or ("data.text '%s'"):format(cfg.text)
  local text = own and M.own_text() or texts.read(cfg.text, cfg.field, "data.text")
  local words = known or tokenizer_of(cfg) or vocabulary.vocabulary(cfg.vocabulary, text, name)
  local val
  if cfg.val ~= "" then
    val = text_source(texts.read(cfg.val, cfg.field, "data.val"),
                      ("data.val '%s'"):format(cfg.val), words)
  end
  return text_source(text, name, words), val, words
end

return M
