// NN_HD marks functions that kernels call on CPUs and on GPUs; NN_TARGET is the namespace of what
// one target compiles.
#pragma once

#ifdef __CUDACC__
#define NN_HD __host__ __device__
#else
#define NN_HD
#endif

#ifndef NN_TARGET
#define NN_TARGET baseline
#endif
