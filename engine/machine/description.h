// The machine for which programs are made. Tilings, passes and plans use only this description and
// never the actual process, so different machines record the same program, and plans can be made
// for other machines.
#pragma once
#include "engine/machine/machine.h"

namespace nn {

// The described machine; by default the host (machine/host.h).
const Machine& machine();
// "cpus=64 ram=512GB gpus=8 gpu_memory=80GB ...", see machine_settings in description.cc, or the
// name of a file of settings. "" returns to the host. Throws on an invalid setting.
void describe_machine(const std::string& text);
bool machine_is_described();

}  // namespace nn
