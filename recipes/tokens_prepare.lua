-- Converts texts to token files for training. Input: text files, folders of text files, JSON lines
-- and lists (.jsonl, .ndjson, .json) and tables (.csv, .tsv), each plain or compressed (.gz, .zst).
-- Records that cannot be read are left out and listed at the end, with exit status 1 unless
-- skip_bad allows so many.
--   nnlua recipes/tokens_prepare.lua input=corpus/ tokenizer=gpt2/ out=data
--   nnlua recipes/tokens_prepare.lua input=docs.jsonl.zst field=text learn=8192 out=data
--   nnlua recipes/gpt2_train.lua data.bin=data/train.bin data.val=data/val.bin
local nn = require "nn"
local prepare, texts = require "nn.data.prepare", require "nn.data.texts"
local units = require "nn.base.units"

local cfg = nn.config({
  input = nn.field("", "input files and folders, separated by commas", {path = "list"}),
  out = nn.field("data", "output folder for train.bin, val.bin and the tokenizer", {path = true}),
  tokenizer = nn.field("byte", "folder of a tokenizer, its tokenizer.json, or byte",
                       {path = true}),
  learn = nn.field(0, "size of a tokenizer to train on the input instead; 0: none", {min = 0}),
  val = nn.field(0.1, "fraction for validation: the end of a text, random documents of a JSON file",
                 {min = 0, max = 0.9}),
  field = nn.field("text", "field of a JSON object or column of a table with the document"),
  separator = nn.field("auto", "special token after each document; auto: the tokenizer's end of "
                       .. "text; empty: none"),
  skip_bad = nn.field(0, "fraction of the records that may be unreadable", {min = 0, max = 1,
                   real = true}),
  format = nn.field("nanogpt", "format of the token files", {choices = {"nanogpt", "llmc"}}),
  types = nn.field("txt,md,jsonl,ndjson", "extensions of the files to read from folders"),
  seed = nn.field(1, "seed for choosing the validation documents", {min = 0}),
}, arg)
if cfg.input == "" then nn.fail "give input=FILE or input=FOLDER" end

local sources = texts.sources(cfg.input, cfg.types)
local tokenizer
if cfg.learn > 0 then
  tokenizer = nn.train_tokenizer(prepare.learnable(sources, cfg.field), {size = cfg.learn})
elseif cfg.tokenizer == "byte" then
  tokenizer = nn.vocabulary("byte")
else
  tokenizer = nn.tokenizer(cfg.tokenizer)
end
print(("%s, %s"):format(units.count(#sources, "file"), tostring(tokenizer)))
local counts = prepare.prepare {
  sources = sources, tokenizer = tokenizer, out = cfg.out, format = cfg.format, val = cfg.val,
  seed = cfg.seed, field = cfg.field, separator = cfg.separator}
print(("%s tokens for training and %s for validation in %s; %s"):format(
  units.number(counts.train), units.number(counts.val), cfg.out, counts.separator
  and ("'%s' ends each document"):format(counts.separator) or counts.documents > 1
  and "no token separates the documents, which follow each other directly"
  or "no token ends a document"))
local bad = counts.bad
if bad.count > 0 then
  local lost, all = bad.count - bad.kept, bad.count - bad.kept + counts.documents
  for _, message in ipairs(bad) do io.stderr:write(message, "\n") end
  if bad.count > #bad then io.stderr:write(("and %d more\n"):format(bad.count - #bad)) end
  local text = {}
  if lost > 0 then
    text[1] = ("%d of %d records could not be read; %s has the others"):format(lost, all, cfg.out)
  end
  if bad.kept > 0 then
    text[#text + 1] = ("%d of %s no UTF-8; %s has their bytes"):format(
      bad.kept, units.count(counts.documents, "document") .. (bad.kept > 1 and " are" or " is"),
      cfg.out)
  end
  text = table.concat(text, "; ")
  if bad.count > cfg.skip_bad * all then
    nn.fail("%s; skip_bad=%.2g accepts that", text, math.ceil(100 * bad.count / all) / 100)
  end
  io.stderr:write(text, "\n")
end
