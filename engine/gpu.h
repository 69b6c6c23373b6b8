// What the engine keeps for GPU workers: device memory that kernels share, cuBLASLt's state, and
// for each task under way a place where the kernel may say that its data are wrong. Without CUDA,
// or without a GPU, there are none.
#pragma once
#include <string>

#include "engine/task.h"

namespace nn {

void pin_host_memory();  // from now on, for copies that overlap with work; before StarPU starts

// Called by start() and shutdown(), while StarPU runs. start_gpus throws where a GPU fails.
void start_gpus();
void stop_gpus();

// Runs a task's kernel on the calling GPU worker, whose stream it is put on; returns what fails at
// once, or "". Whatever the kernel finds wrong with its data is reported when the task is over, by
// finish(arg, message), with "" when nothing was.
using GpuTaskFinish = void (*)(const TaskArg& arg, const std::string& message);
std::string run_on_gpu(const TaskArg& arg, void* const* operands, GpuTaskFinish finish);

// On a GPU worker: device memory (nullptr where there is none left), and the seconds of one of
// `repeats` calls, after one that is not counted. For measuring, before there are tasks.
void* gpu_allocate(size_t bytes);
void gpu_free(void* memory);
double time_on_gpu(const Kernel& kernel, const KernelCall& call, int repeats);

// Events of the GPUs are timed from now on as microseconds of profile_now(). No task may be in
// flight.
void anchor_gpu_times();

void poison_on_gpu(void* data, size_t bytes);  // sets every bit, on the calling worker's stream

}  // namespace nn
