// The base of the random calls in capi_fuzz_test.cc: random arguments, the handles that calls
// returned, and, in capi_fuzz_inspection.cc, the calls that compute nothing: descriptions,
// profiles, plans, memory nodes, and files that are written in the background.
#pragma once
#include <climits>
#include <cmath>
#include <cstdlib>

#include "tests/cpp/capi_test.h"

namespace nn::capi_test {

class FuzzArguments {
public:
    int refused = 0, accepted = 0;

protected:
    static constexpr int64_t budget = 4 << 20;  // bytes of tensors

    explicit FuzzArguments(uint64_t seed) : random(seed) {}
    FuzzArguments(const FuzzArguments&) = delete;

    void judge(int status) {
        (status == NN_OK ? accepted : refused) += 1;
        if (status == NN_OK) return;
        REQUIRE((status == NN_ERROR || status == NN_OUT_OF_MEMORY || status == NN_INTERRUPTED));
        REQUIRE(std::strlen(nn_error()) > 0);
    }

    // --- random arguments ---
    bool one_in(int n) { return random.integer(1, n) == 1; }
    int64_t small() { return random.integer(-1, 5); }
    int64_t any() {
        static const int64_t odd[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX,
                                      1LL << 58, -1,        100};
        return one_in(12) ? odd[random.integer(0, 6)] : small();
    }
    int32_t any32() { return int32_t(any()); }
    double real() {
        static const double odd[] = {NAN, INFINITY, -1e300, 0.5, 1e18, -0.25};
        return one_in(8) ? odd[random.integer(0, 5)] : double(any());
    }
    template <class P> P* perhaps(P* pointer) { return one_in(40) ? nullptr : pointer; }

    nn_ref tensor() {
        if (refs.empty() || one_in(30)) return {any32(), any32()};
        nn_ref ref = refs[size_t(random.integer(0, int64_t(refs.size()) - 1))];
        if (one_in(60)) ref.generation += any32() % 100;
        return ref;
    }
    nn_ref program() {
        if (programs.empty() || one_in(20)) return tensor();
        return programs[size_t(random.integer(0, int64_t(programs.size()) - 1))];
    }
    std::vector<nn_ref> tensors(int64_t count) {
        std::vector<nn_ref> out;
        for (int64_t i = 0; i < count; ++i) out.push_back(one_in(10) ? nn_ref{0, 0} : tensor());
        return out;
    }
    void keep(nn_ref ref) {
        if (refs.size() < 40) return refs.push_back(ref);
        nn_ref& old = refs[size_t(random.integer(0, 39))];
        nn_release(&old);
        old = ref;
    }

    test::Random random;
    std::vector<nn_ref> refs, programs, files;
    std::vector<uint8_t> host = std::vector<uint8_t>(size_t(budget));
};

class FuzzInspection : public FuzzArguments {
protected:
    explicit FuzzInspection(uint64_t seed);
    ~FuzzInspection();

    int descriptions();
    int profile();
    int plans();
    int places();
    int layers();
    int open_file();
    int write_file();
    int sums();

private:
    const std::string path;  // of all files: each replaces the last
};

}  // namespace nn::capi_test
