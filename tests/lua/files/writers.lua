-- Writers of files replace regular files only, through links, and leave no temporary file. Every
-- writer of the library is tried on each kind of path.
local files = require "nn.io.files"
local file_type = require "nn.io.file_type"
local history = require "repl.history"
local log = require "nn.train.log"
local nn = require "nn"
local t = require "nn.test"
local token_file = require "nn.data.token_file"

local folder = t.folder()
local function path(name) return files.join(folder, name) end
local function sh(...)
  local command = ("cd '%s'; "):format(folder) .. string.format(...)
  assert(os.execute(command) == 0, command)
end

local pixels = nn.zeros(3, 2, 2)
local writers = {
  ["nn.save_image"] = function(at) nn.save_image(at, pixels) end,
  ["nn.save_safetensors"] = function(at) nn.save_safetensors(at, {x = pixels}) end,
  ["nn.trace"] = function(at) nn.trace(at, function() return pixels + 1 end) end,
  ["files.write"] = function(at) files.write(at, "text") end,
  ["a token file"] = function(at)
    local writer = token_file.create(at, "nanogpt", 100)
    writer:write(require("ffi").new(writer.id_type .. "[3]"), 3)
    writer:close()
  end,
  ["a model in a folder"] = function(at)
    local name = at:match "[^/]*$"
    require("nn.io.safetensors").write_shards(folder, name:gsub("%.safetensors$", ""),
                                              nn.Linear(2, 2):state(), {}, 1e9)
  end,
}

for name, write in pairs(writers) do
  local file = name:gsub("%W", "-") .. ".safetensors"
  t.case(name .. " refuses what is no file, and leaves it", function()
    for kind, make in pairs {pipe = "mkfifo '%s'", device = "ln -s /dev/full '%s'",
                             folder = "mkdir '%s'"} do
      sh(make, file)
      local message = t.fails(function() write(path(file)) end, "it is a " .. kind)
      t.check(message:find("cannot write '" .. path(file) .. "'", 1, true), message)
      t.same(file_type.of(path(file)), kind)
      sh("rm -r '%s'; mkfifo '%s'.tmp", file, file)    -- a name that is taken for a while
      local good = pcall(write, path(file))
      t.check(not good or name == "nn.trace", "a pipe has the temporary name")
      t.same(file_type.of(path(file .. ".tmp")), "pipe")
      sh("rm -f '%s' '%s'.tmp", file, file)
    end
    sh("ln -s a-circle.safetensors b; ln -s b a-circle.safetensors")
    t.fails(function() write(path "a-circle.safetensors") end, "lead in a circle")
    sh("rm b a-circle.safetensors")
  end)

  t.case(name .. " writes where links lead, and leaves no other file", function()
    sh("mkdir there; echo old > there/target; ln -s there/target one; ln -s one '%s'", file)
    write(path(file))
    local in_folder = name == "a model in a folder"    -- whose links may lead into a shared cache
    t.same({files.is_link(path(file)), files.is_link(path "one")}, {not in_folder, true})
    local bytes = files.read(in_folder and path(file) or path "there/target")
    if in_folder then t.same(files.read(path "there/target"), "old\n") end
    t.check(bytes ~= "old\n" and #bytes > 0, bytes)
    t.same(files.list(path "there"), {"target"})
    sh("rm there/target")                              -- the links lead to no file now
    write(path(file))
    if not in_folder then t.check(#files.read(path "there/target") > 0, "the new file is empty") end
    sh("rm -r there one '%s'", file)
    t.same(files.list(folder), {})
  end)
end

t.case("the log of a run and a trace refuse a pipe instead of waiting for it", function()
  sh("mkfifo metrics.jsonl")
  t.fails(function() require("nn.measure.trace").check(path "metrics.jsonl") end, "it is a pipe")
  local run = log.new(folder)
  t.fails(function() run:event("start", {step = 0}) end, "it is a pipe")
  sh("rm *")
end)

t.case("the history of the prompt follows links, and is in memory beside a pipe", function()
  sh("mkdir real state; ln -s ../real/file state/history; mkfifo pipe")
  history.open(path "state/history"):add "one"
  t.same(history.open(path "state/history").entries, {"one"})
  t.check(files.is_link(path "state/history") and file_type.of(path "real/file") == "file")
  history.open(path "pipe"):add "two"
  t.same(history.open(path "pipe").entries, {})
  sh("rm -r *")
end)

t.case("an interrupt while a file is written leaves the old one only", function()
  files.write(path "text", "old")
  t.fails(function() files.replace(path "text", function(temporary)
    files.write(temporary, "new")
    error "interrupted"
  end) end, "interrupted")
  t.same({files.read(path "text"), files.list(folder)}, {"old", {"text"}})
  sh("rm text")
end)

t.case("SIGTERM ends a wait for a lock that a stopped process holds", function()
  local code = "local x = nn.randn(256, 256) x:matmul(x):sum():item()"
  local status, output = t.shell(([[
    export XDG_CACHE_HOME='%s'
    $NNLUA -e '%s' 2>/dev/null
    for file in $XDG_CACHE_HOME/nnlua/choices-*; do : > $file; done
    for file in $XDG_CACHE_HOME/nnlua/choices-*; do
      ( exec 9> $file; flock 9; echo > ${file/choices/locked}; kill -STOP $BASHPID ) &
      until [ -f ${file/choices/locked} ]; do sleep 0.05; done
    done
    holders=$(jobs -p)
    timeout -k 60 60 $NNLUA -e '%s' & sleep 1
    kill -TERM $!; wait $!; echo "status $?"
    kill -KILL $holders; wait
  ]]):format(folder, code, code))
  t.check(status == 0 and output:find "status 143", output)
  sh("rm -rf *")
end)

t.finish()
