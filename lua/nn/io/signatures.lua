-- What a file is by its first bytes, whatever its name says. Readers of numbers and texts ask here
-- first, so that no archive, array or model is read as what it is not.
local ffi = require "ffi"
local lib = require "nn.base.capi"

local M = {}
local UNPACK, WEIGHTS = "unpack it first", "it has weights of a model"
local PANDAS = "convert it: python3 -c \"import pandas; pandas.read_%s('FILE').to_json("
  .. "'FILE.jsonl', orient='records', lines=True)\""
local IDS = "convert it to a numpy file: np.save('ids.npy', np.asarray(ids, dtype=np.uint32))"

-- The first bytes, what the file is, what to do.
local starts = {
  {"\31\139\8", "compressed by gzip", "decompress it first: gunzip FILE"},
  {"\40\181\47\253", "compressed by zstd", "decompress it first: zstd -d FILE"},
  {"\2537zXZ\0", "compressed by xz", "decompress it first: xz -d FILE"},
  {"BZh%d1AY&SY", "compressed by bzip2", "decompress it first: bzip2 -d FILE", pattern = true},
  {"\4\34\77\24", "compressed by lz4", "decompress it first: lz4 -d FILE"},
  {"7z\188\175\39\28", "a 7-Zip archive", UNPACK},
  {"PK\5\6", "an empty zip archive", UNPACK},
  {"\128\2\138\10l\252\156F\249 j\168P\25", "a file of torch.save", IDS},
  {"\147NUMPY", "a numpy array", "give token ids as data.bin"},
  {"PAR1", "a Parquet file", PANDAS:format "parquet"},
  {"ARROW1\0", "an Arrow file", PANDAS:format "feather"},
  {"\137HDF\r\n\26\n", "an HDF5 file", IDS},
  {"GGUF", "a GGUF file", WEIGHTS},
  {"MMIDIDX\0", "the index of Megatron's token files",
   "give the .bin file of the same name, with its dtype"},
  {"SQLite format 3\0", "an SQLite database", "export its texts"},
  {"\127ELF", "a program", "give texts or token ids"},
  {"%%PDF%-", "a PDF file", "convert it to text: pdftotext FILE", pattern = true},
  {"\137PNG\r\n\26\n", "a PNG image", "nn.data{images = FOLDER} reads images"},
  {"\255\216\255", "a JPEG image", "nn.data{images = FOLDER} reads images"},
  {"version https://git-lfs.github.com/spec/",
   "a pointer of Git LFS, without the data", "get the data: git lfs pull"},
}

local function little(p, at, bytes)
  local value = 0
  for i = bytes - 1, 0, -1 do value = value * 256 + p[at + i] end
  return value
end

local function zip(head)
  if head:sub(1, 4) ~= "PK\3\4" then return nil end
  local name = head:sub(31, 30 + (head:byte(27) or 0) + 256 * (head:byte(28) or 0))
  if name:find "%.npy$" then
    return "numpy's .npz, an archive of arrays", "save the ids alone: np.save('ids.npy', ids)"
  elseif name:find "data%.pkl$" then
    return "a file of torch.save", IDS
  elseif name:find "^%[Content_Types%]" or name:find "^word/" then
    return "an Office document", "save it as a text"
  end
  return "a zip archive", UNPACK
end

-- pickle of the protocols 2 to 5: the mark, an opcode that begins a value, and the final dot.
local function pickle(p, size)
  if size < 8 or p[0] ~= 0x80 or p[1] < 2 or p[1] > 5 or p[size - 1] ~= 46 then return nil end
  local framed = p[1] >= 4 and p[2] == 0x95 and little(p, 3, 8) <= size
  if framed or string.char(p[2]):find "[c}%](X\138]" then return "a pickle of Python", IDS end
end

local function safetensors(p, size)
  if size >= 10 and p[8] == 123 and little(p, 0, 8) <= size - 8 then
    return "a safetensors file", WEIGHTS
  end
end

-- A stream of Arrow, as the library datasets stores it: a mark and the size of a schema.
local function arrow(p, size)
  if size < 16 or little(p, 0, 4) ~= 0xFFFFFFFF then return nil end
  local bytes = little(p, 4, 4)
  if bytes > 0 and bytes % 8 == 0 and bytes < math.min(size, 2 ^ 24) then
    return "an Arrow file", "convert it: python3 -c \"import datasets; datasets.Dataset."
      .. "from_file('FILE').to_json('FILE.jsonl')\""
  end
end

--- of(p, size) -> what a file with these first bytes is, "a Parquet file", and what to do; nil for
--- plain texts, numbers without a header, and kinds that are not known here. p[0 .. size - 1]: all
--- bytes of a file, or the first ones, at least 512.
function M.of(p, size)
  p = ffi.cast("const uint8_t *", p)
  local head = ffi.string(p, math.min(size, 512))
  for _, start in ipairs(starts) do
    if start.pattern and head:find("^" .. start[1]) or head:sub(1, #start[1]) == start[1] then
      return start[2], start[3]
    end
  end
  if head:sub(258, 262) == "ustar" then return "a tar archive", UNPACK end
  for _, test in ipairs {safetensors, arrow, pickle} do
    local what, advice = test(p, size)
    if what then return what, advice end
  end
  return zip(head)
end

--- utf16(p, size) -> "UTF-16" or "UTF-32" if the text begins with its byte order mark, or if nearly
--- every second of the first bytes is zero, as in European texts; else nil.
function M.utf16(p, size)
  p = ffi.cast("const uint8_t *", p)
  if size >= 4 and (little(p, 0, 4) == 0xFEFF or little(p, 0, 4) == 0xFFFE0000) then
    return "UTF-32"
  elseif size >= 2 and (little(p, 0, 2) == 0xFEFF or little(p, 0, 2) == 0xFFFE) then
    return "UTF-16"
  end
  local count, zeros = math.min(size - size % 2, 512), {[0] = 0, 0}
  for i = 0, count - 1 do
    if p[i] == 0 then zeros[i % 2] = zeros[i % 2] + 1 end
  end
  local less, more = math.min(zeros[0], zeros[1]), math.max(zeros[0], zeros[1])
  return count >= 16 and less == 0 and more > 0.45 * count and "UTF-16" or nil
end

--- is_text(p, size) -> whether the first 4096 bytes, 16 or more, have no other control characters
--- than tabs and line ends. Token ids nearly always have some, whatever their width.
function M.is_text(p, size)
  p = ffi.cast("const uint8_t *", p)
  local count = math.min(size, 4096)
  for i = 0, count - 1 do
    local byte = p[i]
    if byte < 9 or byte > 13 and byte < 32 or byte == 127 then return false end
  end
  return count >= 16
end

--- need_text(path, p, size) -> true. Errors: the first bytes of the file are those of another kind,
--- or of UTF-16.
function M.need_text(path, p, size)
  local what, advice = M.of(p, size)
  if what then lib.deny("'%s' is %s, not a text; %s", path, what, advice) end
  local encoding = M.utf16(p, size)
  if encoding then
    lib.deny("'%s' is a text in %s; nnlua reads UTF-8; convert it: iconv -f %s -t UTF-8 FILE > NEW",
             path, encoding, encoding)
  end
  return true
end

--- mark_size(p, size) -> the bytes of a byte order mark at the beginning of UTF-8: 3 or 0.
function M.mark_size(p, size)
  return size >= 3 and p[0] == 0xEF and p[1] == 0xBB and p[2] == 0xBF and 3 or 0
end

return M
