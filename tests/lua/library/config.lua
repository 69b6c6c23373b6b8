-- Settings: types, presets, the nearest name, printing.
local cjson = require "cjson"
local config = require "nn.io.config"
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"

local function schema()
  return {
    preset = nn.field("small", "settings to start from"),
    model = {
      layers = nn.field(12, "blocks", {min = 1, max = 200}),
      dropout = nn.field(0, "probability", {real = true}),
    },
    optim = {
      lr = nn.field(6e-4, "learning rate", {min = 0}),
      kind = nn.field("adamw", "which one", {choices = {"adamw", "sgd"}}),
    },
    quiet = nn.field(false, "say less"),
    out = nn.field("", "folder"),
    {extra = nn.field(1, "from a shared list")},
  }
end
local presets = {small = {model = {layers = 2}}, large = {base = "small", optim = {lr = 1e-4}},
                 wrong = {optim = {lrr = 1}}, mistyped = {out = 3}}
local function read(...) return nn.config(schema(), {...}, {presets = presets}) end

t.case("the command line overrides the preset, and the preset the default", function()
  t.same(read().model.layers, 2)
  t.same(read("model.layers=3").model.layers, 3)
  t.same(read("model.layers=3", "preset=large").model.layers, 3)
  t.same(read("preset=large").optim.lr, 1e-4)
  t.same(read("preset=large").model.layers, 2)
  t.same(read("model.layers=3", "model.layers=4").model.layers, 4)
  t.same(read().extra, 1)
end)

t.case("values keep the type of the default", function()
  local cfg = read("optim.lr=1e-3", "model.layers=1e2", "quiet=true", "out=a=b",
                   "model.dropout=0.5")
  t.same({cfg.optim.lr, cfg.model.layers, cfg.quiet, cfg.out, cfg.model.dropout},
         {1e-3, 100, true, "a=b", 0.5})
  t.same(read("--quiet").quiet, true)
  t.same({read("--model.layers=3", "--quiet").model.layers,
          read("--model.layers", "3").model.layers, read("--quiet", "out=x").out,
          read("--quiet", "false").quiet, read("--out", "x").out},
         {3, 3, "x", false, "x"})
  t.same(read("out=7").out, "7")
end)

t.case("an unknown name is an error that suggests the nearest one", function()
  local function says(setting, message)
    t.same(t.fails(function() read(setting) end, ""), message)
  end
  says("optim.lrr=1", "unknown setting 'optim.lrr'; did you mean 'optim.lr'?")
  says("lr=1", "unknown setting 'lr'; did you mean 'optim.lr'?")
  says("model.layer=1", "unknown setting 'model.layer'; did you mean 'model.layers'?")
  says("zzzzzz=1", "unknown setting 'zzzzzz' (--help lists all settings)")
  says("learning_rate=1", "unknown setting 'learning_rate'; use 'optim.lr'")
  says("device=cuda", "unknown setting 'device'; not needed: nnlua uses all cores (NNLUA_CPUS "
       .. "limits them)")
  says("block_size=1", "unknown setting 'block_size' (--help lists all settings)")
  says("optim=3", "'optim' is a group; set one of optim.lr, optim.kind")
  says("optim.kind=adam", "'optim.kind' must be one of adamw, sgd, not 'adam'; did you mean "
       .. "'adamw'?")
  says("preset=smal", "unknown preset 'smal'; did you mean 'small'? "
       .. "(presets: large, mistyped, small, wrong)")
  says("layers", "unknown argument 'layers'; write settings as a.b=value (--help lists them)")
  t.same(t.fails(function() nn.config({model = nn.field("", "folder")}, {"/tmp"}) end, ""),
         "unknown argument '/tmp'; write settings as model=/tmp (--help lists them)")
  says("optim.lr", "unknown argument 'optim.lr'; write settings as optim.lr=VALUE "
       .. "(--help lists them)")
end)

t.case("a value of the wrong type or out of range is an error", function()
  local function says(setting, message)
    t.same(t.fails(function() read(setting) end, ""), message)
  end
  says("optim.lr=fast", "'optim.lr' must be a number, not 'fast'")
  says("optim.lr=nan", "'optim.lr' must be a number, not 'nan'")
  says("optim.lr=", "'optim.lr' must be a number, not ''")
  says("model.layers=0x10", "'model.layers' must be a whole number, not '0x10'")
  says("model.layers=1.5", "'model.layers' must be a whole number, not '1.5'")
  says("model.layers=0", "'model.layers' must be at least 1, not '0'")
  says("model.layers=201", "'model.layers' must be at most 200, not '201'")
  says("quiet=yes", "'quiet' must be true or false, not 'yes'")
end)

t.case("a recipe's own settings may be called resume or out", function()
  t.same(nn.config({resume = true, out = 3}, {"resume=false"}).resume, false)
  t.same(nn.config({resume = "x"}, {"resume=auto"}).resume, "auto")
end)

t.case("a preset is checked like the command line", function()
  t.fails(function() read("preset=wrong") end, "unknown setting 'optim.lrr'; did you mean")
  t.fails(function() read("preset=mistyped") end, "preset mistyped: 'out' is a string, not '3'")
end)

t.case("settings print one per line, and the output can be read back", function()
  local cfg = read("optim.lr=0.1", "out=x y")
  local words = {}
  for line in tostring(cfg):gmatch "[^\n]+" do words[#words + 1] = (line:gsub('=""$', "=")) end
  t.same(words[2], "model.layers=2")
  t.same(read(unpack(words)), cfg)
end)

t.case("settings convert to JSON and back without change", function()
  local cfg = read("optim.lr=0.1", "out=a/\"b\"")
  t.same(cjson.decode(files.json(cfg, "")), cfg)
  t.same(cjson.decode(files.json(cfg)), cfg)
  t.check(not files.json(cfg):find("\n"), "without an indent it is one line")
end)

t.case("--help lists every setting with its meaning and value", function()
  for _, word in ipairs {"--help", "-h"} do
    local status, output = t.shell(([[$NNLUA -e '
      nn.config({model = {layers = nn.field(12, "blocks")},
                 rate = nn.field(0.5, "of change", {choices = {0.5, 1}})},
                {"%s", "model.layers=7"})']]):format(word))
    t.same(status, 0)
    t.check(output:find "model%.layers=7%s+blocks\n", output)
    t.check(output:find "rate=0%.5%s+of change: 0%.5, 1\n", output)
  end
end)

local function check_meanings(fields, group)
  for name, field in pairs(fields) do
    local path = group .. name
    if field.default == nil then
      check_meanings(field, path .. ".")
    else
      t.check(#field.meaning > 5, path)
    end
  end
end

t.case("a setting of a group that is missing has no value", function()
  t.same({config.get({a = {b = 1}}, "a.b"), config.get({}, "a.b") == nil}, {1, true})
end)

t.case("every setting has a meaning", function()
  for _, fields in ipairs {nn.run_fields(), nn.data_fields(), nn.memory_fields()} do
    check_meanings(fields, "")
  end
  t.same(#config.settings(nn.config({nn.run_fields {steps = 7}}, {})) > 10, true)
end)

t.case("~ at the start of a setting that is a path is the home folder, as in a shell", function()
  local home = os.getenv "HOME"
  local function paths(...)
    return nn.config({out = nn.field("~/default", "folder", {path = true}),
                      disks = nn.field("", "folders", {path = "list"}),
                      text = nn.field("", "no path")}, {...})
  end
  if not home or home == "" then t.skip "HOME is not set" end
  home = home:gsub("(.)/+$", "%1")
  t.same(paths().out, (home == "/" and "" or home) .. "/default")
  t.same(paths("out=~").out, home)
  for given, expected in pairs {["~/a/~b"] = home .. "/a/~b", ["./~"] = "./~", ["a~"] = "a~",
                                ["/~/x"] = "/~/x"} do
    t.same(paths("out=" .. given).out, expected)
    t.same(paths("--out", given).out, expected)
    t.same(paths("text=" .. given).text, given)
  end
  t.same(paths("disks=~/a,/b,~/c").disks, home .. "/a,/b," .. home .. "/c")
  t.fails(function() paths "out=~me/a" end, "'~me/a': the home folder of another user is not")
  t.fails(function() paths "disks=/b,~me" end, "'~me': the home folder of another user")
  t.fails(function() files.make_folder "~/a" end, "only settings of recipes may begin with ~")
  t.fails(function() nn.memory_tiers {ram = 1e6, disk = "/x,~/y"} end, "does not begin with ~")
  local status, output = t.shell [[HOME= $NNLUA -e '
    nn.config({out = nn.field("", "folder", {path = true})}, {"out=~/a"})' 2>&1]]
  t.same(status, 1)
  t.check(output:find("HOME is not set", 1, true), output)
end)

t.case("all settings of recipes that name files or folders expand ~", function()
  local root = require("nn.host").root
  for _, name in ipairs(files.list(root .. "/recipes")) do
    for words in files.read(root .. "/recipes/" .. name):gmatch "nn%.field(%b())" do
      local meaning = words:match '"[^"]*"[^"]*"([^"]*)' or ""
      local is_path = meaning:find "^folder" or meaning:find "^file" or meaning:find "^input files"
        or meaning:find "^output f" or meaning:find "^token file"
      if is_path then t.check(words:find "path = ", name .. ": " .. words) end
    end
  end
  local are_paths = {}
  local function collect(fields, group)
    for name, field in pairs(fields) do
      if field.default == nil then
        collect(field, group .. name .. ".")
      elseif field.path then
        are_paths[#are_paths + 1] = group .. name
      end
    end
  end
  for _, fields in ipairs {nn.run_fields(), {data = nn.data_fields()}, nn.language_fields()} do
    collect(fields, "")
  end
  table.sort(are_paths)
  t.same(table.concat(are_paths, " "), "data.bin data.text data.val data.vocabulary init "
         .. "memory.disk out profile resume")
end)

t.finish()
