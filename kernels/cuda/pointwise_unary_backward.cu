// The gradients of unary kernels of kernels/pointwise.inc.
#define NN_PART 2
#include "kernels/cuda/pointwise.cuh"
