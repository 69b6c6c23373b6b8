// CUDA graphs: a stream that records keeps its work in a list, and a graph puts a copy of the list
// on a stream.
#include <algorithm>
#include <memory>
#include <utility>

#include "tests/emulated/runtime/calls.h"

using namespace emulated;

namespace {

// The stream that the calling thread records, and whether a call has ended this.
thread_local Stream* recorded = nullptr;
thread_local bool is_invalid = false;

}  // namespace

void emulated::put(cudaStream_t stream, const char* name, std::function<void()> work) {
    Stream& s = stream_of(stream);
    auto checked = [device = s.device, work = std::move(work)] {
        if (error_of(device) == cudaSuccess) work();
    };
    if (s.recording)
        s.recording->push_back({name, std::move(checked)});
    else
        s.put(std::move(checked));
}

cudaError_t emulated::check_not_recording() {
    if (!recorded) return cudaSuccess;
    is_invalid = true;
    return failed(cudaErrorStreamCaptureUnsupported);
}

cudaError_t emulated::start_kernel(cudaStream_t stream, const char* name,
                                   std::function<void()> kernel) {
    CALL_ON_DEVICE;
    put(stream, name, std::move(kernel));
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    CALL_OUTSIDE_GRAPH;
    recorded = &stream_of(stream), is_invalid = false;
    recorded->recording = std::make_unique<Nodes>();
    return cudaSuccess;
}
// The recording ends even if this fails.
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    Stream& s = stream_of(stream);
    *graph = nullptr;
    if (recorded != &s) return failed(cudaErrorIllegalState);
    recorded = nullptr;
    const std::unique_ptr<Nodes> nodes = std::move(s.recording);
    CALL;
    if (is_invalid) return failed(cudaErrorStreamCaptureInvalidated);
    *graph = reinterpret_cast<cudaGraph_t>(new Nodes(*nodes));
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
    CALL;
    const bool records = stream_of(stream).recording != nullptr;
    *status = records ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
    CALL_OUTSIDE_GRAPH;
    *exec = reinterpret_cast<cudaGraphExec_t>(new Nodes(*reinterpret_cast<Nodes*>(graph)));
    return cudaSuccess;
}
// Kernels may get other parameters, but must be the same in the same order.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* result) {
    CALL_OUTSIDE_GRAPH;
    Nodes& old = *reinterpret_cast<Nodes*>(exec);
    const Nodes& nodes = *reinterpret_cast<Nodes*>(graph);
    const bool same = std::equal(old.begin(), old.end(), nodes.begin(), nodes.end(),
                                 [](const Node& a, const Node& b) { return a.name == b.name; });
    *result = {};
    result->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateError;
    if (!same) return failed(cudaErrorGraphExecUpdateFailure);
    old = nodes;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    CALL_OUTSIDE_GRAPH;
    for (const Node& node : *reinterpret_cast<Nodes*>(exec)) stream_of(stream).put(node.work);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    CALL;
    delete reinterpret_cast<Nodes*>(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    CALL;
    delete reinterpret_cast<Nodes*>(exec);
    return cudaSuccess;
}

}  // extern "C"
