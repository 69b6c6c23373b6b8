// Several ranks: their start and end, and which of them keeps what.
#pragma once
#include <string>

#include "engine/graph/program.h"
#include "engine/tile/tensor.h"

namespace nn {

// Before anything else starts, if mpirun started several ranks. work: the script with its
// arguments, which must be equal on all ranks.
void start_ranks(const std::string& work);
// The last call of every rank, after shutdown(); they wait for each other.
void finish_ranks();

// The first tag of the transfers of a program or of a tensor, of which no other transfer may use
// the next 2^32; the same number on every rank, if all make the same calls.
int64_t next_series();
// Frees what the program's state takes here although only other ranks keep it.
void drop_kept_elsewhere(const Program& program);

// Only its owner keeps each larger tile of a new weight: the rank that owns the fewest bytes so
// far. With `like`: the owners of that tensor's tiles. Every rank calls it in the same order.
void keep_on_owners(const Tensor& tensor, const Tensor* like);
// What one rank keeps of a tensor moves to the rank that keeps this tile of `like`, or to all ranks
// if they all keep that.
void move_to_owners(const Tensor& tensor, const Tensor& like);

// Rank 0 alone reads and writes the files of a training. Every rank calls these functions in the
// same order, with tensors of the same shapes; they submit transfers and do not wait.
bool collect(const Tensor& tensor);         // rank 0 gets the tiles that only other ranks keep, if
void drop_collected(const Tensor& tensor);  // any; frees what only others keep
void spread(const Tensor& tensor);          // rank 0's value to all ranks that keep the tensor

}  // namespace nn
