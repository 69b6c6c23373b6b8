// Attention by cuDNN, if it is installed and has a kernel for the shape: bf16, heads of 64 or 128,
// no dropout, window, mask or bias, and a pair of tiles that holds all keys of its queries.
// Execution plans are kept per worker and shape. If a plan needs more memory than the workspace
// has, sequences, and then heads, are computed in chunks. All other calls run our own kernels.
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/device.h"

#if defined(NN_CUDNN)
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>

#include "kernels/cuda/attention_graph.h"

namespace nn::NN_TARGET {
namespace {

// From Blackwell on, the deterministic kernel is one that cuDNN does not suggest (cudnn-frontend
// selects it by number).
constexpr int last_deterministic = 9;

// Sequences and heads of one execution; 0 if cuDNN does not support the case.
struct ChunkSize {
    int64_t sequences, kv_heads;
};
struct Cudnn {
    cudnnHandle_t handle = nullptr;
    int generation = 0;  // of the GPU: 9 for Hopper
    std::map<AttentionCase, ExecutionPlan> plans;
    std::map<AttentionCase, ChunkSize> chunk_sizes;  // of whole tiles
    ~Cudnn() {
        plans.clear();
        if (handle) cudnn().destroy(handle);
    }
};

// False, and the call fails, if there is a failure.
bool succeeded(const KernelCall& call, const CudnnFailure& failure) {
    return failure.status == CUDNN_STATUS_SUCCESS ||
           failed(call, failure.call, failure.message.c_str());
}

AttentionCase whole_case(const nn_attention_params& p, bool backward) {
    AttentionCase c{p.batch, p.heads, p.kv_heads, p.head_dim, p.q_len};
    c.out_width = p.heads * p.head_dim, c.width = c.out_width + 2 * p.kv_heads * p.head_dim;
    c.causal = p.causal != 0, c.backward = backward;
    c.deterministic = backward && p.backend == nn_attention_auto;
    return c;
}
AttentionCase chunk_case(const AttentionCase& whole, const ChunkSize& size) {
    AttentionCase chunk = whole;
    chunk.batch = size.sequences, chunk.kv_heads = size.kv_heads;
    chunk.heads = whole.heads / whole.kv_heads * size.kv_heads;
    return chunk;
}

// Offsets in the workspace: lse at 0, delta, dq_sum, cuDNN's own.
struct Layout {
    int64_t delta, dq_sum, own, end;
};
Layout layout_of(const AttentionCase& c, int64_t own_bytes) {
    const auto padded = [](int64_t bytes) { return ceil_div(bytes, 256) * 256; };
    const int64_t rows = padded(c.rows() * 4);
    Layout at{rows, c.backward ? 2 * rows : rows, 0, 0};
    at.own = at.dq_sum + (c.sums_dq() ? padded(c.rows() * c.head_dim * 4) : 0);
    at.end = at.own + own_bytes;
    return at;
}

// Prints, once for each case, why our kernels run instead of cuDNN.
void warn(const AttentionCase& c, const std::string& why) {
    static std::mutex mutex;
    static std::set<std::string> printed;
    char text[512];
    std::snprintf(text, sizeof text,
                  "nnlua: %s does not support attention of (%lld,%lld,%lld heads of %lld, %lld of "
                  "keys), %s; nnlua's own kernel runs instead: %s\n",
                  cudnn().description.c_str(), (long long)c.batch, (long long)c.len,
                  (long long)c.heads, (long long)c.head_dim, (long long)c.kv_heads,
                  c.backward ? "backward" : "forward", why.c_str());
    std::lock_guard lock(mutex);
    if (printed.insert(text).second) std::fputs(text, stderr);
}

// The plan of a chunk; nullptr and a failure if there is none. The next call then tries again.
const ExecutionPlan* find_plan(const KernelCall& call, const AttentionCase& c,
                               CudnnFailure& failure) {
    Cudnn& state = *static_cast<Cudnn*>(call.gpu->cudnn);
    const auto known = state.plans.find(c);
    if (known != state.plans.end()) return &known->second;
    ExecutionPlan plan = attention_plan(c, state.handle, nullptr, failure);
    if (!plan.plan) return nullptr;
    return &(state.plans[c] = std::move(plan));
}

// The largest chunks that fit into the workspace; 0 sequences if cuDNN does not support the case.
// nullptr if the call has failed.
const ChunkSize* find_chunk_size(const KernelCall& call, const AttentionCase& whole) {
    Cudnn& state = *static_cast<Cudnn*>(call.gpu->cudnn);
    const auto known = state.chunk_sizes.find(whole);
    if (known != state.chunk_sizes.end()) return &known->second;
    const int64_t available = int64_t(call.gpu->workspace_bytes);
    // The chunk size for `count`, so that chunks fit and have nearly equal sizes.
    const auto divide = [&](int64_t count, int64_t need) {
        const int64_t fits = int64_t(double(count) * double(available) / double(need));
        const int64_t limit = larger<int64_t>(1, smaller<int64_t>(count - 1, fits));
        return ceil_div(count, ceil_div(count, limit));
    };
    ChunkSize size{whole.batch, whole.kv_heads};
    CudnnFailure failure;
    std::string why;
    if (whole.deterministic && state.generation > last_deterministic)
        why = "it is not deterministic on this GPU";
    while (why.empty()) {
        const AttentionCase chunk = chunk_case(whole, size);
        const ExecutionPlan* plan = find_plan(call, chunk, failure);
        if (!plan) {
            if (!failure.unsupported()) return succeeded(call, failure), nullptr;
            why = failure.text();
            break;
        }
        const int64_t need = layout_of(chunk, plan->workspace_bytes).end;
        if (need <= available) return &(state.chunk_sizes[whole] = size);
        if (size.sequences > 1)
            size.sequences = divide(size.sequences, need);
        else if (size.kv_heads > 1)
            size.kv_heads = divide(size.kv_heads, need);
        else
            why = "it needs " + std::to_string(need) + " bytes of workspace; " +
                  std::to_string(available) + " are available";
    }
    warn(whole, why);
    return &(state.chunk_sizes[whole] = ChunkSize{0, 0});
}

// --- one chunk ---

// Its case, and its first sequence and heads in the whole.
struct Chunk {
    AttentionCase c;
    int64_t whole_heads, b0, h0, kv0;
};

// Copies the workspace's lse from or to `stats`, whose rows are (log-sum-exp, 1).
template <bool from_stats>
__global__ void __launch_bounds__(threads)
    lse_kernel(float* lse, float* stats, int64_t rows, int64_t heads, int64_t len,
               int64_t whole_heads, int64_t b0, int64_t h0) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= rows) return;
    const int64_t h = i / len % heads, b = i / (len * heads);
    float* stat = stats + (((b0 + b) * whole_heads + h0 + h) * len + i % len) * 2;
    if (from_stats)
        lse[i] = stat[0];
    else
        stat[0] = lse[i], stat[1] = 1;
}
template <bool from_stats> bool copy_lse(const KernelCall& call, const Chunk& chunk, float* stats) {
    const int64_t rows = chunk.c.rows();
    return launch_each(call, rows, 1, lse_kernel<from_stats>, call.gpu->workspace, stats, rows,
                       chunk.c.heads, chunk.c.len, chunk.whole_heads, chunk.b0, chunk.h0);
}

// Tensors of a call by their uids.
struct Pointers {
    std::vector<int64_t> uids;
    std::vector<void*> at;
    void add(AttentionTensor tensor, const void* memory) {
        uids.push_back(tensor), at.push_back(const_cast<void*>(memory));
    }
};

bool execute(const KernelCall& call, const ExecutionPlan& plan, Pointers& pointers,
             void* workspace) {
    Cudnn& state = *static_cast<Cudnn*>(call.gpu->cudnn);
    CudnnFailure failure;
    CudnnBuilder builder(failure);
    failure.run("cudnnSetStream",
                [&] { return cudnn().set_stream(state.handle, stream_of(call)); });
    const Descriptor owner = builder.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const cudnnBackendDescriptor_t pack = owner.get();
    builder.set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                int64_t(pointers.uids.size()), pointers.uids.data());
    builder.set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                int64_t(pointers.at.size()), pointers.at.data());
    builder.set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    builder.finalize(pack, "cudnnBackendFinalize of a call");
    failure.run("cudnnBackendExecute",
                [&] { return cudnn().execute(state.handle, plan.plan.get(), pack); });
    return succeeded(call, failure);
}

// q, k and v of a chunk in a tile of qkv.
void add_packed(Pointers& pointers, const Chunk& chunk, const bf16* qkv, AttentionTensor q,
                AttentionTensor k, AttentionTensor v) {
    const AttentionCase& c = chunk.c;
    const bf16* first = qkv + chunk.b0 * c.len * c.width;
    const int64_t kv_heads = (c.width - c.out_width) / c.head_dim / 2;
    pointers.add(q, first + chunk.h0 * c.head_dim);
    pointers.add(k, first + c.out_width + chunk.kv0 * c.head_dim);
    pointers.add(v, first + c.out_width + (kv_heads + chunk.kv0) * c.head_dim);
}

bool run_chunk(const KernelCall& call, const Chunk& chunk, const ExecutionPlan& plan) {
    const AttentionCase& c = chunk.c;
    const auto& p = call.get<nn_attention_params>();
    const float scale = float(p.scale), masked = -INFINITY, one = 1;
    char* workspace = static_cast<char*>(call.gpu->workspace);
    const Layout at = layout_of(c, plan.workspace_bytes);
    const int64_t out = chunk.b0 * c.len * c.out_width + chunk.h0 * c.head_dim;
    Pointers pointers;
    add_packed(pointers, chunk, call.input<bf16>(c.backward ? 2 : 3), tensor_q, tensor_k, tensor_v);
    pointers.add(tensor_o, call.input<bf16>(c.backward ? 4 : 0) + out);
    pointers.add(tensor_lse, workspace);
    pointers.add(tensor_scale, &scale);
    if (c.causal) pointers.add(tensor_masked, &masked);
    if (!c.backward)
        return execute(call, plan, pointers, workspace + at.own) &&
               copy_lse<false>(call, chunk, call.operand<float>(2));
    add_packed(pointers, chunk, call.input<bf16>(0), tensor_dq, tensor_dk, tensor_dv);
    pointers.add(tensor_do, call.input<bf16>(5) + out);
    pointers.add(tensor_delta, workspace + at.delta);
    pointers.add(tensor_one, &one);
    if (c.sums_dq()) pointers.add(tensor_dq_sum, workspace + at.dq_sum);
    return copy_lse<true>(call, chunk, call.operand<float>(6)) &&
           execute(call, plan, pointers, workspace + at.own);
}

// Runs all chunks, or fails the call; false if cuDNN does not support one.
bool run_chunks(const KernelCall& call, const AttentionCase& whole, const ChunkSize& size) {
    for (int64_t b0 = 0; b0 < whole.batch; b0 += size.sequences)
        for (int64_t kv0 = 0; kv0 < whole.kv_heads; kv0 += size.kv_heads) {
            const ChunkSize here{smaller(size.sequences, whole.batch - b0),
                                 smaller(size.kv_heads, whole.kv_heads - kv0)};
            const Chunk chunk{chunk_case(whole, here), whole.heads, b0,
                              whole.heads / whole.kv_heads * kv0, kv0};
            CudnnFailure failure;
            const ExecutionPlan* plan = find_plan(call, chunk.c, failure);
            if (!plan && failure.unsupported()) return warn(chunk.c, failure.text()), false;
            if (!plan) return succeeded(call, failure), true;
            if (!run_chunk(call, chunk, *plan)) return true;
        }
    return true;
}

// Runs the call, or fails it; false if cuDNN does not support it.
bool run(const KernelCall& call, bool backward) {
    const AttentionCase c = whole_case(call.get<nn_attention_params>(), backward);
    const ChunkSize* size = find_chunk_size(call, c);
    return !size || (size->sequences > 0 && run_chunks(call, c, *size));
}

std::mutex reason_mutex;
std::string reason = "no GPU worker has opened cuDNN";  // why it is not used

}  // namespace

void* open_cudnn() {
    auto state = std::make_unique<Cudnn>();
    std::string why;
    try {
        int device = 0;
        if (cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetAttribute(&state->generation, cudaDevAttrComputeCapabilityMajor, device) !=
                cudaSuccess)
            throw std::runtime_error("CUDA does not report the GPU's generation");
        const cudnnStatus_t status = cudnn().create(&state->handle);
        if (status == CUDNN_STATUS_SUCCESS) return state.release();
        why = std::string("cudnnCreate failed: ") + cudnn().status_string(status);
        state->handle = nullptr;
    } catch (const std::runtime_error& e) {
        why = e.what();
    }
    std::lock_guard lock(reason_mutex);
    reason = why;
    return nullptr;
}

void close_cudnn(void* state) { delete static_cast<Cudnn*>(state); }

std::string cudnn_description() {
    try {
        const std::string found = cudnn().description;
        std::lock_guard lock(reason_mutex);
        return reason.rfind("cudnnCreate", 0) == 0 ? found + ": " + reason : found;
    } catch (const std::runtime_error& e) {
        return e.what();
    }
}

}  // namespace nn::NN_TARGET

#else

namespace nn::NN_TARGET {

namespace {
bool run(const KernelCall&, bool) { return false; }
}  // namespace
void* open_cudnn() { return nullptr; }
void close_cudnn(void*) {}
std::string cudnn_description() { return "this nnlua was built without cuDNN's headers"; }

}  // namespace nn::NN_TARGET

#endif

namespace nn::NN_TARGET {
namespace {

// Whether the call may run on cuDNN.
bool fits_cudnn(const KernelCall& call, bool backward) {
    const auto& p = call.get<nn_attention_params>();
    void* const* at = call.operands;
    const bool whole = !p.cross && p.q_start == p.k_start && p.q_len == p.k_len &&
                       (backward ? p.first_q && p.first_kv && at[0] == at[1]
                                 : p.first && p.last && at[3] == at[4]);
    return p.backend != nn_attention_nnlua && call.dtype == Dtype::bf16 && whole &&
           p.dropout == 0 && p.scale > 0 && p.window == 0 && !at[backward ? 7 : 5] &&
           !at[backward ? 8 : 6] && (p.head_dim == 64 || p.head_dim == 128) && p.q_len > 1 &&
           p.batch > 0 &&
           (backward ? all_aligned(at[0], at[2], at[4], at[5]) : all_aligned(at[0], at[3]));
}

}  // namespace

bool attention_cudnn(const KernelCall& call, bool backward) {
    if (!fits_cudnn(call, backward)) return false;
    if (call.gpu && call.gpu->cudnn) return run(call, backward);
    if (call.get<nn_attention_params>().backend != nn_attention_cudnn) return false;
    call.fail("nn.attention_backend is \"cudnn\", but %s", cudnn_description().c_str());
    return true;
}

}  // namespace nn::NN_TARGET
