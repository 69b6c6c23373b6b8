-- The output of a run: state, curves, report.html, TensorBoard's event files.
local csv = require "nn.train.csv"
local files = require "nn.io.files"
local host = require "nn.host"
local live = require "nn.train.live"
local metrics = require "nn.train.metrics"
local report = require "nn.train.report"
local t = require "nn.test"
local tensorboard = require "nn.train.tensorboard"

-- Makes a folder with these lines as metrics.jsonl, and these settings.
local function run_of(lines, config)
  local folder = t.folder()
  files.write(files.join(folder, "metrics.jsonl"), table.concat(lines, "\n") .. "\n")
  files.write(files.join(folder, "config.json"), files.json(config or {steps = 40}))
  return folder
end
local function step(number, loss, seconds)
  local text = '{"event":"step","step":%d,"loss":%s,"lr":0.001,"seconds":%g,"tokens_per_s":1000}'
  return text:format(number, loss, seconds)
end
local function start(kind, number, process)
  local text = '{"event":"%s","step":%d,"parameters":814000,"time":"2026-01-02T03:04:05Z"%s}'
  return text:format(kind, number, process and ',"process":' .. files.json(process) or "")
end

t.case("reading a run gives its curves, its best step and its state", function()
  local run = metrics.read(run_of {
    start("start", 0), step(10, 3.5, 1), '{"event":"eval","step":10,"val_loss":3.25}',
    step(20, 3, 2), '{"event":"eval","step":20,"val_loss":3.75}',
    '{"event":"sample","step":20,"text":"so"}', '{"event":"done","step":20,"val_loss":3.7}',
    '{"event":"st'})
  t.same(run.series.loss, {step = {10, 20}, seconds = {1, 2}, value = {3.5, 3}})
  t.same(run.series.val_loss.value, {3.25, 3.75})
  t.same({run.best, run.state, run.step, run.steps}, {{value = 3.25, step = 10}, "done", 20, 40})
  t.same(run.samples, {{step = 20, text = "so"}})
  run = metrics.read(run_of {start("start", 0), step(10, 3.5, 1), '{"event":"eval","step":10,'
    .. '"val_loss":3.25}', step(15, 3, 2), '{"event":"done","step":15,"val_loss":3.125}'})
  t.same({run.best, run.series.val_loss.step}, {{value = 3.125, step = 15}, {10, 15}})
  t.fails(function() metrics.read(t.folder()) end, "contains no run (no metrics.jsonl)")
end)

t.case("a resumed run drops events after its checkpoint, and sums its time", function()
  local run = metrics.read(run_of {
    start("start", 0), step(10, 3, 1), step(20, 2.5, 2), step(30, 2, 3),
    '{"event":"sample","step":30,"text":"lost"}', start("resume", 20), step(30, 2.25, 1),
    step(40, "null", 2)})
  t.same(run.series.loss, {step = {10, 20, 30}, seconds = {1, 2, 4}, value = {3, 2.5, 2.25}})
  t.same({run.samples, run.seconds, run.step}, {{}, 5, 40})
end)

t.case("running and dead runs are distinguished", function()
  local function state(process) return metrics.read(run_of {start("start", 0, process)}).state end
  t.same(state(metrics.process()), "running")
  t.same(state {pid = metrics.process().pid, start = "1"}, "ended early")
  t.same(state {pid = 2 ^ 22 + 5, start = "1"}, "ended early")
  t.same(metrics.read(run_of {start("start", 0), '{"event":"stopped","step":3}'}).state, "stopped")
  t.same(metrics.read(run_of {start("start", 0), '{"event":"nan","step":3}'}).state, "failed")
end)

t.case("each validation loss names its batches, and the times of validations add up", function()
  local run = metrics.read(run_of {
    start("start", 0), step(10, 3.5, 1),
    '{"event":"eval","step":10,"val_loss":2.3735,"validation":'
      .. '{"batches":50,"all":430,"seconds":2}}',
    '{"event":"done","step":10,"val_loss":2.3649,"validation":'
      .. '{"batches":430,"all":430,"seconds":17.5}}'})
  local facts = {}
  for _, fact in ipairs(metrics.facts(run)) do facts[fact[1]] = fact[2] end
  t.same({facts["lowest validation loss"], facts["final validation loss"], facts.validation},
         {"2.3735 at step 10 (50 of 430 batches)", "2.3649 (all 430 batches)", "20s"})
  run = metrics.read(run_of {
    start("start", 0), '{"event":"eval","step":10,"val_loss":2.25,"validation":'
      .. '{"batches":50,"all":430,"seconds":2}}',
    '{"event":"done","step":15,"val_loss":2.5,"validation":'
      .. '{"batches":430,"all":430,"seconds":17.5}}'})
  t.same(metrics.facts(run)[3], {"lowest validation loss", "2.2500 at step 10 (50 of 430 batches)"})
end)

t.case("metrics.csv has a row for each step, and an empty field for each missing value", function()
  local run = metrics.read(run_of {
    start("start", 0), step(10, 3.5, 1), '{"event":"eval","step":15,"val_loss":3.25}',
    step(20, "null", 2.5)})
  run.name = 'a "b", c'
  t.same(csv.text {run}, 'run,step,seconds,loss,val_loss,lr,tokens_per_s\n'
         .. '"a ""b"", c",10,1,3.5,,0.001,1000\n'
         .. '"a ""b"", c",15,1,,3.25,,\n"a ""b"", c",20,2.5,,,0.001,1000\n')
end)

-- The data that the page's script reads.
local function data_of(page)
  local json = page:match '<script id="data" type="application/json">(.-)</script>'
  return files.parse_json(json) or error("no JSON: " .. json:sub(1, 200))
end

t.case("report.html contains the run, with any text, and fetches nothing", function()
  local evil = "</script><script>alert(1)</script><!-- $DATA $TITLE %1 \"\\ é"
  local folder = run_of({start("start", 0), step(10, 3.5, 1),
    '{"event":"sample","step":10,"text":' .. files.json(evil) .. "}"},
    {steps = 40, optim = {lr = 0.001}, data = {text = evil}})
  local page = report.page({metrics.read(folder)}, "a <b> & $DATA")
  t.check(page:find("<title>a &lt;b&gt; &amp; $DATA</title>", 1, true), page:sub(1, 300))
  t.same(select(2, page:gsub("<script", "")), 2)
  local data = data_of(page)
  t.same(data[1].samples[1].text, evil)
  t.same(data[1].series.loss, {step = {10}, seconds = {1}, value = {3.5}})
  t.same(data[1].config, {{"data.text", evil}, {"optim.lr", "0.001"}, {"steps", "40"}})
  for address in page:gmatch "https?://[^\"'%s]*" do
    t.same(address, "http://www.w3.org/2000/svg")                     -- a name, never fetched
  end
  t.check(not page:find "src=" and not page:find "@import", "nothing is fetched")
end)

t.case("the page names the command, the computer and the versions", function()
  local event = '{"event":"start","step":0,"version":"nnlua 1.2","product_gflops":126.4,"about":'
    .. '{"command":"./nnlua a.lua","host":"vm","processor":"P","workers":"2 CPU and 0 GPU workers",'
    .. '"starpu":"1.4","blas":"OpenBLAS","dtype":"f32"}}'
  local data = data_of(report.page({metrics.read(run_of {event, step(10, 3.5, 1)})}, "one"))
  t.same(data[1].about, {
    {"command", "./nnlua a.lua"}, {"host", "vm"}, {"processor", "P"},
    {"workers", "2 CPU and 0 GPU workers"},
    {"matrix products", "126 GFLOP/s in f32, an MFU of 100%"}, {"nnlua", "1.2"},
    {"StarPU", "1.4"}, {"BLAS", "OpenBLAS"}})
end)

t.case("a comparison has short names", function()
  local function shorts(...)
    local runs = {}
    for i, name in ipairs {...} do
      runs[i] = metrics.read(run_of {start("start", 0)})
      runs[i].name = name
    end
    local names = {}
    for i, run in ipairs(data_of(report.page(runs, "several"))) do names[i] = run.short end
    return names
  end
  t.same(shorts("runs/char-a", "runs/char-b"), {"a", "b"})
  t.same(shorts("runs/char", "runs/char-2"), {"char", "char-2"})
  t.same(shorts("runs/lr_1e-3/x", "runs/lr_1e-4/x"), {"1e-3/x", "1e-4/x"})
  t.same(shorts("a", "b/c"), {"a", "b/c"})
  t.same(shorts("runs/same", "runs/same"), {"same", "same"})
  t.same(shorts "runs/char", {"runs/char"})
end)

t.case("the MFU of runs on one machine is relative to one rate", function()
  local function run(name, gflops)
    return metrics.read(run_of {
      ('{"event":"start","step":0,"product_gflops":%g,"about":{"host":"%s","workers":"2",'
       .. '"dtype":"f32"}}'):format(gflops, name), '{"event":"step","step":1,"mfu":0.5}'})
  end
  local data = data_of(report.page({run("a", 100), run("a", 200), run("b", 400)}, "three"))
  for i, percent in ipairs {25, 50, 50} do t.same(data[i].series.mfu.value, {percent}) end
end)

t.case("a long curve is reduced to means of equal intervals", function()
  local lines = {start("start", 0)}
  for i = 1, 3000 do lines[i + 1] = step(i, i % 5, i) end
  local data = data_of(report.page({metrics.read(run_of(lines))}, "long"))[1].series.loss
  t.same({#data.step, #data.value}, {600, 600})
  t.same({data.step[1], data.step[600]}, {5, 3000})
  for _, value in ipairs(data.value) do t.same(value, 2) end
end)

t.case("records equal TensorBoard's, byte for byte", function()
  local golden = files.parse_json(files.read(host.root .. "/tests/golden/events.json"))
  local function hex(text)
    return (text:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
  end
  local made = {
    version = tensorboard.event(1.5e9, 0, tensorboard.version()),
    start = tensorboard.event(1.5e9 + 0.25, 301, tensorboard.start()),
    scalars = tensorboard.event(1795253348, 70000,
                                tensorboard.scalars {loss = 2.3125, norm = 0, lr = 6e-4}),
    text = tensorboard.event(1795253348, 300, tensorboard.text("sample", "To be,\nor “not”")),
  }
  for name, record in pairs(golden) do t.same(hex(made[name]), record) end
end)

t.case("a run writes all outputs; the recipes list and compare runs", function()
  local folder = t.folder()
  local status, output = t.shell(([[
    cd %s
    train() { $NNLUA %s/recipes/gpt2_train.lua model.layers=1 model.embd=16 model.heads=1 steps=4 \
      model.context=8 data.batch=2 eval_every=2 final_batches=1 sample.tokens=5 log_every=1 "$@"; }
    train out=runs/a >/dev/null && train out=runs/b optim.lr=1e-4 >/dev/null || exit 1
    mkdir runs/other; ls runs/a | sed 's/\..*//'
    $NNLUA %s/recipes/runs.lua; $NNLUA %s/recipes/runs.lua --help
    $NNLUA %s/recipes/report.lua runs/a runs/b out=both.html
    $NNLUA %s/recipes/report.lua runs/a runs/b out=both.csv
  ]]):format(folder, host.root, host.root, host.root, host.root, host.root))
  t.same(status, 0)
  t.check(output:find("recipes/runs.lua [FOLDER]\nLists runs with their state", 1, true), output)
  for _, name in ipairs {"best", "config", "events", "metrics", "report"} do
    t.check(output:find("\n" .. name .. "\n") or output:find("^" .. name .. "\n"), output)
  end
  t.check(output:find "\na    done   4/4   %d%.%d+  %d%.%d+ at %d  ", output)
  t.check(output:find("both.html: 2 runs", 1, true), output)
  local both = data_of(files.read(folder .. "/both.html"))
  t.same({both[1].name, both[2].name, both[1].in_folder}, {"runs/a", "runs/b", false})
  t.check(files.read(folder .. "/both.html"):find("<h1>runs/a, runs/b</h1>", 1, true), "its title")
  local one = data_of(files.read(folder .. "/runs/a/report.html"))[1]
  t.same({#one.series.loss.step, #one.series.val_loss.step, #one.samples, one.state, one.in_folder},
         {4, 2, 1, "done", true})
  t.same(one.about[1][2]:match "recipes/gpt2_train.lua (model.layers=1 .*)$", "model.layers=1 "
         .. "model.embd=16 model.heads=1 steps=4 model.context=8 data.batch=2 eval_every=2 "
         .. "final_batches=1 sample.tokens=5 log_every=1 out=runs/a")
  local rows = files.read(folder .. "/both.csv")
  t.same(select(2, rows:gsub("\nruns/a,%d", "")), 4, rows)
  t.check(rows:find(files.read(folder .. "/runs/b/metrics.csv"):match "\n(.*)", 1, true), rows)
end)

t.case("a live curve continues that of a resumed run, and stays small in a long one", function()
  t.same(live.new(t.folder()):lines(), {})
  local curves = live.new(run_of {start("start", 0), step(10, 3.5, 1), step(20, 3, 2),
                                  '{"event":"eval","step":20,"val_loss":3.25}'})
  t.same(curves.points.val_loss, {x = {20}, y = {3.25}})
  for i = 1, 9000 do curves:add("loss", 20 + i, 3 - i / 9000) end
  local points = curves.points.loss
  t.check(#points.x > 1000 and #points.x <= 2000 and points.x[#points.x] >= 9000, #points.x)
  local lines = curves:lines()
  t.same(#lines, 13)
  t.check(lines[1]:find "^3.5 ┤" and lines[13]:find "loss .* val_loss$", lines[1] .. lines[13])
end)

-- The page of these runs as a browser draws it, and the messages of its console.
local function drawn(folders, width, script)
  if select(2, t.shell "command -v chromium || true") == "" then t.skip "there is no chromium" end
  local path = t.folder() .. "/report.html"
  report.write(path, folders, "runs")
  files.write(path, files.read(path) .. ("<script>%s</script>"):format(script or ""))
  local _, output = t.shell(([[chromium --headless --no-sandbox --disable-gpu \
    --window-size=%d,900 --enable-logging=stderr --dump-dom file://%s 2>%s.log
    grep -i console %s.log]]):format(width, path, path, path))
  t.check(not output:find "CONSOLE", output:match "[^\n]*CONSOLE[^\n]*" or "")
  return output:gsub("<script.-</script>", "")
end

t.case("a browser draws the page: a legend with colours, and no cliffs", function()
  local lines = {start("start", 0), '{"event":"eval","step":20,"val_loss":3.25}'}
  for i, memory in ipairs {37.7e6, 37.9e6, 37.8e6} do
    lines[#lines + 1] = ('{"event":"step","step":%d,"loss":%g,"seconds":1,"memory":%d,"stalled":0}')
      :format(10 * i, 4 - i / 2, memory)
  end
  local page = drawn({run_of(lines)}, 1000)
  t.check(page:find '<svg.*<path d="M', page:sub(-500))
  t.check(page:find('<i class="key" style="border-color: var(--c0)"></i>loss 2.5', 1, true), page)
  t.check(page:find('<i class="key dashed" style="border-color: var(--c1)"></i>val_loss 3.25', 1,
                    true), page)
  local chart = page:match '<svg[^>]*aria%-label="memory of tensors">(.-)</svg>'
  local lowest, highest = math.huge, 0
  for y in chart:match(' d="M([^"]*)'):gmatch " ([%d.]+)" do
    lowest, highest = math.min(lowest, tonumber(y)), math.max(highest, tonumber(y))
  end
  t.check(chart:find(">38 MB<", 1, true), chart)
  t.check(highest - lowest < 15, chart)                    -- of a chart of 190
  chart = page:match '<svg[^>]*aria%-label="disk busy, workers stalled">(.-)</svg>'
  t.check(chart:find(">0%<", 1, true) and chart:find(">1%<", 1, true), chart)
end)

t.case("on a narrow screen no table is cut, and each cell names its run", function()
  local function run(command)
    return run_of({('{"event":"start","step":0,"about":{"command":"%s"}}'):format(command),
                   step(10, 3.5, 1)}, {data = {text = ("/a/long/path"):rep(20)}})
  end
  local page = drawn({run(("word"):rep(90)), run(("w=1 "):rep(90))}, 500, [[
    const parts = [document.documentElement, ...document.querySelectorAll(".scroll")];
    document.title = parts.map(e => e.scrollWidth - e.clientWidth).join()]])
  t.same(page:match "<title>(.-)</title>", "0,0,0,0")
  t.check(page:find '<td data%-of="[^"]+">wordword', page)
end)

t.finish()
