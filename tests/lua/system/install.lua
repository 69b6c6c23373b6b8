-- What `cmake --install` and `cpack` make works without the source tree.
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local folder = t.folder()
local program = t.program()              -- before `cmake --build` replaces it
local build = program:match "^(.*)/"
local function shell(text) return t.shell(("set -e; cd %s\n"):format(folder) .. text) end

t.case("an installed nnlua and its recipes run from any folder", function()
  local status, output = shell(([[
    cmake --build %s --target libnnlua nnlua >/dev/null
    cmake --install %s --prefix usr >/dev/null
    usr/bin/nnlua -e 'print(package.loaded["nn.host"].root, (nn.ones(2) + 1):sum():item())'
    usr/bin/nnlua usr/share/nnlua/recipes/gpt2_train.lua --plan | grep -c "^parameters"
    usr/bin/nnlua recipes/runs.lua --help | sed -n 2p
    mkdir recipes; echo 'print("mine")' >recipes/runs.lua; usr/bin/nnlua recipes/runs.lua
    echo '%%time 6 * 7' | usr/bin/nnlua | head -1
  ]]):format(build, build))
  t.same(output, folder .. "/usr/share/nnlua\t4\n1\n"
         .. "Lists runs with their state, the newest last.\nmine\n42\n")
  t.same(status, 0)
end)

t.case("a C program finds the library through pkg-config and through CMake", function()
  files.write(folder .. "/CMakeLists.txt", [[
    cmake_minimum_required(VERSION 3.21)
    project(example C)
    find_package(nnlua 0.1 REQUIRED)
    add_executable(by_cmake usr/share/doc/nnlua/example.c)
    target_link_libraries(by_cmake nnlua::nnlua)]])
  local status, output = shell [[
    export PKG_CONFIG_PATH=$(dirname $(find $PWD/usr -name nnlua.pc))
    cc -Wall -Wextra -Werror usr/share/doc/nnlua/example.c $(pkg-config --cflags --libs nnlua) \
      -Wl,-rpath,$(pkg-config --variable=libdir nnlua) -o by_pkg_config
    ./by_pkg_config
    cmake -S . -B made -DCMAKE_PREFIX_PATH=$PWD/usr >/dev/null && cmake --build made >/dev/null
    made/by_cmake
    nm -D --defined-only $(find usr -name libnnlua.so) | grep -v ' nn_' || true]]
  t.same(output, "y = 3.000 x -2.000\ny = 3.000 x -2.000\n")
  t.same(status, 0)
end)

t.case("the shell completes options, scripts, presets and settings", function()
  local function complete(...)
    local words = {}
    for i, word in ipairs {...} do words[i] = ("'%s'"):format(word) end
    files.write(folder .. "/complete", ([[
      source %s/.setup/completion.bash
      COMP_WORDS=(%s %s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
      _nnlua; printf '%%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' ']]):format(
        host.root, program, table.concat(words, " ")))
    local status, output = shell(("mkdir -p recipes; cp %s/recipes/gpt2_train.lua recipes/; "
                                  .. "bash complete"):format(host.root))
    t.same(status, 0)
    return output
  end
  t.same(complete "--v", "--version ")
  t.same(complete "rec", "recipes/ ")
  t.same(complete "recipes/gpt2_t", "recipes/gpt2_train.lua ")
  t.same(complete("recipes/gpt2_train.lua", "optim.l"), "optim.lr= ")
  t.same(complete("recipes/gpt2_train.lua", "preset", "=", "gpt2-"),
         "gpt2-large gpt2-medium gpt2-xl ")
end)

t.case("the man page has no errors", function()
  local status, output = shell(([[
    command -v groff >/dev/null || exit 77
    groff -man -Tutf8 -ww -z %s/docs/nnlua.1]]):format(host.root))
  if status == 77 then t.skip "there is no groff" end
  t.same({status, output}, {0, ""})
end)

t.case("the Debian package contains the program, its library and its documents", function()
  local status, output = shell(([[
    command -v dpkg-deb >/dev/null || exit 77
    cpack --config %s/CPackConfig.cmake -B package >log 2>&1 || { cat log; exit 1; }
    dpkg-deb -f package/nnlua_*.deb Package Depends
    dpkg-deb -c package/nnlua_*.deb]]):format(build))
  if status == 77 then t.skip "there is no dpkg-deb" end
  t.same(status, 0)
  for _, wanted in ipairs {"Package: nnlua\n", "libopenblas0", "libluajit%-5.1%-2", "libdeflate0",
                           "/usr/bin/nnlua\n", "/usr/share/nnlua/lua/nn/init.lua",
                           "/usr/share/man/man1/nnlua.1", "/libnnlua%.so%.0 ",
                           "/usr/share/doc/nnlua/architecture.md"} do
    t.check(output:find(wanted), "no " .. wanted .. " in\n" .. output)
  end
end)

t.finish()
