-- The test runner of tests/lua: cases named as sentences, comparisons that say what differs, and a
-- last line `N passed, N failed, N skipped`. Words on the command line pick cases by their names.
local ffi = require "ffi"
local files = require "nn.files"
local nn = require "nn"
local tensor = require "nn.tensor"

ffi.cdef "long readlink(const char *path, char *out, size_t size);"

local M = {}
local passed, failed, skipped = 0, 0, 0
local folders = {}
local Skip = {}

local function chosen(name)
  if not arg or #arg == 0 then return true end
  for _, word in ipairs(arg) do
    if name:find(word, 1, true) then return true end
  end
  return false
end

-- The message, and for mistakes in code (not for messages to people) where they happened.
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

--- case(sentence, f): runs f() as a test, unless words on the command line pick others. The test
--- fails if f raises an error.
---     t.case("softmax rows sum to one", function() t.near(x:softmax():sum(-1), nn.ones(3)) end)
function M.case(name, f)
  if not chosen(name) then return end
  local start = nn.now()
  local good, problem = xpcall(f, explain)
  if good then
    passed = passed + 1
    print(("ok      %s (%.1f s)"):format(name, nn.now() - start))
  elseif getmetatable(problem) == Skip then
    skipped = skipped + 1
    print(("skipped %s: %s"):format(name, problem.why))
  else
    failed = failed + 1
    print(("FAILED  %s\n  %s"):format(name, problem))
  end
  io.flush()
end

--- skip(why): ends the case; it counts as skipped.
function M.skip(why) error(setmetatable({why = why}, Skip), 0) end

--- finish(): prints the summary as the last line and ends the program, with status 1 where a test
--- failed.
function M.finish()
  for _, folder in ipairs(folders) do files.remove(folder) end
  print(("%d passed, %d failed, %d skipped"):format(passed, failed, skipped))
  os.exit(failed > 0 and 1 or 0)
end

local function fail(...) error(string.format(...), 3) end

--- check(condition, message): fails with the message unless the condition holds.
function M.check(condition, message)
  if not condition then fail("%s", message or "the condition does not hold") end
end

-- Numbers and nested tables for tensors, so that they compare like everything else.
local function plain(x) return tensor.is_tensor(x) and x:table() or x end

local function show(x)
  if type(x) == "number" then return ("%.9g"):format(x) end
  return type(x) == "string" and ("%q"):format(x) or tostring(x)
end

-- How two values differ, and the path to there: nil where they agree. equal(a, b) compares leaves.
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

--- near(a, b, {abs=1e-6, rel=1e-5}): numbers, nested tables or tensors of the same shape, every
--- element with |a - b| <= abs + rel |b|. NaN is near nothing.
function M.near(a, b, tolerance)
  local abs, rel = tolerance and tolerance.abs or 1e-6, tolerance and tolerance.rel or 1e-5
  if tolerance and not tolerance.abs then abs = 0 end
  if tolerance and not tolerance.rel then rel = 0 end
  local found, path = difference(a, b, function(x, y)
    if type(x) ~= "number" or type(y) ~= "number" then return x == y end
    return math.abs(x - y) <= abs + rel * math.abs(y) or x == y
  end)
  if found then fail("%s (tolerance %g + %g of it)", text_of(found, path), abs, rel) end
end

--- same(a, b): equal numbers, texts, nested tables, or tensors to the bit.
function M.same(a, b)
  local found, path = difference(a, b, function(x, y) return x == y end)
  if found then fail("%s", text_of(found, path)) end
end

--- fails(f, text) -> message: f() must raise an error whose message contains the text or matches it
--- as a Lua pattern.
function M.fails(f, text)
  local good, problem = pcall(f)
  if good then fail("no error came; expected: %s", text) end
  local message = tostring(problem)
  local matches = message:find(text, 1, true) or message:find(text)
  if not matches then fail("the error is: %s\n  expected: %s", message, text) end
  return message
end

--- folder() -> path of a new, empty folder that finish() removes.
function M.folder()
  local name = os.tmpname()
  os.remove(name)
  files.make_folder(name)
  folders[#folders + 1] = name
  return name
end

--- program() -> path of this nnlua.
function M.program()
  local path = ffi.new "char[4096]"
  return ffi.string(path, ffi.C.readlink("/proc/self/exe", path, 4096))
end

--- shell(command) -> exit status, everything it printed. $NNLUA in the command is this nnlua; the
--- status of a command that a signal ended is 128 + its number.
function M.shell(command)
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
