#include "engine/io/output_file.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/waiting.h"
#include "engine/memory/admission.h"
#include "engine/memory/arena.h"

namespace nn {

constexpr size_t page = 4096;  // alignment of writes that bypass the page cache

// Two blocks of each file are taken whatever the budget is, so a small one gets smaller blocks:
// those of a checkpoint, with two files, take a sixteenth of it. The arena still maps blocks of 1
// MB.
static size_t block_bytes() {
    return size_t(std::clamp<int64_t>(budget() / 64, 1 << 20, 8 << 20)) / page * page;
}

int64_t least_file_memory() { return 2 * int64_t(arena_bytes(block_bytes())); }

uint32_t crc32_of(const void* data, size_t bytes, uint32_t crc) {
    return libdeflate_crc32(crc, data, bytes);
}

static Error error_of(int number) {
    const char* const hint = number == EFBIG ? " (see ulimit -f)" : "";
    return Error(std::strerror(number) + std::string(hint));
}

OutputFile::OutputFile(const std::string& path, int64_t bytes) : block_bytes_(block_bytes()) {
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    fd_ = open(path.c_str(), flags | O_DIRECT, 0644);
    if (fd_ < 0 && errno == EINVAL) fd_ = open(path.c_str(), flags, 0644);
    if (fd_ < 0) throw error_of(errno);
    // Reserves the space first, if the file system can, so that a full disk fails at once. Only
    // writes make the file longer, so that a truncated one is detected.
    int status = 0;
    do status = bytes && fallocate(fd_, FALLOC_FL_KEEP_SIZE, 0, bytes) != 0 ? errno : 0;
    while (status == EINTR);
    if (status == ENOSPC || status == EDQUOT || status == EFBIG || status == EIO) {
        ::close(fd_);
        throw error_of(status);
    }
    try {
        thread_ = new_thread([this] { write_pieces(); });
    } catch (...) {
        ::close(fd_);
        throw;
    }
}

OutputFile::~OutputFile() {
    change([&] { abandoned_ = true; });
    if (thread_.joinable()) thread_.join();
    ::close(fd_);
}

void OutputFile::append(const char* data, size_t bytes) {
    crc_ = crc32_of(data, bytes, crc_);
    while (bytes) {
        if (!filling_.block) filling_.block = block();
        const size_t count = std::min(bytes, block_bytes_ - filling_.bytes);
        std::memcpy(filling_.block.get() + filling_.bytes, data, count);
        data += count, bytes -= count, filling_.bytes += count;
        if (filling_.bytes == block_bytes_) enqueue();
    }
}

void OutputFile::finish() {
    if (filling_.bytes) enqueue();
    change([&] { closed_ = true; });
    thread_.join();
    if (!error_.empty()) throw Error(error_);
    const LongCall until_it_is_on_the_disk;
    if (fsync(fd_) != 0 && errno != EINVAL) throw error_of(errno);  // EINVAL: a pipe
}

void OutputFile::enqueue() {
    change([&] { pieces_.push_back(std::exchange(filling_, {})); });
}

OutputFile::Block OutputFile::block() {
    std::unique_lock lock(mutex_);
    if (empty_.empty()) {
        // Two are needed whatever the budget: one is filled while the other is written.
        if (void* more = staging_allocate(block_bytes_, blocks_ < 2)) {
            ++blocks_;
            const auto free = [bytes = block_bytes_](char* b) { staging_free(b, bytes); };
            return {static_cast<char*>(more), free};
        }
        if (blocks_ < 2)
            throw Error("no memory for a buffer of " + human_bytes(double(block_bytes_)));
    }
    changed_.wait(lock, [&] { return !empty_.empty() || !error_.empty(); });
    if (!error_.empty()) throw Error(error_);
    Block block = std::move(empty_.back());
    empty_.pop_back();
    return block;
}

void OutputFile::write_pieces() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return abandoned_ || closed_ || !pieces_.empty(); });
        if (abandoned_ || pieces_.empty()) return;
        Piece piece = std::move(pieces_.front());
        pieces_.pop_front();
        lock.unlock();
        delay(0.5);
        std::string problem;
        try {
            write_piece(piece);
        } catch (const Error& e) {
            problem = e.what();
        }
        lock.lock();
        empty_.push_back(std::move(piece.block));
        error_ = problem;
        changed_.notify_all();
        if (!problem.empty()) return;
    }
}

void OutputFile::write_piece(const Piece& piece) {
    if (piece.bytes % page) use_page_cache();  // the last piece
    for (size_t at = 0; at < piece.bytes;) {
        const ssize_t written = write(fd_, piece.block.get() + at, piece.bytes - at);
        if (written >= 0) {
            at += size_t(written);
            ++ended_events;
            if (at % page) use_page_cache();
        } else if (errno == EINVAL && fcntl(fd_, F_GETFL) & O_DIRECT) {
            use_page_cache();
        } else if (errno != EINTR) {
            throw error_of(errno);
        }
    }
}

void OutputFile::use_page_cache() { fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) & ~O_DIRECT); }

}  // namespace nn
