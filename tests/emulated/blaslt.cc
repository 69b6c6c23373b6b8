// Emulates cuBLASLt by plain loops, column-major as NVIDIA documents it. Checks its rules: matching
// sizes, leading dimensions, promised alignments, supported epilogues. If cuBLASLt is installed, it
// checks the descriptors too (blaslt_twin.h).
#include "kernels/cuda/blaslt.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/emulated/blaslt_twin.h"

using nn::emulated::LtTwin;

int nn::emulated::used_algorithm = -1;
using nn::emulated::used_algorithm;

struct EmulatedLt {};
struct EmulatedDesc {
    LtTwin twin;
    cudaDataType_t scale;
    int32_t trans_a = 0, trans_b = 0, epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void* bias = nullptr;
    void* aux = nullptr;
    int64_t aux_ld = 0, aux_stride = 0;
};
struct EmulatedLayout {
    LtTwin twin;
    cudaDataType_t type;
    int64_t rows, cols, ld;
    int32_t batch = 1;
    int64_t stride = 0;
};
struct EmulatedPreference {
    LtTwin twin;
    std::map<int, uint64_t> values;
};

namespace {

double load(const void* data, cudaDataType_t type, int64_t i) {
    if (type == CUDA_R_64F) return static_cast<const double*>(data)[i];
    if (type == CUDA_R_32F) return double(static_cast<const float*>(data)[i]);
    const uint32_t bits = uint32_t(static_cast<const uint16_t*>(data)[i]) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return double(value);
}

void store(void* data, cudaDataType_t type, int64_t i, double value) {
    if (type == CUDA_R_64F) {
        static_cast<double*>(data)[i] = value;
    } else if (type == CUDA_R_32F) {
        static_cast<float*>(data)[i] = float(value);
    } else {
        const float single = float(value);
        uint32_t bits;
        std::memcpy(&bits, &single, 4);
        static_cast<uint16_t*>(data)[i] =
            std::isnan(single) ? 0x7FFF : uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    }
}

template <class T> cublasStatus_t made(const T& value, T** to) {
    if (value.twin.rejected()) return CUBLAS_STATUS_INVALID_VALUE;
    *to = new T(value);
    return CUBLAS_STATUS_SUCCESS;
}

template <class T> bool take(const void* from, size_t bytes, T* to) {
    if (bytes != sizeof(T)) return false;
    std::memcpy(to, from, bytes);
    return true;
}

cublasStatus_t status(bool good) {
    return good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

bool fits(const EmulatedDesc& desc, const EmulatedLayout& a, const EmulatedLayout& b,
          const EmulatedLayout& d) {
    const int64_t m = desc.trans_a ? a.cols : a.rows, k = desc.trans_a ? a.rows : a.cols;
    const int64_t k_b = desc.trans_b ? b.cols : b.rows, n = desc.trans_b ? b.rows : b.cols;
    bool good = m == d.rows && n == d.cols && k == k_b && m > 0 && n > 0 && k > 0;
    for (const EmulatedLayout* layout : {&a, &b, &d})
        good = good && layout->ld >= layout->rows && layout->batch == d.batch;
    const bool wide = a.type == CUDA_R_16BF && d.type == CUDA_R_32F;
    good = good && a.type == b.type && (a.type == d.type || wide);
    return good;
}

// The rules for epilogues in cuBLASLt's documentation.
bool has_epilogue(const EmulatedDesc& desc, const EmulatedLayout& d) {
    if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT) return true;
    if (d.type == CUDA_R_64F) return false;
    return !(desc.epilogue & 128) ||
           (desc.aux_ld % 8 == 0 && desc.aux_ld >= d.rows && desc.aux_stride % 8 == 0);
}

double finished(const EmulatedDesc& desc, cudaDataType_t type, double sum, int64_t row,
                int64_t at_aux) {
    if (desc.epilogue & 4) sum += load(desc.bias, type, row);
    if (desc.epilogue & 128) store(desc.aux, type, at_aux, sum);
    if (desc.epilogue & 32)
        sum = 0.5 * sum * (1 + std::tanh(0.7978845608028654 * (sum + 0.044715 * sum * sum * sum)));
    return sum;
}

double number(const EmulatedDesc& desc, const void* scalar) { return load(scalar, desc.scale, 0); }

bool has_alignment(const void* p, uint64_t bytes) {
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

// Overwrites the ends of the workspace; overwriting all of it takes too long.
void overwrite_ends(void* workspace, size_t bytes) {
    const size_t end = std::min<size_t>(bytes, 4096);
    std::memset(workspace, 0xFF, end);
    std::memset(static_cast<char*>(workspace) + bytes - end, 0xFF, end);
}

}  // namespace

const nn::emulated::BlasLtApi& nn::emulated::blaslt() {
#define NN_VALUE(name, function) function,
    static const BlasLtApi api{NN_BLASLT(NN_VALUE) "emulated"};
    return api;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    *handle = new EmulatedLt;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
const char* cublasLtGetStatusString(cublasStatus_t code) {
    return code == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : code == CUBLAS_STATUS_NOT_SUPPORTED  ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                                  : "CUBLAS_STATUS_INVALID_VALUE";
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    return made({.twin = LtTwin::product(compute, scale), .scale = scale}, desc);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
    if (!desc->twin.set(attribute, value, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA: return status(take(value, bytes, &desc->trans_a));
        case CUBLASLT_MATMUL_DESC_TRANSB: return status(take(value, bytes, &desc->trans_b));
        case CUBLASLT_MATMUL_DESC_EPILOGUE: return status(take(value, bytes, &desc->epilogue));
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return status(take(value, bytes, &desc->bias));
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
            return status(take(value, bytes, &desc->aux));
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return status(take(value, bytes, &desc->aux_ld));
        default: return status(take(value, bytes, &desc->aux_stride));
    }
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    return made({LtTwin::layout(type, rows, cols, ld), type, int64_t(rows), int64_t(cols), ld},
                layout);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
    if (!layout->twin.set(attribute, value, bytes)) return CUBLAS_STATUS_INVALID_VALUE;
    return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
               ? status(take(value, bytes, &layout->batch))
               : status(take(value, bytes, &layout->stride));
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    return made({LtTwin::preference(), {}}, preference);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
    uint64_t number = 0;
    const bool wide = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    if (bytes != (wide ? 8 : 4) || !preference->twin.set(attribute, value, bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&number, value, bytes);
    preference->values[attribute] = number;
    return CUBLAS_STATUS_SUCCESS;
}

// There are two algorithms. They contain the alignments that they were chosen for, and a number:
// the first is slow, and refuses vectors.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
    *count = 0;
    if (!fits(*desc, *a, *b, *c) || !fits(*desc, *a, *b, *d)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!has_epilogue(*desc, *d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *count < std::min(requested, 2); ++*count) {
        cublasLtMatmulHeuristicResult_t& result = results[*count];
        result = {};
        for (int i = 0; i < 4; ++i)
            result.algo.data[i] =
                preference->values.at(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i);
        result.algo.data[4] = uint64_t(*count);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t la, const void* b,
                              cublasLtMatrixLayout_t lb, const void* beta, const void* c,
                              cublasLtMatrixLayout_t lc, void* d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t* algo, void* workspace,
                              size_t workspace_bytes, cudaStream_t) {
    const void* pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; ++i)
        if (!has_alignment(pointers[i], algo->data[i])) return CUBLAS_STATUS_INVALID_VALUE;
    if (!fits(*desc, *la, *lb, *lc) || !has_epilogue(*desc, *ld) ||
        ((desc->epilogue & 4) && !desc->bias) || ((desc->epilogue & 128) && !desc->aux))
        return CUBLAS_STATUS_INVALID_VALUE;
    used_algorithm = int(algo->data[4]);
    if (used_algorithm == 0 && ld->cols == 1) return CUBLAS_STATUS_INVALID_VALUE;
    const auto start = std::chrono::steady_clock::now();
    overwrite_ends(workspace, workspace_bytes);
    const double alpha_value = number(*desc, alpha), beta_value = number(*desc, beta);
    const int64_t k = desc->trans_a ? la->rows : la->cols;
    for (int64_t batch = 0; batch < ld->batch; ++batch)
        for (int64_t j = 0; j < ld->cols; ++j)
            for (int64_t i = 0; i < ld->rows; ++i) {
                double sum = 0;
                for (int64_t l = 0; l < k; ++l)
                    sum += load(a, la->type,
                                batch * la->stride +
                                    (desc->trans_a ? i * la->ld + l : l * la->ld + i)) *
                           load(b, lb->type,
                                batch * lb->stride +
                                    (desc->trans_b ? l * lb->ld + j : j * lb->ld + l));
                const int64_t at = batch * ld->stride + j * ld->ld + i;
                sum *= alpha_value;
                if (beta_value != 0) sum += beta_value * load(c, lc->type, at);
                sum = finished(*desc, ld->type, sum, i,
                               batch * desc->aux_stride + j * desc->aux_ld + i);
                store(d, ld->type, at, sum);
            }
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (used_algorithm == 0 && elapsed > std::chrono::milliseconds(10))
        std::this_thread::sleep_for(2 * elapsed);
    return CUBLAS_STATUS_SUCCESS;
}
