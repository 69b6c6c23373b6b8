-- The computer: its name, its processor and its cores, as the system reports them. For
-- `nnlua --health`, for the files of a run, and for rates that are kept per machine.
local ffi = require "ffi"

ffi.cdef "int gethostname(char *name, size_t size);"

local M = {}

--- text_of(path) -> the text of a file of the system; "" if it cannot be read.
function M.text_of(path)
  local file = io.open(path)
  local text = file and file:read "*a"
  if file then file:close() end
  return text or ""
end

--- line_of(path) -> its first line.
function M.line_of(path) return M.text_of(path):match "^[^\n]*" end

--- name() -> the name of the host.
function M.name()
  local name = ffi.new "char[256]"
  return ffi.C.gethostname(name, 255) == 0 and ffi.string(name) or "unknown"
end

--- processor(info) -> the fields of the first processor in /proc/cpuinfo (or in the text `info`),
--- the number of processors, and the highest known clock in GHz (0: unknown).
function M.processor(info)
  info = info or M.text_of "/proc/cpuinfo"
  local fields = {}
  for name, value in info:gmatch "([^\n:]-)%s*:%s*([^\n]*)" do
    fields[name] = fields[name] or value
  end
  local count = select(2, info:gsub("processor%s*:", ""))
  local now = tonumber(fields["cpu MHz"] or "") or 0
  local most = tonumber(M.line_of "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") or 0
  return fields, count, math.max(now / 1e3, most / 1e6)
end

-- Units for matrix products, the fastest first: the flag in /proc/cpuinfo that shows the unit, its
-- name, and flags of the dtypes that it multiplies besides f32.
local units = {
  {"amx_tile", "AMX", {{"amx_bf16", "BF16"}, {"amx_fp16", "FP16"}, {"amx_int8", "INT8"}}},
  {"avx512f", "AVX-512", {{"avx512_bf16", "BF16"}, {"avx512_fp16", "FP16"},
                          {"avx512_vnni", "VNNI"}}},
  {"avx2", "AVX2", {{"fma", "FMA"}, {"avx_vnni", "VNNI"}}},
  {"sve", "SVE", {{"svebf16", "BF16"}, {"svei8mm", "INT8"}}},
  {"asimd", "NEON", {{"bf16", "BF16"}, {"i8mm", "INT8"}}},
}

--- matrix_units(fields) -> "AVX-512 (BF16, VNNI), AVX2 (FMA); no AMX": the units for matrix
--- products of a processor with these fields of processor().
function M.matrix_units(fields)
  local flags = " " .. (fields.flags or fields.Features or "") .. " "
  local function has(flag) return flags:find(" " .. flag .. " ", 1, true) end
  local found, missing = {}, {}
  for _, unit in ipairs(units) do
    local dtypes = {}
    for _, dtype in ipairs(unit[3]) do
      if has(dtype[1]) then dtypes[#dtypes + 1] = dtype[2] end
    end
    if has(unit[1]) then
      found[#found + 1] = unit[2] .. (dtypes[1] and " (" .. table.concat(dtypes, ", ") .. ")" or "")
    elseif fields.flags and unit[2]:find "^A" then               -- of x86-64
      missing[#missing + 1] = unit[2]
    end
  end
  return (found[1] and table.concat(found, ", ") or "none known")
    .. (missing[1] and "; no " .. table.concat(missing, ", ") or "")
end

return M
