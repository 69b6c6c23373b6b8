-- For tests of recipes/gpt2_train.lua as a process: a folder with the script `train`, which is the
-- recipe with small settings on text.txt, and a shell in it.
local checkpoint = require "nn.models.checkpoint"
local files = require "nn.io.files"
local host = require "nn.host"
local t = require "nn.test"

local M = {}
local small = "data.text=text.txt model.layers=1 model.embd=32 model.heads=2 model.context=16 "
  .. "model.dtype=f32 "  -- auto would depend on measured rates
  .. "data.batch=4 eval_every=0 final_batches=2 sample.tokens=10 schedule.warmup=2 log_every=1"

--- new(before) -> {folder=, shell=, newest=, events=}. before: Lua code to run before the recipe.
function M.new(before)
  local self = {folder = t.folder()}
  local function path(name) return files.join(self.folder, name) end
  files.write(path "text.txt", ("the quick brown fox jumps over the lazy dog.\n"):rep(50))
  files.write(path "train.lua", ("%s\ndofile '%s/recipes/gpt2_train.lua'\n"):format(before or "",
                                                                                  host.root))
  files.write(path "train", ('#!/bin/bash\nexec %s %s %s "$@"\n'):format(
    t.program(), path "train.lua", small))

  --- self.shell(text) -> status, output. `await FILE TEXT` waits until a log contains the text,
  --- `await_end PROCESS` until a process ends; it returns the status, 137 after two minutes.
  --- `train` has the default actions of all signals.
  function self.shell(text)
    return t.shell(([[
      cd %s; chmod +x train; ulimit -c 0; set -m
      train() { exec env --default-signal ./train "$@"; }
      await() {
        for i in $(seq 900); do grep -q "$2" $1 2>/dev/null && return; sleep 0.1; done
        echo "$1 never contains $2"
      }
      await_end() {
        (timeout 120 tail --pid=$1 -f /dev/null || kill -KILL $1) >/dev/null 2>&1 &
        wait $1
      }
    ]]):format(self.folder) .. text)
  end

  --- self.newest(out) -> the newest checkpoint. Fails if it, or a later one, is damaged.
  function self.newest(out)
    return checkpoint.find(path(out), "auto", function(text) error(text, 0) end)
  end

  --- self.events(out) -> the events in metrics.jsonl.
  function self.events(out)
    local list = {}
    for line in files.read(path(out .. "/metrics.jsonl")):gmatch "[^\n]+" do
      list[#list + 1] = files.parse_json(line)
    end
    return list
  end
  return self
end

return M
