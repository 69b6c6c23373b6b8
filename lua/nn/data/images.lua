-- Images in PNG and JPEG files: single ones, and folders as sources of examples. Threads decode the
-- next batches while the program computes.
local arguments = require "nn.base.arguments"
local creation = require "nn.core.creation"
local ffi = require "ffi"
local files = require "nn.io.files"
local lib = require "nn.base.capi"

local M = {}
local C, check = lib.C, lib.check
local AHEAD = 2                            -- batches that are decoded before they are needed
local fits = {exact = 0, stretch = 1, crop = 2}
local readable = {png = true, jpg = true, jpeg = true}
local others = arguments.names "gif webp bmp tif tiff avif heic heif jp2 svg ppm pgm"

-- The pair of sizes {height, width} in options.
local function size_of(size)
  if size == nil then return nil end
  arguments.need(type(size) == "table" and #size == 2, "images", "size", size,
                 "{height, width} is needed")
  return arguments.whole("images", "the height in size", size[1], 1, 32768),
         arguments.whole("images", "the width in size", size[2], 1, 32768)
end

-- The nn_image_form_t of files like the one at `path`.
local function form_of(path, options)
  local height, width = size_of(options.size)
  local channels, dtype = options.channels or 3, options.dtype or "f32"
  arguments.need(channels == 1 or channels == 3, "images", "channels", channels,
                 "1 (grey) or 3 (RGB) is needed")
  arguments.need(dtype == "f32" or dtype == "u8", "images", "dtype", dtype,
                 "f32 (from 0 to 1) or u8 (from 0 to 255) is needed")
  arguments.need(options.crop == nil or type(options.crop) == "boolean", "images", "crop",
                 options.crop, "true or false is needed")
  if options.crop and not height then
    lib.misuse "images: crop needs size = {height, width}, to which the centre is resized"
  end
  local fit = height and (options.crop and fits.crop or fits.stretch) or fits.exact
  if not height then
    local found = ffi.new "int32_t[2]"
    check(C.nn_image_size(path, found, found + 1))
    height, width = found[0], found[1]
  end
  return ffi.new("nn_image_form_t", channels, height, width, fit, dtype == "u8" and 1 or 0), dtype
end

local Queue = {}
Queue.__index = Queue

-- A queue of images alone; see sources.lua. paths: by number.
local function open_queue(form, dtype, threads, paths)
  local out = ffi.new "nn_ref[1]"
  check(C.nn_images_new(form, threads, out))
  local ref = ffi.gc(ffi.new("nn_ref", out[0].index, out[0].generation), C.nn_release)
  return setmetatable({ref = ref, form = form, dtype = dtype, paths = paths, first = 1, last = 0},
                      Queue)
end

function Queue:push(numbers)
  local names = {}
  for i, number in ipairs(numbers) do names[i] = self.paths[number] .. "\0" end
  check(C.nn_images_push(self.ref, table.concat(names), #names))
  self.last = self.last + 1
  self[self.last] = numbers
end

-- The oldest batch of images, and the numbers of its examples.
function Queue:pop()
  local numbers, form = self[self.first], self.form
  self[self.first], self.first = nil, self.first + 1
  local count = #numbers * form.channels * form.height * form.width
  local array = ffi.new(lib.host_type[self.dtype] .. "[?]", count)
  check(C.nn_images_pop(self.ref, array, count * lib.dtype_size[self.dtype]))
  return creation.from_host(array, {#numbers, form.channels, form.height, form.width}, self.dtype),
         numbers
end

-- Ends the threads.
function Queue:close() C.nn_release(ffi.gc(self.ref, nil)) end

local image_options = arguments.names "size crop channels dtype"

--- nn.read_image(path, {size=, crop=false, channels=3, dtype="f32"}) -> the image in a PNG or JPEG
--- file, (channels, height, width): f32 from 0 to 1, or u8 from 0 to 255. channels: 3 for RGB, 1
--- for grey; alpha is dropped, and 16 bits become 8. size={height, width}: the image is resized to
--- it, as by Pillow's BILINEAR; with crop, its centre of these proportions is. Large images are
--- resized as they are decoded. Not applied: rotations that cameras note (EXIF), and gamma. Errors,
--- with the file: one that is damaged, has more than 67 million pixels, is a CMYK JPEG, or has
--- another format.
---     nn.read_image "none.png"  --> error: cannot read the image 'none.png': No such file...
function M.read_image(path, options)
  arguments.need(type(path) == "string", "read_image", "the path", path, "a text is needed")
  local form, dtype = form_of(path, arguments.options("read_image", options, image_options))
  local queue = open_queue(form, dtype, 1, {path})
  queue:push {1}
  local images = queue:pop()
  queue:close()
  return images:reshape(images.shape[2], images.shape[3], images.shape[4])
end

-- Adds the images in a folder and, if `deep`, in its subfolders.
local function add_images(folder, out, deep)
  for _, name in ipairs(files.list(folder)) do
    local path, extension = files.join(folder, name), (name:match "%.(%w+)$" or ""):lower()
    local hidden = name:find "^%."
    if files.list(path) then
      if deep and not hidden then add_images(path, out, deep) end
    elseif readable[extension] and not hidden then
      out[#out + 1] = path
    elseif others[extension] and not hidden then
      lib.deny("'%s' is no PNG or JPEG file; convert it, or move it out of the folder", path)
    end
  end
  return out
end

-- The subfolders of a folder, by name.
local function subfolders(folder)
  local names = {}
  for _, name in ipairs(files.list(folder) or lib.deny("images '%s' is no folder", folder)) do
    local hidden = name:find "^%."
    if not hidden and files.list(files.join(folder, name)) then names[#names + 1] = name end
  end
  return names
end

local Folder = {}
Folder.__index = Folder

--- folder(given) -> the source of the images in the folder given.images: field image and, if it has
--- subfolders, label, the number of the subfolder. Errors: no images; images beside subfolders.
function M.folder(given)
  local folder, paths, labels = given.images, {}, nil
  arguments.need(type(folder) == "string", "data", "images", folder, "a folder is needed")
  local classes = subfolders(folder)
  add_images(folder, paths)
  if #classes > 0 then
    if #paths > 0 then
      lib.deny("images '%s' has images beside the folders of classes, such as '%s'", folder,
               paths[1])
    end
    labels = {}
    for number, class in ipairs(classes) do
      local before = #paths
      add_images(files.join(folder, class), paths, true)
      if #paths == before then lib.deny("images '%s': class '%s' has no images", folder, class) end
      for i = before + 1, #paths do labels[i] = number - 1 end
    end
  end
  if #paths == 0 then lib.deny("images '%s' has no .png, .jpg or .jpeg files", folder) end
  local threads = arguments.whole("data", "threads", given.threads or 0, 0, 256)
  local form, dtype = form_of(paths[1], given)
  local sum = 0
  for _, path in ipairs(paths) do sum = files.crc32(path:sub(#folder + 1), nil, sum) end
  return setmetatable({
    paths = paths, labels = labels, classes = labels and classes, count = #paths, ahead = AHEAD,
    form = form, dtype = dtype, threads = threads, name = folder,
    fingerprint = ("%d %08x"):format(#paths, sum)}, Folder)
end

function Folder:open()
  local queue = open_queue(self.form, self.dtype, self.threads, self.paths)
  local function pop()
    local images, numbers = queue:pop()
    if not self.labels then return {image = images} end
    local labels = ffi.new("int32_t[?]", #numbers)
    for i, number in ipairs(numbers) do labels[i - 1] = self.labels[number] end
    return {image = images, label = creation.from_host(labels, {#numbers}, "i32")}
  end
  return {pop = pop, push = function(_, numbers) queue:push(numbers) end,
          close = function() queue:close() end}
end

return M
