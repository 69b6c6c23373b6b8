// The destination of emitted tasks: the current sink either submits them at once or records them
// (graph/recording.h), which is hidden from tiles and ops. Main thread only.
#pragma once
#include <cstdint>
#include <utility>

#include "engine/graph/task.h"

namespace nn {

class Sink {
public:
    virtual ~Sink() = default;
    virtual void emit(Task&& task) = 0;
    virtual uint64_t next_random() = 0;  // the counter of a random op's key
    virtual void add_to_scalar(int32_t scalar, double delta) = 0;
    // Called around the tasks of one op: see OpEmission.
    virtual void begin_op() {}
    virtual void commit_op() {}
    virtual void end_op() {}
};

inline Sink* sink_in_use = nullptr;
inline Sink& sink() { return *sink_in_use; }
inline Sink* use_sink(Sink* sink) { return std::exchange(sink_in_use, sink); }  // the previous one

// Tasks emitted while one exists wait for commit(), so an op that fails half-way changes nothing,
// and an op that runs out of memory can be tried again.
class OpEmission {
public:
    OpEmission() { sink().begin_op(); }
    ~OpEmission() { sink().end_op(); }
    OpEmission(const OpEmission&) = delete;
    void commit() { sink().commit_op(); }
};

}  // namespace nn
