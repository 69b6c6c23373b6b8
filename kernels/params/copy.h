// The parameters of copy (kernels/params.h).
#pragma once
#include <stdint.h>

// <cdef>
// Block copy between two tiles of one dtype.
typedef struct {
    int64_t ndim, src_offset, dst_offset;
    int64_t extent[8], src_stride[8], dst_stride[8];
} nn_copy_params;
// </cdef>
