#include <cuda_runtime.h>

#include <cstdlib>
#include <vector>

#include "kernels/cuda/library.h"

namespace nn::NN_TARGET {
namespace {

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

}  // namespace

Library::Library(const char* title, const char* variable, const std::string& file) : title_(title) {
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

std::string version_text(size_t version) {
    return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
           std::to_string(version % 100);
}

}  // namespace nn::NN_TARGET
