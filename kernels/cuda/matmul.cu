// The algorithm for a product is the fastest of those that cuBLASLt proposes, by a measurement at
// the first call. The choice is kept in the user's cache: later runs get the same bits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul.h"
#include "kernels/kept_choices.h"
#include "kernels/params/gemm.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t max_workspace = int64_t(32) << 20;  // NVIDIA's advice for Hopper
constexpr int most_algorithms = 8;

bool check_blas(const KernelCall& call, cublasStatus_t status, const char* what) {
    if (take_failure()) status = CUBLAS_STATUS_EXECUTION_FAILED;
    return status == CUBLAS_STATUS_SUCCESS || failed(call, what, blaslt().status_string(status));
}

// Everything the choice of an algorithm depends on. Compared as bytes, so its padding is zeros.
struct Key {
    nn_gemm_params p;
    int64_t dtype, with_bias, with_aux, align_a, align_b, align_c;
    bool operator<(const Key& other) const { return std::memcmp(this, &other, sizeof *this) < 0; }
};

// The descriptors of the products of one key, and cuBLASLt's algorithms for them, that in use
// first; none: cuBLASLt does not support such products.
struct Matmul {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algorithms[most_algorithms] = {};
    int count = 0, used = 0;  // how many, and the number of that in use
    bool fused = false;       // with the epilogue
    Matmul() = default;
    Matmul(const Matmul&) = delete;
    ~Matmul() {
        if (desc) blaslt().desc_destroy(desc);
        for (cublasLtMatrixLayout_t layout : {a, b, c})
            if (layout) blaslt().layout_destroy(layout);
    }
};

struct BlasLt {
    cublasLtHandle_t handle = nullptr;
    std::map<Key, Matmul> matmuls;
};

BlasLt& blas_of(const KernelCall& call) { return *static_cast<BlasLt*>(call.gpu->blas); }

std::string title_of_choices() {
    cudaDeviceProp properties{};
    int device = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaGetDeviceProperties(&properties, device) != cudaSuccess)
        return "";
    return "algorithms 1, " + blaslt().description + ", " + properties.name;
}
// Of all GPUs of this process, which are alike.
KeptChoices& choices() {
    static KeptChoices kept(title_of_choices());
    return kept;
}

cudaDataType_t data_type(Dtype dtype) {
    return dtype == Dtype::f64 ? CUDA_R_64F : dtype == Dtype::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

// The largest power of two, up to 256, that divides an address and the distance to the next matrix.
int64_t alignment(const void* p, int64_t stride_bytes) {
    const uint64_t bits = reinterpret_cast<uintptr_t>(p) | uint64_t(stride_bytes) | 256;
    return int64_t(bits & (~bits + 1));
}

Dtype dtype_of_c(Dtype dtype, const nn_gemm_params& p) {
    return p.wide ? accumulator(dtype) : dtype;
}

template <class T>
bool set(const KernelCall& call, const Matmul& matmul, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
    return check_blas(call, blaslt().desc_set(matmul.desc, attribute, &value, sizeof value),
                      "cublasLtMatmulDescSetAttribute");
}

// Sets the addresses that an epilogue uses; the choice of an algorithm may depend on them too.
bool set_pointers(const KernelCall& call, const Matmul& matmul, const void* bias, const void* aux) {
    return (!bias || set(call, matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias)) &&
           (!aux || set(call, matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux));
}

cublasLtEpilogue_t epilogue_of(const Key& key) {
    const bool bias = key.with_bias;
    if (key.p.epilogue == 1) return CUBLASLT_EPILOGUE_BIAS;
    if (key.with_aux) return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

// Describes a product to cuBLASLt. A failed status fails the call.
bool describe(const KernelCall& call, const Key& key, bool fused, const void* bias, const void* aux,
              Matmul& matmul) {
    const nn_gemm_params& p = key.p;
    const Dtype dtype = Dtype(key.dtype);
    const cudaDataType_t scale = dtype == Dtype::f64 ? CUDA_R_64F : CUDA_R_32F;
    const cublasComputeType_t compute = dtype == Dtype::f64 ? CUBLAS_COMPUTE_64F
                                        : dtype == Dtype::f32 && p.tf32
                                            ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    const auto layout = [&](cublasLtMatrixLayout_t* to, Dtype type, int64_t rows, int64_t cols,
                            int64_t ld, int64_t stride) {
        const auto set_layout = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
            return check_blas(call, blaslt().layout_set(*to, attribute, &value, sizeof value),
                              "cublasLtMatrixLayoutSetAttribute");
        };
        const cublasStatus_t status =
            blaslt().layout_create(to, data_type(type), uint64_t(rows), uint64_t(cols), ld);
        return check_blas(call, status, "cublasLtMatrixLayoutCreate") &&
               (p.batch == 1 || (set_layout(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t(p.batch)) &&
                                 set_layout(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride)));
    };
    const bool product =
        check_blas(call, blaslt().desc_create(&matmul.desc, compute, scale),
                   "cublasLtMatmulDescCreate") &&
        set(call, matmul, CUBLASLT_MATMUL_DESC_TRANSA, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N) &&
        set(call, matmul, CUBLASLT_MATMUL_DESC_TRANSB, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N) &&
        layout(&matmul.a, dtype, p.trans_b ? p.k : p.n, p.trans_b ? p.n : p.k, p.ldb, p.stride_b) &&
        layout(&matmul.b, dtype, p.trans_a ? p.m : p.k, p.trans_a ? p.k : p.m, p.lda, p.stride_a) &&
        layout(&matmul.c, dtype_of_c(dtype, p), p.n, p.m, p.ldc, p.stride_c);
    if (!product || !fused) return product;
    return set(call, matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(key)) &&
           (!key.with_aux ||
            (set(call, matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.ldc) &&
             (p.batch == 1 ||
              set(call, matmul, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, p.stride_c)))) &&
           set_pointers(call, matmul, bias, aux);
}

size_t workspace_bytes(const KernelCall& call) {
    return size_t(smaller(int64_t(call.gpu->workspace_bytes), max_workspace));
}

// Gets cuBLASLt's proposals, which it expects to be fastest first.
bool propose(const KernelCall& call, const Key& key, Matmul& matmul) {
    cublasLtMatmulPreference_t preference;
    if (!check_blas(call, blaslt().preference_create(&preference),
                    "cublasLtMatmulPreferenceCreate"))
        return false;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        check_blas(call, blaslt().preference_set(preference, attribute, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes(call)));
    // Partial sums are added in float by a separate step, in a fixed order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(key.align_b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(key.align_a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(key.align_c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(key.align_c));
    cublasLtMatmulHeuristicResult_t results[most_algorithms] = {};
    int count = 0;
    const cublasStatus_t status =
        blaslt().heuristic(blas_of(call).handle, matmul.desc, matmul.a, matmul.b, matmul.c,
                           matmul.c, preference, most_algorithms, results, &count);
    blaslt().preference_destroy(preference);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; ++i)
        if (results[i].state == CUBLAS_STATUS_SUCCESS)
            matmul.algorithms[matmul.count++] = results[i].algo;
    return !call.has_failed();
}

// d = the product with beta c, by one algorithm.
cublasStatus_t compute(const KernelCall& call, const Operands& o, const Matmul& matmul,
                       int algorithm, void* d) {
    const auto& p = call.get<nn_gemm_params>();
    const float alpha = float(p.alpha), beta = float(p.beta);
    const bool f64 = call.dtype == Dtype::f64;
    const void* alpha_at = f64 ? static_cast<const void*>(&p.alpha) : &alpha;
    const void* beta_at = f64 ? static_cast<const void*>(&p.beta) : &beta;
    return blaslt().matmul(blas_of(call).handle, matmul.desc, alpha_at, o.b, matmul.a, o.a,
                           matmul.b, beta_at, o.c, matmul.c, d, matmul.c,
                           &matmul.algorithms[algorithm], call.gpu->workspace,
                           workspace_bytes(call), stream_of(call));
}

// The time of work on a stream, by two events.
class Stopwatch {
public:
    explicit Stopwatch(cudaStream_t stream) : stream_(stream) {
        for (cudaEvent_t& event : events_)
            if (cudaEventCreate(&event) != cudaSuccess) event = nullptr;
    }
    ~Stopwatch() {
        for (cudaEvent_t event : events_)
            if (event) cudaEventDestroy(event);
    }
    Stopwatch(const Stopwatch&) = delete;
    // Milliseconds; infinity if something fails.
    template <class F> float time(F work) const {
        float out = INFINITY;
        const bool good = events_[0] && events_[1] &&
                          cudaEventRecord(events_[0], stream_) == cudaSuccess && work() &&
                          cudaEventRecord(events_[1], stream_) == cudaSuccess &&
                          cudaEventSynchronize(events_[1]) == cudaSuccess &&
                          cudaEventElapsedTime(&out, events_[0], events_[1]) == cudaSuccess;
        return good ? out : INFINITY;
    }

private:
    const cudaStream_t stream_;
    cudaEvent_t events_[2] = {};
};

// Whether a CUDA graph records the call.
bool is_recorded(const KernelCall& call) {
    auto status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(stream_of(call), &status);
    return status != cudaStreamCaptureStatusNone;
}

// The number of the fastest algorithm; the first unless another is clearly faster. -1 if there is
// no memory for results, which must not go to c if the call adds to it.
int fastest(const KernelCall& call, const Operands& o, const Matmul& matmul) {
    constexpr int runs = 3;
    constexpr float clearly = 0.98f;
    const auto& p = call.get<nn_gemm_params>();
    void* d = o.c;
    const int64_t elements = (p.batch - 1) * p.stride_c + p.m * p.ldc;
    const auto bytes = size_t(elements) * dtype_size(dtype_of_c(call.dtype, p));
    if (p.beta != 0 && cudaMalloc(&d, bytes) != cudaSuccess) {
        cudaGetLastError();  // later launches would report it
        return -1;
    }
    const Stopwatch stopwatch(stream_of(call));
    float least = INFINITY;
    int best = -1;
    for (int i = 0; i < matmul.count; ++i) {
        const auto run = [&] { return compute(call, o, matmul, i, d) == CUBLAS_STATUS_SUCCESS; };
        float milliseconds = run() ? INFINITY : -1;  // the first run loads the code
        for (int k = 0; k < runs && milliseconds > 0; ++k)
            milliseconds = std::min(milliseconds, stopwatch.time(run));
        if (milliseconds > 0 && milliseconds < least * (best < 0 ? 1 : clearly))
            least = milliseconds, best = i;
    }
    if (d != o.c) cudaFree(d);
    return best;
}

// For the file of choices.
std::string name_of(const Key& key) {
    const nn_gemm_params& p = key.p;
    char text[300];
    std::snprintf(text, sizeof text,
                  "dtype=%lld,%lldx%lldx%lld,ld=%lld/%lld/%lld,batch=%lld,strides=%lld/%lld/%lld,"
                  "add=%d,trans=%d%d,epilogue=%d,wide=%d,tf32=%d,bias=%lld,aux=%lld,"
                  "align=%lld/%lld/%lld",
                  (long long)key.dtype, (long long)p.m, (long long)p.n, (long long)p.k,
                  (long long)p.lda, (long long)p.ldb, (long long)p.ldc, (long long)p.batch,
                  (long long)p.stride_a, (long long)p.stride_b, (long long)p.stride_c, int(p.beta),
                  p.trans_a, p.trans_b, p.epilogue, p.wide, p.tf32, (long long)key.with_bias,
                  (long long)key.with_aux, (long long)key.align_a, (long long)key.align_b,
                  (long long)key.align_c);
    return text;
}

// The number of the algorithm to use; the first for products too small to be worth a measurement.
int choose(const KernelCall& call, const Key& key, const Operands& o, const Matmul& matmul) {
    constexpr double worth_measuring = 1e8;  // FLOPs
    const nn_gemm_params& p = key.p;
    const double flops = 2 * double(p.batch) * double(p.m) * double(p.n) * double(p.k);
    if (matmul.count < 2 || flops < worth_measuring) return 0;
    const int best = choices().find(name_of(key), [&] { return fastest(call, o, matmul); });
    return best > 0 && best < matmul.count ? best : 0;
}

Key key_of(const KernelCall& call, const Operands& o, bool fused) {
    const auto& p = call.get<nn_gemm_params>();
    const int64_t size = int64_t(dtype_size(call.dtype));
    Key key;
    std::memset(&key, 0, sizeof key);
    std::memcpy(&key.p, &p, offsetof(nn_gemm_params, tf32) + sizeof p.tf32);  // without padding
    key.p.alpha = 0, key.p.beta = p.beta != 0;  // only whether C is read matters
    if (!fused) key.p.epilogue = 0;
    if (p.batch == 1) key.p.stride_a = key.p.stride_b = key.p.stride_c = 0;
    key.dtype = int64_t(call.dtype);
    key.with_bias = fused && o.bias, key.with_aux = fused && o.aux;
    key.align_a = alignment(o.a, key.p.stride_a * size);
    key.align_b = alignment(o.b, key.p.stride_b * size);
    key.align_c = alignment(o.c, key.p.stride_c * int64_t(dtype_size(dtype_of_c(call.dtype, p))));
    return key;
}

// The matmul of a call, described at its first call. nullptr if the call has failed.
Matmul* find_matmul(const KernelCall& call, const Operands& o, bool fused) {
    auto& matmuls = blas_of(call).matmuls;
    const Key key = key_of(call, o, fused);
    const auto known = matmuls.find(key);
    if (known != matmuls.end()) return &known->second;
    if (is_recorded(call)) {
        call.fail("a product of a new shape cannot be measured while a CUDA graph is recorded");
        return nullptr;
    }
    Matmul& matmul = matmuls[key];
    matmul.fused = fused && key.p.epilogue != 0;
    if (describe(call, key, matmul.fused, o.bias, o.aux, matmul) && propose(call, key, matmul))
        matmul.used = choose(call, key, o, matmul);
    if (!call.has_failed()) return &matmul;
    matmuls.erase(key);  // the next call tries again
    return nullptr;
}

// cuBLASLt proposes algorithms that it then refuses, for products with vectors. Then the next one
// is used, from now on.
bool multiply(const KernelCall& call, const Operands& o, Matmul& matmul) {
    if (matmul.fused && !set_pointers(call, matmul, o.bias, o.aux)) return false;
    cublasStatus_t status = compute(call, o, matmul, matmul.used, o.c);
    for (int others = matmul.count - 1; others > 0 && (status == CUBLAS_STATUS_INVALID_VALUE ||
                                                       status == CUBLAS_STATUS_NOT_SUPPORTED);
         --others) {
        matmul.used = (matmul.used + 1) % matmul.count;
        status = compute(call, o, matmul, matmul.used, o.c);
    }
    return check_blas(call, status, "cublasLtMatmul");
}

}  // namespace

Done run_product(const KernelCall& call, const Operands& o, bool fuse) {
    const auto& p = call.get<nn_gemm_params>();
    if (!call.gpu || !call.gpu->blas) {
        call.fail("cuBLASLt is not open on this GPU worker");
        return Done::nothing;
    }
    for (const bool fused : {true, false}) {
        if (fused && !fuse) continue;
        Matmul* const matmul = find_matmul(call, o, fused);
        if (!matmul) return Done::nothing;
        if (matmul->count == 0) continue;
        if (!multiply(call, o, *matmul)) return Done::nothing;
        return fused || p.epilogue == 0 ? Done::all : Done::product;
    }
    call.fail("cuBLASLt has no algorithm for (%lld,%lld) by (%lld,%lld)", (long long)p.m,
              (long long)p.k, (long long)p.k, (long long)p.n);
    return Done::nothing;
}

void* open_blas() {
    auto blas = std::make_unique<BlasLt>();
    const cublasStatus_t status = blaslt().create(&blas->handle);
    if (status != CUBLAS_STATUS_SUCCESS)
        throw std::runtime_error(std::string("cublasLtCreate failed: ") +
                                 blaslt().status_string(status));
    return blas.release();
}

void close_blas(void* blas) {
    std::unique_ptr<BlasLt> owner(static_cast<BlasLt*>(blas));
    if (owner) blaslt().destroy(owner->handle);
}

std::string blas_description() { return blaslt().description; }

}  // namespace nn::NN_TARGET
