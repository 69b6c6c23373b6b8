// The gradients of kernels of several operands of kernels/pointwise.inc.
#define NN_PART 4
#include "kernels/cuda/pointwise.cuh"
