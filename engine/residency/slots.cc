#include "engine/residency/slots.h"

#include <starpu.h>
#include <sys/mman.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/planted_faults.h"
#include "engine/memory/arena.h"
#include "engine/memory/disk.h"
#include "engine/residency/transfer_faults.h"
#include "engine/workers/failures.h"
#include "engine/workers/gpu.h"
#include "engine/workers/watchdog.h"
#include "engine/workers/worker.h"
#include "engine/workers/workers.h"

namespace nn {
namespace {

constexpr size_t huge_page = size_t(2) << 20;

// Never destroyed: tasks may outlive everything else.
starpu_codelet* transfer_codelet(bool loads) {
    const auto with_modes = [](starpu_codelet* codelet, starpu_data_access_mode slot,
                               starpu_data_access_mode extent) {
        codelet->modes[0] = slot;
        codelet->modes[1] = extent;
        return codelet;
    };
    static starpu_codelet* const load = with_modes(nowhere_codelet("load", 2), STARPU_W, STARPU_R);
    static starpu_codelet* const store =
        with_modes(nowhere_codelet("store", 2), STARPU_R, STARPU_W);
    return loads ? load : store;
}

void submit(starpu_task* task) {
    if (const int status = starpu_task_submit(task); status != 0) {
        task->destroy = 0;
        starpu_task_destroy(task);
        fail("StarPU cannot submit a transfer (%s)", std::strerror(-status));
    }
}

struct TransferTask {
    SlotTransfer transfer;
    starpu_task* task;
};

// Frees the context first: after the last task, the main thread may end the disk, which must not
// happen on a thread of the disk.
void end_task(std::unique_ptr<TransferTask> context) {
    starpu_task* const task = context->task;
    context.reset();
    starpu_task_end_dep_release(task);
}

std::string problem_of(const SlotTransfer& t) {
    if (!tile_checks::on()) return "";
    try {
        const tile_checks::Bytes in_slot{t.memory, size_t(t.bytes), tile_checks::gpu_of(t.slot)};
        const std::string text =
            tile_checks::problem(t.loads ? t.below.handle : t.slot, t.value, in_slot);
        if (text.empty()) return "";
        return format("%s of %s: %s", t.loads ? "load" : "store", t.what.text.c_str(),
                      text.c_str());
    } catch (const std::exception& e) {
        return e.what();
    }
}

// Called when the disk has carried out the transfer, on one of its threads.
void end_transfer(TransferTask* context, std::string error) {
    const SlotTransfer& t = context->transfer;
    const StarpuHandle from = t.loads ? t.below.handle : t.slot,
                       to = t.loads ? t.slot : t.below.handle;
    if (error.empty()) error = problem_of(t);
    if (error.empty()) tile_checks::note_same(to, from, t.loads ? "a load" : "a store");
    if (t.loads && planted::is_next(planted::slot_altered) && tile_checks::gpu_of(t.slot) < 0)
        *static_cast<char*>(t.memory) ^= 1;
    note_transfer(to, error);
    end_task(std::unique_ptr<TransferTask>(context));
}

// Called when all earlier tasks on the slot and on what is below are done, on any thread.
void begin_transfer(void* argument) {
    auto* const context = static_cast<TransferTask*>(argument);
    const SlotTransfer& t = context->transfer;
    const StarpuHandle below = t.below.handle, from = t.loads ? below : t.slot;
    delay(0.2);
    if (has_failed_value(from)) {
        note_transfer_skipped(from, t.loads ? t.slot : below);
        return end_task(std::unique_ptr<TransferTask>(context));
    }
    carry_out(*t.below.store,
              {!t.loads, t.below.place, t.bytes, static_cast<char*>(t.memory), t.order, t.what,
               [context](const std::string& error) { end_transfer(context, error); }});
}

}  // namespace

Extent::Extent(std::shared_ptr<Store> store, int64_t bytes, const std::string& what)
    : store_(std::move(store)), bytes_(bytes), place_(store_->allocate(bytes, what)) {
    starpu_void_data_register(&handle_);
}

Extent::~Extent() {
    tile_checks::end_handle(handle_);
    if (running() && !gpu_is_lost()) starpu_data_unregister_submit(handle_);
    store_->release(place_, bytes_);
}

TransferName name_of(const Tile& tile) {
    constexpr const char* kinds[tile_kinds] = {"",
                                               " of the weights",
                                               " of the gradients",
                                               " of the optimizer state",
                                               " of the activations",
                                               " of the cache"};
    return {format("tile %llu of %s%s", static_cast<unsigned long long>(tile.number),
                   human_bytes(double(tile.bytes)).c_str(), kinds[tile.kind]),
            tile.kind};
}

TransferEnd end_in(const std::shared_ptr<Extent>& extent) {
    return {extent->store(), extent->place(), extent->handle(), extent};
}

Slots::Slots(uint32_t blocks, int node, bool is_pinned) : blocks_(blocks), node_(node) {
    in_ram() ? map_ram(is_pinned) : allocate_on_gpu();
}

void Slots::allocate_on_gpu() {
    memory_ = static_cast<char*>(gpu_allocate(size_t(bytes()), only_gpu().device));
    if (!memory_)
        throw OutOfMemory(
            format("out of memory: slots of %s cannot be allocated on %s; lower "
                   "memory.gpu (nn.memory_tiers)",
                   human_bytes(double(bytes())).c_str(), node_name(node_).c_str()));
}

void Slots::map_ram(bool is_pinned) {
    mapped_ = mmap(nullptr, size_t(bytes()) + huge_page, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED)
        throw OutOfMemory(format("out of memory: slots of %s cannot be allocated: %s",
                                 human_bytes(double(bytes())).c_str(), std::strerror(errno)));
    count_outside(bytes());
    memory_ = static_cast<char*>(mapped_);
    memory_ += (huge_page - reinterpret_cast<uintptr_t>(mapped_) % huge_page) % huge_page;
    madvise(memory_, size_t(bytes()), MADV_HUGEPAGE);
    std::memset(memory_, 0, size_t(bytes()));
    is_pinned_ = is_pinned && blocks_ > 0 && pin_on_host(memory_, size_t(bytes()));
}

Slots::~Slots() {
    end_late_transfers();
    if (!gpu_is_lost())  // its thread may hold StarPU's locks
        for (StarpuHandle handle : handles_) {
            starpu_data_unregister(handle);
            tile_checks::end_handle(handle);
        }
    if (!in_ram()) {
        if (!gpu_is_lost()) gpu_free(memory_);
        return;
    }
    if (is_pinned_) unpin_on_host(memory_);
    munmap(mapped_, size_t(bytes()) + huge_page);
    count_outside(-bytes());
}

StarpuHandle Slots::claim(uint32_t slot, uint32_t blocks, int64_t bytes) {
    const int64_t all = blocks * slot_block;
    const bool is_part = bytes > 0 && bytes != all;
    const uint32_t number =
        is_part ? table_.number_of(slot, blocks, bytes) : table_.number_of(slot, blocks);
    if (number == handles_.size()) {
        handles_.push_back(nullptr);
        starpu_variable_data_register(&handles_.back(), node_,
                                      reinterpret_cast<uintptr_t>(memory(slot)),
                                      size_t(is_part ? bytes : all));
        tile_checks::note_memory(handles_.back(), memory(slot), in_ram() ? -1 : only_gpu().device);
    }
    order_after(handles_[number], table_.claim(number));
    return handles_[number];
}

// Submits tasks that do nothing, on the slot and on the others.
void Slots::order_after(StarpuHandle slot, const std::vector<uint32_t>& others) {
    static starpu_codelet* const codelet = nowhere_codelet("claim", STARPU_VARIABLE_NBUFFERS);
    for (size_t done = 0; done < others.size();) {
        starpu_task* const task = starpu_task_create();
        task->cl = codelet;
        task->where = STARPU_NOWHERE;
        task->handles[0] = slot;
        for (task->nbuffers = 1; task->nbuffers < max_handles && done < others.size(); ++done)
            task->handles[task->nbuffers++] = handles_[others[done]];
        std::fill_n(task->modes, task->nbuffers, STARPU_W);
        submit(task);
    }
}

StagingBuffer::Place StagingBuffer::next(int64_t bytes) {
    const auto blocks = uint32_t((bytes + slot_block - 1) / slot_block);
    if (block_ + blocks > slots_.blocks()) block_ = 0;
    const uint32_t place = block_;
    block_ += blocks;
    return {slots_.claim(place, blocks, bytes), slots_.memory(place)};
}

// Never destroyed: tiles may be freed while the process ends.
std::unique_ptr<StagingBuffer>& staging_buffer() {
    static auto* const instance = new std::unique_ptr<StagingBuffer>;
    return *instance;
}

void submit_transfer(SlotTransfer transfer) {
    starpu_task* const task = starpu_task_create();
    task->cl = transfer_codelet(transfer.loads);
    task->where = STARPU_NOWHERE;
    task->handles[0] = transfer.slot;
    task->handles[1] = transfer.below.handle;
    auto context = std::make_unique<TransferTask>(TransferTask{std::move(transfer), task});
    task->prologue_callback_func = begin_transfer;
    task->prologue_callback_arg = context.get();
    starpu_task_end_dep_add(task, 1);
    submit(task);
    context.release();  // the end of the transfer deletes it
}

void UnmapBuffer::operator()(char* memory) const { munmap(memory, bytes); }

TransferBuffer transfer_buffer(size_t bytes) {
    const auto rounded = size_t(disk_bytes(int64_t(bytes)));
    void* const mapped =
        mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw OutOfMemory("out of memory: no buffer for a transfer");
    return TransferBuffer(static_cast<char*>(mapped), UnmapBuffer{rounded});
}

// Begins a transfer, by start(done), and waits until it is done. Throws its error.
template <class F> static void wait_for_transfer(F start) {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    std::string error;
    start([&](const std::string& e) {
        const std::lock_guard lock(mutex);
        is_done = true, error = e;
        changed.notify_one();
    });
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_done; });
    if (!error.empty()) throw Error(error);
}

TransferBuffer read_now(const Extent& extent, size_t bytes, const TransferName& what,
                        tile_checks::Value value) {
    TransferBuffer buffer = transfer_buffer(bytes);
    wait_for_transfer([&](Transfer::Done done) {
        extent.store()->read(extent.place(), buffer.get(), int64_t(bytes), 0, what,
                             std::move(done));
    });
    const std::string wrong = tile_checks::problem(extent.handle(), value, {buffer.get(), bytes});
    if (!wrong.empty()) fail("load of %s: %s", what.text.c_str(), wrong.c_str());
    return buffer;
}

void write_now(const Extent& extent, const char* memory, size_t bytes, const TransferName& what,
               tile_checks::Value value) {
    const TransferBuffer buffer = transfer_buffer(bytes);
    std::memcpy(buffer.get(), memory, bytes);
    wait_for_transfer([&](Transfer::Done done) {
        extent.store()->write(extent.place(), buffer.get(), int64_t(bytes), 0, what,
                              std::move(done));
    });
    tile_checks::note(extent.handle(), value, {memory, bytes}, "a store");
}

}  // namespace nn
