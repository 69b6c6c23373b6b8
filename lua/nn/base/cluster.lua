-- Ranks, the processes that `nnlua --ranks N` or mpirun starts, and the shards into which they
-- split a batch.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"

local M = {}
local names = arguments.names "shards shard"
local chosen                     -- shards, by nn.cluster
local shards_weights = false     -- whether each rank keeps only a part of the weights
local has_weights = false        -- whether there may be any
local together, own_part = false, false          -- inside plan_together(), plan_own_part()

local function info()
  local out = ffi.new "nn_ranks_t"
  lib.check(lib.C.nn_ranks(out))
  return out
end

--- nn.ranks() -> {rank=, ranks=, messages_sent=, bytes_sent=, bytes_received=}: the number of this
--- process, from 0, how many there are, and what it has exchanged with the others since its start.
---     nn.ranks().rank, nn.ranks().ranks  --> 0, 1
function M.ranks()
  local found = info()
  return {rank = found.rank, ranks = found.ranks, messages_sent = tonumber(found.messages_sent),
          bytes_sent = tonumber(found.bytes_sent), bytes_received = tonumber(found.bytes_received)}
end

--- several() -> whether there are several ranks.
function M.several() return info().ranks > 1 end

--- planned() -> the number of ranks for which plans are made: those that run or, if there is one,
--- those of nn.machine.
function M.planned() return math.max(info().ranks, engine.machine().ranks) end

--- plan_together(f, ...) -> f(...). Every rank calls it: the plans that f makes have the choices of
--- rank 0, as a run has. Plans outside of it wait for no other rank.
function M.plan_together(f, ...)
  lib.check(lib.C.nn_plan_together(1))
  together = true
  return lib.finally(function()
    together = false
    lib.check(lib.C.nn_plan_together(0))
  end, f, ...)
end

--- any(yes) -> whether `yes` is true on any rank, inside plan_together(), where every rank calls
--- it; elsewhere `yes`.
function M.any(yes)
  if not together or not M.several() then return yes end
  return table.concat(M.gather("a choice in a plan", yes and "yes" or "")) ~= ""
end

--- plan_own_part(f, ...) -> f(...), whose plans are of this rank's part alone.
function M.plan_own_part(f, ...)
  own_part = true
  return lib.finally(function() own_part = false end, f, ...)
end

--- parts() -> of how many ranks a plan is.
function M.parts() return own_part and 1 or M.planned() end

--- measure_link(): measures the rate between ranks, for plans. Every rank calls it.
function M.measure_link() lib.check(lib.C.nn_measure_rank_link()) end

--- is_first() -> whether this is rank 0, which alone reads and writes the files of a training.
function M.is_first() return info().rank == 0 end

--- gather(what, text) -> a list of the texts that all ranks gave, that of rank 0 first. Every rank
--- calls it at the same point of the script; `what` names that point, for errors.
function M.gather(what, text)
  lib.check(lib.C.nn_ranks_gather(what, text, #text))
  local out, bytes = {}, ffi.new "int64_t[1]"
  local pointer = ffi.new "const char *[1]"
  for rank = 0, info().ranks - 1 do
    lib.check(lib.C.nn_ranks_gathered(rank, pointer, bytes))
    out[rank + 1] = ffi.string(pointer[0], bytes[0])
  end
  return out
end

--- end_with_first(): on ranks other than 0, waits until rank 0 raises its error, which ends all.
function M.end_with_first()
  if not M.is_first() then M.gather("an error of rank 0", "") end
end

--- own(x, like): with shard="weights", every rank calls it for a new tensor, and keeps only the
--- parts that it owns: a share of the bytes of all such tensors; with `like`, the parts that it
--- owns of that tensor. Eager ops then change these parts only.
function M.own(x, like)
  has_weights = true
  if shards_weights then lib.check(lib.C.nn_ranks_own(x.ref, like and like.ref or nil)) end
end

--- move(x, like): every rank calls it. What one rank keeps of x moves to the ranks that keep this
--- part of `like`, which has the same cuts.
function M.move(x, like)
  if shards_weights then lib.check(lib.C.nn_ranks_move(x.ref, like.ref)) end
end

--- shards_weights() -> whether each rank keeps only a part of the weights.
function M.shards_weights() return shards_weights end

--- interrupted() -> whether a stop signal has come: to any rank if the weights are sharded, because
--- then all ranks compute and stop together.
function M.interrupted()
  if not shards_weights then return engine.interrupted() end
  local all = M.gather("a stop signal", engine.interrupted() and "stop" or "")
  return table.concat(all) ~= ""
end

--- collect(x) -> whether rank 0 lacks parts of a tensor (a weight or an optimizer's state). Every
--- rank calls it; rank 0 receives these parts. drop(x) frees the parts that only other ranks keep,
--- after the last use submitted so far.
function M.collect(x)
  local any = ffi.new "int32_t[1]"
  lib.check(lib.C.nn_ranks_collect(x.ref, any))
  return any[0] ~= 0
end
function M.drop(x) lib.check(lib.C.nn_ranks_drop(x.ref)) end

--- spread(x): every rank calls it. Rank 0's value replaces that of all others.
function M.spread(x) lib.check(lib.C.nn_ranks_spread(x.ref)) end

-- The default size of a tile of tokens follows the number of workers, which differs between ranks,
-- and the order of sums follows the tiles.
local TOKENS = 512
local function fix_tiles(shards)
  if shards > 1 and not engine.tile_size "tokens" then engine.tiles {tokens = TOKENS} end
end

--- shards() -> into how many parts nn.accumulate splits a batch.
function M.shards()
  if not chosen then
    chosen = info().ranks
    fix_tiles(chosen)
  end
  return chosen
end

--- nn.cluster{shards=, shard="optimizer"}: how ranks divide the work and the memory of a training.
--- nn.accumulate splits each batch into so many shards (default: one per rank). Each rank computes
--- some of them, and their gradients are added in an order that depends on this number alone. So
--- losses and weights are the same to the bit for every number of ranks up to `shards`. With
--- several shards, a tile has 512 tokens unless nn.tiles set another size. Each rank keeps a part
--- of the optimizer's state. With shard="weights", it also keeps only a part of the weights, and
--- receives the others while it uses them; then all ranks must call every compiled function that
--- uses weights. What is not given stays as it is. Errors: fewer shards than ranks; another `shard`
--- after the first parameter was created.
---     nn.cluster {shards = 1, shard = "optimizer"}
function M.cluster(options)
  options = arguments.options("cluster", options, names)
  local ranks, shards, shard = info().ranks, options.shards, options.shard
  if not shards and not shard then lib.misuse "cluster: give shards=, shard= or both" end
  if shard and shard ~= "optimizer" and shard ~= "weights" then
    lib.misuse("cluster: shard is '%s'; optimizer or weights is needed", tostring(shard))
  end
  local weights = shards_weights
  if shard then weights = shard == "weights" and M.planned() > 1 end
  if weights ~= shards_weights and has_weights then
    lib.misuse("cluster: shard='%s' comes too late; call nn.cluster before you make a model", shard)
  end
  if shards then
    arguments.whole("cluster", "shards", shards)
    if shards < ranks then
      lib.deny("cluster: shards=%d is too few for %d ranks; each rank needs at least one", shards,
               ranks)
    end
    fix_tiles(shards)
    chosen = shards
  end
  shards_weights = weights
end

return M
