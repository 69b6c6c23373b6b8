-- docs/tutorial.md is true: its Lua blocks run in order as one script and print the output that
-- follows them, so do its commands, and its C++ compiles. NNLUA_UPDATE=1 writes the real output
-- into the document, except where it omits something (`...`).

local ffi = require "ffi"
local files = require "nn.io.files"
local t = require "nn.test"
local root = package.loaded["nn.host"].root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local pattern_of = require("examples").pattern_of

local path = root .. "/docs/tutorial.md"
local document = files.read(path)
local folder = t.folder()

-- {{kind="lua", file=, code=, output= (a block), line=}, ...}: a block without a kind is the output
-- of the block before it, if that one runs.
local function read_blocks()
  local blocks, block, number = {}, nil, 0
  for line in document:gmatch "(.-)\n" do
    number = number + 1
    local fence, info = line:match "^(```)(.*)$"
    if fence and not block then
      block = {kind = info:match "^%S+" or "", file = info:match "file=(%S+)", line = number}
    elseif fence then
      block.code = #block > 0 and table.concat(block, "\n") .. "\n" or ""
      local last = blocks[#blocks]
      if block.kind == "" and last and last.kind ~= "cpp" and not last.output then
        last.output = block
      else
        blocks[#blocks + 1] = block
      end
      block = nil
    elseif block then
      block[#block + 1] = line
    end
  end
  return blocks
end

-- Splits a line into numbers and the text between them, without alignment.
local function pieces(line)
  local out, at = {}, 1
  line = line:gsub("%s+", " "):gsub("^ ", "")
  for text, number, after in line:gmatch "(.-)(%-?%d+%.?%d*[eE]?[-+]?%d*)()" do
    out[#out + 1], out[#out + 2], at = text, number, after
  end
  out[#out + 1] = line:sub(at)
  return out
end

-- Whether a printed line matches: whole numbers exactly, others within 2 % and two units of their
-- last digit, since instruction sets differ; `...` matches anything.
local function same_line(stated, printed)
  if stated:find("...", 1, true) then return printed:find(pattern_of(stated)) ~= nil end
  local a, b = pieces(stated), pieces(printed)
  for i = 1, math.max(#a, #b) do
    local x, y = tonumber(a[i] or ""), tonumber(b[i] or "")
    local decimals = a[i] and a[i]:match "%.(%d+)"
    if not (x and y and decimals) then
      if a[i] ~= b[i] then return false end
    elseif math.abs(x - y) > 0.02 * math.abs(x) + 2 * 10 ^ -#decimals then
      return false
    end
  end
  return true
end

-- A line `...` matches any number of lines.
local function same_lines(stated, printed, i, j)
  i, j = i or 1, j or 1
  if i > #stated then return j > #printed end
  if stated[i] == "..." then
    for k = j, #printed + 1 do
      if same_lines(stated, printed, i + 1, k) then return true end
    end
    return false
  end
  return printed[j] ~= nil and same_line(stated[i], printed[j])
    and same_lines(stated, printed, i + 1, j + 1)
end

local function lines_of(text)
  local out = {}
  for line in text:gmatch "[^\n]+" do out[#out + 1] = line end
  return out
end

local updates = {}   -- line of an output block -> its real text
local function compare(block, printed)
  local stated = block.output and block.output.code or ""
  if os.getenv "NNLUA_UPDATE" and block.output and not stated:find("...", 1, true) then
    updates[block.output.line] = printed
  elseif not same_lines(lines_of(stated), lines_of(printed)) then
    error(("the block in line %d prints\n%s\nand not\n%s"):format(block.line, printed, stated), 0)
  end
end

local blocks = read_blocks()

-- The files that the reader saves: scripts, and modules for the Lua blocks.
for _, block in ipairs(blocks) do
  if block.file and block.kind == "lua" then
    assert(loadstring(block.code, "=" .. block.file))
    local file = folder .. "/" .. block.file
    files.make_folder(file:match "^(.*)/")
    files.write(file, block.code)
  end
end

t.case("the Lua blocks run as one script and print the output that follows them", function()
  local script, order, printed, current = {}, {}, {}, nil
  for _, block in ipairs(blocks) do
    if block.kind == "lua" and not block.file then
      order[#order + 1] = block
      script[#script + 1] = ("__block(%d)\n%s"):format(#order, block.code)
    end
  end
  local globals = setmetatable({}, {__index = _G})
  function globals.__block(i)
    current = i
    printed[i] = {}
  end
  function globals.print(...)
    local words = {}
    for i = 1, select("#", ...) do words[i] = tostring((select(i, ...))) end
    table.insert(printed[current], table.concat(words, "\t") .. "\n")
  end
  ffi.cdef "int chdir(const char *path);"
  ffi.C.chdir(folder)
  package.path = folder .. "/?.lua;" .. package.path     -- as where nnlua starts there
  local chunk = setfenv(assert(loadstring(table.concat(script), "=tutorial")), globals)
  local good, problem = pcall(chunk)
  if not good then error(("line %d: %s"):format(order[current].line, tostring(problem)), 0) end
  t.check(#order > 15, #order .. " blocks")
  for i, block in ipairs(order) do compare(block, table.concat(printed[i])) end
end)

t.case("the commands run and print the output that follows them", function()
  local commands = 0
  for _, block in ipairs(blocks) do
    if block.kind == "sh" then
      local all = {}
      for _, line in ipairs(lines_of(block.code)) do
        local command = line:gsub("^%./nnlua", "$NNLUA")
        command = command:gsub(" recipes/", " " .. root .. "/recipes/")
        command = command:gsub(" memory%.disk=%S+", "%0 memory.disk_in_ram=true")   -- for tmpfs
        all[#all + 1] = select(2, t.shell(("cd %s; %s"):format(folder, command)))
        commands = commands + 1
      end
      -- Progress is shown on slow machines only.
      compare(block, (table.concat(all):gsub("planning: [^\n]*\n", "")))
    end
  end
  t.check(commands > 3, commands .. " commands")
end)

t.case("the C++ compiles", function()
  if t.shell "command -v c++ >/dev/null" ~= 0 then t.skip "there is no C++ compiler" end
  local count = 0
  for _, block in ipairs(blocks) do
    if block.kind == "cpp" and block.file then
      local name = folder .. "/" .. block.file:match "[^/]*$"
      files.write(name, block.code)
      local status, output = t.shell(
        ("c++ -std=c++20 -fsyntax-only -DNN_TARGET=baseline -I '%s' %s"):format(root, name))
      t.check(status == 0, output)
      count = count + 1
    end
  end
  t.same(count, 2)
end)

-- The document with the real outputs.
local function updated()
  local out, number, skipping = {}, 0, false
  for line in document:gmatch "(.-)\n" do
    number = number + 1
    if skipping and line == "```" then skipping = false end
    if not skipping then out[#out + 1] = line end
    if updates[number] then
      out[#out + 1], skipping = updates[number]:gsub("\n$", ""), true
    end
  end
  return table.concat(out, "\n") .. "\n"
end
if next(updates) then files.write(path, updated()) end

t.finish()
