// The engine's state for GPU workers: a workspace in device memory that kernels share, the state of
// cuBLASLt and cuDNN, and memory in which running kernels report wrong data. Without CUDA these
// functions do nothing.
#pragma once
#include <string>

#include "engine/graph/task.h"
#include "kernels/kernel.h"

namespace nn {

void pin_host_memory();  // before StarPU starts; lets copies overlap with kernels
// The same for memory that the arena does not allocate. Returns false if CUDA refuses.
bool pin_on_host(void* memory, size_t bytes);
void unpin_on_host(void* memory);

// Called by start() and shutdown(), while StarPU runs. start_gpus throws if a GPU fails.
void start_gpus();
void stop_gpus();

// A task on the calling GPU worker, which consists of one or more kernels on its stream. Begin with
// the task's first kernel and their number; false if too many tasks are in flight. start_on_gpu
// launches the next kernels, which are several only if alike (Kernel::many_on), and returns an
// error of the launch, or "". When all kernels have ended, finish(arg, message) gets the first
// report of wrong data and the kernel it is of, or "". After an error, do not call end_on_gpu().
using GpuTaskFinish = void (*)(const TaskArg& arg, const std::string& message);
bool begin_on_gpu(const TaskArg& first, int kernels, GpuTaskFinish finish);
std::string start_on_gpu(const TaskArg* const* args, int count, const Operands* operands);
void end_on_gpu();

// The kernels of a group as a CUDA graph, between begin_on_gpu() and end_on_gpu(). After `launched`
// none is left to start. After `recording`, start all of them and call end_graph_on_gpu(), which
// launches the graph; false: start them again, one by one.
enum class GraphUse { none, recording, launched };
GraphUse begin_graph_on_gpu(GpuGraph& graph, const TaskArg* const* args, int count,
                            const Operands* operands);
bool end_graph_on_gpu(GpuGraph& graph, const std::string& error_of_kernels);

// Device memory, or nullptr if none is left. gpu: CUDA's number; -1: that of the calling worker.
void* gpu_allocate(size_t bytes, int gpu = -1);
void gpu_free(void* memory);
int gpu_multiprocessors();  // of the calling worker's GPU
// The mean seconds of `repeats` calls after a warm-up, on a GPU worker before the first task.
double time_on_gpu(const Kernel& kernel, const KernelCall& call, int repeats);

// Relates the times of GPU events to the clock of now_us(). No task may be in flight.
void anchor_gpu_times();

// Copies between RAM and a GPU, by CUDA's number, and waits without occupying the core. Each
// calling thread has a stream of its own. Returns an error, or "". Any thread.
std::string copy_beside_kernels(int gpu, void* to, const void* from, size_t bytes);

void poison_on_gpu(void* data, size_t bytes);  // sets every bit, on the calling worker's stream

}  // namespace nn
