// Groups of kernels as CUDA graphs: one call starts all kernels of a group, and the GPU goes from
// one to the next without the driver. The first run of a group starts its kernels one by one, so
// that the libraries load their code and choose their algorithms. The second records them. A later
// run with the same addresses and parameters starts the graph as it is; one with others records the
// kernels again and updates the graph.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/task.h"

namespace nn {

std::shared_ptr<GpuGraph> new_gpu_graph();  // nullptr without CUDA
void drop_gpu_graphs();                     // of all groups; no task may be in flight

#if defined(NN_CUDA)

// The graph of one group. Only the worker that runs the group calls these functions, and `stream`
// is that worker's.
class GpuGraph {
public:
    GpuGraph();
    ~GpuGraph();
    GpuGraph(const GpuGraph&) = delete;

    // Before each run, with its kernels. Returns false if they must be started one by one.
    bool prepare(const TaskArg* const* args, int count, const Operands* operands);
    // Whether launch() runs just these kernels. If not, start them between begin_recording() and
    // end_recording(), and then call launch().
    bool is_up_to_date() const { return exec_ && now_ == recorded_; }
    // These return false if CUDA or a kernel refuses, with a message on the terminal. Then no
    // kernel has started, and the group runs without a graph from now on.
    bool begin_recording(void* stream);
    bool end_recording(void* stream, const std::string& error_of_kernels);
    bool launch(void* stream);

    // Of each kernel; the graph has their addresses. A run ends before the next one of its group
    // begins, because both write the same tiles.
    Fault* faults() const { return faults_; }

private:
    friend void drop_gpu_graphs();
    void drop();
    bool refuse(const char* what, const char* reason);
    bool refuse(const char* call, int status);
    bool update(void* graph);
    void destroy_exec();

    void* exec_ = nullptr;  // cudaGraphExec_t
    Fault* faults_ = nullptr;
    bool has_run_ = false, refused_ = false;
    std::vector<unsigned char> recorded_, now_;  // operands and parameters of all kernels
};

#endif

}  // namespace nn
