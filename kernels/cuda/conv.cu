// Convolutions of images as matrix products by cuBLASLt: the windows of some images, or of a part
// of one, become the columns of a matrix in half of the workspace; cuBLASLt has the rest.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/matmul.h"
#include "kernels/params/gemm.h"
#include "kernels/window.h"

namespace nn::NN_TARGET {
namespace {

// Elements [begin, begin + n) of the planes of the result, of images [image, image + images).
struct Chunk {
    int64_t image, images, begin, n;
};

// Sizes of one image; those of one group are channels, outputs and depth.
struct Sizes {
    nn_conv_params p;
    int64_t channels, outputs, depth, area, plane;
    explicit Sizes(const nn_conv_params& params)
        : p(params),
          channels(p.channels / p.groups),
          outputs(p.outputs / p.groups),
          depth(channels * p.y.taps * p.x.taps),
          area(p.y.out * p.x.out),
          plane(p.y.in * p.x.in) {}
};

// Where the column matrix has its parts: distances between rows, images and groups.
struct Layout {
    int64_t row, image, group;
};

template <class T>
__global__ void __launch_bounds__(threads)
    columns_kernel(T* columns, const T* x, Sizes s, Chunk chunk, Layout at) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    const int64_t rows = s.p.groups * s.depth;
    if (i >= chunk.images * rows * chunk.n) return;
    const int64_t j = i % chunk.n, row = i / chunk.n % rows, image = i / (chunk.n * rows);
    const int64_t tap = row % (s.p.y.taps * s.p.x.taps), channel = row / (s.p.y.taps * s.p.x.taps);
    const int64_t output = chunk.begin + j;
    const int64_t y = window_at(s.p.y, output / s.p.x.out, tap / s.p.x.taps);
    const int64_t z = window_at(s.p.x, output % s.p.x.out, tap % s.p.x.taps);
    const bool inside = y >= 0 && y < s.p.y.in && z >= 0 && z < s.p.x.in;
    const int64_t from = ((chunk.image + image) * s.p.channels + channel) * s.plane;
    columns[image * at.image + row / s.depth * at.group + row % s.depth * at.row + j] =
        inside ? x[from + y * s.p.x.in + z] : stored<T>(0);
}

// The output that reads element `i` of an axis at tap `k`, or -1.
__device__ int64_t output_at(const nn_window_axis& axis, int64_t i, int64_t k) {
    const int64_t shifted = i + axis.pad - k * axis.dilation;
    const bool reads = shifted >= 0 && shifted % axis.stride == 0;
    return reads && shifted / axis.stride < axis.out ? shifted / axis.stride : -1;
}

// Each element of dx sums the columns that were taken from it, and what earlier chunks gave.
template <class T>
__global__ void __launch_bounds__(threads)
    add_columns_kernel(T* dx, const Acc<T>* columns, Sizes s, Chunk chunk) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= chunk.images * s.p.channels * s.plane) return;
    const int64_t at = i % s.plane, channel = i / s.plane % s.p.channels;
    const int64_t image = i / (s.plane * s.p.channels);
    const int64_t taps = s.p.y.taps * s.p.x.taps;
    columns += (image * s.p.channels + channel) * taps * chunk.n;
    dx += chunk.image * s.p.channels * s.plane;
    Acc<T> sum = chunk.begin == 0 ? Acc<T>(0) : number(dx[i]);
    for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t y = output_at(s.p.y, at / s.p.x.in, tap / s.p.x.taps);
        const int64_t z = output_at(s.p.x, at % s.p.x.in, tap % s.p.x.taps);
        const int64_t j = y * s.p.x.out + z - chunk.begin;
        if (y >= 0 && z >= 0 && j >= 0 && j < chunk.n) sum += columns[tap * chunk.n + j];
    }
    dx[i] = stored<T>(sum);
}

// to (outputs, images, n) = the chunk of dy.
template <class T>
__global__ void __launch_bounds__(threads)
    outputs_kernel(T* to, const T* dy, Sizes s, Chunk chunk) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i >= s.p.outputs * chunk.images * chunk.n) return;
    const int64_t j = i % chunk.n, image = i / chunk.n % chunk.images;
    const int64_t output = i / (chunk.n * chunk.images);
    to[i] = dy[((chunk.image + image) * s.p.outputs + output) * s.area + chunk.begin + j];
}

template <class T>
__global__ void __launch_bounds__(threads) fill_bias_kernel(T* y, const T* bias, Sizes s) {
    const int64_t i = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (i < s.p.images * s.p.outputs * s.area) y[i] = bias[i / s.area % s.p.outputs];
}

// A block sums one output over all images.
template <class T>
__global__ void __launch_bounds__(threads) bias_sum_kernel(Acc<T>* dbias, const T* dy, Sizes s) {
    Acc<T> sum = 0;
    for (int64_t i = threadIdx.x; i < s.p.images * s.area; i += threads)
        sum += number(dy[(i / s.area * s.p.outputs + blockIdx.x) * s.area + i % s.area]);
    sum = block_reduce(sum, Sum());
    if (threadIdx.x == 0) dbias[blockIdx.x] = s.p.first ? sum : dbias[blockIdx.x] + sum;
}

// The column matrix and a second buffer in the workspace, and what remains for cuBLASLt.
class Memory {
public:
    Memory(const KernelCall& call, int64_t bytes) : call_(call), gpu_(*call.gpu) {
        const size_t used = (size_t(bytes) + 255) / 256 * 256;
        gpu_.workspace = static_cast<char*>(gpu_.workspace) + used;
        gpu_.workspace_bytes -= used;
    }
    void* data() const { return call_.gpu->workspace; }
    // c = a b, row-major, as p says. False if the call has failed.
    bool product(const nn_gemm_params& p, void* c, const void* a, const void* b) const {
        KernelCall inner = call_;
        inner.params = &p;
        inner.gpu = &gpu_;
        return run_product(inner, {c, a, b, nullptr, nullptr}, false) != Done::nothing;
    }

private:
    const KernelCall& call_;
    Gpu gpu_;
};

// Calls f(chunk, memory) for each chunk until one returns false. bytes: of an element of a plane.
template <class F> void each_chunk(const KernelCall& call, const Sizes& s, int64_t bytes, F f) {
    const int64_t room = call.gpu ? int64_t(call.gpu->workspace_bytes / 2) : 0;
    constexpr int64_t step = 8;  // aligned rows make fast products
    int64_t n = smaller(room / bytes, s.area);
    if (n > step && n < s.area) n -= n % step;
    if (n == 0)
        return call.fail("needs %lld bytes of workspace on the GPU; %lld are available",
                         (long long)(2 * bytes), (long long)(2 * room));
    const int64_t images = n < s.area ? 1 : smaller(room / (bytes * s.area), s.p.images);
    const Memory memory(call, images * n * bytes);
    for (int64_t image = 0; image < s.p.images; image += images)
        for (int64_t begin = 0; begin < s.area; begin += n) {
            const Chunk chunk{image, smaller(images, s.p.images - image), begin,
                              smaller(n, s.area - begin)};
            if (!f(chunk, memory)) return;
        }
}

// The product of a group, for `batch` images.
nn_gemm_params gemm_of(const Sizes& s, int64_t m, int64_t n, int64_t k, int64_t batch) {
    nn_gemm_params g{};
    g.m = m, g.n = n, g.k = k, g.batch = batch, g.alpha = 1, g.tf32 = s.p.tf32;
    return g;
}

template <class T> void run_conv2d(const KernelCall& call) {
    const Sizes s(call.get<nn_conv_params>());
    T* const y = call.operand<T>(0);
    const T *const x = call.input<T>(1), *const weight = call.input<T>(2),
                   *const bias = call.input<T>(3);
    if (bias &&
        !launch_each(call, s.p.images * s.p.outputs * s.area, 1, fill_bias_kernel<T>, y, bias, s))
        return;
    const int64_t all = s.p.groups * s.depth;
    each_chunk(call, s, all * int64_t(sizeof(T)), [&](const Chunk& chunk, const Memory& memory) {
        T* const columns = static_cast<T*>(memory.data());
        const Layout at{chunk.n, all * chunk.n, s.depth * chunk.n};
        bool good = launch_each(call, chunk.images * all * chunk.n, 1, columns_kernel<T>, columns,
                                x, s, chunk, at);
        nn_gemm_params g = gemm_of(s, s.outputs, chunk.n, s.depth, chunk.images);
        g.lda = s.depth, g.ldb = chunk.n, g.ldc = s.area, g.beta = bias ? 1 : 0;
        g.stride_b = at.image, g.stride_c = s.p.outputs * s.area;
        for (int64_t group = 0; good && group < s.p.groups; ++group)
            good = memory.product(
                g, y + (chunk.image * s.p.outputs + group * s.outputs) * s.area + chunk.begin,
                weight + group * s.outputs * s.depth, columns + group * at.group);
        return good;
    });
}

template <class T> void run_input_backward(const KernelCall& call) {
    const Sizes s(call.get<nn_conv_params>());
    T* const dx = call.operand<T>(0);
    const T *const dy = call.input<T>(1), *const weight = call.input<T>(2);
    const int64_t all = s.p.groups * s.depth;
    each_chunk(
        call, s, all * int64_t(sizeof(Acc<T>)), [&](const Chunk& chunk, const Memory& memory) {
            auto* const columns = static_cast<Acc<T>*>(memory.data());
            nn_gemm_params g = gemm_of(s, s.depth, chunk.n, s.outputs, chunk.images);
            g.trans_a = true, g.wide = true, g.lda = s.depth, g.ldb = s.area, g.ldc = chunk.n;
            g.stride_b = s.p.outputs * s.area, g.stride_c = all * chunk.n;
            bool good = true;
            for (int64_t group = 0; good && group < s.p.groups; ++group)
                good = memory.product(
                    g, columns + group * s.depth * chunk.n, weight + group * s.outputs * s.depth,
                    dy + (chunk.image * s.p.outputs + group * s.outputs) * s.area + chunk.begin);
            return good && launch_each(call, chunk.images * s.p.channels * s.plane, 1,
                                       add_columns_kernel<T>, dx, columns, s, chunk);
        });
}

template <class T> void run_weight_backward(const KernelCall& call) {
    const Sizes s(call.get<nn_conv_params>());
    auto *const dweight = call.operand<Acc<T>>(0), *const dbias = call.operand<Acc<T>>(1);
    const T *const dy = call.input<T>(2), *const x = call.input<T>(3);
    if (dbias &&
        !launch(call, {blocks_for(s.p.outputs, 1), threads}, bias_sum_kernel<T>, dbias, dy, s))
        return;
    const int64_t all = s.p.groups * s.depth;
    each_chunk(
        call, s, (all + s.p.outputs) * int64_t(sizeof(T)),
        [&](const Chunk& chunk, const Memory& memory) {
            const int64_t n = chunk.images * chunk.n;
            T* const columns = static_cast<T*>(memory.data());
            T* const outputs = columns + all * n;
            const Layout at{n, chunk.n, s.depth * n};
            bool good =
                launch_each(call, all * n, 1, columns_kernel<T>, columns, x, s, chunk, at) &&
                launch_each(call, s.p.outputs * n, 1, outputs_kernel<T>, outputs, dy, s, chunk);
            nn_gemm_params g = gemm_of(s, s.outputs, s.depth, n, 1);
            g.trans_b = true, g.wide = true, g.lda = n, g.ldb = n, g.ldc = s.depth;
            g.beta = s.p.first && chunk.image == 0 && chunk.begin == 0 ? 0 : 1;
            for (int64_t group = 0; good && group < s.p.groups; ++group)
                good = memory.product(g, dweight + group * s.outputs * s.depth,
                                      outputs + group * s.outputs * n, columns + group * at.group);
            return good;
        });
}

void conv2d(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) { run_conv2d<T>(call); });
}
void conv2d_input_backward(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) { run_input_backward<T>(call); });
}
void conv2d_weight_backward(const KernelCall& call) {
    visit_float(call.dtype, [&]<class T>(T*) { run_weight_backward<T>(call); });
}

NN_IMPLEMENT(conv2d, conv2d_input_backward, conv2d_weight_backward);

}  // namespace
}  // namespace nn::NN_TARGET
