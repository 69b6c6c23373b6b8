-- The source tree keeps its shape: dependencies go one way, the library requires no model, models
-- name nothing of the engine, and functions and files stay short. Each check is also tried on a
-- copy with one bad line.

local root = require("nn.host").root
local t = require "nn.test"
package.path = root .. "/tests/lua/support/?.lua;" .. package.path
local source = require("sources").copy
local structure = require "structure"

local function holds(check)
  local problems = structure[check](source())
  t.check(#problems == 0, table.concat(problems, "\n  "))
end

-- The check says `problem` of the tree with `text` at the beginning of a file, which may be new.
local function finds(check, path, text, problem)
  local changed = source()
  changed[path] = text .. "\n" .. (changed[path] or "")
  local problems = table.concat(structure[check](changed), "\n")
  t.check(problems:find(problem, 1, true), ("expected: %s\n  found: %s"):format(problem, problems))
end

-- A header of the engine and another one that it includes.
local function include_in_engine()
  local found, paths = {}, {}
  for path, text in pairs(source()) do
    found[path] = path:match "^engine/.*%.h$" and text:match '\n#include "(engine/[^"]+)"' or nil
    if found[path] then paths[#paths + 1] = path end
  end
  table.sort(paths)
  return paths[1], found[paths[1]]
end

t.case("units of the engine include each other without a cycle", function()
  holds "include_cycles"
end)

t.case("an include that closes a cycle is found", function()
  local path, included = include_in_engine()
  finds("include_cycles", included, ('#include "%s"'):format(path), "an include cycle: engine/")
  finds("include_cycles", included:gsub("h$", "cc"), ('#include "%s"'):format(path),
        path:gsub("%.h$", ""))
end)

t.case("the library catches no stop signal", function()
  holds "catches"
  finds("catches", "lua/nn/train/new.lua", "local good = pcall(f)",
        "lua/nn/train/new.lua:1: pcall also catches a stop signal")
end)

t.case("includes follow the order of the rooms and of the engine's folders", function()
  holds "include_order"
end)

t.case("an include against the order is found", function()
  local order = structure.engine
  local low, high = order[1], order[#order]
  finds("include_order", "kernels/types.h", '#include "engine/base/error.h"',
        "kernels/types.h includes engine/base/error.h: kernels may not know engine")
  finds("include_order", "kernels/cuda/gelu.cu", '#include "bindings/nn.h"',
        "kernels may not know bindings")
  finds("include_order", "engine/" .. low .. "/new.cc", '#  include "bindings/nn.h"',
        "engine may not know bindings")
  finds("include_order", "engine/" .. low .. "/new.h", ('#include "engine/%s/x.h"'):format(high),
        ("engine/%s may not know engine/%s"):format(low, high))
  finds("include_order", "engine/new.cc", ('#include "engine/%s/x.h"'):format(low),
        "a folder of engine/ that is not in the order")
end)

t.case("only the pipeline changes programs", function() holds "one_pipeline" end)

t.case("a program that changes elsewhere is found", function()
  for _, path in ipairs {"engine/executor/replay.cc", "engine/tiers/plan.cc", "bindings/nn.cc"} do
    finds("one_pipeline", path, "void f(Program& p) { delay_sums(p); }",
          path .. " calls delay_sums")
  end
end)

t.case("modules of the library require each other without a cycle", function()
  holds "require_cycles"
end)

t.case("a require that closes a cycle is found, inside a function too", function()
  finds("require_cycles", "lua/nn/base/units.lua",
        "local function f() return require('nn.train.run') end", "a cycle of requires: nn.")
  finds("require_cycles", "lua/nn/core/tensor.lua", 'local nn = require "nn"',
        "a cycle of requires: nn")
end)

t.case("requires follow the order of the library's folders", function() holds "require_order" end)

t.case("a require against the order is found", function()
  finds("require_order", "lua/nn/base/heap.lua", 'local run = require "nn.train.run"',
        "lua/nn/base/heap.lua:1 requires nn.train.run: nn.base may not know nn.train")
  finds("require_order", "lua/nn/train/run.lua", "require('nn')", "nn.train may not know nn")
  finds("require_order", "lua/nn/init.lua", 'require "repl.session"', "nn may not know repl")
  finds("require_order", "lua/nn/made/new.lua", 'require "nn.base.heap"',
        "a folder that is not in the order")
end)

t.case("a model or a recipe that the library requires is found", function()
  for _, line in ipairs {'local GPT2 = require "models.gpt2"', "require('models.gpt2')",
                         '\nlocal good = pcall(require, "models.gpt2")'} do
    finds("require_order", "lua/nn/plan/inference.lua", line, "the library requires no model")
  end
  finds("require_order", "lua/health.lua", 'require "recipes.runs"', "and no recipe")
  local computed = source()
  computed["lua/nn/models/new.lua"] = 'return require("models." .. name)  -- require "models.gpt2"'
  t.same(structure.require_order(computed), {})
end)

t.case("models are short and name no devices, tiles or memory", function()
  holds "plain_models"
end)

t.case("a model that is long or names a device is found", function()
  local lines = ("x()\n"):rep(structure.longest_model)
  t.same(structure.plain_models {["models/new.lua"] = lines}, {})
  finds("plain_models", "models/new.lua", lines, "models/new.lua has 191 lines")
  finds("plain_models", "models/gpt2.lua", "-- on a GPU", "models/gpt2.lua names 'gpu'")
  finds("plain_models", "models/t5.lua", "x = x:retile(Tiles)", "models/t5.lua names 'tile'")
end)

t.case("functions and files are short", function() holds "lengths" end)

t.case("a function or a file that is too long is found", function()
  local limit = structure.longest_function
  local lines = ("x();\n"):rep(limit - 1)
  for path, text in pairs {
    ["lua/new.lua"] = "local function f()\n%s end",
    ["recipes/new.lua"] = "g(function(a)\nif a then repeat %s until a end end)",
    ["engine/base/new.cc"] = "int A::f(int a) const noexcept {\n%s}",
    ["engine/base/new.h"] = "struct A : B {\n  A(int a) : B(a), b_(a) {\n%s}\n};",
    ["bindings/new.cc"] = "auto f = [&](auto x) -> std::vector<int> {\n%s};",
    ["kernels/cpu/new.cc"] = "const Op op = {.run = [] {\n%s}};",
    ["kernels/cuda/new.cu"] = "template <class T> __global__ void f(T* x) {\n%s}",
  } do
    local found = (": a function of %d lines"):format(limit + 1)
    finds("lengths", path, text:format(lines), path .. ":")
    finds("lengths", path, text:format(lines), found)
    local short = structure.lengths {[path] = text:format(lines:sub(6))}
    t.same(short, {})
  end
  finds("lengths", "tests/new.py", ("\n"):rep(structure.longest_file), "tests/new.py has 401 lines")
end)

t.case("braces and words in strings and comments are not counted as code", function()
  local code = "int f() {\n  // {{{\n  return \"{\\\"{\" + '{' + R\"(}}{)\"; /* {\n */\n}\n"
  local long = ("namespace n {\n%s}\n"):format(code:rep(30))
  t.same(structure.lengths {["engine/base/new.cc"] = "#define A(x) { x \\\n {\n" .. long}, {})
  local lua = "local function f() -- do if\n  return 'function', [[ if ]] --[=[ repeat ]=]\nend\n"
  t.same(structure.lengths {["lua/new.lua"] = lua:rep(60)}, {})
end)

t.finish()
