-- Files with random damage: each either loads and is consistent, or is refused by one message that
-- names it. Nothing crashes, no internal Lua error appears, and memory does not grow. tests/run
-- --sanitize runs this with the address sanitizer. FUZZ_MUTANTS: how many files.
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local hugging_face = require "nn.models.hugging_face"
local lib = require "nn.base.capi"
local nn = require "nn"
local safetensors = require "nn.io.safetensors"
local t = require "nn.test"
package.path = host.root .. "/tests/lua/support/?.lua;" .. package.path
local mutate = require "mutate"

local mutants = tonumber(os.getenv "FUZZ_MUTANTS") or 10000
local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or 1
local folder = t.folder()
local random = math.random

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

local function resident()
  local file = io.open "/proc/self/statm"
  local pages = file:read("*a"):match "^%d+ (%d+)"
  file:close()
  return tonumber(pages) * 4096
end

-- Loads `share` of all mutants: make(number) writes one; load() reads it and raises an error where
-- the result is inconsistent. Some must load, and some must be refused.
local function fuzz(share, make, load)
  local count, loaded = math.max(100, math.ceil(mutants * share)), 0
  local before, checked_at = nil, math.ceil(count / 3)
  for number = 1, count do
    math.randomseed(seed * 1e6 + number)
    make(number)
    local good, problem = pcall(load)
    loaded = loaded + (good and 1 or 0)
    if not good and not (lib.is_error(problem) and problem.message:find(folder, 1, true)) then
      error(("mutant %d (NNLUA_TEST_SEED=%d) of %s: %s"):format(number, seed, folder,
                                                         tostring(problem)), 0)
    end
    if number == checked_at then
      collectgarbage()
      collectgarbage()
      before = resident()
    end
  end
  collectgarbage()
  collectgarbage()
  local grown = resident() - before
  print(("        %d files, %d loaded; %.1f MB more in two thirds of them"):format(count, loaded,
                                                                              grown / 1e6))
  t.check(loaded > count / 100 and loaded < count * 0.9, "some load and some are refused")
  t.check(grown < 32e6, "memory grew")
end

-- ### safetensors

local sizes = {F32 = 4, F64 = 8, BF16 = 2, I32 = 4, I64 = 8, U8 = 1, BOOL = 1, F16 = 2}

-- Checks that an open file is what its header describes, and that every byte can be read.
local function check_safetensors(path, make_tensors)
  local file = safetensors.open(path)
  local size, room = file.map.size, 0
  for _, entry in ipairs(file.entries) do
    local unread, bytes = safetensors.problem(entry), sizes[entry.dtype] or 0
    for _, extent in ipairs(entry.shape) do bytes = bytes * extent end
    if unread then bytes = entry.bytes end
    local first = file:data(entry.name) - file.map.data
    if bytes ~= entry.bytes or first < 8 or first + bytes > size then
      error("what is read lies outside of " .. entry.name)
    end
    room = room + bytes
    files.crc32(file:data(entry.name), entry.bytes)
    if make_tensors and not unread then
      local x = file:tensor(entry.name)
      if x:bytes() ~= entry.bytes then error("another size: " .. entry.name) end
      if ffi.string(x:host(), x:bytes()) ~= ffi.string(file:data(entry.name), entry.bytes) then
        error("other bytes: " .. entry.name)
      end
      x:release()
    end
  end
  if file.begin + room ~= size then error "bytes of nobody" end
end

local function little_endian(number)
  local bytes = {}
  for i = 1, 8 do
    bytes[i] = string.char(number % 256)
    number = math.floor(number / 256)
  end
  return table.concat(bytes)
end

local function base_file()
  local path = folder .. "/base.safetensors"
  nn.save_safetensors(path, {
    a = nn.arange(6):reshape(2, 3), b = nn.tensor({1, 2, 3}, {dtype = "i32"}), c = nn.zeros {1, 4},
    ["with \"quotes\" and \226\130\172"] = nn.ones(4):to "bf16", scalar = nn.zeros {},
    flags = nn.tensor({1, 0, 1}, {dtype = "u8"}),
  }, {format = "pt", note = "x"})
  local text = files.read(path)
  local length = text:byte(1) + 256 * text:byte(2)
  return text:sub(9, 8 + length), text:sub(9 + length)
end

t.case("a damaged safetensors file is refused by name, or is what its header describes", function()
  local header, data = base_file()
  local path, number = folder .. "/x.safetensors", 0
  fuzz(0.7, function(i)
    number = i
    local text, rest = random(4) == 1 and mutate.bytes(header) or mutate.json(header), data
    local length = #text
    if random(8) == 1 then
      length = ({0, 1, 8, length - 1, length + 1, length + #rest, 2 ^ 31, 2 ^ 32 + length, 2 ^ 52,
                 2 ^ 63})[random(10)]
    end
    local whole = little_endian(length) .. text .. rest
    if random(8) == 1 then whole = mutate.bytes(whole) end
    write(path, whole)
  end, function() check_safetensors(path, number % 10 == 0) end)
end)

-- ### A Hugging Face checkpoint

local function copy_model(name)
  local from, to = host.root .. "/tests/golden/hf_gpt2", folder .. "/" .. name
  files.make_folder(to)
  nn.save_hf(to, (nn.load_hf(from)), nil, {shard_bytes = 30000})
  return to
end

local function check_model(path)
  local model = nn.load_hf(path)
  local count = math.min(3, model.config.context)
  local ids = nn.zeros({1, count}, {dtype = "i32"})
  local logits = nn.no_grad(model, ids)
  if #logits:table()[1] ~= count then error "no logits" end
  for _, p in ipairs(model:parameters()) do p.tensor:release() end
end

for name, share in pairs {["config.json"] = 0.015, ["model.safetensors.index.json"] = 0.015} do
  t.case("a damaged " .. name .. " is refused by name, or the model computes", function()
    local path = copy_model(name:gsub("%W", "_"))
    local text = files.read(path .. "/" .. name)
    fuzz(share, function()
      write(path .. "/" .. name, random(4) == 1 and mutate.bytes(text) or mutate.json(text))
    end, function() check_model(path) end)
  end)
end

-- Folders of small models with random weights, for every config.json of a folder of tests/golden;
-- and the texts of these files.
local function model_folders(kind)
  local golden, folders = ("%s/tests/golden/%s/"):format(host.root, kind), {}
  for _, name in ipairs(files.list(golden)) do
    local path = folder .. "/" .. name
    if files.exists(golden .. name .. "/config.json") then
      local class, settings = hugging_face.outline(golden .. name)
      nn.save_hf(path, class(settings))
      folders[#folders + 1] = {path = path, text = files.read(golden .. name .. "/config.json")}
    end
  end
  return folders
end

for kind, check in pairs {
  decoders = check_model, encoders = nn.load_hf, encoder_decoders = nn.load_hf,
} do
  t.case("a damaged config.json is refused by name, or the model works: " .. kind, function()
    local folders, number, path = model_folders(kind), 0, nil
    fuzz(kind == "decoders" and 0.01 or 0.004, function()
      number = number + 1
      local one = folders[number % #folders + 1]
      path = one.path
      write(path .. "/config.json", mutate.json(one.text))
    end, function()
      hugging_face.outline(path)
      check(path)
    end)
  end)
end

-- ### Tokenizers

local texts = {"the other then", "\0\255\226\130 \n", "<|endoftext|> \195\164 \226\150\129"}

-- Checks that a loaded tokenizer gives ids of its vocabulary, and decodes them; `restores`: to the
-- same text, or it warned of characters that it drops.
local function check_tokenizer(path, restores)
  local tokenizer = nn.tokenizer(path)
  for _, text in ipairs(texts) do
    local ids = tokenizer:ids(text, {special = true, add_special = not restores})
    for _, id in ipairs(ids) do
      if id < 0 or id >= tokenizer.size then error("an id of " .. id) end
    end
    local back = tokenizer:decode(ids)
    if restores and back ~= text and not tokenizer.has_warned then
      error "another text came back"
    end
  end
end

local function saved_tokenizer(name)
  local path = folder .. "/" .. name
  nn.train_tokenizer(("the other then there, these "):rep(20), {size = 270}):save(path)
  return path
end

t.case("a damaged tokenizer.json is refused by name, or encodes and decodes", function()
  local sources, number = {}, 0
  for name in ("gpt2 llama3 gpt_neox mistral llama2 t5 albert bert"):gmatch "%S+" do
    sources[#sources + 1] = files.read(host.root .. "/tests/golden/tokenizers/" .. name .. ".json")
  end
  local path = folder .. "/tokenizer.json"
  fuzz(0.09, function()
    number = number + 1
    local text = sources[number % #sources + 1]
    write(path, random(4) == 1 and mutate.bytes(text) or mutate.json(text))
  end, function() check_tokenizer(path) end)
end)

-- A folder with a copy of a file of tests/golden/sentencepiece as `name`, and a
-- tokenizer_config.json; and the path of the copy and its text.
local function golden_folder(file, name, config)
  local path = ("%s/%s of %s"):format(folder, name, config.tokenizer_class)
  files.make_folder(path)
  local text = files.read(host.root .. "/tests/golden/sentencepiece/" .. file)
  write(path .. "/" .. name, text)
  write(path .. "/tokenizer_config.json", files.json(config))
  return path, path .. "/" .. name, text
end

t.case("a damaged tokenizer.model or vocab.txt is refused by name, or encodes and decodes",
       function()
  local sources, number = {}, 0
  for _, one in ipairs {{"bpe_symbols_and_bytes.model", "tokenizer.model", "LlamaTokenizer"},
                        {"unigram_symbols.model", "sentencepiece.bpe.model", "XLMRobertaTokenizer"},
                        {"t5.model", "spiece.model", "T5Tokenizer"},
                        {"bpe_unused.model", "tokenizer.model", "GemmaTokenizer"},
                        {"vocab.txt", "vocab.txt", "BertTokenizer"}} do
    sources[#sources + 1] = {golden_folder(one[1], one[2], {tokenizer_class = one[3]})}
  end
  local path
  fuzz(0.05, function()
    number = number + 1
    local source = sources[number % #sources + 1]
    path = source[1]
    write(source[2], (path:find "vocab" and mutate.lines or mutate.bytes)(source[3]))
  end, function() check_tokenizer(path) end)
end)

t.case("a damaged tokenizer_config.json is refused by name, or the tokenizer works", function()
  local config = {tokenizer_class = "T5Tokenizer", extra_ids = 4, eos_token = "</s>",
                  add_prefix_space = true, additional_special_tokens = {"<extra_id_0>", "<a>"},
                  mask_token = {content = "<b>", lstrip = true},
                  added_tokens_decoder = {["0"] = {content = "<pad>", special = true}}}
  local path = golden_folder("t5.model", "spiece.model", config)
  local text = files.json(config)
  fuzz(0.02, function()
    write(path .. "/tokenizer_config.json", random(4) == 1 and mutate.bytes(text)
          or mutate.json(text))
  end, function()
    check_tokenizer(path)
    nn.tokenizer(path):save(path .. "/saved")
    check_tokenizer(path .. "/saved")
  end)
end)

for name, change in pairs {["vocab.json"] = mutate.json, ["merges.txt"] = mutate.lines} do
  t.case("a damaged " .. name .. " is refused by name, or restores any text", function()
    local path = saved_tokenizer(name:gsub("%W", "_"))
    files.remove(path .. "/tokenizer.json")
    local text = files.read(path .. "/" .. name)
    fuzz(0.09, function() write(path .. "/" .. name, change(text)) end,
         function() check_tokenizer(path, true) end)
  end)
end

t.finish()
