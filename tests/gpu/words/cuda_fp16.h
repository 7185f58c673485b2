/*
 * cuda_fp16.h - stands in for the toolkit's: binary16 by the host's own conversions, which another
 * test compares with the definition.
 */
#ifndef TESTS_GPU_CUDA_FP16_H
#define TESTS_GPU_CUDA_FP16_H

extern "C" {
#include "floats.h"
}

struct __half {
    uint16_t bits;
};

inline __half __ushort_as_half(uint16_t bits)
{
    return __half{bits};
}

inline uint16_t __half_as_ushort(__half half)
{
    return half.bits;
}

inline float __half2float(__half half)
{
    return float_from_half(half.bits);
}

inline __half __float2half_rn(float value)
{
    return __half{half_from_float(value)};
}

#endif
