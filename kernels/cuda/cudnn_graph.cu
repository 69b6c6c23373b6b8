// Builds cuDNN's graphs and execution plans through its backend interface.
#if defined(NN_CUDNN)
#include "kernels/cuda/cudnn.h"
#include "kernels/kernel.h"

namespace nn::NN_TARGET {

bool CudnnFailure::check(cudnnStatus_t now, const char* what) {
    if (take_failure()) now = CUDNN_STATUS_EXECUTION_FAILED;
    if (status != CUDNN_STATUS_SUCCESS) return false;
    if (now == CUDNN_STATUS_SUCCESS) return true;
    char text[512] = "";
    cudnn().last_error(text, sizeof text);
    for (char& c : text)
        if (c == '\n') c = ' ';
    status = now, call = what;
    message =
        std::string(cudnn().status_string(now)) + (*text ? " (" : "") + text + (*text ? ")" : "");
    return false;
}

bool CudnnFailure::unsupported() const {
    const int kind = int(status) / 1000;
    return kind == 2 || kind == 3 || status == CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED;
}

Descriptor CudnnBuilder::make(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t d = nullptr;
    failure_.run("cudnnBackendCreateDescriptor",
                 [&] { return cudnn().descriptor_create(type, &d); });
    return Descriptor(d);
}

void CudnnBuilder::set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
    failure_.run("cudnnBackendSetAttribute",
                 [&] { return cudnn().set(d, name, type, count, values); });
}

void CudnnBuilder::finalize(cudnnBackendDescriptor_t d, const char* what) {
    failure_.run(what, [&] { return cudnn().finalize(d); });
}

cudnnBackendDescriptor_t CudnnGraph::own(cudnnBackendDescriptorType_t type) {
    descriptors_.push_back(make(type));
    return descriptors_.back().get();
}

void CudnnGraph::add(cudnnBackendDescriptor_t operation, const char* what) {
    finalize(operation, what);
    operations_.push_back(operation);
}

GraphTensor CudnnGraph::tensor(int64_t uid, cudnnDataType_t type, const Extent4& dim,
                               const Extent4& stride, bool is_virtual, bool is_by_value) {
    const cudnnBackendDescriptor_t d = own(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t alignment = 16;
    set(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim.data());
    set(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride.data());
    set(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
    set(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (is_virtual) set(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (is_by_value) set(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_by_value);
    finalize(d, "cudnnBackendFinalize of a tensor");
    return {d, dim, stride};
}

GraphTensor CudnnGraph::memory(int64_t uid, cudnnDataType_t type, const Extent4& dim,
                               const Extent4& stride) {
    return tensor(uid, type, dim, stride, false, false);
}
GraphTensor CudnnGraph::by_value(int64_t uid) {
    return tensor(uid, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, false, true);
}
GraphTensor CudnnGraph::temporary(cudnnDataType_t type, const Extent4& dim) {
    const Extent4 packed{dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    return tensor(next_uid_++, type, dim, packed, true, false);
}

void CudnnGraph::matmul(const GraphTensor& a, const GraphTensor& b, const GraphTensor& c) {
    const cudnnBackendDescriptor_t how = own(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finalize(how, "cudnnBackendFinalize of a product");
    const cudnnBackendDescriptor_t op = own(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    set(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    add(op, "cudnnBackendFinalize of a product");
}
GraphTensor CudnnGraph::matmul(const GraphTensor& a, const GraphTensor& b) {
    const GraphTensor c = temporary(CUDNN_DATA_FLOAT, {a.dim[0], a.dim[1], a.dim[2], b.dim[3]});
    matmul(a, b, c);
    return c;
}

void CudnnGraph::pointwise(cudnnPointwiseMode_t mode, const std::vector<GraphTensor>& inputs,
                           const GraphTensor& y, cudnnDataType_t precision, int64_t axis) {
    const cudnnBackendDescriptor_t how = own(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0) set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(how, "cudnnBackendFinalize of a pointwise operation");
    const cudnnBackendDescriptor_t op = own(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    const cudnnBackendAttributeName_t names[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                 CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                 CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    for (size_t i = 0; i < inputs.size(); ++i) set(op, names[i], inputs[i]);
    set(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    add(op, "cudnnBackendFinalize of a pointwise operation");
}
GraphTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode,
                                  const std::vector<GraphTensor>& inputs) {
    const bool compares = mode == CUDNN_POINTWISE_CMP_GE;
    const GraphTensor y =
        temporary(compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT, inputs[0].dim);
    pointwise(mode, inputs, y, compares ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    return y;
}
GraphTensor CudnnGraph::index(const GraphTensor& like, int64_t axis) {
    const GraphTensor y = temporary(CUDNN_DATA_INT32, like.dim);
    pointwise(CUDNN_POINTWISE_GEN_INDEX, {like}, y, CUDNN_DATA_FLOAT, axis);
    return y;
}

void CudnnGraph::reduce(cudnnReduceTensorOp_t kind, const GraphTensor& x, const GraphTensor& y) {
    const cudnnBackendDescriptor_t how = own(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    set(how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    set(how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
    finalize(how, "cudnnBackendFinalize of a reduction");
    const cudnnBackendDescriptor_t op = own(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    set(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    add(op, "cudnnBackendFinalize of a reduction");
}
GraphTensor CudnnGraph::reduce_columns(cudnnReduceTensorOp_t kind, const GraphTensor& x) {
    const GraphTensor y = temporary(CUDNN_DATA_FLOAT, {x.dim[0], x.dim[1], x.dim[2], 1});
    reduce(kind, x, y);
    return y;
}

GraphTensor CudnnGraph::transposed(const GraphTensor& x, cudnnDataType_t type) {
    const GraphTensor y = tensor(next_uid_++, type, {x.dim[0], x.dim[1], x.dim[3], x.dim[2]},
                                 {x.stride[0], x.stride[1], x.stride[3], x.stride[2]}, true, false);
    const cudnnBackendDescriptor_t op = own(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set(op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set(op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    add(op, "cudnnBackendFinalize of a transpose");
    return y;
}

Descriptor CudnnGraph::finish(cudnnHandle_t handle) {
    Descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph.get(), CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        int64_t(operations_.size()), operations_.data());
    if (handle) set(graph.get(), CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finalize(graph.get(), "cudnnBackendFinalize of the graph");
    return graph;
}

// --- plans ---

namespace {

constexpr int64_t max_suggestions = 16;

// cuDNN's suggestions, the best first.
std::vector<Descriptor> suggestions(const Descriptor& graph, cudnnBackendDescriptor_t device,
                                    CudnnFailure& failure) {
    CudnnBuilder builder(failure);
    const Descriptor owner = builder.make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendDescriptor_t heuristics = owner.get();
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    builder.set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.get());
    builder.set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (device) builder.set(heuristics, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    builder.finalize(heuristics, "cudnnBackendFinalize of the heuristics");
    std::vector<Descriptor> list;
    std::vector<cudnnBackendDescriptor_t> raw;
    for (int64_t i = 0; i < max_suggestions; ++i) {
        list.push_back(builder.make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        raw.push_back(list.back().get());
    }
    int64_t count = 0;
    failure.run("cudnnBackendGetAttribute of the heuristics", [&] {
        return cudnn().get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                           max_suggestions, &count, raw.data());
    });
    list.resize(size_t(count < max_suggestions ? count : max_suggestions));
    return list;
}

ExecutionPlan build(const Descriptor& suggestion, cudnnHandle_t handle, CudnnFailure& failure) {
    CudnnBuilder builder(failure);
    ExecutionPlan made;
    made.plan = builder.make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    const cudnnBackendDescriptor_t plan = made.plan.get();
    builder.set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, suggestion.get());
    if (handle) builder.set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    builder.finalize(plan, "cudnnBackendFinalize of a plan");
    int64_t count = 0;
    failure.run("cudnnBackendGetAttribute of a plan", [&] {
        return cudnn().get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                           &count, &made.workspace_bytes);
    });
    if (failure.status != CUDNN_STATUS_SUCCESS) made.plan.reset();
    return made;
}

}  // namespace

ExecutionPlan make_plan(const Descriptor& graph, cudnnHandle_t handle,
                        cudnnBackendDescriptor_t device, CudnnFailure& failure) {
    CudnnFailure last{CUDNN_STATUS_NOT_SUPPORTED, "the search for a plan", "cuDNN suggests none"};
    std::vector<Descriptor> list = suggestions(graph, device, failure);
    if (failure.status != CUDNN_STATUS_SUCCESS) return {};
    for (Descriptor& suggestion : list) {
        CudnnFailure here;
        ExecutionPlan made = build(suggestion, handle, here);
        made.descriptors.push_back(std::move(suggestion));
        if (made.plan) return made;
        last = here;
        if (!here.unsupported()) break;
    }
    failure = last;
    return {};
}

}  // namespace nn::NN_TARGET
#endif
