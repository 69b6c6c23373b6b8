// The C API, files that tensors are written to.
#include "bindings/handles.h"
#include "engine/base/exit_files.h"
#include "engine/io/output_file.h"

using namespace nn;
using namespace nn::capi;

extern "C" {

int nn_file_create(const char* path, int64_t bytes, nn_ref* file) {
    return guard_pending([&] {
        given(file, "file") = {0, 0};
        *file = new_ref(std::make_shared<TensorFile>(&given(path, "path"), bytes));
    });
}

int nn_file_append(const nn_ref* file, const void* data, int64_t bytes) {
    return guard([&] {
        if (!data && bytes) fail("data is NULL");
        file_of(file).append(data, bytes);
    });
}

int nn_file_append_tensor(const nn_ref* file, const nn_ref* tensor) {
    return guard_pending([&] {
        const Tensor t = tensor_of(given(tensor, "tensor"));
        if (t.stale())
            fail("write: a view of a tensor that was changed in place since; take the view again");
        file_of(file).append(t);
    });
}

int nn_file_drain(const nn_ref* file) {
    return guard_pending([&] { file_of(file).drain(); });
}

int nn_file_close(const nn_ref* file) {
    return guard([&] { file_of(file).close(); });
}

int nn_file_done(const nn_ref* file, int32_t* done) {
    return guard([&] { given(done, "done") = file_of(file).done(); });
}

int nn_file_wait(const nn_ref* file, uint32_t* crc32) {
    return guard([&] { given(crc32, "crc32") = file_of(file).crc32(); });
}

int nn_remove_at_exit(const char* path) {
    return guard([&] { exit_files::add(&given(path, "path")); });
}

int nn_keep_at_exit(const char* const* paths, int32_t n_paths) {
    return guard([&] {
        std::vector<std::string> kept;
        for (int32_t i = 0; i < n_paths; ++i)
            kept.emplace_back(&given(given(paths + i, "paths"), "path"));
        exit_files::drop(kept);
    });
}

int nn_crc32(const void* data, int64_t bytes, uint32_t before, uint32_t* crc32) {
    return guard([&] {
        if (bytes < 0 || (bytes && !data)) fail("crc32: %lld bytes of NULL", (long long)bytes);
        given(crc32, "crc32") = crc32_of(data, size_t(bytes), before);
    });
}

}  // extern "C"
