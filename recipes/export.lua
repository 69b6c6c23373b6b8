-- Writes the model of a run or a checkpoint as a folder for Hugging Face's transformers, with its
-- tokenizer. A Hugging Face folder is read too: the copy has one dtype and today's tensor names.
--   nnlua recipes/export.lua model=runs/char out=my-model
--   nnlua recipes/export.lua model=runs/finetune/checkpoint-000200 out=my-model dtype=bf16
local nn = require "nn"
local files, units = require "nn.io.files", require "nn.base.units"

local cfg = nn.config({
  model = nn.field("", "folder of a run (its newest checkpoint), a checkpoint, or a Hugging Face "
                   .. "model", {path = true}),
  out = nn.field("", "folder to write; it must be new or empty", {path = true}),
  tokenizer = nn.field("", "folder of the tokenizer, if the model has none", {path = true}),
  dtype = nn.field("saved", "dtype of the weights; saved: that of a checkpoint, f32 for a "
                   .. "Hugging Face model",
                   {choices = {"saved", "f32", "bf16"}}),
  shard_bytes = nn.field(5e9, "at most so many bytes in a file of weights", {min = 1}),
}, arg)
if cfg.out == "" then nn.fail "give out=FOLDER, the folder to write" end
if #(files.list(cfg.out) or {}) > 0 then
  nn.fail("out=%s exists and is not empty; give a new folder, or remove it", cfg.out)
end

local model, words = nn.load_model(cfg.model, cfg.tokenizer,
                                   {weights = cfg.dtype ~= "saved" and cfg.dtype or nil})
nn.save_hf(cfg.out, model, words, {shard_bytes = cfg.shard_bytes})
print(("%s: %s, %s parameters in %s%s"):format(
  cfg.out, getmetatable(model).class_name, units.number(model:count()), model.config.dtype,
  not words and ", without a tokenizer" or words.kind == "char" and
  ", with a vocabulary of characters (vocabulary.json), which only nnlua reads" or ""))
