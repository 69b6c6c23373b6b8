// Attention by cuDNN, where it is there and has a kernel for the shape: bf16, heads of 64 or 128,
// no dropout, and a pair of tiles that is the whole of what its queries see. Plans are kept per
// worker and shape. Where a plan's memory exceeds the worker's workspace, sequences, and then
// heads, are taken in several goes. All else is for our own kernels.
#include <initializer_list>

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

constexpr unsigned threads = 256;
// From Blackwell on, the same bits take a kernel that cuDNN does not suggest by itself (cudnn-
// frontend names it by number).
constexpr int last_same_bits = 9;

// How much is done in one go; none where cuDNN refuses.
struct Goes {
    int64_t sequences, kv_heads;
};
struct Cudnn {
    cudnnHandle_t handle = nullptr;
    int generation = 0;  // of the GPU: 9 for Hopper
    std::map<AttentionCase, CudnnPlan> plans;
    std::map<AttentionCase, Goes> goes;  // of whole tiles
    ~Cudnn() {
        plans.clear();
        if (handle) cudnn().destroy(handle);
    }
};

bool check(const KernelCall& call, CudnnFailure& failure, cudnnStatus_t status, const char* what) {
    if (failure.check(status, what)) return true;
    call.fail("CUDA device %d: %s failed: %s", call.gpu->device, failure.call,
              failure.words.c_str());
    return false;
}

AttentionCase whole_case(const nn_attention_params& p, bool backward) {
    return {p.batch,
            p.heads,
            p.kv_heads,
            p.head_dim,
            p.q_len,
            (p.heads + 2 * p.kv_heads) * p.head_dim,
            p.heads * p.head_dim,
            p.causal != 0,
            backward,
            backward && p.backend == nn_attention_auto};
}
AttentionCase part_of(const AttentionCase& whole, const Goes& goes) {
    AttentionCase part = whole;
    part.batch = goes.sequences, part.kv_heads = goes.kv_heads;
    part.heads = whole.heads / whole.kv_heads * goes.kv_heads;
    return part;
}

// Where the workspace of a go begins: lse, delta, dq_sum, cuDNN's own.
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

// Tells once per text why our kernels run although cuDNN is there.
void note_refusal(const AttentionCase& c, const std::string& why) {
    static std::mutex mutex;
    static std::set<std::string> told;
    char text[512];
    std::snprintf(text, sizeof text,
                  "nnlua: %s takes no attention of (%lld,%lld,%lld heads of %lld, %lld of keys), "
                  "%s; nnlua's own kernel runs instead: %s\n",
                  cudnn().description.c_str(), (long long)c.batch, (long long)c.len,
                  (long long)c.heads, (long long)c.head_dim, (long long)c.kv_heads,
                  c.backward ? "backward" : "forward", why.c_str());
    std::lock_guard lock(mutex);
    if (told.insert(text).second) std::fputs(text, stderr);
}

// The plan of a go; nullptr, with the failure noted, if there is none. Only plans are kept, so that
// what failed is tried again.
const CudnnPlan* find_plan(const KernelCall& call, const AttentionCase& c, CudnnFailure& failure) {
    Cudnn& state = *static_cast<Cudnn*>(call.gpu->cudnn);
    const auto known = state.plans.find(c);
    if (known != state.plans.end()) return &known->second;
    CudnnPlan plan = attention_plan(c, state.handle, nullptr, failure);
    if (!plan.plan) return nullptr;
    return &(state.plans[c] = std::move(plan));
}

// The largest goes that fit the workspace; with 0 sequences if cuDNN refuses, which is remembered.
// nullptr, with the call failed, where cuDNN fails.
const Goes* find_goes(const KernelCall& call, const AttentionCase& whole) {
    Cudnn& state = *static_cast<Cudnn*>(call.gpu->cudnn);
    const auto known = state.goes.find(whole);
    if (known != state.goes.end()) return &known->second;
    const int64_t room = int64_t(call.gpu->workspace_bytes);
    // What of `count` fits, and as few more goes as possible of nearly that size.
    const auto share = [](int64_t count, int64_t have, int64_t need) {
        const int64_t fits = int64_t(double(count) * double(have) / double(need));
        const int64_t most = larger<int64_t>(1, smaller<int64_t>(count - 1, fits));
        return ceil_div(count, ceil_div(count, most));
    };
    Goes goes{whole.batch, whole.kv_heads};
    CudnnFailure failure;
    std::string why;
    if (whole.same_bits && state.generation > last_same_bits)
        why = "on this GPU it does not give the same bits each time";
    while (why.empty()) {
        const AttentionCase part = part_of(whole, goes);
        const CudnnPlan* plan = find_plan(call, part, failure);
        if (!plan) {
            if (!failure.refused()) return check(call, failure, failure.status, ""), nullptr;
            why = std::string(failure.call) + ": " + failure.words;
            break;
        }
        const int64_t need = layout_of(part, plan->workspace_bytes).end;
        if (need <= room) return &(state.goes[whole] = goes);
        if (goes.sequences > 1)
            goes.sequences = share(goes.sequences, room, need);
        else if (goes.kv_heads > 1)
            goes.kv_heads = share(goes.kv_heads, room, need);
        else
            why = "it needs " + std::to_string(need) + " bytes of workspace, of which there are " +
                  std::to_string(room);
    }
    note_refusal(whole, why);
    return &(state.goes[whole] = Goes{0, 0});
}

// --- one go ---

// Which sequences and heads of the whole.
struct Part {
    AttentionCase c;
    int64_t whole_heads, b0, h0, kv0;
};

// The workspace's lse from or to `stats`, whose rows are (log-sum-exp, 1).
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
template <bool from_stats> bool copy_lse(const KernelCall& call, const Part& part, float* stats) {
    const int64_t rows = part.c.rows();
    return launch(call, {blocks_for(rows, threads), threads}, lse_kernel<from_stats>,
                  static_cast<float*>(call.gpu->workspace), stats, rows, part.c.heads, part.c.len,
                  part.whole_heads, part.b0, part.h0);
}

// Tensors of a call by their uids.
struct Pointers {
    std::vector<int64_t> uids;
    std::vector<void*> at;
    void add(AttentionTensor tensor, const void* memory) {
        uids.push_back(tensor), at.push_back(const_cast<void*>(memory));
    }
};

bool execute(const KernelCall& call, const CudnnPlan& plan, Pointers& pointers, void* workspace) {
    Cudnn& state = *static_cast<Cudnn*>(call.gpu->cudnn);
    CudnnFailure failure;
    cudnnBackendDescriptor_t pack = nullptr, raw = plan.plan.get();
    if (!check(call, failure, cudnn().set_stream(state.handle, stream_of(call)), "cudnnSetStream"))
        return false;
    const cudnnStatus_t created =
        cudnn().descriptor_create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    const Descriptor owner(pack);
    const auto set = [&](cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         size_t count, const void* values) {
        return check(call, failure, cudnn().set(pack, name, type, int64_t(count), values),
                     "cudnnBackendSetAttribute");
    };
    return check(call, failure, created, "cudnnBackendCreateDescriptor") &&
           set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, pointers.uids.size(),
               pointers.uids.data()) &&
           set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.at.size(),
               pointers.at.data()) &&
           set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace) &&
           check(call, failure, cudnn().finalize(pack), "cudnnBackendFinalize of a call") &&
           check(call, failure, cudnn().execute(state.handle, raw, pack), "cudnnBackendExecute");
}

// q, k and v of a part in memory like qkv.
void add_packed(Pointers& pointers, const Part& part, const bf16* qkv, AttentionTensor q,
                AttentionTensor k, AttentionTensor v) {
    const AttentionCase& c = part.c;
    const bf16* first = qkv + part.b0 * c.len * c.width;
    const int64_t kv_heads = (c.width - c.out_width) / c.head_dim / 2;
    pointers.add(q, first + part.h0 * c.head_dim);
    pointers.add(k, first + c.out_width + part.kv0 * c.head_dim);
    pointers.add(v, first + c.out_width + (kv_heads + part.kv0) * c.head_dim);
}

bool run_part(const KernelCall& call, const Part& part, const CudnnPlan& plan) {
    const AttentionCase& c = part.c;
    const auto& p = call.get<nn_attention_params>();
    const float scale = float(p.scale), hidden = -INFINITY, one = 1;
    char* workspace = static_cast<char*>(call.gpu->workspace);
    const Layout at = layout_of(c, plan.workspace_bytes);
    const int64_t out = part.b0 * c.len * c.out_width + part.h0 * c.head_dim;
    Pointers pointers;
    add_packed(pointers, part, call.operand<const bf16>(c.backward ? 2 : 3), tensor_q, tensor_k,
               tensor_v);
    pointers.add(tensor_o, call.operand<const bf16>(c.backward ? 4 : 0) + out);
    pointers.add(tensor_lse, workspace);
    pointers.add(tensor_scale, &scale);
    if (c.causal) pointers.add(tensor_hidden, &hidden);
    if (!c.backward)
        return execute(call, plan, pointers, workspace + at.own) &&
               copy_lse<false>(call, part, call.operand<float>(2));
    add_packed(pointers, part, call.operand<const bf16>(0), tensor_dq, tensor_dk, tensor_dv);
    pointers.add(tensor_do, call.operand<const bf16>(5) + out);
    pointers.add(tensor_delta, workspace + at.delta);
    pointers.add(tensor_one, &one);
    if (c.sums_dq()) pointers.add(tensor_dq_sum, workspace + at.dq_sum);
    return copy_lse<true>(call, part, call.operand<float>(6)) &&
           execute(call, plan, pointers, workspace + at.own);
}

// Runs all goes, or fails the call; false where cuDNN refuses one.
bool run_parts(const KernelCall& call, const AttentionCase& whole, const Goes& goes) {
    for (int64_t b0 = 0; b0 < whole.batch; b0 += goes.sequences)
        for (int64_t kv0 = 0; kv0 < whole.kv_heads; kv0 += goes.kv_heads) {
            const Goes here{smaller(goes.sequences, whole.batch - b0),
                            smaller(goes.kv_heads, whole.kv_heads - kv0)};
            const Part part{part_of(whole, here), whole.heads, b0,
                            whole.heads / whole.kv_heads * kv0, kv0};
            CudnnFailure failure;
            const CudnnPlan* plan = find_plan(call, part.c, failure);
            if (!plan && failure.refused()) {
                note_refusal(part.c, std::string(failure.call) + ": " + failure.words);
                return false;
            }
            if (!plan) return check(call, failure, failure.status, ""), true;
            if (!run_part(call, part, *plan)) return true;
        }
    return true;
}

// Runs the call, or fails it; false where cuDNN refuses.
bool run(const KernelCall& call, bool backward) {
    const AttentionCase c = whole_case(call.get<nn_attention_params>(), backward);
    const Goes* goes = find_goes(call, c);
    if (!goes) return true;
    return goes->sequences > 0 && run_parts(call, c, *goes);
}

std::mutex reason_mutex;
std::string reason = "no GPU worker has opened cuDNN";  // why there is none

}  // namespace

void* open_cudnn() {
    auto state = std::make_unique<Cudnn>();
    std::string why;
    try {
        int device = 0;
        if (cudaGetDevice(&device) != cudaSuccess ||
            cudaDeviceGetAttribute(&state->generation, cudaDevAttrComputeCapabilityMajor, device) !=
                cudaSuccess)
            throw std::runtime_error("the GPU's generation cannot be asked for");
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

bool all_aligned(const KernelCall& call, std::initializer_list<int> operands) {
    bool good = true;
    for (int i : operands) good = good && aligned(call.operands[i]);
    return good;
}

// What is handed to cuDNN at all.
bool for_cudnn(const KernelCall& call, bool backward) {
    const auto& p = call.get<nn_attention_params>();
    const bool whole = p.q_start == p.k_start && p.q_len == p.k_len &&
                       (backward ? p.first_q && p.first_kv && call.operands[0] == call.operands[1]
                                 : p.first && p.last && call.operands[3] == call.operands[4]);
    return p.backend != nn_attention_nnlua && call.dtype == Dtype::bf16 && whole &&
           p.dropout == 0 && p.scale > 0 && (p.head_dim == 64 || p.head_dim == 128) &&
           p.q_len > 1 && p.batch > 0 &&
           (backward ? all_aligned(call, {0, 2, 4, 5}) : all_aligned(call, {0, 3}));
}

}  // namespace

bool attention_cudnn(const KernelCall& call, bool backward) {
    if (!for_cudnn(call, backward)) return false;
    if (call.gpu && call.gpu->cudnn) return run(call, backward);
    if (call.get<nn_attention_params>().backend != nn_attention_cudnn) return false;
    call.fail("nn.attention_backend is \"cudnn\", but %s", cudnn_description().c_str());
    return true;
}

}  // namespace nn::NN_TARGET
