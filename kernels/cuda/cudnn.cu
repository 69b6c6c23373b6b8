// Opens cuDNN 9; NNLUA_CUDNN names another file, or "none".
#if defined(NN_CUDNN)
#include "kernels/cuda/cudnn.h"
#include "kernels/cuda/library.h"

namespace nn::NN_TARGET {
namespace {

// What was before gives wrong gradients of attention, or none (cudnn-frontend's checks).
constexpr size_t oldest = 91002;

CudnnApi open_library() {
    const Library library("cuDNN 9", "NNLUA_CUDNN", "libcudnn.so.9");
    CudnnApi api;
    library.look_up("cudnnCreate", &api.create);
    library.look_up("cudnnDestroy", &api.destroy);
    library.look_up("cudnnSetStream", &api.set_stream);
    library.look_up("cudnnGetErrorString", &api.status_string);
    library.look_up("cudnnGetLastErrorString", &api.last_error);
    library.look_up("cudnnBackendCreateDescriptor", &api.descriptor_create);
    library.look_up("cudnnBackendDestroyDescriptor", &api.descriptor_destroy);
    library.look_up("cudnnBackendFinalize", &api.finalize);
    library.look_up("cudnnBackendSetAttribute", &api.set);
    library.look_up("cudnnBackendGetAttribute", &api.get);
    library.look_up("cudnnBackendExecute", &api.execute);
    decltype(&cudnnGetVersion) version;
    library.look_up("cudnnGetVersion", &version);
    api.version = version();
    api.description = "cuDNN " + version_text(api.version);
    if (api.version < oldest) throw std::runtime_error(api.description + " is older than 9.10.2");
    return api;
}

}  // namespace

const CudnnApi& cudnn() {
    static const CudnnApi api = open_library();
    return api;
}

}  // namespace nn::NN_TARGET
#endif
