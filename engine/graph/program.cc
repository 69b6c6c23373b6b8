#include "engine/graph/program.h"

#include "engine/graph/scalars.h"

namespace nn {

Program::~Program() {
    for (int32_t scalar : held_scalars_) release_scalar(scalar);
}

void Program::hold(int32_t scalar) {
    hold_scalar(scalar);
    held_scalars_.push_back(scalar);
}

const Accesses& Program::accesses() {
    if (!accesses_) accesses_ = std::make_unique<Accesses>(accesses_of(tasks));
    return *accesses_;
}

}  // namespace nn
