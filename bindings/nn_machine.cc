// The C API of the machine's description and its rates.
#include "bindings/handles.h"
#include "engine/machine/description.h"
#include "engine/plan/measure.h"

using namespace nn;
using namespace nn::capi;

extern "C" {

int nn_machine_describe(const char* text) {
    return guard([&] { describe_machine(&given(text, "text")); });
}

int nn_machine_info(nn_machine_info_t* out) {
    return guard([&] {
        const Machine& m = machine();
        given(out, "out") = {m.ranks,
                             m.count(Device::cpu),
                             m.count(Device::cuda),
                             machine_is_described(),
                             m.bytes(NodeKind::ram),
                             m.bytes(NodeKind::gpu),
                             m.bytes(NodeKind::disk)};
    });
}

int nn_product_rate(int64_t size, double* flops_per_second) {
    return guard([&] {
        if (size < 1 || size > 1 << 15) fail("products of size %lld", (long long)size);
        given(flops_per_second, "flops_per_second") = product_rate(size);
    });
}

}  // extern "C"
