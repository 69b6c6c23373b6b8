-- The README's GPT-2 in Lua runs unchanged, and learns; README and tutorial keep their order.

local t = require "nn.test"
local root = package.loaded["nn.host"].root

t.case("the README's script trains", function()
  local text = assert(io.open(root .. "/README.md")):read "*a"
  local code = assert(text:match "```lua\n(.-)```", "no Lua block in the README")
  code = code:gsub('"README.md"', function() return ("%q"):format(root .. "/README.md") end)
  local printed, losses = print, {}
  rawset(_G, "print", function(_, loss) losses[#losses + 1] = loss end)
  local ok, err = pcall(assert(loadstring(code, "=README.md")))
  rawset(_G, "print", printed)
  assert(ok, tostring(err))
  t.near(#losses, 4, {abs = 0})
  assert(losses[4] < losses[1] and losses[4] < 2.5, "the loss ended at " .. losses[4])
end)

-- The line numbers of the lines of a text that begin with these words, in this order.
local function lines_of(text, words)
  local found, number, at = {}, 0, 1
  for line in text:gmatch "([^\n]*)\n" do
    number = number + 1
    if at <= #words and line:find(words[at], 1, true) == 1 then
      found[at], at = number, at + 1
    end
  end
  return found
end

t.case("the README leads to a first run within a screen, and the tutorial goes by need", function()
  local readme = assert(io.open(root .. "/README.md")):read "*a"
  local found = lines_of(readme, {"    ./nnlua recipes/gpt2_train.lua", "    done after",
                                  "## Coming from", "| PyTorch", "| nanoGPT", "| Julia"})
  t.same(#found, 6)
  t.check(found[2] <= 24, "the first run is explained in line " .. found[2])
  local tutorial = assert(io.open(root .. "/docs/tutorial.md")):read "*a"
  local order = {"## The first run", "## Your own data", "## Tensors", "## Modules",
                 "## A training loop", "## Your own recipe", "## A model that does not fit",
                 "## Several machines", "## Your own kernel in C++"}
  t.same(#lines_of(tutorial, order), #order)
end)

t.finish()
