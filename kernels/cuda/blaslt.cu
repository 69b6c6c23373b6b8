// Opens cuBLASLt of the CUDA that this is built with; NNLUA_CUBLASLT names another file.
#include <cuda_runtime.h>

#include "kernels/cuda/blaslt.h"
#include "kernels/cuda/library.h"

namespace nn::NN_TARGET {
namespace {

BlasLtApi open_library() {
    const Library library("cuBLASLt", "NNLUA_CUBLASLT",
                          "libcublasLt.so." + std::to_string(CUDART_VERSION / 1000));
    BlasLtApi api;
    library.look_up("cublasLtCreate", &api.create);
    library.look_up("cublasLtDestroy", &api.destroy);
    library.look_up("cublasLtGetStatusString", &api.status_string);
    library.look_up("cublasLtMatmul", &api.matmul);
    library.look_up("cublasLtMatmulAlgoGetHeuristic", &api.heuristic);
    library.look_up("cublasLtMatmulDescCreate", &api.desc_create);
    library.look_up("cublasLtMatmulDescDestroy", &api.desc_destroy);
    library.look_up("cublasLtMatmulDescSetAttribute", &api.desc_set);
    library.look_up("cublasLtMatrixLayoutCreate", &api.layout_create);
    library.look_up("cublasLtMatrixLayoutDestroy", &api.layout_destroy);
    library.look_up("cublasLtMatrixLayoutSetAttribute", &api.layout_set);
    library.look_up("cublasLtMatmulPreferenceCreate", &api.preference_create);
    library.look_up("cublasLtMatmulPreferenceDestroy", &api.preference_destroy);
    library.look_up("cublasLtMatmulPreferenceSetAttribute", &api.preference_set);
    decltype(&cublasLtGetVersion) version;
    library.look_up("cublasLtGetVersion", &version);
    api.description = "cuBLASLt " + version_text(version());
    return api;
}

}  // namespace

const BlasLtApi& blaslt() {
    static const BlasLtApi api = open_library();
    return api;
}

}  // namespace nn::NN_TARGET
