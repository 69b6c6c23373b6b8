#include "kernels/blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <tuple>

#include "kernels/kernel.h"

#ifdef __SANITIZE_THREAD__
extern "C" void __tsan_read_range(void* address, long bytes);
extern "C" void __tsan_write_range(void* address, long bytes);
#endif

namespace nn::blas {
namespace {

constexpr int row_major = 101, no_transpose = 111, transpose = 112;  // CBLAS's enums

template <class T>
using GemmFn = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, T alpha,
                        const T* a, int lda, const T* b, int ldb, T beta, T* c, int ldc);

struct Library {
    std::tuple<GemmFn<float>, GemmFn<double>> gemm;
    std::string description;
};

// Sets an environment variable while the library loads, unless the user has set it.
class TemporaryEnv {
public:
    TemporaryEnv(const char* name, const char* value)
        : name_(value && !std::getenv(name) ? name : nullptr) {
        if (name_) setenv(name, value, 1);
    }
    ~TemporaryEnv() {
        if (name_) unsetenv(name_);
    }
    TemporaryEnv(const TemporaryEnv&) = delete;
    TemporaryEnv& operator=(const TemporaryEnv&) = delete;

private:
    const char* name_;
};

void* open_shared_object() {
    std::string tried;
    for (const char* file : {"libopenblas.so.0", "libopenblas.so"}) {
        if (void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return handle;
        tried += std::string(tried.empty() ? "" : "; ") + dlerror();
    }
    throw std::runtime_error("OpenBLAS cannot be loaded (" + tried +
                             "); install it, on Debian: apt install libopenblas0-pthread");
}

// "OpenBLAS 0.3.21 (SkylakeX)", from "OpenBLAS 0.3.21 NO_LAPACKE ..." and the name of the core.
std::string describe(void* handle) {
    using TextFn = const char* (*)();
    const auto config = reinterpret_cast<TextFn>(dlsym(handle, "openblas_get_config"));
    const auto core = reinterpret_cast<TextFn>(dlsym(handle, "openblas_get_corename"));
    std::string version = config ? config() : "OpenBLAS";
    const size_t second_space = version.find(' ', version.find(' ') + 1);
    if (second_space != std::string::npos) version.resize(second_space);
    return version + " (" + (core ? core() : "unknown core") + ")";
}

Library open_library() {
    const bool chosen_by_user = std::getenv("OPENBLAS_CORETYPE");
    const TemporaryEnv core("OPENBLAS_CORETYPE", cpu_target().openblas);
    const TemporaryEnv threads("OPENBLAS_NUM_THREADS", "1");
    void* handle = open_shared_object();
    // StarPU's workers are the threads. The variable has no effect if the library was loaded
    // before.
    if (const auto set = reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads")))
        set(1);
    const auto sgemm = reinterpret_cast<GemmFn<float>>(dlsym(handle, "cblas_sgemm"));
    const auto dgemm = reinterpret_cast<GemmFn<double>>(dlsym(handle, "cblas_dgemm"));
    if (!sgemm || !dgemm)
        throw std::runtime_error("the OpenBLAS found has no cblas_sgemm or no cblas_dgemm");
    return {{sgemm, dgemm}, describe(handle) + (chosen_by_user ? " set by OPENBLAS_CORETYPE" : "")};
}

// Opened once, by the first thread; after a failure the next call tries again.
const Library& library() {
    static const Library opened = open_library();
    return opened;
}

// OpenBLAS is not instrumented, so this reports to ThreadSanitizer what a product reads and writes.
#ifdef __SANITIZE_THREAD__
template <class T>
void announce(void (*access)(void*, long), const T* matrix, int64_t rows, int64_t cols,
              int64_t row_stride) {
    for (int64_t i = 0; i < rows; ++i)
        access(const_cast<T*>(matrix + i * row_stride), long(size_t(cols) * sizeof(T)));
}
template <class T>
void announce_product(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a,
                      int64_t lda, const T* b, int64_t ldb, const T* c, int64_t ldc) {
    announce(__tsan_read_range, a, trans_a ? k : m, trans_a ? m : k, lda);
    announce(__tsan_read_range, b, trans_b ? n : k, trans_b ? k : n, ldb);
    announce(__tsan_write_range, c, m, n, ldc);
}
#else
template <class... Arguments> void announce_product(Arguments...) {}
#endif

}  // namespace

template <class T>
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a,
          int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
    if (m == 0 || n == 0) return;
    announce_product(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc);
    std::get<GemmFn<T>>(library().gemm)(row_major, trans_a ? transpose : no_transpose,
                                        trans_b ? transpose : no_transpose, int(m), int(n), int(k),
                                        alpha, a, int(lda), b, int(ldb), beta, c, int(ldc));
}
template void gemm(bool, bool, int64_t, int64_t, int64_t, float, const float*, int64_t,
                   const float*, int64_t, float, float*, int64_t);
template void gemm(bool, bool, int64_t, int64_t, int64_t, double, const double*, int64_t,
                   const double*, int64_t, double, double*, int64_t);

std::string description() { return library().description; }
void load() { library(); }

}  // namespace nn::blas
