// cuDNN's functions, looked up at run time, and the graphs of operations that it is given: the
// program starts on machines without cuDNN, nothing links it, and a build without its headers knows
// only our own kernels (NN_CUDNN is not set then).
#pragma once
#include <cudnn_graph.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace nn::NN_TARGET {

struct CudnnApi {
    decltype(&cudnnCreate) create;
    decltype(&cudnnDestroy) destroy;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnGetErrorString) status_string;
    decltype(&cudnnGetLastErrorString) last_error;
    decltype(&cudnnBackendCreateDescriptor) descriptor_create;
    decltype(&cudnnBackendDestroyDescriptor) descriptor_destroy;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendSetAttribute) set;
    decltype(&cudnnBackendGetAttribute) get;
    decltype(&cudnnBackendExecute) execute;
    size_t version;  // 91900: 9.19.0
    std::string description;
};

// Opened once; throws std::runtime_error naming what was tried.
const CudnnApi& cudnn();

struct DestroyDescriptor {
    void operator()(void* descriptor) const { cudnn().descriptor_destroy(descriptor); }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// The first status that was not success, and where it came from.
struct CudnnFailure {
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const char* call = "";
    std::string words;

    // Notes a failure, once; false if there is one. Failures on purpose come in here.
    bool check(cudnnStatus_t status, const char* call);
    // cuDNN has no kernel for what was asked, or none for this GPU; nothing is broken.
    bool refused() const;
};

// (batch, heads, rows, columns); strides in elements.
using Extent4 = std::array<int64_t, 4>;
struct GraphTensor {
    cudnnBackendDescriptor_t descriptor;
    Extent4 dim, stride;
};

// Operations that cuDNN turns into one kernel. After a failure all that follows does nothing.
class CudnnGraph {
public:
    explicit CudnnGraph(CudnnFailure& failure) : failure_(failure) {}

    // Memory of a call, named by uid; `by_value`: one float on the host.
    GraphTensor memory(int64_t uid, cudnnDataType_t type, const Extent4& dim,
                       const Extent4& stride);
    GraphTensor by_value(int64_t uid);
    // What an operation makes for others only. Contiguous.
    GraphTensor between(cudnnDataType_t type, const Extent4& dim);

    void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c);
    GraphTensor matmul(const GraphTensor& a, const GraphTensor& b);
    void pointwise(cudnnPointwiseMode_t mode, const std::vector<GraphTensor>& inputs,
                   const GraphTensor& y, cudnnDataType_t precision = CUDNN_DATA_FLOAT,
                   int64_t axis = -1);
    GraphTensor pointwise(cudnnPointwiseMode_t mode, const std::vector<GraphTensor>& inputs);
    GraphTensor index(const GraphTensor& like, int64_t axis);  // a position's place on the axis
    void reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
    GraphTensor reduce_columns(cudnnReduceTensorOp_t op, const GraphTensor& x);
    // The same elements with the last two axes exchanged.
    GraphTensor transposed(const GraphTensor& x, cudnnDataType_t type);

    // The finished graph; for the handle's device, or, without one, for no device in particular.
    Descriptor finish(cudnnHandle_t handle);
    std::vector<Descriptor> release() { return std::move(descriptors_); }

private:
    GraphTensor tensor(int64_t uid, cudnnDataType_t type, const Extent4& dim, const Extent4& stride,
                       bool is_virtual, bool is_by_value);
    cudnnBackendDescriptor_t make(cudnnBackendDescriptorType_t type);
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void* values);
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name, const GraphTensor& t) {
        set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t.descriptor);
    }
    void finalize(cudnnBackendDescriptor_t d, const char* what);

    CudnnFailure& failure_;
    std::vector<Descriptor> descriptors_;
    std::vector<cudnnBackendDescriptor_t> operations_;
    int64_t next_uid_ = 1000;
};

// How to run a graph: the kernel, and the bytes of device memory that it works in.
struct CudnnPlan {
    std::vector<Descriptor> made_of;  // lives as long as the plan
    Descriptor plan;
    int64_t workspace_bytes = 0;
};
// The first of cuDNN's suggestions that can be built; an empty plan, with the failure noted, if
// none can. `device` describes the GPU where there is no handle.
CudnnPlan make_plan(const Descriptor& graph, cudnnHandle_t handle, cudnnBackendDescriptor_t device,
                    CudnnFailure& failure);

}  // namespace nn::NN_TARGET
