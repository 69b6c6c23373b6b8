// Matrix products in f32 and bf16: which implementation computes them. Processors since 2020
// multiply bf16 by instructions of their own, at twice the rate of f32 (AVX-512 BF16) or ten times
// (AMX), and libraries use them differently well; so the fastest is measured, once per machine, and
// again for each shape of large products.
// kernels/cpu/gemm.cc calls what is chosen here and adds the epilogues.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace nn::products {

// op(A) (m,k) by op(B) (k,n), row-major, of bf16 bits. Rows of the stored matrices are lda and ldb
// apart.
struct Operands {
    bool trans_a, trans_b;
    int64_t m, n, k;
    const uint16_t* a;
    int64_t lda;
    const uint16_t* b;
    int64_t ldb;
};

// Rows [i, i + rows) and columns [j, j + cols) of the sums, with rows `ld` apart.
struct Block {
    int64_t i, j, rows, cols;
    float* c;
    int64_t ld;
};

// What happens to each block while it is in cache: start() writes to c what the product is added
// to (nullptr: zero; k is at least 1 then), finish() stores the sums. Blocks are in scratch memory,
// or in `sums` (m,n) if it is given, whose rows need space for n rounded up to a multiple of 32,
// which the products may add zeros to.
struct Epilogue {
    void* context;
    void (*start)(void* context, const Block& block);
    void (*finish)(void* context, const Block& block);
    float* sums = nullptr;
    int64_t ld = 0;  // of sums
};
constexpr int64_t sums_multiple = 32;
inline void keep_sums(void*, const Block&) {}  // for start() and finish()

// Computes all blocks on the calling thread, in an order that depends on the shapes alone.
using MultiplyFn = void (*)(const Operands& operands, const Epilogue& epilogue);

// The implementations. `onednn` is its gemm; `matmul` is its primitive of that name, for large
// products. `loops` are ours (avx512.cc), for bf16 alone. With openblas, bf16 operands are
// converted to f32.
enum class Way : uint8_t { openblas, onednn, loops, matmul };
constexpr int ways = 4;
// A product with fewer multiplications is too short for the fixed cost of a call of matmul.
constexpr int64_t least_for_matmul = 4'000'000;
const char* way_name(Way way);

// How products without a choice of their own are computed, and the reason, as a person reads it.
struct Choice {
    Way f32 = Way::openblas, bf16 = Way::openblas;
    std::string reason;
    double f32_gflops = 0, bf16_gflops = 0;  // of one core; 0: not measured
    bool by_shape = false;                   // whether shapes have their own choice (Widths)
};

// Made at the first call: as NNLUA_PRODUCTS says, else by the measurement in the user's cache, else
// by a new one, which takes about 0.3 s. Throws std::runtime_error if NNLUA_PRODUCTS names what
// this machine cannot use.
const Choice& choice();
void choose(const Choice& choice);  // sets choice(); no product may be running

// The sizes by which a product has a way of its own: n and k, or m and n if A is transposed. The
// third size is the number of tokens. It has no influence, so tiles of any number of tokens use the
// same way. Sizes between which rates hardly differ are one.
struct Widths {
    bool bf16, trans_a, trans_b;
    int64_t first, second;
};
// Nothing for products that are computed by choice(): those with few columns, and those of two
// transposed matrices.
std::optional<Widths> widths_of(bool bf16, bool trans_a, bool trans_b, int64_t m, int64_t n,
                                int64_t k);
std::string name_of(const Widths& widths);  // "f32-nt-2304-768"
// The ways of shapes that this process has found or been told, by the shape's name.
std::optional<Way> known_way(const std::string& name);
void set_way(const std::string& name, Way way);
// The fastest way for these products: the known one, else that in the user's cache, else it is
// measured on the calling thread, which takes up to a second.
Way fastest_way(const Widths& widths);
std::map<std::string, int> kept_ways();  // in the user's cache: numbers of ways, by name

// Why products of a dtype cannot be computed this way here; "" if they can.
std::string why_unusable(Way way, bool bf16);

// C (m,n) = alpha op(A) op(B) + beta C, on the calling thread.
void gemm(Way way, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
          const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
          int64_t ldc);
MultiplyFn bf16_multiply(Way way);  // nullptr: convert to f32

bool loops_built();
void multiply_by_loops(const Operands& operands, const Epilogue& epilogue);

// On what the rates of products depend, as one line.
std::string processor_and_libraries();

// "f32 oneDNN, bf16 oneDNN (measured, GFLOP/s of a core: f32 OpenBLAS 102, oneDNN 106; ...)"
std::string description();

}  // namespace nn::products
