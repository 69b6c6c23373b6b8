-- The post-processors of tokenizer.json: which tokens a model expects around a text and between two
-- texts. All kinds become templates {single = items, pair = items}; an item is {ids=, type=} for
-- tokens or {text="A" or "B", type=} for a text; `type` is the type of the ids (0 or 1).
local lib = require "nn.base.capi"
local steps = require "nn.text.steps"

local M = {}

local function text_item(name, number) return {text = name, type = number} end

local function default()
  return {single = {text_item("A", 0)}, pair = {text_item("A", 0), text_item("B", 1)}}
end

local function fail(path, text, ...) lib.deny("%s: the post_processor " .. text, path, ...) end

local function check_id(path, id, size)
  if type(id) ~= "number" or id % 1 ~= 0 or id < 0 or id >= size then
    fail(path, "has the id %s; a token of %d is needed", tostring(id), size)
  end
  return id
end

-- Items of a template's list, such as {{SpecialToken={id=, type_id=}}, {Sequence={id=, type_id=}}}.
local function items(list, special, path, size)
  if type(list) ~= "table" then fail(path, "has no list 'single' or 'pair'") end
  local out = {}
  for i, entry in ipairs(list) do
    local token, sequence
    if type(entry) == "table" then token, sequence = entry.SpecialToken, entry.Sequence end
    local what = token or sequence
    local number = type(what) == "table" and what.type_id
    if type(number) ~= "number" or number < 0 or number > 255 or number % 1 ~= 0 then
      fail(path, "has an entry %d that is neither SpecialToken nor Sequence", i)
    end
    if sequence and sequence.id ~= "A" and sequence.id ~= "B" then
      fail(path, "has a Sequence '%s'; A and B are possible", tostring(sequence.id))
    end
    local known = token and type(special) == "table" and special[token.id]
    if token and (type(known) ~= "table" or type(known.ids) ~= "table") then
      fail(path, "uses '%s', which is not in its special_tokens", tostring(token.id))
    end
    for _, id in ipairs(known and known.ids or {}) do check_id(path, id, size) end
    out[i] = {text = sequence and sequence.id, ids = known and known.ids, type = number}
  end
  return out
end

local makers = {}

function makers.ByteLevel() return nil end        -- changes only positions of tokens in the text

function makers.TemplateProcessing(step, path, size)
  local template = {single = items(step.single, step.special_tokens, path, size),
                    pair = items(step.pair, step.special_tokens, path, size)}
  for _, item in ipairs(template.single) do
    if item.text == "B" then fail(path, "uses the second text in 'single'") end
  end
  return template
end

-- [CLS] A [SEP] B [SEP] of BERT; <s> A </s></s> B </s> of RoBERTa, whose types are all 0.
local function classic(step, path, size, is_roberta)
  local function token(name)
    local pair = step[name]
    return check_id(path, type(pair) == "table" and pair[2], size)
  end
  local cls, sep = token "cls", token "sep"
  local second = is_roberta and 0 or 1
  return {single = {{ids = {cls}, type = 0}, text_item("A", 0), {ids = {sep}, type = 0}},
          pair = {{ids = {cls}, type = 0}, text_item("A", 0), {ids = {sep}, type = 0},
                  {ids = is_roberta and {sep} or {}, type = second}, text_item("B", second),
                  {ids = {sep}, type = second}}}
end

function makers.BertProcessing(step, path, size) return classic(step, path, size, false) end

function makers.RobertaProcessing(step, path, size) return classic(step, path, size, true) end

--- new(step, path, size) -> template. step: a parsed post_processor, or nil; size: the number of
--- tokens. Errors, with `path`: a kind that is not supported; ids outside the vocabulary.
function M.new(step, path, size)
  local template
  for _, one in ipairs(steps.flat(step, "processors", path)) do
    local maker = makers[one.type]
    if not maker then fail(path, "'%s' is not supported", steps.shown(one.type)) end
    local made = maker(one, path, size)
    if made and template then fail(path, "adds tokens twice") end
    template = made or template
  end
  return template or default()
end

return M
