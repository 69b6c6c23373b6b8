// libnnlua_mpi.so: transfers of tiles between ranks by StarPU-MPI. See plugin.h.
#include "engine/ranks/plugin.h"

#include <mpi.h>
#include <starpu.h>
#include <starpu_mpi.h>

#include <atomic>

namespace nn {
namespace {

std::atomic<int64_t> transfers{0};  // submitted and not ended
void (*report_failure)(const char* what) = nullptr;

void (*report_end)(void* record) = nullptr;

void transfer_ended(void* record) {
    report_end(record);
    --transfers;
}

// StarPU-MPI only asserts that MPI succeeds, and a fast build ignores that: it would wait forever.
void on_error(MPI_Comm*, int* code, ...) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(*code, text, &length);
    if (report_failure) report_failure(text);
}

bool init() {
    int provided = 0, started = 0;
    MPI_Initialized(&started);
    // StarPU's workers call MPI too, and its own thread at the same time.
    if (!started) MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
    return provided == MPI_THREAD_MULTIPLE;
}

void gather(const void* mine, void* all, int bytes) {
    MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

int start(void (*failed)(const char* what), void (*ended)(void* record)) {
    report_failure = failed, report_end = ended;
    const int status = starpu_mpi_init_comm(nullptr, nullptr, 0, MPI_COMM_WORLD);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    return status;
}

void stop() { starpu_mpi_shutdown(); }

int send(void* handle, int to, int64_t tag, int priority, bool when_asked, void* record) {
    ++transfers;
    const auto call = when_asked ? starpu_mpi_issend_detached_prio : starpu_mpi_isend_detached_prio;
    return call(static_cast<starpu_data_handle_t>(handle), to, tag, priority, MPI_COMM_WORLD,
                transfer_ended, record);
}

int receive(void* handle, int from, int64_t tag, void* record) {
    ++transfers;
    return starpu_mpi_irecv_detached(static_cast<starpu_data_handle_t>(handle), from, tag,
                                     MPI_COMM_WORLD, transfer_ended, record);
}

int64_t under_way() { return transfers; }

void finish() { MPI_Finalize(); }

const MpiPlugin plugin = {mpi_plugin_version, init,  gather, start, stop, send, receive,
                          under_way,          finish};

}  // namespace
}  // namespace nn

extern "C" const nn::MpiPlugin* nn_mpi_plugin(void) { return &nn::plugin; }
