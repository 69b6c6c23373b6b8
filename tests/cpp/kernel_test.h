// For tests of kernels: tiles that are filled from and read as doubles, calls of a kernel by name
// for every target of this machine and every dtype, and comparison with a reference in double. A
// call first fills write-only operands with NaN; it checks that inputs and the memory around every
// tile are unchanged.
#pragma once
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "tests/cpp/cuda_device.h"

namespace nn::test {

using Values = std::vector<double>;

// The relative rounding error of one operation with a result of `dtype`; more for f64, where the
// reference rounds too.
inline double unit_roundoff(Dtype dtype) {
    return dtype == Dtype::f64    ? 4e-16
           : dtype == Dtype::f32  ? 6e-8
           : dtype == Dtype::bf16 ? 3.92e-3
                                  : 0;
}

inline uint16_t bf16_from(float value) {
    if (std::isnan(value)) return 0x7FC0;
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t tail = bits & 0xFFFF, head = bits >> 16;
    return uint16_t(head + (tail > 0x8000 || (tail == 0x8000 && (head & 1))));
}

// A contiguous buffer of one dtype with guard bytes on both sides.
class Tile {
public:
    Tile(Dtype dtype, const Values& values) : Tile(values.size(), dtype) {
        for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
    }
    static Tile poisoned(Dtype dtype, size_t size) {
        Tile tile(size, dtype);
        tile.poison();
        return tile;
    }
    void poison() { std::memset(data(), 0xFF, size_ * dtype_size(dtype_)); }  // NaN in float dtypes

    void* data() { return bytes_.data() + guard; }
    const void* data() const { return bytes_.data() + guard; }
    Dtype dtype() const { return dtype_; }
    size_t size() const { return size_; }

    void set(size_t i, double value) {
        switch (dtype_) {
            case Dtype::f32: return put(i, float(value));
            case Dtype::f64: return put(i, value);
            case Dtype::bf16: return put(i, bf16_from(float(value)));
            case Dtype::i32: return put(i, int32_t(value));
            case Dtype::i64: return put(i, int64_t(value));
            default: return put(i, uint8_t(value));
        }
    }
    double operator[](size_t i) const {
        switch (dtype_) {
            case Dtype::f32: return get<float>(i);
            case Dtype::f64: return get<double>(i);
            case Dtype::bf16: {
                const uint32_t bits = uint32_t(get<uint16_t>(i)) << 16;
                float value;
                std::memcpy(&value, &bits, 4);
                return value;
            }
            case Dtype::i32: return get<int32_t>(i);
            case Dtype::i64: return double(get<int64_t>(i));
            default: return get<uint8_t>(i);
        }
    }
    Values values() const {
        Values out(size_);
        for (size_t i = 0; i < size_; ++i) out[i] = (*this)[i];
        return out;
    }
    bool guards_intact() const {
        const auto is_guard = [](uint8_t byte) { return byte == 0xA5; };
        return std::all_of(bytes_.begin(), bytes_.begin() + guard, is_guard) &&
               std::all_of(bytes_.end() - guard, bytes_.end(), is_guard);
    }
    const std::vector<uint8_t>& bytes() const { return bytes_; }
    void set_bytes(const uint8_t* from) { std::copy(from, from + bytes_.size(), bytes_.begin()); }
    static constexpr size_t guard = 64 + 8;  // 8: so tiles are not aligned to vectors

private:
    Tile(size_t size, Dtype dtype)
        : dtype_(dtype), size_(size), bytes_(size * dtype_size(dtype) + 2 * guard, 0xA5) {}
    template <class T> void put(size_t i, T value) {
        std::memcpy(bytes_.data() + guard + i * sizeof(T), &value, sizeof(T));
    }
    template <class T> T get(size_t i) const {
        T value;
        std::memcpy(&value, bytes_.data() + guard + i * sizeof(T), sizeof(T));
        return value;
    }
    Dtype dtype_;
    size_t size_;
    std::vector<uint8_t> bytes_;
};

// A target and a dtype, and the device for targets of CUDA.
struct Variant {
    const Target* target;
    Dtype dtype;
    const CudaDevice* cuda = nullptr;
    size_t displaced = 0;  // elements by which tiles on the device miss an alignment of 256 bytes
    Dtype sum() const { return accumulator(dtype); }
    double eps() const { return unit_roundoff(dtype); }      // of outputs
    double sum_eps() const { return unit_roundoff(sum()); }  // of arithmetic and sums
    Tile tile(const Values& values) const { return Tile(dtype, values); }
    Tile sums(const Values& values) const { return Tile(sum(), values); }
    Tile output(size_t size) const { return Tile::poisoned(dtype, size); }
    Tile sum_output(size_t size) const { return Tile::poisoned(sum(), size); }
};

// The emulated device is slow and runs fewer cases.
inline bool slow(const Variant& v) { return v.cuda && v.cuda == emulated_device(); }

// Calls f(variant) for every CPU target of this machine, every CUDA device and every float dtype.
// NNLUA_TEST_DEVICES=gpu or emulated selects one device.
template <class F>
void each_variant(F f,
                  std::initializer_list<Dtype> dtypes = {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    std::vector<Variant> variants;
    const char* set = std::getenv("NNLUA_TEST_DEVICES");
    const std::string only = set ? set : "";
    if (only.empty())
        for (const Target* target : usable_targets(Device::cpu))
            variants.push_back({target, Dtype::f32});
    for (const CudaDevice* device : cuda_devices())
        if (only.empty() || (only == "emulated") == (device == emulated_device()))
            variants.push_back({device->target, Dtype::f32, device});
    if (variants.empty()) FAIL("no device for NNLUA_TEST_DEVICES=" << only);
    for (Variant variant : variants)
        for (Dtype dtype : dtypes) {
            variant.dtype = dtype;
            INFO(variant.target->name << ", " << dtype_name(dtype));
            f(variant);
        }
}

// Calls a CUDA kernel. Its fault becomes a message, as in the engine.
inline std::string call_on_device(const Variant& variant, KernelFn fn, void* const* operands,
                                  const void* params) {
    const CudaDevice& device = *variant.cuda;
    device.fill(device.gpu.workspace, 0xFF, device.gpu.workspace_bytes);
    *device.fault = {};
    std::string error;
    fn({operands, params, variant.dtype, nullptr, &error, &device.gpu, device.fault});
    const std::string late = device.finish();
    if (error.empty()) error = late;
    if (!error.empty() || !device.fault->failed) return error;
    char text[256];
    std::snprintf(text, sizeof text, device.fault->format, (long long)device.fault->value);
    return text;
}

// Copies of a call's tiles in the memory of a device, `displaced` elements after an address aligned
// to 256 bytes. A tile given twice has one copy.
class Mirror {
public:
    Mirror(const CudaDevice& device, const std::vector<Tile*>& tiles, size_t displaced)
        : device_(device), tiles_(tiles) {
        for (Tile* tile : tiles) {
            const size_t first =
                size_t(std::find(tiles.begin(), tiles.end(), tile) - tiles.begin());
            if (!tile || first < data_.size()) {
                data_.push_back(tile ? data_[first] : nullptr);
                continue;
            }
            memory_.push_back(device.allocate(tile->bytes().size() + 256));
            data_.push_back(static_cast<char*>(memory_.back()) + 256 +
                            displaced * dtype_size(tile->dtype()));
            device.copy(with_guards(data_.back()), tile->bytes().data(), tile->bytes().size());
        }
    }
    ~Mirror() {
        for (void* memory : memory_) device_.release(memory);
    }
    Mirror(const Mirror&) = delete;
    void* const* operands() const { return data_.data(); }
    void copy_back() const {
        for (size_t i = 0; i < tiles_.size(); ++i) {
            if (!tiles_[i]) continue;
            std::vector<uint8_t> bytes(tiles_[i]->bytes().size());
            device_.copy(bytes.data(), with_guards(data_[i]), bytes.size());
            tiles_[i]->set_bytes(bytes.data());
        }
    }

private:
    static char* with_guards(void* data) { return static_cast<char*>(data) - Tile::guard; }
    const CudaDevice& device_;
    std::vector<Tile*> tiles_;
    std::vector<void*> memory_, data_;
};

// Runs a kernel and returns its error message, or "". Operands are in the order of the declaration,
// nullptr if absent; a tile given twice is an operation in place.
template <class P>
std::string run(const Variant& variant, const std::string& name, const P& params,
                std::vector<Tile*> operands) {
    const Kernel* kernel = find_kernel(name);
    if (!kernel) FAIL("unknown kernel " << name);
    if (sizeof(P) != kernel->params_size || operands.size() != kernel->operands.size())
        FAIL(name << " is called with the wrong parameters or number of operands");
    const KernelFn fn = kernel->on(*variant.target);
    if (!fn) FAIL(name << " has no implementation for " << variant.target->name);

    std::vector<void*> pointers;
    std::vector<std::vector<uint8_t>> before;
    for (size_t i = 0; i < operands.size(); ++i) {
        if (!operands[i] && !kernel->operands[i].optional)
            FAIL(name << " needs " << kernel->operands[i].name);
        const bool shared = std::count(operands.begin(), operands.end(), operands[i]) > 1;
        if (operands[i] && kernel->operands[i].mode == Mode::write && !shared)
            operands[i]->poison();
        pointers.push_back(operands[i] ? operands[i]->data() : nullptr);
        before.push_back(operands[i] && !shared ? operands[i]->bytes() : std::vector<uint8_t>());
    }
    std::string error;
    if (variant.cuda) {
        const Mirror mirror(*variant.cuda, operands, variant.displaced);
        error = call_on_device(variant, fn, mirror.operands(), &params);
        mirror.copy_back();
    } else {
        fn({pointers.data(), &params, variant.dtype, nullptr, &error});
    }
    for (size_t i = 0; i < operands.size(); ++i) {
        INFO(name << ", operand " << kernel->operands[i].name);
        if (operands[i]) CHECK(operands[i]->guards_intact());
        if (kernel->operands[i].mode == Mode::read && !before[i].empty())
            CHECK(before[i] == operands[i]->bytes());
    }
    return error;
}

// |got - want| <= tolerance (scale + |want|), infinities equal, NaN where NaN is wanted.
inline void check_close(const std::string& what, const Values& got, const Values& want,
                        double tolerance, double scale = 1) {
    INFO(what << ", tolerance " << tolerance);
    REQUIRE(got.size() == want.size());
    size_t worst = 0;
    double worst_error = -1;
    for (size_t i = 0; i < got.size(); ++i) {
        const bool same = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]));
        const double error = same ? 0 : std::fabs(got[i] - want[i]) / (scale + std::fabs(want[i]));
        if (error > worst_error || std::isnan(error)) worst = i, worst_error = error;
        if (std::isnan(error)) break;
    }
    if (got.empty()) return;
    INFO("error " << worst_error << " at element " << worst << ": got " << got[worst] << ", want "
                  << want[worst]);
    CHECK(worst_error <= tolerance);
}
inline void check_close(const std::string& what, const Tile& got, const Values& want,
                        double tolerance, double scale = 1) {
    check_close(what, got.values(), want, tolerance, scale);
}

// Random numbers, the same on every machine.
class Random {
public:
    explicit Random(uint64_t seed) : engine_(seed) {}
    double uniform(double low, double high) {
        return low + (high - low) * double(engine_() >> 11) * 0x1p-53;
    }
    int64_t integer(int64_t low, int64_t high) {
        return low + int64_t(engine_() % uint64_t(high - low + 1));
    }
    Values values(size_t n, double low = -1, double high = 1) {
        Values out(n);
        for (double& value : out) value = uniform(low, high);
        return out;
    }
    Values integers(size_t n, int64_t low, int64_t high) {
        Values out(n);
        for (double& value : out) value = double(integer(low, high));
        return out;
    }

private:
    std::mt19937_64 engine_;
};

// d f / d x[i] by central differences; f is called with x changed in place.
template <class F> Values finite_difference(Values& x, F f, double step = 1e-5) {
    Values gradient(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
        const double kept = x[i];
        x[i] = kept + step;
        const double above = f();
        x[i] = kept - step;
        gradient[i] = (above - f()) / (2 * step);
        x[i] = kept;
    }
    return gradient;
}

inline double dot(const Values& a, const Values& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

}  // namespace nn::test
