// Opens cuBLASLt and cuDNN at run time, so that the program starts on machines without them.
// NNLUA_CUBLASLT and NNLUA_CUDNN name other files, or "none".
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/blaslt.h"
#if defined(NN_CUDNN)
#include "kernels/cuda/cudnn.h"
#endif

namespace nn::NN_TARGET {
namespace {

// The file that the user names; else what the loader finds, or the file beside the CUDA run-time
// library, or the toolkit's.
std::vector<std::string> candidates(const char* variable, const std::string& name) {
    if (const char* file = std::getenv(variable); file && *file) return {file};
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

// A shared object, never closed.
class Library {
public:
    Library(const char* title, const char* variable, const std::string& file) : title_(title) {
        std::string tried;
        for (const std::string& path : candidates(variable, file)) {
            if (path == "none") throw std::runtime_error(std::string(variable) + " is none");
            handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
            if (handle_) return;
            tried += std::string(tried.empty() ? "" : "; ") + dlerror();
        }
        throw std::runtime_error(title_ + " cannot be loaded (" + tried + "); install it, or set " +
                                 variable + " to its file");
    }
    template <class F> void look_up(const char* name, F* f) const {
        *f = reinterpret_cast<F>(dlsym(handle_, name));
        if (!*f) throw std::runtime_error("the " + title_ + " found has no " + name);
    }

private:
    const std::string title_;
    void* handle_ = nullptr;
};

// "9.19.0" of 91900.
std::string version_text(size_t version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

#define NN_LOOK_UP(name, function) library.look_up(#function, &api.name);

BlasLtApi open_blaslt() {
    const Library library("cuBLASLt", "NNLUA_CUBLASLT",
                          "libcublasLt.so." + std::to_string(CUDART_VERSION / 1000));
    BlasLtApi api;
    decltype(&cublasLtGetVersion) version;
    NN_BLASLT(NN_LOOK_UP)
    library.look_up("cublasLtGetVersion", &version);
    api.description = "cuBLASLt " + version_text(version());
    return api;
}

#if defined(NN_CUDNN)
// Earlier versions compute wrong gradients of attention, or none (cudnn-frontend's checks).
constexpr size_t oldest_cudnn = 91002;

CudnnApi load_cudnn() {
    const Library library("cuDNN 9", "NNLUA_CUDNN", "libcudnn.so.9");
    CudnnApi api;
    decltype(&cudnnGetVersion) version;
    NN_CUDNN_API(NN_LOOK_UP)
    library.look_up("cudnnGetVersion", &version);
    api.version = version();
    api.description = "cuDNN " + version_text(api.version);
    if (api.version < oldest_cudnn)
        throw std::runtime_error(api.description + " is older than 9.10.2");
    return api;
}
#endif

}  // namespace

const BlasLtApi& blaslt() {
    static const BlasLtApi api = open_blaslt();
    return api;
}

#if defined(NN_CUDNN)
const CudnnApi& cudnn() {
    static const CudnnApi api = load_cudnn();
    return api;
}
#endif

}  // namespace nn::NN_TARGET
