-- From tokens back to text: the decoders of tokenizer.json. The text of a token depends only on the
-- token and on whether it is the first, so that a text can be decoded while it grows. Where the
-- library tokenizers writes U+FFFD for bytes that are not UTF-8, they stay as they are.
local json_steps = require "nn.text.steps"
local lib = require "nn.base.capi"

local M = {}

local function plain(text, from, to)
  if from == "" then return text end
  return (text:gsub(from:gsub("%p", "%%%0"), (to:gsub("%%", "%%%%"))))
end

local function starts(text, with) return text:sub(1, #with) == with end

-- The signs before which English text has no space, as in the library.
local clean_ups = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
                   {" n't", "n't"}, {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"},
                   {" 've", "'ve"}, {" 're", "'re"}}

-- Each maker returns function(text, first) -> text.
local makers = {}

function makers.ByteLevel() return function(text) return text end end
makers.Fuse = makers.ByteLevel

function makers.ByteFallback()
  return function(text)
    local digits = #text == 6 and text:match "^<0x(%x%x)>$"
    return digits and string.char(tonumber(digits, 16)) or text
  end
end

function makers.Metaspace(step, need)
  need(type(step.replacement) == "string" and step.replacement ~= "", "replacement")
  local keeps_first = step.prepend_scheme == "never" or step.add_prefix_space == false
  return function(text, first)
    return plain(text, step.replacement, first and not keeps_first and "" or " ")
  end
end

function makers.WordPiece(step, need)
  need(type(step.prefix) == "string", "prefix")
  need(type(step.cleanup) == "boolean", "cleanup = true or false")
  return function(text, first)
    if not first then
      text = starts(text, step.prefix) and text:sub(#step.prefix + 1) or " " .. text
    end
    for _, pair in ipairs(step.cleanup and clean_ups or {}) do
      text = plain(text, pair[1], pair[2])
    end
    return text
  end
end

function makers.Replace(step, need)
  local pattern = type(step.pattern) == "table" and step.pattern.String
  need(type(pattern) == "string" and type(step.content) == "string", "pattern and content as texts")
  return function(text) return plain(text, pattern, step.content) end
end

-- Removes up to step.start times step.content at the begin, and step.stop times at the end.
function makers.Strip(step)
  return function(text)
    for _ = 1, step.start do
      if not starts(text, step.content) then break end
      text = text:sub(#step.content + 1)
    end
    for _ = 1, step.stop do
      if text:sub(-#step.content) ~= step.content then break end
      text = text:sub(1, -#step.content - 1)
    end
    return text
  end
end

local function check_strip(step, is_fused, need)
  for _, name in ipairs {"start", "stop"} do
    local number = step[name]
    need(type(number) == "number" and number >= 0 and number % 1 == 0 and number < 100, name)
  end
  need(type(step.content) == "string" and step.content ~= "", "content")
  need(not is_fused or step.stop == 0, "stop = 0 behind Fuse")
end

--- new(steps, path, given) -> decoder. steps: the decoders of a tokenizer.json in their order;
--- none: tokens are joined by spaces, unless an empty list is `given`. Errors, with `path`: a
--- decoder or a setting that is not supported.
function M.new(steps, path, given)
  local decoder, fused = {steps = {}, join = #steps == 0 and not given and " " or ""}, false
  for i, step in ipairs(steps) do
    local maker = makers[step.type]
    if not maker then
      lib.deny("%s: the decoder '%s' is not supported", path, json_steps.shown(step.type))
    end
    local function need(good, what)
      if not good then lib.deny("%s: the decoder %s needs %s", path, step.type, what) end
    end
    if step.type == "Strip" then check_strip(step, fused, need) end
    if fused and step.type == "Strip" then
      need(i == #steps, "to be the last behind Fuse")
      decoder.strip, decoder.strip_count = step.content, step.start
    else
      need(not fused or step.type == "Fuse", "a place before Fuse")
      decoder.steps[#decoder.steps + 1] = maker(step, need)
    end
    fused = fused or step.type == "Fuse"
  end
  return decoder
end

--- start(decoder) -> function(text of a token), which returns what the next token adds to the text.
function M.start(decoder)
  local first, left = true, decoder.strip_count or 0
  return function(text)
    for _, step in ipairs(decoder.steps) do text = step(text, first) end
    if not first then text = decoder.join .. text end
    first = false
    while left > 0 and text ~= "" do
      local found = starts(text, decoder.strip)
      text = found and text:sub(#decoder.strip + 1) or text
      left = found and left - 1 or 0
    end
    return text
  end
end

return M
