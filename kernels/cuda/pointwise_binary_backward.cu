// The gradients of the ops with several operands in kernels/pointwise.inc.
#define NN_PART 4
#include "kernels/cuda/pointwise.cuh"
