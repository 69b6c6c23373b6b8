// nnlua's C API for data in files, as nn.h: flat, never throws, and LuaJIT reads it too.
#ifndef NN_DATA_H
#define NN_DATA_H
#include "nn.h"
#ifdef __cplusplus
extern "C" {
#endif

// <cdef>
// The form of decoded images: (channels, height, width), channels 1 (grey) or 3 (RGB). fit: 0 files
// must have this size, 1 they are resized to it, 2 their centre is. bytes: 0 floats from 0 to 1, 1
// bytes from 0 to 255.
typedef struct {
    int32_t channels, height, width, fit, bytes;
} nn_image_form_t;

int nn_image_size(const char* path, int32_t* height, int32_t* width);
// A queue of batches of image files, which `threads` threads decode (0: one for each CPU).
int nn_images_new(const nn_image_form_t* form, int32_t threads, nn_ref* queue);
// Requests a batch. paths: `count` of them, each ended by a zero byte.
int nn_images_push(const nn_ref* queue, const char* paths, int32_t count);
// Waits for the oldest requested batch and copies its images, which take `bytes`.
int nn_images_pop(const nn_ref* queue, void* out, int64_t bytes);
// </cdef>

#ifdef __cplusplus
}
#endif
#endif
