-- Typical mistakes of a first week, as scripts: each error names the line in the script and says
-- what to do.
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local nn = require "nn"
local script = require "nn.io.script"
local t = require "nn.test"

rawset(_G, "nn", nn)             -- as the program does for scripts
local folder = t.folder()
local count = 0

-- The text of the error that a script ends with.
local function error_of(name, code)
  files.write(name, code)
  local chunk, err = script.load(name)
  if not chunk then return err end
  local good, problem = xpcall(chunk, lib.traced)
  t.check(not good, "there was no error in\n" .. code)
  return tostring(problem)
end

-- Each of {line, code, text}: the error of the code must blame the line and contain the text. The
-- lines of the code are separated by " | ".
local function blames(mistakes)
  local bad = {}
  for _, mistake in ipairs(mistakes) do
    count = count + 1
    local line, code, text = unpack(mistake)
    local name = ("%s/script%d.lua"):format(folder, count)
    local found = error_of(name, (code:gsub(" | ", "\n")))
    local short = found:match "[^\n]*":gsub("^.*/(script%d+)", "%1")
    local place = ("%s:%d: "):format(name, line)
    if not found:find(place, 1, true) or not found:find(text, 1, true) then
      bad[#bad + 1] = ("%s\n    gives   %s\n    expected line %d: %s"):format(code, short, line,
                                                                            text)
    end
  end
  t.check(#bad == 0, table.concat(bad, "\n  "))
end

t.case("shapes and dtypes", function()
  blames {
    {2, "local a = nn.ones(2, 3) | local b = a:matmul(nn.ones(2, 3))", "the inner sizes 3 and 2"},
    {2, "local a = nn.ones(2, 3) | print(a + nn.ones(4))", "(2,3)"},
    {1, "nn.ones(2, 3):reshape(4, 2)", "reshape"},
    {1, "nn.cat({nn.ones(2, 3), nn.ones(2, 4)}, 1)", "cat"},
    {1, "nn.ones(2, 3):sum(0)", "axis"},
    {1, "nn.ones(2, 3):item()", "item() needs a single element"},
    {1, "local s = string.format('%g', nn.ones(2):sum())", "tensor of one element is x:item()"},
    {1, "nn.zeros(2.5)", "zeros: size 1 is 2.5; a whole number"},
    {1, "nn.tensor {{1, 2}, {3}}", "tensor"},
    {1, "nn.Embedding(9, 4)(nn.ones(2, 2))", "i32"},
    {1, "nn.cross_entropy(nn.ones(2, 3), nn.ones(2))", "i32"},
    {3, "local net = nn.Sequential {nn.Linear(3, 4), nn.Linear(5, 2)} | local x = nn.ones(1, 3) | "
     .. "local y = net(x)", "the last size of x must be 5 (in 2)"},
    {1, "nn.accumulate(nn.Linear(3, 3), 2, nn.ones(3, 3), nn.ones(3, 3))",
     "3 rows do not divide into 2 microbatches"},
  }
end)

t.case("tail calls in functions", function()
  blames {
    {2, "local function product(a, b) | return a:matmul(b) | end | "
     .. "local y = product(nn.ones(2, 3), nn.ones(2, 3))", "the inner sizes 3 and 2"},
    {3, "local net = nn.Linear(3, 4) | local function call(x) | return net(x) | end | "
     .. "local function outer() local y = call(nn.ones(2, 2)) return y end | local z = outer()",
     "the last size of x must be 3"},
    {2, "function product(a, b) | return a:matmul(b) | end | "
     .. "local y = product(nn.ones(2, 3), nn.ones(2, 3))", "the inner sizes 3 and 2"},
    {5, "local function product(a, b) | local c = a:matmul(b) | return c:sum() | end | "
     .. "local y = nn.ones(2):matmul(nn.ones(3)) | product(y, y)", "matmul"},
  }
  rawset(_G, "product", nil)
end)

t.case("tail calls in modules", function()
  local head = 'local Net, MLP = nn.module "Net", nn.module "MLP" | '
    .. "function MLP:init() self.up, self.down = nn.Linear(3, 4), nn.Linear(5, 3) end | "
    .. "function Net:init() self.blocks = nn.list(2, MLP) end | "
    .. "function Net:forward(x) | return self.blocks[2](x) | end | "
  local call = " | Net()(nn.ones(2, 3))"
  blames {
    {9, head .. "function MLP:forward(x) | local h = self.up(x) | return self.down(h) | end"
     .. call, "must be 5 (in blocks.2.down)"},
    {9, head .. "function MLP:forward(x) | if x == 1 then return self.up(x) end | "
     .. "return self.down(self.up(x)) | end" .. call, "must be 5 (in blocks.2.down)"},
    {8, head .. "function MLP:forward(x) | return x:matmul(self.up.weight) | end" .. call,
     "the inner sizes 3 and 4 differ (in blocks.2)"},
    {8, head .. "function MLP:forward(x) | return self.up.wieght * x | end" .. call,
     "(in blocks.2"},
  }
end)

t.case("names and options", function()
  blames {
    {1, "nn.softmx(nn.ones(2))", "did you mean 'softmax'?"},
    {1, "nn.ones(2):summ()", "did you mean 'sum'?"},
    {1, "nn.Linear(3, 4, {bais = false})", "did you mean 'bias'?"},
    {2, "local net = nn.Linear(3, 4) | nn.AdamW(net, {learning_rate = 1})", "learning_rate"},
    {2, "local o = nn.SGD(nn.Linear(1, 1)) | o.momentum = 0.9", "'momentum' cannot be set"},
    {2, 'local GPT2 = require "models.gpt2" | GPT2 {layers = 1, embd = 8}', "'heads' is missing"},
    {2, 'local GPT2 = require "models.gpt2" | GPT2 {layers = 1, heads = 3, embd = 8}',
     "embd = 8 is not a multiple of heads = 3"},
    {1, 'require("models.gpt2") {layer = 1}', "did you mean 'layers'?"},
    {1, 'require "models.gtp2"', "there is no module 'models.gtp2'; did you mean 'models.gpt2'?"},
    {2, "local x = nn.ones(2) | pritn(x)", "did you mean 'print'?"},
    {2, "local model = nn.Linear(1, 1) | modle(nn.ones(1, 1))", "did you mean 'model'?"},
    {1, 'nn.tokenizer.load "gpt2"', "nn.tokenizer(FOLDER)"},
    {1, "nn.place()", "use nn.run_tasks_on, its new name"},
    {1, "nn.sgemm_gflops()", "use nn.product_gflops, its new name"},
    {2, "local a = nn.Linear(2, 2) | a:load {weight = nn.ones(2, 2)}", "load: 'bias' is missing"},
    {2, "local a = nn.Linear(2, 2) | a:load(nn.Linear(3, 2):state())",
     "load: 'weight' is (2,3), the model needs (2,2)"},
  }
end)

t.case("names of PyTorch and Python", function()
  blames {
    {1, "nn.ones(2):size(0)", "use x:dims(), or x:dim(axis)"},
    {1, "print(nn.ones(2, 3).T)", "use x:t()"},
    {1, "nn.CrossEntropyLoss()", "nn.cross_entropy"},
    {1, "local x = torch.zeros(3)", "the library is nn"},
    {1, "nn.Linear(1, 1):eval()", "nn.training(false)"},
    {1, "nn.ones(2):numpy()", "x:table()"},
    {1, "for i in range(10) do end", "write for i = 1, n do ... end"},
    {2, "local list = {} | print(len(list))", "the length of a list is #list"},
  }
end)

t.case("Lua's and nnlua's own ways", function()
  blames {
    {1, "print(nn.ones(1).item())", "was a method called with '.' instead of ':'?"},
    {1, "print(nn.ones(1) > 2)", "x:gt(2)"},
    {1, "print(nn.ones(1) == nn.ones(1))", "a:eq(b)"},
    {2, "local x = nn.ones(2) | x[1] = 5", "x:assign_"},
    {2, "local x = nn.ones(2) | print(x[0])", "rows count from 1; x[1] is the first one"},
    {2, "local list = {{1}} | print(list[0][1])", "count from 1 to #list"},
    {2, "local x = nn.ones(2) | for k in pairs(x) do print(k) end", "ipairs(x) iterates"},
    {3, "local w = nn.ones(2, {grad = true}) | local y = w * 2 | y:backward()",
     "only a loss of one element"},
    {1, "nn.ones(1):backward()", "grad = true"},
    {3, "local w = nn.ones(1, {grad = true}) | w:square():sum():backward() | "
     .. "w.grad:sum():backward()", "second derivatives are not supported"},
    {4, "local w = nn.ones(1, {grad = true}) | local loss = w:square():sum() | loss:backward() | "
     .. "loss:backward()", "retain = true"},
    {2, "local o = nn.SGD(nn.Linear(1, 1)) | o:step()", "call loss:backward() first"},
    {2, "local w = nn.ones(1, {grad = true}) | w:fill_(1)", "nn.no_grad"},
  }
end)

t.case("compiled functions", function()
  blames {
    {2, "local f = nn.compile(function(x) return x end) | f(3)", "nn.scalar"},
    {2, "local f = nn.compile(function(x) | local n = x:item() | return x * n end) | f(nn.ones(1))",
     "return the tensor from it instead"},
    {2, "local f = nn.compile(function(x) | return x * math.random() end) | f(nn.ones(1))",
     "math.random in a compiled function: its result would be the same at every call; nn.rand"},
    {2, "local f = nn.compile(function() | return nn.tensor {1, 2} * 2 end) | f()",
     "host data cannot be written while a compiled function is being recorded"},
    {2, "local f = nn.compile(function(x) return 3 end) | f(nn.ones(1))", "result 1 is a number"},
  }
end)

t.case("files that are missing or of another kind", function()
  blames {
    {1, 'nn.data({text = "missing.txt"}, {context = 4})', "'missing.txt': No such file"},
    {1, 'nn.load_safetensors "missing.safetensors"', "missing.safetensors"},
    {1, 'nn.load_hf "missing"', "there is no folder 'missing'"},
    {1, 'nn.load_model "missing"', "there is no folder 'missing'; give a run, a checkpoint"},
    {1, 'nn.tokenizer "missing"', "there is no such folder"},
    {1, 'nn.data({text = "/tmp"}, {context = 4})', "is a folder"},
  }
end)

t.case("Python's syntax", function()
  blames {
    {2, "local x = 1 | x += 1", "Lua has no +=; write x = x + 1"},
    {2, "local x = 1 | x++", "Lua has no ++"},
    {1, "if 1 != 2 then end", "'not equal' is ~="},
    {1, "x := 3", "write local x = ..."},
    {1, "def f(x):", "write function f(x) ... end"},
    {1, "for i in range(10):", "write for i = 1, n do ... end"},
    {1, "if x == 1:", "write if a then ... end"},
    {1, "import torch", 'local m = require "NAME"'},
    {1, "class Net(nn.Module):", 'nn.module "Net"'},
    {1, "with torch.no_grad():", "nn.no_grad(function() ... end)"},
    {1, "local y = 2 ** 3", "a power is x ^ 2"},
    {1, "local list = [1, 2]", "lists are in braces: {1, 2}"},
    {2, "local x = 1 | # a comment", "comments begin with --"},
    {2, "local x = nn.ones(4) | print(x[1:2])", "x:slice(axis, first, last)"},
    {1, "local f = lambda x: x", "write function(x) ... end"},
    {1, "local y = 1 if true else 2", "write a and b or c"},
  }
end)

t.case("scripts that do not exist suggest near names", function()
  local function says(name, text)
    local chunk, err = script.load(name)
    t.check(not chunk and err:find(text, 1, true), err)
  end
  says("recipes/gpt2_trian.lua", "did you mean 'recipes/gpt2_train.lua'?")
  says(folder .. "/scrpt1.lua", ("did you mean '%s/script1.lua'?"):format(folder))
  says(folder .. "/script1", ("did you mean '%s/script1.lua'?"):format(folder))
end)

t.case("an error behaves as its text", function()
  local _, e = pcall(nn.zeros, 2.5)
  t.same({e:find("size 1", 1, true) ~= nil, e:match "zeros", e .. "", ("%s"):format(e)},
         {true, "zeros", tostring(e), tostring(e)})
end)

t.finish()
