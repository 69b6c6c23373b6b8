// Pretended GPUs: devices with limited memory, streams that are threads, and links with a rate. The
// functions of libcudart (cudart.cc) and of kernels (kernels.cc) are made of these. The environment
// variable EMULATED_CUDA describes the devices, such as "gpus=2 memory=512 fail=cudaMalloc:3":
//   gpus=N          devices, by default 1
//   memory=MB       of each device, by default 2048; untouched memory costs nothing
//   rate=MB/S       of each direction of each link; by default copies are not slowed down
//   peers=0         devices cannot access each other's memory
//   delays=SEED     everything on a stream starts after a random delay of up to 2 ms
//   fail=NAME:N     the N-th call of a function fails; kernel:N: the N-th kernel fails on its
//   device fail=NAME:N:C   likewise, with the error code C instead of 719 (launch failure)
//   measured=US     microseconds of a kernel outside tasks, which is not computed; by default 500
//   instant=1       kernels compute nothing and streams do not queue, so only the time of the
//                   program itself remains. Results are undefined
//   driver=N        the version of CUDA that the driver supports, such as 12040 for 12.4; 0: no
//                   driver; by default that of the run time
//   report=FILE     at the end, one line "name count" per function, device and link
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace emulated {

struct Settings {
    int gpus = 1;
    size_t memory = size_t(2048) << 20;
    double bytes_per_second = 0;  // 0: unlimited
    bool peers = true;
    unsigned delays = 0;  // a seed; 0: none
    std::string failing;  // a function, or "kernel"
    long failing_call = 0;
    cudaError_t failure = cudaErrorLaunchFailure;
    double measured_us = 500;
    bool instant = false;
    int driver = CUDART_VERSION;
    std::string report;
};
const Settings& settings();

constexpr int most_gpus = 16, host = -1;

// --- calls ---

// One function of the library: counts its calls and decides which of them fail.
class Function {
public:
    explicit Function(const char* name);
    cudaError_t call();  // cudaSuccess, or the error that this call returns

private:
    const char* const name_;
    std::atomic<long> calls_{0};
    friend void write_report();
};
cudaError_t failed(cudaError_t error);  // remembers it for cudaGetLastError
cudaError_t take_last_error();

// --- devices ---

int& current_device();  // of the calling thread
// The error of a failed kernel, which every later call on the device returns too.
cudaError_t error_of(int device);
void set_error(int device, cudaError_t error);
void count_kernel(int device);
bool kernel_fails();  // whether the next kernel is the one that fails

// Starts a kernel; `name` is for comparisons of graphs (cudart.cc).
cudaError_t start_kernel(cudaStream_t stream, const char* name, std::function<void()> kernel);

// --- memory ---

void* allocate(int device, size_t bytes);  // nullptr beyond the limit
bool release(void* memory);                // false if it is not the start of a block
size_t memory_used(int device);
// The device of a block that contains all these bytes, or `host`; -2 if they are not within one
// block.
int device_of(const void* memory, size_t bytes);
bool pin(void* memory, size_t bytes);  // false if it is pinned already
bool unpin(void* memory);
bool is_pinned(const void* memory, size_t bytes);
void copy(void* to, const void* from, size_t bytes);  // at the rate of the link

// --- streams and events ---

// What a stream recorded between cudaStreamBeginCapture and cudaStreamEndCapture.
struct Node {
    std::string name;
    std::function<void()> work;
};
using Nodes = std::vector<Node>;

class Stream {
public:
    explicit Stream(int device);
    ~Stream();  // waits for the queue
    void put(std::function<void()> work);
    void wait();
    const int device;
    std::unique_ptr<Nodes> recording;  // only the recording thread uses it

private:
    void run();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> queue_;
    bool busy_ = false, stop_ = false;
    uint64_t random_;
    std::thread thread_;  // last: it uses the others
};
Stream& stream_of(cudaStream_t stream);  // the device's own for nullptr
cudaStream_t new_stream();
void delete_stream(cudaStream_t stream);
void wait_for_device(int device);

using Clock = std::chrono::steady_clock;
struct Event {
    std::atomic<int> pending{0};
    std::atomic<bool> recorded{false};
    std::mutex mutex;
    std::condition_variable changed;
    Clock::time_point time;  // of the last record
};

}  // namespace emulated
