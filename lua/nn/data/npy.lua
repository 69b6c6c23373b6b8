-- The header of numpy's .npy files, versions 1.0 to 3.0 (numpy.lib.format): a mark, the version,
-- the size of a Python dictionary in ASCII, the dictionary, the elements.
local ffi = require "ffi"
local lib = require "nn.base.capi"

local M = {}
local MARK = "\147NUMPY"
local types = {u1 = "uint8", u2 = "uint16", u4 = "uint32", u8 = "uint64",
               i1 = "int8", i2 = "int16", i4 = "int32", i8 = "int64"}

--- is_npy(p, size) -> whether a file of these bytes begins as a .npy file.
function M.is_npy(p, size) return size >= #MARK and ffi.string(p, #MARK) == MARK end

-- The dictionary, and the position after it.
local function dictionary(p, size, name)
  local version = size >= 8 and p[6]
  local fields = version == 1 and 2 or 4
  if size < 8 + fields then lib.deny("%s is a numpy file that ends in its header", name) end
  if version < 1 or version > 3 then
    lib.deny("%s is a numpy file of version %d.%d; nnlua reads 1.0 to 3.0", name, version, p[7])
  end
  local length = 0
  for i = fields - 1, 0, -1 do length = length * 256 + p[8 + i] end
  local at = 8 + fields
  if at + length > size then lib.deny("%s is a numpy file that ends in its header", name) end
  return ffi.string(p + at, length), at + length
end

local function dtype_of(descr, name)
  local order, kind = (descr or ""):match "^([<>|])(%w+)$"
  local dtype = types[kind]
  if dtype and order == ">" then
    lib.deny("%s is a numpy file of big-endian numbers ('%s'); convert it: np.save(FILE, "
             .. "np.load(FILE).astype('<%s'))", name, descr, kind)
  end
  if not dtype or order == "|" and not kind:find "1$" then
    lib.deny("%s is a numpy file of elements '%s'; token ids are whole numbers: np.save(FILE, "
             .. "ids.astype(np.uint32))", name, descr and descr:sub(1, 40) or "of several fields")
  end
  return dtype, tonumber(kind:sub(2))
end

-- The number of elements, and the number of axes.
local function count_of(shape, name)
  local count, axes = 1, 0
  for extent in (shape or ""):gmatch "%d+" do count, axes = count * tonumber(extent), axes + 1 end
  if axes ~= 1 and axes ~= 2 then
    lib.deny("%s is a numpy file of shape (%s); token ids are one list (N,) or rows (N, M)", name,
             shape and shape:sub(1, 60) or "?")
  end
  return count, axes
end

--- header(p, size, name) -> {dtype=, bytes= (of an element), count=, at= (of the first element),
--- rows= (the shape, if there are several)} of a .npy file of whole numbers. Errors, with
--- `name`: another version, damage, elements that are no little-endian whole numbers, columns
--- instead of rows in order, a size that does not match.
function M.header(p, size, name)
  local text, at = dictionary(p, size, name)
  local shape = text:match "['\"]shape['\"]%s*:%s*%(([%dL,%s]*)%)"
  local fortran = text:match "['\"]fortran_order['\"]%s*:%s*(%a+)"
  local dtype, bytes = dtype_of(text:match "['\"]descr['\"]%s*:%s*['\"]([^'\"]*)['\"]", name)
  local count, axes = count_of(shape, name)
  if fortran ~= "False" and not (fortran == "True" and axes == 1) then
    lib.deny("%s is a numpy file whose columns are in order, not its rows (fortran_order); convert "
             .. "it: np.save(FILE, np.ascontiguousarray(np.load(FILE)))", name)
  end
  if at + count * bytes ~= size then
    lib.deny("%s has %.0f bytes, but its numpy header says %.0f numbers of %d bytes after %d bytes",
             name, size, count, bytes, at)
  end
  return {dtype = dtype, bytes = bytes, count = count, at = at,
          rows = axes > 1 and shape or nil}
end

return M
