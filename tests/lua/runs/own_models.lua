-- The user's own models and modules come before nnlua's: in recipes, scripts, the prompt and ranks.
-- A run names the file of such a model. sha256sum(1) gives the expected checksums.
local files = require "nn.io.files"
local root = require("nn.host").root
local t = require "nn.test"
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mpi = require "mpi"

local folder = t.folder()
local own = files.read(root .. "/models/gpt2.lua")
-- GPT-2 with one line changed: the embeddings are three times as large.
local place = "if not start then return self.drop(self.tok(ids, self.pos)) end"
local at, after = own:find(place, 1, true)
local new_line = place:gsub("self.pos%)", "%0 * 3")
local edited = own:sub(1, at - 1) .. new_line .. own:sub(after + 1)
local settings = "data.text=in.txt model.layers=1 model.heads=1 model.embd=16 model.context=16 "
  .. "model.dtype=f32 data.batch=4 steps=2 log_every=1 eval_every=0 final_batches=1 "
  .. "sample.tokens=0 schedule.warmup=0"

-- A new folder with these files by name.
local function folder_with(name, contents)
  local path = folder .. "/" .. name
  files.make_folder(path)
  for file, text in pairs(contents) do
    files.make_folder((path .. "/" .. file):match "^(.*)/")
    files.write(path .. "/" .. file, text)
  end
  files.write(path .. "/in.txt", ("the quick brown fox jumps over the lazy dog. "):rep(30))
  return path
end

-- The output of a command in a folder, which must end with this status (0).
local function shell(path, command, expected)
  local status, output = t.shell(("cd '%s'; %s"):format(path, command))
  t.same(status, expected or 0, output)
  return output
end

local function sum_of(path) return shell(folder, ("sha256sum '%s'"):format(path)):sub(1, 64) end

-- Trains by a recipe -> the output, the losses and config.json.
local function train(path, script, words)
  files.remove(path .. "/run")
  local output = shell(path, ("$NNLUA %s %s out=run %s 2>&1"):format(script, settings, words or ""))
  local losses = {}
  for line in io.lines(path .. "/run/metrics.jsonl") do
    local event = files.parse_json(line)
    if event.event == "step" then losses[#losses + 1] = event.loss end
  end
  return output, losses, files.parse_json(files.read(path .. "/run/config.json"))
end

local plain = folder_with("plain", {})
local changed = folder_with("changed", {
  ["models/gpt2.lua"] = edited,
  ["recipes/gpt2_train.lua"] = files.read(root .. "/recipes/gpt2_train.lua"),
})
local expected, tripled                            -- losses of nnlua's model and of the edited one

t.case("an edited models/gpt2.lua is used by the user's recipe and by nnlua's", function()
  local output, config
  output, expected, config = train(plain, "recipes/gpt2_train.lua")
  t.check(not output:find("the model is defined by", 1, true), output)
  t.same(config.model_file, nil)
  local file = changed .. "/models/gpt2.lua"
  local sum = sum_of(file)
  for _, script in ipairs {"recipes/gpt2_train.lua", root .. "/recipes/gpt2_train.lua",
                           "recipes/train.lua model=gpt2"} do
    local losses
    output, losses, config = train(changed, script)
    t.check(output:find(("the model is defined by %s (sha256 %s)"):format(file, sum), 1, true),
            output)
    t.same(config.model_file, {path = file, sha256 = sum})
    tripled = tripled or losses
    t.same(losses, tripled)
    t.check(math.abs(losses[2] - expected[2]) > 1e-4, "the loss is that of nnlua's model")
  end
end)

t.case("the copy of nnlua's file in a clone is nnlua's own", function()
  local clone = folder_with("clone", {["models/gpt2.lua"] = own})
  local output, losses, config = train(clone, "recipes/gpt2_train.lua")
  t.same(losses, expected)
  t.check(not output:find("the model is defined by", 1, true), output)
  t.same(config.model_file, nil)
end)

t.case("scripts and the prompt find models and modules here, beside the script and above recipes/",
       function()
  local marked = 'return {mark = "%s"}'
  local path = folder_with("modules", {
    ["here/models/gpt2.lua"] = marked:format "here", ["here/json.lua"] = marked:format "here",
    ["here/health.lua"] = marked:format "here", ["there/models/gpt2.lua"] = marked:format "there",
    ["there/script.lua"] = 'print(require("models.gpt2").mark, require("helper").mark)',
    ["there/helper.lua"] = marked:format "there", ["there/recipes/own.lua"] =
      'print(require("models.gpt2").mark, require("helper").mark)',
    ["here/script.lua"] = 'print(require("models.gpt2").mark, require("json").mark, '
      .. 'require("health").mark, #require("nn").from_json "[1]")',
    ["empty/x"] = "",
  })
  t.same(shell(path .. "/here", "$NNLUA script.lua"), "here\there\there\t1\n")
  t.same(shell(path .. "/here", "echo 'print(require(\"models.gpt2\").mark)' | $NNLUA"), "here\n")
  t.same(shell(path .. "/here", "$NNLUA -e 'print(require(\"models.gpt2\").mark)'"), "here\n")
  t.same(shell(path .. "/here", "$NNLUA ../there/script.lua"), "here\tthere\n")
  t.same(shell(path .. "/empty", "$NNLUA ../there/script.lua"), "there\tthere\n")
  t.same(shell(path .. "/empty", "$NNLUA ../there/recipes/own.lua"), "there\tthere\n")
  t.same(shell(path .. "/empty", "LUA_PATH='../here/?.lua' $NNLUA -e "
               .. "'print(require(\"models.gpt2\").mark)'"), "here\n")
end)

t.case("a model of the user with a new name is trained, resumed and used by nnlua's recipes",
       function()
  local path = folder_with("new", {["models/mine.lua"] = edited})
  local output, losses = train(path, "recipes/train.lua", "model=mine")
  t.same(losses, tripled)
  t.check(output:find("the model is defined by " .. path .. "/models/mine.lua", 1, true), output)
  local generate = "$NNLUA recipes/gpt2_generate.lua model=run prompt=the tokens=2 2>&1"
  local export = "$NNLUA recipes/export.lua model=run out=there 2>&1"
  t.check(not shell(path, generate):find "warning", "nothing has changed")
  shell(path, export)

  files.write(path .. "/models/mine.lua", edited .. "-- changed\n")
  local warning = "was defined by " .. path .. "/models/mine.lua (sha256"
  t.check(shell(path, generate):find(warning, 1, true))
  output = shell(path, "$NNLUA recipes/train.lua resume=run steps=3 2>&1")
  t.check(output:find("warning: the model of the checkpoint " .. warning, 1, true), output)

  files.remove(path .. "/models/mine.lua")         -- no other model may take its place
  for _, command in ipairs {"$NNLUA recipes/train.lua resume=run steps=4 2>&1", generate} do
    t.check(shell(path, command, 1):find "unknown model 'mine' in models/")
  end
end)

t.case("a model of the user that cannot be loaded is an error that names it", function()
  local path = folder_with("broken", {["models/gpt2.lua"] = own .. "x = = 1\n",
                                      ["models/other.lua"] = "error 'on purpose'"})
  for _, command in ipairs {
    "$NNLUA recipes/gpt2_train.lua " .. settings, "$NNLUA recipes/train.lua model=gpt2",
    "$NNLUA -e 'require \"models.gpt2\"'", "echo 'require \"models.gpt2\"' | $NNLUA",
  } do
    local _, output = t.shell(("cd '%s'; %s 2>&1"):format(path, command))
    t.check(output:find "models/gpt2.lua:%d+: .*expected near", output)
  end
  files.make_folder(path .. "/hf")
  files.write(path .. "/hf/config.json", '{"model_type": "gpt2"}')
  t.check(shell(path, "$NNLUA -e 'nn.load_hf \"hf\"' 2>&1", 1):find "models/gpt2.lua:%d+: ")
end)

t.case("a run with nnlua's model says so where the user's model has trained the checkpoint",
       function()
  train(changed, "recipes/train.lua", "model=gpt2")
  local output = shell(plain, ("$NNLUA recipes/gpt2_generate.lua model=%s/run prompt=the tokens=2 "
                               .. "2>&1"):format(changed))
  t.check(output:find(("was defined by %s/models/gpt2.lua"):format(changed), 1, true), output)
  t.check(output:find("now nnlua's own models/gpt2.lua", 1, true), output)
end)

t.case("several ranks use the user's model", function()
  mpi.need()
  local output, losses = train(changed, "--ranks 2 recipes/train.lua model=gpt2",
                               "cluster.shards=2")
  t.check(output:find("the model is defined by " .. changed, 1, true), output)
  t.near(losses, tripled, {rel = 1e-5})
end)

t.finish()
