// nnlua's C API: flat, and never throws. The text between the markers is also what LuaJIT's
// ffi.cdef reads, so it is plain C without preprocessor lines. Every function returns a status:
// NN_OK (0), or a negative number, with a message in nn_error(). Call all functions from one
// thread.
#ifndef NN_H
#define NN_H
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

// <cdef>
enum { NN_OK = 0, NN_ERROR = -1, NN_OUT_OF_MEMORY = -2, NN_INTERRUPTED = -4 };

// A tensor, a program or a file. A stale, released, zero or forged one is an error, never a crash.
typedef struct {
    int32_t index;
    int32_t generation;
} nn_ref;

typedef struct {
    int32_t rank, dtype;  // dtype: 0 f32, 1 f64, 2 bf16, 3 i32, 4 i64, 5 u8, 6 bool
    int64_t shape[8];
    int64_t tiles[8];  // number of tiles along each axis
    int64_t count, bytes;
    int32_t is_view, temporary;  // temporary: exists only inside the program being recorded
} nn_tensor_info;

// The value of an attribute of an op. kind: 0 not given, 1 number (also bool and int), 2 text, 3
// list of ints, 4 the scalar whose id is `number`.
typedef struct {
    int32_t kind, count;
    double number;
    const char* text;
    const int64_t* list;
} nn_value;

typedef struct {
    const char *name, *doc, *category;
    const char* no_gradient;                // why the op has no gradient, else ""
    const char *gradient_of, *gradient_in;  // the op whose gradient this one computes, and the
                                            // input ("": several); "" for other ops
    const char* mask;                       // the attribute with the probability of a random mask
    int32_t inputs, attributes, samples, kernels, outputs;
    int32_t changes_parameters;  // it may change tensors that need gradients: an optimizer
    const char* source;          // "engine/ops/softmax.cc:40"
} nn_op_info_t;
// gradient_in: the input whose gradient the op adds to this one in place. number: it may be a
// number. in_place: the op changes it.
typedef struct {
    const char *name, *gradient_in;
    int32_t optional, number, list, in_place;
} nn_op_input_t;
typedef struct {
    const char* name;
    int32_t optional, differentiable;
} nn_op_output_t;
typedef struct {
    const char *name, *kind, *default_value, *doc;
} nn_attribute_info;
typedef struct {
    const char *name, *params_type;
    int64_t params_size;
    int32_t operands, cuda;
} nn_kernel_info_t;
typedef struct {
    const char* name;
    int32_t mode, optional;
} nn_operand_info;  // mode: 0 read, 1 write, 2 both
typedef struct {
    nn_ref tensor;
    int64_t tile;
    int32_t mode;
} nn_task_operand;  // tile: 0-based; a tensor with index 0 is absent

typedef struct {
    int64_t tasks, tiles;
    double flops;
    int64_t persistent_bytes, peak_bytes;
} nn_program_info_t;
typedef struct {
    int64_t budget, in_use, cached, peak, tensors, available;
    int64_t on_gpus;                  // bytes of tiles that each GPU holds, if GPUs run the tasks
    int64_t resident, resident_peak;  // of the process
} nn_memory_info_t;
typedef struct {
    int64_t used, read, written;  // bytes
    double busy;                  // seconds with a transfer under way
} nn_store_info_t;
typedef struct {
    int64_t slots, disk_room;  // bytes: of slots in the upper tier; for tiles on disk, 0: unknown
    nn_store_info_t disk;      // the disk, or all of them
    nn_store_info_t ram;       // RAM below a GPU, and the copies between them
    double stalled;            // seconds of workers without a task during transfers
    int64_t limited, kept;     // searches that nn_limit_search ended; plans found without one
} nn_tiers_info_t;
typedef struct {
    int32_t ranks, cpus, gpus, described;  // described: 0 for the host
    int64_t ram, gpu_memory, disk;         // bytes of all nodes of a kind; 0: none, or not known
} nn_machine_info_t;
typedef struct {
    int64_t calls;
    double seconds, flops, bytes;
} nn_kernel_stat_t;
// Seconds of a worker. It is busy, or it waits: for data of its next task to be copied; for running
// tasks on which all submitted ones depend, or for the disk if one of its transfers waits or is
// under way then; for tasks to be submitted; or for the engine, while a task is ready.
typedef struct {
    const char* name;  // "CPU 0", "GPU 1"; valid until the next call
    int32_t gpu;
    int64_t tasks;
    double busy, data, disk, dependencies, nothing, engine;
} nn_profile_worker_t;
typedef struct {
    double seconds;
    int64_t tasks, lost;  // lost: submitted after the profile was full, when its time ends
    int32_t workers, groups[3];
    int64_t spans, transfers;
} nn_profile_info_t;
typedef struct {
    const char* name;
    int64_t calls;
    double seconds, flops, bytes;
} nn_profile_group_t;
// A task; times in seconds since the profile began. popped: the worker took it; launched: its data
// were in place. worker: -1 if it never ran. run: the number of a program's run, from 1, or 0:
// eager; index: of the task in the program. library: "openblas", ... if it was chosen for the shape
// of a product, or "".
typedef struct {
    const char *kernel, *op, *layer, *library;
    double submitted, ready, popped, launched, start, end, flops, bytes;
    int32_t worker, dtype, run, index, tile, rank, shape[8];
} nn_profile_task_t;
// What the submitting thread did: "submit" or "wait".
typedef struct {
    const char *what, *op;
    int64_t tasks;
    double start, end;
} nn_profile_span_t;
// A transfer of a tile between memory and the disk, or (is_disk is 0) between a GPU and RAM. kind:
// of nn_tensor_kind; bytes: that the store transfers. Seconds since the profile began: the transfer
// could begin, began, ended.
typedef struct {
    int32_t is_disk, writes, kind;  // writes: to the lower tier
    int64_t bytes;
    double queued, start, end;
} nn_profile_transfer_t;
// The transfers in one direction. busy: seconds with at least one under way; waited: seconds before
// their begin, summed over the transfers.
typedef struct {
    int64_t transfers, bytes;
    double busy, waited;
} nn_profile_link_t;
typedef struct {
    int64_t tasks, replayed_tasks;
    double replay_seconds, starpu_seconds;  // CPU time of submission, and StarPU's part of it
    int64_t earlier_tasks;                  // before nn_profile cleared the numbers above
    int64_t unfinished;                     // tasks submitted that are not done yet
} nn_stats_t;

const char* nn_error(void);    // the last message
const char* nn_version(void);  // several lines: nnlua, LuaJIT, StarPU, BLAS, products, CUDA
// Call it before the first task. cpus 0, scheduler NULL or "": automatic; gpus: at most, -1: all;
// gpu_memory: bytes for tiles on each, 0: 90 % of its memory; streams: per GPU, 0: one;
// cuda_graphs 1: kernels of a group are started as a CUDA graph.
int nn_configure(int32_t cpus, const char* scheduler, int32_t gpus, int64_t gpu_memory,
                 int32_t streams, int32_t cuda_graphs);
int nn_workers(int32_t* cpus, int32_t* gpus);
// The cores that this process may use, and what decides that; why no GPU is used although there
// seem to be some, or "".
int nn_host_limits(int32_t* cores, const char** why, const char** gpu_problem);
// Describes the machine for tilings and plans: "cpus=64 ram=512GB gpus=8 ...", or a file of such
// settings; "" returns to the host.
int nn_machine_describe(const char* text);
int nn_machine_info(nn_machine_info_t* out);
// FLOP/s of products of n x n matrices in f32 or bf16, on all workers (engine/plan/measure.h).
int nn_product_rate(int64_t n, int32_t dtype, double* flops_per_second);
// GFLOP/s of one core, measured once on this machine, of the products that CPU workers compute; 0:
// not measured, or bf16 products are computed in f32.
int nn_core_rates(double* f32, double* bf16);
int nn_shutdown(void);              // waits; refs become stale
int nn_sync(void);                  // waits for every task
int nn_idle(void);                  // waits, then lets the workers sleep until the next task
int nn_interrupted(int32_t* flag);  // whether a stop signal was received
int nn_check_interrupt(void);       // NN_INTERRUPTED if so, unless interrupts are deferred
int nn_clear_interrupt(void);
int nn_defer_interrupts(int32_t deferred);  // 1: signals interrupt no calls; 2: only planning
int nn_release(const nn_ref* ref);          // NULL and stale refs are ignored
int nn_tensor_info_get(const nn_ref* tensor, nn_tensor_info* out);
int nn_read(const nn_ref* tensor, void* out, int64_t bytes);  // row-major; waits
int nn_write(const nn_ref* tensor, const void* in, int64_t bytes);
// Of each tensor a number that grows whenever it is changed in place; 0 for those with index 0.
int nn_versions(const nn_ref* tensors, int32_t count, int64_t* versions);
// The cuts of an axis, from 0.
int nn_cuts(const nn_ref* tensor, int32_t axis, int64_t* out, int32_t capacity, int32_t* count);
// tile: sizes along the axes; 0: the whole axis.
int nn_retile(const nn_ref* tensor, const int64_t* tile, int32_t rank, nn_ref* out);
int nn_tile_size(const char* axis, int64_t size);  // 0: automatic
int nn_tensors_alive(int64_t* count);
// Bytes of a tensor in each memory node: RAM, then each GPU's memory. A value may be in several
// nodes, or, before it is computed, in none. *count: capacity in, number of memory nodes out.
int nn_tensor_nodes(const nn_ref* tensor, int64_t* bytes, int32_t* count);
// Of each memory node: bytes in use or kept for reuse, and their limit. *count as above.
int nn_node_memory(int64_t* used, int64_t* limit, int32_t* count);
int nn_bytes_moved(int64_t* bytes);  // between memory nodes, since the engine started
int nn_node_name(int32_t node, const char** name);  // "RAM", "GPU 0"; valid until the next call

int nn_op_count(void);
int nn_op_info(int32_t op, nn_op_info_t* out);
int nn_op_input(int32_t op, int32_t i, nn_op_input_t* out);
int nn_op_output(int32_t op, int32_t i, nn_op_output_t* out);
int nn_op_attribute(int32_t op, int32_t i, nn_attribute_info* out);
int nn_op_sample(int32_t op, int32_t i, const char** text);
int nn_op_kernel(int32_t op, int32_t i, const char** name);
// Applies an op. attributes: in the order of their declaration; then, for an op with inputs that
// may be numbers, a value for each input. Absent inputs, and those that are numbers, have index 0.
// *n_outputs: capacity in, number of results out; absent results have index 0.
int nn_apply(int32_t op, const nn_ref* inputs, int32_t n_inputs, const nn_value* attributes,
             int32_t n_attributes, nn_ref* outputs, int32_t* n_outputs);
int nn_record_begin(void);
// Creates an input of the program, cut like `like`; every replay fills it.
int nn_record_input(const nn_ref* like, nn_ref* out);
int nn_record_end(const nn_ref* inputs, int32_t n_inputs, const nn_ref* outputs, int32_t n_outputs,
                  nn_ref* program);
int nn_record_abort(void);
int nn_recording(void);  // 1 while recording
int nn_program_run(const nn_ref* program, const nn_ref* inputs, int32_t n_inputs, nn_ref* outputs,
                   int32_t n_outputs);
int nn_program_info(const nn_ref* program, nn_program_info_t* out);
// While recording:
int nn_record_microbatch(int32_t tiles);  // the next one begins; tiles: of its tokens
// The following tasks belong to this shard of the batch, from 0; -1: to none.
int nn_record_shard(int32_t shard, int32_t shards);
// A loop: the tasks of each iteration of its own, then twice those that all have. At the end, *done
// is the number of iterations that are recorded: all, or two if the tasks differ or repeats is 0.
int nn_record_loop(int32_t iterations);
int nn_record_iteration(int32_t iteration);  // of the following tasks, from 0
int nn_record_body(void);                    // the following tasks are those of all iterations
int nn_record_loop_end(int32_t repeats, int32_t* done);
int nn_record_backward(int32_t begins);  // the tasks in between belong to a backward pass
int nn_scalar_new(double value, int32_t* scalar);
int nn_scalar_free(int32_t scalar);
int nn_scalar_set(int32_t scalar, double value);
int nn_scalar_get(int32_t scalar, double* value);
// A scalar that is computed at each read, by the operator '+', '-', '*', '/' or '^'. a and b: of
// kind 1 or 4.
int nn_scalar_computed(int32_t op, const nn_value* a, const nn_value* b, int32_t* scalar);
int nn_scalar_add(int32_t scalar, double delta);  // while recording: at every replay, at this point
// A file of a given size, written in the background: bytes, and tensors with their values at the
// call. nn_file_close() makes it durable; releasing the file before it is done abandons it.
// nn_file_wait() reports errors.
int nn_file_create(const char* path, int64_t bytes, nn_ref* file);
int nn_file_append(const nn_ref* file, const void* data, int64_t bytes);
int nn_file_append_tensor(const nn_ref* file, const nn_ref* tensor);
int nn_file_drain(const nn_ref* file);  // waits until all appended data is copied
int nn_file_close(const nn_ref* file);
int nn_file_done(const nn_ref* file, int32_t* done);
int nn_file_wait(const nn_ref* file, uint32_t* crc32);
// The program nnlua removes this file or empty folder when it ends, even at once.
int nn_remove_at_exit(const char* path);
int nn_keep_at_exit(const char* const* paths, int32_t n_paths);  // cancels that for all of them
int nn_crc32(const void* data, int64_t bytes, uint32_t before, uint32_t* crc32);

int nn_scope_begin(void);
// Releases the tensors created since nn_scope_begin, except those to keep.
int nn_scope_end(const nn_ref* keep, int32_t n_keep);
int nn_memory(nn_memory_info_t* out);
// 0: the default (engine/machine/memory_limit.h); fails if that is 0 bytes.
int nn_memory_budget(int64_t bytes);
// Programs that need more than `ram` bytes keep tiles in a file of a folder, or those that need
// more than `gpu` bytes of a GPU's memory keep tiles in RAM; the other number is 0. With both, a
// GPU's memory is above RAM, and RAM is above the disk. folders: lines; each has a part of a tile,
// and is created if missing; in_ram: it may be a tmpfs or ramfs. rate: its most bytes/s; 0: any.
int nn_memory_tiers(int64_t ram, const char* folders, double rate, int64_t gpu, int32_t in_ram);
// What compiled functions do with activations until the backward pass: 0 keep, 1 recompute them; 2:
// recompute as few as possible, so that the function fits into memory.
int nn_activations(int32_t choice);
int nn_limit_search(double seconds);  // for a plan, 4 at first; 0: no limit
int nn_tiers(nn_tiers_info_t* out);
// Measures transfers at scattered places of a folder's disk: written: the share of bytes that are
// written; piece: bytes of a transfer, 0: 4 MiB; threads: 0: as many as tiers use.
int nn_measure_disk(const char* folder, double written, int64_t piece, int32_t threads,
                    double* bytes_per_second);
int nn_reset_peak(void);
// Whether each value of a tile is checked where it is read: 1, 0, or -1: no change; was may be
// NULL.
int nn_check_tiles(int32_t chosen, int32_t* was);
int nn_matmul_tf32(int32_t allowed, int32_t* was);  // 1, 0, or -1: no change; was may be NULL
// The kernels for attention on GPUs: 0 the best, 1 cuDNN's, 2 nnlua's; or -1: no change.
int nn_attention_backend(int32_t backend, int32_t* was);
// 1: gradients of bf16 weights that one product computes are bf16, 0: f32, or -1: no change.
int nn_bf16_gradients(int32_t chosen, int32_t* was);
// Of tasks submitted from now on: 0 anywhere, 1 CPU, 2 GPU, 3 automatic: on GPUs if there are any.
int nn_run_tasks_on(int32_t where);
int nn_seed(uint64_t seed);
int nn_random_state(uint64_t* seed, uint64_t* counter);
int nn_set_random_counter(uint64_t counter);
int nn_next_random(int64_t* counter);  // takes the next counter, like a random op

int nn_kernel_count(void);
int nn_kernel_info(int32_t kernel, nn_kernel_info_t* out);
int nn_kernel_operand(int32_t kernel, int32_t i, nn_operand_info* out);
int nn_kernel_stat(int32_t kernel, nn_kernel_stat_t* out);
// Waits for all tasks; 1 starts a profile, 0 ends it. Both clear the records.
int nn_profile(int32_t enabled);
// Waits for all tasks and ends the profile. The functions below read the records.
int nn_profile_stop(nn_profile_info_t* out);
int nn_profile_worker(int32_t worker, nn_profile_worker_t* out);  // from 0
// The groups by 0 kernel, 1 op or 2 layer, most seconds first.
int nn_profile_group(int32_t by, int32_t i, nn_profile_group_t* out);
int nn_profile_task(int64_t i, nn_profile_task_t* out);  // in the order of submission
// The recorded tasks that task i depends on. *count: capacity in, number of tasks out.
int nn_profile_before(int64_t i, int64_t* tasks, int32_t* count);
int nn_profile_span(int64_t i, nn_profile_span_t* out);
int nn_profile_transfer(int64_t i, nn_profile_transfer_t* out);  // in the order of their ends
// is_disk: between memory and the disk; else between a GPU and RAM. writes: to the lower tier.
int nn_profile_link(int32_t is_disk, int32_t writes, nn_profile_link_t* out);
// A number for the name of a layer ("blocks.3.mlp"), 0 for "". Tasks emitted after nn_layer_set
// belong to that layer; before may be NULL.
int nn_layer(const char* name, int32_t* id);
int nn_layer_set(int32_t id, int32_t* before);
int nn_stats(nn_stats_t* out);
// Submits one kernel on tiles. where: 0 anywhere, 1 CPU, 2 GPU. The kernel does not check its
// params: if sizes exceed the tiles, it reads and writes out of bounds.
int nn_task(const char* kernel, int32_t dtype, const nn_task_operand* operands, int32_t n_operands,
            const void* params, int64_t params_size, int32_t priority, int32_t where);
// This rank of mpirun, how many there are, and what it has submitted to send and receive so far.
typedef struct {
    int32_t rank, ranks;
    int64_t messages_sent, bytes_sent, bytes_received;
} nn_ranks_t;
int nn_ranks(nn_ranks_t* out);
// Gathers a text of every rank; all ranks call it at the same point of the script, which `what`
// names for errors. nn_ranks_gathered returns each; it is valid until the next call.
int nn_ranks_gather(const char* what, const char* mine, int64_t bytes);
int nn_ranks_gathered(int32_t rank, const char** text, int64_t* bytes);
// All ranks call these in the same order. own: one rank keeps each larger tile from now on, that of
// `like` or, if null, one that keeps few bytes. move: what one rank keeps moves to that of `like`.
// For files, which rank 0 has: collect gives it what only others keep (*any: if any), drop frees
// that after its last use, spread sends rank 0's value to all ranks that keep the tensor.
int nn_ranks_own(const nn_ref* tensor, const nn_ref* like);
int nn_ranks_move(const nn_ref* tensor, const nn_ref* like);
int nn_ranks_collect(const nn_ref* tensor, int32_t* any);
int nn_ranks_drop(const nn_ref* tensor);
int nn_ranks_spread(const nn_ref* tensor);
// Converts host memory of any dtype to and from doubles.
int nn_copy_f64(const void* in, int32_t dtype, int64_t count, double* out);
int nn_copy_from_f64(const double* in, int32_t dtype, int64_t count, void* out);
// </cdef>

#ifndef NN_NO_OLD_NAMES  // of version 0.1
#define nn_slot_new nn_scalar_new
#define nn_slot_free nn_scalar_free
#define nn_slot_set nn_scalar_set
#define nn_slot_get nn_scalar_get
#define nn_slot_add nn_scalar_add
#define nn_record_part nn_record_microbatch
#define nn_tensor_places nn_tensor_nodes
#define nn_place_memory nn_node_memory
#define nn_place_name nn_node_name
#define nn_place nn_run_tasks_on
#endif

#ifdef __cplusplus
}
#endif
#endif
