-- `cmake --install` gives a program that finds its library without the source tree.
local t = require "nn.test"

local folder = t.folder()

t.case("an installed nnlua runs from anywhere, a recipe too", function()
  local build = t.program():match "^(.*)/"
  local status, output = t.shell(([[
    set -e
    cmake --install %s --prefix %s/usr >/dev/null
    cd %s
    usr/bin/nnlua -e 'print(package.loaded["nn.host"].root, (nn.ones(2) + 1):sum():item())'
    usr/bin/nnlua usr/share/nnlua/recipes/gpt2_train.lua --plan | grep -c "^parameters"
    echo '%%time 6 * 7' | usr/bin/nnlua | head -1
  ]]):format(build, folder, folder))
  t.same(output, folder .. "/usr/share/nnlua\t4\n1\n42\n")
  t.same(status, 0)
end)

t.finish()
