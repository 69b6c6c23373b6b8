// A tile: a contiguous row-major block of one dtype. It knows its size and whether it has a value.
// The runtime decides where the bytes lie and keeps what it needs in `storage`. Planning a model
// costs no memory, since the first task makes the storage. Main thread only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace nn {

// What a tile holds, for plans. nn_tensor_kind sets it.
enum TileKind : uint8_t { other_kind, weights, gradients, optimizer_state, activations, cache };
constexpr int tile_kinds = 6;

// The number of the recording under way, 0 where there is none. Tiles made meanwhile are its
// temporaries: they take no memory until a replay. Numbers are never used twice.
uint32_t recording_number();
void set_recording_number(uint32_t number);  // by graph/recording.cc alone

class TileStorage {
public:
    virtual ~TileStorage() = default;
};

class Tile {
public:
    // A value exists from the submission of the first task that writes it.
    enum class Value : uint8_t {
        none,
        written,
        ended,  // lost at the engine's shutdown
        failed  // the task that writes it failed
    };

    explicit Tile(size_t bytes);
    ~Tile();
    Tile(const Tile&) = delete;
    Tile& operator=(const Tile&) = delete;

    bool has_value() const { return value == Value::written; }
    void check_readable(const char* op) const;  // throws where there is nothing to read

    const size_t bytes;
    const uint64_t number;     // of no other tile
    const uint32_t recording;  // the recording it is a temporary of, 0: it persists
    uint32_t version = 0;  // counts changes in place; a view remembers the version it was made at
    TileKind kind = other_kind;
    Value value = Value::none;
    bool recorded = false;  // a recorded task writes it: later tasks of recordings may read it
    std::unique_ptr<TileStorage> storage;
};
using TilePtr = std::shared_ptr<Tile>;

}  // namespace nn
