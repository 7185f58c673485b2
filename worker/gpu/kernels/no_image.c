/*
 * no_image.c - replaces the kernels in a build without nvcc: no driver loads it.
 */
#include "image.h"

const uint64_t ddpi_cuda_image[16] = {0};
const size_t ddpi_cuda_image_len = 0;
const char ddpi_cuda_image_targets[] = "";
