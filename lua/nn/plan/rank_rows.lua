-- The rows of a plan's table for several ranks: the memory and the work of each, and the link
-- between them.
local budget = require "nn.base.budget"
local cluster = require "nn.base.cluster"
local files = require "nn.io.files"
local units = require "nn.base.units"

local M = {}
local MOST = 16                  -- rows

-- What a rank needs and does in a step that takes `seconds`.
local function text_of(rank, plan, seconds)
  local own = rank.own or {available = plan.available}
  local too_much = not plan.tiers and rank.peak > own.available
    and (", but has %s"):format(units.bytes(own.available)) or ""
  local needs = own.stored and ("has %s of tiles %s, reads %s and writes %s a step"):format(
    units.bytes(own.stored), budget.has_disk() and "on disk" or "in RAM", units.bytes(own.read),
    units.bytes(own.written)) or ("needs %s%s"):format(units.bytes(rank.peak), too_much)
  return ("%s; computes %.0f %% of the time, sends %s and receives %s"):format(
    needs, math.min(100, 100 * rank.busy / plan.workers / seconds), units.bytes(rank.sent),
    units.bytes(rank.received))
end

--- share(plan): every rank calls it with its plan, which has `available`. In that of rank 0, each
--- of `ranks` then has what only that rank knows, `own`, and the seconds are those of the slowest.
function M.share(plan)
  if not cluster.several() then return end
  local tiers, mine = plan.tiers, {available = plan.available, seconds = plan.seconds}
  if tiers then
    local lowest = tiers.levels[#tiers.levels]
    mine.seconds, mine.stored = tiers.seconds, tiers.in_store
    mine.read, mine.written = lowest.loaded.total, lowest.stored.total
  end
  local moves = tiers and tiers.loaded.total + tiers.stored.total > 0
  local timed = moves and tiers or plan              -- from which the table has the time
  for i, text in ipairs(cluster.gather("a plan", files.json(mine))) do
    local own = files.parse_json(text)
    if plan.ranks[i] then plan.ranks[i].own = own end
    timed.seconds = math.max(timed.seconds, own.seconds)
  end
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
