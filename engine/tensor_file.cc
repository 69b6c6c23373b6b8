#include "engine/tensor_file.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <starpu.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>

#include "engine/error.h"
#include "engine/program.h"
#include "engine/runtime.h"

namespace nn {

uint32_t crc32_of(const void* data, size_t bytes, uint32_t crc) {
    return libdeflate_crc32(crc, data, bytes);
}

namespace {

constexpr int64_t piece_bytes = int64_t(8) << 20;

// Bytes of the file that were written in one go.
struct Part {
    int64_t offset, bytes;
    uint32_t crc;
};

}  // namespace

struct TensorFile::State {
    State(const std::string& name, int64_t size) : path(name), bytes(size) {}
    ~State() {
        if (fd >= 0) ::close(fd);
    }

    void failed(const std::string& reason) {
        std::lock_guard lock(mutex);
        if (error.empty()) error = reason;
    }
    bool useless() {
        std::lock_guard lock(mutex);
        return abandoned || !error.empty();
    }
    void put(int64_t offset, const char* data, int64_t count);
    void finish();  // on a thread of its own

    const std::string path;
    const int64_t bytes;
    int fd = -1;
    std::mutex mutex;
    std::condition_variable changed;
    std::string error;    // the first one
    int64_t pending = 0;  // pieces given to tasks
    bool abandoned = false, done = false;
    std::vector<Part> parts;
    uint32_t crc = 0;
};

void TensorFile::State::put(int64_t offset, const char* data, int64_t count) {
    const Part part{offset, count, crc32_of(data, size_t(count))};
    while (count > 0) {
        const ssize_t written = pwrite(fd, data, size_t(count), offset);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return failed(std::strerror(errno));
        data += written, offset += written, count -= written;
    }
    std::lock_guard lock(mutex);
    parts.push_back(part);
}

// Waits for the pieces, puts the checksums of the parts together and makes the file durable.
void TensorFile::State::finish() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return abandoned || pending == 0; });
    if (abandoned) return;
    if (error.empty()) {
        std::sort(parts.begin(), parts.end(),
                  [](const Part& a, const Part& b) { return a.offset < b.offset; });
        int64_t at = 0;
        for (const Part& part : parts) {
            if (part.offset != at) {
                error = "bytes were left out or written twice";
                break;
            }
            crc = uint32_t(crc32_combine(crc, part.crc, part.bytes));
            at += part.bytes;
        }
        if (error.empty() && at != bytes) error = "bytes were left out";
    }
    if (error.empty()) {
        lock.unlock();
        const int status = fsync(fd) == 0 ? 0 : errno;
        lock.lock();
        if (status) error = std::strerror(status);
    }
    done = true;
    changed.notify_all();
}

namespace {

// A range of the bytes of one tile, and where they lie in the file: the tile is a sequence of runs
// that are contiguous there.
struct Piece {
    std::shared_ptr<TensorFile::State> file;
    int64_t first, last;  // bytes of the tile
    int64_t run, base;    // bytes of a run; where the tensor begins in the file
    int axes;             // that tell the runs apart
    int64_t extent[max_dims], start[max_dims], stride[max_dims];  // of these; strides in bytes

    int64_t offset_of(int64_t index) const {
        int64_t offset = base;
        for (int axis = axes - 1; axis >= 0; --axis) {
            offset += (start[axis] + index % extent[axis]) * stride[axis];
            index /= extent[axis];
        }
        return offset;
    }
    void write(const char* tile) const {
        for (int64_t at = first; at < last;) {
            const int64_t within = at % run, count = std::min(run - within, last - at);
            file->put(offset_of(at / run) + within, tile + at, count);
            at += count;
        }
    }
};

// The runs of a tile: all axes behind the last one that is cut belong to one run with it.
Piece runs_of(const Tensor& t, int64_t tile) {
    const Block block = t.block(tile);
    const Dims strides = row_major_strides(t.shape());
    const int64_t element = int64_t(dtype_size(t.dtype()));
    int axes = int(t.rank());
    Piece piece{};
    piece.run = element;
    // Axis by axis from the last one, as long as what is behind is whole.
    for (bool whole = true; axes > 0 && whole;) {
        const size_t axis = size_t(axes - 1);
        whole = block.extent[axis] == t.shape()[axis];
        piece.run *= block.extent[axis];
        piece.base += block.start[axis] * strides[axis] * element;
        --axes;
    }
    piece.axes = axes;
    for (int axis = 0; axis < axes; ++axis) {
        piece.extent[axis] = block.extent[size_t(axis)];
        piece.start[axis] = block.start[size_t(axis)];
        piece.stride[axis] = strides[size_t(axis)] * element;
    }
    return piece;
}

void write_piece(void* buffers[], void* arg) {
    const std::unique_ptr<Piece> piece(static_cast<Piece*>(arg));
    TensorFile::State& file = *piece->file;
    if (needs_failed_value())
        file.failed("a tensor was not computed, since a task before it failed");
    else if (!file.useless())
        piece->write(reinterpret_cast<const char*>(STARPU_VARIABLE_GET_PTR(buffers[0])));
    std::lock_guard lock(file.mutex);
    if (--file.pending == 0) file.changed.notify_all();
}

// Lives for ever, since tasks may outlive anything else.
starpu_codelet* write_codelet() {
    static starpu_codelet* const codelet = [] {
        auto* made = static_cast<starpu_codelet*>(std::calloc(1, sizeof(starpu_codelet)));
        starpu_codelet_init(made);
        made->name = "write_file";
        made->nbuffers = 1;
        made->modes[0] = STARPU_R;
        made->cpu_funcs[0] = write_piece;
        return made;
    }();
    return codelet;
}

void submit_piece(const Piece& piece, Tile& tile) {
    {
        std::lock_guard lock(piece.file->mutex);
        ++piece.file->pending;
    }
    starpu_task* t = starpu_task_create();
    t->cl = write_codelet();
    t->cl_arg = new Piece(piece);
    t->handles[0] = tile.handle();
    t->priority = INT_MIN / 2;  // whatever else is ready comes first
    if (const int status = starpu_task_submit(t))
        fail("StarPU refuses to write a tile to '%s' (%s)", piece.file->path.c_str(),
             std::strerror(-status));
}

}  // namespace

TensorFile::TensorFile(const std::string& path, int64_t bytes)
    : state_(std::make_shared<State>(path, bytes)) {
    if (bytes < 0) fail("cannot write '%s': %lld bytes", path.c_str(), (long long)bytes);
    const auto refused = [&] { fail("cannot write '%s': %s", path.c_str(), std::strerror(errno)); };
    state_->fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (state_->fd < 0) refused();
    // Room is taken first, where the file system can do that, so that a full disk shows at once.
    if (bytes && fallocate(state_->fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        refused();
}

TensorFile::~TensorFile() {
    {
        std::lock_guard lock(state_->mutex);
        state_->abandoned = true;
        state_->changed.notify_all();
    }
    if (finisher_.joinable()) finisher_.join();
}

void TensorFile::check(int64_t offset, int64_t bytes) const {
    if (finisher_.joinable()) fail("'%s' is closed already", state_->path.c_str());
    if (offset < 0 || bytes < 0 || offset > state_->bytes - bytes)
        fail("bytes %lld to %lld are not inside '%s' of %lld bytes", (long long)offset,
             (long long)(offset + bytes), state_->path.c_str(), (long long)state_->bytes);
}

void TensorFile::write(int64_t offset, const void* data, int64_t bytes) {
    check(offset, bytes);
    state_->put(offset, static_cast<const char*>(data), bytes);
}

void TensorFile::write(int64_t offset, const Tensor& tensor) {
    check(offset, tensor.bytes());
    if (recording_number()) fail("a file cannot be written while a compiled function is recorded");
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        if (tensor.tile(i)->recording) fail("a tensor of a compiled function cannot be written");
        tensor.tile(i)->check_readable("write");
    }
    start();
    ensure_awake();
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        Piece piece = runs_of(tensor, i);
        piece.file = state_;
        piece.base += offset;
        const int64_t bytes = int64_t(tensor.tile(i)->bytes);
        for (piece.first = 0; piece.first < bytes; piece.first = piece.last) {
            piece.last = std::min(piece.first + piece_bytes, bytes);
            submit_piece(piece, *tensor.tile(i));
        }
    }
}

void TensorFile::close() {
    check(0, 0);
    // Signals belong to the main thread.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    finisher_ = std::thread([state = state_] { state->finish(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

bool TensorFile::done() const {
    std::lock_guard lock(state_->mutex);
    return state_->done;
}

void TensorFile::wait() const {
    if (!finisher_.joinable()) fail("'%s' is not closed yet", state_->path.c_str());
    wait_for([&] { return done(); });
    if (!state_->error.empty())
        fail("cannot write '%s': %s", state_->path.c_str(), state_->error.c_str());
}

uint32_t TensorFile::crc32() const {
    wait();
    return state_->crc;
}

}  // namespace nn
