-- Completion of nnlua's command line for bash, zsh and fish (.setup/completion.*), which call
--   NNLUA_COMPLETE=WORDS nnlua -l completion
-- WORDS: the word at the cursor, then those between it and the program's name, one per line. The
-- first line of the output is what the shell adds: nothing, `scripts` (Lua files and folders) or
-- `files`. The others are words, each with a tab and a description. They come from --help, of the
-- program and of recipes.
local files = require "nn.io.files"
local host = require "nn.host"

local takes_argument = {["-e"] = true, ["-l"] = true, ["--ranks"] = true, ["--hosts"] = true}
local found = {}

local function offer(word, description) found[#found + 1] = {word, description} end

-- The output of this program (the parent of popen's shell) with quoted arguments.
local function output_of(arguments)
  local pipe = io.popen("/proc/$PPID/exe " .. arguments .. " 2>/dev/null </dev/null")
  local text = pipe:read "*a"
  pipe:close()
  return text
end

local function offer_options()
  for option, description in output_of "--help":gmatch "\n  (%-%-?%a*)[^\n]-  +(%l[^\n]*)" do
    offer(option, description)
  end
end

-- The file for a script's name, as bindings/main.cc finds it.
local function script_file(name)
  local own = host.root .. "/" .. name
  local here = files.exists(name) or name:sub(1, 8) ~= "recipes/"
  return (here or not files.exists(own)) and name or own
end

-- nnlua's own recipes. A file of the same name in the current folder takes precedence.
local function offer_recipes(current)
  if current:sub(1, 8) ~= "recipes/" then return offer "recipes/" end
  for _, name in ipairs(files.list(host.root .. "/recipes") or {}) do
    local word = "recipes/" .. name
    if name:find "%.lua$" and not files.exists(word) then
      offer(word, files.read(host.root .. "/" .. word):match "^%-%- ([^\n]*)")
    end
  end
end

-- Settings and presets of a recipe. Other scripts are not started, because they could do anything.
local function offer_settings(script, current)
  local file = script_file(script)
  local text = files.exists(file) and files.read(file)
  if not (text and text:find("nn.config", 1, true)) then return end
  local help = output_of("'" .. script:gsub("'", "'\\''") .. "' --help")
  local presets = help:match "\npresets[^\n]*\n(.-)\n\n"
  local settings = help:match "\nsettings[^\n]*\n(.*)"
  if current:sub(1, 7) == "preset=" then
    for name, description in (presets or ""):gmatch "  (%S+) +([^\n]*)" do
      offer("preset=" .. name, description)
    end
    return
  end
  for name, value, description in (settings or ""):gmatch "  ([%w_.]+)=(%S*) +([^\n]*)" do
    local is_switch = value == "true" or value == "false" or description:find("true", 1, true)
    if current:sub(1, 1) ~= "-" then
      offer(name .. "=", description)
    elseif is_switch then
      offer("--" .. name, description)
    end
  end
  if current:sub(1, 1) == "-" then offer("--help", "every setting") end
end

-- Offers words for `current`, after `words` -> what the shell adds to them.
local function complete(current, words)
  local script, last
  for i = 1, #words do
    local is_option = words[i]:sub(1, 1) == "-" and #words[i] > 1 and last ~= "--"
    if not (last and takes_argument[last]) then
      if not is_option then
        script = words[i]
        break
      end
      last = words[i]
    else
      last = nil
    end
  end
  if script then
    offer_settings(script, current)
    return current:find "^[^-=][^=]*=" and current:sub(1, 7) ~= "preset=" and "files" or ""
  end
  if last and takes_argument[last] then return "" end
  if current:sub(1, 1) == "-" and last ~= "--" then
    offer_options()
    return ""
  end
  offer_recipes(current)
  return "scripts"
end

local words = {}
for word in ((os.getenv "NNLUA_COMPLETE" or "") .. "\n"):gmatch "([^\n]*)\n" do
  words[#words + 1] = word
end
local current = table.remove(words, 1)
print(complete(current, words))
table.sort(found, function(a, b) return a[1] < b[1] end)
for _, word in ipairs(found) do
  if word[1]:sub(1, #current) == current then print(word[1] .. "\t" .. (word[2] or "")) end
end
