// Matrix products by cuBLASLt. Bias and GELU, or the gradients of both, are in its epilogue where
// it supports them and in our kernels otherwise (f64, rows of C that are no multiple of 8, k = 0).
// The gradients of gated linear units are in our kernels.
// cuBLASLt is column-major: our row-major C (m, n) is its C^T (n, m) = op(B)^T op(A)^T, so A and B
// are exchanged, and our bias is its bias of rows.
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>

#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/device.h"
#include "kernels/cuda/gelu.h"
#include "kernels/cuda/glu.h"
#include "kernels/math/activations.h"
#include "kernels/params/gemm.h"

namespace nn::NN_TARGET {
namespace {

constexpr int64_t max_workspace = int64_t(32) << 20;  // NVIDIA's advice for Hopper

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

// The descriptors and the algorithm for products of one key. `fused`: with the epilogue.
struct Matmul {
    cublasLtMatmulDesc_t desc = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
    cublasLtMatmulAlgo_t algo{};
    bool found = false, fused = false;
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
    if (key.p.epilogue == 3) return bias ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
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

// Chooses the algorithm; false if there is none.
bool choose(const KernelCall& call, const Key& key, size_t workspace_bytes, Matmul& matmul) {
    cublasLtMatmulPreference_t preference;
    if (!check_blas(call, blaslt().preference_create(&preference),
                    "cublasLtMatmulPreferenceCreate"))
        return false;
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        check_blas(call, blaslt().preference_set(preference, attribute, &value, sizeof value),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes));
    // Partial sums are added in float by a separate step, in a fixed order.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, uint32_t(key.align_b));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, uint32_t(key.align_a));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, uint32_t(key.align_c));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, uint32_t(key.align_c));
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    const cublasStatus_t status =
        blaslt().heuristic(static_cast<BlasLt*>(call.gpu->blas)->handle, matmul.desc, matmul.a,
                           matmul.b, matmul.c, matmul.c, preference, 1, &result, &count);
    blaslt().preference_destroy(preference);
    matmul.algo = result.algo;
    return status == CUBLAS_STATUS_SUCCESS && count > 0 && result.state == CUBLAS_STATUS_SUCCESS;
}

// The operands of a call; bias and aux only if the epilogue uses them. Epilogue 3 reads aux and
// writes column sums, in C's dtype, to `bias`.
struct Operands {
    void* c;
    const void *a, *b, *bias;
    void* aux;
};

Operands operands_of(const KernelCall& call) {
    const int epilogue = call.get<nn_gemm_params>().epilogue;
    return {call.operand<void>(0), call.input<void>(1), call.input<void>(2),
            epilogue ? call.input<void>(3) : nullptr,
            epilogue >= 2 ? call.operand<void>(4) : nullptr};
}

// cuBLASLt writes column sums in the dtype of C. In bf16 they go to the end of the workspace, from
// where widen_kernel converts them.
bool narrow_sums(const KernelCall& call) {
    return call.get<nn_gemm_params>().epilogue == 3 && call.operand<void>(3) &&
           call.dtype == Dtype::bf16;
}

// The bytes of the workspace before such sums; below 0 if the sums do not fit.
int64_t bytes_before_sums(const KernelCall& call) {
    const int64_t all = int64_t(call.gpu->workspace_bytes), n = call.get<nn_gemm_params>().n;
    return narrow_sums(call) ? all / 256 * 256 - ceil_div(2 * n, 256) * 256 : all;
}

// Whether cuBLASLt's rules for layouts allow the epilogue.
bool can_fuse(const KernelCall& call, const Operands& o) {
    const auto& p = call.get<nn_gemm_params>();
    if (p.epilogue == 0) return true;
    if (p.epilogue > 3 || (p.epilogue == 1 && !o.bias)) return false;
    return call.dtype != Dtype::f64 && all_aligned(o.c, o.bias, o.aux) && p.ldc % 8 == 0 &&
           p.stride_c % 8 == 0 && bytes_before_sums(call) >= 0;
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

size_t workspace_bytes(const KernelCall& call, bool fused) {
    const int64_t bytes = fused ? bytes_before_sums(call) : int64_t(call.gpu->workspace_bytes);
    return size_t(smaller(bytes, max_workspace));
}

// The matmul of a call, described at its first call; not `found` if cuBLASLt has no algorithm.
// nullptr if the call has failed.
Matmul* find_matmul(const KernelCall& call, const Operands& o, bool fused) {
    BlasLt& blas = *static_cast<BlasLt*>(call.gpu->blas);
    const Key key = key_of(call, o, fused);
    const auto known = blas.matmuls.find(key);
    if (known != blas.matmuls.end()) return &known->second;
    Matmul& matmul = blas.matmuls[key];
    matmul.fused = fused;
    matmul.found = describe(call, key, fused && key.p.epilogue != 0, o.bias, o.aux, matmul) &&
                   choose(call, key, workspace_bytes(call, fused), matmul);
    if (!call.has_failed()) return &matmul;
    blas.matmuls.erase(key);  // the next call tries again
    return nullptr;
}

bool multiply(const KernelCall& call, const Operands& o, const Matmul& matmul) {
    const auto& p = call.get<nn_gemm_params>();
    if (matmul.fused && !set_pointers(call, matmul, o.bias, o.aux)) return false;
    const float alpha = float(p.alpha), beta = float(p.beta);
    const bool f64 = call.dtype == Dtype::f64;
    const void* alpha_at = f64 ? static_cast<const void*>(&p.alpha) : &alpha;
    const void* beta_at = f64 ? static_cast<const void*>(&p.beta) : &beta;
    return check_blas(call,
                      blaslt().matmul(static_cast<BlasLt*>(call.gpu->blas)->handle, matmul.desc,
                                      alpha_at, o.b, matmul.a, o.a, matmul.b, beta_at, o.c,
                                      matmul.c, o.c, matmul.c, &matmul.algo, call.gpu->workspace,
                                      workspace_bytes(call, matmul.fused), stream_of(call)),
                      "cublasLtMatmul");
}

// c = epilogue(beta c): the product is already in c (beta 1), or there is none. With beta 0 c is
// not read: it may hold NaN.
template <class T>
__global__ void __launch_bounds__(threads)
    epilogue_kernel(T* c, const T* bias, T* aux, nn_gemm_params p, Acc<T> beta) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= p.batch * p.m * p.n) return;
    const int64_t j = i % p.n, row = i / p.n % p.m;
    const int64_t at = i / (p.m * p.n) * p.stride_c + row * p.ldc + j;
    Acc<T> value = beta == Acc<T>(0) ? Acc<T>(0) : beta * number(c[at]);
    if (bias) value += number(bias[j]);
    if (aux) aux[at] = stored<T>(value);
    c[at] = stored<T>(p.epilogue == 2 ? math::gelu(value) : value);
}

void run_epilogue(const KernelCall& call, const Operands& o, double beta) {
    const auto& p = call.get<nn_gemm_params>();
    visit_float(dtype_of_c(call.dtype, p), [&]<class T>(T*) {
        launch_each(call, p.batch * p.m * p.n, 1, epilogue_kernel<T>, o.c, o.bias, o.aux, p, beta);
    });
}

enum class Done { nothing, product, all };  // nothing: the call has failed

// Runs the product, with its epilogue if cuBLASLt supports it.
Done run_product(const KernelCall& call, const Operands& o) {
    const auto& p = call.get<nn_gemm_params>();
    if (!call.gpu || !call.gpu->blas) {
        call.fail("cuBLASLt is not open on this GPU worker");
        return Done::nothing;
    }
    Matmul* matmul = nullptr;
    if (can_fuse(call, o) && !(matmul = find_matmul(call, o, true))) return Done::nothing;
    if (matmul && matmul->found) return multiply(call, o, *matmul) ? Done::all : Done::nothing;
    if (!(matmul = find_matmul(call, o, false))) return Done::nothing;
    if (!matmul->found)
        call.fail("cuBLASLt has no algorithm for (%lld,%lld) by (%lld,%lld)", (long long)p.m,
                  (long long)p.k, (long long)p.k, (long long)p.n);
    return matmul->found && multiply(call, o, *matmul) ? Done::product : Done::nothing;
}

void gemm(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    const Operands o = operands_of(call);
    if (p.batch * p.m * p.n == 0) return;
    if (p.k == 0) return run_epilogue(call, o, p.beta);
    if (run_product(call, o) == Done::product && p.epilogue) run_epilogue(call, o, 1);
}

__global__ void __launch_bounds__(threads) widen_kernel(float* y, const bf16* x, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i < n) y[i] = number(x[i]);
}

// Runs the product before an epilogue with slopes, which needs it also if it is empty.
Done run_before_slopes(const KernelCall& call, const Operands& o) {
    const auto& p = call.get<nn_gemm_params>();
    if (p.m > 0 && p.k > 0) return run_product(call, o);
    if (p.m > 0) run_epilogue(call, {o.c, o.a, o.b, nullptr, nullptr}, p.beta);
    return Done::product;
}

void gemm_dgelu(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    void* const sums = call.operand<void>(3);
    Operands o = operands_of(call);
    if (p.n == 0) return;
    if (narrow_sums(call) && call.gpu)
        o.bias = static_cast<char*>(call.gpu->workspace) + bytes_before_sums(call);
    const Done done = run_before_slopes(call, o);
    if (done == Done::product)
        gelu_backward(call, {o.c, sums, o.c, o.aux, p.m, p.n, p.ldc, true});
    else if (done == Done::all && narrow_sums(call))
        launch_each(call, p.n, 1, widen_kernel, sums, o.bias, p.n);
}

void gemm_dglu(const KernelCall& call) {
    const auto& p = call.get<nn_gemm_params>();
    void* const dx = call.operand<void>(0);
    if (p.n == 0) return;
    const Done done =
        run_before_slopes(call, {dx, call.input<void>(1), call.input<void>(2), nullptr, nullptr});
    if (done == Done::product)
        run_glu_backward(call, {dx, call.operand<void>(3), dx, call.input<void>(4), p.m, p.n, p.ldc,
                                p.ldc, p.epilogue - 4, true});
}

NN_IMPLEMENT(gemm, gemm_dgelu, gemm_dglu);

}  // namespace

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
