-- Token files: each kind is read right or refused by what it is, and never taken for 16-bit ids.
-- The .npy files are numpy's (tests/golden/make_npy.py).
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local random = require("nn.data.random").random
local t = require "nn.test"
local token_file = require "nn.data.token_file"

local folder = t.folder()
local function write(name, text)
  local path = files.join(folder, name)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

-- The bytes of numbers of a C type.
local function bytes(kind, numbers)
  return ffi.string(ffi.new(kind .. "[?]", #numbers, numbers), #numbers * ffi.sizeof(kind))
end

-- Ids as a tokenizer gives them: frequent ones are small (Zipf's law), all below `vocab`.
local function text_ids(count, vocab)
  local ids = {}
  for i = 1, count do ids[i] = math.floor(vocab ^ random(count, i)) - 1 end
  return ids
end

local function ids_of(path, dtype)
  local file = token_file.open(path, "data.bin", dtype)
  local ids = {}
  for i = 1, file.count do ids[i] = file.tokens[i - 1] end
  return ids
end

local function refused(text, message, dtype)
  local problem = t.fails(function() token_file.open(write("a.bin", text), "data.bin", dtype) end,
                          message)
  t.check(#problem < 500 and not problem:find "model.vocab", problem)
end

t.case("numpy's files of whole numbers are read, others are refused by their elements", function()
  local all = nn.load_safetensors(host.root .. "/tests/golden/npy.safetensors")
  local advice = {f4 = "elements '<f4'", f8 = "'<f8'", f2 = "'<f2'", b1 = "'|b1'",
                  complex = "'<c8'", big = "big-endian numbers ('>u2')",
                  big8 = "big-endian numbers ('>i8')",
                  text = "'<U3'", bytes = "'|S3'", fields = "of several fields", objects = "'|O'",
                  time = "'<M8[s]'", scalar = "of shape ()", cube = "of shape (2, 5, 9)",
                  fortran = "columns are in order", npz = "is numpy's .npz, an archive of arrays"}
  local read, denied = 0, 0
  for name, tensor in pairs(all) do
    local what = name:match "^(.*)/file$"
    if what then
      local data, count = tensor:host(), tensor:count()
      local path = write(what .. ".npy", ffi.string(data, count))
      if all[what .. "/ids"] then
        t.same(ids_of(path), all[what .. "/ids"]:table(), what)
        read = read + 1
      else
        t.fails(function() token_file.open(path, "data.bin") end, advice[what])
        denied = denied + 1
      end
    end
  end
  t.same({read, denied}, {13, 16})
end)

t.case("a damaged numpy file is refused", function()
  local all = nn.load_safetensors(host.root .. "/tests/golden/npy.safetensors")
  local tensor = all["u2/file"]
  local whole = ffi.string(tensor:host(), tensor:count())
  for _, case in ipairs {{whole:sub(1, -2), "its numpy header says 90 numbers of 2 bytes"},
                         {whole .. "\0\0", "its numpy header says 90"},
                         {whole:sub(1, 9), "ends in its header"},
                         {whole:sub(1, 40), "ends in its header"},
                         {"\147NUMPY", "ends in its header"},
                         {"\147NUMPY\4\0" .. whole:sub(9), "version 4.0"},
                         {(whole:gsub("'descr'", "'dezcr'")), "of several fields"},
                         {(whole:gsub("%(90,%)", "(9x,)")), "of shape (?)"},
                         {(whole:gsub("False", "None ")), "fortran_order"}} do
    refused(case[1], case[2])
  end
end)

t.case("ids of negative numbers, or beyond the vocabulary, are errors before training", function()
  local function open(text, cfg)
    cfg.bin, cfg.split = write("b.bin", text), 0.5
    return nn.data(cfg, {context = 4, vocab = 100})
  end
  local head = "{'descr': '<i4', 'fortran_order': False, 'shape': (40,), }"
  local npy = "\147NUMPY\1\0" .. string.char(#head, 0) .. head
  local ids = text_ids(40, 100)
  t.same(open(npy .. bytes("int32_t", ids), {}).train.count, 20)
  ids[33] = -100
  t.fails(function() open(npy .. bytes("int32_t", ids), {}) end, "token -100 at position 32 (from "
          .. "0) is negative")
  ids[33], ids[4], ids[7] = 5, 100, 2 ^ 20
  t.fails(function() open(npy .. bytes("int32_t", ids), {}) end, "token 1048576 at position 6 "
          .. "(from 0), the largest one, is outside the vocabulary of 100; set model.vocab")
  t.fails(function() open(npy .. bytes("int32_t", ids), {dtype = "int64"}) end,
          "has ids of int32, as its header says; leave out data.dtype=int64")
  t.fails(function() open(bytes("uint16_t", {1, 2, 100, 4, 5, 6, 7, 8, 9, 9}), {}) end, "token "
          .. "100 at position 2 (from 0), the largest one, is outside the vocabulary of 100; "
          .. "nothing in the file says that it has 16-bit ids")
  local words = {text = write("t.txt", "words"), dtype = "uint32"}
  t.fails(function() nn.data(words, {context = 1}) end,
          "data.dtype=uint32 is the dtype of the ids in data.bin, which is not given; leave it out")
  local file = token_file.open(write("b.bin", bytes("uint16_t", {1, 2, 100, 4})), "bin")
  t.fails(function() token_file.check_ids(file, 100) end, "of 100; nothing in the file says that "
          .. "it has 16-bit ids; state the dtype of its ids (dtype)")
  local path = write("c.npy", npy .. bytes("int32_t", ids))
  t.fails(function() nn.data({bin = path}, {context = 4}) end, "c.npy' is a numpy file, and "
          .. "nothing states the vocabulary of its ids")
end)

t.case("ids without a header are read as 16 bits only where they can be that", function()
  for _, count in ipairs {4, 5, 6, 7} do
    local few = {7, 1, 64, 300, 2, 9, 5}
    refused(bytes("int32_t", {unpack(few, 1, count)}), "look like ids of 32 bits, not of 16; if "
            .. "they are, give data.dtype=uint32; if not, data.dtype=uint16")
    refused(bytes("int64_t", {unpack(few, 1, count)}), "look like ids of 64 bits, not of 16")
  end
  for _, vocab in ipairs {3, 65, 256, 300, 8192, 50257, 65536} do
    for _, count in ipairs {5, 100, 3000} do
      local ids = text_ids(count, vocab)
      t.same(ids_of(write("u2.bin", bytes("uint16_t", ids))), ids)
      for kind, dtype in pairs {uint32_t = "uint32", int32_t = "int32", int64_t = "int64",
                                uint64_t = "uint64"} do
        local text = bytes(kind, ids)
        if count > 5 then
          refused(text, ("look like ids of %d bits, not of 16; if they are, give data.dtype=uint")
                  :format(8 * ffi.sizeof(kind)))
        end
        t.same(ids_of(write("wide.bin", text), dtype), ids)
      end
    end
  end
  local large = text_ids(3000, 151936)                       -- beyond 16 bits
  refused(bytes("uint32_t", large), "look like ids of 32 bits")
  refused(bytes("int64_t", large), "look like ids of 64 bits")
  t.same(ids_of(write("q.bin", bytes("uint32_t", large)), "uint32"), large)
  local masked = text_ids(3000, 8192)
  for i = 1, #masked, 3 do masked[i] = -100 end
  refused(bytes("int32_t", masked), "look like ids of 32 bits")
  refused(bytes("int64_t", masked), "look like ids of 64 bits")
  refused(("\0"):rep(2 ^ 12) .. bytes("int32_t", text_ids(4e5, 50257)), "look like ids of 32 bits")
  t.same(ids_of(write("u8.bin", "\1\2\3"), "uint8"), {1, 2, 3})
  t.fails(function() ids_of(write("u8.bin", "\1\2\3"), "u2") end, "data.dtype is 'u2'; it must be")
  refused("\1\2\3", "has 3 bytes, an odd number")
  refused("\1\2\3\4\5\6", "has 6 bytes, no multiple of 4; data.dtype is uint32", "uint32")
  refused("", "is empty")
end)

t.case("bytes, floats and big-endian numbers are not taken for 16-bit ids", function()
  local ids, low, floats, noise = text_ids(3000, 5000), {}, {}, {}
  for i, id in ipairs(ids) do
    low[i] = id % 5 + 65
    floats[i] = (random(1, i) - 0.5) / 10
  end
  for i = 1, 60000 do noise[i] = math.floor(random(2, i) * 65536) end
  local swapped = {}
  for i, id in ipairs(text_ids(3000, 65)) do swapped[i] = id * 256 end
  refused(bytes("uint16_t", swapped), "look like 16-bit ids in big-endian order")
  local large = bytes("uint16_t", text_ids(3000, 50257))
  refused((large:gsub("(.)(.)", "%2%1")), "look like 16-bit ids in big-endian order")
  large = bytes("uint32_t", text_ids(3000, 50257))
  refused((large:gsub("(.)(.)(.)(.)", "%4%3%2%1")), "look wider than 16 bits, such as floats or "
          .. "big-endian numbers; convert them, from '>u4' or '<f4': np.fromfile(FILE, '>u4')")
  refused((bytes("uint8_t", low):gsub("A", "\1")), "look like 8-bit or compressed data")
  refused(bytes("uint16_t", noise), "look like 8-bit or compressed data")
  t.same(ids_of(write("noise.bin", bytes("uint16_t", noise)), "uint16"), noise)
  for _, count in ipairs {200, 1000, 5000, 60000} do              -- 65 characters, a byte each
    local chars = bytes("uint8_t", text_ids(count, 65))
    refused(chars, "look like 8-bit or compressed data, not like 16-bit token ids; if they are "
            .. "token ids, give data.dtype=uint8 or data.dtype=uint16")
  end
  for i = 1, 60000 do noise[i] = math.floor(noise[i] / 65536 * 50257) end
  for _, count in ipairs {50, 100, 300, 1000, 5000} do
    local some = {unpack(noise, 1, count)}
    t.same(ids_of(write("random.bin", bytes("uint16_t", some))), some)
    for i = 1, count, 2 do some[i] = 0 end                           -- padding
    for i = 2, count, 4 do some[i], some[i - 1] = 0, some[i] end
    t.same(ids_of(write("random.bin", bytes("uint16_t", some))), some)
  end
  t.same(ids_of(write("random.bin", bytes("uint16_t", noise))), noise)
  refused(bytes("float", floats), "look wider than 16 bits, such as floats")
  refused(bytes("double", floats), "look wider than 16 bits, such as floats")
  local half = {}                                            -- bf16: the upper halves of floats
  local words = ffi.cast("const uint16_t *", bytes("float", floats))
  for i = 1, #floats do half[i] = words[2 * i - 1] end
  refused(bytes("uint16_t", half), "fewer than 1% of its 16-bit numbers are below 2313")
end)

t.case("the magic number of a file of llm.c decides how it is read", function()
  local function header(magic, version, count, rest)
    local h = {magic, version, count}
    for i = 4, 256 do h[i] = 0 end
    return bytes("int32_t", h) .. (rest or "")
  end
  local ids = text_ids(50, 50257)
  t.same(ids_of(write("g.bin", header(20240520, 1, 50, bytes("uint16_t", ids)))), ids)
  ids = text_ids(50, 128256)
  t.same(ids_of(write("l.bin", header(20240801, 7, 50, bytes("uint32_t", ids)))), ids)
  refused(header(20240520, 1, 51, bytes("uint16_t", ids)), "its header says 51 tokens of 2 bytes")
  refused(header(20240520, 1, -1), "its header says -1 tokens")
  refused(header(20240520, 2, 0), "has version 2 in its header; nnlua reads version 1")
  refused(header(20240801, 1, 0), "has version 1 in its header; nnlua reads version 7")
  refused(header(20240520, 1, 50):sub(1, 40), "its header says 50 tokens")
  for magic, what in pairs {[20240326] = "a model of llm.c", [20240803] = "a model of llm.c",
                            [20240522] = "an evaluation set of llm.c",
                            [20240328] = "a tokenizer of llm.c",
                            [20240327] = "a debug state of llm.c",
                            [20240527] = "a training state of llm.c",
                            [20251231] = "a file of a kind that nnlua does not know"} do
    refused(header(magic, 1, 50257, ("\1\2"):rep(2000)), ("is %s (its first number is %d), not "
            .. "training data"):format(what, magic))
  end
end)

t.case("archives, arrays, models and texts are refused by what they are", function()
  local some = ("\1\2\3\0"):rep(600)
  local function pickle(start) return start .. some .. "." end
  for start, what in pairs {
    ["\31\139\8\0"] = "is compressed by gzip, not a token file; decompress it first",
    ["\40\181\47\253\0"] = "compressed by zstd", ["\2537zXZ\0"] = "compressed by xz",
    ["BZh91AY&SY"] = "compressed by bzip2", ["\4\34\77\24"] = "compressed by lz4",
    ["7z\188\175\39\28"] = "a 7-Zip archive", ["PAR1"] = "a Parquet file",
    ["GGUF\3"] = "a GGUF file", ["ARROW1\0\0"] = "an Arrow file",
    ["\137HDF\r\n\26\n"] = "an HDF5 file",
    ["\255\255\255\255\16\0\0\0"] = "an Arrow file", ["MMIDIDX\0\0"] = "the index of Megatron",
    ["SQLite format 3\0"] = "an SQLite database", ["\127ELF"] = "a program", ["%PDF-1.7"] = "a PDF",
    ["\137PNG\r\n\26\n"] = "a PNG image", ["\255\216\255\224"] = "a JPEG image",
    ["PK\3\4" .. ("\0"):rep(22) .. "\8\0\0\0a/data.bi"] = "a zip archive",
    ["PK\3\4" .. ("\0"):rep(22) .. "\16\0\0\0archive/data.pkl"] = "a file of torch.save",
    ["PK\3\4" .. ("\0"):rep(22) .. "\7\0\0\0ids.npy"] = "numpy's .npz",
    ["\20\0\0\0\0\0\0\0{\"x\":{}}            "] = "a safetensors file",
    [("a"):rep(257) .. "ustar"] = "a tar archive",
  } do refused(start .. some, what) end
  refused(pickle "\128\4\149\200\0\0\0\0\0\0\0", "a pickle of Python")
  refused(pickle "\128\2cnumpy\n", "a pickle of Python")
  refused("\128\2\138\10l\252\156F\249 j\168P\25" .. some, "a file of torch.save")    -- before 1.6
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
          "a pointer of Git LFS, without the data, not a token file; get the data: git lfs pull")
  for _, text in ipairs {'[{"text": "one"}, {"text": "two"}]\n', "plain words, one after another\n",
                         "Gr\252\223e aus M\252nchen, latin1\n", "привет, как дела?\n"} do
    refused(text:rep(2), "is a text, not a token file; give it as data.text=FILE")
  end
  refused("\255\254h\0e\0l\0l\0o\0", "is a text in UTF-16, not a token file")
end)

t.case("recipes read numpy's files, and the evaluation of a token file checks its ids", function()
  local all = nn.load_safetensors(host.root .. "/tests/golden/npy.safetensors")
  local tensor = all["i8/file"]
  write("i8.npy", ffi.string(tensor:host(), tensor:count()))
  write("wide.bin", bytes("uint32_t", text_ids(300, 64)))
  local head = "{'descr': '<i4', 'fortran_order': False, 'shape': (40,), }"
  write("large.npy", "\147NUMPY\1\0" .. string.char(#head, 0) .. head
        .. bytes("int32_t", text_ids(40, 200000)))
  local status, output = t.shell(([[cd %s && R=%s/recipes
    $NNLUA $R/gpt2_train.lua data.bin=i8.npy model.vocab=100000 model.layers=1 model.embd=16 \
      model.heads=1 model.context=4 model.dtype=f32 steps=1 final_batches=1 sample.tokens=0 \
      out=r 2>&1
    $NNLUA $R/gpt2_eval.lua model=r bin=i8.npy 2>&1
    $NNLUA $R/gpt2_eval.lua model=r bin=wide.bin 2>&1
    $NNLUA $R/gpt2_eval.lua model=r bin=large.npy 2>&1
    $NNLUA $R/gpt2_eval.lua model=r bin=wide.bin dtype=uint32 2>&1]]):format(folder, host.root))
  t.same(status, 0)
  t.check(output:find("90 tokens, context 4", 1, true), output)
  t.check(output:find("like ids of 32 bits, not of 16; if they are, give dtype=uint32", 1, true),
          output)
  t.check(output:find("of 100000; give a file of the model's tokenizer\n", 1, true), output)
  t.check(output:find("300 tokens, context 4", 1, true), output)
end)

t.finish()
