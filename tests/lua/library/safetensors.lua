-- Headers of safetensors files: what the library safetensors reads is read, the rest is refused
-- (tests/golden/make_safetensors.py). A tensor that nnlua cannot hold leaves the others readable.
local ffi = require "ffi"
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local golden = files.parse_json(files.read(host.root .. "/tests/golden/safetensors_headers.json"))
local path = t.folder() .. "/x.safetensors"

local function write(header, bytes)
  local length = ffi.new("uint64_t[1]", #header)
  local data = ("\0\0\128\63"):rep(math.ceil(bytes / 4)):sub(1, bytes)         -- 1 in f32
  files.write(path, ffi.string(length, 8) .. header .. data)
end

-- Headers that nnlua reads although the library refuses the file: unknown dtypes may be those of
-- later versions, and an empty list is a file without tensors.
local reads_more = {F128 = true, I4 = true, F99 = true, f32 = true, ["a list"] = true}
-- Where the library takes the last of two entries of a name.
local refuses_more = {["twice the same"] = true, ["twice, the last fits"] = true}

t.case("headers are read or refused as by the library", function()
  for _, case in ipairs(golden.cases) do
    local name, header, bytes, is_read = unpack(case)
    write(header, bytes)
    local good, tensors = pcall(nn.load_safetensors, path)
    local expected = reads_more[name] or is_read and not refuses_more[name]
    t.check(good == expected, name .. ": " .. tostring(tensors))
    if good and header:find '"a":{"dtype":"F32"' then t.same(tensors.a:table(), {1}, name) end
    if not good then
      t.check(tostring(tensors):find("is not a valid safetensors file", 1, true), tostring(tensors))
    end
  end
end)

t.case("a wrong dtype or size is refused with what is needed", function()
  for entry, expected in pairs {
    ['"shape":[1]'] = "'a' has no dtype", ['"dtype":3,"shape":[1]'] = "'a' has no dtype",
    ['"dtype":"F4","shape":[3]'] = "'a' has 4 bytes; its shape and dtype need 1.5",
    ['"dtype":"F32","shape":[1e0]'] = "shape is [1e0]; whole numbers in digits only are needed",
  } do
    write(('{"a":{%s,"data_offsets":[0,4]}}'):format(entry), 4)
    t.fails(function() nn.load_safetensors(path) end, expected)
  end
  write('{"\xff":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
  t.fails(function() nn.load_safetensors(path) end, "byte 2 of its header is not UTF-8")
  write('{"\xc3\xa4":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
  t.same(nn.load_safetensors(path)["\xc3\xa4"]:dims(), 1)
end)

t.case("a tensor that nnlua cannot hold is refused when it is used", function()
  local function says(dtype, shape, bytes, message)
    write(('{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"%s","shape":[%s],'
           .. '"data_offsets":[4,%d]}}'):format(dtype, shape, 4 + bytes), 4 + bytes)
    local tensors = nn.load_safetensors(path)
    t.same({tensors.a:item(), rawget(tensors, "b") == nil, tensors.c == nil}, {1, true, true})
    t.fails(function() return tensors.b end, path .. ": 'b' " .. message)
    local layer = nn.module "Layer"
    function layer:init() self.b = nn.parameter {1} end
    t.fails(function() layer():load(tensors) end, "'b'")
  end
  says("F8_E8M0", "4", 4, "is F8_E8M0 (4); nnlua reads F32, F64, BF16, F16, I32, I64, U8 and BOOL")
  says("F4", "2,4", 4, "is F4 (2,4); nnlua reads")
  says("U64", "1", 8, "is U64 (1); nnlua reads")
  says("F99", "7", 3, "is F99 (7); nnlua reads")
  says("F32", "0,3", 0, "has shape (0,3); nnlua's tensors have at least one element")
  says("F32", "1,1,1,1,1,1,1,1,1", 4, "has shape (1,1,1,1,1,1,1,1,1); nnlua's tensors have at "
       .. "most 8 axes")
end)

t.finish()
