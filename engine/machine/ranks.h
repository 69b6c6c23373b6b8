// The ranks: processes that mpirun started together, on one host or several. Without mpirun there
// is one.
#pragma once

namespace nn {

struct Ranks {
    int count = 1, rank = 0;
    int on_host = 1, number_on_host = 0;  // ranks that share this host; the number of this one
    bool several() const { return count > 1; }
};
const Ranks& ranks();  // from the environment that mpirun sets; throws if it makes no sense

}  // namespace nn
