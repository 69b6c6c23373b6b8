// Emulates cuDNN's backend interface by plain loops in double, one operation of a graph after
// another. Checks its rules: descriptors are set before and used after they are finalized, shapes
// match, memory is given and aligned. Overwrites the workspace.
#include "kernels/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <vector>

namespace nn::test {
int64_t cudnn_executions();  // as in tests/cpp/cuda_device.h
}

struct EmulatedDnn {};

namespace {

struct Emulated {
    cudnnBackendDescriptorType_t type;
    bool finalized = false;
    std::map<int, std::vector<unsigned char>> attributes;

    bool has(int name) const { return attributes.count(name) > 0; }
    template <class T> std::vector<T> all(int name) const {
        const auto& bytes = attributes.at(name);
        std::vector<T> values(bytes.size() / sizeof(T));
        std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
    }
    template <class T> T one(int name) const { return all<T>(name).at(0); }
    const Emulated& other(int name) const {
        const auto& found = *static_cast<const Emulated*>(one<void*>(name));
        if (!found.finalized)
            throw std::invalid_argument("a descriptor is used before it is finalized");
        return found;
    }
};

int64_t executions = 0;
char last_error[200] = "";

// The longest sequence that is supported; bytes of workspace for each query of a head.
constexpr int64_t longest = 200, bytes_per_row = 8 << 10;

void need(bool good, const char* what) {
    if (!good) throw std::invalid_argument(what);
}

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
        case CUDNN_TYPE_BOOLEAN: return 1;
        case CUDNN_TYPE_HANDLE:
        case CUDNN_TYPE_INT64:
        case CUDNN_TYPE_VOID_PTR:
        case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
        default: return 4;
    }
}

template <class F> cudnnStatus_t guarded(F f) {
    try {
        f();
        return CUDNN_STATUS_SUCCESS;
    } catch (const std::exception& e) {
        std::snprintf(last_error, sizeof last_error, "%s", e.what());
        return CUDNN_STATUS_BAD_PARAM;
    }
}

struct View {
    std::vector<int64_t> dim, stride;
    cudnnDataType_t type;
    int64_t uid;
    bool is_virtual, by_value;
    int64_t count() const { return dim[0] * dim[1] * dim[2] * dim[3]; }
};
View view_of(const Emulated& t) {
    need(t.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR, "a tensor is needed");
    return {
        t.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
        t.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
        t.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE),
        t.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
        t.has(CUDNN_ATTR_TENSOR_IS_VIRTUAL) && t.one<unsigned char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL),
        t.has(CUDNN_ATTR_TENSOR_IS_BY_VALUE) &&
            t.one<unsigned char>(CUDNN_ATTR_TENSOR_IS_BY_VALUE)};
}

using Index = std::array<int64_t, 4>;
template <class F> void each(const View& v, F f) {
    Index i{};
    int64_t n = 0;
    for (i[0] = 0; i[0] < v.dim[0]; ++i[0])
        for (i[1] = 0; i[1] < v.dim[1]; ++i[1])
            for (i[2] = 0; i[2] < v.dim[2]; ++i[2])
                for (i[3] = 0; i[3] < v.dim[3]; ++i[3]) f(i, n++);
}
// The index of i in the contiguous values of v. Axes of 1 broadcast; several heads may share one.
int64_t position(const View& v, const Index& i, int64_t heads) {
    const int64_t h = v.dim[1] == heads ? i[1] : i[1] / (heads / v.dim[1]);
    const auto at = [&](int axis, int64_t k) { return v.dim[size_t(axis)] == 1 ? 0 : k; };
    return ((at(0, i[0]) * v.dim[1] + at(1, h)) * v.dim[2] + at(2, i[2])) * v.dim[3] + at(3, i[3]);
}
int64_t offset(const View& v, const Index& i) {
    return i[0] * v.stride[0] + i[1] * v.stride[1] + i[2] * v.stride[2] + i[3] * v.stride[3];
}

float wide(uint16_t x) {
    const uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}
uint16_t narrow(double x) {
    const float single = float(x);
    uint32_t bits;
    std::memcpy(&bits, &single, 4);
    return std::isnan(single) ? 0x7FFF : uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
double rounded(double x, cudnnDataType_t type) {
    return type == CUDNN_DATA_BFLOAT16 ? double(wide(narrow(x))) : double(float(x));
}

class Run {
public:
    explicit Run(const Emulated& pack) {
        const auto uids = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
        const auto pointers = pack.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
        need(uids.size() == pointers.size(), "as many pointers as uids are needed");
        for (size_t i = 0; i < uids.size(); ++i) memory_[uids[i]] = pointers[i];
    }
    void operation(const Emulated& op) {
        switch (op.type) {
            case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return matmul(op);
            case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return pointwise(op);
            case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return reduce(op);
            case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return reshape(op);
            default: need(false, "unknown operation");
        }
    }

private:
    using Values = std::vector<double>;

    const Values& values(const View& v) {
        const auto known = values_.find(v.uid);
        if (known != values_.end()) return known->second;
        need(!v.is_virtual && memory_.count(v.uid), "a tensor is read before it is computed");
        const void* at = memory_[v.uid];
        need(v.by_value || reinterpret_cast<uintptr_t>(at) % 16 == 0, "16-byte alignment");
        Values& list = values_[v.uid];
        each(v, [&](const Index& i, int64_t) {
            const int64_t k = offset(v, i);
            list.push_back(v.type == CUDNN_DATA_BFLOAT16
                               ? double(wide(static_cast<const uint16_t*>(at)[k]))
                               : double(static_cast<const float*>(at)[k]));
        });
        return list;
    }
    void keep(const View& v, Values list) {
        for (double& x : list) x = rounded(x, v.type);
        if (!v.is_virtual) {
            need(memory_.count(v.uid), "memory of an output is missing");
            void* at = memory_[v.uid];
            need(reinterpret_cast<uintptr_t>(at) % 16 == 0, "16-byte alignment");
            each(v, [&](const Index& i, int64_t n) {
                if (v.type == CUDNN_DATA_BFLOAT16)
                    static_cast<uint16_t*>(at)[offset(v, i)] = narrow(list[size_t(n)]);
                else
                    static_cast<float*>(at)[offset(v, i)] = float(list[size_t(n)]);
            });
        }
        need(!values_.count(v.uid), "a tensor is computed twice");
        values_[v.uid] = std::move(list);
    }

    void matmul(const Emulated& op) {
        const View a = view_of(op.other(CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
                   b = view_of(op.other(CUDNN_ATTR_OPERATION_MATMUL_BDESC)),
                   c = view_of(op.other(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
        need(a.dim[3] == b.dim[2] && c.dim[2] == a.dim[2] && c.dim[3] == b.dim[3] &&
                 a.dim[1] % b.dim[1] == 0 && a.dim[1] == c.dim[1] && a.dim[0] == b.dim[0],
             "the shapes of a product do not match");
        const Values &x = values(a), &y = values(b);
        Values z(size_t(c.count()));
        each(c, [&](const Index& i, int64_t n) {
            const int64_t from = position(a, {i[0], i[1], i[2], 0}, c.dim[1]),
                          to = position(b, {i[0], i[1], 0, i[3]}, c.dim[1]);
            for (int64_t k = 0; k < a.dim[3]; ++k)
                z[size_t(n)] += x[size_t(from + k)] * y[size_t(to + k * b.dim[3])];
        });
        keep(c, std::move(z));
    }

    static double apply(cudnnPointwiseMode_t mode, double x, double b, double t) {
        switch (mode) {
            case CUDNN_POINTWISE_ADD: return x + b;
            case CUDNN_POINTWISE_MUL: return x * b;
            case CUDNN_POINTWISE_DIV: return x / b;
            case CUDNN_POINTWISE_SUB: return x - b;
            case CUDNN_POINTWISE_EXP: return std::exp(x);
            case CUDNN_POINTWISE_LOG: return std::log(x);
            case CUDNN_POINTWISE_CMP_GE: return x >= b;
            case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
            default: return x;
        }
    }
    void pointwise(const Emulated& op) {
        const Emulated& how = op.other(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
        const auto mode = how.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
        const View y = view_of(op.other(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
        std::vector<View> views;
        for (int name : {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                         CUDNN_ATTR_OPERATION_POINTWISE_TDESC})
            if (op.has(name)) views.push_back(view_of(op.other(name)));
        for (const View& v : views)
            for (size_t axis = 0; axis < 4; ++axis)
                need(v.dim[axis] == y.dim[axis] || v.dim[axis] == 1, "a shape does not broadcast");
        Values z(size_t(y.count()));
        if (mode == CUDNN_POINTWISE_GEN_INDEX) {
            const auto axis = size_t(how.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS));
            each(y, [&](const Index& i, int64_t n) { z[size_t(n)] = double(i[axis]); });
            return keep(y, std::move(z));
        }
        std::vector<const Values*> inputs;
        for (const View& v : views) inputs.push_back(&values(v));
        each(y, [&](const Index& i, int64_t n) {
            double in[3] = {};
            for (size_t k = 0; k < views.size(); ++k)
                in[k] = (*inputs[k])[size_t(position(views[k], i, views[k].dim[1]))];
            z[size_t(n)] = apply(mode, in[0], in[1], in[2]);
        });
        keep(y, std::move(z));
    }

    // Over columns, or over heads that share one.
    void reduce(const Emulated& op) {
        const View x = view_of(op.other(CUDNN_ATTR_OPERATION_REDUCTION_XDESC)),
                   y = view_of(op.other(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
        const bool largest = op.other(CUDNN_ATTR_OPERATION_REDUCTION_DESC)
                                 .one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR) ==
                             CUDNN_REDUCE_TENSOR_MAX;
        need(x.dim[0] == y.dim[0] && x.dim[1] % y.dim[1] == 0 && x.dim[2] == y.dim[2] &&
                 (y.dim[3] == 1 || y.dim[3] == x.dim[3]),
             "the shapes of a reduction do not match");
        const Values& in = values(x);
        Values z(size_t(y.count()), largest ? -INFINITY : 0.0);
        each(x, [&](const Index& i, int64_t n) {
            double& to = z[size_t(position(y, i, x.dim[1]))];
            to = largest ? std::max(to, in[size_t(n)]) : to + in[size_t(n)];
        });
        keep(y, std::move(z));
    }

    void reshape(const Emulated& op) {
        const View x = view_of(op.other(CUDNN_ATTR_OPERATION_RESHAPE_XDESC)),
                   y = view_of(op.other(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
        need(x.dim[2] == y.dim[3] && x.dim[3] == y.dim[2] && x.dim[1] == y.dim[1],
             "only the last two axes may be exchanged");
        const Values& in = values(x);
        Values z(in.size());
        each(y, [&](const Index& i, int64_t n) {
            z[size_t(n)] = in[size_t(position(x, {i[0], i[1], i[3], i[2]}, x.dim[1]))];
        });
        keep(y, std::move(z));
    }

    std::map<int64_t, void*> memory_;
    std::map<int64_t, Values> values_;
};

std::vector<void*> operations(const Emulated& graph) {
    return graph.all<void*>(CUDNN_ATTR_OPERATIONGRAPH_OPS);
}
// The shape of the first product, which are the scores.
std::vector<int64_t> scores_of(const Emulated& graph) {
    for (void* op : operations(graph)) {
        const auto& e = *static_cast<const Emulated*>(op);
        if (e.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            return view_of(e.other(CUDNN_ATTR_OPERATION_MATMUL_CDESC)).dim;
    }
    return {0, 0, 0, 0};
}
const Emulated& graph_of(const Emulated& plan) {
    return plan.other(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        .other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
}
int64_t workspace_of(const Emulated& plan) {
    const std::vector<int64_t> d = scores_of(graph_of(plan));
    return d[0] * d[1] * d[2] * bytes_per_row;
}

}  // namespace

int64_t nn::test::cudnn_executions() { return executions; }

const nn::emulated::CudnnApi& nn::emulated::cudnn() {
#define NN_VALUE(name, function) function,
    static const CudnnApi api{NN_CUDNN_API(NN_VALUE) 91900, "emulated cuDNN"};
    return api;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
    *handle = new EmulatedDnn;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
const char* cudnnGetErrorString(cudnnStatus_t code) {
    return code == CUDNN_STATUS_EXECUTION_FAILED ? "CUDNN_STATUS_EXECUTION_FAILED"
           : code == CUDNN_STATUS_NOT_SUPPORTED  ? "CUDNN_STATUS_NOT_SUPPORTED"
                                                 : "CUDNN_STATUS_BAD_PARAM";
}
void cudnnGetLastErrorString(char* text, size_t size) {
    std::snprintf(text, size, "%s", last_error);
    *last_error = 0;
}
cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* d) {
    *d = new Emulated{type, false, {}};
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    delete static_cast<Emulated*>(d);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    return guarded([&] {
        auto& e = *static_cast<Emulated*>(d);
        need(!e.finalized, "a descriptor is finalized twice");
        if (e.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
            need(view_of(e).dim.size() == 4 && view_of(e).stride.size() == 4, "4 axes are needed");
        e.finalized = true;
    });
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
    return guarded([&] {
        auto& e = *static_cast<Emulated*>(d);
        need(!e.finalized, "an attribute is set after finalize");
        const auto* bytes = static_cast<const unsigned char*>(values);
        e.attributes[name].assign(bytes, bytes + size_t(count) * size_of(type));
    });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t wanted, int64_t* count,
                                       void* values) {
    return guarded([&] {
        const auto& e = *static_cast<const Emulated*>(d);
        need(e.finalized && wanted > 0, "an attribute is read before finalize");
        *count = 1;
        if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
            *static_cast<int64_t*>(values) = workspace_of(e);
            return;
        }
        need(name == CUDNN_ATTR_ENGINEHEUR_RESULTS, "unknown attribute");
        const Emulated& graph = e.other(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        if (scores_of(graph)[2] > longest) {
            *count = 0;
            return;
        }
        auto& suggestion = *static_cast<Emulated*>(*static_cast<void**>(values));
        suggestion.attributes = e.attributes;
        suggestion.finalized = true;
    });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
    return guarded([&] {
        need(handle, "a handle is needed");
        const auto &p = *static_cast<const Emulated*>(plan),
                   &given = *static_cast<const Emulated*>(pack);
        need(p.finalized && given.finalized, "a plan is executed before finalize");
        std::memset(given.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), 0xFF,
                    size_t(workspace_of(p)));
        Run run(given);
        for (void* op : operations(graph_of(p))) run.operation(*static_cast<const Emulated*>(op));
        ++executions;
    });
}
