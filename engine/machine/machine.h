// A machine: memory nodes, the links between them, workers and ranks.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel.h"

namespace nn {

// The rates of one worker: FLOP/s of products by dtype, bytes/s of a copy (read and written), and
// seconds of overhead per task.
struct Rates {
    double f32 = 0, f64 = 0, bf16 = 0, tf32 = 0, bytes = 0, start = 0;
    int multiprocessors = 0;  // of a GPU; 0: a CPU core
    double products(Dtype dtype) const {
        return dtype == Dtype::f64 ? f64 : dtype == Dtype::bf16 ? bf16 : f32;
    }
    bool known() const { return bytes > 0; }
};

enum class NodeKind : uint8_t { ram, gpu, disk };
struct MemoryNode {
    NodeKind kind;
    int number;                // among those of its kind, from 0
    int64_t bytes;             // capacity; 0: unknown
    std::string name() const;  // "RAM", "GPU 0", "disk"
};
// One direction between two memory nodes, by their positions in Machine::nodes.
struct Link {
    int from, to;
    double bytes_per_second;  // 0: unknown
};
// Identical workers on one memory node.
struct WorkerGroup {
    Device device;
    int node;  // position in Machine::nodes
    int count;
    Rates rates;  // known() only if described
};

struct Machine {
    int ranks = 1;                  // processes that share the work, each with all of these:
    double rank_link = 0;           // bytes/s that a rank sends, and receives, at once; 0: unknown
    std::vector<MemoryNode> nodes;  // RAM first
    std::vector<Link> links;
    std::vector<WorkerGroup> workers;

    int count(Device device) const;                 // workers
    const WorkerGroup* group(Device device) const;  // the first; nullptr if none
    int64_t bytes(NodeKind kind) const;             // of all nodes of that kind
    // Bytes/s of the slower direction between RAM and the first node of a kind; 0: unknown.
    double link_to(NodeKind kind) const;
};

}  // namespace nn
