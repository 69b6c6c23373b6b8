-- Converts texts to token files for training. Input: text files, folders of text files, JSON lines
-- (.jsonl, .ndjson, .json) and tables (.csv, .tsv), each plain or compressed (.gz, .zst).
--   nnlua recipes/tokens_prepare.lua input=corpus/ tokenizer=gpt2/ out=data
--   nnlua recipes/tokens_prepare.lua input=docs.jsonl.zst field=text learn=8192 out=data
--   nnlua recipes/gpt2_train.lua data.bin=data/train.bin data.val=data/val.bin
local nn = require "nn"
local prepare, texts = require "nn.data.prepare", require "nn.data.texts"
local units = require "nn.base.units"

local cfg = nn.config({
  input = nn.field("", "input files and folders, separated by commas"),
  out = nn.field("data", "output folder for train.bin, val.bin and the tokenizer"),
  tokenizer = nn.field("byte", "folder of a tokenizer, its tokenizer.json, or byte"),
  learn = nn.field(0, "size of a tokenizer to train on the input instead; 0: none", {min = 0}),
  val = nn.field(0.1, "fraction for validation: the end of a text, random documents of a JSON file",
                 {min = 0, max = 0.9}),
  field = nn.field("text", "field of a JSON object or column of a table with the document"),
  separator = nn.field("<|endoftext|>", "special token after each document; empty: none"),
  format = nn.field("nanogpt", "format of the token files", {choices = {"nanogpt", "llmc"}}),
  types = nn.field("txt,md,jsonl,ndjson", "extensions of the files to read from folders"),
  seed = nn.field(1, "seed for choosing the validation documents", {min = 0}),
}, arg)
if cfg.input == "" then nn.fail "give input=FILE or input=FOLDER" end

local sources = texts.sources(cfg.input, cfg.types)
local tokenizer
if cfg.learn > 0 then
  tokenizer = nn.train_tokenizer(texts.texts(sources, cfg.field), {size = cfg.learn})
elseif cfg.tokenizer == "byte" then
  tokenizer = nn.vocabulary("byte")
else
  tokenizer = nn.tokenizer(cfg.tokenizer)
end
print(("%s, %s"):format(units.count(#sources, "file"), tostring(tokenizer)))
local counts = prepare.prepare {
  sources = sources, tokenizer = tokenizer, out = cfg.out, format = cfg.format, val = cfg.val,
  seed = cfg.seed, field = cfg.field, separator = cfg.separator}
print(("%s tokens for training and %s for validation in %s"):format(
  units.number(counts.train), units.number(counts.val), cfg.out))
