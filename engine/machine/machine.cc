#include "engine/machine/machine.h"

#include <algorithm>

#include "engine/base/error.h"

namespace nn {

std::string MemoryNode::name() const {
    if (kind == NodeKind::gpu) return format("GPU %d", number);
    return kind == NodeKind::ram ? "RAM" : "disk";
}

int Machine::count(Device device) const {
    int out = 0;
    for (const WorkerGroup& g : workers) out += g.device == device ? g.count : 0;
    return out;
}

const WorkerGroup* Machine::group(Device device) const {
    for (const WorkerGroup& g : workers)
        if (g.device == device) return &g;
    return nullptr;
}

double Machine::link_to(NodeKind kind) const {
    double out = 0;
    for (const Link& link : links) {
        const int other = std::max(link.from, link.to);  // RAM is first
        const MemoryNode& node = nodes[size_t(other)];
        if (node.kind != kind || node.number != 0) continue;
        if (link.bytes_per_second <= 0) return 0;
        out = out > 0 ? std::min(out, link.bytes_per_second) : link.bytes_per_second;
    }
    return out;
}

int64_t Machine::bytes(NodeKind kind) const {
    int64_t out = 0;
    for (const MemoryNode& node : nodes) out += node.kind == kind ? node.bytes : 0;
    return out;
}

}  // namespace nn
