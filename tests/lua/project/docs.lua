-- The docs are complete and true: every public name has a docstring, every example runs and gives
-- what it states, docs/reference.md is what `nnlua --doc` writes.

local docs = require "nn.help.docs"
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local examples = require "examples"

local ffi = require "ffi"
ffi.cdef "int chdir(const char *path);"
local folder = t.folder()
files.write(folder .. "/input.txt", ("The quick brown fox jumps over the lazy dog.\n"):rep(200))
ffi.C.chdir(folder)

local function public()
  local list = {}
  for _, entry in ipairs(docs.ops()) do list[#list + 1] = entry end
  for _, entry in ipairs(docs.library()) do
    if entry.key then list[#list + 1] = entry end
  end
  return list
end

-- Public names of a table of functions, with the methods of its class: "x:dim" of x.
local function names_in(list, prefix, methods)
  for name, value in pairs(methods) do
    local kind = type(value)
    if type(name) == "string" and not name:find "^__" and (kind == "function" or prefix == "nn.")
      and name ~= "init" and name ~= "forward" then
      list[prefix .. name] = true
    end
  end
end

local function public_names()
  local list = {}
  names_in(list, "nn.", nn)
  for name in pairs(getmetatable(nn).names()) do list["nn." .. name] = true end
  names_in(list, "x:", nn.Tensor)
  names_in(list, "t.", t)
  local model = require "models.gpt2" {layers = 1, heads = 1, embd = 4, context = 4, vocab = 8}
  names_in(list, "model:", getmetatable(model))
  names_in(list, "model:", getmetatable(getmetatable(model)).__index)
  names_in(list, "optim:", {step = print, state = print, zero_grad = print})
  local w = nn.zeros(1, {grad = true})
  names_in(list, "scheduler:", getmetatable(nn.StepLR(nn.SGD {w}, {step_size = 1})).__index)
  names_in(list, "f:", getmetatable(nn.compile(function() end)).__index)
  names_in(list, "rate:", getmetatable(nn.scalar(1)).__index)
  local data = nn.data({text = "input.txt"}, {context = 4})
  names_in(list, "loader:", getmetatable(data.train).__index)
  names_in(list, "loader:", getmetatable(nn.data {arrays = {x = {1}}}).__index)
  names_in(list, "vocabulary:", getmetatable(data.vocabulary).__index)
  names_in(list, "tokenizer:", getmetatable(nn.train_tokenizer("aa", {size = 300})).__index)
  nn.save_checkpoint("names", {step = 1, model = model})
  local checkpoint = nn.open_checkpoint "names/checkpoint-000001"
  names_in(list, "checkpoint:", getmetatable(checkpoint).__index)
  local cfg = nn.config({nn.run_fields {}}, {"out=names-of-run"})
  names_in(list, "run:", getmetatable(nn.run(cfg)).__index)
  list["nn.Tensor"], list["model:size"], list["model:requirements"] = nil, nil, nil
  for _, name in ipairs {"shapes", "fields", "configure", "window"} do
    list["model:" .. name] = nil
  end
  local others = "Bert GPT2 GPT2.size GPTNeo GPTNeoX Llama T5 Model.requirements Model.shapes"
  for name in others:gmatch "%S+" do
    list[name] = true
  end
  return list
end

t.case("every public name has a docstring with an example", function()
  local known, missing = {}, {}
  for _, entry in ipairs(public()) do
    known[entry.key] = true
    for name in entry.signature:gmatch "[%w_]+:[%w_]+" do known[name] = true end
    if not entry.example then missing[#missing + 1] = entry.key .. " (no example)" end
    if #entry.prose < 24 then
      missing[#missing + 1] = entry.key .. " (says nothing)"
    end
  end
  local count = 0
  for name in pairs(public_names()) do
    count = count + 1
    -- nn.f(x) and x:f() are the same function.
    local object, f = name:match "^(.-)[.:](.*)"
    local same = object == "x" and known["nn." .. f] or object == "nn" and known["x:" .. f]
    if not known[name] and not same then missing[#missing + 1] = name end
  end
  table.sort(missing)
  t.check(#missing == 0, #missing .. " names lack docs:\n  " .. table.concat(missing, "\n  "))
  print(count .. " public names")
end)

-- A Lua text of the preamble, a list of lists of texts.
local function preamble_text()
  local rows = {}
  for i, name in ipairs(docs.preamble) do rows[i] = ("{%q, %q}"):format(name[1], name[2]) end
  return "{" .. table.concat(rows, ",\n") .. "}"
end

-- Each example of the library runs in a process and a folder of its own: what others loaded or
-- wrote, and what the docs load, does not help it. Those of ops, which are always there, run here.
local ran, checked = 0, 0
local script = ("package.path = %q .. package.path\nprint(require('examples').run(%%q, %s))")
  :format(root .. "/tests/lua/support/?.lua;", preamble_text():gsub("%%", "%%%%"))
for _, entry in ipairs(public()) do
  if entry.example then
    t.case(("the example of %s is true"):format(entry.key), function()
      ran = ran + 1
      if entry.op then
        checked = checked + examples.run(entry.example, docs.preamble)
        return
      end
      local own = ("%s/example-%d"):format(folder, ran)
      files.make_folder(own)
      files.write(own .. "/example.lua", script:format(entry.example))
      local status, output = t.shell(
        ("cd '%s' && ln -s ../input.txt . && $NNLUA example.lua"):format(own))
      if status ~= 0 then
        error(("%s: %s\n%s"):format(entry.where, output, entry.example), 0)
      end
      checked = checked + tonumber(output:match "(%d+)\n$")
    end)
  end
end
print(("%d examples ran, with %d stated values"):format(ran, checked))

t.case("an example that states something wrong is detected", function()
  local wrong = {"x:sum()  --> 22", "x:sum()  --> 21, 1", 'tostring(x:sum())  --> "x"',
                 "x + 1  --> {{2, 3, 4}, {5, 6, 8}}", "x:dim(3)  --> 3", "print(1)  --> 2",
                 "nn.zeros(2):mean()  --> 0.001", "x:nothing()", "x:sum()  --> nil",
                 "x:sum()  --> error: ...", "for i = 1, 2 do", "x + 1  --> {{2, 3, 4}}"}
  local function run(text) return examples.run(text, docs.preamble) end
  for _, text in ipairs(wrong) do t.check(not pcall(run, text), text .. " passes") end
  t.same(run "x:sum()  --> 21\nx:mean()  --> 3.5\nprint(x:dim(1), 'a')  --> 2\ta", 3)
  t.same(run "x:dim(3)  --> error: dim: there is no axis 3...\nx:dims()  --> 2, 3", 2)
end)

t.case("every setting of every recipe has a meaning and accepts its default", function()
  local count = 0
  for _, recipe in ipairs(docs.recipes()) do
    local cfg = nn.config(recipe.schema, {}, recipe.options)
    local words = {}
    for _, setting in ipairs(require("nn.io.config").settings(cfg)) do
      t.check(#setting.meaning > 3, recipe.path .. ": " .. setting.path .. " has no meaning")
      words[#words + 1] = setting.path .. "=" .. (setting.text == '""' and "" or setting.text)
      count = count + 1
    end
    t.same(tostring(nn.config(recipe.schema, words, recipe.options)), tostring(cfg))
  end
  t.check(count > 40, count .. " settings")
end)

t.case("docs/reference.md is what nnlua --doc writes", function()
  local committed = files.read(root .. "/docs/reference.md")
  t.check(committed == require("nn.help.reference").text(),
          "docs/reference.md is out of date; ./nnlua --doc writes it again")
end)

t.finish()
