// NVIDIA's libraries, opened at run time: the program starts on machines without them, and nothing
// links them.
#pragma once
#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace nn::NN_TARGET {

// A shared object, from where the loader finds it or beside the CUDA run-time library in use; or
// from the file that an environment variable names ("none": not at all). Open until the end.
class Library {
public:
    // title: "cuDNN 9"; file: "libcudnn.so.9". Throws std::runtime_error naming what was tried.
    Library(const char* title, const char* variable, const std::string& file);

    template <class F> void look_up(const char* name, F* f) const {
        *f = reinterpret_cast<F>(dlsym(handle_, name));
        if (!*f) throw std::runtime_error("the " + title_ + " found here has no " + name);
    }

private:
    const std::string title_;
    void* handle_ = nullptr;
};

// "9.19.0" of 91900.
std::string version_text(size_t version);

}  // namespace nn::NN_TARGET
