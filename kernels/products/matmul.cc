// Products by oneDNN's matmul primitive. On AMX that of version 2.6.3 is 1.1 to 1.3 times as fast
// as the library's gemm. A primitive is made once for each thread and shape.
#include <array>
#include <compare>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include "kernels/products/onednn.h"

namespace nn::onednn {
namespace {

// The part of the C interface that is used here. Descriptors are structures in version 2, which are
// kept in buffers larger than they are, and handles in version 3.
enum { out_of_memory = 1, f32 = 3, bf16 = 2, cpu = 1, in_order = 1 };
enum { source = 1, weights = 33, destination = 17 };  // numbers of arguments
using Handle = void*;
struct alignas(16) Descriptor {
    std::array<char, 8192> bytes{};
};
struct Argument {
    int number;
    Handle memory;
};

template <class F> F* function(const char* name) { return reinterpret_cast<F*>(find(name)); }

void check(int status, const char* what) {
    if (status == out_of_memory) throw std::bad_alloc();
    if (status != 0)
        throw std::runtime_error("oneDNN cannot " + std::string(what) + " of a matmul: status " +
                                 std::to_string(status) +
                                 "; NNLUA_PRODUCTS=onednn or openblas avoids it");
}

using Dims = std::array<int64_t, 12>;  // DNNL_MAX_NDIMS

// The functions that one version has, or that differ in type: they are called by name.
constexpr std::array structure_functions = {"dnnl_matmul_desc_init", "dnnl_primitive_desc_create",
                                            "dnnl_post_ops_append_sum"};
constexpr std::array handle_functions = {"dnnl_matmul_primitive_desc_create",
                                         "dnnl_memory_desc_destroy", "dnnl_post_ops_append_sum"};

struct Interface {
    bool structures = major_version() < 3;
    int (*engine_create)(Handle*, int kind, size_t index);
    int (*stream_create)(Handle*, Handle engine, unsigned flags);
    int (*describe)(void* memory, int ndims, const int64_t* dims, int dtype,
                    const int64_t* strides);
    int (*memory_create)(Handle*, const void* description, Handle engine, void* data);
    int (*set_data)(Handle memory, void* data);
    int (*attributes_create)(Handle*);
    int (*operations_create)(Handle*);
    int (*set_operations)(Handle attributes, Handle operations);
    int (*primitive_create)(Handle*, Handle description);
    int (*execute)(Handle primitive, Handle stream, int count, const Argument* arguments);
    int (*destroy_primitive)(Handle);
    int (*destroy_description)(Handle);
    int (*destroy_memory)(Handle);
    int (*destroy_attributes)(Handle);
    int (*destroy_operations)(Handle);
    int (*destroy_stream)(Handle);
    Handle engine = nullptr;
    bool complete = true;

    Interface() {
        const auto load = [&](auto*& f, const char* name) {
            f = function<std::remove_reference_t<decltype(*f)>>(name);
            complete = complete && f;
        };
        load(engine_create, "dnnl_engine_create");
        load(stream_create, "dnnl_stream_create");
        load(describe, structures ? "dnnl_memory_desc_init_by_strides"
                                  : "dnnl_memory_desc_create_with_strides");
        load(memory_create, "dnnl_memory_create");
        load(set_data, "dnnl_memory_set_data_handle");
        load(attributes_create, "dnnl_primitive_attr_create");
        load(operations_create, "dnnl_post_ops_create");
        load(set_operations, "dnnl_primitive_attr_set_post_ops");
        load(primitive_create, "dnnl_primitive_create");
        load(execute, "dnnl_primitive_execute");
        load(destroy_primitive, "dnnl_primitive_destroy");
        load(destroy_description, "dnnl_primitive_desc_destroy");
        load(destroy_memory, "dnnl_memory_destroy");
        load(destroy_attributes, "dnnl_primitive_attr_destroy");
        load(destroy_operations, "dnnl_post_ops_destroy");
        load(destroy_stream, "dnnl_stream_destroy");
        for (const char* name : structures ? structure_functions : handle_functions)
            complete = complete && find(name);
        complete = complete && engine_create(&engine, cpu, 0) == 0;
    }
};

const Interface& library() {
    static const Interface loaded;
    return loaded;
}

// What a primitive is made for: c (m, n) = or += op(a) op(b). It also depends on the strides.
struct Shape {
    int dtype;
    bool trans_a, trans_b, add;
    int64_t m, n, k, lda, ldb, ldc;
    auto operator<=>(const Shape&) const = default;
};

// A description of a matrix whose rows are `ld` apart, or its transpose.
class MatrixDescription {
public:
    MatrixDescription(int64_t rows, int64_t cols, bool transposed, int64_t ld, int dtype) {
        const Dims dims{rows, cols};
        const Dims strides = transposed ? Dims{1, ld} : Dims{ld, 1};
        void* const out = library().structures ? static_cast<void*>(&structure_) : &handle_;
        check(library().describe(out, 2, dims.data(), dtype, strides.data()), "describe a matrix");
    }
    ~MatrixDescription() {
        if (handle_) function<int(Handle)>("dnnl_memory_desc_destroy")(handle_);
    }
    MatrixDescription(const MatrixDescription&) = delete;
    MatrixDescription& operator=(const MatrixDescription&) = delete;
    const void* get() const { return handle_ ? handle_ : static_cast<const void*>(&structure_); }

private:
    Descriptor structure_;
    Handle handle_ = nullptr;
};

// Owns what a function of the library created.
class Owned {
public:
    explicit Owned(int (*destroy)(Handle)) : destroy_(destroy) {}
    ~Owned() {
        if (handle_) destroy_(handle_);
    }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    operator Handle() const { return handle_; }
    Handle* out() { return &handle_; }

private:
    int (*destroy_)(Handle);
    Handle handle_ = nullptr;
};

class Primitive {
public:
    explicit Primitive(const Shape& s) {
        const Interface& lib = library();
        const MatrixDescription a(s.m, s.k, s.trans_a, s.lda, s.dtype);
        const MatrixDescription b(s.k, s.n, s.trans_b, s.ldb, s.dtype);
        const MatrixDescription c(s.m, s.n, false, s.ldc, f32);
        Owned attributes(lib.destroy_attributes), description(lib.destroy_description);
        check(lib.attributes_create(attributes.out()), "create the attributes");
        if (s.add) add_to_destination(attributes);
        check(describe(a, b, c, attributes, description.out()), "describe the primitive");
        check(lib.primitive_create(primitive_.out(), description), "create the primitive");
        check(lib.memory_create(a_.out(), a.get(), lib.engine, nullptr), "bind a matrix");
        check(lib.memory_create(b_.out(), b.get(), lib.engine, nullptr), "bind a matrix");
        check(lib.memory_create(c_.out(), c.get(), lib.engine, nullptr), "bind a matrix");
    }
    void run(const void* a, const void* b, float* c) const {
        const Interface& lib = library();
        static thread_local Owned stream(lib.destroy_stream);
        if (!stream)
            check(lib.stream_create(stream.out(), lib.engine, in_order), "create a stream");
        check(lib.set_data(a_, const_cast<void*>(a)), "bind a matrix");
        check(lib.set_data(b_, const_cast<void*>(b)), "bind a matrix");
        check(lib.set_data(c_, c), "bind a matrix");
        const Argument arguments[] = {{source, a_}, {weights, b_}, {destination, c_}};
        check(lib.execute(primitive_, stream, 3, arguments), "compute the product");
    }

private:
    static void add_to_destination(Handle attributes) {
        Owned sum(library().destroy_operations);
        check(library().operations_create(sum.out()), "create the sum");
        constexpr const char* name = "dnnl_post_ops_append_sum";
        check(library().structures ? function<int(Handle, float)>(name)(sum, 1.0f)
                                   : function<int(Handle, float, int, int)>(name)(sum, 1.0f, 0, 0),
              "append the sum");
        check(library().set_operations(attributes, sum), "set the sum");
    }
    static int describe(const MatrixDescription& a, const MatrixDescription& b,
                        const MatrixDescription& c, Handle attributes, Handle* out) {
        using Init = int(void*, const void*, const void*, const void*, const void*);
        using Create = int(Handle*, const void*, Handle, Handle, Handle);
        using CreateMatmul =
            int(Handle*, Handle, const void*, const void*, const void*, const void*, Handle);
        const Handle engine = library().engine;
        if (!library().structures)
            return function<CreateMatmul>("dnnl_matmul_primitive_desc_create")(
                out, engine, a.get(), b.get(), nullptr, c.get(), attributes);
        Descriptor matmul;
        check(function<Init>("dnnl_matmul_desc_init")(&matmul, a.get(), b.get(), nullptr, c.get()),
              "describe the shape");
        return function<Create>("dnnl_primitive_desc_create")(out, &matmul, attributes, engine,
                                                              nullptr);
    }

    Owned primitive_{library().destroy_primitive};
    Owned a_{library().destroy_memory}, b_{library().destroy_memory}, c_{library().destroy_memory};
};

// Computes on the calling thread, for which it keeps the primitive.
void multiply_as(const Shape& shape, const void* a, const void* b, float* c) {
    constexpr size_t most = 256;  // a model has some dozens
    static thread_local std::map<Shape, Primitive> made;
    compute_alone();
    if (made.size() >= most && !made.count(shape)) made.clear();
    made.try_emplace(shape, shape).first->second.run(a, b, c);
}

// From -2 to 2: products and sums are exact in any order. The period is long, so that an element
// of another row or column shows.
int small_number(int64_t i) { return int((i * 7919 >> 3) % 5) - 2; }

uint16_t bf16_bits(float x) {
    uint32_t bits;
    static_assert(sizeof bits == sizeof x);
    __builtin_memcpy(&bits, &x, sizeof x);
    return uint16_t(bits >> 16);
}

// Whether op(a) op(b) is right, written and added, with rows further apart than they are long.
template <class T, class Convert> bool is_right(int dtype, int trans, Convert convert) {
    constexpr int64_t m = 66, n = 80, k = 96, pad = 8, ldc = n + pad;
    const bool ta = trans & 1, tb = trans & 2;
    const int64_t lda = (ta ? m : k) + pad, ldb = (tb ? k : n) + pad;
    std::vector<int> a_values(size_t((ta ? k : m) * lda)), b_values(size_t((tb ? n : k) * ldb));
    for (size_t i = 0; i < a_values.size(); ++i) a_values[i] = small_number(int64_t(i));
    for (size_t i = 0; i < b_values.size(); ++i) b_values[i] = small_number(int64_t(i) + 3);
    std::vector<T> a, b;
    for (int value : a_values) a.push_back(convert(float(value)));
    for (int value : b_values) b.push_back(convert(float(value)));
    constexpr float untouched = 0.5f;
    std::vector<float> c(size_t(m * ldc), untouched);
    for (const bool add : {false, true})
        multiply_as({dtype, ta, tb, add, m, n, k, lda, ldb, ldc}, a.data(), b.data(), c.data());
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < ldc; ++j) {
            int sum = 0;
            for (int64_t l = 0; l < k && j < n; ++l)
                sum += a_values[size_t(ta ? l * lda + i : i * lda + l)] *
                       b_values[size_t(tb ? j * ldb + l : l * ldb + j)];
            if (c[size_t(i * ldc + j)] != (j < n ? float(2 * sum) : untouched)) return false;
        }
    return true;
}

std::string problem_of(bool wants_bf16) try {
    if (!why_unusable().empty()) return why_unusable();
    if (!library().complete) return "the library found has no matmul";
    for (int trans = 0; trans < 4; ++trans)
        if (!(wants_bf16 ? is_right<uint16_t>(bf16, trans, bf16_bits)
                         : is_right<float>(f32, trans, [](float x) { return x; })))
            return "the library's matmul gives a wrong product";
    return "";
} catch (const std::exception& e) {
    return e.what();
}

}  // namespace

std::string why_matmul_unusable(bool wants_bf16) {
    static const std::string problem_f32 = problem_of(false);
    if (!wants_bf16) return problem_f32;
    static const std::string problem_bf16 = problem_of(true);
    return problem_bf16;
}

void matmul(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, bool add, const float* a,
            int64_t lda, const float* b, int64_t ldb, float* c, int64_t ldc) {
    multiply_as({f32, trans_a, trans_b, add, m, n, k, lda, ldb, ldc}, a, b, c);
}

void multiply_by_matmul(const products::Operands& o, const products::Epilogue& epilogue) {
    if (o.m * o.n * o.k < products::least_for_matmul) return multiply(o, epilogue);
    multiply_by_blocks(o, epilogue,
                       [&](const products::Block& block, const uint16_t* a, const uint16_t* b) {
                           multiply_as({bf16, o.trans_a, o.trans_b, !!epilogue.start, block.rows,
                                        block.cols, o.k, o.lda, o.ldb, block.ld},
                                       a, b, block.c);
                       });
}

}  // namespace nn::onednn
