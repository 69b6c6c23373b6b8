-- Failures of the disk that holds what does not fit into RAM: each is one clear error, never a
-- wrong value, and nothing stays in the folder. TIERS_FAULTS=all: every transfer fails once,
-- instead of some; TIERS_DELAYS: how many seeds of random delays.
local files = require "nn.io.files"
local host = require "nn.host"
local nn = require "nn"
local t = require "nn.test"

local support = host.root .. "/tests/lua/support/"
local all, ram = os.getenv "TIERS_FAULTS" == "all", 6000000
math.randomseed(tonumber(os.getenv "NNLUA_TEST_SEED") or 11)

-- A folder for the disk, within one for other files.
local base = t.folder()
local disk = base .. "/disk"
files.make_folder(disk)

-- Runs a command with a limit against hangs -> its status, standard output and errors.
local function run(command, environment)
  local status, output = t.shell(("%s timeout -k 1 100 $NNLUA %s 2>%s/errors"):format(
    environment or "", command, base))
  return status, output, files.read(base .. "/errors")
end
local settings = "layers=4 embd=128 batch=2 context=16 vocab=300 steps=3 eager=2"
local small = ("%stiers.lua %s"):format(support, settings)
local tiered = ("%s ram=%d disk=%s"):format(small, ram, disk)

local known
local function expected()
  known = known or select(2, run(small))
  return known
end

-- An error of the disk: its reason, the folder and the tile.
local reasons = {["5"] = "Input/output error", ["28"] = "No space left on device",
                 zero = "bytes were transferred"}
local function is_disk_error(text, kind)
  if kind == "corrupt" or kind == "lost" then
    return text:find "load of tile %d+ of [%d.]+ k?M?B.-: tile %d+ has changed since a store"
  end
  local about = text:find("tile %d+ of [%d.]+ k?M?B.- cannot be %a+ %a+ the disk folder")
    or text:find("tile %d+ of [%d.]+ k?M?B.- cannot get space in the disk folder")
  return about and text:find(disk, 1, true) and text:find(reasons[kind], 1, true)
end

-- Fails call after call until a run needs fewer -> how many runs ended with an error. `share` of
-- the calls fail in a test of some. check(status, output, errors, what) judges a run.
local function sweep(calls, kind, share, check)
  local n, failed = all and 1 or math.random(5), 0
  repeat
    local what = ("%s:%d:%s"):format(calls, n, kind)
    local status, ended = check("NNLUA_FAIL_DISK=" .. what, what)
    t.same(files.list(disk), {})
    failed = failed + (status == 0 and 0 or 1)
    n = n + (all and 1 or math.random(math.floor(2 / share)))
  until ended
  return failed
end

-- A training in which a call fails: an error, and only right values before it.
local function train(environment, what, kind)
  local status, output, errors = run(tiered, environment)
  t.check(status == 0 or status == 1, what .. "\n" .. errors)
  t.same(output, expected():sub(1, #output))
  if status == 1 then
    t.check(is_disk_error(errors, kind), what .. "\n" .. errors)
    t.check(select(2, errors:gsub("\n", "")) <= 1, "more than one line: " .. errors)
  else
    t.same(output, expected())
  end
  return status
end

for kind, about in pairs {["5"] = "that fails", ["28"] = "for which there is no space",
                          zero = "that transfers nothing"} do
  t.case("a transfer " .. about .. " ends a run with one error and no wrong value", function()
    local calls = kind == "zero" and "read" or "any"
    t.check(sweep(calls, kind, 0.008, function(environment, what)
      local status = train(environment, what, kind)
      return status, status == 0
    end) > 0, "no run failed")
  end)
end

t.case("a disk that fills up ends a run with one error", function()
  for _, what in ipairs {"write:1+:28", "write:200+:28", "reserve:1+:28", "reserve:90+:28"} do
    t.same(train("NNLUA_FAIL_DISK=" .. what, what, "28"), 1)
    t.same(files.list(disk), {})
  end
end)

t.case("short transfers and file systems without O_DIRECT or reservations change no bit", function()
  for _, what in ipairs {"read:1+:part", "write:7:part,read:9:part,read:11:4", "open:1:22",
                         "open:1:95", "reserve:1+:95", "write:5:22"} do
    local status, output, errors = run(tiered, "NNLUA_FAIL_DISK=" .. what)
    t.check(status == 0, what .. "\n" .. errors)
    t.same(output, expected(), what)
    t.same(files.list(disk), {})
  end
end)

t.case("checksums find bytes that the disk changed and writes that it lost", function()
  for _, kind in ipairs {"corrupt", "lost"} do
    local found = 0
    for _ = 1, all and 100 or 5 do
      local what = ("%s:%d:%s"):format(kind == "lost" and "write" or "read",
                                    math.random(180, 350), kind)
      found = found + train("NNLUA_CHECKS=tiles NNLUA_FAIL_DISK=" .. what, what, kind)
    end
    t.check(found > 0, "nothing was found")
  end
  local _, output = run(tiered, "NNLUA_CHECKS=off NNLUA_FAIL_DISK=read:20+:corrupt")
  t.check(output ~= expected(), "without checksums, a wrong byte changes the results")
end)

t.case("a session goes on after a failed transfer: what it reads is right", function()
  local recover = support .. "tiers_recover.lua " .. disk
  local status, _, errors = run(recover .. " 0")
  t.check(status == 0, errors)
  local failed = 0
  for _ = 1, all and 200 or 12 do
    local what = ("any:%d:5"):format(math.random(1400))
    local output
    status, output, errors = run(recover .. " " .. ram, "NNLUA_FAIL_DISK=" .. what)
    t.check(status == 0 and output:find(" 0 wrong", 1, true), what .. "\n" .. output .. errors)
    failed = failed + (output:find "^0 errors" and 0 or 1)
  end
  t.check(failed > 0, "no transfer failed")
end)

t.case("random delays of transfers and tasks change no bit", function()
  for _ = 1, tonumber(os.getenv "TIERS_DELAYS") or 3 do
    local seed = math.random(1e6)
    local status, output, errors = run(tiered, "NNLUA_CHECKS=tiles NNLUA_DELAYS=" .. seed)
    t.check(status == 0, errors)
    t.same(output, expected(), "seed " .. seed)
  end
end)

t.case("values changed between compiled steps, or as many as do not fit, are kept", function()
  nn.memory_tiers {ram = 3e6, disk = disk, disk_in_ram = true}
  local tensors = {}
  for i = 1, 40 do tensors[i] = nn.full({256, 256}, i) end
  for _ = 1, 3 do
    for i = 1, 40 do nn.no_grad(function() tensors[i]:add_(tensors[i]) end) end
  end
  tensors[3]:copy_from_host(nn.full({256, 256}, 77):host())
  for _ = 1, 2 do
    for i = 1, 40 do t.same(tensors[i]:mean():item(), i == 3 and 77 or 8 * i) end
  end
  t.check(nn.memory().disk.written > 8e6, "nothing was moved")
end)

t.case("folders that cannot be used are errors", function()
  files.write(base .. "/file", "text")
  for folder, reason in pairs {
    [base .. "/none/new"] = "created: there is no folder " .. base .. "/none;",
    [base .. "/file"] = "used: Not a directory", ["/proc"] = "used: ",
  } do
    local status, _, errors = run(("%s ram=%d disk=%s"):format(small, ram, folder))
    local text = ("the disk folder '%s' cannot be %s"):format(folder, reason)
    t.check(status == 1 and errors:find(text, 1, true), errors)
  end
  local status, _, errors = run(tiered, "NNLUA_FAIL_DISK=open:1:13")
  t.check(status == 1 and errors:find("Permission denied", 1, true), errors)
end)

t.case("a file system that is too small is one error", function()
  local status, output = t.shell(([[
    unshare -rm true 2>/dev/null || exit 77
    unshare -rm sh -c 'mount -t tmpfs -o size=8m none %s || exit 77
      timeout -k 1 60 $NNLUA %s; s=$?; [ -z "$(ls -A %s)" ] || exit 3; exit $s' 2>&1]]):format(
    disk, tiered, disk))
  if status == 77 then t.skip "this machine has no user namespaces" end
  t.same(status, 1)
  t.check(output:find("No space left on device", 1, true), output)
end)

t.case("a run goes on when its folder is removed, and two runs share a folder", function()
  local status, output = t.shell(([[
    mkdir -p %s/gone; $NNLUA %s ram=%d disk=%s/gone >%s/1 2>%s/e1 & one=$!
    $NNLUA %s >%s/2 2>%s/e2 & two=$!
    while kill -0 $one 2>/dev/null && ! grep -qs 'step 1' %s/1; do sleep 0.01; done
    rmdir %s/gone || exit 3
    wait $one || exit 4
    wait $two || exit 5]]):format(base, small, ram, base, base, base, tiered, base, base, base,
                                  base))
  t.check(status == 0, output .. files.read(base .. "/e1") .. files.read(base .. "/e2"))
  t.same(files.read(base .. "/1"), expected())
  t.same(files.read(base .. "/2"), expected())
end)

t.finish()
