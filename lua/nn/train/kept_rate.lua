-- The machine's rate of matrix products, to which the MFU of runs is relative: one number per
-- machine and dtype in the user's cache, so that the MFU of two runs compares. It is the highest
-- rate measured so far. It is measured by the first run; by each later one, until a measurement was
-- not disturbed by other programs; and when a run exceeds it.
local cluster = require "nn.base.cluster"
local computer = require "nn.measure.computer"
local engine = require "nn.base.engine"
local files = require "nn.io.files"
local first = require "nn.io.first"
local lib = require "nn.base.capi"
local schema = require "nn.io.schema"
local step_plan = require "nn.plan.step"

local M = {}

--- path() -> the file with the rates; nil if the user has no cache.
function M.path()
  local cache, home = os.getenv "XDG_CACHE_HOME" or "", os.getenv "HOME" or ""
  if cache == "" and home == "" then return nil end
  return files.join(cache ~= "" and cache or home .. "/.cache", "nnlua/product-rates.json")
end

-- All that the rate depends on, as one line.
local function title(dtype)
  local fields, count = computer.processor()
  local cpus, gpus = engine.workers()
  local version = engine.version()
  return table.concat({
    dtype, fields["model name"] or "unknown processor", count .. " threads", cpus .. " CPU workers",
    gpus .. " GPU workers", cluster.ranks().ranks .. " ranks",
    version:match "BLAS ([^\n]*)" or "", version:match "products ([^(\n]*)" or "",
    version:match "CUDA ([^\n]*)" or "",
  }, "; ")
end

local is_rate = schema.fields {gflops = schema.number, disturbed = schema.boolean}

-- The rates in the file, by title; what is not valid counts as missing.
local function read(path)
  local good, rates = lib.attempt(function() return files.parse_json(files.read(path)) end)
  local out = {}
  for name, rate in pairs(good and type(rates) == "table" and rates or {}) do
    if type(rate) == "table" and not is_rate(rate) and rate.gflops > 0 then out[name] = rate end
  end
  return out
end

-- Keeps the rate if it is higher than the kept one, and that it was measured without disturbance.
-- Without a writable cache, does nothing.
local function keep(path, name, gflops, disturbed)
  local rates = read(path)
  local kept = rates[name] or {gflops = 0, disturbed = true}
  rates[name] = {gflops = math.max(kept.gflops, gflops),
                 disturbed = kept.disturbed and disturbed}
  lib.protected(function()
    files.make_folder(path:match "^(.*)/", "the cache")
    files.write(path, files.json(rates, "") .. "\n")
  end)
end

--- keep(dtype, gflops): keeps a rate measured now; with several ranks, rank 0 keeps it.
function M.keep(dtype, gflops)
  local path = cluster.is_first() and M.path()
  if path then keep(path, title(dtype), gflops, select(2, step_plan.load())) end
end

--- find(dtype, measure) -> GFLOP/s of products in this dtype: the kept rate, or measure(). Every
--- rank calls it.
function M.find(dtype, measure)
  local kept = first.on_first("the kept rate of products", function()
    local path = M.path()
    return path and read(path)[title(dtype)]
  end)
  if kept and not kept.disturbed then return kept.gflops end
  local gflops = math.max(measure(), kept and kept.gflops or 0)
  M.keep(dtype, gflops)
  return gflops
end

return M
