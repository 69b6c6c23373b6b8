// The kernels of several operands of kernels/pointwise.inc.
#define NN_PART 3
#include "kernels/cuda/pointwise.cuh"
