#include "engine/io/tensor_file.h"

#include <starpu.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/io/output_file.h"
#include "engine/residency/homes.h"
#include "engine/workers/deferred.h"
#include "engine/workers/failures.h"
#include "engine/workers/waits.h"

namespace nn {
namespace {

// A tile that is held until it is copied.
struct PendingTile {
    struct Status {
        bool granted = false, failed = false;
    };
    StarpuHandle handle;
    int64_t runs;  // left to copy
    std::shared_ptr<Status> status;
    HeldTile held;
    std::shared_ptr<Extent> extent;  // of a tile in the store
    size_t bytes;
    TransferName name;
    tile_checks::Value value;
    TransferBuffer loaded{};  // the value from the extent
    bool is_checked = false;
};

// Bytes, or a tensor, to append. A run is contiguous in a tile and in the file: the tile's extent
// along the last cut axis, with all later axes.
struct Item {
    std::string bytes;
    std::vector<Cuts> axes;  // up to the last cut one
    int64_t step = 0;        // bytes of one index along the last of `axes`
    std::vector<PendingTile> tiles;
};

}  // namespace

struct TensorFile::State {
    State(const std::string& name, int64_t bytes) : path(name), output(name, bytes) {}

    template <class F> void change(F f) {
        std::lock_guard lock(mutex);
        f();
        changed.notify_all();
    }
    void enqueue(Item item) {
        change([&] { items.push_back(std::move(item)); });
    }
    void write_items();  // the thread
    void write_runs(Item& item, size_t axis, int64_t tile, int64_t within);
    void copy(PendingTile& tile, int64_t offset, int64_t bytes);

    const std::string path;
    OutputFile output;  // the thread's
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Item> items;
    std::string error;
    bool busy = false, closed = false, abandoned = false, done = false;
};

void TensorFile::State::copy(PendingTile& tile, int64_t offset, int64_t bytes) {
    {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return abandoned || tile.status->granted; });
        if (abandoned) throw Error("abandoned");
        if (tile.status->failed)
            throw Error("a tensor was not computed, since a task before it failed");
    }
    if (tile.extent && !tile.loaded)
        tile.loaded = read_now(*tile.extent, tile.bytes, tile.name, tile.value);
    const void* data = tile.extent ? tile.loaded.get() : starpu_data_get_local_ptr(tile.handle);
    if (!tile.extent && !std::exchange(tile.is_checked, true))
        tile_checks::need(tile.handle, tile.value, {data, tile.bytes});
    output.append(static_cast<const char*>(data) + offset, size_t(bytes));
    if (--tile.runs > 0) return;
    tile.loaded.reset();
    tile.held.reset();
}

// Copies the runs along `axis` and all later axes, in the order of the file. `tile` and `within`
// are the numbers of the tile and of the index in it, along the axes before.
void TensorFile::State::write_runs(Item& item, size_t axis, int64_t tile, int64_t within) {
    const Cuts& cuts = item.axes[axis];
    for (size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
        const int64_t extent = cuts[cut + 1] - cuts[cut];
        const int64_t number = tile * int64_t(cuts.size() - 1) + int64_t(cut);
        if (axis + 1 == item.axes.size()) {
            const int64_t bytes = extent * item.step;
            copy(item.tiles[size_t(number)], within * bytes, bytes);
        } else {
            for (int64_t i = 0; i < extent; ++i)
                write_runs(item, axis + 1, number, within * extent + i);
        }
    }
}

void TensorFile::State::write_items() {
    std::string problem;
    std::unique_lock lock(mutex);
    for (;;) {
        changed.wait(lock, [&] { return abandoned || closed || !items.empty(); });
        if (items.empty()) break;
        Item item = std::move(items.front());
        items.pop_front();
        busy = true;
        lock.unlock();
        delay(0.5);
        try {
            if (problem.empty()) {
                output.append(item.bytes.data(), item.bytes.size());
                if (!item.tiles.empty()) write_runs(item, 0, 0, 0);
            }
        } catch (const std::exception& e) {
            problem = e.what();
        }
        item.tiles.clear();  // releases those not copied
        lock.lock();
        busy = false;
        if (abandoned) problem = "abandoned";
    }
    lock.unlock();
    try {
        if (problem.empty()) output.finish();
    } catch (const std::exception& e) {
        problem = e.what();
    }
    lock.lock();
    error = problem;
    done = true;
    changed.notify_all();
}

TensorFile::TensorFile(const std::string& path, int64_t bytes) : bytes_(bytes) {
    if (bytes < 0) fail("cannot write '%s': %lld bytes", path.c_str(), (long long)bytes);
    failed_before_ = failed_tasks();
    check_pending();  // after failed_tasks(): it throws for every unreported failure counted there
    const SignalsBlocked in_the_threads;
    try {
        state_ = std::make_shared<State>(path, bytes);
        writer_ = new_thread([state = state_] { state->write_items(); });
    } catch (const Error& e) {
        fail("cannot write '%s': %s", path.c_str(), e.what());
    }
}

TensorFile::~TensorFile() {
    state_->change([&] { state_->abandoned = true; });
    writer_.join();
}

void TensorFile::count_bytes(int64_t bytes) {
    if (closed_) fail("'%s' is closed already", state_->path.c_str());
    if (bytes < 0 || bytes > bytes_ - appended_)
        fail("%lld more bytes do not fit into '%s': it has %lld of its %lld bytes",
             (long long)bytes, state_->path.c_str(), (long long)appended_, (long long)bytes_);
    appended_ += bytes;
}

void TensorFile::append(const void* data, int64_t bytes) {
    count_bytes(bytes);
    state_->enqueue({std::string(static_cast<const char*>(data), size_t(bytes)), {}, 0, {}});
}

void TensorFile::append(const Tensor& tensor) {
    if (recording_number()) fail("a file cannot be written while a compiled function is recorded");
    if (tensor.temporary()) fail("a tensor of a compiled function cannot be written");
    for (int64_t i = 0; i < tensor.tiles(); ++i) tensor.tile(i)->check_readable("write");
    const Grid& grid = tensor.grid();
    size_t axes = tensor.rank();
    while (axes > 1 && grid.tiles(axes - 1) == 1) --axes;
    Item item;
    item.axes.assign(grid.axes.begin(), grid.axes.begin() + std::ptrdiff_t(axes));
    if (axes == 0) item.axes = {{0, 1}};  // a scalar
    item.step =
        product(tensor.shape(), std::max<size_t>(axes, 1)) * int64_t(dtype_size(tensor.dtype()));
    ensure_awake();
    // Requested now, before the thread needs them: later tasks wait for these requests. A task that
    // failed since the file began, before the tile is granted, may have left the tile's old value.
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        Tile& tile = *tensor.tile(i);
        finish_deferred_on(tile);
        const auto extent = stored_value(tile);
        const StarpuHandle handle = extent ? extent->handle() : handle_of(tile);
        const auto status = std::make_shared<PendingTile::Status>();
        const auto notify = [state = state_, handle, status, failed = failed_before_] {
            const bool wrong = failed_tasks() != failed || has_failed_value(handle);
            state->change([&] { *status = {true, wrong}; });
        };
        const int64_t runs = product(tensor.block(i).extent, 0, axes ? axes - 1 : 0);
        item.tiles.push_back({handle, runs, status, hold_in_ram(handle, false, notify), extent,
                              tile.bytes, extent ? name_of(tile) : TransferName(""),
                              tile_checks::value_of(tile)});
    }
    count_bytes(tensor.bytes());
    state_->enqueue(std::move(item));
}

void TensorFile::close() {
    count_bytes(0);
    if (appended_ != bytes_)
        fail("'%s' needs %lld bytes, but %lld were given", state_->path.c_str(), (long long)bytes_,
             (long long)appended_);
    closed_ = true;
    state_->change([&] { state_->closed = true; });
}

void TensorFile::drain() const {
    wait_for([&] {
        std::lock_guard lock(state_->mutex);
        return state_->items.empty() && !state_->busy;
    });
}

bool TensorFile::done() const {
    std::lock_guard lock(state_->mutex);
    return state_->done;
}

void TensorFile::wait() const {
    if (!closed_) fail("'%s' is not closed yet", state_->path.c_str());
    wait_for([&] { return done(); });
    if (state_->error.empty()) return;  // whatever failed since, the file is complete
    check_pending();                    // a task's error explains more than its missing result
    fail("cannot write '%s': %s", state_->path.c_str(), state_->error.c_str());
}

uint32_t TensorFile::crc32() const {
    wait();
    return state_->output.crc();
}

}  // namespace nn
