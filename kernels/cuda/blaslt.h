// cuBLASLt's functions, opened at run time (libraries.cu).
#pragma once
#include <cublasLt.h>

#include <string>

#define NN_BLASLT(F)                                       \
    F(create, cublasLtCreate)                              \
    F(destroy, cublasLtDestroy)                            \
    F(status_string, cublasLtGetStatusString)              \
    F(matmul, cublasLtMatmul)                              \
    F(heuristic, cublasLtMatmulAlgoGetHeuristic)           \
    F(desc_create, cublasLtMatmulDescCreate)               \
    F(desc_destroy, cublasLtMatmulDescDestroy)             \
    F(desc_set, cublasLtMatmulDescSetAttribute)            \
    F(layout_create, cublasLtMatrixLayoutCreate)           \
    F(layout_destroy, cublasLtMatrixLayoutDestroy)         \
    F(layout_set, cublasLtMatrixLayoutSetAttribute)        \
    F(preference_create, cublasLtMatmulPreferenceCreate)   \
    F(preference_destroy, cublasLtMatmulPreferenceDestroy) \
    F(preference_set, cublasLtMatmulPreferenceSetAttribute)

namespace nn::NN_TARGET {

struct BlasLtApi {
#define NN_FIELD(name, function) decltype(&function) name;
    NN_BLASLT(NN_FIELD)
#undef NN_FIELD
    std::string description;
};

// Throws std::runtime_error with the files tried.
const BlasLtApi& blaslt();

}  // namespace nn::NN_TARGET
