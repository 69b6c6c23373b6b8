#include "engine/workers/gpu_graph.h"

#if defined(NN_CUDA)
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

namespace nn {
namespace {

std::mutex mutex;
std::set<GpuGraph*>& all_graphs() {
    static auto* const graphs = new std::set<GpuGraph*>;
    return *graphs;
}

void append(std::vector<unsigned char>& to, const void* data, size_t bytes) {
    const auto* const begin = static_cast<const unsigned char*>(data);
    to.insert(to.end(), begin, begin + bytes);
}

}  // namespace

std::shared_ptr<GpuGraph> new_gpu_graph() { return std::make_shared<GpuGraph>(); }

void drop_gpu_graphs() {
    const std::lock_guard lock(mutex);
    for (GpuGraph* graph : all_graphs()) graph->drop();
}

GpuGraph::GpuGraph() {
    const std::lock_guard lock(mutex);
    all_graphs().insert(this);
}

GpuGraph::~GpuGraph() {
    const std::lock_guard lock(mutex);
    all_graphs().erase(this);
    drop();
}

void GpuGraph::destroy_exec() {
    if (exec_) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(exec_));
    exec_ = nullptr;
}

void GpuGraph::drop() {
    destroy_exec();
    if (faults_) cudaFreeHost(faults_);
    faults_ = nullptr, has_run_ = refused_ = false;
}

bool GpuGraph::refuse(const char* what, const char* reason) {
    cudaGetLastError();  // later launches would report it
    refused_ = true;
    static std::once_flag once;
    std::call_once(once, [&] {
        std::fprintf(stderr, "nnlua: a group of kernels runs without a CUDA graph: %s: %s\n", what,
                     reason);
    });
    return false;
}
bool GpuGraph::refuse(const char* call, int status) {
    return refuse(call, cudaGetErrorString(cudaError_t(status)));
}

bool GpuGraph::prepare(const TaskArg* const* args, int count, const Operands* operands) {
    if (refused_ || !std::exchange(has_run_, true)) return false;
    now_.clear();
    for (int i = 0; i < count; ++i) {
        append(now_, operands[i].data(), args[i]->operands * sizeof(void*));
        append(now_, args[i]->params, args[i]->kernel->params_size);
    }
    if (faults_) return true;
    void* memory = nullptr;
    const cudaError_t status =
        cudaHostAlloc(&memory, size_t(count) * sizeof(Fault), cudaHostAllocPortable);
    if (status != cudaSuccess) return refuse("cudaHostAlloc", status);
    faults_ = static_cast<Fault*>(memory);
    std::fill_n(faults_, count, Fault{});
    return true;
}

bool GpuGraph::begin_recording(void* stream) {
    const cudaError_t status =
        cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal);
    return status == cudaSuccess || refuse("cudaStreamBeginCapture", status);
}

bool GpuGraph::end_recording(void* stream, const std::string& error_of_kernels) {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph);
    bool good = false;
    if (!error_of_kernels.empty())
        refuse("a kernel", error_of_kernels.c_str());
    else
        good = status == cudaSuccess ? update(graph) : refuse("cudaStreamEndCapture", status);
    if (graph) cudaGraphDestroy(graph);
    return good;
}

bool GpuGraph::update(void* graph) {
    const auto recorded = static_cast<cudaGraph_t>(graph);
    auto exec = static_cast<cudaGraphExec_t>(exec_);
    cudaGraphExecUpdateResultInfo info{};
    if (!exec || cudaGraphExecUpdate(exec, recorded, &info) != cudaSuccess) {
        cudaGetLastError();  // other kernels need another graph
        destroy_exec();
        const cudaError_t status = cudaGraphInstantiate(&exec, recorded, 0);
        if (status != cudaSuccess) return refuse("cudaGraphInstantiate", status);
        exec_ = exec;
    }
    recorded_ = now_;
    return true;
}

bool GpuGraph::launch(void* stream) {
    const cudaError_t status =
        cudaGraphLaunch(static_cast<cudaGraphExec_t>(exec_), static_cast<cudaStream_t>(stream));
    return status == cudaSuccess || refuse("cudaGraphLaunch", status);
}

}  // namespace nn

#else

namespace nn {
std::shared_ptr<GpuGraph> new_gpu_graph() { return nullptr; }
void drop_gpu_graphs() {}
}  // namespace nn

#endif
