// Profiles through the C API: what nn_profile_stop and its queries return, and what they refuse.
#include <cmath>

#include "tests/cpp/capi_test.h"

namespace nn::capi_test {

TEST_CASE("a stopped profile describes its tasks, workers, groups, spans and transfers") {
    const Library library;
    const nn_ref x = full({4}, 2);
    int32_t layer = 0, before = -1;
    REQUIRE_OK(nn_layer("capi.profile", &layer));
    REQUIRE_OK(nn_profile(1));
    REQUIRE_OK(nn_layer_set(layer, &before));
    CHECK(before == 0);
    neg(neg(x));
    REQUIRE_OK(nn_layer_set(0, &before));
    CHECK(before == layer);
    nn_profile_info_t info;
    REQUIRE_OK(nn_profile_stop(&info));
    CHECK(info.tasks == 2);
    CHECK(info.lost == 0);
    CHECK(info.workers == 2);
    CHECK(info.groups[0] == 1);
    CHECK(info.spans >= 2);

    nn_profile_task_t task;
    REQUIRE_OK(nn_profile_task(1, &task));
    CHECK(std::string(task.kernel) + " " + task.op + " " + task.layer == "neg neg capi.profile");
    CHECK(task.submitted > 0);
    CHECK(task.start <= task.end);
    CHECK(task.end <= info.seconds);
    CHECK(task.rank == 1);
    CHECK(task.shape[0] == 4);
    CHECK(task.dtype == f64);
    int64_t others[2] = {-1, -1};
    int32_t count = 2;
    REQUIRE_OK(nn_profile_before(1, others, &count));
    CHECK(count == 1);
    CHECK(others[0] == 0);
    count = 0;
    REQUIRE_OK(nn_profile_before(1, nullptr, &count));
    CHECK(count == 1);

    double all = 0;
    for (int i = 0; i < info.workers; ++i) {
        nn_profile_worker_t w;
        REQUIRE_OK(nn_profile_worker(i, &w));
        CHECK(std::string(w.name) == "CPU " + std::to_string(i));
        all += w.busy + w.data + w.dependencies + w.nothing + w.engine;
    }
    CHECK(std::abs(all - 2 * info.seconds) < 1e-6);
    for (int by = 0; by < 3; ++by) {
        nn_profile_group_t group;
        REQUIRE_OK(nn_profile_group(by, 0, &group));
        CHECK(std::string(group.name) == (by == 2 ? "capi.profile" : "neg"));
        CHECK(group.calls == 2);
        CHECK(group.bytes == 2 * 64);
    }
    nn_profile_span_t span;
    REQUIRE_OK(nn_profile_span(0, &span));
    CHECK(std::string(span.what) + " " + span.op == "submit neg");
    CHECK(span.tasks == 1);
    REQUIRE_OK(nn_profile(0));
    CHECK_REFUSED(nn_profile_task(0, &task), "profile task 0 is outside [0, 0)");
    check_usable();
}

TEST_CASE("dependencies asked for during a profile do not hide those of later tasks") {
    const Library library;
    REQUIRE_OK(nn_profile(1));
    const nn_ref first = neg(full({1}, 1));
    int64_t before = -1;
    int32_t count = 1;
    REQUIRE_OK(nn_profile_before(0, &before, &count));
    CHECK(count == 0);
    neg(first);
    nn_profile_info_t info;
    REQUIRE_OK(nn_profile_stop(&info));
    count = 1;
    REQUIRE_OK(nn_profile_before(info.tasks - 1, &before, &count));
    CHECK(count == 1);
    REQUIRE_OK(nn_profile(0));
}

TEST_CASE("a profile refuses unknown tasks, workers, groups, spans and transfers") {
    const Library library;
    nn_profile_info_t info;
    CHECK_REFUSED(nn_profile_stop(&info), "none is under way; nn_profile(1) starts one");
    REQUIRE_OK(nn_profile(1));
    CHECK_REFUSED(nn_profile_stop(nullptr), "out is NULL");
    neg(full({1}, 1));
    REQUIRE_OK(nn_profile_stop(&info));
    nn_profile_task_t task;
    nn_profile_worker_t worker;
    nn_profile_group_t group;
    nn_profile_span_t span;
    nn_profile_transfer_t transfer;
    nn_profile_link_t link;
    int32_t n = 4;
    for (int bad : {-1, 1 << 20}) {
        const std::string outside = format(" %d is outside [0, ", bad);
        CHECK_REFUSED(nn_profile_task(bad, &task), "profile task" + outside);
        CHECK_REFUSED(nn_profile_worker(bad, &worker), "profile worker" + outside);
        CHECK_REFUSED(nn_profile_group(0, bad, &group), "profile group" + outside);
        CHECK_REFUSED(nn_profile_group(bad, 0, &group), "groups are by 0 kernel, 1 op or 2 layer");
        CHECK_REFUSED(nn_profile_span(bad, &span), "profile span" + outside);
        CHECK_REFUSED(nn_profile_transfer(bad, &transfer), "profile transfer" + outside);
        CHECK_REFUSED(nn_profile_link(1, bad, &link), "a link is 0 read or 1 write, not");
        CHECK_REFUSED(nn_profile_before(bad, nullptr, &n), "profile task" + outside);
        CHECK_REFUSED(nn_layer_set(bad, nullptr), "layer" + outside);
    }
    CHECK_REFUSED(nn_profile_task(0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_profile_worker(0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_profile_group(0, 0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_profile_span(0, nullptr), "out is NULL");
    CHECK_REFUSED(nn_profile_link(1, 0, nullptr), "out is NULL");
    REQUIRE_OK(nn_profile_link(0, 1, &link));
    CHECK((link.transfers == 0 && link.bytes == 0 && info.transfers == 0));
    CHECK_REFUSED(nn_profile_before(1, nullptr, &n), "tasks is NULL");
    CHECK_REFUSED(nn_profile_before(1, nullptr, nullptr), "count is NULL");
    CHECK_REFUSED(nn_layer(nullptr, &n), "name is NULL");
    CHECK_REFUSED(nn_layer("x", nullptr), "id is NULL");
    check_usable();
}

}  // namespace nn::capi_test
