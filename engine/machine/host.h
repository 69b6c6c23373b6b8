// The machine this process runs on, as far as the process may use it.
#pragma once
#include "engine/machine/machine.h"

namespace nn {

int usable_cores();  // hardware threads that share a core count once
int usable_gpus();   // that this build can use; 0 without a driver

// What the user chose of the host. cpus 0: as many as NNLUA_CPUS says, else one for each core, of
// which every GPU takes one to be fed; gpus -1: all; gpu_memory 0: not limited.
struct HostChoice {
    int cpus = 0, gpus = -1;
    int64_t gpu_memory = 0;
};
void choose_host(const HostChoice& choice);
const Machine& host();
// Whether NNLUA_CPUS asks for more workers than there are cores.
bool host_is_oversubscribed();

}  // namespace nn
