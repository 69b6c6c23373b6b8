-- `nnlua --health`: reports the parts of this machine that nnlua uses, with advice on each problem.
local computer = require "nn.measure.computer"
local engine = require "nn.base.engine"
local ffi = require "ffi"
local files = require "nn.io.files"
local nn = require "nn"
local terminal = require "nn.base.terminal"
local units = require "nn.base.units"

ffi.cdef [[
  typedef struct { unsigned long now, most; } nn_rlimit;
  int getrlimit(int resource, nn_rlimit *out);
  int access(const char *path, int mode);
]]

local M = {}
local text_of, line_of = computer.text_of, computer.line_of
local problems, notes = 0, 0

local function heading(text) print("\n" .. text) end
local function fine(format, ...) print("  ok    " .. format:format(...)) end
-- Reports a fact that may need attention, with advice.
local function note(advice, format, ...)
  notes = notes + 1
  print("  note  " .. format:format(...))
  print("        -> " .. advice)
end
-- Reports a fact: as fine if `good`, else as a problem, with advice.
local function judge(good, advice, format, ...)
  if good then return fine(format, ...) end
  problems = problems + 1
  print("  WRONG " .. format:format(...))
  print("        -> " .. advice)
end

local function is_writable(path) return ffi.C.access(path, 2) == 0 end

-- The value of an environment variable; nil if it is unset or empty.
local function setting(name)
  local value = os.getenv(name)
  return value ~= "" and value or nil
end

local function check_processor()
  heading "Processor"
  local fields, count, ghz = computer.processor()
  local workers = nn.workers()
  fine("%s, %d hardware threads, %.1f GHz", fields["model name"] or "unknown", count, ghz)
  fine("matrix units: %s", computer.matrix_units(fields))
  local allowed, limit = engine.host_limits()
  local chosen = setting "NNLUA_CPUS"
  judge(workers <= allowed, ("start with NNLUA_CPUS=%d, or allow the process more"):format(allowed),
        "%d workers%s: %s", workers, chosen and " (NNLUA_CPUS)" or "", limit)
  local load, disturbed = require("nn.plan.step").load()
  if disturbed then
    note("other programs use the cores, so rates measured now are low; `top` lists them",
         "load of the last minute %.1f", load)
  else
    fine("load of the last minute %.1f", load)
  end
  local governor = line_of "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
  if governor ~= "" then
    judge(governor ~= "powersave" or fields.vendor_id == "GenuineIntel",
          "sudo cpupower frequency-set -g performance", "frequency governor %s", governor)
  end
  return ghz
end

-- f32 operations per core and cycle: two vector units, each a product and a sum per lane (baseline:
-- one of them). Some processors have one AVX-512 unit, or lower the clock while it runs.
local per_cycle = {avx512 = 64, avx2 = 32, baseline = 8}

--- nominal(rate, workers, ghz, isa) -> the nominal peak in GFLOP/s (0: unknown) and a text that
--- compares the rate of products with it. The true clock may be higher than the stated one.
function M.nominal(rate, workers, ghz, isa)
  local peak = workers * ghz * (per_cycle[isa] or per_cycle.baseline)
  if peak == 0 then return 0, "the clock of the processor is unknown" end
  local of = ("nominal (%.0f: %s, %.1f GHz, %s)"):format(peak, units.count(workers, "worker"), ghz,
                                                         isa)
  if rate > peak then return peak, ("above %s: the clock is higher than stated"):format(of) end
  return peak, ("%.0f%% of %s"):format(100 * rate / peak, of)
end

local function check_blas(ghz)
  heading "Matrix products"
  local blas = nn.version():match "BLAS ([^\n]*)"
  local isa = blas:match "kernels (%S+)"
  local forced = setting "OPENBLAS_CORETYPE"
  judge(not forced, "unset OPENBLAS_CORETYPE: nnlua chooses by the processor", "BLAS %s%s", blas,
        forced and ", OPENBLAS_CORETYPE=" .. forced .. " is set" or "")
  local threads = tonumber(setting "OPENBLAS_NUM_THREADS" or "")
  if threads then
    fine("OPENBLAS_NUM_THREADS=%d has no effect: each worker computes on one core", threads)
  end
  local products = nn.version():match "products ([^\n]*)"
  local chosen = setting "NNLUA_PRODUCTS"
  if chosen and chosen ~= "auto" then
    note("unset NNLUA_PRODUCTS: nnlua measures and uses the fastest", "%s", products)
  else
    fine("%s", products)
  end
  local rate = nn.product_gflops()
  local peak, share = M.nominal(rate, nn.workers(), ghz, isa)
  judge(peak == 0 or rate > 0.45 * peak,
        "check for other programs (top), cores shared by workers, and BLAS's name of the processor",
        "sgemm %.0f GFLOP/s, %s", rate, share)
end

local function check_starpu()
  heading "StarPU"
  local version = nn.version():match "StarPU ([^\n]*)"
  fine("version %s, scheduler %s", version, os.getenv "STARPU_SCHED" or "chosen by nnlua")
  local folder, count = os.getenv "STARPU_PERF_MODEL_DIR", 0      -- the engine sets it
  if folder:find "nnlua%-%d+/starpu$" then
    note("set XDG_CACHE_HOME to a writable folder to keep the performance models",
         "performance models in %s, because no home folder is writable", folder)
  else
    judge(is_writable(folder), "set XDG_CACHE_HOME to a writable folder",
          "performance models in %s", folder)
  end
  for _, format in ipairs(files.list(folder .. "/codelets") or {}) do
    count = count + #files.list(folder .. "/codelets/" .. format)
  end
  fine("%d models of task times; only machines with GPUs need them", count)
end

local function check_gpus()
  heading "GPUs"
  local cuda, _, gpus = nn.version():match "CUDA ([^\n]*)", nn.workers()
  local _, _, problem = engine.host_limits()
  if problem ~= "" then
    return judge(false, "mend that; until then tasks run on CPU cores", "%s", problem)
  end
  local driver = line_of("/proc/driver/nvidia/version"):match "Kernel Module[^%d]*([%d.]+)"
  local cards = files.list "/proc/driver/nvidia/gpus" or {}
  if #cards == 0 and not driver then return fine("none; CUDA %s", cuda) end
  judge(driver ~= nil, "install NVIDIA's driver, then run nvidia-smi", "%d cards, driver %s",
        #cards, driver or "missing")
  judge(not cuda:find "not built in", "install the CUDA toolkit (nvcc) and build again",
        "CUDA %s", cuda)
  judge(gpus == #cards, "see CUDA_VISIBLE_DEVICES and STARPU_NCUDA", "%d of them are workers", gpus)
end

local function limit(resource)
  local out = ffi.new "nn_rlimit"
  ffi.C.getrlimit(resource, out)
  local now = tonumber(out.now)
  return now < 2 ^ 62 and now or math.huge
end

local function check_memory()
  heading "Memory"
  local info = text_of "/proc/meminfo"
  local function bytes(name) return 1024 * (tonumber(info:match(name .. ":%s*(%d+)")) or 0) end
  local total, available = bytes "MemTotal", bytes "MemAvailable"
  judge(available > 0.3 * total, "other programs use most of the memory: end them, or use less",
        "%s, %s available; tensors may use %s", units.bytes(total), units.bytes(available),
        units.bytes(nn.memory().budget))
  local swapped = bytes "SwapTotal" - bytes "SwapFree"
  judge(swapped < 0.1 * total, "memory ran short: reading swapped pages makes training very slow",
        "%s swapped out", units.bytes(swapped))
  local address_space, open_files = limit(9), limit(7)        -- RLIMIT_AS, RLIMIT_NOFILE
  judge(address_space == math.huge, "ulimit -v unlimited", "address space %s",
        address_space == math.huge and "unlimited" or units.bytes(address_space))
  judge(open_files >= 256, "ulimit -n 1024", "%.0f open files", open_files)
  local pages = line_of("/sys/kernel/mm/transparent_hugepage/enabled"):match "%[(%a+)%]"
  if pages then
    judge(pages ~= "never", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
          "transparent huge pages: %s", pages)
  end
end

local function check_disk(path, use)
  local free, writable = files.free_bytes(path), is_writable(path)
  if not free then return judge(false, "create the folder", "%s does not exist (%s)", path, use) end
  judge(writable and free > 2e9,
        writable and "free some space: a checkpoint of GPT-2 124M takes 1.5 GB"
        or "choose another folder (out=..., or cd)",
        "%s: %s free%s (%s)", path, units.bytes(free), writable and "" or ", not writable", use)
  return writable and free > 2e9
end

local function check_terminal()
  heading "Terminal"
  if not terminal.is_terminal(1) then return fine "standard output is not a terminal" end
  local columns, rows = terminal.size()
  local name = os.getenv "TERM"
  judge(name and name ~= "dumb", "set TERM (xterm-256color suits most terminals) to edit lines",
        "TERM %s, %d x %d", name or "is not set", columns, rows)
  local locale = os.getenv "LC_ALL" or os.getenv "LC_CTYPE" or os.getenv "LANG" or ""
  judge(locale:upper():find "UTF%-?8", "export LANG=C.UTF-8, if the terminal shows UTF-8",
        "locale '%s'", locale)
  local path = require("repl.history").default_path()
  local folder = path and path:match "^(.*)/"
  if folder and files.list(folder) then
    judge(is_writable(folder), "make it writable, or set XDG_STATE_HOME",
          "history of the prompt in %s", folder)
  end
end

--- verdict(problems, notes) -> the last line of the report.
function M.verdict(found, noted)
  if found + noted == 0 then return "All is well." end
  local texts = {}
  if found > 0 then texts[1] = units.count(found, "problem") end
  if noted > 0 then texts[#texts + 1] = units.count(noted, "note") end
  return table.concat(texts, " and ") .. (found > 0 and " found." or ", no problem found.")
end

--- run(): prints the report and ends the program, with status 1 if it found a problem.
function M.run()
  print(nn.version():match "^[^\n]*")
  check_blas(check_processor())
  check_starpu()
  check_gpus()
  check_memory()
  heading "Disk"
  if check_disk(".", "for runs") then
    fine("reads and writes of 4 MB: %s/s", units.bytes(nn.measure_disk "."))
  end
  check_disk(os.getenv "TMPDIR" or "/tmp", "temporary files")
  check_terminal()
  print("\n" .. M.verdict(problems, notes))
  os.exit(problems == 0)
end

return M
