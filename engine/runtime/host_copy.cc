#include "engine/runtime/host_copy.h"

#include <starpu.h>

#include <cstring>
#include <memory>
#include <utility>

#include "engine/base/error.h"
#include "engine/memory/arena.h"
#include "engine/residency/homes.h"
#include "engine/runtime/session.h"
#include "engine/workers/failures.h"
#include "engine/workers/handles.h"
#include "engine/workers/tile_checks.h"
#include "engine/workers/waits.h"

namespace nn {
namespace {

// The layout of a tile in the user's row-major array.
struct HostCopy {
    Block block;
    Dims host_strides;
    size_t element;
    bool to_host;

    // Copies `axis` and all later axes; advances `tile` past the copied elements.
    void copy(size_t axis, char* host, char*& tile) const {
        if (axis + 1 >= block.extent.size()) {
            const size_t bytes = size_t(block.extent.empty() ? 1 : block.extent.back()) * element;
            std::memcpy(to_host ? host : tile, to_host ? tile : host, bytes);
            tile += bytes;
            return;
        }
        for (int64_t i = 0; i < block.extent[axis]; ++i)
            copy(axis + 1, host + size_t(i * host_strides[axis]) * element, tile);
    }
};

[[noreturn]] void refuse_copy(StarpuHandle handle, HeldTile held, size_t bytes) {
    held.reset();
    starpu_data_invalidate_submit(handle);
    throw OutOfMemory(no_memory_for(bytes));
}

void copy_tile(const HostCopy& copy, char* host, Tile& tile) {
    for (size_t i = 0; i < copy.block.start.size(); ++i)
        host += size_t(copy.block.start[i] * copy.host_strides[i]) * copy.element;
    start();
    ensure_awake();
    prepare_tiles({&tile});
    const StarpuHandle handle = handle_of(tile, copy.to_host);
    if (!copy.to_host) outdate_copy(tile);
    HeldTile held = wait_and_hold(handle, !copy.to_host);
    if (has_error()) held.reset();  // tasks that check_pending() waits for may need the tile
    check_pending();
    if (lacks_memory(handle)) refuse_copy(handle, std::move(held), tile.bytes);
    char* const memory = static_cast<char*>(starpu_data_get_local_ptr(handle));
    const tile_checks::Bytes bytes{memory, tile.bytes};
    if (copy.to_host) tile_checks::need(handle, tile_checks::value_of(tile), bytes);
    char* data = memory;
    copy.copy(0, host, data);
    if (!copy.to_host)
        tile_checks::note(handle, tile_checks::next_value(tile), bytes, "a copy from the program");
    tile.value = Tile::Value::written;
}

void transfer(const Tensor& t, char* host, bool to_host) {
    for (int64_t i = 0; i < t.tiles(); ++i)
        copy_tile({t.block(i), row_major_strides(t.shape()), dtype_size(t.dtype()), to_host}, host,
                  *t.tile(i));
}

}  // namespace

void read_tensor(const Tensor& tensor, void* out) {
    if (recording_number())
        fail(
            "a value cannot be read while a compiled function is being recorded; return the tensor "
            "from it instead");
    if (tensor.temporary())
        fail(
            "this tensor exists only inside the compiled function that made it; return it from "
            "there");
    for (int64_t i = 0; i < tensor.tiles(); ++i) tensor.tile(i)->check_readable("read");
    transfer(tensor, static_cast<char*>(out), true);
}

void write_tensor(const Tensor& tensor, const void* in) {
    if (recording_number())
        fail(
            "host data cannot be written while a compiled function is being recorded; make the "
            "tensor outside, and pass it as an argument");
    if (tensor.is_view()) fail("a view cannot be written; write to the tensor it was taken from");
    if (tensor.temporary()) fail("host data cannot be written to a tensor of a compiled function");
    tensor.changed();  // even if an interrupt ends the copy half-way
    transfer(tensor, static_cast<char*>(const_cast<void*>(in)), false);
}

}  // namespace nn
