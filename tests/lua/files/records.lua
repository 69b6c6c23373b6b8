-- Texts and records in files: JSON lines and lists, tables, plain texts. Each is read right or
-- refused by a short message with the place, whatever the size of the chunks that are read.
local cjson = require "cjson"
local files = require "nn.io.files"
local json_records = require "nn.data.json_records"
local nn = require "nn"
local numbers = require "nn.data.numbers"
local t = require "nn.test"
local texts = require "nn.data.texts"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local chunked = require "chunked"

local folder = t.folder()
local path, write = chunked.folder(folder)
local with_chunks = chunked.with_chunks

-- The objects in a file, with their places.
local function objects_of(file)
  local objects, places = {}, {}
  json_records.each(file, function(object, place)
    objects[#objects + 1], places[#places + 1] = object, place
  end, function() end)
  return objects, places
end

local function refused(name, text, message)
  write(name, text)
  local problem = t.fails(function() texts.read(path(name), "text", "data.text") end, message)
  t.check(#problem < 600, problem)
end

local odd = {{text = "a, b"}, {text = "[{}]"}, {text = 'q"\\'}, {text = "é\n", list = {1, {2}, {}}},
             {text = ("x"):rep(300), inner = {a = {b = "}"}}}, {text = "\\\""}}

t.case("a list of objects and lines of objects give the same records, in chunks of any size",
       function()
  local parts = {}
  for i, object in ipairs(odd) do parts[i] = cjson.encode(object) end
  local list = write("list.json", " \n[\n" .. table.concat(parts, " ,\n\t") .. "\n]\n\n")
  local tight = write("tight.json", "[" .. table.concat(parts, ",") .. "]")
  local lines = write("lines.jsonl", table.concat(parts, "\n"))
  for _, size in ipairs {16, 17, 64, 200, 2 ^ 22} do
    with_chunks(size, function()
      for _, file in ipairs {list, tight, lines} do
        local objects, places = objects_of(file)
        t.same(objects, odd, file)
        t.same(places[6], (file == lines and "line " or "record ") .. 6)
      end
    end)
  end
  t.same(#objects_of(write("none.json", "[ ]")), 0)
end)

t.case("a damaged list is refused, with the record", function()
  for text, message in pairs {
    ['[{"text": "a"}, {"text": '] = "the list ends within record 2: the file is cut off",
    ['[{"text": "a"}'] = "the list ends within record 1", ["["] = "within record 1",
    ['[{"text": "a"},]'] = "record 2 is missing", ['[{"text": "a"},,{}]'] = "record 2 is missing",
    ['[{"text": "a"}] {}'] = "after record 1, the end of the list, there is more",
    ['[{"text": "a"}}'] = "after record 1 there is a '}'", ['[1, 2]'] = "record 1 is 1, not a JSON",
    ['["one"]'] = "record 1 is 'one', not a JSON object", ['[[1], 2]'] = "record 1 is a list, not",
    ['[{"text": "a" "b"}]'] = "record 1 is not a JSON object (Expected",
    ['[{"text": 5}]'] = "record 1: 'text' is 5; a text is needed",
  } do
    for _, size in ipairs {2 ^ 22, 16} do
      with_chunks(size, function()
        refused("b.json", text, message)
      end)
    end
  end
end)

t.case("lines keep their numbers beyond a chunk", function()
  local lines = {}
  for i = 1, 500 do lines[i] = ('{"text": "%s"}'):format(("w "):rep(i % 13)) end
  lines[301], lines[500] = "", '{"text": 5}'
  for _, size in ipairs {16, 40, 128, 1000, 2 ^ 22} do
    with_chunks(size, function()
      refused("n.jsonl", table.concat(lines, "\n"), "n.jsonl', line 500: 'text' is 5")
      refused("n.jsonl", table.concat(lines, "\r\n") .. "\r\n", "n.jsonl', line 500: 'text' is 5")
    end)
  end
end)

t.case("messages about records quote little of them", function()
  local long = ("long "):rep(4000)
  refused("l.jsonl", cjson.encode {text = {long, long}}, "line 1: 'text' is a list; a text is")
  refused("l.jsonl", cjson.encode {text = {a = long}}, "'text' is an object; a text")
  refused("l.jsonl", cjson.encode(long), "line 1 is 'long long")
  refused("l.jsonl", '{"text": ' .. long .. "}", "line 1 is not a JSON object (Expected")
  refused("l.jsonl", cjson.encode {[long] = 1}, "line 1 has no field 'text'; it has long long")
  refused("l.csv", long .. "\n" .. long, "has no field 'text'")
  refused("l.csv", ('"%s","%s"\n1,2'):format(long, long), "two columns have the name 'long")
  for _, case in ipairs {{"csv", ("a\n1\n%s\n"):format(long)}, {"csv", ("a\n1,%s\n"):format(long)},
                         {"jsonl", cjson.encode {a = 1} .. "\n" .. cjson.encode {a = long}},
                         {"jsonl", cjson.encode {a = 1} .. "\n" .. cjson.encode {[long] = 1}}} do
    local problem = t.fails(function() nn.data {[case[1]] = write("l." .. case[1], case[2])} end,
                            "l%." .. case[1] .. "', line %d")
    t.check(#problem < 600, problem)
  end
end)

t.case("one object over several lines, or with the records in a field, is refused with its names",
       function()
  refused("o.json", '{\n  "version": "1.1",\n  "data": [\n    {"text": "a"}\n  ]\n}\n',
          "line 1 is not a JSON object")
  refused("o.json", '{\n  "version": "1.1",\n  "data": [\n    {"text": "a"}\n  ]\n}\n',
          "the file seems to be one object (with version, data): nnlua reads an object a line, or "
          .. "a list of objects; convert it: python3 -c")
  refused("o.json", '{"version": "1.1", "data": [{"text": "a"}]}',
          "line 1 has no field 'text'; it has data, version; the records seem to be in 'data'; "
          .. "convert it: python3 -c \"import json; json.dump(json.load(open('FILE'))['data'], ")
  refused("o.json", '{"version": "1.1", "data": ["a"]}',
          "line 1 has no field 'text'; it has data, version; choose one with data.field=")
  refused("o.json", '{\n  "text": "a}",\n  "n": {"a": [1]}\n}\n{\n  "text": "b"\n}\n',
          "line 1 is not a JSON object (Expected object key string but found T_END at character "
          .. "2); its objects have several lines each: nnlua reads an object a line, or a list of "
          .. "objects; convert it: jq -c . FILE > NEW.jsonl")
end)

t.case("byte order marks are dropped, UTF-16 and what is no text is refused", function()
  local mark = "\239\187\191"
  local function read(name, text) return (texts.read(write(name, text), "text", "data.text")) end
  t.same(read("m.txt", mark .. "one\n"), "one\n")
  t.same(read("m.jsonl", mark .. '{"text": "one"}\r\n\r\n{"text": "two"}'), "one\ntwo")
  t.same(read("m.json", mark .. '[{"text": "one"}]'), "one")
  t.same(read("m.csv", mark .. 'text,n\r\n"one, ""1""\r\n!",1\r\nb,2'), 'one, "1"\r\n!\nb')
  with_chunks(16, function()
    t.same(read("m.txt", mark .. "one two three four five\n"), "one two three four five\n")
    t.same(read("m.json", mark .. '[{"text": "one two three"}]'), "one two three")
  end)
  local function utf16(text) return (text:gsub(".", "%0\0")) end
  for _, name in ipairs {"u.txt", "u.jsonl", "u.json", "u.csv"} do
    refused(name, "\255\254" .. utf16 '{"text": "hello world"}\n', "is a text in UTF-16; nnlua "
            .. "reads UTF-8; convert it: iconv -f UTF-16 -t UTF-8")
    refused(name, "\254\255\0" .. utf16 '{"text": "hello world"}\n', "is a text in UTF-16")
    refused(name, utf16 '{"text": "hello world"}\n', "is a text in UTF-16")
    refused(name, "PAR1\21\4" .. ("\0\1"):rep(99), "is a Parquet file, not a text; convert it")
    refused(name, "PK\3\4" .. ("\0\1"):rep(99), "is a zip archive, not a text; unpack it first")
    refused(name, "\147NUMPY\1\0", "is a numpy array, not a text; give token ids as data.bin")
  end
  refused("r.jsonl", '{"text": "caf\233"}\n', "line 1: 'text' is not UTF-8 text (byte 3 of it)")
  refused("z.jsonl", '{"text": "a"}\0{"text": "b"}\n', "line 1 is not a JSON object (it has a zero")
  refused("a.csv", "text,n\nГ\n", "line 2 has 1 cells; the first line has 2")
  t.same(t.shell(("cd %s && echo words >w.txt && tar cf w.tar w.txt && gzip <w.tar >t.txt.gz")
                 :format(folder)), 0)
  t.fails(function() read("t.txt.gz", files.read(path "t.txt.gz")) end, "is a tar archive")
end)

t.case("a tokenizer is not trained on what is no text", function()
  local function train(text)
    return nn.train_tokenizer({files = {write("v.txt", text)}}, {size = 260})
  end
  t.fails(function() train "\31\139\8\0 compressed" end, "v.txt' is compressed by gzip, not a text")
  t.fails(function() train "\255\254a\0b\0c\0" end, "v.txt' is a text in UTF-16")
  t.same(train("\239\187\191abab").symbols, train("abab").symbols)
end)

t.case("whole numbers keep their digits or are refused", function()
  for text, kept in pairs {
    ['{"a": 9007199254740993}'] = '{"a": "9007199254740993"}', ['{"a": 9007199254740992}'] = true,
    ['[-12345678901234567890,1]'] = '["-12345678901234567890",1]',
    ['{"a": 1e400}'] = '{"a": "1e400"}',
    ['{"a": "9007199254740993", "b\\"9007199254740993": 1.23456789012345678}'] = true,
    ['{"a": -0, "b": 1e22, "c": 10000000000000000000000}'] = true,
  } do t.same(numbers.keep_digits(text), kept == true and text or kept) end
  local function column(kind, text, options)
    options = options or {}
    options[kind] = write("n." .. kind, text)
    return nn.data(options):batch()
  end
  local function denied(kind, text, message, options)
    t.fails(function() column(kind, text, options) end, message)
  end
  t.same(column("jsonl", '{"id": 9007199254740993}'), {"9007199254740993"})
  t.same(column("jsonl", '{"id": 16777217}', {dtypes = {id = "i64"}}):table(), {16777217})
  local lost = 'which has more digits than a number keeps; dtypes = {id = "text"} reads texts'
  local one, long = '{"id": 1}', '{"id": 9007199254740993}'
  denied("jsonl", one .. "\n" .. long, "line 2: field 'id' is 9007199254740993, " .. lost)
  denied("jsonl", long .. "\n" .. one, "line 1: field 'id' is 9007199254740993, " .. lost)
  denied("jsonl", long, "line 1: field 'id' is 9007199254740993, " .. lost, {dtypes = {id = "i64"}})
  local as_text = {dtypes = {id = "text"}, batch = 2, shuffle = false}
  t.same(column("jsonl", one .. "\n" .. long, as_text), {"1", "9007199254740993"})
  denied("jsonl", one .. '\n{"id": 1.5}', "line 2: field 'id' is 1.5, not a text or a whole number",
         as_text)
  denied("jsonl", '{"id": true}\n{"id": 5}', "line 2: field 'id' is 5; the first is a boolean")
  denied("jsonl", '{"id": [5, 6]}\n{"id": [5, true]}', "line 2: field 'id' is true; the first is a "
         .. "number")
  t.same(column("jsonl", '{"id": true}\n{"id": 5}', {dtypes = {id = "f32"}, batch = 2,
                                                     shuffle = false}):table(), {1, 5})
  t.same(column("csv", "x\n16777217.0\n1e20\n", {batch = 2, shuffle = false}):table(),
         nn.tensor({16777217, 1e20}):table())
  t.same(column("jsonl", '{"x": 1e20}'):table(), nn.tensor({1e20}):table())
  denied("jsonl", '{"id": 16777217}', "line 1: field 'id' is 16777217, which f32 cannot hold; "
         .. 'dtypes = {id = "i64"}')
  denied("csv", "id\n5\n16777217\n", "line 3: field 'id' is 16777217, which f32 cannot hold")
  denied("csv", "id\n9007199254740993\n", "'id' is 9007199254740993, of which a number loses",
         {dtypes = {id = "i64"}})
  local x = column("csv", "x\ninf\n-inf\n+Inf\nnan\n1\n", {shuffle = false, batch = 5}):table()
  t.same({x[1], x[2], x[3], x[4] ~= x[4], x[5]},
         {math.huge, -math.huge, math.huge, true, 1})
  denied("csv", "id\n1e400\n", "of which a number loses digits")
  denied("csv", "id\n12\n045\n", "line 3: 'id' is '045'; a number is needed as in the rows before")
  t.same(column("csv", "zip\n045\n12\n"), {"045"})
  t.same(column("csv", "zip\n045\n12\n", {dtypes = {zip = "f32"}}):table(), {45})
end)

t.case("the first line of a table must have names, and the separator of its file", function()
  refused("h.csv", "text;label\none;1\n", "one column, 'text;label', as ',' separates its cells")
  refused("h.tsv", "text,label\none,1\n", "as a tab separates its cells")
  refused("h.csv", "5.1,3.5,0\n4.9,3.0,1\n", "first line has numbers, '5.1,3.5,0'; it must have")
  for _, text in ipairs {"7,0,3\n", "0,1\n1,0\n1,1\n", "1,2,3\n4,5,6\n", "0\n1\n", "1\n0\n",
                         "5\n", "0,1,2\n", "2020\n2021\n", "nan,1\n", "-1,0\n1,1\n"} do
    refused("h.csv", text, "the first line has numbers")
    t.fails(function() nn.data {csv = path "h.csv"} end, "the first line has numbers")
  end
  local indexed = write("index.csv", ",text,\n0,a,x\n1,b,y\n")       -- as pandas writes an index
  t.same((texts.read(indexed, "text", "data.text")), "a\nb")
  t.fails(function() texts.read(indexed, "x", "data.text") end, "no field 'x'; it has text; choose")
  t.same(nn.data({csv = indexed, columns = {y = "text"}}).count, 2)
  t.fails(function() nn.data {csv = indexed} end, "column 1 has no name in the first line; name it")
  t.same((texts.read(write("years.csv", "2020,2021\na,b\n"), "2021", "data.text")), "b")
end)

t.finish()
