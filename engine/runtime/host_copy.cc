#include "engine/runtime/host_copy.h"

#include <cstring>

#include "engine/base/error.h"
#include "engine/runtime/access.h"

namespace nn {
namespace {

// Host layout of a tile: a callback of wait_readable/wait_writable copies between it and the user's
// row-major array.
struct HostCopy {
    Block block;
    Dims host_strides;
    size_t element;
    char* host;
    bool to_host;
};

void copy_rows(const HostCopy& c, size_t axis, char* host, char*& tile) {
    if (axis + 1 >= c.block.extent.size()) {
        const size_t bytes = size_t(c.block.extent.empty() ? 1 : c.block.extent.back()) * c.element;
        if (c.to_host)
            std::memcpy(host, tile, bytes);
        else
            std::memcpy(tile, host, bytes);
        tile += bytes;
        return;
    }
    for (int64_t i = 0; i < c.block.extent[axis]; ++i)
        copy_rows(c, axis + 1, host + size_t(i * c.host_strides[axis]) * c.element, tile);
}

void copy_tile(void* data, void* context) {
    const HostCopy& c = *static_cast<HostCopy*>(context);
    int64_t offset = 0;
    for (size_t i = 0; i < c.block.start.size(); ++i)
        offset += c.block.start[i] * c.host_strides[i];
    char* tile = static_cast<char*>(data);
    copy_rows(c, 0, c.host + size_t(offset) * c.element, tile);
}

void transfer(const Tensor& t, char* host, bool to_host) {
    for (int64_t i = 0; i < t.tiles(); ++i) {
        HostCopy copy{t.block(i), row_major_strides(t.shape()), dtype_size(t.dtype()), host,
                      to_host};
        if (to_host) {
            wait_readable(*t.tile(i), copy_tile, &copy);
        } else {
            wait_writable(*t.tile(i), copy_tile, &copy);
            t.tile(i)->value = Tile::Value::written;
        }
    }
}

}  // namespace

void read_tensor(const Tensor& tensor, void* out) {
    if (recording_number())
        fail(
            "a value cannot be read while a compiled function is being recorded; return the tensor "
            "from it instead");
    for (int64_t i = 0; i < tensor.tiles(); ++i) {
        if (tensor.tile(i)->recording)
            fail(
                "this tensor exists only inside the compiled function that made it; return it from "
                "there");
        tensor.tile(i)->check_readable("read");
    }
    transfer(tensor, static_cast<char*>(out), true);
}

void write_tensor(const Tensor& tensor, const void* in) {
    if (recording_number())
        fail("host data cannot be written while a compiled function is being recorded");
    if (tensor.is_view()) fail("a view cannot be written; write to the tensor it was taken from");
    for (int64_t i = 0; i < tensor.tiles(); ++i)
        if (tensor.tile(i)->recording)
            fail("host data cannot be written to a tensor of a compiled function");
    tensor.changed();  // also where an interrupt ends the writing half-way
    transfer(tensor, static_cast<char*>(const_cast<void*>(in)), false);
}

}  // namespace nn
