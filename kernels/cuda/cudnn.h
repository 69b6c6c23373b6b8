// cuDNN's functions, opened at run time (libraries.cu), and graphs of its operations. Builds
// without cuDNN's headers use our own kernels only; NN_CUDNN is then not defined.
#pragma once
#include <cudnn_graph.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#define NN_CUDNN_API(F)                                  \
    F(create, cudnnCreate)                               \
    F(destroy, cudnnDestroy)                             \
    F(set_stream, cudnnSetStream)                        \
    F(status_string, cudnnGetErrorString)                \
    F(last_error, cudnnGetLastErrorString)               \
    F(descriptor_create, cudnnBackendCreateDescriptor)   \
    F(descriptor_destroy, cudnnBackendDestroyDescriptor) \
    F(finalize, cudnnBackendFinalize)                    \
    F(set, cudnnBackendSetAttribute)                     \
    F(get, cudnnBackendGetAttribute)                     \
    F(execute, cudnnBackendExecute)

namespace nn::NN_TARGET {

struct CudnnApi {
#define NN_FIELD(name, function) decltype(&function) name;
    NN_CUDNN_API(NN_FIELD)
#undef NN_FIELD
    size_t version;  // 91900: 9.19.0
    std::string description;
};

// Throws std::runtime_error with the files tried.
const CudnnApi& cudnn();

struct DestroyDescriptor {
    void operator()(void* descriptor) const { cudnn().descriptor_destroy(descriptor); }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// The first status that is not success, and the call that returned it.
struct CudnnFailure {
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    const char* call = "";
    std::string message;

    // Records the first failure, injected ones too; false if there is one.
    bool check(cudnnStatus_t status, const char* call);
    bool unsupported() const;  // cuDNN has no kernel for this case or GPU; nothing is broken
    std::string text() const { return std::string(call) + ": " + message; }
    // Checks f() unless a call has failed.
    template <class F> void run(const char* what, F f) {
        if (status == CUDNN_STATUS_SUCCESS) check(f(), what);
    }
};

// Makes descriptors. After a failure all functions do nothing.
class CudnnBuilder {
public:
    explicit CudnnBuilder(CudnnFailure& failure) : failure_(failure) {}
    Descriptor make(cudnnBackendDescriptorType_t type);
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void* values);
    void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
             cudnnBackendDescriptor_t other) {
        set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &other);
    }
    void finalize(cudnnBackendDescriptor_t d, const char* what);

private:
    CudnnFailure& failure_;
};

// (batch, heads, rows, columns); strides in elements.
using Extent4 = std::array<int64_t, 4>;
struct GraphTensor {
    cudnnBackendDescriptor_t descriptor;
    Extent4 dim, stride;
    operator cudnnBackendDescriptor_t() const { return descriptor; }
};

// Operations that cuDNN fuses into one kernel.
class CudnnGraph : CudnnBuilder {
public:
    using CudnnBuilder::CudnnBuilder;

    // A tensor whose address a call gives by uid; by_value: one float on the host.
    GraphTensor memory(int64_t uid, cudnnDataType_t type, const Extent4& dim,
                       const Extent4& stride);
    GraphTensor by_value(int64_t uid);
    // The result of an operation for other operations only. Contiguous.
    GraphTensor temporary(cudnnDataType_t type, const Extent4& dim);

    void matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c);
    GraphTensor matmul(const GraphTensor& a, const GraphTensor& b);
    void pointwise(cudnnPointwiseMode_t mode, const std::vector<GraphTensor>& inputs,
                   const GraphTensor& y, cudnnDataType_t precision = CUDNN_DATA_FLOAT,
                   int64_t axis = -1);
    GraphTensor pointwise(cudnnPointwiseMode_t mode, const std::vector<GraphTensor>& inputs);
    GraphTensor index(const GraphTensor& like, int64_t axis);  // the position along the axis
    void reduce(cudnnReduceTensorOp_t op, const GraphTensor& x, const GraphTensor& y);
    GraphTensor reduce_columns(cudnnReduceTensorOp_t op, const GraphTensor& x);
    // The same elements with the last two axes exchanged.
    GraphTensor transposed(const GraphTensor& x, cudnnDataType_t type);

    // The finished graph, for the handle's device or, without a handle, for any.
    Descriptor finish(cudnnHandle_t handle);
    std::vector<Descriptor> release() { return std::move(descriptors_); }

private:
    GraphTensor tensor(int64_t uid, cudnnDataType_t type, const Extent4& dim, const Extent4& stride,
                       bool is_virtual, bool is_by_value);
    cudnnBackendDescriptor_t own(cudnnBackendDescriptorType_t type);  // as long as the graph
    void add(cudnnBackendDescriptor_t operation, const char* what);

    std::vector<Descriptor> descriptors_;
    std::vector<cudnnBackendDescriptor_t> operations_;
    int64_t next_uid_ = 1000;
};

// cuDNN's execution plan: the kernel, and the device memory that it needs.
struct ExecutionPlan {
    std::vector<Descriptor> descriptors;  // which the plan refers to
    Descriptor plan;
    int64_t workspace_bytes = 0;
};
// The first of cuDNN's suggestions that can be built; an empty plan and a failure if none can.
// Without a handle, `device` describes the GPU.
ExecutionPlan make_plan(const Descriptor& graph, cudnnHandle_t handle,
                        cudnnBackendDescriptor_t device, CudnnFailure& failure);

}  // namespace nn::NN_TARGET
