-- nn.save_image: tensors as PNG files (ISO/IEC 15948), uncompressed: zlib's stored blocks (RFC 1950
-- and 1951).
local arguments = require "nn.base.arguments"
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"
local tensor = require "nn.core.tensor"

local M = {}
local known = arguments.names "columns gap"
local GRAY, RGB = 0, 2                     -- color types
local STORED = 65535                       -- bytes of a stored block, at most
local GAP = 2                              -- pixels between the images of a grid

-- A whole number as four bytes, the highest first.
local function big_endian(n)
  return string.char(math.floor(n / 2 ^ 24) % 256, math.floor(n / 2 ^ 16) % 256,
                     math.floor(n / 256) % 256, n % 256)
end

local function chunk(name, data)
  return big_endian(#data) .. name .. data .. big_endian(files.crc32(name .. data))
end

local function adler32(data)
  local a, b = 1, 0
  for i = 1, #data do
    a = (a + data:byte(i)) % 65521
    b = (b + a) % 65521
  end
  return b * 65536 + a
end

-- The data as a zlib stream of stored blocks.
local function stored(data)
  local parts = {"\120\1"}
  for first = 1, #data, STORED do
    local block = data:sub(first, first + STORED - 1)
    local size, last = #block, first + STORED > #data
    parts[#parts + 1] = string.char(last and 1 or 0, size % 256, math.floor(size / 256),
                                    255 - size % 256, 255 - math.floor(size / 256)) .. block
  end
  return table.concat(parts) .. big_endian(adler32(data))
end

-- pixels: height * (1 + width * channels) bytes; each row begins with its filter, 0.
local function png(pixels, height, width, channels)
  local data = ffi.string(pixels, height * (1 + width * channels))
  local header = big_endian(width) .. big_endian(height)
    .. string.char(8, channels == 3 and RGB or GRAY, 0, 0, 0)
  return "\137PNG\r\n\26\n" .. chunk("IHDR", header) .. chunk("IDAT", stored(data))
    .. chunk("IEND", "")
end

-- count, channels, height, width of the images in a tensor.
local function sizes(x)
  local shape = x.shape
  local n, c, h, w = 1, 1, unpack(shape, #shape - 1)
  if #shape >= 3 then c = shape[#shape - 2] end
  if #shape == 4 then n = shape[1] end
  if #shape < 2 or #shape > 4 or (c ~= 1 and c ~= 3) or x:count() == 0 then
    lib.misuse("save_image: the tensor is %s; (H,W), (C,H,W) or (N,C,H,W) is needed, with 1 or 3 "
               .. "channels C", tensor.shape_text(shape))
  end
  return n, c, h, w
end

-- A function of the numbers of a tensor that gives bytes. Errors: floats outside [0, 1].
local function to_bytes(x, numbers, count)
  if x.dtype == "u8" then return function(value) return value end end
  if not x.dtype:find "f" then
    lib.misuse("save_image: the tensor is %s; floats from 0 to 1, or u8, are needed", x.dtype)
  end
  for i = 0, count - 1 do
    if not (numbers[i] >= 0 and numbers[i] <= 1) then
      lib.misuse("save_image: a value is %g; floats from 0 to 1 are needed, such as "
                 .. "(x - low) / (high - low)", numbers[i])
    end
  end
  return function(value) return math.floor(value * 255 + 0.5) end
end

--- nn.save_image(path, x, {columns, gap=2}): writes a PNG file. x: (H,W) in gray, (C,H,W) with 1
--- (gray) or 3 (RGB) channels, or (N,C,H,W), N images in a grid of `columns` (default: about as
--- many as rows) with `gap` black pixels between them. Values: floats from 0 to 1, or u8 from 0 to
--- 255. Errors: other shapes, dtypes or values; a file that cannot be written.
---     nn.save_image("gray.png", nn.rand(8, 16))
---     io.open("gray.png", "rb"):read(4)  --> "\137PNG"
function M.save_image(path, x, options)
  arguments.need(tensor.is_tensor(x), "save_image", "the second argument", x,
                 "a tensor is needed: save_image(path, x)")
  options = arguments.options("save_image", options, known)
  local n, c, h, w = sizes(x)
  local columns = arguments.whole("save_image", "columns",
                                  options.columns or math.ceil(math.sqrt(n)), 1)
  local gap = arguments.whole("save_image", "gap", options.gap or GAP, 0)
  columns = math.min(columns, n)
  local rows = math.ceil(n / columns)
  local height, width = rows * (h + gap) - gap, columns * (w + gap) - gap
  local numbers, count = x:numbers()
  local byte = to_bytes(x, numbers, count)
  local pixels, at = ffi.new("uint8_t[?]", height * (1 + width * c)), 0
  for i = 0, n - 1 do
    local top, left = math.floor(i / columns) * (h + gap), i % columns * (w + gap)
    for channel = 0, c - 1 do
      for row = 0, h - 1 do
        local start = (top + row) * (1 + width * c) + 1 + left * c + channel
        for column = 0, w - 1 do
          pixels[start + column * c], at = byte(numbers[at]), at + 1
        end
      end
    end
  end
  files.write(path, png(pixels, height, width, c))
end

return M
