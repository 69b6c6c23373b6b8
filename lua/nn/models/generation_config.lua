-- How the authors of a Hugging Face folder generate text with its model: generation_config.json,
-- and eos_token_id of config.json. A model that is loaded from the folder has the fields
--
--   generation   options for nn.generate: stop_ids, and temperature, top_k, top_p and
--                repetition_penalty if the file says how to sample: with do_sample those that it
--                does not state have the library's defaults, such as top_k = 50; else the library
--                takes the likeliest tokens, and temperature is 0
--   origin       {generation=, text=, eos_token_id=, source=, unused=}: the entries and the text of
--                generation_config.json, and eos_token_id of config.json, which save_hf writes
--                again; nil if not in the folder. source: the file that says how to generate,
--                config.json where there is no other. unused: {"num_beams=4", ...}, what it states
--                that nn.generate does not do
local arguments = require "nn.base.arguments"
local config_file = require "nn.io.config"
local defaults = require "nn.models.config_defaults"
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local schema = require "nn.io.schema"

local M = {}
local names = {"temperature", "top_k", "top_p", "repetition_penalty"}   -- the same in both formats

local function number(low, high)
  return function(value, path)
    local problem = schema.number(value, path)
    if problem or value >= low and value <= high then return problem end
    return ("%s is %g; a number from %g to %g is needed"):format(path, value, low, high)
  end
end

local id = schema.whole(-2 ^ 31, 2 ^ 31)           -- negative ids stand for no token
local function ids(value, path)
  return (type(value) == "table" and schema.list(id) or id)(value, path)
end

local wrong_end = schema.fields {eos_token_id = schema.optional(ids)}
local wrong_entry = schema.fields {
  eos_token_id = schema.optional(ids), do_sample = schema.optional(schema.boolean),
  temperature = schema.optional(number(0, 1e9)), top_k = schema.optional(schema.whole(-1)),
  top_p = schema.optional(number(0, 1)), repetition_penalty = schema.optional(number(1e-3, 1e3)),
}

-- Entries that change what is generated, without a default in the library.
local without_default = arguments.names [[max_new_tokens min_new_tokens max_time stop_strings min_p
  top_h penalty_alpha guidance_scale sequence_bias forced_decoder_ids constraints force_words_ids
  renormalize_logits watermarking_config dola_layers token_healing prompt_lookup_num_tokens]]
-- Entries that change no token: how the library computes, and what it returns.
local harmless = arguments.names [[use_cache output_scores return_dict_in_generate
  remove_invalid_values num_assistant_tokens num_assistant_tokens_schedule
  assistant_confidence_threshold assistant_lookbehind target_lookbehind do_sample]]
for _, name in ipairs(names) do harmless[name] = true end
-- Entries that say how to sample; without do_sample the library ignores them.
local sampling = {"temperature", "top_k", "top_p", "typical_p", "min_p", "epsilon_cutoff",
                  "eta_cutoff"}

local function is_empty(value) return type(value) == "table" and next(value) == nil end

-- What generation_config.json states that nn.generate does not do, such as "num_beams=4".
local function unused_in(entries)
  local list = {}
  for name, value in pairs(entries) do
    local default = defaults.generation[name]
    local is_known = default ~= nil or without_default[name]
    if is_known and not harmless[name] and value ~= default and not is_empty(value) then
      list[#list + 1] = ("%s=%s"):format(name, type(value) == "number" and files.number_text(value)
                                        or type(value) == "table" and "..." or tostring(value))
    end
  end
  table.sort(list)
  return list
end

-- Adds the options of sampling that the file states or that the library has by default.
local function add_sampling(options, entries)
  local says = entries.do_sample ~= nil
  for _, name in ipairs(sampling) do says = says or entries[name] ~= nil end
  options.repetition_penalty = entries.repetition_penalty
  if says and entries.do_sample ~= true then options.temperature = 0 end
  if not entries.do_sample then return end
  for _, name in ipairs(names) do
    options[name] = entries[name] == nil and defaults.generation[name] or entries[name]
  end
  if options.top_k == -1 then options.top_k = 0 end              -- from all tokens, as in vLLM
end

-- The entries of a file in the folder, without null, and its text; nil if there is no such file.
-- Errors: invalid entries.
local function entries_in(folder, name, wrong)
  local path = files.join(folder, name)
  if not files.exists(path) then return nil end
  local text = files.read(path)
  local entries = schema.without_null(json.object(text, path))
  local problem = #entries > 0 and "it is a list; an object is needed" or wrong(entries)
  if problem then lib.deny("%s: %s", path, problem) end
  return entries, text
end

local function list_of(value) return type(value) == "table" and value or {value} end

-- The ids of tokens in these lists, each once; nil if there are none.
local function union(...)
  local out, seen = {}, {}
  for _, list in ipairs {...} do
    for _, value in ipairs(list) do
      if value >= 0 and not seen[value] then out[#out + 1], seen[value] = value, true end
    end
  end
  return #out > 0 and out or nil
end

--- attach(model, folder): sets the fields `generation` and `origin` of a model, or of its outline,
--- that is loaded from a Hugging Face folder and generates text. Errors: an entry that nn.generate
--- cannot use.
function M.attach(model, folder)
  if model.kind == "encoder" then return end
  local config = entries_in(folder, "config.json", wrong_end)
  local entries, text = entries_in(folder, "generation_config.json", wrong_entry)
  local source = text and "generation_config.json" or "config.json"
  model.origin = {generation = entries, text = text, source = source,
                  eos_token_id = config.eos_token_id}
  entries = entries or entries_in(folder, source, wrong_entry)
  model.origin.unused = unused_in(entries)
  local options = {stop_ids = union(list_of(entries.eos_token_id), list_of(config.eos_token_id))}
  add_sampling(options, entries)
  model.generation = options
end

--- stop_ids(model, own) -> a list of the id `own` (or nil), the end of a tokenizer, and of those in
--- model.generation.
function M.stop_ids(model, own)
  return union({own}, model.generation and model.generation.stop_ids or {}) or {}
end

--- defaults(cfg, model) -> a text: gives the settings of a recipe that the command line does not
--- give the values in model.generation. The text lists these, and what is not used; nil if there is
--- neither.
function M.defaults(cfg, model)
  local parts = {}
  for _, name in ipairs(names) do
    local value = (model.generation or {})[name]
    if value and not config_file.given(cfg, name) then
      cfg[name], parts[#parts + 1] = value, name .. "=" .. files.number_text(value)
    end
  end
  local unused = model.origin and model.origin.unused or {}
  if #unused > 0 then parts[#parts + 1] = "(not used: " .. table.concat(unused, " ") .. ")" end
  return #parts > 0 and model.origin.source .. ": " .. table.concat(parts, " ") or nil
end

-- eos_token_id for a file: what the folder had, and the end of the tokenizer, `own`, or nil.
local function ends(before, own)
  local list = union(list_of(before), {own})
  return list and #list == 1 and type(before) ~= "table" and list[1] or list
end

--- text_to_save(model, config, tokenizer) -> the text of generation_config.json: that of
--- model.origin, with the end of the tokenizer, else the special tokens of the tokenizer; nil if
--- there is neither. config: the entries of the new config.json with the special tokens of the
--- tokenizer; its eos_token_id gets that of model.origin too.
function M.text_to_save(model, config, tokenizer)
  if model.kind == "encoder" then return nil end
  local origin, own, out = model.origin or {}, config.eos_token_id, {}
  config.eos_token_id = ends(origin.eos_token_id, own)
  if not origin.generation then
    if not tokenizer then return nil end
    for _, name in ipairs {"bos_token_id", "eos_token_id", "decoder_start_token_id"} do
      out[name] = config[name]
    end
    out.pad_token_id = config.pad_token_id or tokenizer.pad
    return next(out) and files.json(out, "") .. "\n"
  end
  local before = origin.generation.eos_token_id
  local after = ends(before, own)
  if #list_of(after) == #list_of(before) then return origin.text end
  for name, value in pairs(origin.generation) do
    if not is_empty(value) then out[name] = value end                   -- not {} or [] of JSON
  end
  out.eos_token_id = after
  return files.json(out, "") .. "\n"
end

return M
