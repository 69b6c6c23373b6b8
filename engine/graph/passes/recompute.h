// Recomputation of activations: instead of keeping an activation until the backward pass, the tasks
// that made it run again just before the backward pass reads it. The results are the same to the
// bit. What a layer reads from others is kept, so that a layer runs again on its own.
#pragma once
#include <string>
#include <vector>

#include "engine/graph/passes/activations.h"

namespace nn {

// Activations of one module in all microbatches, which are recomputed or kept together.
struct RecomputeOption {
    std::string layer;
    std::vector<uint32_t> tiles;
    int64_t bytes = 0;   // that are not kept, less what has to be kept instead
    double seconds = 0;  // to compute them again, on one worker at nominal rates
    double value = 0;    // bytes times the seconds for which they are not kept, per second
};

class Recomputation {
public:
    // program: before microbatches are ordered.
    explicit Recomputation(Program& program);

    // The most valuable one first. Seconds and bytes of an option count if all earlier ones are
    // chosen too.
    const std::vector<RecomputeOption>& options() const { return options_; }
    // Recomputes the activations of the first `count` options in the program, or in a copy of it.
    void apply(Program& program, size_t count) const;

private:
    std::vector<char> chosen(size_t count) const;  // a flag for each tile

    const Activations activations_;
    std::vector<RecomputeOption> options_;
};

}  // namespace nn
