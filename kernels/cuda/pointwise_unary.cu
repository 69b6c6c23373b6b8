// The unary kernels of kernels/pointwise.inc.
#define NN_PART 1
#include "kernels/cuda/pointwise.cuh"
