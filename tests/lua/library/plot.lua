-- Plots and images: what nn.plot, nn.histogram and nn.save_image show, and the input they refuse.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
local terminal = require "nn.base.terminal"

-- The text of f() on a terminal with colours or without.
local function text_of(f, colors)
  local has_colors = terminal.has_colors
  terminal.has_colors = function() return colors or false end
  local good, text = pcall(function() return tostring(f()) end)
  terminal.has_colors = has_colors
  if not good then error(text, 0) end
  return text
end

local small = {width = 20, height = 4}
local function with(options)
  for name, value in pairs(small) do options[name] = options[name] or value end
  return options
end

-- The dots of a plot of one curve: {[x] = {y, ...}} in dots from the lower left corner.
local function dots_of(plot, height)
  local out, row = {}, 0
  local bits = {[0] = {1, 2, 4, 64}, {8, 16, 32, 128}}
  for line in text_of(function() return plot end):gmatch "[^\n]+" do
    local cells = line:match "^ *%S* ┤(.*)" or line:match "^ *│(.*)"
    if cells then
      local column = 0
      for cell in cells:gmatch "[%z\1-\127\194-\244][\128-\191]*" do
        local code = cell == " " and 0 or (cell:byte(2) - 0xA0) * 64 + cell:byte(3) - 0x80
        for half = 0, 1 do
          for i, value in ipairs(bits[half]) do
            if bit.band(code, value) ~= 0 then
              local x = 2 * column + half
              out[x] = out[x] or {}
              table.insert(out[x], 4 * height - 4 * row - i)
            end
          end
        end
        column = column + 1
      end
      row = row + 1
    end
  end
  t.same(row, height)
  return out
end

t.case("a straight line goes from corner to corner, with round ticks", function()
  t.same(text_of(function()
    return nn.plot({0, 1, 2, 3, 4}, with {title = "up", xlabel = "i", ylabel = "n"})
  end), [[
         up
 n
4 ┤             ⢀⡠⠔⠊
2 ┤         ⢀⡠⠔⠊⠁
  │    ⣀⠤⠔⠒⠉⠁
0 ┤⣀⠤⠒⠉
  └────┬───────┬────
       2       4
           i]])
  local dots = dots_of(nn.plot({0, 1, 2, 3, 4}, {width = 23, height = 5}), 5)
  for x = 0, 39 do
    t.check(dots[x] and #dots[x] == 1 and math.abs(dots[x][1] - x * 19 / 39) <= 1, x)
  end
end)

t.case("ranges end at round numbers, and ticks tell close values apart", function()
  local function ticks(values, options)
    local found = {}
    for label in text_of(function() return nn.plot(values, with(options or {})) end)
        :gmatch "\n? *(%S+) ┤" do table.insert(found, 1, label) end
    return found
  end
  t.same(ticks {37.7, 37.9}, {"37.7", "37.8", "37.9"})
  t.same(ticks {0.13, 1.9}, {"0", "1", "2"})
  t.same(ticks {1e6, 1e6 + 4}, {"1e6", "1.000002e6", "1.000004e6"})
  t.same(ticks {-3e-7, 3e-7}, {"-5e-7", "0", "5e-7"})
  t.same(ticks({1, 10, 1000}, {log = true}), {"1", "100"})
  t.same(ticks({2.1, 2.9}, {log = "y"}), {"2.5"})
  t.same(ticks {5, 5}, {"0", "5", "10"})
end)

t.case("tensors, lists, lists of tensors and pairs of x and y give the same curve", function()
  local y = {3, 1, 2}
  local expected = text_of(function() return nn.plot(y, small) end)
  local one = {nn.tensor(3), nn.tensor {1}, 2}
  for _, values in ipairs {nn.tensor(y), nn.tensor(y, {dtype = "i64"}), one,
                           nn.tensor(y):to "bf16"} do
    t.same(text_of(function() return nn.plot(values, small) end), expected)
  end
  t.same(text_of(function() return nn.plot({1, 2, 3}, y, small) end), expected)
  t.same(text_of(function() return nn.plot(nn.arange(3) + 1, nn.tensor(y), small) end), expected)
  local legend = "\n   ━━ a"
  t.same(text_of(function() return nn.plot({a = y}, small) end), expected .. legend)
  t.same(text_of(function() return nn.plot({a = {{1, 2, 3}, y}, width = 20, height = 4}) end),
         expected .. legend)
  t.same(text_of(function() return nn.plot({1, 2, 3}, {a = y}, small) end), expected .. legend)
end)

t.case("several curves differ by colour, and without colours by marks", function()
  local function plot() return nn.plot({down = {2, 1}, up = {1, 2}}, small) end
  local plain, colored = text_of(plot), text_of(plot, true)
  t.check(plain:find "%* down   %+ up$" and plain:find "%*%*" and plain:find "%+%+", plain)
  t.check(not plain:find "\27", plain)
  t.check(colored:find "\27%[36m━━\27%[0m down   \27%[33m━━\27%[0m up$", colored)
  for line in colored:gmatch "[^\n]+" do
    t.check(not line:find "\27%[3%dm[^\27]*$", "a line that stays coloured")
  end
end)

t.case("values that are NaN, infinite or have no logarithm interrupt the curve and are counted",
function()
  local nan, inf = 0 / 0, math.huge
  local text = text_of(function() return nn.plot({1, nan, 2, inf, 3}, small) end)
  t.check(text:find "\n2 of 5 values not shown %(NaN, infinite%)$", text)
  local dots, count = dots_of(nn.plot({1, nan, 2, inf, 3}, small), 4), 0
  for _ in pairs(dots) do count = count + 1 end
  t.same(count, 3)
  t.check(text_of(function() return nn.plot({0, 1, 10}, with {log = true}) end)
          :find "1 of 3 values not shown %(NaN, infinite, or not above 0 on a log scale%)$")
  t.same(text_of(function() return nn.plot({nan}) end),
         "a plot without values\n1 of 1 values not shown (NaN, infinite)")
end)

t.case("extreme values and values that hardly differ are plotted", function()
  for _, values in ipairs {{1e308, -1e308}, {1e300, -1e300}, {1e17, 1e17 + 16}, {5e-324, 1e-323},
                           {1e-300, 1e-300}, {1e-320, 1}, {1e300, 1e300}, {5, 5 + 1e-13}} do
    for _, log in ipairs {false, true} do
      t.check(#tostring(nn.plot(values, {log = log, height = 3})) > 0)
    end
    local histogram = nn.histogram(values, {bins = 3})
    local count = histogram.hidden
    for _, n in ipairs(histogram.counts) do count = count + n end
    t.same(count, 2)
    t.check(#tostring(nn.histogram(values)) > 0)
  end
end)

t.case("a plot fits the terminal", function()
  local size = terminal.size
  for _, columns in ipairs {30, 80, 200} do
    terminal.size = function() return columns, 20 end
    local text = text_of(function() return nn.plot(nn.rand(500), {title = "t"}) end)
    local lines = 0
    for line in text:gmatch "[^\n]+" do
      lines = lines + 1
      t.check(select(2, line:gsub("[^\128-\191]", "")) < columns, line)
    end
    t.check(lines <= 17, text)
  end
  terminal.size = size
end)

t.case("a histogram counts every value once, in bins with round or equal edges", function()
  local h = nn.histogram({0, 0.5, 1, 1, 2, 4, 0 / 0}, {bins = 4})
  t.same({h.counts, h.edges, h.hidden}, {{2, 2, 1, 1}, {0, 1, 2, 3, 4}, 1})
  t.same(tostring(h):match "[^\n]*$", "1 of 7 values not shown (NaN, infinite)")
  nn.seed(3)
  local x = nn.randn(50, 40)
  h = nn.histogram(x)
  local sum, array = 0, x:numbers()
  for i, count in ipairs(h.counts) do
    local own = 0
    for k = 0, 1999 do
      local last = i == #h.counts and array[k] == h.edges[i + 1]
      if array[k] >= h.edges[i] and (array[k] < h.edges[i + 1] or last) then own = own + 1 end
    end
    t.same(count, own)
    sum = sum + count
  end
  t.same(sum, 2000)
  t.check(#h.counts <= 16 and #h.counts >= 7)
  t.same(text_of(function()
           return nn.histogram({1, 1, 2}, {bins = 2, width = 24, title = "n"})
         end),
         "n\n[1.00, 1.50) ████████ 2\n[1.50, 2.00] ████ 1")
end)

t.case("other arguments of plots are refused", function()
  local data = "values are needed: plot(y), plot(x, y) or plot{name = y, ...}"
  t.fails(function() nn.plot() end, "plot(y), plot(x, y) or plot{name = y, ...}")
  t.fails(function() nn.plot(5) end, data)
  t.fails(function() nn.plot {} end, "plot: y has no values; one at least is needed")
  t.fails(function() nn.plot {title = "x"} end, "plot: no values are given")
  t.fails(function() nn.plot {1, "b"} end, "plot: element 2 of y is 'b'; a number is needed")
  t.fails(function() nn.plot {{1}, {2}, {3}} end, "plot: element 1 of y is a table; a number")
  t.fails(function() nn.plot({1, 2}, {1, 2, 3}) end, "plot: x has 2 values, y has 3")
  t.fails(function() nn.plot(nn.zeros(2, 3)) end, "plot: y is (2,3); a tensor of one axis")
  t.fails(function() nn.plot({1}, {titel = "x"}) end, "no option 'titel'; did you mean 'title'?")
  t.fails(function() nn.plot({a = {1}, heigth = 3}) end, "'heigth'; did you mean 'height'?")
  t.fails(function() nn.plot({1}, {width = 3}) end, "width is 3; a whole number of at least 20")
  t.fails(function() nn.plot({1}, {log = "z"}) end, "plot: log is 'z'; true, \"x\"")
  t.fails(function() nn.histogram "x" end, "histogram: the argument is 'x'; a tensor or a list")
  t.fails(function() nn.histogram({1}, {bins = 0}) end, "bins is 0; a whole number from 1 to")
end)

-- Reads PNG files with Python's zlib: header, size of the pixels, bytes of each row.
local reader = [[
import struct, sys, zlib
for path in sys.argv[1:]:
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, pixels = 8, b""
    while at < len(data):
        size, name = struct.unpack(">I4s", data[at:at + 8])
        body, crc = data[at + 8:at + 8 + size], data[at + 8 + size:at + 12 + size]
        assert struct.unpack(">I", crc)[0] == zlib.crc32(name + body)
        if name == b"IHDR": width, height, depth, color = struct.unpack(">IIBB", body[:10])
        if name == b"IDAT": pixels += body
        at += 12 + size
    pixels, channels = zlib.decompress(pixels), 3 if color == 2 else 1
    stride = 1 + width * channels
    assert name == b"IEND" and depth == 8 and len(pixels) == height * stride
    rows = [pixels[i * stride:(i + 1) * stride] for i in range(height)]
    assert all(row[0] == 0 for row in rows)
    print(width, height, channels, sum(pixels), *[row[1:].hex() for row in rows[:6] if width < 9])
]]

t.case("save_image writes PNG files that zlib reads, of gray, RGB and grids", function()
  if t.shell "command -v python3 >/dev/null" ~= 0 then t.skip "there is no python3" end
  local folder = t.folder()
  local function save(name, x, options)
    nn.save_image(("%s/%s.png"):format(folder, name), x, options)
  end
  save("gray", nn.tensor {{0, 0.5, 1}, {0.2, 0.001, 0.999}})
  save("u8", nn.tensor({{7, 255}}, {dtype = "u8"}))
  save("rgb", nn.tensor {{{1, 0}}, {{0, 1}}, {{0, 0.5}}})
  save("grid", nn.ones(3, 1, 1, 1), {gap = 1})
  save("row", nn.ones(3, 1, 1, 1), {gap = 0, columns = 3})
  save("large", nn.ones(1, 300, 400):to "u8")            -- more than one stored block
  files.write(folder .. "/read.py", reader)
  local _, output = t.shell(("cd %s && python3 read.py gray.png u8.png rgb.png grid.png row.png "
                             .. "large.png"):format(folder))
  t.same(output, table.concat({
    "3 2 1 689 0080ff 3300ff", "2 1 1 262 07ff", "2 1 3 638 ff000000ff80",
    "3 3 1 765 ff00ff 000000 ff0000", "3 1 1 765 ffffff", "400 300 1 120000", ""}, "\n"))
end)

t.case("save_image refuses other shapes, dtypes and values", function()
  local path = t.folder() .. "/x.png"
  local function refused(x, message) t.fails(function() nn.save_image(path, x) end, message) end
  refused({1}, "save_image: the second argument is a table; a tensor is needed")
  refused(nn.zeros(2, 4, 4), "save_image: the tensor is (2,4,4); (H,W), (C,H,W) or (N,C,H,W)")
  refused(nn.zeros(5), "save_image: the tensor is (5);")
  refused(nn.zeros(2, 2) + 1.5, "save_image: a value is 1.5; floats from 0 to 1 are needed")
  refused(nn.zeros(2, 2) * (0 / 0), "save_image: a value is ")
  refused(nn.zeros({2, 2}, {dtype = "i64"}), "save_image: the tensor is i64; floats from 0 to 1")
  t.fails(function() nn.save_image("/nowhere/x.png", nn.zeros(2, 2)) end, "cannot write '/nowhere")
  t.check(not files.exists(path), "nothing is written")
end)

t.finish()
