// The ops with several operands in kernels/pointwise.inc.
#define NN_PART 3
#include "kernels/cuda/pointwise.cuh"
