// The interface of libnnlua_mpi.so (plugin.cc), the only code that calls MPI. The program opens it
// under mpirun (engine/ranks/transport.cc), so that one process needs no MPI.
#pragma once
#include <cstdint>

namespace nn {

struct MpiPlugin {
    int version;  // mpi_plugin_version of the build
    // Starts MPI; false if it cannot run with several threads.
    bool (*init)();
    // Gathers `bytes` of each rank, in the order of the ranks.
    void (*gather)(const void* mine, void* all, int bytes);
    // While StarPU runs. On any thread: `failed` is called if MPI reports an error, and `ended`
    // when a transfer has ended, with the caller's record of it.
    int (*start)(void (*failed)(const char* what), void (*ended)(void* record));
    void (*stop)();
    // In the order of the tasks submitted so far. handle: of StarPU. The numbers count what was
    // submitted and what has ended.
    int (*send)(void* handle, int to, int64_t tag, int priority, bool when_asked, void* record);
    int (*receive)(void* handle, int from, int64_t tag, void* record);
    int64_t (*under_way)();
    void (*finish)();  // ends MPI; every rank calls it
};
constexpr int mpi_plugin_version = 3;

}  // namespace nn

extern "C" const nn::MpiPlugin* nn_mpi_plugin(void);
