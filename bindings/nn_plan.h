// nnlua's C API for plans, as nn.h: flat, never throws, and LuaJIT reads it too.
#ifndef NN_PLAN_H
#define NN_PLAN_H
#include "nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// <cdef>
// A simulated step. recorded: tasks of all ranks without the iterations of loops; seconds: between
// the ends of two steps; busy: seconds of computation, over all workers; lasting: bytes between
// steps; kinds: bytes of the peak, by nn_tensor_kind; recomputed: bytes of activations that are not
// kept; recomputing: the share of `busy` that this takes.
typedef struct {
    int64_t tasks, recorded;
    double flops, seconds, busy;
    int64_t peak, lasting, kinds[6], recomputed;
    double recomputing;
    int32_t workers, on_gpus, assumed_rates, assumed_link;
    double link_rate;  // bytes/s between ranks
} nn_program_plan_t;
// The part of one of several ranks in it, with the bytes that it sends and receives, and the
// seconds for which it sends.
typedef struct {
    int64_t peak, tasks, sent, received;
    double flops, busy, sending;
} nn_rank_plan_t;
// The tasks of one kernel in a step, and their least seconds on one GPU of the described machine:
// for each task the time for its FLOPs or for its bytes, whichever is longer.
typedef struct {
    const char* kernel;
    int64_t tasks;
    double flops, bytes, seconds;
} nn_kernel_cost_t;
// How a step is submitted to GPUs. groups: tasks of StarPU; freed: temporaries whose memory is
// freed in a run; hops: bytes that move between GPUs as values are needed.
typedef struct {
    int64_t groups, freed;
    double hops;
} nn_gpu_step_t;
// A memory tier with slots in the plan of a program. Bytes: slots, reserved; loaded, stored: that a
// run moves between it and the tier below, by nn_tensor_kind. busy: seconds of a run with such a
// transfer under way.
typedef struct {
    int64_t slots, reserved, loaded[6], stored[6];
    int64_t least_moved;  // a lower bound for every placement
    int64_t lru_moved;    // if the least recently used tiles left memory
    double busy;
} nn_tier_level_t;
// The plan as a whole. Bytes: kept: tiles outside slots; stored: in the tier below all those with
// slots; rest: that the process needs besides tiles. Seconds of a run: in all, and of computation
// per worker.
typedef struct {
    int64_t kept, stored, rest;
    double seconds, computing;
} nn_tier_plan_t;

// While recording: a step begins, of which the recording is a plan. It forgets the tasks so far;
// what these created and what is `lasting` exists before and after the step.
int nn_record_step(const nn_ref* lasting, int32_t count);
// For plans and profiles. kind: 0 other, 1 weights, 2 gradients, 3 optimizer state, 4 activations,
// 5 cache of keys and values.
int nn_tensor_kind(const nn_ref* tensor, int32_t kind);
// Simulates the program. measured: 0: with nominal rates; 1: after timing its kernels on this
// machine, for at most a second or two; 2: with the times measured before. steps: 1 to 9, each
// submitted before the previous one is done; 1 if the caller waits for each.
// of_ranks: the part of each rank; there is one if all run the same. *n_ranks: capacity in, number
// out; 1: this rank's part alone.
int nn_program_plan(const nn_ref* program, int32_t measured, int32_t steps, nn_program_plan_t* out,
                    nn_rank_plan_t* of_ranks, int32_t* n_ranks);
// 1: every rank makes the plans that follow, and all wait for each other; 0: they may differ.
int nn_plan_together(int32_t together);
// Measures the rate between ranks, for the plans that follow. Every rank calls it.
int nn_measure_rank_link(void);
// The costs of a step by kernel. *count: capacity in, number of kernels out. The machine must be
// described with rates of GPUs.
int nn_program_gpu_costs(const nn_ref* program, nn_kernel_cost_t* out, int32_t* count,
                         nn_gpu_step_t* step);
// Plans the program with the tiers of nn_memory_tiers. measured: as for nn_program_plan. levels:
// those with slots, from upper to lower. *n_levels: capacity in, their number out.
int nn_program_tiers(const nn_ref* program, int32_t measured, nn_tier_plan_t* out,
                     nn_tier_level_t* levels, int32_t* n_levels);
// </cdef>

#ifdef __cplusplus
}
#endif
#endif
