#include "kernels/products/onednn.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

namespace nn::onednn {
namespace {

// The part of oneDNN's C interface that is used here. The bf16 product is exported, but no header
// declares it; PyTorch calls it too.
enum { success = 0, out_of_memory = 1 };  // dnnl_status_t
enum : unsigned { runtime_sequential = 1, runtime_openmp = 2 };
struct Version {
    int major, minor, patch;
    const char* hash;
    unsigned cpu_runtime, gpu_runtime;
};
template <class T>
using GemmFn = int (*)(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                       const T* a, int64_t lda, const T* b, int64_t ldb, float beta, float* c,
                       int64_t ldc);

struct Library {
    std::string problem, version;
    void* handle = nullptr;
    int major = 0;
    GemmFn<float> sgemm = nullptr;
    GemmFn<uint16_t> bf16_gemm = nullptr;
    void (*set_threads)(int) = nullptr;  // OpenMP's, for the calling thread; absent if sequential
};

void* open_shared_object(std::string* tried) {
    for (const char* file : {"libdnnl.so.2", "libdnnl.so.3"}) {
        if (void* handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL)) return handle;
        *tried = dlerror();
    }
    return nullptr;
}

Library open_library() {
    Library out;
#ifdef __SANITIZE_THREAD__
    out.problem = "ThreadSanitizer cannot see its accesses";
    return out;
#endif
    std::string error;
    void* const handle = open_shared_object(&error);
    if (!handle) {
        out.problem = "it cannot be loaded (" + error + "); on Debian: apt install libdnnl2";
        return out;
    }
    out.handle = handle;
    const auto version = reinterpret_cast<const Version* (*)()>(dlsym(handle, "dnnl_version"));
    out.sgemm = reinterpret_cast<GemmFn<float>>(dlsym(handle, "dnnl_sgemm"));
    out.bf16_gemm = reinterpret_cast<GemmFn<uint16_t>>(dlsym(handle, "dnnl_gemm_bf16bf16f32"));
    out.set_threads = reinterpret_cast<void (*)(int)>(dlsym(handle, "omp_set_num_threads"));
    if (!version || !out.sgemm || !out.bf16_gemm) {
        out.problem = "the library found has no dnnl_sgemm or no dnnl_gemm_bf16bf16f32";
        return out;
    }
    const Version& v = *version();
    out.major = v.major;
    const bool sequential = v.cpu_runtime == runtime_sequential;
    if (!sequential && !(v.cpu_runtime == runtime_openmp && out.set_threads))
        out.problem = "its threads cannot be limited to one per worker; builds with OpenMP can";
    if (sequential) out.set_threads = nullptr;
    out.version = "oneDNN " + std::to_string(v.major) + "." + std::to_string(v.minor) + "." +
                  std::to_string(v.patch);
    return out;
}

const Library& library() {
    static const Library opened = open_library();
    return opened;
}

}  // namespace

// oneDNN would compute with a team of OpenMP threads. OpenMP keeps their number per calling thread.
void compute_alone() {
    static thread_local bool done = false;
    if (!done && library().set_threads) library().set_threads(1);
    done = true;
}

namespace {

template <class T>
void call(GemmFn<T> gemm, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
          const T* a, int64_t lda, const T* b, int64_t ldb, float beta, float* c, int64_t ldc) {
    compute_alone();
    const int status = gemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b,
                            ldb, beta, c, ldc);
    if (status == out_of_memory) throw std::bad_alloc();
    if (status != success)
        throw std::runtime_error("a matrix product of oneDNN failed with status " +
                                 std::to_string(status) + "; NNLUA_PRODUCTS=openblas avoids it");
}

}  // namespace

std::string why_unusable() { return library().problem; }
void* find(const char* name) { return library().handle ? dlsym(library().handle, name) : nullptr; }
int major_version() { return library().major; }
std::string version() { return library().version; }

void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
    call(library().sgemm, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

float* scratch(int64_t count) {
    static thread_local std::unique_ptr<float, decltype(&std::free)> memory(nullptr, std::free);
    static thread_local int64_t size = 0;
    if (count > size) {
        const size_t bytes = (size_t(count) * sizeof(float) + 63) / 64 * 64;
        memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
        size = memory ? count : 0;
        if (!memory) throw std::bad_alloc();
    }
    return memory.get();
}

void multiply(const products::Operands& o, const products::Epilogue& epilogue) {
    multiply_by_blocks(
        o, epilogue, [&](const products::Block& block, const uint16_t* a, const uint16_t* b) {
            call(library().bf16_gemm, o.trans_a, o.trans_b, block.rows, block.cols, o.k, 1.0f, a,
                 o.lda, b, o.ldb, epilogue.start ? 1.0f : 0.0f, block.c, block.ld);
        });
}

}  // namespace nn::onednn
