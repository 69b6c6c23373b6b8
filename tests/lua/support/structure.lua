-- What tests/lua/project/structure.lua checks: how the source files depend on each other, and how
-- long they are. Every check takes the files as {path = text} and returns a list of problems,
-- sorted.

local M = {}

-- A file may include or require what stands in its own folder and before it in these lists.
M.rooms = {"kernels", "engine", "bindings"}
M.engine = {"base", "machine", "ranks", "memory", "tile", "graph", "tiers", "rules", "ops",
            "profile", "workers", "residency", "runtime", "plan", "schedule", "executor", "io",
            "text"}
M.lua = {"nn.base", "nn.core", "nn.io", "nn.plot", "nn.unicode", "nn.chat", "nn.text", "nn.data",
         "nn.models", "nn.measure", "nn.plan", "nn.train", "nn", "nn.help", "nn.test", "repl",
         "health", "completion"}
M.longest_function, M.longest_file = 60, 400

local function ranks(list)
  local out = {}
  for i, name in ipairs(list) do out[name] = i end
  return out
end

local function sorted_keys(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

-- ### Reading code

-- The end of the long bracket [[...]] or [==[...]==] that opens at `at`, or nil.
local function long_bracket(text, at)
  local level = text:match("^%[(=*)%[", at)
  return level and (select(2, text:find("]" .. level .. "]", at, true)) or #text)
end

-- The tokens of Lua code as {text=, line=, string=}: names, numbers, strings (their contents) and
-- other characters one by one, without comments.
local function lua_tokens(text)
  local tokens, at, line = {}, 1, 1
  local function take(last, token, is_string)
    if token then tokens[#tokens + 1] = {text = token, line = line, string = is_string} end
    line = line + select(2, text:sub(at, last):gsub("\n", ""))
    at = last + 1
  end
  while at <= #text do
    local c = text:sub(at, at)
    local comment = text:sub(at, at + 1) == "--"
    local long = long_bracket(text, comment and at + 2 or at)
    if comment then
      take(long or (text:find("\n", at, true) or #text + 1) - 1)
    elseif long then
      take(long, text:sub(at, long), true)
    elseif c == '"' or c == "'" then
      local last = at + 1
      while last <= #text and text:sub(last, last) ~= c do
        last = last + (text:sub(last, last) == "\\" and 2 or 1)
      end
      take(last, text:sub(at + 1, last - 1), true)
    else
      local last = select(2, text:find("^[%a_][%w_]*", at)) or select(2, text:find("^[%s]+", at))
        or select(2, text:find("^%.?%d[%w.]*", at)) or at
      take(last, not c:find "%s" and text:sub(at, last) or nil)
    end
  end
  return tokens
end

-- C++ or CUDA code with blanks for comments, texts, characters and preprocessor lines.
local function bare_code(text)
  local parts, at = {}, 1
  local function blank(last)
    parts[#parts + 1] = text:sub(at, last):gsub("[^\n]", " ")
    at = last + 1
  end
  while at <= #text do
    local first = text:find("[/\"'#]", at)
    if not first then break end
    parts[#parts + 1], at = text:sub(at, first - 1), first
    local c, two = text:sub(at, at), text:sub(at, at + 1)
    local raw = c == '"' and text:sub(at - 1, at - 1) == "R" and text:match('^"([^(]*)%(', at)
    if two == "//" then
      blank((text:find("\n", at, true) or #text + 1) - 1)
    elseif two == "/*" then
      blank(select(2, text:find("*/", at + 2, true)) or #text)
    elseif raw then
      blank(select(2, text:find(")" .. raw .. '"', at, true)) or #text)
    elseif c == "#" and text:sub(1, at - 1):match "[^\n]*$":find "^%s*$" then
      local last = at
      repeat last = (text:find("\n", last + 1, true) or #text + 1)
      until text:sub(last - 1, last - 1) ~= "\\"
      blank(last - 1)
    elseif c == '"' or c == "'" and not text:sub(at - 1, at):find "^%w'" then
      local last = at + 1
      while last < #text and text:sub(last, last) ~= c do
        last = last + (text:sub(last, last) == "\\" and 2 or 1)
      end
      blank(last)
    else
      parts[#parts + 1], at = c, at + 1
    end
  end
  return table.concat(parts) .. text:sub(at)
end

-- ### Dependencies

-- A cycle for every arrow of {name = {name = true}} that closes one, as "a -> b -> a".
local function cycles(arrows, what)
  local state, path, found = {}, {}, {}         -- state: 1 on the path, 2 done
  local function visit(name)
    state[name], path[#path + 1] = 1, name
    for _, other in ipairs(sorted_keys(arrows[name] or {})) do
      if state[other] == 1 then
        local first = #path
        while path[first] ~= other do first = first - 1 end
        found[#found + 1] = what .. table.concat(path, " -> ", first) .. " -> " .. other
      elseif not state[other] then
        visit(other)
      end
    end
    state[name], path[#path] = 2, nil
  end
  for _, name in ipairs(sorted_keys(arrows)) do
    if not state[name] then visit(name) end
  end
  return found
end

local function add_arrow(arrows, from, to)
  arrows[from] = arrows[from] or {}
  if from ~= to then arrows[from][to] = true end
end

-- Calls each(path, included) for every #include "..." of a room.
local function each_include(tree, each)
  for _, path in ipairs(sorted_keys(tree)) do
    for line in path:find "^%a+/.*%.[chi][cun]?[ch]?$" and tree[path]:gmatch "[^\n]+"
                or function() end do
      local included = line:match '^%s*#%s*include%s*"(%a+/[^"]+)"'
      if included then each(path, included) end
    end
  end
end

--- include_cycles(tree): cycles between units of engine/; x.h and x.cc of a folder are one.
function M.include_cycles(tree)
  local arrows = {}
  each_include(tree, function(path, included)
    if path:find "^engine/" and included:find "^engine/" then
      add_arrow(arrows, (path:gsub("%.%w+$", "")), (included:gsub("%.%w+$", "")))
    end
  end)
  return cycles(arrows, "an include cycle: ")
end

--- include_order(tree): includes against M.rooms and, within engine/, M.engine.
function M.include_order(tree)
  local rooms, folders, problems = ranks(M.rooms), ranks(M.engine), {}
  local function refuse(...) problems[#problems + 1] = string.format(...) end
  each_include(tree, function(path, included)
    local from, to = path:match "^%a+", included:match "^%a+"
    if not rooms[from] or not rooms[to] then return end
    if rooms[to] > rooms[from] then
      return refuse("%s includes %s: %s may not know %s", path, included, from, to)
    end
    if from ~= "engine" or to ~= "engine" then return end
    local own, other = path:match "^engine/([%w_]+)/", included:match "^engine/([%w_]+)/"
    if not folders[own] or not folders[other] then
      refuse("%s includes %s: a folder of engine/ that is not in the order", path, included)
    elseif folders[other] > folders[own] then
      refuse("%s includes %s: engine/%s may not know engine/%s", path, included, own, other)
    end
  end)
  return problems
end

--- one_pipeline(tree): calls of functions that change a program, outside of the passes themselves
--- and of the folder with their list.
function M.one_pipeline(tree)
  local passes, problems = {}, {}
  for path, text in pairs(tree) do
    if path:find "^engine/graph/%a+/.*%.h$" or path:find "^engine/schedule/.*%.h$" then
      for name in bare_code(text):gmatch "\nvoid ([%w_]+)%(Program& program[,)]" do
        passes[name] = true
      end
    end
  end
  for _, name in ipairs {"prepare", "prepare_for_tiers"} do passes[name] = nil end
  for _, path in ipairs(sorted_keys(tree)) do
    local elsewhere = path:find "^engine/" or path:find "^bindings/"
    if elsewhere and not path:find "^engine/graph/" and not path:find "^engine/schedule/" then
      for name in bare_code(tree[path]):gmatch "%f[%w_]([%w_]+)%(" do
        if passes[name] then
          problems[#problems + 1] = ("%s calls %s(), which changes a program: only "
            .. "engine/schedule/pipeline.cc says what happens to a program"):format(path, name)
        end
      end
    end
  end
  return problems
end

-- Calls each(path, name, line) for every require with a name that is written out.
local function each_require(tree, each)
  for _, path in ipairs(sorted_keys(tree)) do
    local tokens = path:find "^lua/.*%.lua$" and lua_tokens(tree[path]) or {}
    for i, token in ipairs(tokens) do
      if token.text == "require" and not token.string then
        local name, behind = tokens[i + 1], {}                      -- require "x"
        if name and not name.string then                            -- require("x"
          name, behind = tokens[i + 2], tokens[i + 3] or {}
        end
        local joined = behind.text == "."                           -- require("models." .. x)
        if name and name.string and not joined then each(path, name.text, token.line) end
      end
    end
  end
end

-- The module of a file of lua/, and the name of its place in M.lua: a folder, or itself.
local function module_of(path)
  return (path:match "^lua/(.*)%.lua$":gsub("/init$", ""):gsub("/", "."))
end
local function place_of(module)
  if not module:find "^nn%." then return module:match "^%a+" end
  return module:match "^(nn%.%w+)%." or module
end

--- require_cycles(tree): cycles between modules of lua/; a require inside a function counts.
function M.require_cycles(tree)
  local arrows = {}
  each_require(tree, function(path, name) add_arrow(arrows, module_of(path), name) end)
  return cycles(arrows, "a cycle of requires: ")
end

--- require_order(tree): requires in lua/ against M.lua, and those of models and recipes.
function M.require_order(tree)
  local order, problems = ranks(M.lua), {}
  local function refuse(...) problems[#problems + 1] = string.format(...) end
  each_require(tree, function(path, name, line)
    local from, to = place_of(module_of(path)), place_of(name)
    if name:find "^models%." or name:find "^recipes%." then
      refuse("%s:%d requires %s: the library requires no model and no recipe", path, line, name)
    elseif not tree["lua/" .. name:gsub("%.", "/") .. ".lua"] and name ~= "nn" then
      return                                    -- not of lua/: ffi, nn.host
    elseif not order[from] or not order[to] then
      refuse("%s:%d requires %s: a folder that is not in the order", path, line, name)
    elseif order[to] > order[from] then
      refuse("%s:%d requires %s: %s may not know %s", path, line, name, from, to)
    end
  end)
  return problems
end

-- ### Lengths

local opens = {["function"] = true, ["if"] = true, ["do"] = true, ["repeat"] = true}
local closes = {["end"] = true, ["until"] = true}

-- Calls each(line, length) for every function of Lua code.
local function lua_functions(text, each)
  local open = {}
  for _, token in ipairs(lua_tokens(text)) do
    if opens[token.text] and not token.string then
      open[#open + 1] = token
    elseif closes[token.text] and not token.string then
      local first = table.remove(open)
      if first and first.text == "function" then
        each(first.line, token.line - first.line + 1)
      end
    end
  end
end

local control = ranks {"if", "constexpr", "for", "while", "switch", "catch"}
local qualifiers = ranks {"const", "noexcept", "override", "final", "mutable"}

-- Whether the code before a brace says that a function or a lambda begins there.
local function begins_function(head)
  head = head:gsub("%->[%w_:<>,%*&%s]+$", ""):match "^(.-)%s*$"
  while qualifiers[head:match "%a*$"] do head = head:match "^(.-)%s*%a+$" end
  if head:find "%]$" then return not head:find "%w%s*%[[^%[%]]*%]$" end     -- [&] {
  local before = head:match "^(.*)%b()$"
  return before ~= nil and before:find "%S" ~= nil and not control[before:match "(%w*)%s*$"]
end

-- Calls each(line, length) for every function and lambda of C++ or CUDA code.
local function cpp_functions(text, each)
  local open, head_start, line, at = {}, 1, 1, 1
  local code = bare_code(text)
  for position, c in code:gmatch "()([{};])" do
    line = line + select(2, code:sub(at, position):gsub("\n", ""))
    at = position + 1
    if c == "{" then
      open[#open + 1] = {line = line, is = begins_function(code:sub(head_start, position - 1))}
    elseif c == "}" then
      local first = table.remove(open)
      if first and first.is then each(first.line, line - first.line + 1) end
    end
    head_start = position + 1
  end
end

local too_long = {}         -- what is too long in a text, by its ending and itself

local function problems_in(path, text)
  local key = path:match "[^.]*$" .. text
  if too_long[key] then return too_long[key] end
  local found, lines = {}, select(2, text:gsub("\n", ""))
  too_long[key] = found
  if lines > M.longest_file then found[1] = (" has %d lines"):format(lines) end
  local code = path:find "%.[chi][cun][hc]?$" or path:find "%.h$"
  local functions = path:find "%.lua$" and lua_functions or code and cpp_functions
    or function() end
  functions(text, function(line, length)
    if length > M.longest_function then
      found[#found + 1] = (":%d: a function of %d lines"):format(line, length)
    end
  end)
  return found
end

--- lengths(tree): functions and files that are too long.
function M.lengths(tree)
  local problems = {}
  for _, path in ipairs(sorted_keys(tree)) do
    for _, problem in ipairs(problems_in(path, tree[path])) do
      problems[#problems + 1] = path .. problem
    end
  end
  return problems
end

-- Where pcall may be: these files call a function of C, in which no stop signal raises an error, or
-- the code runs after an error that ends the process. Elsewhere lib.attempt and lib.protected raise
-- the error of a signal again.
local may_catch = {["lua/nn/base/capi.lua"] = true, ["lua/nn/base/blame.lua"] = true,
                   ["lua/nn/core/task.lua"] = true, ["lua/nn/data/json_records.lua"] = true,
                   ["lua/nn/help/docs.lua"] = true, ["lua/nn/io/files.lua"] = true,
                   ["lua/nn/io/json.lua"] = true, ["lua/nn/io/script.lua"] = true,
                   ["lua/nn/io/stream.lua"] = true, ["lua/nn/train/ending.lua"] = true,
                   ["lua/nn/test.lua"] = true}

--- catches(tree): uses of pcall in the library that also catch the error of a stop signal.
function M.catches(tree)
  local problems = {}
  for path, text in pairs(tree) do
    local is_checked = path:find "^lua/nn/" and not may_catch[path]
    for _, token in ipairs(is_checked and lua_tokens(text) or {}) do
      if token.text == "pcall" and not token.string then
        problems[#problems + 1] = ("%s:%d: pcall also catches a stop signal; call lib.attempt")
          :format(path, token.line)
      end
    end
  end
  table.sort(problems)
  return problems
end

M.longest_model = 190

-- What models do not name: the engine decides it.
local of_engine = {"device", "gpu", "cpu", "cuda", "starpu", "worker", "tile", "tiling", "memory"}

--- plain_models(tree): models that are long, or name devices, tiles or memory.
function M.plain_models(tree)
  local problems = {}
  for _, path in ipairs(sorted_keys(tree)) do
    local text = path:find "^models/" and tree[path] or ""
    local lines = select(2, text:gsub("\n", ""))
    if lines > M.longest_model then
      problems[#problems + 1] = ("%s has %d lines"):format(path, lines)
    end
    for _, word in ipairs(of_engine) do
      if text:lower():find("%f[%a]" .. word .. "s?%f[%A]") then
        problems[#problems + 1] = ("%s names '%s'"):format(path, word)
      end
    end
  end
  return problems
end

return M
