-- A conversation with a model, for recipes/chat.lua: messages, the prompt that the chat template
-- makes of them, and answers. A turn is {question=, answer=}. The oldest turns that do not fit into
-- the model's context are kept, but the model no longer sees them.
local ffi = require "ffi"
local files = require "nn.io.files"
local generate = require "nn.models.generate"
local json = require "nn.io.json"
local known_ids = require "nn.text.known_ids"
local lib = require "nn.base.capi"
local schema = require "nn.io.schema"
local utf8 = require "nn.base.utf8"

local M = {}
local Conversation = {}
Conversation.__index = Conversation

--- new(model, words, {system="", tokens=, template=nil, generate={}}) -> conversation. words: a
--- tokenizer with a chat template; system: the system message, "" for none; tokens: at most so many
--- in an answer; template: the name of the chat template; generate: options of nn.generate.
--- Errors: a model that does not continue texts; no chat template, or one that refuses a question
--- after the system message.
function M.new(model, words, options)
  local self = setmetatable({model = model, words = words, options = options, turns = {},
                             first = 1, answers = 0, cache = {}}, Conversation)
  if not (words and words.chat) then
    lib.deny("the model has no tokenizer with a chat template; recipes/gpt2_generate.lua "
             .. "continues a text")
  end
  if (model.kind or "decoder") ~= "decoder" then
    lib.deny("%s does not continue texts, so it has no conversations; recipes/gpt2_generate.lua "
             .. "answers a single text", getmetatable(model).class_name)
  end
  self:set_system(options.system or "")
  return self
end

-- The text with U+FFFD for bytes that are not UTF-8, which templates and JSON cannot have.
local function valid(text)
  local p, size, at, out = ffi.cast("const uint8_t *", text), #text, 0, {}
  while at < size do
    local code, length = utf8.decode(p, at, size)
    out[#out + 1] = code and text:sub(at + 1, at + length) or "\239\191\189"
    at = at + (length or 1)
  end
  return table.concat(out)
end

--- conversation:messages(first) -> {{role=, content=}, ...}, from turn `first` (default 1) on.
function Conversation:messages(first)
  local list = {}
  if self.system ~= "" then list[1] = {role = "system", content = self.system} end
  for i = first or 1, #self.turns do
    local turn = self.turns[i]
    list[#list + 1] = {role = "user", content = turn.question}
    if turn.answer then list[#list + 1] = {role = "assistant", content = turn.answer} end
  end
  return list
end

--- conversation:text(first) -> what the model continues: the messages from turn `first` on, in the
--- chat template.
function Conversation:text(first)
  return self.words:chat(self:messages(first), {template = self.options.template})
end

--- conversation:set_system(text): replaces the system message. Errors: a chat template that refuses
--- it.
function Conversation:set_system(text)
  local before = self.system
  self.system = valid(text)
  lib.guarded(function() self.system = before end, function()
    local probe = setmetatable({turns = {{question = "?"}}}, {__index = self})
    Conversation.text(probe)
  end)
end

--- conversation:reset(): forgets all turns, but not the system message.
function Conversation:reset() self.turns, self.first = {}, 1 end

-- The ids of the prompt. Leaves out the oldest turns if less than a quarter of the context, or than
-- an answer, is left; returns how many it left out now.
function Conversation:prompt()
  local context, before = self.model.config.context, self.first
  local needed = math.min(self.options.tokens, math.ceil(context / 4))
  while true do
    local ids = self.words:ids(self:text(self.first), {special = true, add_special = false})
    if #ids + needed <= context and #ids > 0 then
      known_ids.check("the conversation", ids, self.model.config.vocab, self.words)
      return ids, self.first - before
    end
    if self.first >= #self.turns then
      self.first = before
      lib.deny("the message makes %d tokens with the system message and the template; the model's "
               .. "context is %d, of which %d are for the answer", #ids, context, needed)
    end
    self.first = self.first + 1
  end
end

-- Generates the answer to the last turn -> text, info.
function Conversation:generate(ids, stops, on_text)
  local options, parts, next_part = {}, {}, self.words:stream {special = false}
  for name, value in pairs(self.options.generate or {}) do options[name] = value end
  for _, id in ipairs(ids) do next_part(id) end
  options.tokens = math.min(self.options.tokens, self.model.config.context - #ids)
  options.stop_ids, options.seed = stops, (options.seed or 0) + self.answers
  options.cache = self.model.kind == "decoder" and self.model.caches and self.cache or nil
  local is_stop = {}
  for _, id in ipairs(stops) do is_stop[id] = true end
  function options.on_token(id)
    if is_stop[id] then return end
    parts[#parts + 1] = next_part(id)
    on_text(parts[#parts])
  end
  self.answers = self.answers + 1
  local good, all, about = xpcall(generate.generate, lib.traced, self.model, ids, options)
  local text = valid(table.concat(parts))
  if good then return text, {reason = about.reason, tokens = #all - #ids, read = about.read} end
  if not lib.is_interrupt(all) then error(all, 0) end
  return text, {reason = "interrupted", tokens = #parts}
end

--- conversation:say(question, stops, on_text) -> info {reason=, tokens=, read=, left_out=}. Adds a
--- turn: calls on_text(part) for each part of the answer, until an id of `stops`. reason: "stop",
--- "length", or "interrupted" after a stop signal, which the caller clears; tokens: in the answer;
--- read: how many tokens of the prompt the model read, without those that are in the caches since
--- the turn before, nil after a signal; left_out: how many more turns the model no longer sees.
--- Errors: a message longer than the context; after an error, and where a signal came before the
--- first token, the turn is not kept.
function Conversation:say(question, stops, on_text)
  local turn = {question = valid(question)}
  local turns = self.turns
  turns[#turns + 1] = turn
  return lib.guarded(function() turns[#turns] = nil end, function()
    local ids, left_out = self:prompt()
    local answer, info = self:generate(ids, stops, on_text)
    info.left_out = left_out
    turn.answer = answer
    if info.reason == "interrupted" and answer == "" then turns[#turns] = nil end
    return info
  end)
end

--- conversation:retry(stops, on_text) -> info: as say(), for another answer to the last question.
--- Keeps the old answer where there is no new one. Errors: there is no question.
function Conversation:retry(stops, on_text)
  local turns = self.turns
  local count, old = #turns, turns[#turns]
  if not old then lib.deny "there is no question yet" end
  turns[count] = nil
  return lib.finally(function() turns[count] = turns[count] or old end, self.say, self,
                     old.question, stops, on_text)
end

--- conversation:save(path): writes all messages, a JSON list of {"role": ..., "content": ...}.
function Conversation:save(path) files.write(path, files.json(self:messages(), "") .. "\n") end

local message = schema.fields {role = schema.text, content = schema.text}
local is_list = schema.list(message)

-- The system message and the turns in a list of messages; or nil and the problem.
local function turns_of(list)
  local problem = is_list(list, "the list")
  if problem then return nil, problem end
  local turns, system, at = {}, "", 1
  if list[1] and list[1].role == "system" then system, at = list[1].content, 2 end
  for i = at, #list do
    local needed = (i - at) % 2 == 0 and "user" or "assistant"
    if list[i].role ~= needed then
      return nil, ("message %d is of role '%s'; %s is needed"):format(i, list[i].role, needed)
    end
    if needed == "user" then
      turns[#turns + 1] = {question = list[i].content}
    else
      turns[#turns].answer = list[i].content
    end
  end
  if #turns > 0 and not turns[#turns].answer then return nil, "the last question has no answer" end
  return system, turns
end

--- conversation:load(path): continues the conversation in a file of save(). Errors: another file;
--- the conversation is then unchanged.
function Conversation:load(path)
  local system, turns = turns_of(json.read(path))
  if not system then lib.deny("%s is not a conversation: %s", path, turns) end
  self:set_system(system)
  self.turns, self.first = turns, 1
end

return M
