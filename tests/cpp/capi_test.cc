// The C API: what every function does with valid arguments, and that invalid ones (NULL, out of
// range, of a wrong size) give a status and a message.
#include "tests/cpp/capi_test.h"

#include <climits>
#include <cmath>
#include <numeric>

namespace nn::capi_test {
TEST_CASE("a tensor reports its bytes in each memory node, none before it has a value") {
    const Library library;
    int64_t bytes[8];
    int32_t count = 8;
    const char* name = nullptr;
    nn_ref empty;
    REQUIRE_OK(apply("empty", {}, {list({1000})}, &empty));
    REQUIRE_OK(nn_tensor_nodes(&empty, bytes, &count));
    REQUIRE(count >= 1);
    for (int32_t place = 0; place < count; ++place) CHECK(bytes[place] == 0);
    const nn_ref x = full({1000}, 1);
    REQUIRE_OK(nn_sync());
    count = 8;
    REQUIRE_OK(nn_tensor_nodes(&x, bytes, &count));
    CHECK(std::accumulate(bytes, bytes + count, int64_t(0)) == 8000);  // f64
    REQUIRE_OK(nn_node_name(0, &name));
    CHECK(name == std::string("RAM"));
    CHECK_REFUSED(nn_node_name(count, &name), "is outside [0, ");
    CHECK_REFUSED(nn_node_name(-1, &name), "is outside [0, ");
    int64_t used[64], limit[64], moved;
    REQUIRE_OK(nn_node_memory(used, limit, &count));
    CHECK(used[0] > 0);
    CHECK(limit[0] > used[0]);
    CHECK_REFUSED(nn_node_memory(used, nullptr, &count), "limit is NULL");
    REQUIRE_OK(nn_bytes_moved(&moved));
    CHECK(moved >= 0);
    for (int32_t room : {0, -3}) {
        count = room;
        REQUIRE_OK(nn_tensor_nodes(&x, bytes, &count));
        CHECK(count == 0);
    }
    CHECK_REFUSED(nn_tensor_nodes(nullptr, bytes, &count), "tensor is NULL");
}

TEST_CASE("clearing the profile keeps the count of all tasks") {
    const Library library;
    nn_stats_t before, after;
    full({2}, 1);
    REQUIRE_OK(nn_sync());
    REQUIRE_OK(nn_stats(&before));
    REQUIRE_OK(nn_profile(0));
    REQUIRE_OK(nn_stats(&after));
    CHECK(before.tasks > 0);
    CHECK(after.tasks == 0);
    CHECK(after.earlier_tasks == before.earlier_tasks + before.tasks);
    CHECK(after.unfinished == 0);
}

TEST_CASE("every function with a result refuses a NULL pointer for it") {
    const Library library;
    const nn_ref x = full({2}, 1);
    const int64_t whole = 0;
    int64_t whole_out[1];
    int32_t n = 1;
    uint64_t u;
    nn_ref out;
    CHECK_REFUSED(nn_workers(nullptr, &n), "cpus is NULL");
    CHECK_REFUSED(nn_workers(&n, nullptr), "gpus is NULL");
    CHECK_REFUSED(nn_machine_describe(nullptr), "text is NULL");
    CHECK_REFUSED(nn_machine_info(nullptr), "out is NULL");
    CHECK_REFUSED(nn_product_rate(8, 0, nullptr), "flops_per_second is NULL");
    CHECK_REFUSED(nn_product_rate(0, 0, nullptr), "products of size 0");
    double rate = 0;
    CHECK_REFUSED(nn_measure_disk("/tmp", 0, 0, 0, nullptr), "bytes_per_second is NULL");
    CHECK_REFUSED(nn_measure_disk(nullptr, 0, 0, 0, &rate), "folder is NULL");
    CHECK_REFUSED(nn_measure_disk("/tmp", 2, 0, 0, &rate), "a share of 2 is written");
    CHECK_REFUSED(nn_measure_disk("/tmp", 0, 1000, 0, &rate), "pieces of 1000 bytes");
    CHECK_REFUSED(nn_measure_disk("/tmp", 0, 0, -1, &rate), "-1 threads");
    CHECK_REFUSED(nn_measure_disk("/no/folder", 0, 0, 0, &rate), "cannot be used");
    CHECK_REFUSED(nn_interrupted(nullptr), "flag is NULL");
    CHECK_REFUSED(nn_tensor_info_get(&x, nullptr), "out is NULL");
    CHECK_REFUSED(nn_cuts(&x, 0, nullptr, 0, nullptr), "count is NULL");
    CHECK_REFUSED(nn_retile(&x, &whole, 1, nullptr), "out is NULL");
    CHECK_REFUSED(nn_tensors_alive(nullptr), "count is NULL");
    CHECK_REFUSED(nn_tensor_nodes(&x, nullptr, &n), "bytes is NULL");
    CHECK_REFUSED(nn_tensor_nodes(&x, whole_out, nullptr), "count is NULL");
    CHECK_REFUSED(nn_node_name(0, nullptr), "name is NULL");
    CHECK_REFUSED(nn_op_info(0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_op_input(op_index("neg"), 0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_op_attribute(op_index("full"), 0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_op_sample(op_index("neg"), 0, nullptr), "text is NULL");
    CHECK_REFUSED(nn_apply(op_index("neg"), &x, 1, nullptr, 0, nullptr, &n), "outputs is NULL");
    CHECK_REFUSED(nn_apply(op_index("neg"), &x, 1, nullptr, 0, &out, nullptr), "n_outputs is NULL");
    CHECK_REFUSED(nn_scalar_new(1, nullptr), "scalar is NULL");
    REQUIRE_OK(nn_scalar_new(1, &n));
    CHECK_REFUSED(nn_scalar_get(n, nullptr), "value is NULL");
    REQUIRE_OK(nn_scalar_free(n));
    CHECK_REFUSED(nn_memory(nullptr), "out is NULL");
    CHECK_REFUSED(nn_random_state(nullptr, &u), "seed is NULL");
    CHECK_REFUSED(nn_random_state(&u, nullptr), "counter is NULL");
    CHECK_REFUSED(nn_next_random(nullptr), "counter is NULL");
    CHECK_REFUSED(nn_kernel_info(0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_kernel_operand(0, 0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_kernel_stat(0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_stats(nullptr), "out is NULL");
    CHECK_REFUSED(nn_tile_size(nullptr, 1), "axis is NULL");
    CHECK_REFUSED(nn_tile_size(nullptr, -1), "axis is NULL");
    check_usable();
}

TEST_CASE("a machine is described until the host is asked for again, and products have a rate") {
    const Library library;
    nn_machine_info_t info;
    REQUIRE_OK(nn_machine_describe("cpus=64 ram=512GB"));
    REQUIRE_OK(nn_machine_info(&info));
    CHECK(info.cpus == 64);
    CHECK(info.ram == 512'000'000'000);
    CHECK(info.described == 1);
    CHECK_REFUSED(nn_machine_describe("cpus=many"), "cpus is 'many'");
    REQUIRE_OK(nn_machine_describe(""));
    REQUIRE_OK(nn_machine_info(&info));
    CHECK(info.described == 0);
    double rate = 0;
    REQUIRE_OK(nn_product_rate(64, 0, &rate));
    CHECK(rate > 1e6);
}

TEST_CASE("numbers of devices out of range and unknown schedulers are errors") {
    const Library library;
    for (int32_t bad : {-1, INT32_MIN, INT32_MAX, 1025})
        CHECK_REFUSED(nn_configure(bad, "", -1, 0, 0, 0), "CPU workers");
    CHECK_REFUSED(nn_configure(1, "no such scheduler", -1, 0, 0, 0), "unknown scheduler");
    CHECK_REFUSED(nn_configure(1, nullptr, -2, 0, 0, 0), "-2 GPUs");
    for (int bad : {-1, 5})
        CHECK_REFUSED(nn_configure(1, nullptr, -1, 0, bad, 0), "1 to 4 are possible");
    CHECK_REFUSED(nn_configure(1, nullptr, -1, 1000, 0, 0), "gpu_memory is 1000 bytes");
    REQUIRE_OK(nn_configure(1, nullptr, -1, 0, 0, 0));
    int32_t cpus = 0, gpus = -1;
    REQUIRE_OK(nn_workers(&cpus, &gpus));
    CHECK(cpus == 1);
    CHECK(gpus >= 0);
    CHECK_REFUSED(nn_configure(1, nullptr, -1, 0, 0, 0), "before the first tensor");
}

TEST_CASE("a tensor reports its shape, dtype, cuts and bytes") {
    const Library library;
    const nn_ref x = full({4, 6}, 1, "f32");
    nn_ref y;
    REQUIRE_OK(nn_retile(&x, Numbers{3, 0}.data(), 2, &y));
    nn_tensor_info info;
    REQUIRE_OK(nn_tensor_info_get(&y, &info));
    CHECK(info.rank == 2);
    CHECK(info.dtype == f32);
    CHECK(Numbers(info.shape, info.shape + 2) == Numbers{4, 6});
    CHECK(Numbers(info.tiles, info.tiles + 2) == Numbers{2, 1});
    CHECK(info.count == 24);
    CHECK(info.bytes == 96);
    CHECK(info.is_view == 0);
    CHECK(info.temporary == 0);
    int32_t count = 0;
    int64_t cuts[3] = {9, 9, 9};
    REQUIRE_OK(nn_cuts(&y, 0, nullptr, 0, &count));
    CHECK(count == 3);
    REQUIRE_OK(nn_cuts(&y, 0, cuts, 2, &count));
    CHECK(Numbers(cuts, cuts + 3) == Numbers{0, 3, 9});
    REQUIRE_OK(nn_cuts(&y, 0, cuts, -1, &count));
    for (int32_t bad : {-1, 2, INT32_MAX, INT32_MIN})
        CHECK_REFUSED(nn_cuts(&y, bad, cuts, 3, &count), "is outside [0, 2)");
}

TEST_CASE("reading and writing need a buffer of the exact number of bytes") {
    const Library library;
    const nn_ref x = full({2}, 1);
    double buffer[2] = {3, 4};
    for (int64_t bad : {int64_t(0), int64_t(-16), int64_t(15), int64_t(17), INT64_MAX, INT64_MIN}) {
        CHECK_REFUSED(nn_read(&x, buffer, bad), "for 16");
        CHECK_REFUSED(nn_write(&x, buffer, bad), "for 16");
    }
    CHECK_REFUSED(nn_read(&x, nullptr, 16), "read: ");
    CHECK_REFUSED(nn_write(&x, nullptr, 16), "write: ");
    REQUIRE_OK(nn_write(&x, buffer, 16));
    CHECK(values(x) == std::vector<double>{3, 4});
}

TEST_CASE("tile sizes are needed for every axis and cannot be negative") {
    const Library library;
    const nn_ref x = full({4, 6}, 1);
    nn_ref y;
    const int64_t sizes[] = {2, -1, 3};
    CHECK_REFUSED(nn_retile(&x, nullptr, 2, &y), "2 tile sizes");
    CHECK_REFUSED(nn_retile(&x, sizes, 1, &y), "1 tile sizes for 2 axes");
    CHECK_REFUSED(nn_retile(&x, sizes, -2, &y), "-2 tile sizes");
    CHECK_REFUSED(nn_retile(&x, sizes, 2, &y), "a tile size of -1");
    CHECK_REFUSED(nn_tile_size("tokens", -5), "tokens is -5");
    REQUIRE_OK(nn_retile(&x, Numbers{INT64_MAX, 1}.data(), 2, &y));
    CHECK(values(y) == values(x));
}

TEST_CASE("an op with wrong counts, kinds or values of arguments is refused by name") {
    const Library library;
    const nn_ref x = full({2, 3}, 1);
    const int neg_op = op_index("neg"), full_op = op_index("full");
    nn_ref out[2] = {};
    int32_t room = 2;
    const nn_ref two[] = {x, x};
    CHECK_REFUSED(nn_apply(neg_op, two, 2, nullptr, 0, out, &room), "neg: takes 1 tensors, 2");
    CHECK_REFUSED(nn_apply(neg_op, two, -1, nullptr, 0, out, &room), "neg: bad list of tensors");
    CHECK_REFUSED(nn_apply(neg_op, nullptr, 1, nullptr, 0, out, &room), "neg: bad list of tensors");
    CHECK_REFUSED(nn_apply(neg_op, nullptr, 0, nullptr, 0, out, &room),
                  "neg: tensor 'x' is missing");
    const nn_value one = number(1);
    CHECK_REFUSED(nn_apply(neg_op, &x, 1, &one, 1, out, &room), "neg: 1 attributes given");
    CHECK_REFUSED(nn_apply(neg_op, &x, 1, nullptr, -1, out, &room), "neg: -1 attributes given");
    CHECK_REFUSED(nn_apply(full_op, nullptr, 0, nullptr, 1, out, &room),
                  "full: 1 attributes given");
    CHECK_REFUSED(nn_apply(full_op, nullptr, 0, nullptr, 0, out, &room),
                  "full: 'shape' must be given");
    for (int32_t bad : {0, -1, INT32_MIN}) {
        room = bad;
        CHECK_REFUSED(nn_apply(neg_op, &x, 1, nullptr, 0, out, &room), "1 results, room for");
    }
    check_usable();
}

TEST_CASE("an attribute of a wrong kind, or with a wrong list or scalar, is refused") {
    const Library library;
    nn_ref out;
    const auto full_of = [&](nn_value shape, nn_value value, nn_value dtype) {
        return apply("full", {}, {shape, value, dtype}, &out);
    };
    const Numbers sizes{2};
    const nn_value shape = list(sizes), one = number(1), dtype = text("f32");
    nn_value odd = shape;
    for (int32_t kind : {-1, 5, INT32_MAX, INT32_MIN}) {
        odd.kind = kind;
        CHECK_REFUSED(full_of(odd, one, dtype), "unknown kind");
    }
    for (int32_t count : {-1, 65, INT32_MAX, INT32_MIN})
        CHECK_REFUSED(full_of({3, count, 0, nullptr, shape.list}, one, dtype),
                      "a list attribute of");
    CHECK_REFUSED(full_of({3, 1, 0, nullptr, nullptr}, one, dtype), "a list attribute of");
    CHECK_REFUSED(full_of(shape, one, {2, 0, 0, nullptr, nullptr}), "is NULL");
    CHECK_REFUSED(full_of(shape, text("1"), dtype), "'value' must be a number");
    CHECK_REFUSED(full_of(text("2"), one, dtype), "'shape' must be a list");
    CHECK_REFUSED(full_of(shape, one, one), "'dtype' must be a string");
    CHECK_REFUSED(full_of(shape, one, text("f16")), "unknown dtype 'f16'");
    CHECK_REFUSED(full_of(number(1.5), one, dtype), "a whole number is needed");
    CHECK_REFUSED(full_of(number(NAN), one, dtype), "a whole number is needed");
    CHECK_REFUSED(full_of(list({0}), one, dtype), "at least 1");
    CHECK_REFUSED(full_of(list({2, -3}), one, dtype), "at least 1");
    CHECK_REFUSED(full_of(list({INT64_MAX, INT64_MAX}), one, dtype),
                  "more elements than can be counted");
    CHECK_REFUSED(full_of(list(Numbers(9, 1)), one, dtype), "at most 8");
    for (double bad : {-1.0, 1e300, double(NAN), double(INT32_MAX)})
        CHECK_REFUSED(full_of(shape, {4, 0, bad, nullptr, nullptr}, dtype), "scalar");
    REQUIRE_OK(full_of(number(2), one, {}));
}

TEST_CASE("the next call that uses tensors reports the error of a kernel, once") {
    const Library library;
    const nn_ref x = full({3}, 1), index = full({1}, 7, "i64");
    nn_ref y;
    REQUIRE_OK(apply("gather", {x, index}, {}, &y));
    CHECK_REFUSED(nn_sync(), "gather: ");
    REQUIRE_OK(nn_sync());
    check_usable();
    REQUIRE_OK(apply("gather", {x, index}, {}, &y));
    double value;
    CHECK_REFUSED(nn_read(&y, &value, 8), "gather: ");
    check_usable();
}

TEST_CASE("exceeding the budget is NN_OUT_OF_MEMORY, and a negative budget is an error") {
    const Library library;
    nn_ref out;
    CHECK_REFUSED(nn_memory_budget(-1), "-1 bytes");
    REQUIRE_OK(nn_memory_budget(1'000'000));
    CHECK(apply("full", {}, {list({1'000'000}), number(1)}, &out) == NN_OUT_OF_MEMORY);
    CHECK_THAT(nn_error(), says("4.0 MB does not fit") && says("1.0 MB"));
    nn_memory_info_t info;
    REQUIRE_OK(nn_memory(&info));
    CHECK(info.budget == 1'000'000);
    CHECK(info.tensors == 0);
    REQUIRE_OK(nn_memory_budget(0));
    REQUIRE_OK(nn_memory(&info));
    CHECK(info.budget > 1'000'000);
    REQUIRE_OK(nn_reset_peak());
    check_usable();
}

TEST_CASE("an interrupt stops calls that submit or wait, until it is cleared or deferred") {
    const Library library;
    const nn_ref x = full({2}, 1);
    int32_t flag = -1;
    nn::request_interrupt();
    nn_ref out;
    double buffer[2];
    CHECK(apply("neg", {x}, {}, &out) == NN_INTERRUPTED);
    CHECK_THAT(nn_error(), says("interrupted"));
    CHECK(nn_read(&x, buffer, 16) == NN_INTERRUPTED);
    CHECK(nn_write(&x, buffer, 16) == NN_INTERRUPTED);
    CHECK(nn_sync() == NN_INTERRUPTED);
    CHECK(nn_record_begin() == NN_INTERRUPTED);
    CHECK(nn_recording() == 0);
    REQUIRE_OK(nn_interrupted(&flag));
    CHECK(flag == 1);
    REQUIRE_OK(nn_defer_interrupts(1));
    CHECK(values(neg(x))[0] == -1);
    REQUIRE_OK(nn_interrupted(&flag));
    CHECK(flag == 1);
    REQUIRE_OK(nn_defer_interrupts(0));
    CHECK(nn_sync() == NN_INTERRUPTED);
    REQUIRE_OK(nn_clear_interrupt());
    REQUIRE_OK(nn_interrupted(&flag));
    CHECK(flag == 0);
    check_usable();
}

TEST_CASE("scalars hold numbers, and unknown ones are errors") {
    const Library library;
    int32_t id = -1;
    double value = 0;
    REQUIRE_OK(nn_scalar_new(1.5, &id));
    REQUIRE_OK(nn_scalar_set(id, 2.5));
    REQUIRE_OK(nn_scalar_add(id, 1));
    REQUIRE_OK(nn_scalar_get(id, &value));
    CHECK(value == 3.5);
    nn_ref x;
    REQUIRE_OK(apply("full", {}, {list({1}), slot(id), text("f64")}, &x));
    CHECK(values(x)[0] == 3.5);
    REQUIRE_OK(nn_scalar_free(id));
    for (int32_t bad : {id, -1, INT32_MIN, INT32_MAX}) {
        CHECK_REFUSED(nn_scalar_get(bad, &value), "freed scalar");
        CHECK_REFUSED(nn_scalar_set(bad, 1), "freed scalar");
        CHECK_REFUSED(nn_scalar_add(bad, 1), "freed scalar");
        CHECK_REFUSED(nn_scalar_free(bad), "freed scalar");
    }
}

TEST_CASE("the random state can be read, set and advanced") {
    const Library library;
    uint64_t seed = 0, counter = 9;
    int64_t drawn = -1;
    REQUIRE_OK(nn_seed(UINT64_MAX));
    REQUIRE_OK(nn_random_state(&seed, &counter));
    CHECK(seed == UINT64_MAX);
    CHECK(counter == 0);
    REQUIRE_OK(nn_next_random(&drawn));
    CHECK(drawn == 0);
    REQUIRE_OK(nn_set_random_counter(41));
    REQUIRE_OK(nn_next_random(&drawn));
    CHECK(drawn == 41);
}

TEST_CASE("host numbers of every dtype convert to doubles and back") {
    const double in[] = {0, 1, 5, 3};
    for (int dtype = 0; dtype < dtype_count; ++dtype) {
        INFO(dtype_name(Dtype(dtype)));
        unsigned char bytes[32] = {};
        double out[4] = {};
        REQUIRE_OK(nn_copy_from_f64(in, dtype, 4, bytes));
        REQUIRE_OK(nn_copy_f64(bytes, dtype, 4, out));
        for (int i = 0; i < 4; ++i)
            CHECK(out[i] == (Dtype(dtype) == Dtype::boolean ? in[i] != 0 : in[i]));
        REQUIRE_OK(nn_copy_f64(bytes, dtype, 0, out));
        CHECK_REFUSED(nn_copy_f64(bytes, dtype, -1, out), "-1 numbers");
        CHECK_REFUSED(nn_copy_from_f64(in, dtype, INT64_MIN, bytes), "numbers");
        CHECK_REFUSED(nn_copy_f64(nullptr, dtype, 1, out), "in is NULL");
        CHECK_REFUSED(nn_copy_f64(bytes, dtype, 1, nullptr), "out is NULL");
        CHECK_REFUSED(nn_copy_from_f64(nullptr, dtype, 1, bytes), "in is NULL");
        CHECK_REFUSED(nn_copy_from_f64(in, dtype, 1, nullptr), "out is NULL");
    }
    double out;
    for (int32_t bad : {-1, dtype_count, INT32_MAX, INT32_MIN}) {
        CHECK_REFUSED(nn_copy_f64(in, bad, 1, &out), "is outside [0, 7)");
        CHECK_REFUSED(nn_copy_from_f64(in, bad, 1, &out), "is outside [0, 7)");
    }
}

TEST_CASE("profiles and statistics count") {
    const Library library;
    REQUIRE_OK(nn_profile(1));
    neg(full({2}, 1));
    REQUIRE_OK(nn_sync());
    nn_kernel_info_t info;
    nn_kernel_stat_t stat;
    for (int i = 0; i < nn_kernel_count(); ++i) {
        REQUIRE_OK(nn_kernel_info(i, &info));
        REQUIRE_OK(nn_kernel_stat(i, &stat));
        const std::string name = info.name;
        CHECK(stat.calls == (name == "neg" || name == "fill"));
    }
    nn_stats_t stats;
    REQUIRE_OK(nn_stats(&stats));
    CHECK(stats.tasks == 2);
    REQUIRE_OK(nn_profile(0));
    REQUIRE_OK(nn_idle());
    check_usable();
}

}  // namespace nn::capi_test
