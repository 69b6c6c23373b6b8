-- The memory that tensors use, and its budgets, in RAM and on GPUs.

local arguments = require "nn.base.arguments"
local ffi = require "ffi"
local lib = require "nn.base.capi"
local units = require "nn.base.units"
local C, check = lib.C, lib.check

-- tiers: the names of the tiers of nn.memory_tiers, {"RAM", "disk"}, {"GPU", "RAM"} or
-- {"GPU", "RAM", "disk"}; nil without tiers. disk_folders: those of the disk, for messages.
-- activation_choice: of nn.activations.
local M = {activation_choice = "auto"}

--- nn.memory() -> {budget, in_use, cached, peak, tensors, available, on_gpus, nodes, gpus, moved,
--- disk, ram_tier, slots, limited_plans, resident, resident_peak}, in bytes. `budget`: RAM for
--- tensors, 0 if the limits of the process leave none; `cached`: freed blocks that are kept for
--- reuse; `peak`: the largest in_use since nn.reset_peak(); `available`: RAM that the system can
--- still provide;
--- `on_gpus`: what a GPU holds, if GPUs run the tasks: temporaries of compiled functions that fit
--- there beside all tensors take nothing of the budget; `nodes`: {name, used, limit} of each memory
--- node, RAM first; `gpus`: those of GPUs, whose limit nn.devices sets; `moved`: all bytes copied
--- between memory nodes so far; `disk`: {used, read, written, busy, stalled} of nn.memory_tiers:
--- bytes on the disk now, bytes read and written so far, seconds with a transfer under way, and the
--- seconds that workers were without a task meanwhile, summed over the workers; `ram_tier`: {used,
--- read, written, busy} of nn.memory_tiers{gpu}: bytes in RAM that do not fit on the GPU, bytes
--- copied to it and back, and seconds with a copy under way; `slots`: memory of planned functions
--- (nn.memory_tiers); `limited_plans`: how often plan_seconds ended the search for a plan that is
--- used; `resident`, `resident_peak`: RAM of the process, now and at most so far.
---     nn.memory().budget > 0, nn.memory().nodes[1].name  --> true, "RAM"
function M.memory()
  local m, out = ffi.new "nn_memory_info_t", {nodes = {}, gpus = {}}
  check(C.nn_memory(m))
  for _, name in ipairs {"budget", "in_use", "cached", "peak", "tensors", "available",
                        "on_gpus", "resident", "resident_peak"} do
    out[name] = tonumber(m[name])
  end
  local room = 64
  local used, limit = ffi.new("int64_t[?]", room), ffi.new("int64_t[?]", room)
  local count, name = ffi.new("int32_t[1]", room), ffi.new "const char *[1]"
  check(C.nn_node_memory(used, limit, count))
  for i = 0, count[0] - 1 do
    check(C.nn_node_name(i, name))
    local node = {name = ffi.string(name[0]), used = tonumber(used[i]), limit = tonumber(limit[i])}
    table.insert(out.nodes, node)
    if node.name:find "^GPU" then table.insert(out.gpus, node) end
  end
  check(C.nn_bytes_moved(used))
  out.moved = tonumber(used[0])
  local tiers = ffi.new "nn_tiers_info_t"
  check(C.nn_tiers(tiers))
  out.slots = tonumber(tiers.slots)
  local function use(store)
    return {used = tonumber(store.used), read = tonumber(store.read),
            written = tonumber(store.written), busy = store.busy}
  end
  out.disk, out.ram_tier = use(tiers.disk), use(tiers.ram)
  out.limited_plans, out.kept_plans = tonumber(tiers.limited), tonumber(tiers.kept)
  out.disk.stalled = M.on_gpu() and 0 or tiers.stalled
  return out
end

--- disk_room() -> bytes that tensors may take on the disk, with those that they take already; 0
--- without a disk, and if it is not that of the described machine.
function M.disk_room()
  local tiers = ffi.new "nn_tiers_info_t"
  check(C.nn_tiers(tiers))
  return tonumber(tiers.disk_room)
end

--- limited_text() -> what to report if plan_seconds ended a search for a plan; else nil.
function M.limited_text()
  return M.memory().limited_plans > 0 and ("ended after plan_seconds=%g with the best plan so far; "
    .. "more time may find a faster one"):format(M.plan_seconds or 4) or nil
end

--- search_text() -> how the last search for a plan ended.
function M.search_text()
  return M.limited_text()
    or (M.memory().kept_plans > 0 and "not needed: an earlier start kept the plan" or "complete")
end

--- on_gpu(), has_disk() -> whether tiers begin with a GPU's memory, or end with a disk.
function M.on_gpu() return M.tiers ~= nil and M.tiers[1] == "GPU" end
function M.has_disk() return M.tiers ~= nil and M.tiers[#M.tiers] == "disk" end

-- The folders of "a,b" or {"a", "b"}; nil if there is none.
local function folders_of(disk)
  if type(disk) == "string" then
    local out = {}
    for folder in (disk .. ","):gmatch "([^,]*)," do out[#out + 1] = folder end
    disk = out
  end
  if type(disk) ~= "table" or #disk == 0 then return end
  for _, folder in ipairs(disk) do
    if type(folder) ~= "string" or folder == "" or folder:find "\n" then return end
  end
  return disk
end

local function bytes_option(key, value, needed)
  local bytes = units.read_bytes(value)
  arguments.need(bytes, "memory_tiers", key, value, needed)
  return bytes
end

--- nn.memory_tiers{ram, disk, disk_rate, disk_in_ram=false}: the memory of tensors is `ram`, bytes
--- or "6GB"; what does not fit is in an unnamed file in the folder `disk`. A missing folder is
--- created, but not its parent. Several folders, "/nvme0,/nvme1" or a list, are disks that work
--- together: each has an equal part of every large tensor, so N disks have N times the rate and N
--- times the free space of the one with the least.
--- nn.memory_tiers{gpu}: compiled functions use `gpu` bytes of the one GPU's memory; what does not
--- fit is in RAM. nn.memory_tiers{gpu, ram, disk, disk_rate, plan_seconds}: what does not fit there
--- either is on the disk.
--- With `gpu`, this call starts the workers, and at least 64 MB of what nn.devices allows must
--- remain for small tiles, inputs and eager operations. A compiled function that needs more than
--- `ram` or `gpu` runs by a plan of its transfers, made before its first run; results are the same
--- to the bit. With several ranks, each has so many bytes and files of its own, and the call comes
--- before the first tensor is computed; for several GPUs, start a rank for each.
--- disk_rate: the most bytes per second of each disk, such as "500MB"; without it, the first
--- function that takes more than 0.2 s on one core measures the disks, for about a second and with
--- up to 512 MB of each.
--- disk_in_ram: the folder may be in RAM (tmpfs, ramfs), for tests.
--- plan_seconds: the most seconds of the search for a plan, 4 by default, and of all trials of
--- what to recompute; then the best plan so far is used; 0: no limit. So the plan can depend on the
--- speed of the machine, but results do not.
--- Nothing remains of the file when the process ends. Errors: a folder that cannot be created or
--- written, that is in RAM, or is given twice; tensors are on the disk already.
---     nn.memory_tiers {ram = "4GB", disk = "/var/tmp"}
function M.memory_tiers(options)
  options = arguments.options("memory_tiers", options,
                              arguments.names "ram disk disk_rate gpu disk_in_ram plan_seconds")
  local seconds = options.plan_seconds
  if seconds then
    arguments.need(type(seconds) == "number" and seconds >= 0, "memory_tiers", "plan_seconds",
                   seconds, "a number of seconds, 0 or more, is needed")
    check(C.nn_limit_search(seconds))
    M.plan_seconds = seconds
  end
  local gpu = options.gpu and bytes_option("gpu", options.gpu, 'a number of bytes or a text such '
                                           .. 'as "20GB" is needed')
  if gpu and not (options.ram or options.disk or options.disk_rate) then
    check(C.nn_memory_tiers(0, nil, 0, gpu, 0))
    M.tiers = {"GPU", "RAM"}
    return
  end
  local ram = bytes_option("ram", options.ram, 'a number of bytes or a text such as '
                           .. '"6GB" is needed')
  local folders = folders_of(options.disk)
  arguments.need(folders, "memory_tiers", "disk", options.disk,
                 'a folder, or several such as "/nvme0,/nvme1", is needed')
  for _, folder in ipairs(folders) do
    arguments.need(folder:sub(1, 1) ~= "~", "memory_tiers", "disk", folder,
                   "a path that does not begin with ~ is needed, such as ./~")
  end
  local rate = options.disk_rate and bytes_option("disk_rate", options.disk_rate,
    'a number of bytes per second or a text such as "500MB" is needed')
  check(C.nn_memory_tiers(ram, table.concat(folders, "\n"), rate or 0, gpu or 0,
                          options.disk_in_ram and 1 or 0))
  M.tiers = gpu and {"GPU", "RAM", "disk"} or {"RAM", "disk"}
  M.disk_folders = table.concat(folders, " and ")
end

--- no_tiers() ends nn.memory_tiers; the memory budget is the default. Errors: as nn.memory_tiers.
function M.no_tiers()
  check(C.nn_memory_tiers(0, nil, 0, 0, 0))
  M.tiers, M.disk_folders = nil, nil
end

--- nn.measure_disk(folder, {written=0.5, piece="4MB", threads=4}) -> bytes per second of transfers
--- at scattered places of the folder's disk, without the page cache. written: the share of bytes
--- that are written while the others are read; piece: bytes of a transfer, rounded up to a multiple
--- of 4096. Takes about a second, and measures each folder and load once per process. Errors: as
--- nn.memory_tiers; no space for 512 MB.
---     nn.measure_disk "/var/tmp" > 1e6  --> true
function M.measure_disk(folder, options)
  options = arguments.options("measure_disk", options, arguments.names "written piece threads")
  arguments.need(type(folder) == "string" and folder ~= "", "measure_disk", "the folder", folder,
                 "a folder is needed")
  local piece = units.read_bytes(options.piece or 2 ^ 22)
  arguments.need(piece, "measure_disk", "piece", options.piece,
                 'a number of bytes or a text such as "4MB" is needed')
  local rate = ffi.new "double[1]"
  check(C.nn_measure_disk(folder, options.written or 0.5, math.ceil(piece / 4096) * 4096,
                          options.threads or 4, rate))
  return rate[0]
end

local activation_choices = {keep = 0, recompute = 1, auto = 2}

--- nn.activations(choice) sets what compiled functions do with activations, the results of the
--- forward pass that backward() needs. "keep": they stay in memory; "recompute": backward()
--- computes those of a layer again from what enters the layer, in more time and less memory;
--- "auto", the default: as few as possible are recomputed so that the function fits into the memory
--- budget, none if all fit. With nn.memory_tiers, "auto" recomputes as many as take the least
--- time by the plan: none, some or all. Results are the same to the bit. Functions recorded before
--- keep their choice. nn.activations() -> the choice. Errors: another choice.
---     nn.activations "auto"
---     nn.activations()  --> "auto"
function M.activations(choice)
  if choice == nil then return M.activation_choice end
  arguments.need(activation_choices[choice], "activations", "the choice", choice,
                 '"keep", "recompute" or "auto" is needed')
  check(C.nn_activations(activation_choices[choice]))
  M.activation_choice = choice
end

--- with_activations(choice, f, ...) -> f(...), with this choice of nn.activations.
function M.with_activations(choice, f, ...)
  local before = M.activation_choice
  M.activations(choice)
  return lib.finally(function() M.activations(before) end, f, ...)
end

--- nn.memory_budget(bytes) limits the memory of tensors; a tensor that does not fit is an error.
--- `bytes` may not exceed the memory that the process can use; 0 sets the default, measured again.
--- The default is 90 % of the available memory, within the limits of the process (ulimit -v,
--- control group). Errors: these limits leave no memory.
---     nn.memory_budget(0)
function M.memory_budget(bytes)
  arguments.need(type(bytes) == "number" and math.abs(bytes) < 2 ^ 62, "memory_budget",
                 "the argument", bytes, "a number of bytes is needed")
  check(C.nn_memory_budget(bytes))
end

--- nn.reset_peak() sets nn.memory().peak to the bytes in use now.
---     nn.reset_peak()
---     local memory = nn.memory()
---     memory.peak >= memory.in_use  --> true
function M.reset_peak() check(C.nn_reset_peak()) end

return M
