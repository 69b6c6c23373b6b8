-- Odd config.json files of all families (tests/golden/make_odd_configs.py): the logits are those of
-- transformers, or the folder is refused by an error that names an entry which is odd. What
-- transformers refuses is refused here too. Entries of published folders are not refused.
local cjson = require "cjson"
local eval_mode = require("nn.models.evaluate").eval_mode
local files = require "nn.io.files"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local small, some_logits = require "small_models", require "some_logits"
local golden, folder = json.read(root .. "/tests/golden/odd_configs.json"), t.folder()
local i32 = {dtype = "i32"}

local function ids_of(vocab)
  local ids = {}
  for i = 0, 23 do ids[i + 1] = (i * i * 7 + i * 3 + 2) % vocab end
  return ids
end

local function logits_of(model)
  local ids = ids_of(model.config.vocab)
  local options = model.kind == "encoder_decoder"
    and {inputs = nn.tensor({{unpack(ids, 1, 7)}}, i32)} or nil
  return eval_mode(model, nn.tensor({ids}, i32), nil, options)
end

-- The text of the config.json of a case, and the names of its odd entries.
local function config_of(case)
  local entries, names = {}, {}
  for name, value in pairs(golden.bases[case.family]) do entries[name] = value end
  for name, value in pairs(case.set) do entries[name], names[#names + 1] = value, name end
  for _, name in ipairs(case.remove) do entries[name], names[#names + 1] = nil, name end
  return files.json(entries, ""), names
end

local written = {}             -- folders with weights, by the index in shapes: many cases share one

-- The folder of a case, with this text as config.json.
local function folder_of(case, text)
  local path = ("%s/%d"):format(folder, case.shapes)
  if not written[path] then
    local tensors = {}
    for _, entry in ipairs(golden.shapes[case.shapes]) do
      tensors[entry[1]] = small.weight_of(entry[1], entry[2])
    end
    small.write_folder(path, text, tensors)
    written[path] = true
  end
  files.write(path .. "/config.json", text)
  return path
end

-- Whether an error names one of the entries, or an entry within one of them.
local function names_entry(message, case, names)
  for _, name in ipairs(names) do
    if message:find(name, 1, true) then return true end
    for inner in pairs(type(case.set[name]) == "table" and case.set[name] or {}) do
      if type(inner) == "string" and message:find(inner, 1, true) then return true end
    end
  end
end

-- What comes of a case: "equal" or "refused", or what is wrong.
local function result_of(case)
  local text, names = config_of(case)
  local good, model = pcall(nn.load_hf, folder_of(case, text))
  if not good then
    local message = lib.is_error(model) and model.message
    if message and not case.published
       and (names_entry(message, case, names) or message:find "implies") then
      return "refused"
    end
    return "the error names no entry, or one to leave out: " .. tostring(model)
  end
  if case.values == cjson.null then return "it loads, but transformers refuses it" end
  local called, logits = pcall(logits_of, model)
  if not called then return "it loads, but fails: " .. tostring(logits) end
  local d = some_logits.distance(logits, case.values)
  return d <= 1e-5 and "equal" or ("wrong: logits are off by %.2g"):format(d)
end

local by_family, families = {}, {}
for _, case in ipairs(golden.cases) do
  if not by_family[case.family] then
    by_family[case.family], families[#families + 1] = {}, case.family
  end
  table.insert(by_family[case.family], case)
end

for _, family in ipairs(families) do
  t.case(family .. ": odd entries give the logits of transformers to 1e-5, or are refused by name",
         function()
    local counts, wrong = {equal = 0, refused = 0}, {}
    for _, case in ipairs(by_family[family]) do
      local result = result_of(case)
      if counts[result] then
        counts[result] = counts[result] + 1
      else
        wrong[#wrong + 1] = ("%s without %s: %s"):format(files.json(case.set),
                                                        table.concat(case.remove, ", "), result)
      end
    end
    t.check(#wrong == 0, ("%d of %d (%d equal, %d refused):\n  %s"):format(
      #wrong, #by_family[family], counts.equal, counts.refused, table.concat(wrong, "\n  ")))
    t.check(counts.equal > 0, "the family's own config is equal")
  end)
end

t.finish()
