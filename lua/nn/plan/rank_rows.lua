-- The rows of a plan's table for several ranks: the memory and the work of each, and the link
-- between them.
local cluster = require "nn.base.cluster"
local units = require "nn.base.units"

local M = {}
local MOST = 16                  -- rows

-- What a rank needs and does in a step that takes `seconds`.
local function text_of(rank, plan, seconds)
  local room = rank.available or plan.available
  local too_much = not plan.tiers and rank.peak > room
    and (", but has %s"):format(units.bytes(room)) or ""
  return ("needs %s%s; computes %.0f %% of the time, sends %s and receives %s"):format(
    units.bytes(rank.peak), too_much, math.min(100, 100 * rank.busy / plan.workers / seconds),
    units.bytes(rank.sent), units.bytes(rank.received))
end

--- share_rooms(available): every rank calls it with its bytes for tensors -> those of all ranks.
function M.share_rooms(available)
  if not cluster.several() then return {} end
  local rooms = {}
  for i, text in ipairs(cluster.gather("the memory of ranks", ("%.0f"):format(available))) do
    rooms[i] = tonumber(text)
  end
  return rooms
end

--- add(plan, seconds, rows): adds the rows {name, text} of a plan for several ranks.
function M.add(plan, seconds, rows)
  local count = #plan.ranks
  if count == 1 then return end
  local longest = 0
  for i, rank in ipairs(plan.ranks) do
    longest = math.max(longest, rank.sending)
    if i <= MOST then rows[#rows + 1] = {"rank " .. i - 1, text_of(rank, plan, seconds)} end
  end
  if count > MOST then
    rows[#rows + 1] = {"", ("and %d more ranks"):format(count - MOST)}
  end
  rows[#rows + 1] = {"link of a rank", ("%s/s each way, busy up to %.0f %% of the time%s"):format(
    units.bytes(plan.link_rate), math.min(100, 100 * longest / seconds),
    plan.assumed_link and "; assumed: describe rank_link" or "")}
end

return M
