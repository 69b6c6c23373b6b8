// StarPU's workers while it runs: how many there are, and what they are called. A GPU has a worker
// for each of its streams.
#pragma once
#include <string>
#include <vector>

namespace nn {

bool running();                       // whether StarPU runs
void set_running(bool running);       // by runtime/session.cc alone
int running_cpu_workers();            // 0 where StarPU does not run
std::vector<int> first_streams();     // a worker of each GPU
int gpu_of(int worker);               // CUDA's number of its GPU; -1: a CPU worker
std::string worker_name(int worker);  // "CPU 0", "GPU 0", of several streams "GPU 0, stream 2"
std::string starpu_version();

}  // namespace nn
