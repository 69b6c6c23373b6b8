// The copies of owned tiles that another rank receives while it runs a program. They lie in a few
// buffers, temporaries of the program, so that a rank never has all weights at once: tasks on a
// buffer order each copy after the last use of the one before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/tile/tile.h"

namespace nn {

class Copies {
public:
    // A task of this rank that reads a tile of another one. Add them in the order of the program,
    // before the first call of copy_for().
    struct Use {
        uint32_t tile;
        size_t task;
        size_t bytes;
        const char* layer;
    };
    void add(const Use& use);

    struct Copy {
        TilePtr buffer;
        bool is_new;  // the value must be received first
    };
    // The buffer that holds the tile's value for a task. recording: of the program, if this process
    // is the rank, which needs the buffers; else 0.
    Copy copy_for(uint32_t tile, size_t task, size_t bytes, uint32_t recording);
    void forget(uint32_t tile);  // its value changes

private:
    struct Buffer {
        size_t bytes;
        uint32_t tile;
        size_t last_task;
        TilePtr memory;
    };
    size_t next_use(uint32_t tile, size_t after) const;
    Buffer& buffer_for(size_t bytes, size_t task, uint32_t recording);

    std::vector<Buffer> buffers_;
    std::map<uint32_t, std::vector<size_t>> uses_;  // tasks of each tile
    std::map<size_t, size_t> most_in_layer_;        // most tiles of a layer, by bytes
    std::map<std::pair<const char*, size_t>, std::vector<uint32_t>> in_layer_;
};

}  // namespace nn
