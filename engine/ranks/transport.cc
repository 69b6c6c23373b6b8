#include "engine/ranks/transport.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <list>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/delays.h"
#include "engine/base/error.h"
#include "engine/base/planted_faults.h"
#include "engine/base/waiting.h"
#include "engine/machine/ranks.h"
#include "engine/ranks/plugin.h"

namespace nn::transport {
namespace {

const MpiPlugin* plugin = nullptr;
Counts counted;

// Beside the program, or among the private libraries of an installation; empty if it is missing.
std::string library_file() {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    for (const fs::path& path : {folder / NN_MPI_PLUGIN, folder / NN_MPI_FOLDER / NN_MPI_PLUGIN})
        if (fs::exists(path, ignored)) return path.string();
    return "";
}

[[noreturn]] void fail_without_mpi(const std::string& problem) {
    fail(
        "several ranks need OpenMPI, and %s. Install Debian's packages openmpi-bin and "
        "libopenmpi-dev on every host and run  ./nnlua --ranks 2 SCRIPT  in the source folder, "
        "which builds the rest. For an installed nnlua, run  cmake --install build  again after "
        "that, or install the package nnlua-ranks",
        problem.c_str());
}

void check(int status, const char* what) {
    if (status != 0) fail("StarPU-MPI cannot %s (status %d)", what, status);
}

// The transfers that have not ended, oldest first.
struct Pending {
    bool sends;
    uint64_t tile;
    int64_t bytes;
    int peer;
    int64_t tag;
    double since;
    std::list<Pending>::iterator place{};
};
struct AllPending {
    std::mutex mutex;
    std::list<Pending> list;
};
AllPending& pending() {
    static auto* const instance = new AllPending;  // for threads that run to the end
    return *instance;
}

Pending* begin(const Pending& transfer) {
    const std::lock_guard lock(pending().mutex);
    Pending& begun = pending().list.emplace_back(transfer);
    begun.since = now_seconds();
    begun.place = std::prev(pending().list.end());
    return &begun;
}

void ended(void* record) {
    delay(0.2);
    ++ended_events;
    const std::lock_guard lock(pending().mutex);
    pending().list.erase(static_cast<Pending*>(record)->place);
}

// Whether a fault that tests plant takes the place of this message to another rank.
bool fails_as_planted(void* handle, const Pending& message, int64_t* tag) {
    struct Message {
        void* handle;
        Pending what;
    };
    static Message first{};  // of two that are exchanged
    constexpr int64_t bytes_of_sum = 8;
    if (message.bytes == bytes_of_sum) return false;
    if (planted::is_next(planted::message_lost)) return true;
    if (!first.handle && planted::is_next(planted::message_swapped)) {
        first = {handle, message};
        return true;
    }
    if (!first.handle || first.what.bytes != message.bytes || first.what.peer != message.peer)
        return false;
    std::swap(first.what.tag, *tag);
    const Message other = std::exchange(first, {});
    check(plugin->send(other.handle, other.what.peer, other.what.tag, 0,
                       message.bytes > buffered_bytes, begin(other.what)),
          "send a tile");
    return false;
}

}  // namespace

void check_installed(bool has_mpirun) {
    if (!has_mpirun) fail_without_mpi("there is no mpirun in PATH");
    if (library_file().empty()) fail_without_mpi(NN_MPI_PLUGIN " is missing");
}

void open() {
    check_installed(true);
    // OpenMPI's own plugins look for its symbols among the global ones.
    void* const library = dlopen(library_file().c_str(), RTLD_NOW | RTLD_GLOBAL);
    const auto entry =
        library ? reinterpret_cast<const MpiPlugin* (*)()>(dlsym(library, "nn_mpi_plugin"))
                : nullptr;
    if (!entry) fail_without_mpi(dlerror());
    // Its default copies between processes of a host by a system call, which is slower here.
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
    // Divides large tiles into fragments. By default such a tile is one piece, and the replies to
    // the other rank's transfers wait behind it, so that a link carries one direction at a time.
    setenv("OMPI_MCA_btl_tcp_rdma_pipeline_frag_size", "131072", 0);
    // Keeps at most two fragments of a tile under way, so that replies wait behind fewer of them.
    // With OpenMPI's default of four, a step over links of 400 Mbit/s took 1.1 times as long.
    setenv("OMPI_MCA_pml_ob1_recv_pipeline_depth", "2", 0);
    plugin = entry();
    if (plugin->version != mpi_plugin_version)
        fail("%s is of another version of nnlua; build it again", NN_MPI_PLUGIN);
    if (!plugin->init()) fail("this MPI library does not support several threads");
}

void gather(const void* mine, void* all, int bytes) { plugin->gather(mine, all, bytes); }

double measured_rate() {
    constexpr int rounds = 5;
    const auto count = size_t(ranks().count);
    const int bytes = int(std::min<size_t>(4 << 20, (64 << 20) / count));
    std::vector<char> mine(size_t(bytes), 1), all(size_t(bytes) * count);
    double best = 0;
    for (int round = 0; round < rounds; ++round) {
        const double start = now_seconds();
        gather(mine.data(), all.data(), bytes);
        best = std::max(best, double(bytes) * double(count - 1) / (now_seconds() - start));
    }
    return best;
}

void start(void (*failed)(const char* what)) { check(plugin->start(failed, ended), "start"); }
void stop() { plugin->stop(); }
void finish() {
    if (plugin) plugin->finish();
}

const Counts& counts() { return counted; }

void send(void* handle, uint64_t tile, int64_t bytes, int to, int64_t tag, int priority) {
    counted.bytes_sent += bytes;
    ++counted.messages_sent;
    Pending message{true, tile, bytes, to, tag};
    if (planted::are_wanted && fails_as_planted(handle, message, &message.tag)) return;
    const bool when_asked = bytes > buffered_bytes;
    check(plugin->send(handle, to, message.tag, priority, when_asked, begin(message)),
          "send a tile");
}

void receive(void* handle, uint64_t tile, int64_t bytes, int from, int64_t tag) {
    counted.bytes_received += bytes;
    check(plugin->receive(handle, from, tag, begin({false, tile, bytes, from, tag})),
          "receive a tile");
}

std::string description_of_transfers() {
    constexpr size_t most = 8;
    const std::lock_guard lock(pending().mutex);
    std::string out;
    size_t named = 0;
    for (const Pending& one : pending().list) {
        if (++named > most) break;
        out += format("\n  for %.0f s: tile %llu of %s %s rank %d, message %lld",
                      now_seconds() - one.since, (unsigned long long)one.tile,
                      human_bytes(double(one.bytes)).c_str(), one.sends ? "to" : "from", one.peer,
                      (long long)one.tag);
    }
    const size_t all = pending().list.size();
    return all > most ? out + format("\n  and %zu other transfers", all - most) : out;
}

int64_t under_way() { return plugin ? plugin->under_way() : 0; }

}  // namespace nn::transport
