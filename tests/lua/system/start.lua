-- The start of the engine without a home folder, without threads, and with wrong settings of
-- StarPU.
local files = require "nn.io.files"
local t = require "nn.test"

local folder = t.folder()
local sum = [[$NNLUA -e 'io.write "first "; print(nn.ones(3):sum():item())']]

-- Runs commands as a user without rights; root ignores permissions and the limit of processes.
local as_nobody = [[
  nobody() {
    if [ $(id -u) = 0 ]; then setpriv --reuid=65534 --clear-groups "$@"; else "$@"; fi
  }
]]

local function says(status, what, command)
  local got, output = t.shell("cd " .. folder .. "\n" .. command)
  t.check(output:find(what, 1, true), command .. ": " .. output)
  t.same(got, status, output)
  return output
end

t.case("without a writable home, StarPU's files are among the temporary ones", function()
  local unset = "unset XDG_CACHE_HOME STARPU_PERF_MODEL_DIR; "
  for _, home in ipairs {"export HOME=/proc; ", "unset HOME; ", "export HOME=; "} do
    files.make_folder(folder .. "/temporary")
    says(0, "first 3\n", unset .. home .. "TMPDIR=$PWD/temporary " .. sum)
    local made = files.list(folder .. "/temporary")
    t.same(#made, 1)
    t.check(files.list(folder .. "/temporary/" .. made[1] .. "/starpu/bus"), "StarPU's folders")
    t.shell(("rm -r %s/temporary"):format(folder))
  end
end)

t.case("a user without a home can compute", function()
  if t.shell(as_nobody .. "nobody $NNLUA --version") ~= 0 then
    t.skip "another user cannot run this program"
  end
  says(0, "first 3\n", as_nobody .. "cd /; unset HOME XDG_CACHE_HOME; nobody " .. sum)
end)

t.case("--health without a writable home names the folder in use", function()
  local _, output = t.shell("unset XDG_CACHE_HOME; HOME=/proc $NNLUA --health")
  t.check(output:find "performance models in /[^\n]*nnlua%-%d+/starpu", output)
  t.check(output:find("Memory", 1, true), output)
end)

t.case("without any writable folder, the error names both and what to set", function()
  says(1, "cannot write to '/proc/nnlua/starpu' or '/proc/nnlua-",
       "XDG_CACHE_HOME=/proc TMPDIR=/proc " .. sum)
  says(1, "STARPU_PERF_MODEL_DIR is '/proc/models', where nnlua cannot write; unset it",
       "STARPU_PERF_MODEL_DIR=/proc/models " .. sum)
end)

t.case("a process that may not create threads ends with the limits to raise", function()
  if t.shell(as_nobody .. "nobody $NNLUA --version") ~= 0 then
    t.skip "another user cannot run this program"
  end
  says(1, "this process can create only 0 of the ", as_nobody .. "cd /; nobody prlimit --nproc=1 "
       .. sum .. " 2>&1 | tee /dev/stderr | grep -q 'ulimit -u'; exit ${PIPESTATUS[0]}")
end)

t.case("every scheduler that an error offers computes, and no other is accepted", function()
  local output = says(1, "unknown scheduler 'none'", "STARPU_SCHED=none " .. sum)
  local offered = output:match "known: (.-), and"
  local code = [[timeout -k 1 60 $NNLUA -e '
    local w = nn.ones(16, 16)
    local f = nn.compile(function(x) return x:matmul(w):sum() end)
    local sum = 0
    for i = 1, 20 do sum = sum + f(nn.ones(2, 16)):item() end
    for i = 1, 200 do w = w + 0 end
    print(sum, w:sum():item())']]
  local count = 0
  for name in offered:gmatch "[%w-]+" do
    says(0, "10240\t256\n", "STARPU_SCHED=" .. name .. " " .. code)
    count = count + 1
  end
  t.check(count >= 8, offered)
  for _, name in ipairs {"pheft", "graph_test", "lws", "modular-heteroprio-heft"} do
    t.check(not (", " .. offered .. ","):find(", " .. name .. ",", 1, true), offered)
    says(1, "scheduler '" .. name .. "' cannot be used: it ", "STARPU_SCHED=" .. name .. " " .. sum)
  end
  says(0, "first 3\n", "STARPU_SCHED= " .. sum)
  says(1, "STARPU_SCHED_LIB is 'none.so', which cannot be loaded", "STARPU_SCHED_LIB=none.so "
       .. sum)
end)

t.case("settings of StarPU with which nothing can run are refused by name", function()
  says(1, "STARPU_NCPU is '0'; at least one CPU worker is needed", "STARPU_NCPU=0 " .. sum)
  says(1, "STARPU_DISABLE_KERNELS is '1', so StarPU would run no kernel",
       "STARPU_DISABLE_KERNELS=1 " .. sum)
  says(0, "4000000\n", "STARPU_LIMIT_CPU_MEM=1 timeout -k 1 60 $NNLUA -e "
       .. "'print(nn.ones(4000000):sum():item())'")
end)

t.case("where StarPU aborts at its start, the last line names the variables set for it", function()
  for _, setting in ipairs {
    "STARPU_BUS_CALIBRATE=soon", "STARPU_WORKERS_CPUID=first", "STARPU_MAIN_THREAD_CPUID=99999"
  } do
    local output = says(1, "unset the variables that change how it starts: ", setting .. " " .. sum)
    t.check(output:match "nnlua: StarPU cannot start[^\n]*\n$":find(setting, 1, true), output)
    t.check(output:find("first ", 1, true), output)       -- earlier output is not lost
  end
end)

t.case("foreign modules in the current folder, LUA_PATH and LUA_CPATH do not stop a start",
       function()
  local foreign = folder .. "/foreign"
  files.make_folder(foreign .. "/nn/io")
  for _, name in ipairs {"cjson", "nn", "ffi", "bit", "json", "repl", "health", "nn/host",
                         "nn/io/files", "start"} do
    files.write(("%s/%s.lua"):format(foreign, name), ("error 'foreign %s'"):format(name))
  end
  files.write(foreign .. "/cjson.so", "not a library")
  local command = "$NNLUA -e 'io.write \"first \"; print(#nn.from_json \"[1, 2, 3]\")'"
  local absent = "$NNLUA -e 'print(pcall(require, \"json\"))'"
  for _, setting in ipairs {"LUA_PATH='%s/?.lua'", "LUA_PATH='%s/?.lua;;'", "LUA_CPATH='%s/?.so'",
                            "LUA_CPATH='%s/?.so;;'", "LUA_PATH=", "LUA_CPATH=", "LUA_PATH=';;;'",
                            "LUA_PATH=/nowhere LUA_CPATH=/nowhere", "cd %s;"} do
    setting = setting:format(foreign) .. " "
    t.same(says(0, "first 3\n", setting .. command), "first 3\n")
    says(0, "1\n", setting .. "echo 'print(#nn.from_json \"[1]\")' | $NNLUA")
    local is_found = setting:find("foreign/?.lua", 1, true) or setting:find "^cd"
    says(0, is_found and "foreign json" or "module 'json' not found", setting .. absent)
  end
  says(0, "\nProcessor\n", ("cd %s; $NNLUA --health || true"):format(foreign))
end)

t.case("modules of the user are found by the rules of LUA_PATH and LUA_CPATH", function()
  local command = "$NNLUA -e 'print(package.path) print(package.cpath)'"
  local function paths(setting)
    return says(0, "", setting .. " " .. command):match "^(.*)\n(.*)\n$"
  end
  local path, libraries = paths "env -u LUA_PATH -u LUA_CPATH"
  t.check(path:find "^%./%?%.lua;" and libraries:find "^%./%?%.so;", path .. libraries)
  local given = paths "LUA_PATH='/a/?.lua;/b/?.lua' LUA_CPATH='/c/?.so'"
  t.check(given:find("^%./%?%.lua;/a/%?%.lua;/b/%?%.lua;/") and not given:find("/usr/", 1, true),
          given)
  t.same(select(2, paths "LUA_CPATH='/c/?.so;;'"), "/c/?.so;" .. libraries)
  t.check(paths("LUA_PATH='/a/?.lua;;'") == path:gsub("^%./%?%.lua;", "%0/a/?.lua;"))
end)

-- A checkout's lock, with .setup/ of this one.
local function with_lock(text)
  return says(0, "", ([[
    bash -c 'set -eu; . %s/.setup/setup.sh; deps=$PWD/locked root=/checkout; mkdir -p $deps/log
      %s']]):format(package.loaded["nn.host"].root, text))
end

t.case("starts that find nothing to build say nothing, even if they wait for each other", function()
  local output = with_lock [[locked sleep 1.5 & for i in 1 2 3; do locked true & done; wait]]
  t.same(output, "")
end)

t.case("a start that waits for one that builds says so once", function()
  local output = with_lock [[
    (locked stage building $deps/log/build.log "" sleep 3.5 2>/dev/null) &
    while [ ! -s $deps/lock ]; do sleep 0.1; done
    locked echo mine]]
  t.same(output, "nnlua: waiting for another nnlua that is building in /checkout\nmine\n")
end)

t.finish()
