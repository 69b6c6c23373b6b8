-- Loaders of examples that are no text: order, batches, state, kinds of values, tables in files
-- (tests/golden/make_data.py), errors.
local csv = require "nn.data.csv"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local terminal = require "nn.base.terminal"
local texts = require "nn.data.texts"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local examples = require "examples"

local folder = t.folder()
local function write(name, text)
  files.write(folder .. "/" .. name, text)
  return folder .. "/" .. name
end
local function count_up(n)
  local list = {}
  for i = 1, n do list[i] = i end
  return list
end
-- The values of a field in the rest of an epoch, batch by batch.
local function epoch_of(loader, field)
  local out = {}
  for batch in loader do out[#out + 1] = batch[field]:table() end
  return out
end
local function flat(batches)
  local out = {}
  for _, batch in ipairs(batches) do
    for _, value in ipairs(batch) do out[#out + 1] = value end
  end
  return out
end
local function numbers(options)
  options.arrays = {x = count_up(10)}
  return nn.data(options)
end

t.case("an epoch has every example once, in order or shuffled, another order each epoch", function()
  t.same(epoch_of(numbers {batch = 4}, "x"), {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}})
  t.same(epoch_of(numbers {batch = 4, drop_last = true}, "x"), {{1, 2, 3, 4}, {5, 6, 7, 8}})
  for i, batch in ipairs(numbers {batch = 4}) do t.same(batch.x[1]:item(), 4 * i - 3) end
  t.same({numbers {batch = 4}.batches, numbers {batch = 4, drop_last = true}.batches}, {3, 2})
  local loader, orders = numbers {batch = 4, shuffle = true, seed = 3}, {}
  for epoch = 1, 20 do
    t.same(loader.epoch_number, epoch - 1)
    local order = flat(epoch_of(loader, "x"))
    orders[table.concat(order, " ")] = true
    table.sort(order)
    t.same(order, count_up(10))
  end
  local different = 0
  for _ in pairs(orders) do different = different + 1 end
  t.same(different, 20)
  local again, other = numbers {batch = 4, shuffle = true, seed = 3}, numbers {batch = 4,
                                                                               shuffle = true}
  local first = epoch_of(again, "x")
  t.check(orders[table.concat(flat(first), " ")], "the same seed gives the same order")
  t.check(not orders[table.concat(flat(epoch_of(other, "x")), " ")], "another seed, another order")
end)

t.case("every order of three examples is as likely as the others", function()
  local loader, seen = nn.data {arrays = {x = {1, 2, 3}}, batch = 3, shuffle = true}, {}
  for _ = 1, 1200 do
    local order = table.concat(loader:batch():table(), "")
    seen[order] = (seen[order] or 0) + 1
  end
  for _, order in ipairs {"123", "132", "213", "231", "312", "321"} do
    t.near(seen[order], 200, {abs = 52})                       -- 4 standard deviations
  end
end)

t.case("a loader continues at the example after its state, also with another batch size", function()
  local loader = numbers {batch = 3, shuffle = true, seed = 5}
  for _ = 1, 6 do loader:batch() end                           -- two batches of the second epoch
  local state = files.parse_json(files.json(loader:state()))
  t.same({state.epoch, state.position, state.seed}, {1, 6, 5})
  local rest = flat(epoch_of(loader, "x"))
  local after = flat(epoch_of(loader, "x"))
  for _, batch in ipairs {1, 2, 3, 4} do
    local other = numbers {batch = batch, shuffle = true}
    other:batch()
    t.same(other:set_state(state), true)
    t.same(flat(epoch_of(other, "x")), rest)
    t.same(flat(epoch_of(other, "x")), after)
  end
  local changed = nn.data {arrays = {x = {1, 2, 3}}}
  t.same(changed:set_state(state), false)
  t.fails(function() loader:set_state {counter = 3} end,
          "set_state: epoch is nil; a whole number of at least 0 is needed")
end)

t.case("a loop that was left goes on, and batch() passes the end of an epoch", function()
  local loader = numbers {batch = 4}
  t.same(loader:epoch()().x:table(), {1, 2, 3, 4})
  t.same(epoch_of(loader, "x"), {{5, 6, 7, 8}, {9, 10}})
  local seen = {}
  for i = 1, 4 do seen[i] = loader:batch():table() end
  t.same(seen, {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10}, {1, 2, 3, 4}})
end)

t.case("tensors, lists, texts and booleans keep their kind and shape", function()
  local images = nn.randn(5, 2, 3)
  local loader = nn.data {
    arrays = {image = images, kind = {"b", "a", "c", "a", "b"}, row = {{1, 2}, {3, 4}, {5, 6},
              {7, 8}, {9, 10}}, good = {true, false, true, true, false}, y = {0, 1, 2, 3, 4},
              each = {nn.ones(2), nn.zeros(2), nn.ones(2), nn.ones(2), nn.ones(2)}},
    dtypes = {y = "i32"}, batch = 2, fields = {"y", "image"}}
  loader:batch()
  local batch = loader:epoch()()
  t.same(batch.image, images:slice(1, 3, 4):clone())
  t.same(batch.kind, {"c", "a"})
  t.same({batch.row:table(), batch.row.dtype}, {{{5, 6}, {7, 8}}, "f32"})
  t.same({batch.good:table(), batch.good.dtype}, {{true, true}, "bool"})
  t.same({batch.each:table(), batch.y.dtype}, {{{1, 1}, {1, 1}}, "i32"})
  local y, image = loader:batch()
  t.same({y:table(), image.shape}, {{4}, {1, 2, 3}})
  local shape, labels = loader:inputs(7)
  t.same({shape.shape, shape.dtype, labels.shape}, {{7}, "i32", {7, 2, 3}})
  local classes = nn.data {arrays = {kind = {"b", "a", "c", "a"}}, classes = "kind", batch = 4}
  t.same({classes:batch():table(), classes.classes}, {{1, 0, 2, 0}, {"a", "b", "c"}})
end)

t.case("a C array is read without a tensor", function()
  local array = require("ffi").new("int32_t[6]", {1, 2, 3, 4, 5, 6})
  local function data(shape, dtype)
    return nn.data {arrays = {x = {data = array, shape = shape, dtype = dtype}}, batch = 2}
  end
  t.same(epoch_of(data({3, 2}, "i32"), "x"), {{{1, 2}, {3, 4}}, {{5, 6}}})
  t.same(data({3, 2}, "i32"):inputs(4).shape, {4, 2})
  t.fails(function() data({3, 2}, "int") end, "field 'x' is a table; {data = a C array, shape")
  t.fails(function() data({3, 0}, "i32") end, "size 2 of field 'x'")
end)

t.case("functions and streams are read an epoch at a time", function()
  local calls = {}
  local loader = nn.data {count = 5, batch = 2, shuffle = true, read = function(i)
    calls[#calls + 1] = i
    return {x = i, name = "n" .. i}
  end}
  calls = {}
  local seen = flat(epoch_of(loader, "x"))
  t.same(seen, calls)
  table.sort(calls)
  t.same(calls, count_up(5))
  local starts = 0
  local function new_stream(options)
    options.stream = function()
      local i = 0
      starts = starts + 1
      return function()
        i = i + 1
        return i <= 5 and {x = i} or nil
      end
    end
    return nn.data(options)
  end
  local stream = new_stream {batch = 2}
  for _ = 1, 2 do t.same(epoch_of(stream, "x"), {{1, 2}, {3, 4}, {5}}) end
  t.same(starts, 2)
  t.same(epoch_of(new_stream {batch = 2, drop_last = true}, "x"), {{1, 2}, {3, 4}})
  t.same(epoch_of(new_stream {batch = 5}, "x"), {{1, 2, 3, 4, 5}})
  stream:batch()
  local other = new_stream {batch = 2}
  other:set_state(stream:state())
  t.same(other:batch():table(), {3, 4})
  t.same({other:batch():table(), other:batch():table()}, {{5}, {1, 2}})
  local rows = 0
  for x, count in stream:windows(2) do rows = rows + count + 0 * #x:table() end
  t.same(rows, 4)
end)

t.case("a split is disjoint and the same each time, and windows visit it in order", function()
  local all = numbers {batch = 4, shuffle = true, drop_last = true, seed = 2}
  local train, val = all:split(0.7)
  t.same({train.count, val.count}, {7, 3})
  local seen = flat(epoch_of(train, "x"))
  t.same(#seen, 4)                                             -- drop_last
  local held = flat(epoch_of(val, "x"))
  for x, rows in train:windows() do
    for _, value in ipairs(x:table()) do held[#held + 1] = value end
    t.check(rows == 4 or rows == 3, rows)
  end
  table.sort(held)
  t.same(held, count_up(10))
  local _, again = all:split(0.7)
  t.same(again:batch(), (val:batch()))
  t.same(again:set_state(val:state()), true)
  t.same(again:set_state(train:state()), false)
  local some = {}
  for x in numbers({batch = 2}):windows(2) do some[#some + 1] = x:table() end
  t.same(some, {{1, 3}, {6, 8}})
end)

t.case("a run trains on a loader, and resumes with the losses of the whole run", function()
  local function train(words)
    local cfg = nn.config({nn.run_fields {steps = 6, log_every = 1, eval_every = 0}}, words)
    local loader = nn.data {arrays = {x = nn.arange(10):reshape(10, 1), y = nn.arange(10)},
                            batch = 4, shuffle = true, seed = 1}
    local Line = nn.module "Line"
    function Line:init() self.layer = nn.Linear(1, 1) end
    function Line:forward(x, y) return (self.layer(x):reshape(-1) - y):square():mean() end
    local run = nn.run(cfg)
    local model = Line()
    local optim = nn.SGD(model, {lr = 1e-3})
    local step = nn.compile(function(x, y)
      optim:zero_grad()
      local loss = model(x, y)
      loss:backward()
      optim:step()
      return loss
    end)
    run:track {model = model, optim = optim, data = loader}
    local losses = {}
    for n in run:steps() do
      local loss = step(loader:batch())
      losses[n] = loss:item()
      run:record(loss)
    end
    run:done {val_loss = nn.evaluate(model, loader)}
    return losses
  end
  local whole = train {"out=" .. folder .. "/whole", "save_every=3", "keep=9"}
  local saved = folder .. "/whole/checkpoint-000003"
  local rest = train {"out=" .. folder .. "/rest", "resume=" .. saved}
  t.same({rest[4], rest[5], rest[6]}, {whole[4], whole[5], whole[6]})
end)

t.case("cells of comma-separated values are those of Python's csv", function()
  local cases = files.parse_json(files.read(root .. "/tests/golden/data/csv.json"))
  for _, case in ipairs(cases) do
    local rows = {}
    csv.each_row(case.text, "t.csv", ",", function(cells) rows[#rows + 1] = cells end)
    t.same(rows, case.rows)
  end
  t.check(#cases >= 100, #cases .. " texts")
end)

t.case("a table gives columns of numbers and texts, and groups of columns", function()
  local path = write("iris.csv", 'width,"height",zip,kind\r\n1.5,2,010,cat\r\n'
                     .. '-3,4e1,0x,"d ""g"""\n')
  local loader = nn.data {csv = path, batch = 2, classes = "y", dtypes = {zip = "text"},
                          columns = {x = {"width", "height"}, y = "kind", zip = "zip"}}
  local x, y, zip = loader:batch()
  t.same({x:table(), y:table(), zip}, {{{1.5, 2}, {-3, 40}}, {0, 1}, {"010", "0x"}})
  t.same(loader.classes, {"cat", 'd "g"'})
  local function refused(text, message, options)
    options = options or {}
    options.csv = write("bad.csv", text)
    t.fails(function() nn.data(options) end, message)
  end
  refused("a,b\n1,2\n3\n", "bad.csv', line 3 has 1 cells; the first line has 2")
  local names = {}
  for i = 1, 5001 do names[i] = "c" .. i end
  local wide = table.concat(names, ",")
  refused(wide .. "\n", "bad.csv' has 5001 columns, and at most 4096 can be fields of their own")
  refused((wide .. ","):rep(14) .. "\n", "bad.csv', line 1 has more than 65536 columns")
  refused("a\n1\n\nx\n", "bad.csv', line 4: 'a' is 'x'; a number is needed as in the rows before")
  refused("a\nx\n", "bad.csv', line 2: 'a' is 'x'; a number is needed", {columns = {x = {"a"}}})
  refused("a\n0x10\n", "'a' is '0x10'; a number is needed", {dtypes = {a = "f32"}})
  refused("a,a\n1,2\n", "two columns have the name 'a'")
  refused('a\n"x\n', "line 2: a quote opens and does not close")
  refused('a\n"x"y\n', "line 2: 'y' follows a quoted cell")
  refused("a\n", "has no examples")
  refused("", "bad.csv' is empty")
  refused("a\n1\n", "there is no column 'b'; the file has a", {columns = {x = "b"}})
  refused("a\n1.5\n", "which dtype i32 cannot hold", {dtypes = {a = "i32"}})
end)

t.case("reading a long table shows its progress, and a terminal keeps no line of it", function()
  local rows, objects = {"a"}, {}
  for i = 1, 5000 do rows[#rows + 1], objects[i] = tostring(i), ('{"a": %d}'):format(i) end
  local csv_path = write("long.csv", table.concat(rows, "\n"))
  local jsonl_path = write("long.jsonl", table.concat(objects, "\n"))
  local clock, on_terminal = 0, true
  local function now()
    clock = clock + 1
    return clock
  end
  local function reads(options)
    local printed, saved = {}, {engine.now, terminal.is_terminal, io.stderr}
    engine.now, terminal.is_terminal = now, function() return on_terminal end
    rawset(io, "stderr", {write = function(_, ...) printed[#printed + 1] = table.concat {...} end})
    local good, problem = pcall(nn.data, options)
    engine.now, terminal.is_terminal = unpack(saved)
    rawset(io, "stderr", saved[3])
    return good, tostring(problem), table.concat(printed)
  end
  for name, path in pairs {csv = csv_path, jsonl = jsonl_path} do
    local good, problem, text = reads {[name] = path, batch = 1}
    t.check(good, problem)
    t.check(text:find("^\rreading long." .. name .. ": +%d+%%  [%d.]+ kB of [%d.]+ kB  .* eta "),
            text)
    t.same(text:sub(-4), "\r\27[K")
  end
  rows[4001] = "x"
  local good, problem, text = reads {csv = write("long.csv", table.concat(rows, "\n")), batch = 1}
  t.check(not good and problem:find("'a' is 'x'", 1, true), problem)
  t.same(text:sub(-4), "\r\27[K")
  on_terminal = false
  t.same(select(3, reads {jsonl = jsonl_path, batch = 1}), "")
end)

t.case("JSON lines give numbers, lists and texts, and each error names its line", function()
  local path = write("t.jsonl", '{"x": [1, 2.5e0], "y": true, "t": "\\u00e9\\n"}\n\n'
                     .. '{"x": [3, -4], "y": false, "t": ""}\n')
  local batch = nn.data({jsonl = path, batch = 2}):epoch()()
  t.same({batch.x:table(), batch.y:table(), batch.t},
         {{{1, 2.5}, {3, -4}}, {true, false}, {"é\n", ""}})
  local function refused(line, message)
    t.fails(function() nn.data {jsonl = write("bad.jsonl", '{"x":[1,2]}\n' .. line)} end,
            "bad.jsonl', line 2" .. message)
  end
  refused('{"x":[1]}', ": field 'x' is a list of 1 where the first has 2")
  refused('{"x":[1,null]}', ": field 'x' is null, not a number")
  refused('{"y":1}', " has a field 'y', which line 1 lacks")
  refused("{}", " has no field 'x'")
  refused('{"x":', " is not a JSON object")
end)

t.case("data.text may be several files, JSON lines, a table, compressed", function()
  local a, b = write("a.txt", ("hello "):rep(20)), write("b.txt", ("world "):rep(20))
  local json = write("docs.jsonl", '{"text":"hello"}\n{"text":"w\\u00f6rld","body":"x"}\n')
  local gz = folder .. "/a.txt.gz"
  t.same(t.shell(("gzip -k '%s'"):format(a)), 0)
  local function text_of(list, field) return texts.read(list, field or "text", "data.text") end
  t.same(text_of(a .. "," .. b), files.read(a) .. "\n" .. files.read(b))
  t.same(text_of(json), "hello\nwörld")
  t.same(text_of(write("t.csv", 'id,body\n1,"a\nb"\n2,c\n'), "body"), "a\nb\nc")
  t.same(text_of(write("t.tsv", "id\ttext\n1\tx,y\n")), "x,y")
  t.same(text_of(gz), files.read(a))
  t.same(text_of(write("c,d.txt", "comma")), "comma")
  t.fails(function() text_of(write("t.parquet", "PAR1")) end, "t.parquet' is a Parquet file, which "
          .. "nnlua does not read; convert it: python3 -c \"import pandas; pandas.read_parquet('")
  t.fails(function() text_of(folder) end, "is a folder; convert its files: nnlua recipes/tokens")
  t.fails(function() text_of(json, "txt") end, "line 1 has no field 'txt'; it has text; "
          .. "choose one with data.field=")
  local data = nn.data({text = json .. "," .. a, split = 0.5}, {context = 4})
  t.same(data.vocabulary:decode(data.train:windows()():table()[1]), "hell")
end)

t.case("each mistake gets an error that says what is needed", function()
  local function refused(options, message)
    t.fails(function() nn.data(options):batch() end, message)
  end
  refused({arrays = {x = {1, "a"}}}, "data: element 2: field 'x' is 'a', not a number")
  refused({arrays = {x = {"a", 1}}}, "data: element 2: field 'x' is 1; the first is a text")
  refused({arrays = {x = {nn.ones(2), nn.ones(3)}}}, "field 'x' is (3) f32; the first is (2) f32")
  refused({arrays = {x = {1, 2}, y = {1}}}, "data: field 'y' has 1 examples, but 'x' has 2")
  refused({arrays = {nn.ones(2)}}, "tensors and lists by name are needed, {x = X, y = Y}")
  refused({arrays = {x = {1}}, fields = {"y"}}, "have no field 'y'; they have x")
  refused({arrays = {x = {1}}, dtypes = {y = "i32"}}, "have no field 'y'; they have x")
  refused({arrays = {x = {1}}, bach = 2}, "data: has no option 'bach'; did you mean 'batch'?")
  refused({arays = {x = {1}}}, "data: has no option 'arays'; did you mean 'arrays'?")
  refused({arrays = {x = {1}}, batch = 2, drop_last = true}, "1 examples are fewer than a batch")
  refused({arrays = {x = {1}}, csv = "a.csv"}, "data: give arrays or csv, not both")
  refused({arrays = {x = {1}}, dtypes = {x = "int"}}, "dtypes.x is 'int'; f32, f64")
  refused({read = function() return 1 end, count = 2}, "read(1) is 1; a table of an example's")
  refused({read = print}, "count, the number of examples, is nil")
  refused({stream = function() return {x = 1} end}, "a function is needed that returns the next")
  refused({stream = function() return function() end end}, "a stream has no examples")
  refused({stream = print, shuffle = true}, "a stream cannot be shuffled")
  refused({csv = folder .. "/none.csv"}, "No such file")
  refused({csv = 3}, "data: csv is 3; a file is needed")
  refused({jsonl = write("t.parquet", "PAR1")}, "is a Parquet file, which nnlua does not read")
  local rows = nn.data {arrays = {x = {{1}, {2}}, y = {1, 2}}, batch = 2}
  t.fails(function() nn.evaluate(nn.Linear(1, 3), rows) end,
          "evaluate: the model's result is (2,3); one element, the loss")
  local tokens = nn.data({text = write("tokens.txt", ("ab"):rep(30)), batch = 2}, {context = 4})
  t.fails(function() ipairs(tokens.train) end,
          "windows of a text are drawn without end; call loader:batch() in a loop")
end)

t.case("the examples of docs/data.md are true", function()
  local own = folder .. "/doc"
  files.make_folder(own)
  files.write(own .. "/iris.csv", "length,width,species\n5.1,3.5,setosa\n6.3,3.3,virginica\n")
  for _, name in ipairs {"cats", "dogs"} do
    files.make_folder(own .. "/photos/" .. name)
    files.write(own .. "/photos/" .. name .. "/1.png",
                files.read(root .. "/tests/golden/data/rgb.png"))
  end
  local count = 0
  for code in files.read(root .. "/docs/data.md"):gmatch "```lua\n(.-)```" do
    code = code:gsub('"iris.csv"', ("%q"):format(own .. "/iris.csv"))
      :gsub('"photos"', ("%q"):format(own .. "/photos"))
    count = count + examples.run(code, {{"nn", 'require "nn"'}})
  end
  t.same(count, 7)
end)

t.finish()
