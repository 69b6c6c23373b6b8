-- What computes matrix products: the measured choice and its file, NNLUA_PRODUCTS, a machine
-- without oneDNN, and the bits of results.
local t = require "nn.test"
local files = require "nn.io.files"
local root = package.loaded["nn.host"].root

local function version(settings)
  local status, output = t.shell(
    ("env -u NNLUA_PRODUCTS -u NNLUA_ISA %s $NNLUA --version"):format(settings))
  t.same(status, 0)
  return output:match "products ([^\n]*)", output
end

local function text_of(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

t.case("signals during the measurement of products harm nothing", function()
  local status, output = t.shell(([[
    export XDG_CACHE_HOME=%s
    for i in 1 2 3 4; do
      rm -rf $XDG_CACHE_HOME/nnlua
      $NNLUA -e 'nn.version() print "ends"' & process=$!
      while kill -WINCH $process 2>/dev/null; do sleep 0.001; done
      wait $process || echo "status $?"
    done]]):format(t.folder()))
  t.same({status, output}, {0, ("ends\n"):rep(4)})
end)

t.case("the measurement is made once, kept, and decides", function()
  local cache = t.folder()
  local setting = "XDG_CACHE_HOME=" .. cache
  local first = version(setting)
  local _, path = t.shell(("grep -l '^products [0-9]' %s/nnlua/choices-*"):format(cache))
  path = path:match "^[^\n]+"
  t.check(first:find "^f32 [%a ]+, bf16 [%a ]+ %(measured, GFLOP/s of a core: f32 OpenBLAS %d+",
          first)
  local kept = text_of(path)
  t.same(version(setting), first)
  t.same(text_of(path), kept)

  local title = kept:match "^[^\n]*\n"
  -- GFLOP/s of OpenBLAS, oneDNN, own loops and matmul, in f32 and in bf16.
  local function with_rates(f32, bf16)
    local lines = {title}
    for dtype, rates in pairs {f32 = f32, bf16 = bf16} do
      for i, way in ipairs {"openblas", "onednn", "loops", "matmul"} do
        lines[#lines + 1] = ("%s-%s %d\n"):format(dtype, way, 1000 * rates[i])
      end
    end
    files.write(path, table.concat(lines))
    return {version(setting):match "^f32 ([%a ]+), bf16 ([%a ]+) %("}
  end
  -- Rates of what this machine lacks do not count.
  local onednn = first:find "oneDNN %d" and "oneDNN"
  local loops = first:find "own loops %d" and "own loops"
  local matmul = first:find "f32 [^;]*oneDNN matmul %d" and "oneDNN matmul"
  t.same(with_rates({300, 100, 0, 0}, {10, 20, 30, 0}), {"OpenBLAS", loops or "OpenBLAS"})
  t.same(with_rates({300, 400, 0, 0}, {10, 31, 30, 0}),
         {onednn or "OpenBLAS", loops or "OpenBLAS"})
  t.same(with_rates({300, 310, 0, 0}, {10, 0, 0, 0}), {"OpenBLAS", "OpenBLAS"})
  t.same(with_rates({300, 400, 0, 419}, {10, 0, 0, 0})[1], onednn or "OpenBLAS")
  t.same(with_rates({300, 400, 0, 430}, {10, 0, 0, 0})[1], matmul or onednn or "OpenBLAS")
  for _, damaged in ipairs {"", title, title .. "f32-openblas 10", title .. "f32-openblas nan\n",
                            "products 0\nf32-openblas 10\n"} do
    files.write(path, damaged)
    local again = version(setting)                         -- measures again
    t.same(version(setting), again)
    t.check(text_of(path):find(title, 1, true) == 1, text_of(path))
    t.check(text_of(path):find "\nf32%-openblas [1-9]%d%d%d+\n", text_of(path))
  end
end)

t.case("processes that start at the same time on a new machine choose alike", function()
  local command = "env -u NNLUA_PRODUCTS -u NNLUA_ISA XDG_CACHE_HOME=%s $NNLUA --version & "
  local _, output = t.shell(command:format(t.folder()):rep(3) .. "wait")
  local lines = {}
  for line in output:gmatch "products ([^\n]*)" do lines[#lines + 1] = line end
  t.check(#lines == 3 and lines[1]:find "measured", output)
  t.same({lines[2], lines[3]}, {lines[1], lines[1]})
end)

t.case("NNLUA_PRODUCTS chooses, and an unknown word is an error", function()
  local chosen = version "NNLUA_PRODUCTS=openblas"
  t.same(chosen, "f32 OpenBLAS, bf16 OpenBLAS (NNLUA_PRODUCTS=openblas)")
  t.same(version "NNLUA_ISA=baseline", "f32 OpenBLAS, bf16 OpenBLAS (NNLUA_ISA=baseline)")
  local status, output = t.shell "NNLUA_PRODUCTS=mkl $NNLUA -e 'print(nn.ones(2):sum())'"
  t.same(status, 1)
  local message = "NNLUA_PRODUCTS is 'mkl'; it can be auto, openblas, onednn, matmul or loops"
  t.check(output:find(message, 1, true), output)
  local _, health = t.shell "NNLUA_PRODUCTS=openblas $NNLUA --health"
  t.check(health:find("bf16 OpenBLAS (NNLUA_PRODUCTS=openblas)\n        -> unset NNLUA_PRODUCTS", 1,
                      true), health)
end)

t.case("a machine without oneDNN uses what there is, and says what is missing", function()
  local folder = t.folder()
  for _, name in ipairs {"libdnnl.so.2", "libdnnl.so.3"} do
    t.shell(("touch %s/%s"):format(folder, name))          -- not a library
  end
  local setting = ("LD_LIBRARY_PATH=%s XDG_CACHE_HOME=%s"):format(folder, t.folder())
  t.check(version(setting):find "^f32 OpenBLAS, bf16 [oO][%a ]+ %(measured")
  local status, output = t.shell(setting .. " NNLUA_PRODUCTS=onednn $NNLUA -e 'print(nn.ones(2))'")
  t.same(status, 1)
  t.check(output:find "NNLUA_PRODUCTS is 'onednn', but this is not possible: ", output)
end)

local function bits(way, workers)
  local status, output = t.shell(
    ("NNLUA_PRODUCTS=%s NNLUA_CPUS=%d timeout 200 $NNLUA %s/tests/lua/support/product_bits.lua")
    :format(way, workers, root))
  output = output:gsub("nnlua: warning: NNLUA_CPUS=%d+ asks for more workers [^\n]*\n", "")
  return output, status
end

-- The output of a script, with a cache in which each shape, and what has none, uses the way of this
-- number; and that cache's file of shapes.
local function output_with(way, script)
  local cache = t.folder()
  local command = ("env -u NNLUA_PRODUCTS -u NNLUA_ISA XDG_CACHE_HOME=%s $NNLUA %s"):format(cache,
                                                                                          script)
  t.shell(command)
  t.shell(([[cd %s/nnlua
             sed -i -E '2,$s/ [0-9]+$/ %d/' $(grep -l '^products by shape' choices-*)
             sed -i -E 's/^f32-onednn .*/f32-onednn %d/; s/^f32-matmul .*/f32-matmul 0/
                        s/^f32-openblas .*/f32-openblas 1/' $(grep -l '^products [0-9]' choices-*)
            ]]):format(cache, way, 2 * way))
  local _, kept = t.shell(("cat $(grep -l '^products by shape' %s/nnlua/choices-*)"):format(cache))
  return select(2, t.shell(command)), kept
end

t.case("a shape is measured once, and its kept way computes eager and compiled products", function()
  local script = t.folder() .. "/shapes.lua"
  files.write(script, [[
    local nn = require "nn"
    package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
    local checksums = require "checksums"
    nn.seed(1)
    local a, b = nn.uniform {300, 1216}, nn.uniform {240, 1216}
    local function multiply(x, y) return x:matmul(y, {trans_w = true}) end
    local eager, compiled = multiply(a, b), nn.compile(multiply)(a, b)
    local part = multiply(a:slice(1, 1, 250), b)
    print(checksums.of(eager), checksums.of(compiled), checksums.of(part))
  ]])
  local ways = version("XDG_CACHE_HOME=" .. t.folder()):find "oneDNN %d" and {"openblas", "onednn"}
    or {"openblas"}
  local seen = {}
  for number, name in ipairs(ways) do
    local output, kept = output_with(number - 1, script)
    t.same(kept:match "\n(.*)$", ("f32-nt-240-1216 %d\n"):format(number - 1))
    local _, expected = t.shell(("NNLUA_PRODUCTS=%s $NNLUA %s"):format(name, script))
    t.same(output, expected)
    local eager, compiled = output:match "^(%d+)\t(%d+)\t"
    t.check(eager and eager == compiled, output)
    t.check(not seen[output], "the libraries give the same bits: this test shows nothing")
    seen[output] = true
  end
end)

t.case("a trace names the library that was chosen for the shape of a product", function()
  local folder = t.folder()
  local script = folder .. "/trace.lua"
  files.write(script, ([[
    local nn = require "nn"
    local a, b = nn.uniform {300, 176}, nn.uniform {176, 240}
    local function multiply(x, y) return x:matmul(y) end
    nn.trace("%s/trace.json", function() return multiply(a, b), nn.compile(multiply)(a, b) end)
  ]]):format(folder))
  local function libraries(setting)
    local status, output = t.shell(
      ("env -u NNLUA_PRODUCTS -u NNLUA_ISA %s $NNLUA %s"):format(setting, script))
    t.check(status == 0, output)
    local out = {}
    for name in text_of(folder .. "/trace.json"):gmatch '"library":"(%w+)"' do
      out[#out + 1] = name
    end
    return out
  end
  local chosen = libraries("XDG_CACHE_HOME=" .. folder)
  t.check(#chosen == 2 and chosen[1] == chosen[2], table.concat(chosen, " "))
  t.check(("openblas onednn matmul"):find(chosen[1], 1, true), chosen[1])
  t.same(libraries "NNLUA_PRODUCTS=openblas", {})
end)

local function losses(text)
  local out = {}
  for dtype, i, loss in text:gmatch "(%w+)\tloss\t(%d)\t(%S+)" do
    out[dtype .. i] = tonumber(loss)
  end
  return out
end

local reference = losses((bits("openblas", 1)))
for _, way in ipairs {"openblas", "onednn", "matmul", "loops"} do
  t.case(way .. " gives the same bits with 1, 2 and 3 workers, near those of OpenBLAS", function()
    local one, status = bits(way, 1)
    if status ~= 0 and one:find "is not possible" then return end
    t.same(status, 0)
    t.check(one:find "bf16 norm.bias" and one:find "f32 norm.bias", one)
    for workers = 2, 3 do
      local other = bits(way, workers)
      t.check(other == one, workers .. " workers: " .. other)
    end
    for name, loss in pairs(losses(one)) do
      t.near(loss, reference[name], {abs = name:find "bf16" and 0.02 or 1e-4})
    end
  end)
end

t.finish()
