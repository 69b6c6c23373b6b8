-- Mistakes in scripts: each gives a one-line error with the given value, never an internal error.
-- Valid values at the limits are accepted.
local ffi = require "ffi"
local nn = require "nn"
local t = require "nn.test"
local GPT2 = require "models.gpt2"

local x = nn.tensor {{1, 2, 3}, {4, 5, 6}}
local tiny = {layers = 1, heads = 1, embd = 4, context = 4, vocab = 5}

-- f() must raise an error with the position in this file, followed by the text.
local function says(f, text)
  local message = t.fails(f, "")
  t.check(message:find(text, 1, true), ("the error is: %s\n  expected: %s"):format(message, text))
  t.check(not message:find("/lua/nn/", 1, true), "it names the library's code: " .. message)
end

t.case("nil and holes among a tensor's values are refused", function()
  says(function() nn.tensor() end, "tensor: element 1 is nil; numbers, booleans and tables of them")
  says(function() nn.tensor {1, nil, 3} end, "tensor: the table has a nil")
  says(function() nn.tensor {{1, 2}, {nil, 4}} end, "tensor: the table has a nil")
  says(function() nn.tensor {[0] = 1, 2} end, "the table has an element [0]; lists count from 1")
  says(function() nn.tensor {{1, 2}, nn.zeros(2)} end, "tensor: element 3 is a tensor")
  t.near(nn.tensor {{true, 1}, {0, false}}:table(), {{true, true}, {false, false}})
end)

t.case("lists of sizes and axes contain whole numbers, without holes", function()
  says(function() x:reshape {3, nil, 2} end, "reshape: shape has a nil")
  says(function() x:reshape {[0] = 9, 3, 2} end, "reshape: shape has an element [0]")
  says(function() x:reshape(1.5, 4) end, "reshape: shape[1] is 1.5; a whole number is needed")
  says(function() x:reshape {3, 2, axis = 1} end, "reshape: shape has the name 'axis' among")
  says(function() x:sum(1.5) end, "sum: axis is 1.5; a whole number is needed")
  says(function() x:slice(1, 1.5, 2) end, "slice: first is 1.5; a whole number is needed")
  says(function() nn.cat {x, nil, x} end, "cat: tensors has a nil")
end)

t.case("layers check their sizes", function()
  says(function() nn.Linear(3) end, "Linear: the number of outputs is nil; a whole number of at")
  says(function() nn.LayerNorm() end, "LayerNorm: the size is nil; a whole number of at least 1")
  says(function() nn.Embedding(3, 0) end, "Embedding: the size is 0; a whole number of at least 1")
  says(function() GPT2 {} end, "gpt2: 'layers' is missing")
end)

t.case("errors for names of PyTorch suggest nnlua's names", function()
  says(function() return x.T end, "a tensor has no method 'T'; use x:t()")
  says(function() x:size(1) end, "no method 'size'; use x:dims(), or x:dim(axis)")
  says(function() x:cuda() end, "no method 'cuda'; not needed: there are no devices")
  says(function() x:places() end, "no method 'places'; use x:memory_nodes(), its new name")
  says(function() nn.place() end, "nn has no 'place'; use nn.run_tasks_on, its new name")
  says(function() x:summ() end, "a tensor has no method 'summ'; did you mean 'sum'?")
  says(function() nn.CrossEntropyLoss() end, "nn has no 'CrossEntropyLoss'; use nn.cross_")
  local function script(text, advice)
    local _, output = t.shell(("$NNLUA -e 'local nn = require \"nn\" %s' 2>&1"):format(text))
    t.check(output:find(advice, 1, true), output)
  end
  script("nn.Linear(1, 1):eval()", "'eval' (a nil value); use nn.training(false)")
  script("print(nn.ones(1).item())", "; was a method called with '.' instead of ':'?\n")
  script("print(nn.ones(1) > 2)", "; methods compare the elements of a tensor: x:gt(2)")
end)

t.case("rows are numbers, ids are two-dimensional, and a module has a forward", function()
  says(function() return x[true] end, "x[i] is row i, counted from 1; the index is true")
  says(function() return x[0] end, "x[0]: rows count from 1; x[1] is the first one")
  says(function() return x[3] end, "elements 3 to 3 are not in an axis of size 2")
  t.fails(function() GPT2(tiny)(nn.zeros(3):to "i32") end, "gpt2: the ids are (3); a tensor (b")
  t.fails(function() GPT2(tiny)({{1, 2}}) end, "gpt2: the ids are a table; a tensor (batch")
  local Empty = nn.module "Empty"
  says(function() Empty()(x) end, "Empty has no forward; write function Empty:forward(x) ... end")
end)

t.case("setting elements and unknown fields of a tensor is refused", function()
  local w = nn.zeros(2)
  says(function() w[1] = 5 end, "x[1] = ... cannot change a tensor; use x:assign_")
  says(function() w.requires_gard = true end, "has no field 'requires_gard' to set; did you mean")
  says(function() nn.zeros(2, {dtype = "i32"}).requires_grad = true end, "needs a float dtype")
  w.requires_grad = true
  t.same(w.requires_grad, true)
end)

t.case("tensors are created from sizes and options, and nothing else", function()
  says(function() nn.zeros {2, 3, dtype = "i32"} end, "zeros: the shape has the name 'dtype'")
  says(function() nn.zeros(2.5) end, "zeros: size 1 is 2.5; a whole number of at least 1 is needed")
  says(function() nn.zeros(nil, 3) end, "zeros: size 1 is nil")
  says(function() nn.zeros({2, 3}, 4) end, "zeros: size 1 is a table")
  says(function() nn.zeros(2, {dtpe = "i32"}) end, "zeros: has no option 'dtpe'; did you mean")
  says(function() nn.zeros(2, 3):at(0, 1) end, "at: there is no element 0 on axis 1 of (2,3)")
  says(function() nn.zeros(2, 3):at(1, 2.5) end, "at: there is no element 2.5 on axis 2 of (2,3)")
  says(function() nn.zeros(2, 3):at(1) end, "at: 1 indices are given for (2,3), which has 2 axes")
  says(function() nn.zeros(2):sum {dim = 1} end,
       "sum: has no option 'dim'; use axis, which counts from 1")
  says(function() nn.zeros(2, {dtype = "i32", grad = true}) end, "needs a float dtype")
  says(function() nn.tensor({1, 2}, "f64") end, "tensor: options are a table {name = value, ...}, "
       .. "not 'f64'; choose one of dtype, grad")
  says(function() nn.tensor({1, 2}, {gard = true}) end, "tensor: has no option 'gard'")
  says(function() nn.tensor({1}, {dtype = "i32", grad = true}) end, "needs a float dtype")
  local shape = {2, 3}
  t.same({nn.zeros(shape).shape, nn.ones(shape, {dtype = "i32"}).dtype, shape},
         {{2, 3}, "i32", {2, 3}})
  t.same({#nn.zeros().shape, nn.rand(3, {low = 2, high = 2})}, {0, {2, 2, 2}})
end)

t.case("arange takes a count; first and last are refused with the equivalent call", function()
  says(function() nn.arange(1, 5) end, "arange: takes a count, not first and last: "
       .. "nn.arange(count, {start = 1, step = ...})")
  says(function() nn.arange(2.5) end, "arange: the count is 2.5")
  t.same(nn.arange(3, {start = 5, step = -2}), {5, 3, 1})
end)

t.case("misspelt options are refused with the nearest name", function()
  local model = GPT2(tiny)
  says(function() nn.Linear(3, 4, {bais = false}) end, "Linear: has no option 'bais'; did you mean")
  says(function() nn.LayerNorm(3, {epsilon = 1}) end, "LayerNorm: has no option 'epsilon'")
  says(function() nn.Embedding(3, 4, {sdt = 1}) end, "Embedding: has no option 'sdt'")
  says(function() nn.parameter({2}, {vlaue = 1}) end, "parameter: has no option 'vlaue'")
  says(function() nn.generate(model, {1}, {token = 5}) end, "generate: has no option 'token'; did")
  says(function() nn.schedule {warm_up = 5} end, "schedule: has no option 'warm_up'; did you mean")
  says(function() nn.data({batc = 3}, {context = 4}) end, "data: has no option 'batc'; did you")
  says(function() nn.data({batch = 3}, {contxt = 4}) end, "data: has no option 'contxt'")
  says(function() nn.data(nn.zeros(3, 2)) end, "data: the argument is a tensor; options are needed")
  says(function() nn.data {arrays = {x = {1}}, batch_size = 1} end, "no option 'batch_size'; use b")
  says(function() nn.data {batch = 3} end, "data: context is nil; a whole number of at least 1")
  says(function() GPT2 {layer = 3} end, "gpt2: has no option 'layer'; did you mean 'layers'?")
  says(function() nn.gradient_rule("nosuch", print) end, "gradient_rule: unknown op 'nosuch'")
  says(function() nn.devices {cpu = 1} end, "devices: has no option 'cpu'; did you mean 'cpus'?")
  local loss = model(nn.zeros(1, 2):to "i32"):sum()
  says(function() loss:backward {retian = true} end, "backward: has no option 'retian'")
end)

t.case("only the lr of an optimizer can be changed later", function()
  local optim = nn.AdamW(nn.Linear(2, 2), {weight_decay = 0.1, clip = 1})
  says(function() optim.learning_rate = 3 end, "AdamW: 'learning_rate' cannot be set, only lr")
  says(function() optim.weight_decay = 0 end, "AdamW: 'weight_decay' cannot be set")
  says(function() optim.lr = nil end, "AdamW: lr is nil; a number of at least 0 is needed")
  optim.lr = 0.5
  t.same({optim.lr, optim.weight_decay, optim.clip, optim.beta1}, {0.5, 0.1, 1, 0.9})
  t.same(tostring(optim), "AdamW of 2 parameters: beta1=0.9, beta2=0.999, clip=1, eps=1e-08, "
         .. "lr=0.5, rounding=nearest, skip_nonfinite=false, weight_decay=0.1")
end)

t.case("an optimizer takes a model, tensors in a list or by name, and nothing else", function()
  local w = nn.ones(2, {grad = true})
  for _, parameters in ipairs {{w}, {w = w}, {{path = "w", tensor = w}}} do
    local optim = nn.SGD(parameters, {lr = 1})
    optim:zero_grad()
    w:sum():backward()
    t.near(optim:step():item(), math.sqrt(2), {rel = 1e-6})
  end
  t.same(w, {-2, -2})
  says(function() nn.AdamW() end, "AdamW: nil is given; a model, a list")
  says(function() nn.AdamW(w) end, "AdamW: a tensor is given; a model, a list")
  says(function() nn.AdamW {3} end, "AdamW: the element '1' is 3; a tensor or")
  says(function() nn.AdamW {} end, "AdamW: there are no parameters to train")
end)

t.case("host memory must have the tensor's bytes and elements", function()
  local w = nn.zeros(2)
  says(function() w:copy_from_host "abc" end, "copy_from_host: the source is a text of 3 bytes; "
       .. "f32 (2) needs 8 bytes, as float[?] or a string")
  says(function() w:copy_from_host(ffi.new "float[1]") end, "the source is an array of 4 bytes")
  says(function() w:copy_from_host(ffi.new "double[2]") end, "the source is an array of double")
  says(function() w:copy_from_host {1, 2} end, "copy_from_host: the source is a table")
  says(function() w:copy_from_host() end, "copy_from_host: the source is nil")
  t.same(w:copy_from_host(ffi.new("float[2]", 1, 2)), {1, 2})
  t.same(w:copy_from_host(ffi.string(ffi.new("float[2]", 3, 4), 8)), {3, 4})
  local bytes = ffi.new "float[2]"
  t.same(w:copy_from_host(ffi.cast("const uint8_t *", bytes)), {0, 0})
end)

t.case("functions that take a function or a tensor refuse other arguments", function()
  for name, f in pairs {compile = nn.compile, no_grad = nn.no_grad, scope = nn.scope,
                        plan = nn.plan, profile = nn.profile, grad = nn.grad} do
    says(function() f(nil) end, name .. ": the argument is nil; a function is needed")
  end
  says(function() nn.grad(function() return 3 end)(x) end, "grad: the result is 3; a tensor of one")
  says(function() nn.Sequential(nn.Linear(2, 2), nn.gelu) end, "Sequential: takes one list, nn.Seq")
  says(function() nn.Sequential {nn.gelu, 3} end, "Sequential: the argument is 3; a function is")
  says(function() nn.stack(x, x) end, "stack: takes a list of tensors, {a, b, ...}")
  says(function() nn.stack {x, 3} end, "stack: element 2 is 3; a tensor is needed")
  says(function() x:masked_fill(true, 5) end, "masked_fill: the mask is true; a tensor is needed")
end)

t.case("numbers, axes and comparisons are checked before the computation", function()
  says(function() x:dim() end, "dim: there is no axis nil; axes are 1 to 2, or -1 to -2 from")
  says(function() x:transpose() end, "transpose: there is no axis nil")
  says(function() x:split() end, "split: the size of a piece is nil")
  says(function() x:split(0) end, "split: the size of a piece is 0")
  says(function() nn.seed "a" end, "seed: the seed is 'a'; a whole number of at least 0 is needed")
  says(function() nn.tiles {tokens = "a"} end, "tiles: tokens is 'a'; a whole number of at least 0")
  says(function() nn.scalar(1):set "a" end, "scalar: the value is 'a'; a number is needed")
  says(function() return x < x end, "< or > cannot compare two tensors; a:lt(b) gives")
  says(function() return x >= x end, "<= or >= cannot compare two tensors; a:le(b) gives")
end)

t.case("ids may be a tensor; two tensors cannot be compared by ==", function()
  local words, ids = nn.vocabulary "byte", nn.tensor({{72, 105}, {72, 106}}, {dtype = "i32"})
  t.same(words:decode(ids[1]), "Hi")
  says(function() words:decode(ids) end, "decode: the tensor has 2 axes; give a row")
  local model = GPT2 {layers = 1, heads = 1, embd = 8, context = 8, vocab = 128}
  local options = {tokens = 2, temperature = 0}
  t.same(nn.generate(model, ids, options), nn.generate(model, {{72, 105}, {72, 106}}, options))
  t.same(nn.generate(model, ids[2], options), nn.generate(model, {72, 106}, options))
  says(function() nn.generate(model, nn.zeros(1, 1, 1)) end, "generate: the ids have 3 axes")
  local y = nn.ones(2)
  says(function() return y == nn.ones(2) end, "== cannot compare two tensors; a:eq(b) gives")
  t.check(y == y and y ~= nil and y ~= 1)
end)

t.case("ipairs iterates over the rows of a tensor; pairs and other mistakes are refused", function()
  local rows = {}
  for i, row in ipairs(x) do rows[i] = row:table() end
  t.same(rows, x:table())
  for _ in ipairs {} do error "an element" end
  says(function() for _ in pairs(x) do error "a field" end end, "ipairs(x) iterates over its rows")
  says(function() return ipairs(nn.tensor(1)) end, "ipairs: the tensor has no axes")
  t.same(t.fails(function() for _ in ipairs(nil) do error "one" end end, ""):match ": (.*)$",
         "bad argument #1 to 'ipairs' (table expected, got nil)")
  t.same("x = " .. nn.ones(1), "x = " .. tostring(nn.ones(1)))
  local words = nn.vocabulary("char", "hello")
  for _, ids in ipairs {{1.5}, {-1}, {0 / 0}, nn.tensor {1.5}} do
    says(function() words:decode(ids) end, "decode: an id is ")
  end
  says(function() words:decode {a = 1} end, "decode: the argument has the name 'a'")
  says(function() words:decode {1, nil, 2} end, "decode: the argument has a nil before element 3")
  t.check((pairs {}) ~= next, "LuaJIT would compile loops over next, at times wrongly")
end)

t.case("defaults and settings of data and runs are checked by name and type", function()
  says(function() nn.run_fields {stepz = 3} end, "run_fields: has no option 'stepz'; did you mean")
  says(function() nn.run_fields {steps = "a"} end, "run_fields: steps is 'a'; a number is needed")
  says(function() nn.run_fields {steps = 2.5} end,
       "run_fields: 'steps' must be a whole number, not '2.5'")
  says(function() nn.run_fields {steps = -3} end, "'steps' must be at least 1, not '-3'")
  says(function() nn.run_fields {stop_at = 1 / 0} end,
       "'stop_at' must be a finite number, not 'inf'")
  says(function() nn.run_fields {on_nan = "go"} end, "'on_nan' must be one of stop, skip, not 'go'")
  local fields = {data = nn.data_fields {split = 1}}
  t.same(nn.config(fields, {"data.split=0.9"}).data.split, 0.9)
  says(function() nn.data_fields {bach = 3} end, "data_fields: has no option 'bach'; did you mean")
  local own = {batch = 3}
  t.same({nn.data_fields(own).batch.default, getmetatable(own)}, {3})
  says(function() nn.data({split = "a"}, {context = 4}) end, "data: split is 'a'; a number is")
  says(function() nn.data({text = 3}, {context = 4}) end, "data: text is 3; a string is needed")
  says(function() nn.data({batch = 0}, {context = 4}) end, "data: batch is 0; a whole number of at")
  says(function() nn.data({}, {context = 4, vocabulary = "x"}) end, "data: vocabulary is 'x'; a")
end)

t.case("a model refuses wrong arguments of its methods", function()
  local model, i32 = GPT2(tiny), {dtype = "i32"}
  local one, start, caches = nn.tensor({{1}}, i32), nn.tensor({0}, i32), model:caches(1)
  local function refuses(text, ...)
    local given, count = {...}, select("#", ...)
    t.fails(function() nn.no_grad(model.next, model, unpack(given, 1, count)) end, text)
  end
  refuses "gpt2: the ids are nil; a tensor (batch, tokens) of i32 is needed"
  refuses("gpt2: the ids are (1); a tensor (batch, tokens)", start, caches, start)
  refuses("gpt2: start is nil; a tensor (batch)", one, caches)
  refuses("gpt2: the caches must be those of model:caches(1), a list of 1 tensors", one, {}, start)
  refuses("gpt2: ids has 2 sequences, but start or last", nn.cat({one, one}, 1), caches, start)
  refuses("gpt2: 2 tokens per sequence need last", nn.tensor({{1, 2}}, i32), caches, start)
  t.fails(function() model:caches() end, "gpt2: batch is nil")
  t.fails(function() model:flops_per_token() end, "the number of tokens is nil; a number is")
  t.fails(function() GPT2 {layers = "x", heads = 1, embd = 4} end, "gpt2: layers is x; a whole")
  t.same(nn.no_grad(model.next, model, one, caches, start).shape, {1, 5})
end)

t.case("no public function answers wrong arguments with a raw Lua error", function()
  local raw = {"attempt to", "bad argument", "cannot convert", "table expected", "table index is"}
  local others = {fail = true, names = true, devices = true, train_tokenizer = true}
  local folder, list, bad = t.folder(), {}, {}
  local restore = {["nn.memory_budget"] = function() nn.memory_budget(0) end,
                   ["nn.defer_interrupts"] = function() nn.defer_interrupts(false) end}
  for name, value in pairs(require("nn.core.tensor").Tensor) do
    if type(value) == "function" and not name:find "^__" and name ~= "release" then
      list["x:" .. name] = function(...) return value(nn.ones(2, 3), ...) end
    end
  end
  for name in pairs(getmetatable(nn).names()) do
    if type(nn[name]) == "function" and not others[name] then list["nn." .. name] = nn[name] end
  end
  local values = {{}, {{}}, {3}, {-1}, {folder}, {true}, {x}, {{{}}}, {x, {}}, {x, "a"}, {{}, {}},
                  {"a", "b"}, {3, 4}, {1e15}, {0 / 0}, {print}}
  for name, f in pairs(list) do
    for _, given in ipairs(values) do
      local good, problem = pcall(f, unpack(given))
      if restore[name] then restore[name]() end
      for _, pattern in ipairs(good and {} or raw) do
        if tostring(problem):find(pattern, 1, true) then
          table.insert(bad, name .. ": " .. tostring(problem))
        end
      end
    end
  end
  table.sort(bad)
  t.check(#bad == 0, table.concat(bad, "\n"))
end)

t.finish()
