-- Measures transfers between memory and the disk of a folder, as memory.disk makes them, by the
-- size of a transfer and the number of threads: nnlua recipes/bench_disk.lua folder=/data
local nn = require "nn"
local units = require "nn.base.units"

local cfg = nn.config({
  folder = nn.field(".", "folder on the disk to measure", {path = true}),
}, arg)

local threads = {1, 2, 4, 8}
print(("disk of %s, GB/s at scattered places"):format(cfg.folder))
print(("%-18s %8s  %s"):format("", "piece", "threads: 1, 2, 4, 8"))
for _, load in ipairs {{"reads", 0}, {"writes", 1}, {"reads and writes", 0.5}} do
  for _, piece in ipairs {2 ^ 16, 2 ^ 20, 2 ^ 22, 2 ^ 24} do
    local rates = {}
    for i, count in ipairs(threads) do
      local rate = nn.measure_disk(cfg.folder, {written = load[2], piece = piece, threads = count})
      rates[i] = ("%6.2f"):format(rate / 1e9)
    end
    print(("%-18s %8s  %s"):format(load[1], units.bytes(piece), table.concat(rates, " ")))
  end
end
