-- Trains a small GPT-2 for a few steps and prints the losses and checksums of the weights. Run by
-- ranks.lua on one rank or several: ranks_model.lua shards=4 steps=3 accum=1
local nn = require "nn"
local GPT2 = require "models.gpt2"
package.path = package.loaded["nn.host"].root .. "/tests/lua/support/?.lua;" .. package.path
local checksums = require "checksums"
local given = {shards = "1", steps = "3", accum = "1", batch = "8", clip = "1", fail = ""}
for _, word in ipairs(arg) do
  local name, value = word:match "^(%w+)=(.*)$"
  given[name] = value
end

nn.seed(7)
nn.cluster {shards = tonumber(given.shards)}
local model = GPT2 {layers = 2, heads = 2, embd = 64, context = 32, vocab = 96, dropout = 0.1}
local optim = nn.AdamW(model, {lr = 1e-3, clip = tonumber(given.clip), weight_decay = 0.1,
                               skip_nonfinite = given.clip ~= "0"})
local step = nn.compile(function(ids, targets)
  local loss = nn.accumulate(model, tonumber(given.accum), ids, targets)
  return loss, optim:step()
end)

local before
for number = 1, tonumber(given.steps) do
  local text = {}
  for i = 1, tonumber(given.batch) * 33 do text[i] = (i * i + number * 17) % 96 end
  local rows = nn.tensor(text, {dtype = "i32"}):reshape(tonumber(given.batch), 33)
  local loss, norm = step(rows:slice(2, 1, 32):clone(), rows:slice(2, 2, 33):clone())
  if number == 2 and given.fail ~= "" and nn.ranks().rank == 1 then
    if given.fail == "error" then error "a rank fails" end
    if given.fail == "kill" then os.execute("kill -9 $PPID") end
    if given.fail == "stop" then os.execute("kill -STOP $PPID") end
    if given.fail == "pause" then              -- all ranks
      os.execute([[ranks=$(pgrep -P $(ps -o ppid= $PPID) -f shards=)
        kill -STOP $ranks; sleep 3; kill -CONT $ranks]])
    end
  end
  print(("loss %.17g norm %.17g"):format(loss:item(), norm:item()))
  if number == tonumber(given.steps) - 1 then
    nn.sync()
    before = nn.ranks()
  end
end
nn.sync()
local sent = nn.ranks()
local bytes = 0
for _, p in ipairs(model:parameters()) do
  bytes = bytes + p.tensor:bytes()
  print(p.path, checksums.of(p.tensor))
end
io.stderr:write(("sent rank %d messages %d bytes %d weights %d\n"):format(sent.rank,
  sent.messages_sent - before.messages_sent, sent.bytes_sent - before.bytes_sent, bytes))
if given.fail == "late" and sent.rank == 1 then os.execute("kill -STOP $PPID") end
