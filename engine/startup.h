// What is settled before StarPU starts: workers, scheduler, memory of the GPUs, environment.
#pragma once
#include <string>

#include "engine/runtime.h"

namespace nn {

int usable_cores();  // that this process may run on
int usable_gpus();   // that this build can use; 0 without a driver
int gpus_for(const RuntimeOptions& options);
void check_scheduler(const std::string& name);  // throws where there is none of that name
void check_devices(const RuntimeOptions& options);
std::string scheduler_for(const RuntimeOptions& options);
// StarPU's own settings keep precedence where the user made them.
void prepare_environment(const RuntimeOptions& options);

}  // namespace nn
