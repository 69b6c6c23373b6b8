// Opens cuDNN 9: where the loader finds it, or beside the CUDA run-time library in use. NNLUA_CUDNN
// names another file, or "none".
#if defined(NN_CUDNN)
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "kernels/cuda/cudnn.h"

namespace nn::NN_ISA {
namespace {

// What was before gives wrong gradients of attention, or none (cudnn-frontend's checks).
constexpr size_t oldest = 91002;

std::vector<std::string> candidates() {
    if (const char* file = std::getenv("NNLUA_CUDNN"); file && *file) return {file};
    const std::string name = "libcudnn.so.9";
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
        if (file == "none") throw std::runtime_error("NNLUA_CUDNN is none");
        if (void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
        tried += std::string(tried.empty() ? "" : "; ") + dlerror();
    }
    throw std::runtime_error("cuDNN 9 cannot be loaded (" + tried +
                             "); install it, or set NNLUA_CUDNN to its file");
}

template <class F> void look_up(void* handle, const char* name, F* f) {
    *f = reinterpret_cast<F>(dlsym(handle, name));
    if (!*f) throw std::runtime_error(std::string("the cuDNN found here has no ") + name);
}

CudnnApi open_library() {
    void* handle = open_shared_object();
    CudnnApi api;
    look_up(handle, "cudnnCreate", &api.create);
    look_up(handle, "cudnnDestroy", &api.destroy);
    look_up(handle, "cudnnSetStream", &api.set_stream);
    look_up(handle, "cudnnGetErrorString", &api.status_string);
    look_up(handle, "cudnnGetLastErrorString", &api.last_error);
    look_up(handle, "cudnnBackendCreateDescriptor", &api.descriptor_create);
    look_up(handle, "cudnnBackendDestroyDescriptor", &api.descriptor_destroy);
    look_up(handle, "cudnnBackendFinalize", &api.finalize);
    look_up(handle, "cudnnBackendSetAttribute", &api.set);
    look_up(handle, "cudnnBackendGetAttribute", &api.get);
    look_up(handle, "cudnnBackendExecute", &api.execute);
    decltype(&cudnnGetVersion) version;
    look_up(handle, "cudnnGetVersion", &version);
    api.version = version();
    api.description = "cuDNN " + std::to_string(api.version / 10000) + "." +
                      std::to_string(api.version / 100 % 100) + "." +
                      std::to_string(api.version % 100);
    if (api.version < oldest) throw std::runtime_error(api.description + " is older than 9.10.2");
    return api;
}

}  // namespace

const CudnnApi& cudnn() {
    static const CudnnApi api = open_library();
    return api;
}

}  // namespace nn::NN_ISA
#endif
