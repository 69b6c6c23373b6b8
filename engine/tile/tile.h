// A tile: a contiguous row-major block of one dtype. It has a size and a state; the runtime manages
// its bytes in `storage`, which the first task creates, so planning a model costs no memory. Main
// thread only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

namespace nn {

// The kind of a tile, set by nn_tensor_kind, for plans.
enum TileKind : uint8_t { other_kind, weights, gradients, optimizer_state, activations, cache };
constexpr int tile_kinds = 6;

// The number of the current recording, 0 if none. Tiles created during a recording are its
// temporaries: they take no memory until a replay. Numbers are not reused.
uint32_t recording_number();
void set_recording_number(uint32_t number);  // only for graph/recording.cc and InRecording
uint64_t tiles_created();                    // the number of the newest tile
// Tiles that are created while it exists are temporaries of the recording.
struct InRecording {
    explicit InRecording(uint32_t number) : before(recording_number()) {
        set_recording_number(number);
    }
    ~InRecording() { set_recording_number(before); }
    InRecording(const InRecording&) = delete;
    const uint32_t before;
};

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
        ended,   // lost in a shutdown of the engine
        failed,  // its task failed
        remote   // another rank keeps it
    };

    explicit Tile(size_t bytes);
    ~Tile();
    Tile(const Tile&) = delete;
    Tile& operator=(const Tile&) = delete;

    bool has_value() const { return value == Value::written; }
    // Whether it lasts from run to run of a program, or would do so if a plan became true.
    bool persists() const { return recording == 0 || is_planned; }
    void check_readable(const char* op) const;  // throws if the tile has no value
    // From now on only this rank keeps a value between tasks. Elsewhere the tile takes no memory.
    void keep_on(int32_t rank, bool is_this_one);
    void keep_on_all();

    const size_t bytes;
    const uint64_t number;     // unique
    const uint32_t recording;  // the recording that created it; 0: none
    bool is_planned = false;   // the recording is a plan (graph/recording.h), which it outlives
    uint32_t version = 0;      // counts changes in place; a view stores the version at its creation
    uint64_t write = 0;        // of its present value (workers/tile_checks.h)
    TileKind kind = other_kind;
    Value value = Value::none;
    int32_t owner = -1;       // the rank that changes the persistent tile; -1: not yet known
    bool only_owner = false;  // keeps a value; see keep_on()
    bool recorded = false;    // a recorded task writes it, so later recorded tasks may read it
    std::unique_ptr<TileStorage> storage;
    void* handle = nullptr;  // of the storage, for the runtime

private:
    void set_admitted(bool wanted);
    bool is_admitted_;  // its bytes count in memory/admission.h
};
using TilePtr = std::shared_ptr<Tile>;

}  // namespace nn
