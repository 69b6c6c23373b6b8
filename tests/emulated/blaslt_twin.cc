#include "tests/emulated/blaslt_twin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

namespace nn::emulated {
namespace {

void* open_library() {
    const char* given = std::getenv("NNLUA_CUBLASLT");
    for (const char* file : {given ? given : "", "libcublasLt.so.13", "libcublasLt.so.12",
                             "/usr/local/cuda/lib64/libcublasLt.so"})
        if (void* library = *file ? dlopen(file, RTLD_LAZY | RTLD_LOCAL) : nullptr) return library;
    return nullptr;
}

void* library() {
    static void* const opened = open_library();
    return opened;
}

template <class F> F function(const char* kind, const char* what) {
    return reinterpret_cast<F>(dlsym(library(), (std::string("cublasLt") + kind + what).c_str()));
}

}  // namespace

template <class... Types, class... Values> LtTwin LtTwin::make(const char* kind, Values... values) {
    LtTwin twin;
    if (!library()) return twin;
    void* made = nullptr;
    const int status = function<int (*)(void**, Types...)>(kind, "Create")(&made, values...);
    twin.rejected_ = status != 0 || !made;
    twin.made_ = {made, function<int (*)(void*)>(kind, "Destroy")};
    twin.set_ = function<Set>(kind, "SetAttribute");
    return twin;
}

LtTwin LtTwin::product(int compute, int scale) {
    return make<int, int>("MatmulDesc", compute, scale);
}
LtTwin LtTwin::layout(int type, uint64_t rows, uint64_t cols, int64_t ld) {
    return make<int, uint64_t, uint64_t, int64_t>("MatrixLayout", type, rows, cols, ld);
}
LtTwin LtTwin::preference() { return make<>("MatmulPreference"); }

bool LtTwin::set(int attribute, const void* value, size_t bytes) const {
    return !made_ || set_(made_.get(), attribute, value, bytes) == 0;
}

bool LtTwin::installed() { return library() != nullptr; }

}  // namespace nn::emulated
