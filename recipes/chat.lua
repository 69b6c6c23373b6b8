-- A conversation with a model in the terminal: a Hugging Face folder whose tokenizer has a chat
-- template, such as SmolLM2-135M-Instruct, Qwen2.5-0.5B-Instruct or Llama-3.2-1B-Instruct.
--   nnlua recipes/chat.lua model=SmolLM2-135M-Instruct
--   nnlua recipes/chat.lua model=Qwen3-0.6B system="Answer in one sentence." temperature=0
--   echo "What is a tile?" | nnlua recipes/chat.lua model=Qwen3-0.6B
--   nnlua recipes/chat.lua model=Qwen3-0.6B --plan            memory of a full context, and times
-- /help lists the commands. Ctrl-C stops an answer, Ctrl-D leaves. Settings of sampling that are
-- not given are those of generation_config.json, if the folder has it.
local nn = require "nn"
local conversations, files = require "nn.models.conversation", require "nn.io.files"
local generation_config = require "nn.models.generation_config"
local host, suggest = require "nn.host", require "nn.base.suggest"
local model_file, model_plan = require "nn.models.load", require "nn.plan.inference"

local cfg = nn.config({
  model = nn.field("", "folder of a Hugging Face model with a chat template", {path = true}),
  tokenizer = nn.field("", "folder of the tokenizer and its template, if the model has none",
                       {path = true}),
  template = nn.field("default", "name of the chat template, if there are several"),
  system = nn.field("", "system message; empty: none, or the template's own"),
  tokens = nn.field(512, "tokens in an answer, at most", {min = 1}),
  temperature = nn.field(0.7, "below 1 favours likely tokens; 0: always the likeliest", {min = 0}),
  top_k = nn.field(0, "sample from the k likeliest tokens; 0: from all", {min = 0}),
  top_p = nn.field(0.95, "sample from the likeliest tokens with this total probability",
                   {min = 0, max = 1, real = true}),
  repetition_penalty = nn.field(1, "above 1 discourages repetition", {min = 0.001, real = true}),
  seed = nn.field(1, "seed of the answers", {min = 0}),
  plan = nn.field(false, "only report what a full context would cost and whether it fits"),
  nn.memory_fields(),
}, arg)
nn.use_memory(cfg)

local outline, known = model_file.outline(cfg.model, cfg.tokenizer)
local from_folder = generation_config.defaults(cfg, outline)
local options = {system = cfg.system, tokens = cfg.tokens, template = cfg.template, generate = {
  temperature = cfg.temperature, top_k = cfg.top_k, top_p = cfg.top_p, seed = cfg.seed,
  repetition_penalty = cfg.repetition_penalty}}
conversations.new(outline, known, options)           -- does the template accept the settings?
if cfg.plan then
  print(model_plan.generation(outline, {{0}}, outline.config.context, 1))
  if from_folder then print("  " .. from_folder) end
  return
end
local model, words = nn.load_model(cfg.model, cfg.tokenizer)
local stops = generation_config.stop_ids(model, words.eos)
local talk = conversations.new(model, words, options)
local own_file                                       -- that of /save and /load

-- After Ctrl-C the conversation continues; another signal ends the program.
local function clear_signal()
  local number = host.signal()
  nn.clear_interrupt()
  if number ~= 0 and number ~= 2 then os.exit(128 + number) end
end

-- Prints an answer: ask is talk.say or talk.retry. Ctrl-C ends it, with what there is.
local function answer(ask, ...)
  local start, arguments, written = nn.now(), {...}, false
  arguments[#arguments + 1] = function(part)
    written = true
    io.write(part)
    io.flush()
  end
  local good, info = pcall(ask, talk, unpack(arguments))
  if good or written then print() end
  clear_signal()
  if not good then error(info, 0) end
  local notes = {}
  if info.left_out > 0 then
    notes[1] = ("the context of %d tokens is full: the model no longer sees the oldest %d of %d "
                .. "turns"):format(model.config.context, talk.first - 1, #talk.turns)
  end
  if info.reason == "length" then notes[#notes + 1] = "the answer reached its limit of tokens" end
  if info.reason == "interrupted" then notes[#notes + 1] = "stopped" end
  if nn.is_tty(1) then
    notes[#notes + 1] = ("%.1f tokens/s"):format(info.tokens / (nn.now() - start))
  end
  if #notes > 0 then io.stderr:write("(", table.concat(notes, "; "), ")\n") end
end

local commands = {reset = function() talk:reset() end,
                  system = function(text) talk:set_system(text) end,
                  retry = function() answer(talk.retry, stops) end}

function commands.help()
  print [[
/system TEXT   replace the system message     /reset       start again
/save FILE     write the conversation         /load FILE   continue a saved one
/retry         another answer                 /exit        leave, as Ctrl-D
Ctrl-C stops an answer; Alt-Enter starts a new line; // begins a message with a slash]]
end

function commands.save(name)
  if name == "" then nn.fail "/save needs the name of a file" end
  if files.exists(name) and name ~= own_file then
    nn.fail("'%s' exists already; give another name", name)
  end
  talk:save(name)
  own_file = name
end

function commands.load(name)
  if name == "" then nn.fail "/load needs the name of a file" end
  talk:load(name)
  own_file = name
end

-- Answers one input; returns true to leave.
local function handle(text)
  local name, rest = text:match "^/(%a+)%s*(.-)%s*$"
  if name == "exit" then return true end
  if name and not commands[name] then
    nn.fail("there is no command /%s%s; /help lists them", name, suggest.suggestion(name, commands))
  end
  if name then return commands[name](rest) end
  if text:find "%S" then answer(talk.say, (text:gsub("^//", "/")), stops) end
end

local is_tty, failed = nn.is_tty(0), false
local read, is_edited = require("repl.input").reader {
  look = {text = "> ", more = "  ", modes = {["/"] = "command"}}, history = "chat_history",
  unfinished = function() return false end,
  complete = function() return {items = {}, note = "/help lists the commands"} end,
}
if is_tty then
  print(("%s; /help lists the commands, Ctrl-D leaves"):format(cfg.model))
  if from_folder then print(from_folder) end
end
while true do
  local text = read()
  if text == nil then break end
  clear_signal()                                     -- Ctrl-C dropped the line
  local good, result = pcall(handle, text or "")
  if good and result then break end
  if not good then
    failed = true
    io.stderr:write("error: ", tostring(result), "\n")
  end
end
if is_tty and not is_edited then print() end
if failed and not is_tty then os.exit(1) end
