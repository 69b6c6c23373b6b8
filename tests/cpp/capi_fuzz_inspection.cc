// Random calls that compute nothing, and calls on files: see capi_fuzz.h.
#include <unistd.h>

#include "tests/cpp/capi_fuzz.h"

namespace nn::capi_test {

FuzzInspection::FuzzInspection(uint64_t seed)
    : FuzzArguments(seed), path("/tmp/nnlua-fuzz-" + std::to_string(getpid())) {}

FuzzInspection::~FuzzInspection() {
    for (const nn_ref& file : files) nn_release(&file);
    unlink(path.c_str());
}

int FuzzInspection::descriptions() {
    nn_op_info_t op;
    nn_op_input_t input;
    nn_op_output_t output;
    nn_attribute_info attribute;
    nn_kernel_info_t kernel;
    nn_operand_info operand;
    nn_kernel_stat_t stat;
    nn_stats_t stats;
    const char* name;
    switch (random.integer(0, 10)) {
        case 0: return nn_op_info(any32(), perhaps(&op));
        case 1: return nn_op_input(any32(), any32(), perhaps(&input));
        case 2: return nn_op_attribute(any32(), any32(), perhaps(&attribute));
        case 3: return nn_op_sample(any32(), any32(), perhaps(&name));
        case 4: return nn_op_kernel(any32(), any32(), perhaps(&name));
        case 5: return nn_kernel_info(any32(), perhaps(&kernel));
        case 6: return nn_kernel_operand(any32(), any32(), perhaps(&operand));
        case 7: return nn_kernel_stat(any32(), perhaps(&stat));
        case 8: return nn_stats(perhaps(&stats));
        case 9: return nn_op_output(any32(), any32(), perhaps(&output));
        default: return nn_reset_peak();
    }
}

int FuzzInspection::profile() {
    nn_profile_info_t info;
    nn_profile_worker_t worker;
    nn_profile_group_t group;
    nn_profile_task_t task;
    nn_profile_span_t span;
    nn_profile_transfer_t transfer;
    nn_profile_link_t link;
    int64_t tasks[4];
    int32_t count = std::min(any32(), 4);
    switch (random.integer(0, 8)) {
        case 0: return nn_profile(any32());
        case 1: return nn_profile_stop(perhaps(&info));
        case 2: return nn_profile_worker(any32(), perhaps(&worker));
        case 3: return nn_profile_group(any32(), any32(), perhaps(&group));
        case 4: return nn_profile_task(any(), perhaps(&task));
        case 5: return nn_profile_before(any(), perhaps(tasks), perhaps(&count));
        case 6: return nn_profile_transfer(any(), perhaps(&transfer));
        case 7: return nn_profile_link(any32(), any32(), perhaps(&link));
        default: return nn_profile_span(any(), perhaps(&span));
    }
}

// Never measures task times for a plan, which takes a second.
int FuzzInspection::plans() {
    const nn_ref p = program(), x = tensor();
    nn_program_plan_t plan;
    nn_rank_plan_t of_rank;
    int32_t ranks = any32() % 2;
    const int32_t measured = any32();
    switch (random.integer(0, 3)) {
        case 0:
            return nn_program_plan(perhaps(&p), measured == 1 ? 0 : measured, int(any32() % 12),
                                   perhaps(&plan), perhaps(&of_rank), perhaps(&ranks));
        case 1: return nn_record_step(perhaps(&x), any32() % 2);
        case 2: return nn_record_microbatch(any32());
        default: return nn_tensor_kind(perhaps(&x), any32());
    }
}

// Tasks for a device without workers are refused; afterwards tasks may run anywhere again.
int FuzzInspection::places() {
    const nn_ref x = tensor();
    int64_t used[4], limit[4];
    int32_t count = std::min(any32(), 4), was;
    const char* name;
    nn_ref made{};
    switch (random.integer(0, 8)) {
        case 0: return nn_tensor_nodes(perhaps(&x), perhaps(used), perhaps(&count));
        case 1: return nn_node_memory(perhaps(used), perhaps(limit), perhaps(&count));
        case 2: return nn_bytes_moved(perhaps(used));
        case 3: return nn_node_name(any32(), perhaps(&name));
        case 4: return nn_tensors_alive(perhaps(used));
        case 5: return nn_matmul_tf32(any32(), perhaps(&was));
        default:
            judge(nn_run_tasks_on(any32()));
            judge(apply("full", {}, {list({2}), number(1), text("f32")}, &made));
            nn_release(&made);
            return nn_run_tasks_on(0);
    }
}

int FuzzInspection::layers() {
    static const char* const names[] = {"", "blocks.1.mlp", "head", "blocks.2.attention"};
    int32_t id;
    if (one_in(2)) return nn_layer(perhaps(names[random.integer(0, 3)]), perhaps(&id));
    return nn_layer_set(any32(), perhaps(&id));
}

int FuzzInspection::open_file() {
    static const int64_t odd[] = {-1, INT64_MIN, INT64_MAX, 1LL << 58};
    const int64_t bytes = one_in(10) ? odd[random.integer(0, 3)] : 8 * random.integer(0, 12);
    const char* name = one_in(20) ? "/nowhere/file" : path.c_str();
    nn_ref file{};
    const int status = nn_file_create(perhaps(name), bytes, perhaps(&file));
    if (status != NN_OK) return status;
    if (files.size() == 3) {
        nn_release(&files.front());
        files.erase(files.begin());
    }
    files.push_back(file);
    return status;
}

int FuzzInspection::write_file() {
    if (files.empty()) return open_file();
    nn_ref file = files[size_t(random.integer(0, int64_t(files.size()) - 1))];
    if (one_in(20)) file = tensor();
    const nn_ref x = tensor();
    int32_t done;
    uint32_t crc;
    switch (random.integer(0, 8)) {
        case 0:
            return nn_file_append(perhaps(&file), perhaps(host.data()),
                                  std::min<int64_t>(any(), budget));
        case 1: return nn_file_append(perhaps(&file), host.data(), 8);
        case 2: return nn_file_append_tensor(perhaps(&file), perhaps(&x));
        case 3: return nn_file_drain(perhaps(&file));
        case 4: return nn_file_close(perhaps(&file));
        case 5: return nn_file_done(perhaps(&file), perhaps(&done));
        default: return nn_file_wait(perhaps(&file), perhaps(&crc));
    }
}

int FuzzInspection::sums() {
    uint32_t crc;
    return nn_crc32(perhaps(host.data()), std::min<int64_t>(any(), budget), uint32_t(any32()),
                    perhaps(&crc));
}

}  // namespace nn::capi_test
