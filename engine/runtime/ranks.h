// Programs on several ranks: their distribution, and the submission of their transfers.
#pragma once
#include <string>

#include "engine/graph/program.h"

namespace nn {

// Before anything else starts, if mpirun started several ranks. work: the script with its
// arguments, which must be equal on all ranks.
void start_ranks(const std::string& work);
// The last call of every rank, after shutdown(); they wait for each other.
void finish_ranks();

// Keeps this rank's part of a program that splits its batch into shards
// (graph/passes/distribute.h). Other programs run on every rank as a whole.
void distribute_over_ranks(Program& program);
void submit_transfer(Task& task);
// Frees what the program's state takes here although only other ranks keep it.
void drop_kept_elsewhere(const Program& program);

}  // namespace nn
