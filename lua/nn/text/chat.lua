-- The settings beside a tokenizer: the names of special tokens, and the chat template, which
-- writes a conversation as the text that a model was trained on.
local arguments = require "nn.base.arguments"
local cjson = require "cjson"
local json = require "nn.io.json"
local lib = require "nn.base.capi"
local ordered = require "nn.io.ordered"
local tables = require "nn.base.tables"
local token_names = require "nn.text.token_names"

local M = {}

-- The templates in tokenizer_config.json by name: a text, or a list of {name=, template=}.
local function templates_in(config, path)
  local given, out = config.chat_template, {}
  if type(given) == "string" then return {default = given} end
  if type(given) ~= "table" then return out end
  for _, entry in ipairs(given) do
    local good = type(entry) == "table" and type(entry.name) == "string"
      and type(entry.template) == "string"
    if not good then
      lib.deny("%s: an entry of chat_template is not {name, template}", path)
    end
    out[entry.name] = entry.template
  end
  return out
end

--- configure(tokenizer, config, template, path, texts, map) -> tokenizer with the settings of a
--- tokenizer_config.json, a chat_template.jinja and a special_tokens_map.json (map), each a text or
--- nil; and these settings. path: of the first, for errors; texts: of the special tokens by name,
--- nil: those that the files name.
function M.configure(tokenizer, config, template, path, texts, map)
  tokenizer.config_source, tokenizer.template_source = config, template
  tokenizer.map_source = map
  local parsed = token_names.settings(config, map, path)
  texts = texts or token_names.texts(parsed)
  tokenizer.token_texts, tokenizer.chat_templates = texts, templates_in(parsed, path)
  if template then tokenizer.chat_templates.default = template end
  local ids = {}
  for i, symbol in ipairs(tokenizer.symbols) do ids[symbol] = ids[symbol] or i - 1 end
  for name, id in pairs(tokenizer.special) do ids[name] = id end
  ids[false] = nil                                       -- an id without a token
  for _, name in ipairs {"bos", "eos", "pad", "unk"} do
    local text = texts[name .. "_token"]
    tokenizer[name] = text and ids[text] or nil
  end
  return tokenizer, parsed
end

-- The template of a name; without one, "tool_use" where there are tools, else "default".
local function template_of(self, name, tools)
  local templates = self.chat_templates or {}
  name = name or tools and templates.tool_use and "tool_use" or "default"
  if templates[name] then return templates[name] end
  local known = tables.sorted_keys(templates)
  if #known == 0 then
    lib.misuse("chat: this tokenizer has no chat template: its folder needs chat_template in "
               .. "tokenizer_config.json, or chat_template.jinja")
  end
  lib.misuse("chat: there is no template '%s'; this tokenizer has %s", name,
             table.concat(known, ", "))
end

local reasoning_names = {"reasoning_content", "thinking", "reasoning"}

-- A message as transformers gives it to templates: without null, and with the thoughts of the model
-- under both names that templates read.
local function prepared(message)
  local out, reasoning = ordered.object(), nil
  for _, name in ipairs(reasoning_names) do
    if reasoning == nil and message[name] ~= cjson.null then reasoning = message[name] end
  end
  if reasoning ~= nil then ordered.put(out, "thinking", reasoning) end
  for _, name in ipairs(ordered.names(message)) do
    if message[name] ~= cjson.null then ordered.put(out, name, message[name]) end
  end
  if reasoning ~= nil then ordered.put(out, "reasoning_content", reasoning) end
  return out
end

local function prepared_messages(messages)
  arguments.need(type(messages) == "table", "chat", "the argument", messages,
                 "a list of {role=, content=} is needed")
  if messages.role ~= nil then
    lib.misuse("chat: the argument is a single message; put the message into a list")
  end
  if #messages == 0 then
    lib.misuse("chat: there is no message; a list with at least one {role=, content=} is needed")
  end
  local out = ordered.list()
  for i, message in ipairs(messages) do
    arguments.need(type(message) == "table", "chat", "message " .. i, message,
                   "a table {role=, content=} is needed")
    if json.is_list(message) then
      lib.misuse("chat: message %d has no names; a table {role=, content=} is needed", i)
    end
    out[i] = prepared(message)
  end
  return out
end

local chat_options = arguments.names "generate tools documents template values"

--- tokenizer:chat(messages, {generate=true, tools=nil, documents=nil, template=nil, values={}}) ->
--- the text of a conversation, as the tokenizer's chat template writes it in transformers.
--- messages: a list of {role="user", content="..."}, at least one. `generate`: the text ends where
--- the model's answer begins. tools, documents: lists of tables. template: the name of a template;
--- by default "tool_use" if there is one and tools are given, else "default". values: further
--- variables of the template, such as enable_thinking. The text contains special tokens: encode it
--- with tokenizer:ids(text, {special = true, add_special = false}). The content of messages may
--- contain the texts of special tokens too, so check that of untrusted users. Templates write
--- tables as JSON or as Python does. Lua tables have no order: their names are written in
--- alphabetical order, and an empty table as {}. nn.from_json gives tables that keep the order of a
--- JSON text, so tools should come from it. The template is in the language Jinja, of which nnlua
--- knows most of what chat templates use. Errors: no template; a template that uses anything else,
--- with its line; a conversation that the template refuses.
---     local words = nn.train_tokenizer("to be or not to be", {size = 258})
---     words.chat_templates = {default = "{{ messages[0].role }}: {{ messages[0].content }}"}
---     words:chat{{role = "user", content = "hello"}}  --> "user: hello"
---     words.chat_templates.tool_use = "{{ tools[0] | tojson }}"
---     local tools = nn.from_json '[{"name": "add", "arguments": []}]'
---     words:chat({{role = "user", content = "hello"}}, {tools = tools}):find '{"name"'  --> 1, 7
function M.chat(self, messages, options)
  options = arguments.options("chat", options, chat_options)
  messages = prepared_messages(messages)
  local jinja = require "nn.chat.template"
  local values = {messages = messages, tools = options.tools or jinja.NONE,
                  documents = options.documents or jinja.NONE,
                  add_generation_prompt = options.generate ~= false}
  for _, name in ipairs {"tools", "documents"} do
    local list = options[name]
    arguments.need(list == nil or json.is_list(list), "chat", name, list,
                   "a list of tables is needed")
    for i, entry in ipairs(list or {}) do
      arguments.need(type(entry) == "table", "chat", ("%s[%d]"):format(name, i), entry,
                     "a table is needed")
    end
  end
  arguments.need(options.values == nil or type(options.values) == "table", "chat", "values",
                 options.values, "a table {name = value} is needed")
  for name, text in pairs(self.token_texts or {}) do values[name] = text end
  for name, value in pairs(options.values or {}) do values[name] = value end
  return jinja.render(template_of(self, options.template, options.tools), values)
end

return M
