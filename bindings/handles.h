// Shared by the files of the C API: the handle table, which detects stale handles; conversion of
// exceptions to statuses; checks of arguments.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "bindings/nn.h"
#include "engine/base/error.h"
#include "engine/executor/replay.h"
#include "engine/io/image_queue.h"
#include "engine/io/tensor_file.h"
#include "engine/ops/op.h"
#include "engine/text/tokenizer.h"
#include "engine/tile/tensor.h"
#include "engine/workers/waits.h"

namespace nn::capi {

const std::string& last_error();
// Converts the exception being handled to a status, and its text to last_error().
int caught() noexcept;

template <class F, class... Arguments> int guard(F body, Arguments... arguments) noexcept {
    try {
        body(arguments...);
        return NN_OK;
    } catch (...) {
        return caught();
    }
}
// For calls that use tensors: reports an error of an earlier kernel, or Ctrl-C, first.
template <class F> int guard_pending(F body) noexcept {
    return guard([&] {
        check_pending();
        body();
    });
}

template <class P> P& given(P* pointer, const char* what) {
    if (!pointer) fail("%s is NULL", what);
    return *pointer;
}

// For calls with one result: stores the value of `body` in *out.
template <class T, class F, class... Arguments>
int put(T* out, const char* what, F body, Arguments... arguments) noexcept {
    return guard([&] {
        T& to = given(out, what);
        to = T(body(arguments...));
    });
}

template <class T> const T& element(const std::vector<T>& list, int64_t i, const char* what) {
    if (i < 0 || size_t(i) >= list.size())
        fail("%s %lld is outside [0, %zu)", what, (long long)i, list.size());
    return list[size_t(i)];
}

struct Images {
    ImageQueue queue;
    bool bytes;  // the form of the results: bytes, or floats
    Images(const ImageSettings& settings, int threads, bool as_bytes)
        : queue(settings, threads), bytes(as_bytes) {}
};

using Object =
    std::variant<std::monostate, Tensor, std::shared_ptr<Replay>, std::shared_ptr<TensorFile>,
                 std::shared_ptr<text::Tokenizer>, std::shared_ptr<Images>>;
nn_ref new_ref(Object object);  // a tensor also belongs to the innermost open scope
// The reference points into the table: valid until a handle is created or this one is released.
Tensor& tensor_of(const nn_ref& ref, const char* what = "tensor");
Replay& program_of(const nn_ref* ref);
TensorFile& file_of(const nn_ref* ref);
text::Tokenizer& tokenizer_of(const nn_ref* ref);
Images& images_of(const nn_ref* ref);
std::vector<Tensor> tensors_of(const nn_ref* refs, int32_t count, const char* what);
void put_results(const std::vector<Tensor>& results, nn_ref* outputs, int32_t room);
void release(nn_ref ref);  // ignores stale ones
void release_all();
int64_t tensors_alive();

void begin_scope();
void end_scope(const nn_ref* keep, int32_t n_keep);  // kept tensors move to the enclosing scope

const Op& op_at(int32_t index);  // ops are numbered in the order of their names

}  // namespace nn::capi
