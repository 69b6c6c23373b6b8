-- Conditions in the folder and the shell of a run: links and foreign entries, copies, closed
-- descriptors, limits of the file size, data that is cut while it is read.
local files = require "nn.io.files"
local nn = require "nn"
local t = require "nn.test"
package.path = require("nn.host").root .. "/tests/lua/support/?.lua;" .. package.path
local training = require "training"

local run = training.new()
local shell, folder = run.shell, run.folder
local function path(name) return files.join(folder, name) end

t.case("two processes that start in the same second train in different folders", function()
  local _, output = shell [[
    for i in 1 2 3 4; do ./train steps=20 preset=demo seed=$i >start$i.log 2>&1 & done; wait
    tail -n 1 start?.log; ls runs]]
  t.check(output:find "\ndemo\ndemo%-2\ndemo%-3\ndemo%-4\n$", output)
  local seeds = {}
  for _, name in ipairs {"demo", "demo-2", "demo-3", "demo-4"} do
    local found = run.newest("runs/" .. name)
    t.same(found.state.step, 20)
    seeds[#seeds + 1] = found.state.config.seed
  end
  table.sort(seeds)
  t.same(seeds, {1, 2, 3, 4})
end)

t.case("a run folder that was copied with its links followed goes on", function()
  local status, output = shell [[
    ./train steps=4 eval_every=2 save_every=2 keep=1 out=linked >/dev/null && [ -L linked/best ]
    cp -rL linked copy && cp -rL linked alone && rm -r alone/checkpoint-* &&
      cp -r linked/checkpoint-000004 alone/ && echo mine >alone/best/notes
    for out in copy alone; do
      [ -d $out/best ] && [ ! -L $out/best ] && ./train steps=8 eval_every=2 save_every=2 \
        optim.lr=0.01 schedule.min_lr=0.01 resume=auto out=$out || exit 1
    done]]
  t.same(status, 0, output)
  for _, out in ipairs {"copy", "alone"} do
    t.check(files.is_link(path(out .. "/best")), output)
    local best = nn.open_checkpoint(path(out .. "/best")).state
    t.same(best.step, run.newest(out).state.best.step)
  end
  t.same(files.exists(path "copy/best.copy"), false)          -- equal to a checkpoint
  t.same(files.read(path "alone/best.copy/notes"), "mine\n")  -- the only one
  t.same(nn.open_checkpoint(path "alone/best.copy").state.format, 1)
end)

t.case("links and foreign entries in a run folder are neither followed nor removed", function()
  files.write(path "mine.txt", "mine")
  local status, output = shell [[
    mkdir -p elsewhere/disk && ln -s elsewhere/disk links
    for name in report.html config.json best; do ln -s ../../mine.txt elsewhere/disk/$name.tmp; done
    ln -s loop elsewhere/disk/loop; ln -s nowhere elsewhere/disk/checkpoint-000009
    mkdir -p links/checkpoint-000001.bak links/checkpoint-1/sub links/best.tmp.d links/notes
    ln -s nowhere links/checkpoint-000005; ln -s nowhere links/checkpoint-000005.copy
    mkdir links/checkpoint-7.old
    echo mine > links/checkpoint-000003; echo mine > links/notes/text; mkfifo links/pipe
    mkdir -p other/checkpoint-000002.tmp; echo mine > other/checkpoint-000002.tmp/text
    ln -s ../../other/checkpoint-000002.tmp links/checkpoint-000002.tmp
    ./train steps=6 eval_every=2 save_every=1 keep=1 keep_best=true out=links; status=$?
    cat other/checkpoint-000002.tmp/text links/checkpoint-000003.copy links/notes/text \
      mine.txt
    ls links; exit $status]]
  t.check(status == 0, output)
  t.check(output:find("mine\nmine\nmine\nmine", 1, true), output)
  for _, name in ipairs {"checkpoint%-000001%.bak", "checkpoint%-1", "loop", "notes", "pipe",
                         "best%.tmp%.d", "checkpoint%-000009", "checkpoint%-7%.old",
                         "checkpoint%-000005%.copy", "checkpoint%-000005%.copy%-2"} do
    t.check(output:find("\n" .. name .. "\n"), name .. ": " .. output)
  end
  t.same(files.read(path "mine.txt"), "mine")
  t.same(files.is_link(path "links/report.html"), false)
  t.same(run.newest("links").state.step, 6)
end)

t.case("temporary files replace links and keep folders of their name", function()
  local target = files.join(t.folder(), "target")
  files.write(target, "mine")
  local out = t.folder()
  for _, name in ipairs {"a.txt", "a.safetensors"} do
    files.link(target, files.join(out, name .. ".tmp"))
  end
  files.write(files.join(out, "a.txt"), "text")
  nn.save_safetensors(files.join(out, "a.safetensors"), {x = nn.ones(3)})
  t.same({files.read(target), files.read(files.join(out, "a.txt"))}, {"mine", "text"})
  t.same(nn.load_safetensors(files.join(out, "a.safetensors")).x, {1, 1, 1})
  files.make_folder(files.join(out, "b.safetensors.tmp/mine"))
  t.fails(function() nn.save_safetensors(files.join(out, "b.safetensors"), {x = nn.ones(3)}) end,
          "b.safetensors.tmp")
  t.check(files.list(files.join(out, "b.safetensors.tmp/mine")), "the user's folder stays")
end)

t.case("closed descriptors receive no file of the run", function()
  local closed = {out = ">&-", all = "0<&- 1>&- 2>&-", err = "2>&-", input = "0<&-"}
  for name, how in pairs(closed) do
    local status, output = shell(([[
      (exec ./train steps=20 out=%s %s); echo "ended with $?"]]):format(name, how))
    t.check(output:find("ended with 0\n", 1, true), status .. output)
    for line in files.read(path(name .. "/metrics.jsonl")):gmatch "[^\n]+" do
      t.check(line:find "^{" and files.parse_json(line), line)
    end
    for _, file in ipairs(files.list(path(name))) do
      local text = file:find "^events" and files.read(path(name .. "/" .. file)) or ""
      t.check(not text:find("step", 1, true), file)
    end
  end
end)

t.case("a limit of the file size is an error that names the last checkpoint", function()
  local status, output = shell [[
    ./train model.embd=64 steps=2 save_every=1 out=limit >/dev/null
    ulimit -f 100; ./train resume=auto out=limit model.embd=64 steps=9]]
  t.check(status == 1 and output:find("File too large (see ulimit -f). The last checkpoint is "
                                      .. "limit/checkpoint-000002", 1, true), output)
  t.same(run.newest("limit").state.step, 2)
end)

t.case("logs beyond a limit of the file size are warnings, and the run continues", function()
  local status, output = t.shell(([[
    cd %s; ulimit -f 4; $NNLUA - <<'END'
      local log = require "nn.train.log".new "logs"
      for step = 1, 300 do log:event("step", {step = step, loss = 1 / 3, lr = 1, memory = 1}) end
      print "the end"
END]]):format(folder))
  t.same(status, 0, output)
  t.check(output:find("metrics.jsonl is incomplete: File too large", 1, true), output)
  t.check(output:find("TensorBoard's file is incomplete: File too large", 1, true), output)
  t.check(output:find("the end\n", 1, true), output)
end)

t.case("data that is cut while training is an error that names the last checkpoint", function()
  for name, left in pairs {page = 1000, nothing = 0, quarter = 40000} do
    local status, output = shell(([[
      printf '\1\0\2\0\3\0\4\0%%.0s' $(seq 20000) >%s.bin
      (exec ./train data.text= data.bin=%s.bin model.vocab=8 steps=100000 save_every=1 out=%s) \
        >%s.log 2>&1 &
      await %s/metrics.jsonl checkpoint-000003; truncate -s %d %s.bin; await_end $!; status=$?
      cat %s.log; exit $status]]):format(name, name, name, name, name, left, name, name))
    t.check(status == 1, output)
    local text = ("nnlua: data.bin '%s.bin' was truncated while it was read: it has %d bytes "
                  .. "now and had 160000\n"
                  .. "The last checkpoint is %s/checkpoint-"):format(name, left, name)
    local without_step, count = output:gsub("The error came in step %d+%.\n", "")
    t.check(count == 1 and without_step:find(text, 1, true), output)
    t.check(run.newest(name).state.step >= 3, output)
  end
end)

t.case("a file that is cut while it is mapped is an error, and not a crash", function()
  local name = path "cut.bin"
  files.write(name, ("x"):rep(100000))
  local map = files.map(name)
  t.same(map.data[99999], 120)
  files.check(map)
  t.shell("truncate -s 10 " .. name)
  t.same({map.data[50000], map.data[99999], map.data[3]}, {0, 0, 120})
  t.fails(function() files.check(map) end,
          "was truncated while it was read: it has 10 bytes now and had")
  t.shell("truncate -s 100000 " .. name)               -- the size is as before
  t.fails(function() files.check(map) end,
          "a read error occurred, or the file was truncated temporarily")
  files.unmap(map)
  local weights = path "w.safetensors"
  nn.save_safetensors(weights, {x = nn.ones(300, 300)})
  local opened = require("nn.io.safetensors").open(weights)
  t.shell("truncate -s 1000 " .. weights)
  t.fails(function() opened:tensor "x" end, "was truncated while it was read")
end)

t.case("many mappings keep no file open", function()
  for _ = 1, 3000 do files.read(path "text.txt") end
  t.check(#files.list "/proc/self/fd" < 500, "open files")
end)

t.case("a folder with a link to itself is read once", function()
  local out = t.folder()
  files.write(files.join(out, "a.txt"), "some words")
  files.link(".", files.join(out, "self"))
  files.link(out, files.join(out, "again"))
  local found = require("nn.data.texts").sources(out, "txt")
  t.same(#found, 1)
  t.same(found[1].path, files.join(out, "a.txt"))
end)

t.finish()
