// Decodes batches of image files on threads while the program does other work. push() requests a
// batch, pop() waits for the oldest one.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/io/image.h"

namespace nn {

class ImageQueue {
public:
    ImageQueue(const ImageSettings& settings, int threads);  // threads: 0: one for each CPU
    ~ImageQueue();                                           // drops what was requested
    ImageQueue(const ImageQueue&) = delete;

    void push(std::vector<std::string> paths);
    // The bytes of each image, (channels, height, width), one after the other. Throws the error of
    // the first one that cannot be read, and Interrupted.
    std::vector<uint8_t> pop();

private:
    struct Batch {
        std::vector<std::string> paths, errors;
        std::vector<uint8_t> bytes;
        size_t started = 0, done = 0;  // images
    };
    void decode_images();  // a thread
    void end_threads();

    const ImageSettings settings_;
    std::mutex mutex_;
    std::condition_variable requested_, decoded_;
    std::deque<std::shared_ptr<Batch>> batches_;
    std::atomic<bool> closed_{false};
    std::vector<std::thread> threads_;
};

}  // namespace nn
