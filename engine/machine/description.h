// The machine that programs are made for. Tilings, passes and plans ask this description and never
// the process they run in, so that unequal machines record the same program, and a plan can be made
// for a machine that is not there.
#pragma once
#include "engine/machine/machine.h"

namespace nn {

// The described machine, else the host (machine/host.h).
const Machine& machine();
// "cpus=64 ram=512GB gpus=8 gpu_memory=80GB ...": see machine_settings in description.cc. The text
// may also name a file of such settings. Empty: the host again. Throws where a setting is wrong.
void describe_machine(const std::string& text);
bool machine_is_described();

}  // namespace nn
