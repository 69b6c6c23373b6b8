#include "engine/io/image_queue.h"

#include <algorithm>
#include <chrono>

#include "engine/base/error.h"
#include "engine/base/interrupts.h"
#include "engine/base/threads.h"

namespace nn {

namespace {
constexpr unsigned MOST_THREADS = 16;
constexpr auto CHECK_EVERY = std::chrono::milliseconds(50);  // for interrupts
}  // namespace

ImageQueue::ImageQueue(const ImageSettings& settings, int threads) : settings_(settings) {
    const unsigned cpus = std::clamp(std::thread::hardware_concurrency(), 1u, MOST_THREADS);
    const SignalsBlocked blocked;
    try {
        for (unsigned i = 0; i < (threads ? unsigned(threads) : cpus); ++i)
            threads_.push_back(new_thread([this] { decode_images(); }));
    } catch (...) {
        end_threads();
        throw;
    }
}

ImageQueue::~ImageQueue() { end_threads(); }

void ImageQueue::end_threads() {
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    requested_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void ImageQueue::push(std::vector<std::string> paths) {
    auto batch = std::make_shared<Batch>();
    batch->errors.resize(paths.size());
    batch->bytes.resize(paths.size() * size_t(settings_.bytes()));
    batch->paths = std::move(paths);
    {
        const std::lock_guard lock(mutex_);
        batches_.push_back(std::move(batch));
    }
    requested_.notify_all();
}

std::vector<uint8_t> ImageQueue::pop() {
    std::unique_lock lock(mutex_);
    if (batches_.empty()) fail("no images were requested");
    const auto batch = batches_.front();
    while (batch->done < batch->paths.size()) {
        check_interrupt();
        decoded_.wait_for(lock, CHECK_EVERY);
    }
    batches_.pop_front();
    for (const std::string& error : batch->errors)
        if (!error.empty()) throw Error(error);
    return std::move(batch->bytes);
}

void ImageQueue::decode_images() {
    std::unique_lock lock(mutex_);
    for (;;) {
        const auto open = std::find_if(batches_.begin(), batches_.end(), [](const auto& batch) {
            return batch->started < batch->paths.size();
        });
        if (closed_) return;
        if (open == batches_.end()) {
            requested_.wait(lock);
            continue;
        }
        const auto batch = *open;
        const size_t i = batch->started++;
        lock.unlock();
        std::string error;
        try {
            read_image(batch->paths[i], settings_,
                       batch->bytes.data() + i * size_t(settings_.bytes()), closed_);
        } catch (const std::exception& e) {
            error = e.what();
        }
        lock.lock();
        batch->errors[i] = std::move(error);
        if (++batch->done == batch->paths.size()) decoded_.notify_all();
    }
}

}  // namespace nn
