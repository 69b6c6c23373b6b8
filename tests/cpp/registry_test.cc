// Declarations and implementations of kernels: mistakes, the choice of an implementation, queries.
#include "kernels/registry.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/params/fill.h"
#include "kernels/params/gemm.h"

using namespace nn;

namespace {

void first(const KernelCall&) {}
void second(const KernelCall&) {}

const Declaration sample{"sample", Bound::memory, "y:w x:r z:rw?", "nn_fill_params", 16};

std::string mistake(const std::vector<Declaration>& declarations,
                    const std::vector<NamedImplementation>& implementations) {
    try {
        link_kernels(declarations, implementations);
        return "";
    } catch (const std::logic_error& e) {
        return e.what();
    }
}

}  // namespace

TEST_CASE("a mistake in a declaration or implementation is reported with the kernel") {
    const NamedImplementation good{"sample", "baseline", first};
    CHECK(mistake({sample}, {good}) == "");
    CHECK(mistake({sample, sample}, {good}) == "kernel sample is declared twice");
    CHECK(mistake({sample}, {good, {"sampel", "cuda", first}}) ==
          "kernel sampel is implemented for cuda, but kernels/kernels.inc does not declare it");
    CHECK(mistake({sample}, {good, {"sample", "avx3", first}}) ==
          "kernel sample is implemented for avx3, but kernels/targets.cc has no such target");
    CHECK(mistake({sample}, {good, good}) == "kernel sample is implemented for baseline twice");
    CHECK(mistake({sample}, {{"sample", "cuda", first}}) ==
          "kernel sample has no implementation for this CPU");
}

TEST_CASE("a kernel runs the implementation for the last usable target") {
    const std::vector<const Target*> targets = usable_targets(Device::cpu);
    CHECK(targets.front()->name == std::string("baseline"));
    CHECK(targets.back() == &cpu_target());
    const auto kernels =
        link_kernels({sample}, {{"sample", cpu_target().name, second}, {"sample", "cuda", first}});
    const Kernel& kernel = kernels.at("sample");
    CHECK(kernel.on(Device::cpu) == second);
    CHECK(kernel.on(Device::cuda) == first);
    CHECK(kernel.on(*find_target("cuda")) == first);
    CHECK(find_target("emulator") == nullptr);
    CHECK(kernel.operands[2].name == "z");
    CHECK((kernel.operands[2].optional && kernel.operands[2].mode == Mode::read_write));
}

TEST_CASE("a kernel reports what bounds it and whether TF32 is allowed") {
    nn_gemm_params p{};
    const Kernel &gemm = *find_kernel("gemm"), &add = *find_kernel("add");
    CHECK(gemm.bound == Bound::products);
    CHECK(add.bound == Bound::memory);
    CHECK_FALSE(gemm.allows_tf32(&p));
    p.tf32 = 1;
    CHECK(gemm.allows_tf32(&p));
    CHECK_FALSE(add.allows_tf32(&p));
}
