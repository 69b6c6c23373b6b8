-- Configuration of a recipe: a nested table of fields with meanings and defaults, presets, and
-- settings from the command line. Everything is checked before anything runs; an unknown name is an
-- error that suggests the nearest one.
local checks = require "nn.base.arguments"
local hints = require "nn.base.hints"
local file_type = require "nn.io.file_type"
local files = require "nn.io.files"
local home = require "nn.io.home"
local lib = require "nn.base.capi"
local suggest = require "nn.base.suggest"
local tables = require "nn.base.tables"

local M = {}
local Field = {}
local made = 0       -- counts fields, so that they are listed in the order of creation

--- nn.field(default, meaning, {choices=, min=, max=, real=, path=}) -> a setting for the schema of
--- nn.config. It has the type of the default: string, boolean or number. If the default is a whole
--- number, the values must be whole, unless `real` is set. `choices`: the list of allowed values.
--- path: true for a path, "list" for paths separated by commas; ~/ at their start is the home
--- folder.
---     local schema = {lr = nn.field(6e-4, "learning rate at its peak", {min = 0})}
---     nn.config(schema, {"lr=-1"})  --> error: 'lr' must be at least 0, not '-1'
function M.field(default, meaning, limits)
  made = made + 1
  local field = setmetatable({default = default, meaning = meaning or "", order = made}, Field)
  for name, value in pairs(limits or {}) do field[name] = value end
  field.whole = type(default) == "number" and default % 1 == 0 and not field.real
  return field
end

-- Every leaf under its dotted path, in the order of declaration; groups[path] is true for a group.
local function flatten(schema)
  local leaves, groups = {}, {}
  local function walk(group, path)
    checks.need(type(group) == "table", "config", "a list of the schema", group,
                "a table of fields, such as nn.run_fields {}, is needed")
    for name, value in pairs(group) do
      if type(name) == "number" then
        walk(value, path)                            -- a list of fields, such as nn.run_fields{}
      else
        local full = path == "" and name or path .. "." .. name
        if getmetatable(value) ~= Field and type(value) == "table" then
          groups[full] = true
          walk(value, full)
        else
          local field = getmetatable(value) == Field and value or M.field(value)
          leaves[#leaves + 1] = {path = full, field = field}
        end
      end
    end
  end
  walk(schema, "")
  table.sort(leaves, function(a, b) return a.field.order < b.field.order end)
  return leaves, groups
end

-- "; did you mean 'optim.lr'?" for a path that is near a known one, or near the last part of one.
local function suggestion(path, known)
  local whole = {}
  for i = #known, 1, -1 do whole[known[i]:match "[^.]*$"] = known[i] end
  for _, name in ipairs(known) do whole[name] = name end
  local best = suggest.nearest(path, whole)
  return best and ("; did you mean '%s'?"):format(whole[best]) or ""
end

local function leaf_names(self)
  local names = {}
  for i, leaf in ipairs(self.leaves) do names[i] = leaf.path end
  return names
end

-- The problem with a value for a field, or nil. `given` is how the user wrote it.
local function problem_of(field, value, given)
  if field.choices then
    for _, choice in ipairs(field.choices) do
      if choice == value then return nil end
    end
    return ("must be one of %s, not '%s'%s"):format(table.concat(field.choices, ", "), given,
                                                    suggestion(given, field.choices))
  end
  if type(value) ~= "number" then return nil end
  local problem = (value ~= value or math.abs(value) == math.huge) and "must be a finite number"
    or field.whole and value % 1 ~= 0 and "must be a whole number"
    or field.min and value < field.min and "must be at least " .. field.min
    or field.max and value > field.max and "must be at most " .. field.max
  return problem and ("%s, not '%s'"):format(problem, given) or nil
end

--- problem(field, value) -> the problem with a value for a field of nn.field, or nil.
function M.problem(field, value)
  local kind = type(field.default)
  if type(value) ~= kind then
    return ("is %s; a %s is needed"):format(checks.describe(value), kind)
  end
  return problem_of(field, value, tostring(value))
end

-- Returns the value of a field, or raises an error.
local function check(path, field, value, given)
  local problem = problem_of(field, value, given)
  return problem and lib.fail("'%s' %s", path, problem) or value
end

local function set_default(who, name, field, value)
  local kind = type(field.default)
  checks.need(type(value) == kind, who, name, value, "a " .. kind .. " is needed")
  local problem = problem_of(field, value, tostring(value))
  if problem then lib.misuse("%s: '%s' %s", who, name, problem) end
  field.default = value
end

--- override(who, fields, defaults) -> fields, with a script's own defaults by name, also in groups.
--- Errors: an unknown name, with the nearest one; a default that the field does not allow.
function M.override(who, fields, defaults)
  for name, value in pairs(checks.options(who, defaults, fields)) do
    local field = fields[name]
    if getmetatable(field) == Field then
      set_default(who, name, field, value)
    else
      M.override(who .. ": " .. name, field, value)
    end
  end
  return fields
end

-- Converts a text from the command line to a value.
local function parse(path, field, text)
  local kind = type(field.default)
  local value = text
  if kind == "number" then
    value = tonumber(text)
    if not value or value ~= value or math.abs(value) == math.huge or text:find "[xX]" then
      lib.fail("'%s' must be a %snumber, not '%s'", path, field.whole and "whole " or "", text)
    end
  elseif kind == "boolean" then
    if text ~= "true" and text ~= "false" then
      lib.fail("'%s' must be true or false, not '%s'", path, text)
    end
    value = text == "true"
  end
  return check(path, field, value, text)
end

local function find(self, path)
  for _, leaf in ipairs(self.leaves) do
    if leaf.path == path then return leaf.field end
  end
  if self.groups[path] then
    local inside = {}
    for _, name in ipairs(leaf_names(self)) do
      if name:sub(1, #path + 1) == path .. "." then inside[#inside + 1] = name end
    end
    lib.fail("'%s' is a group; set one of %s", path, table.concat(inside, ", "))
  end
  local names = leaf_names(self)
  local hint = hints.setting(path, names) or suggestion(path, names)
  lib.fail("unknown setting '%s'%s", path, hint ~= "" and hint or " (--help lists all settings)")
end

local function set(self, path, value)
  local kind = self.paths[path]
  if kind then value = home.expand(value, kind == "list") end
  local group = self.values
  for part in path:gmatch "([^.]+)%." do
    group[part] = group[part] or {}
    group = group[part]
  end
  group[path:match "[^.]+$"] = value
end

--- get(values, path) -> the value under a dotted path in nested tables, or nil.
function M.get(values, path)
  for part in path:gmatch "[^.]+" do
    if type(values) ~= "table" then return nil end
    values = values[part]
  end
  return values
end

local function apply_preset(self, name)
  local preset = self.presets[name]
  if not preset then
    local names = tables.sorted_keys(self.presets)
    lib.fail("unknown preset '%s'%s (presets: %s)", name, suggestion(name, names),
             table.concat(names, ", "))
  end
  if preset.base then apply_preset(self, preset.base) end
  local function walk(group, path)
    for key, value in pairs(group) do
      local full = path == "" and key or path .. "." .. key
      if type(value) == "table" then
        walk(value, full)
      elseif full ~= "base" and full ~= "about" then
        local field = find(self, full)
        if type(value) ~= type(field.default) then
          lib.fail("preset %s: '%s' is a %s, not '%s'", name, full, type(field.default), value)
        end
        set(self, full, check(full, field, value, tostring(value)))
        self.given[full] = "preset " .. name
      end
    end
  end
  walk(preset, "")
end

local function shown(value)
  if value == "" then return '""' end
  return type(value) == "number" and files.number_text(value) or tostring(value)
end

-- The comment at the top of the running script, without dashes; nil if none.
local function head_comment()
  local path, lines = arg and arg[0], {}
  local file = path and file_type.of(path) == "file" and io.open(path)
  for line in file and file:lines() or function() end do
    local text = line:match "^%-%- ?(.*)$"
    if not text then break end
    lines[#lines + 1] = text
  end
  if file then file:close() end
  return #lines > 0 and table.concat(lines, "\n") or nil
end

local function help(self)
  local lines = {("usage: nnlua %s %s"):format(arg and arg[0] or "recipe.lua",
                                               self.usage or "[a.b=value ...]")}
  local function add(...) lines[#lines + 1] = string.format(...) end
  local about = self.about or head_comment()
  if about then add("%s", about) end
  if next(self.presets) then add("\npresets (preset=NAME):") end
  for _, name in ipairs(tables.sorted_keys(self.presets)) do
    add("  %-14s %s", name, self.presets[name].about or "")
  end
  add("\nsettings and their values (--name is short for name=true):")
  for _, leaf in ipairs(self.leaves) do
    local setting = leaf.path .. "=" .. shown(M.get(self.values, leaf.path))
    local choices = leaf.field.choices and ": " .. table.concat(leaf.field.choices, ", ") or ""
    add("  %-32s %s%s", setting, leaf.field.meaning, choices)
  end
  return table.concat(lines, "\n")
end

-- Applies inherited settings: the setting resume of nn.run_fields inherits those of the resumed
-- run. inherits(given, values) of a field returns a function from paths to values; given: the texts
-- of the command line by path. A value that its field rejects is ignored.
local function inherit(self, settings)
  local given, inherits = {}, nil
  for _, setting in ipairs(settings) do
    local is_path = self.paths[setting.path]
    given[setting.path] = is_path and home.expand(setting.text, is_path == "list") or setting.text
  end
  for _, leaf in ipairs(self.leaves) do inherits = leaf.field.inherits or inherits end
  if not inherits then return end
  local inherited = inherits(given, self.values)
  for _, leaf in ipairs(self.leaves) do
    local value = inherited(leaf.path)
    if type(value) == type(leaf.field.default)
       and lib.attempt(check, leaf.path, leaf.field, value, value) then
      set(self, leaf.path, value)
    end
  end
end

-- Whether the argument after "--name" is its value: settings that are not boolean need one.
local function takes_next(self, path, following)
  if not following or following:find "^%-%-" or following:find "^[%w_.]+=" then return false end
  for _, leaf in ipairs(self.leaves) do
    if leaf.path == path then
      return type(leaf.field.default) ~= "boolean" or following == "true" or following == "false"
    end
  end
  return false
end

local function refuse_argument(self, arguments, i)
  local argument, known = arguments[i], {}
  for _, name in ipairs(leaf_names(self)) do known[name] = true end
  local name, value = argument:match "^%-*([%w_.]+)(.*)$"
  local meant = known[name] and value == "" and name .. "=VALUE"
    or self.leaves[1].field.default == "" and files.exists(argument)
       and self.leaves[1].path .. "=" .. argument
  lib.fail("unknown argument '%s'; write settings as %s (--help lists them)", argument,
           meant or "a.b=value")
end

-- The command line as {path=, text=} pairs. "--name" is short for "name=true"; "--name=value" and
-- "--name value" are understood.
local function split_arguments(self, arguments)
  local settings, i = {}, 1
  while arguments and i <= #arguments do
    local argument = arguments[i] == "-h" and "--help" or arguments[i]
    local path, text = argument:match "^%-?%-?([%w_.]+)=(.*)$"
    if not path then path, text = argument:match "^%-%-([%w_.]+)$", "true" end
    if not path then refuse_argument(self, arguments, i) end
    if argument == "--" .. path and takes_next(self, path, arguments[i + 1]) then
      i = i + 1
      text = arguments[i]
    end
    settings[#settings + 1] = {path = path, text = text}
    i = i + 1
  end
  return settings
end

--- settings(cfg) -> {{path=, value=, text=, meaning=, choices=}, ...} in the order of declaration.
function M.settings(cfg)
  local list = {}
  for i, leaf in ipairs(getmetatable(cfg).schema.leaves) do
    local value = M.get(cfg, leaf.path)
    list[i] = {path = leaf.path, value = value, text = shown(value),
               meaning = leaf.field.meaning, choices = leaf.field.choices}
  end
  return list
end

--- given(cfg, path) -> the source of its value, "preset char" or "the command line"; nil: neither.
function M.given(cfg, path) return getmetatable(cfg).schema.given[path] end

local function print_settings(cfg)
  local lines = {}
  for i, setting in ipairs(M.settings(cfg)) do lines[i] = setting.path .. "=" .. setting.text end
  return table.concat(lines, "\n")
end

--- nn.config(schema, arguments, {presets=, about=, usage=}) -> cfg
--- The settings of a recipe, a nested table that prints as a list of all settings. Later sources
--- override earlier ones: the defaults of the schema; the preset that the setting `preset` names;
--- with `resume` of nn.run_fields, the settings of the resumed run (unless another preset is
--- given); the list of arguments `a.b=value`, also written `--a.b=value` or `--a.b value`. `--name`
--- is short for `name=true`. `--help` or `-h` prints `about` (default: the comment at the top of
--- the script), presets and settings, and ends the program; `usage` replaces the arguments in its
--- first line. A group of the schema may start with lists of fields to include, such as
--- nn.run_fields{}. A preset is a nested table of values, with `about` and `base` (another preset
--- to start from). Errors: unknown names (with the nearest one), values of a wrong type or out of
--- range.
---     local schema = {steps = 100, model = {layers = nn.field(12, "blocks")}}
---     nn.config(schema, {"model.layers=2"}).model.layers  --> 2
---     nn.config(schema, {"model.layer=2"})  --> error: ...did you mean 'model.layers'?
function M.config(schema, arguments, options)
  checks.need(type(schema) == "table", "config", "the schema", schema,
              "a table of fields is needed")
  checks.need(arguments == nil or type(arguments) == "table", "config", "the settings", arguments,
              "a list of texts such as arg is needed")
  for i, text in ipairs(arguments or {}) do
    checks.need(type(text) == "string", "config", "setting " .. i, text,
                'a text such as "steps=10" is needed')
  end
  options = options or {}
  local self = {values = {}, presets = options.presets or {}, about = options.about,
                usage = options.usage, given = {}, paths = {}}
  self.leaves, self.groups = flatten(schema)
  for _, leaf in ipairs(self.leaves) do self.paths[leaf.path] = leaf.field.path end
  for _, leaf in ipairs(self.leaves) do set(self, leaf.path, leaf.field.default) end
  local settings, want_help = split_arguments(self, arguments), false
  for _, setting in ipairs(settings) do
    if setting.path == "preset" then set(self, "preset", setting.text) end
  end
  if next(self.presets) and self.values.preset then apply_preset(self, self.values.preset) end
  inherit(self, settings)
  for _, setting in ipairs(settings) do
    if setting.path == "help" then
      want_help = true
    else
      set(self, setting.path, parse(setting.path, find(self, setting.path), setting.text))
      self.given[setting.path] = "the command line"
    end
  end
  if want_help then
    print(help(self))
    os.exit(0)
  end
  return setmetatable(self.values, {__tostring = print_settings, schema = self})
end

return M
