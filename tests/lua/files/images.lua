-- Images in files against Pillow (tests/golden/make_data.py), folders of them, and damaged ones.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local root = require("nn.host").root
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local mutate = require "mutate"

local golden = root .. "/tests/golden/data/"
local folder = t.folder()
local available, problem = pcall(nn.read_image, golden .. "rgb.png")
local function case(name, f)
  t.case(name, function()
    if not available and tostring(problem):find "was built without" then t.skip(problem) end
    f()
  end)
end
local function write(path, text)
  files.make_folder(folder .. "/" .. (path:match "^(.*)/" or ""))
  local file = assert(io.open(folder .. "/" .. path, "wb"))
  file:write(text)
  file:close()
  return folder .. "/" .. path
end
local names = {"grey.png", "rgb.png", "rgba.png", "grey_alpha.png", "palette.png", "bits.png",
               "grey16.png", "rgb16.png", "interlaced.png", "grey.jpg", "rgb.jpg",
               "subsampled.jpeg", "progressive.jpg"}

case("pixels are Pillow's: of PNG exactly, of JPEG to 2, resized to 1 more", function()
  local expected = nn.load_safetensors(golden .. "pixels.safetensors")
  local forms = {rgb = {}, grey = {channels = 1}, resized = {size = {9, 13}},
                 larger = {size = {40, 31}}, cropped = {size = {10, 10}, crop = true}}
  local compared = 0
  for _, name in ipairs(names) do
    for form, options in pairs(forms) do
      local pixels = expected[name .. "/" .. form]
      if pixels then
        options.dtype = "u8"
        local image = nn.read_image(golden .. name, options)
        t.same(image.shape, pixels.shape)
        local most = (name:find "jpe?g$" and 2 or 0) + (options.size and 1 or 0)
        local difference = (image:to "f32" - pixels:to "f32"):abs():max():item()
        t.check(difference <= most, ("%s, %s: %g"):format(name, form, difference))
        compared = compared + 1
      end
    end
  end
  t.same(compared, 4 * #names + 3)
  local image = nn.read_image(golden .. "rgb.png")
  t.near(image, expected["rgb.png/rgb"]:to "f32" / 255, {abs = 1e-7})
end)

-- A folder of classes b and a with three images each.
local function classes()
  local root_of = folder .. "/classes"
  for number, name in ipairs {"rgb.png", "interlaced.png", "rgb.jpg"} do
    local text = files.read(golden .. name)
    write(("classes/a/%d-%s"):format(number, name), text)
    write(("classes/b/deep/%d-%s"):format(number, name), text)
  end
  write("classes/a/.hidden.png", "x")
  write("classes/a/notes.txt", "x")
  return root_of
end

case("a folder's subfolders are the classes, and decoding ahead changes nothing", function()
  local path = classes()
  local loader = nn.data {images = path, batch = 4, shuffle = true, threads = 3, size = {8, 9}}
  t.same({loader.count, loader.classes}, {6, {"a", "b"}})
  local labels = 0
  for batch in loader do
    local rows = batch.label:dim(1)
    t.same({batch.image.shape, batch.label.dtype}, {{rows, 3, 8, 9}, "i32"})
    labels = labels + batch.label:sum():item()
  end
  t.same(labels, 3)
  loader:batch()
  local state, expected = loader:state(), {loader:batch()}
  local other = nn.data {images = path, batch = 4, shuffle = true, threads = 1, size = {8, 9}}
  for _ = 1, 3 do other:batch() end                    -- some batches are requested by now
  t.same(other:set_state(state), true)
  local image, label = other:batch()
  t.same({image, label}, expected)
  local one = nn.read_image(path .. "/b/deep/2-interlaced.png", {size = {8, 9}})
  local images, numbers = loader:windows()()
  t.same({images:slice(1, 1, 4).shape, numbers:table()}, {{4, 3, 8, 9}, {0, 0, 0, 1}})
  local last
  for batch in nn.data({images = path .. "/b/deep", size = {8, 9}}):epoch() do
    last = last or batch.image
    t.same(batch.label, nil)
  end
  t.same(last.shape, {1, 3, 8, 9})
  local seen = 0
  for x, rows in nn.data({images = path .. "/b", fields = {"image"}, size = {8, 9},
                          batch = 2}):windows() do
    if seen == 0 then t.same(x:slice(1, 2, 2):reshape(3, 8, 9):clone(), one) end
    seen = seen + rows
  end
  t.same(seen, 3)
end)

case("folders and options that do not fit are errors", function()
  local path = classes()
  local function refused(options, message)
    t.fails(function()
      local loader = nn.data(options)
      for _ = 1, 2 do loader:batch() end
    end, message)
  end
  write("mixed/a.png", files.read(golden .. "rgb.png"))
  write("mixed/b.png", files.read(root .. "/tests/golden/data/rgb.jpg"))
  refused({images = folder .. "/mixed", size = {4}}, "{height, width} is needed")
  refused({images = folder .. "/mixed", crop = true}, "crop needs size = {height, width}")
  refused({images = folder .. "/mixed", channels = 2}, "channels is 2; 1 (grey) or 3 (RGB)")
  refused({images = folder .. "/mixed", dtype = "i32"}, "dtype is 'i32'; f32 (from 0 to 1) or u8")
  t.same(nn.read_image(folder .. "/mixed/b.png").shape, {3, 17, 23})  -- by content, not by name
  nn.data {images = folder .. "/mixed"}
  write("mixed/c/x.png", "")
  refused({images = folder .. "/mixed"}, "has images beside the folders of classes")
  refused({images = folder .. "/none"}, "none' is no folder")
  files.make_folder(path .. "/c")
  refused({images = path}, "class 'c' has no images")
  write("classes/c/x.gif", "GIF89a")
  refused({images = path}, "classes/c/x.gif' is no PNG or JPEG file; convert it")
end)

case("without size, an image of another size is named", function()
  write("sizes/a.png", files.read(golden .. "rgb.png"))
  write("sizes/b.png", files.read(golden .. "small.png"))
  local loader = nn.data {images = folder .. "/sizes", batch = 2}
  t.fails(function() loader:batch() end, "b.png': it has 3 x 5 pixels, but the others have 17 x 23")
end)

case("damaged and hostile files are errors with their path, never a crash", function()
  local function refused(text, message)
    local path = write("bad.png", text)
    t.fails(function() nn.read_image(path) end,
            ("cannot read the image '%s': %s"):format(path, message))
  end
  refused("", "it is neither a PNG nor a JPEG file")
  refused("GIF89a", "it is neither a PNG nor a JPEG file")
  refused(files.read(golden .. "cmyk.jpg"), "it is a CMYK JPEG; convert it to RGB")
  local png, jpeg = files.read(golden .. "rgb.png"), files.read(golden .. "rgb.jpg")
  refused(png:sub(1, -20), "the file ends too early")
  refused(jpeg:sub(1, -80), "Premature end of JPEG file")
  t.fails(function() nn.read_image(folder) end, "it is no regular file")
  t.fails(function() nn.read_image(folder .. "/none.png") end, "No such file or directory")
end)

case("200 truncated and changed files are read or refused", function()
  local seed = tonumber(os.getenv "NNLUA_TEST_SEED") or 1
  math.randomseed(seed)
  local refused = 0
  for i = 1, 200 do
    local name = names[i % #names + 1]
    local text = files.read(golden .. name)
    text = i % 2 == 0 and text:sub(1, math.random(#text) - 1) or mutate.bytes(text)
    local path = write("mutant.png", text)
    local good, why = pcall(nn.read_image, path, {size = {5, 5}})
    if not good then
      refused = refused + 1
      t.check(tostring(why):find("cannot read the image '" .. path .. "': ", 1, true),
              ("seed %d, mutant %d of %s: %s"):format(seed, i, name, tostring(why)))
    end
  end
  t.check(refused >= 100, refused .. " of 200 were refused")
end)

-- A progressive grey JPEG of 8192 x 8192 pixels, whose scans of 62 bytes say that nothing changes.
-- Each makes libjpeg visit all pixels.
local function many_scans(scans)
  local function segment(marker, bytes)
    local size = #bytes + 2
    return "\255" .. marker .. string.char(math.floor(size / 256), size % 256) .. bytes
  end
  local codes = "\1" .. ("\0"):rep(15) .. "\224"       -- code "0": a run of 2^14 blocks and more
  local runs = {}
  for i = 1, 33 do runs[i] = "0" .. ("1"):rep(14) end  -- 33 x 32767 blocks are more than 2^20
  local bits = table.concat(runs) .. ("1"):rep(7)
  local data = bits:sub(1, #bits - #bits % 8):gsub("%d%d%d%d%d%d%d%d", function(byte)
    return byte == "11111111" and "\255\0" or string.char(tonumber(byte, 2))
  end)
  local scan = segment("\218", "\1\1\0\1\63\0") .. data
  return "\255\216" .. segment("\219", "\0" .. ("\1"):rep(64))
    .. segment("\194", "\8\32\0\32\0\1\1\17\0") .. segment("\196", "\16" .. codes)
    .. scan:rep(scans) .. "\255\217"
end

case("a JPEG whose scans would take minutes is refused, and Ctrl-C ends a long one", function()
  local path = write("scans.jpg", many_scans(180))
  t.fails(function() nn.read_image(path, {size = {8, 8}}) end,
          "16 scans of 8192 x 8192 pixels take too long, and it has more")
  write("scans.jpg", many_scans(15))
  local status, output = t.shell(([[
    timeout -k 1 60 $NNLUA -e 'io.write("begins\n") io.flush()
      for _ = 1, 1e9 do nn.read_image("%s", {size = {8, 8}}) end' > '%s/out' 2>&1 &
    until grep -q begins '%s/out'; do sleep 0.05; done
    sleep 0.3; kill -INT $!; wait $!; echo "status $?"; cat '%s/out']]):format(
    path, folder, folder, folder))
  t.check(status == 0 and output:find "status 130" and output:find "interrupted", output)
end)

case("an image with more pixels than the limit is refused before memory is taken", function()
  local png = files.read(golden .. "rgb.png")
  local header = png:sub(13, 16) .. "\0\0\64\0\0\0\64\0" .. png:sub(25, 29)     -- 16384 x 16384
  local bit, sum = require "bit", files.crc32(header)
  local function big_endian(x)
    return string.char(bit.band(bit.rshift(x, 24), 255), bit.band(bit.rshift(x, 16), 255),
                       bit.band(bit.rshift(x, 8), 255), bit.band(x, 255))
  end
  local path = write("bomb.png", png:sub(1, 12) .. header .. big_endian(sum) .. png:sub(34))
  t.fails(function() nn.read_image(path, {size = {8, 8}}) end,
          "it has 16384 x 16384 pixels; at most 67108864 are read")
end)

case("one damaged image in a folder is named, and the loader goes on from its state", function()
  local png = files.read(golden .. "rgb.png")
  for i = 1, 5 do write(("some/%d.png"):format(i), i == 4 and png:sub(1, 200) or png) end
  local loader = nn.data {images = folder .. "/some", batch = 1}
  for _ = 1, 3 do loader:batch() end
  for _ = 1, 2 do t.fails(function() loader:batch() end, "some/4.png': the file ends too early") end
  write("some/4.png", png)
  t.same(loader:batch().shape, {1, 3, 17, 23})
end)

t.finish()
