// `nnlua --ranks N [--hosts a,b] SCRIPT` starts the same program on N ranks by mpirun
// (launch_ranks). Each rank then begins with join_ranks and ends with leave_ranks.
#pragma once
#include <string>

namespace nn {

struct RanksWanted {
    std::string number, hosts;  // as given; "" if not given
};
int launch_ranks(const RanksWanted& wanted, int argc, char** argv);  // returns the exit status
// In a process that mpirun started, before anything else: connects the ranks. Only rank 0 writes to
// standard output. Throws if this rank cannot join, or if the ranks differ.
void join_ranks(int argc, char** argv);
void leave_ranks();  // at the end, after nn_shutdown(); the ranks wait for each other

}  // namespace nn
