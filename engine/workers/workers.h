// StarPU's workers and memory nodes while it runs. A GPU has a worker for each of its streams.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/machine/machine.h"

namespace nn {

bool running();                       // whether StarPU runs
void set_running(bool running);       // by runtime/session.cc alone
int running_cpu_workers();            // 0 if StarPU does not run
bool has_gpu_workers();               // false if StarPU does not run
std::vector<int> first_streams();     // the first worker of each GPU
int worker_on(int gpu, int lane);     // of the GPU at this position; lanes take its streams in turn
int gpu_of(int worker);               // CUDA's number of its GPU; -1: a CPU worker
std::string worker_name(int worker);  // "CPU 0", "GPU 0", of several streams "GPU 0, stream 2"
std::string starpu_version();

// The GPU of a session with one.
struct GpuDevice {
    int device;  // CUDA's number
    int node;    // of its memory
    int streams;
    double link_rate;  // bytes per second to and from RAM, in the slower direction
};
GpuDevice only_gpu();

// Memory nodes: RAM first, then the GPUs'.
int memory_nodes();               // 1 until the session runs
std::string node_name(int node);  // "RAM", "GPU 0"
struct NodeMemory {
    int64_t used, limit;  // bytes; memory kept for reuse counts as used
};
NodeMemory node_memory(int node);
// Bytes of the smallest GPU's memory for tiles; 0 without GPUs. All GPUs may hold the same tiles.
int64_t memory_of_gpus(const Machine& machine);
// Those that count in no budget, if GPUs run the tasks.
int64_t tile_bytes_on_gpus(const Machine& machine);
int64_t bytes_moved();  // between nodes, so far

}  // namespace nn
