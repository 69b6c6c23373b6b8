// Opens cuBLASLt: where the loader finds it, or beside the CUDA run-time library in use.
// NNLUA_CUBLASLT names another file.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/blaslt.h"

namespace nn::NN_ISA {
namespace {

std::vector<std::string> candidates() {
    if (const char* file = std::getenv("NNLUA_CUBLASLT"); file && *file) return {file};
    const std::string name = "libcublasLt.so." + std::to_string(CUDART_VERSION / 1000);
    std::vector<std::string> files{name};
    Dl_info info;
    if (dladdr(reinterpret_cast<void*>(&cudaGetDeviceCount), &info) && info.dli_fname) {
        const std::string runtime = info.dli_fname;
        if (const size_t slash = runtime.rfind('/'); slash != std::string::npos)
            files.push_back(runtime.substr(0, slash + 1) + name);
    }
    files.push_back("/usr/local/cuda/lib64/" + name);
    return files;
}

void* open_shared_object() {
    std::string tried;
    for (const std::string& file : candidates()) {
        if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
        tried += std::string(tried.empty() ? "" : "; ") + dlerror();
    }
    throw std::runtime_error("cuBLASLt cannot be loaded (" + tried +
                             "); install CUDA's cuBLAS, or set NNLUA_CUBLASLT to its file");
}

template <class F> void look_up(void* handle, const char* name, F* f) {
    *f = reinterpret_cast<F>(dlsym(handle, name));
    if (!*f) throw std::runtime_error(std::string("the cuBLASLt found here has no ") + name);
}

BlasLtApi open_library() {
    void* handle = open_shared_object();
    BlasLtApi api;
    look_up(handle, "cublasLtCreate", &api.create);
    look_up(handle, "cublasLtDestroy", &api.destroy);
    look_up(handle, "cublasLtGetStatusString", &api.status_string);
    look_up(handle, "cublasLtMatmul", &api.matmul);
    look_up(handle, "cublasLtMatmulAlgoGetHeuristic", &api.heuristic);
    look_up(handle, "cublasLtMatmulDescCreate", &api.desc_create);
    look_up(handle, "cublasLtMatmulDescDestroy", &api.desc_destroy);
    look_up(handle, "cublasLtMatmulDescSetAttribute", &api.desc_set);
    look_up(handle, "cublasLtMatrixLayoutCreate", &api.layout_create);
    look_up(handle, "cublasLtMatrixLayoutDestroy", &api.layout_destroy);
    look_up(handle, "cublasLtMatrixLayoutSetAttribute", &api.layout_set);
    look_up(handle, "cublasLtMatmulPreferenceCreate", &api.preference_create);
    look_up(handle, "cublasLtMatmulPreferenceDestroy", &api.preference_destroy);
    look_up(handle, "cublasLtMatmulPreferenceSetAttribute", &api.preference_set);
    decltype(&cublasLtGetVersion) version;
    look_up(handle, "cublasLtGetVersion", &version);
    const size_t v = version();
    api.description = "cuBLASLt " + std::to_string(v / 10000) + "." +
                      std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
    return api;
}

}  // namespace

const BlasLtApi& blaslt() {
    static const BlasLtApi api = open_library();
    return api;
}

}  // namespace nn::NN_ISA
