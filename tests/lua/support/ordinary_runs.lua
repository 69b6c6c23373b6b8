-- Compares trainings of a model of ordinary ops (ordinary.lua), each a process of its own.
local host = require "nn.host"
local files = require "nn.io.files"
local t = require "nn.test"

local M = {}

--- What precedes the command of eager trainings: variables of its environment.
M.environment = ""

--- train(words, before, options) -> the output and errors of a training. before: variables of its
--- environment; options: of nnlua, as "--ranks 2".
function M.train(words, before, options)
  local errors = t.folder() .. "/errors"
  local status, output = t.shell(
    ("ulimit -c 0; %s timeout -k 1 100 $NNLUA %s %s/tests/lua/support/ordinary.lua %s 2>%s"):format(
      before or "NNLUA_CPUS=1", options or "", host.root, words, errors))
  local text = files.read(errors)
  t.check(status == 0, words .. ": " .. output .. text)
  return output, text
end

local known = {}
--- plain(words) -> the output of eager training by one worker.
function M.plain(words)
  known[words] = known[words] or M.train(words .. " how=eager", M.environment .. " NNLUA_CPUS=1")
  local _, steps = known[words]:gsub("step %d+ %d", "")
  t.check(steps > 1 and known[words]:find "square\t%d+\n", known[words])
  return known[words]
end

--- same(words, more, before, options) -> the errors of training with more words, which must print
--- what eager training with `words` by one worker prints.
function M.same(words, more, before, options)
  local all = words .. " " .. (more or "")
  local output, errors = M.train(all, before, options)
  t.same(output, M.plain(words), all)
  return errors
end

return M
