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
    cmake --build %s --target nnlua >/dev/null
    cmake --install %s --prefix usr >/dev/null
    usr/bin/nnlua -e 'print(package.loaded["nn.host"].root, (nn.ones(2) + 1):sum():item())'
    usr/bin/nnlua usr/share/nnlua/recipes/gpt2_train.lua --plan | grep -c "^parameters"
    usr/bin/nnlua recipes/runs.lua --help | sed -n 2p
    mkdir recipes; echo 'print("mine")' >recipes/runs.lua; usr/bin/nnlua recipes/runs.lua
    echo '%%time 6 * 7' | usr/bin/nnlua | head -1
    mkdir models; echo 'return {mark = "my model"}' >models/gpt2.lua
    usr/bin/nnlua -e 'print(require("models.gpt2").mark)'; rm -r models
  ]]):format(build, build))
  t.same(output, folder .. "/usr/share/nnlua\t4\n1\n"
         .. "Lists runs with their state, the newest last.\nmine\n42\nmy model\n")
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
  t.check(complete("recipes/gpt2_train.lua", ""):find "model.layers= ", "settings of a recipe")
end)

-- A folder with a text and a script that writes a file if it is run.
local function make_folder_for_completion()
  shell [[rm -rf typed; mkdir typed; echo text >typed/notes.txt
          echo 'io.open("has_run", "w"):close()' >typed/mine.lua]]
end

-- complete(typed) -> the candidates, or the line after Tab where a shell shows none.
local function check_completion(complete)
  make_folder_for_completion()
  for typed, expected in pairs {
    ["--v"] = "--version", ["mi"] = "mine.lua", ["recipes/gpt2_t"] = "recipes/gpt2_train.lua",
    ["--ranks 2 recipes/gpt2_t"] = "recipes/gpt2_train.lua",
    ["recipes/gpt2_train.lua optim.l"] = "optim.lr=",
    ["recipes/gpt2_train.lua preset=gpt2-l"] = "preset=gpt2-large",
    ["recipes/gpt2_train.lua data.text=not"] = "data.text=notes.txt",
    ["recipes/gpt2_train.lua --pla"] = "--plan", ["mine.lua optim.l"] = ""
  } do
    t.same({typed, complete(typed)}, {typed, expected})
  end
  t.check(not files.exists(folder .. "/typed/has_run"), "completion runs a script")
end

t.case("fish completes from an installation what the program accepts", function()
  if shell "command -v fish >/dev/null" ~= 0 then t.skip "there is no fish" end
  check_completion(function(typed)
    local _, output = shell(([[cd typed
      HOME=$PWD XDG_DATA_DIRS=$PWD/../usr/share PATH=$PWD/../usr/bin:$PATH \
        fish -c 'complete -C "nnlua %s"' | cut -f 1]]):format(typed))
    return (output:gsub("\n$", ""))
  end)
end)

t.case("zsh completes from an installation what the program accepts", function()
  if shell "command -v zsh >/dev/null" ~= 0 then t.skip "there is no zsh" end
  -- A terminal for a zsh, in which Ctrl-X prints the line.
  files.write(folder .. "/tab.zsh", [[
    zmodload zsh/zpty
    zpty line 'PS1= TERM=dumb zsh -f -i'
    zpty -w line 'unset zle_bracketed_paste; stty -echo; fpath+=($USR/share/zsh/site-functions)
      autoload -U compinit; compinit -u -D
      show() { print -r -- "<<$BUFFER>>"; }; zle -N show; bindkey "^X" show; print re""ady'
    zpty -r line answer '*ready*'
    zpty -w -n line "nnlua $1"$'\t\x18'
    zpty -r line answer '*<<*>>*'
    print -r -- "${${answer##*<<}%%>>*}"]])
  check_completion(function(typed)
    local _, output = shell(([[cd typed
      HOME=$PWD USR=$PWD/../usr PATH=$PWD/../usr/bin:$PATH timeout 60 zsh -f ../tab.zsh '%s'
      ]]):format(typed))
    local before = "nnlua " .. typed:gsub("%S*$", "")
    local line = output:gsub("%s*$", "")
    return line == "nnlua " .. typed and "" or line:sub(#before + 1)
  end)
end)

t.case("uninstall removes what was installed, and says so where nothing is", function()
  local status, output = shell(([[
    cmake --install %s --prefix gone >/dev/null
    mkdir -p gone/share/nnlua/recipes; echo mine >gone/share/nnlua/recipes/mine.lua
    cmake --build %s --target uninstall >/dev/null
    find gone ! -type d]]):format(build, build))
  t.same({status, output}, {0, "gone/share/nnlua/recipes/mine.lua\n"})
  status, output = shell(("cmake --build %s --target uninstall 2>&1"):format(build))
  t.check(status ~= 0 and output:find("nothing to uninstall", 1, true), output)
end)

t.case("an installation without the part for several ranks says how to get it", function()
  if shell "command -v mpirun >/dev/null" ~= 0 then t.skip "mpirun is not installed" end
  local built = files.exists(build .. "/libnnlua_mpi.so")
  local run = "cd /; " .. folder .. "/usr/bin/nnlua --ranks 2 -e 'print(1)' 2>&1"
  if built then
    t.same({shell(run)}, {0, "1\n"})
    shell "rm usr/lib*/nnlua/libnnlua_mpi.so usr/lib/*/nnlua/libnnlua_mpi.so || true"
  end
  local status, output = shell(run)
  t.same({status, select(2, output:gsub("libnnlua_mpi.so is missing", ""))}, {1, 1})
  t.check(output:find("./nnlua --ranks 2 SCRIPT", 1, true), output)
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
    for file in package/nnlua-ranks_*.deb; do
      [ ! -f "$file" ] || dpkg-deb -f "$file" Depends | grep -q 'nnlua (= .*openmpi-bin' || exit 1
    done
    dpkg-deb -f package/nnlua_*.deb Package Depends
    dpkg-deb -c package/nnlua_*.deb]]):format(build))
  if status == 77 then t.skip "there is no dpkg-deb" end
  t.same(status, 0)
  t.check(not output:find "openmpi" and not output:find "_mpi%.so",
          "the package needs or contains MPI: " .. output)
  for _, wanted in ipairs {"Package: nnlua\n", "libopenblas0", "libluajit%-5.1%-2", "libdeflate0",
                           "/usr/bin/nnlua\n", "/usr/share/nnlua/lua/nn/init.lua",
                           "/usr/share/man/man1/nnlua.1", "/libnnlua%.so%.0 ",
                           "/usr/share/doc/nnlua/architecture.md"} do
    t.check(output:find(wanted), "no " .. wanted .. " in\n" .. output)
  end
end)

t.finish()
