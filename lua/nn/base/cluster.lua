-- Ranks, the processes that `nnlua --ranks N` or mpirun starts, and the shards into which they
-- split a batch.
local ffi = require "ffi"
local arguments = require "nn.base.arguments"
local engine = require "nn.base.engine"
local lib = require "nn.base.capi"

local M = {}
local names = arguments.names "shards"
local chosen                     -- by nn.cluster

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

--- nn.cluster{shards=}: nn.accumulate splits each batch into so many shards. Each rank computes
--- some of them, and their gradients are added in an order that depends on this number alone. So
--- losses and weights are the same to the bit for every number of ranks up to `shards`. With
--- several shards, a tile has 512 tokens unless nn.tiles set another size. Default: one shard per
--- rank. Errors: fewer shards than ranks.
---     nn.cluster {shards = 1}
function M.cluster(options)
  local shards = arguments.options("cluster", options, names).shards
  arguments.whole("cluster", "shards", shards)
  local ranks = info().ranks
  if shards < ranks then
    lib.fail("cluster: shards=%d is too few for %d ranks; each rank needs at least one", shards,
             ranks)
  end
  chosen = shards
  fix_tiles(shards)
end

return M
