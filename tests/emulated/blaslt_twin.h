// cuBLASLt itself, where it is installed: a descriptor needs no GPU, so each that the stand-in
// makes is made by NVIDIA's library too, which refuses wrong attributes, sizes and enumerators.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace nn::emulated {

class LtTwin {
public:
    // All empty, and taking everything, where there is no cuBLASLt.
    static LtTwin product(int compute, int scale);
    static LtTwin layout(int type, uint64_t rows, uint64_t cols, int64_t ld);
    static LtTwin preference();
    bool set(int attribute, const void* value, size_t bytes) const;
    bool refused() const { return refused_; }  // when it was made
    static bool installed();

private:
    using Set = int (*)(void*, int, const void*, size_t);
    std::shared_ptr<void> made_;
    Set set_ = nullptr;
    bool refused_ = false;
    template <class... Types, class... Values>
    static LtTwin make(const char* kind, Values... values);
};

}  // namespace nn::emulated
