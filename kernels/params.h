// The parameters of every kernel: plain C structs, a header for each family of kernels. A file
// includes only the families that it uses. LuaJIT's ffi.cdef reads this list and the text between
// the markers of each header, so that scripts can submit kernels (nn.task); a header comes after
// those that it includes. Sizes are in elements unless stated; a row is the last axis of a tile;
// `first`: overwrite the output instead of adding to it.
#pragma once
#include "kernels/params/attention.h"
#include "kernels/params/attention_cache.h"
#include "kernels/params/conv.h"
#include "kernels/params/copy.h"
#include "kernels/params/cross_entropy.h"
#include "kernels/params/embedding.h"
#include "kernels/params/fill.h"
#include "kernels/params/gather.h"
#include "kernels/params/gelu.h"
#include "kernels/params/gemm.h"
#include "kernels/params/gemm_bytes.h"
#include "kernels/params/glu.h"
#include "kernels/params/layernorm.h"
#include "kernels/params/optimizer.h"
#include "kernels/params/pointwise.h"
#include "kernels/params/random.h"
#include "kernels/params/reduce.h"
#include "kernels/params/rope.h"
#include "kernels/params/rows.h"
#include "kernels/params/scan.h"
#include "kernels/params/sort.h"
