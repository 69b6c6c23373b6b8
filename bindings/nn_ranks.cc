// The C API: ranks.
#include "bindings/handles.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/transport.h"

using namespace nn;
using namespace nn::capi;

int nn_ranks(nn_ranks_t* out) {
    return guard([&] {
        const transport::Counts& counts = transport::counts();
        given(out, "out") = {ranks().rank, ranks().count, counts.messages_sent, counts.bytes_sent,
                             counts.bytes_received};
    });
}
