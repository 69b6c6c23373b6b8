// NVIDIA's cuBLASLt, if it is installed. Descriptors need no GPU, so the emulation also makes each
// with NVIDIA's library, which rejects wrong attributes, sizes and enumerators.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace nn::emulated {

class LtTwin {
public:
    // Without cuBLASLt all are empty and accept everything.
    static LtTwin product(int compute, int scale);
    static LtTwin layout(int type, uint64_t rows, uint64_t cols, int64_t ld);
    static LtTwin preference();
    bool set(int attribute, const void* value, size_t bytes) const;
    bool rejected() const { return rejected_; }  // by its creation
    static bool installed();

private:
    using Set = int (*)(void*, int, const void*, size_t);
    std::shared_ptr<void> made_;
    Set set_ = nullptr;
    bool rejected_ = false;
    template <class... Types, class... Values>
    static LtTwin make(const char* kind, Values... values);
};

extern int used_algorithm;  // by the last product of the emulation

}  // namespace nn::emulated
