/*
 * image.h - the compiled kernels, as bytes for cuModuleLoadData(). Generated if there is an nvcc;
 * no_image.c otherwise.
 */
#ifndef DDPI_IMAGE_H
#define DDPI_IMAGE_H

#include <stddef.h>
#include <stdint.h>

extern const uint64_t ddpi_cuda_image[];     /* a fat binary */
extern const size_t ddpi_cuda_image_len;     /* bytes; 0 = built without nvcc */
extern const char ddpi_cuda_image_targets[]; /* what it runs on, as "sm_75 sm_80 ..." */

#endif
