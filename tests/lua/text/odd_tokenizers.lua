-- tokenizer.json files in which an entry is absent, null or unusual (tests/golden/
-- make_odd_tokenizers.py): the ids and the texts of the library tokenizers, or an error.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local golden = files.parse_json(files.read(host.root .. "/tests/golden/odd_tokenizers.json"))
local path = t.folder() .. "/tokenizer.json"

-- The tokenizer of a file that differs from a base; or nil and the error.
local function tokenizer_of(name, first, cut, put)
  local base = golden.bases[name:match "^%S+"]
  files.write(path, base:sub(1, first) .. put .. base:sub(first + cut + 1))
  local good, tokenizer = pcall(nn.tokenizer, path)
  if good then return tokenizer end
  t.check(type(tokenizer) == "table" and tokenizer.message:find(path, 1, true), tostring(tokenizer))
  return nil, tokenizer.message
end

local function is_given(value) return type(value) == "table" end        -- and not null

-- "ids|text" of a text. Added tokens that are searched in normalized text decode as that in the
-- library, so texts of the base `words` are not compared.
local function printed(ids, text, name)
  return table.concat(ids, " ") .. "|" .. (name:find "^words" and "" or text)
end

-- Settings that the library needs, but that change no ids.
local without_effect = {"trim_offsets", "ByteLevel post_processor"}

local function has_no_effect(name)
  for _, part in ipairs(without_effect) do
    if name:find(part, 1, true) then return true end
  end
end

t.case("files with absent, null and unusual entries give the library's ids, or are refused",
       function()
  local counts = {equal = 0, refused_by_both = 0, refused_here = 0}
  local function count(name) counts[name] = counts[name] + 1 end
  for _, case in ipairs(golden.cases) do
    local name, expected = case[1], golden.results[case[5] + 1]
    local tokenizer = tokenizer_of(name, case[2], case[3], case[4])
    if not tokenizer then
      count(is_given(expected) and "refused_here" or "refused_by_both")
    elseif not has_no_effect(name) or is_given(expected) then
      t.check(is_given(expected), name .. ": the library refuses it")
      for i, text in ipairs(golden.texts) do
        t.check(is_given(expected[i]), name .. ": the library refuses a text")
        local ids = tokenizer:ids(text, {special = true})
        t.same(printed(ids, tokenizer:decode(ids), name),
               printed(expected[i][1], expected[i][2], name), name)
      end
      count "equal"
    end
  end
  t.same(counts, {equal = 127, refused_by_both = 220, refused_here = 44})
end)

t.case("a character without a token is dropped with one warning", function()
  t.check(tokenizer_of("bytes", 0, 0, ""), "the base")
  local status, output = t.shell(([[cat >%s <<'END'
local words = nn.tokenizer(%q)
for _ = 1, 2 do print(table.concat(words:ids("a\4b\5", {add_special = false}), " ")) end
print(#words:ids "xx" - #words:ids "")
END
$NNLUA %s 2>&1]]):format(path .. ".lua", path, path .. ".lua"))
  t.same(status, 0)
  local lines, warnings = {}, 0
  for line in output:gmatch "[^\n]+" do
    if line:find("warning: ", 1, true) then
      warnings = warnings + 1
      t.check(line:find("'\\x04', for which the vocabulary has no token", 1, true), line)
    else
      lines[#lines + 1] = line
    end
  end
  t.same({warnings, lines}, {1, {"2 3", "2 3", "2"}})
end)

t.finish()
