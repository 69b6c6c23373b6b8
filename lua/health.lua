-- `nnlua --health`: what of this machine nnlua uses, and what to do where something is wrong.
local ffi = require "ffi"
local files = require "nn.io.files"
local nn = require "nn"
local show = require "nn.core.show"
local terminal = require "nn.base.terminal"

ffi.cdef [[
  typedef struct {
    unsigned long block, fragment, blocks, free, available, inodes, inodes_free, inodes_available;
    unsigned long id, flags, name_length;
    int spare[6];
  } nn_statvfs;
  int statvfs(const char *path, nn_statvfs *out);
  typedef struct { unsigned long now, most; } nn_rlimit;
  int getrlimit(int resource, nn_rlimit *out);
  int access(const char *path, int mode);
]]

local M = {}
local wrong

local function heading(text) print("\n" .. text) end
local function fine(format, ...) print("  ok    " .. format:format(...)) end
-- Something that costs speed or will fail: what it is, and what to do.
local function warn(advice, format, ...)
  wrong = wrong + 1
  print("  WRONG " .. format:format(...))
  print("        -> " .. advice)
end
-- Something that is nobody's mistake, but explains figures that are lower than usual.
local function note(advice, format, ...)
  print("  note  " .. format:format(...))
  print("        -> " .. advice)
end
local function judge(good, advice, format, ...)
  if good then fine(format, ...) else warn(advice, format, ...) end
end

local function text_of(path)
  local file = io.open(path)
  local text = file and file:read "*a"
  if file then file:close() end
  return text
end

local function line_of(path) return ((text_of(path) or ""):match "^[^\n]*") end

-- /proc/cpuinfo's fields of the first processor, the number of processors, the largest clock in
-- GHz that is known.
local function processor()
  local info = text_of "/proc/cpuinfo" or ""
  local fields = {}
  for name, value in info:gmatch "([^\n:]-)%s*:%s*([^\n]*)" do
    fields[name] = fields[name] or value
  end
  local count = select(2, info:gsub("processor%s*:", ""))
  local ghz = tonumber(fields["cpu MHz"] or "") or 0
  local most = tonumber(line_of "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq") or 0
  return fields, count, math.max(ghz / 1e3, most / 1e6)
end

-- Cores that a control group allows, or nil.
local function allowed_cores()
  local quota, period = line_of("/sys/fs/cgroup/cpu.max"):match "^(%d+) (%d+)"
  if quota then return tonumber(quota) / tonumber(period) end
  local old = tonumber(line_of "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
  if old and old > 0 then
    return old / (tonumber(line_of "/sys/fs/cgroup/cpu/cpu.cfs_period_us") or 100000)
  end
end

-- f32 operations of a core in a cycle: two vector units of 16, 8 or 4 lanes, a product and a sum
-- each. Some processors have one AVX-512 unit, or lower the clock for it.
local per_cycle = {avx512 = 64, avx2 = 32, baseline = 8}

local function check_processor()
  heading "Processor"
  local fields, count, ghz = processor()
  local workers = nn.workers()
  fine("%s, %d hardware threads, %.1f GHz", fields["model name"] or "unknown", count, ghz)
  local allowed = math.min(allowed_cores() or math.huge, count)
  judge(allowed >= workers - 0.01,
        ("start with NNLUA_CPUS=%d, or allow the container more"):format(
          math.max(1, math.floor(allowed))),
        "%d workers%s", workers, allowed < count
        and (", the control group allows %.1f cores"):format(allowed) or "")
  local load, disturbed = require("nn.plan.step").load()
  if not disturbed then
    fine("load of the last minute %.1f", load)
  else
    note("other programs compute: rates measured now are low; `top` tells which they are",
         "load of the last minute %.1f", load)
  end
  local governor = line_of "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
  if governor ~= "" then
    judge(governor ~= "powersave" or (fields.vendor_id or "") == "GenuineIntel",
          "sudo cpupower frequency-set -g performance", "frequency governor %s", governor)
  end
  return ghz
end

local function check_blas(ghz)
  heading "Matrix products"
  local blas = nn.version():match "BLAS ([^\n]*)"
  local isa = blas:match "kernels (%S+)"
  local forced = os.getenv "OPENBLAS_CORETYPE"
  judge(not forced or forced == "", "unset OPENBLAS_CORETYPE: nnlua chooses by the processor",
        "BLAS %s%s", blas, forced and forced ~= "" and
        ", OPENBLAS_CORETYPE=" .. forced .. " is set" or "")
  local threads = tonumber(os.getenv "OPENBLAS_NUM_THREADS" or "")
  if threads then
    fine("OPENBLAS_NUM_THREADS=%d does not matter: each worker computes on one core", threads)
  end
  local workers = nn.workers()
  local rate, peak = nn.sgemm_gflops(), workers * ghz * (per_cycle[isa] or 8)
  judge(peak == 0 or rate > 0.45 * peak,
        "is something else running? are the workers on real cores? does BLAS name this processor?",
        "sgemm %.0f GFLOP/s, %.0f%% of what %d workers at %.1f GHz could do with %s", rate,
        peak > 0 and 100 * rate / peak or 0, workers, ghz, isa)
end

local function check_starpu()
  heading "StarPU"
  local version = nn.version():match "StarPU ([^\n]*)"
  local scheduler = os.getenv "STARPU_SCHED"
  fine("version %s, scheduler %s", version, scheduler or "chosen by nnlua")
  local home = os.getenv "STARPU_HOME" or os.getenv "HOME" or "/"
  local folder = home .. "/.starpu"
  judge(ffi.C.access(home, 2) == 0, "set STARPU_HOME to a folder that can be written",
        "keeps its models in %s", folder)
  local sampled = files.list(folder .. "/sampling/codelets") or {}
  fine("%d models of task times so far; needed on machines with GPUs only", #sampled)
end

local function check_gpus()
  heading "GPUs"
  local cuda, _, gpus = nn.version():match "CUDA ([^\n]*)", nn.workers()
  local driver = line_of("/proc/driver/nvidia/version"):match "Kernel Module[^%d]*([%d.]+)"
  local cards = files.list "/proc/driver/nvidia/gpus" or {}
  if #cards == 0 and not driver then
    return fine("none here; CUDA %s", cuda)
  end
  judge(driver ~= nil, "install NVIDIA's driver, then look at nvidia-smi", "%d cards, driver %s",
        #cards, driver or "missing")
  judge(not cuda:find "not built in", "install the CUDA toolkit (nvcc) and build again",
        "CUDA %s", cuda)
  judge(gpus == #cards, "see CUDA_VISIBLE_DEVICES and STARPU_NCUDA", "%d of them are workers", gpus)
end

local function kilobytes(name)
  return 1024 * (tonumber((text_of "/proc/meminfo" or ""):match(name .. ":%s*(%d+)")) or 0)
end

local function limit(resource)
  local out = ffi.new "nn_rlimit"
  ffi.C.getrlimit(resource, out)
  local now = tonumber(out.now)
  return now < 2 ^ 62 and now or math.huge
end

local function check_memory()
  heading "Memory"
  local total, available = kilobytes "MemTotal", kilobytes "MemAvailable"
  judge(available > 0.3 * total, "other programs hold most of the memory: end them, or use less",
        "%s, %s available; tensors may use %s", show.bytes(total), show.bytes(available),
        show.bytes(nn.memory().budget))
  local swapped = kilobytes "SwapTotal" - kilobytes "SwapFree"
  judge(swapped < 0.1 * total, "memory was short: what is swapped out makes training crawl",
        "%s swapped out", show.bytes(swapped))
  judge(limit(9) == math.huge, "ulimit -v unlimited", "address space %s",     -- RLIMIT_AS
        limit(9) == math.huge and "without limit" or show.bytes(limit(9)))
  judge(limit(7) >= 256, "ulimit -n 1024", "%.0f open files", limit(7))       -- RLIMIT_NOFILE
  local pages = line_of("/sys/kernel/mm/transparent_hugepage/enabled"):match "%[(%a+)%]"
  if pages then
    judge(pages ~= "never", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
          "transparent huge pages: %s", pages)
  end
end

local function check_disk(path, use)
  local info = ffi.new "nn_statvfs"
  if ffi.C.statvfs(path, info) ~= 0 then
    return warn("make the folder", "%s is not there (%s)", path, use)
  end
  local free = tonumber(info.available) * tonumber(info.fragment)
  local writable = ffi.C.access(path, 2) == 0
  judge(writable and free > 2e9,
        writable and "make room: a checkpoint of GPT-2 124M takes 1.5 GB"
        or "choose another folder (out=..., or cd)",
        "%s: %s free%s (%s)", path, show.bytes(free), writable and "" or ", not writable", use)
end

local function check_terminal()
  heading "Terminal"
  local columns, rows = terminal.size()
  local name = os.getenv "TERM"
  if not terminal.is_terminal(1) then return fine "output goes to no terminal" end
  judge(name and name ~= "dumb", "set TERM (xterm-256color suits most): lines are read plainly now",
        "TERM %s, %d x %d", name or "is not set", columns, rows)
  local locale = os.getenv "LC_ALL" or os.getenv "LC_CTYPE" or os.getenv "LANG" or ""
  judge(locale:upper():find "UTF%-?8", "export LANG=C.UTF-8, if the terminal shows UTF-8",
        "locale '%s'", locale)
  local path = require("repl.history").default_path()
  local folder = path and path:match "^(.*)/"
  if folder and files.list(folder) then
    judge(ffi.C.access(folder, 2) == 0, "make it writable, or set XDG_STATE_HOME",
          "history of the prompt in %s", folder)
  end
end

--- run() prints the report; the program then ends, with status 1 where something is wrong.
function M.run()
  wrong = 0
  print((nn.version():gsub("\n.*", "")))
  local ghz = check_processor()
  check_blas(ghz)
  check_starpu()
  check_gpus()
  check_memory()
  heading "Disk"
  check_disk(".", "runs are kept under here")
  check_disk(os.getenv "TMPDIR" or "/tmp", "temporary files")
  check_terminal()
  print(wrong == 0 and "\nAll is well." or ("\n%d to look at."):format(wrong))
  os.exit(wrong == 0)
end

return M
