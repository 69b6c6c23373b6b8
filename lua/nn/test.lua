-- Test scripts: cases named as sentences, comparisons that show the difference, gradient checks,
-- and a last line `N passed, N failed, N skipped`. A test is a Lua file like
--     local nn, t = require "nn", require "nn.test"
--     t.case("softmax rows sum to one", function()
--       t.near(nn.randn(3, 5):softmax():sum{axis = -1}, nn.ones(3))
--     end)
--     t.finish()
-- and `nnlua FILE [--junit=REPORT.xml] [--times] [PART OF A NAME ...]` runs it.

local arguments = require "nn.base.arguments"
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local nn = require "nn"
local tensor = require "nn.core.tensor"

local M = {}
local passed, failed, skipped = 0, 0, 0
local tolerance_options = arguments.names "abs rel"
local results = {}   -- a {name=, seconds=, status=, text=} per case
local folders = {}
local Skip = {__tostring = function(self) return self.why end}

-- The command line: options by name, and words that select cases.
local function read_command_line()
  local options, words = {}, {}
  for _, word in ipairs(arg or {}) do
    local name, value = word:match "^%-%-(%a+)=?(.*)$"
    if name and name ~= "junit" and name ~= "times" or name == "junit" and value == "" then
      lib.fail("a test takes --junit=FILE, --times and parts of names, not '%s'", word)
    end
    if name then options[name] = value else words[#words + 1] = word end
  end
  return options, words
end
local options, words = read_command_line()

local function chosen(name)
  for _, word in ipairs(words) do
    if name:find(word, 1, true) then return true end
  end
  return #words == 0
end

-- The message of an error with its position, or a Skip unchanged.
local function explain(problem)
  if getmetatable(problem) == Skip then return problem end
  local lines = {}
  for line in debug.traceback("", 2):gmatch "[^\n]+" do
    if line:find "^%s+%S+%.lua:%d+" and not line:find "nn/test%.lua" and #lines < 4 then
      lines[#lines + 1] = "    " .. line:match "^%s*(.*)$"
    end
  end
  return tostring(problem) .. "\n" .. table.concat(lines, "\n")
end

--- t.case(sentence, f): runs f() as a test, unless words on the command line select others. The
--- test fails if f raises an error. Prints the result and the seconds. A test file ends with
--- t.finish(); run it with `nnlua FILE [PART OF A NAME ...] [--times] [--junit=REPORT.xml]`.
---     t.case("softmax rows sum to one", function()
---       t.near(x:softmax():sum{axis = -1}, nn.ones(2))
---     end)
function M.case(name, f)
  if not chosen(name) then return end
  local start = nn.now()
  local good, problem = xpcall(f, explain)
  local result = {name = name, seconds = nn.now() - start, status = "passed"}
  if good then
    passed = passed + 1
    print(("ok      %s (%.1f s)"):format(name, result.seconds))
  elseif getmetatable(problem) == Skip then
    skipped = skipped + 1
    result.status, result.text = "skipped", problem.why
    print(("skipped %s: %s"):format(name, problem.why))
  else
    failed = failed + 1
    result.status, result.text = "failed", problem
    print(("FAILED  %s\n  %s"):format(name, problem))
  end
  results[#results + 1] = result
  io.flush()
end

--- t.skip(why): ends the case and marks it as skipped.
---     t.skip "there is no GPU"  --> error: there is no GPU
function M.skip(why) error(setmetatable({why = why}, Skip), 0) end

local entities = {["<"] = "&lt;", [">"] = "&gt;", ["&"] = "&amp;", ['"'] = "&quot;"}
-- Escapes text for XML; control characters, which XML cannot represent, become "?".
local function xml(text)
  return (text:gsub('[<>&"]', entities):gsub("[%z\1-\8\11-\31]", "?"))
end

-- Writes a report in JUnit's XML, which continuous integration servers read.
local function write_junit(path)
  local suite = (arg[0] or "test"):gsub("%.lua$", "")
  local lines, seconds = {}, 0
  for _, case in ipairs(results) do
    seconds = seconds + case.seconds
    lines[#lines + 1] = ('  <testcase classname="%s" name="%s" time="%.3f">'):format(
      xml(suite), xml(case.name), case.seconds)
    local first = xml((case.text or ""):match "^[^\n]*")
    if case.status == "failed" then
      lines[#lines + 1] = ('    <failure message="%s">%s</failure>'):format(first, xml(case.text))
    elseif case.status == "skipped" then
      lines[#lines + 1] = ('    <skipped message="%s"/>'):format(first)
    end
    lines[#lines + 1] = "  </testcase>"
  end
  local head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    .. '<testsuite name="%s" tests="%d" failures="%d" skipped="%d" time="%.3f">\n'
  files.write(path, head:format(xml(suite), #results, failed, skipped, seconds)
              .. table.concat(lines, "\n") .. "\n</testsuite>\n")
end

-- The ten slowest cases.
local function print_times()
  table.sort(results, function(a, b) return a.seconds > b.seconds end)
  for i = 1, math.min(10, #results) do
    print(("%7.2f s  %s"):format(results[i].seconds, results[i].name))
  end
end

--- t.finish(): prints the summary and ends the program, with status 1 if a case failed. With
--- --times it also prints the slowest cases; with --junit=FILE it writes a report in JUnit's XML.
---     t.finish  --> function...
function M.finish()
  for _, folder in ipairs(folders) do files.remove(folder) end
  if options.junit then write_junit(options.junit) end
  if options.times then print_times() end
  print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
  os.exit(failed > 0 and 1 or 0)
end

local function fail(...) error(string.format(...), 3) end

--- t.check(condition, message): fails with the message unless the condition is true.
---     t.check(x:dim(1) > 2, "too few rows")  --> error: too few rows
function M.check(condition, message)
  if not condition then fail("%s", message or "the condition does not hold") end
end

-- Converts tensors to numbers and nested tables for comparison.
local function plain(x) return tensor.is_tensor(x) and x:table() or x end

local function show(x)
  if type(x) == "number" then return ("%.9g"):format(x) end
  return type(x) == "string" and ("%q"):format(x) or tostring(x)
end

-- A text on the first difference of two values, and its path; nil if they agree. equal(a, b)
-- compares leaves.
local function difference(a, b, equal)
  a, b = plain(a), plain(b)
  if type(a) ~= "table" or type(b) ~= "table" then
    if equal(a, b) then return nil end
    return ("%s, expected %s"):format(show(a), show(b)), ""
  end
  for key, value in pairs(a) do
    local found, path = difference(value, b[key], equal)
    if found then return found, ("[%s]%s"):format(tostring(key), path) end
  end
  for key, value in pairs(b) do
    if a[key] == nil then return "nil, expected " .. show(value), ("[%s]"):format(tostring(key)) end
  end
end

local function text_of(found, path)
  return path == "" and found or ("%s is %s"):format(path, found)
end

--- t.near(a, b, {abs=1e-6, rel=1e-5}): fails unless |a - b| <= abs + rel |b| for every element of
--- two numbers, nested tables or tensors of the same shape. If only one tolerance is given, the
--- other one is 0. NaN always fails.
---     t.near(x:mean(), 3.5)
---     t.near(nn.tensor{1, 2.1}, {1, 2}, {rel = 0.01})  --> error: [2] is 2.0999..., expected 2...
function M.near(a, b, tolerance)
  tolerance = arguments.options("near", tolerance or {abs = 1e-6, rel = 1e-5}, tolerance_options)
  local abs, rel = tolerance.abs or 0, tolerance.rel or 0
  local found, path = difference(a, b, function(x, y)
    if type(x) ~= "number" or type(y) ~= "number" then return x == y end
    return math.abs(x - y) <= abs + rel * math.abs(y) or x == y
  end)
  if found then fail("%s (tolerance %g + %g of it)", text_of(found, path), abs, rel) end
end

--- t.same(a, b): fails unless a and b are equal: numbers, strings, nested tables or tensors.
---     t.same({x:dims()}, {2, 3})
---     t.same(nn.tensor{1, 2}, {1, 3})  --> error: [2] is 2, expected 3
function M.same(a, b)
  local found, path = difference(a, b, function(x, y) return x == y end)
  if found then fail("%s", text_of(found, path)) end
end

--- t.fails(f, text) -> message: f() must raise an error whose message contains the text or matches
--- it as a Lua pattern.
---     t.fails(function() x:dim(3) end, "there is no axis 3")
function M.fails(f, text)
  local good, problem = pcall(f)
  if good then fail("there was no error; expected: %s", text) end
  local message = tostring(problem)
  local matches = message:find(text, 1, true) or message:find(text)
  if not matches then fail("the error is: %s\n  expected: %s", message, text) end
  return message
end

--- t.gradcheck(f, inputs, {abs=1e-7, rel=1e-6}): fails unless the gradient of f(unpack(inputs))
--- with respect to every float tensor in the inputs agrees with finite differences, along three
--- random directions. f returns a tensor of any shape; its elements are summed with random weights.
--- Inputs are converted to f64; the parameters of f should be f64 for this tolerance. Random
--- numbers in f are the same in every call.
---     t.gradcheck(function(a, b) return a:matmul(b):tanh() end, {nn.randn(3, 4), nn.randn(4, 2)})
---     local wrong = nn.custom{forward = function(v) return v * 2 end,
---                             backward = function(g) return g end}
---     t.gradcheck(wrong, {x})  --> error: the slope in input 1 is ..., finite differences give ...
function M.gradcheck(f, inputs, tolerance)
  require("nn.core.gradcheck").check(fail, f, inputs, tolerance)
end

--- t.folder() -> the path of a new, empty folder that finish() removes.
---     #t.folder() > 1  --> true
function M.folder()
  local name = os.tmpname()
  os.remove(name)
  files.make_folder(name)
  folders[#folders + 1] = name
  return name
end

--- t.program() -> the path of the running nnlua.
---     t.program():match "[^/]*$"  --> "nnlua"
function M.program()
  local path = ffi.new "char[4096]"
  return ffi.string(path, ffi.C.readlink("/proc/self/exe", path, 4096))
end

--- t.shell(command) -> exit status, all output. $NNLUA in the command is the running nnlua. The
--- status is 128 + N if signal N ended the command. `tests/run --quick` starts no processes and
--- skips the case.
---     t.shell "$NNLUA -e 'print(1)'; exit 3"  --> 3, "1\n"
function M.shell(command)
  if os.getenv "NNLUA_TEST_QUICK" then M.skip "it starts a process" end
  local name = os.tmpname()
  local script = io.open(name, "w")
  script:write("export NNLUA='", M.program(), "'\n", command, "\n")
  script:close()
  local pipe = io.popen(("bash %s 2>&1; echo \"status $?\""):format(name))
  local output, status = pipe:read("*a"):match "^(.*)status (%d+)\n$"
  pipe:close()
  os.remove(name)
  return tonumber(status), output
end

return M
