// The C API: ranks.
#include "bindings/handles.h"
#include "engine/base/interrupts.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/control.h"
#include "engine/ranks/transport.h"
#include "engine/runtime/ranks.h"

using namespace nn;
using namespace nn::capi;

namespace {
std::vector<std::string> gathered;
}

int nn_ranks(nn_ranks_t* out) {
    return guard([&] {
        const transport::Counts& counts = transport::counts();
        given(out, "out") = {ranks().rank, ranks().count, counts.messages_sent, counts.bytes_sent,
                             counts.bytes_received};
    });
}

int nn_ranks_gather(const char* what, const char* mine, int64_t bytes) {
    return guard([&] {
        const std::string text(&given(mine, "mine"), size_t(bytes));
        gathered = ranks().several() ? control::gather(&given(what, "what"), text, check_interrupt)
                                     : std::vector<std::string>{text};
    });
}

int nn_ranks_gathered(int32_t rank, const char** text, int64_t* bytes) {
    return guard([&] {
        if (rank < 0 || size_t(rank) >= gathered.size())
            fail("no text of rank %d was gathered", rank);
        given(text, "text") = gathered[size_t(rank)].data();
        given(bytes, "bytes") = int64_t(gathered[size_t(rank)].size());
    });
}

int nn_ranks_own(const nn_ref* tensor, const nn_ref* like) {
    return guard([&] {
        keep_on_owners(tensor_of(given(tensor, "tensor")), like ? &tensor_of(*like) : nullptr);
    });
}

int nn_ranks_move(const nn_ref* tensor, const nn_ref* like) {
    return guard_pending([&] {
        move_to_owners(tensor_of(given(tensor, "tensor")), tensor_of(given(like, "like")));
    });
}

int nn_ranks_collect(const nn_ref* tensor, int32_t* any) {
    return guard_pending([&] { given(any, "any") = collect(tensor_of(given(tensor, "tensor"))); });
}

int nn_ranks_drop(const nn_ref* tensor) {
    return guard([&] { drop_collected(tensor_of(given(tensor, "tensor"))); });
}

int nn_ranks_spread(const nn_ref* tensor) {
    return guard_pending([&] { spread(tensor_of(given(tensor, "tensor"))); });
}
