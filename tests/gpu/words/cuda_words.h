/*
 * cuda_words.h - what nvcc knows without being told, for compiling the source of the kernels on the
 * host: one thread at a time, which sees its place in the grid in variables.
 */
#ifndef TESTS_GPU_CUDA_WORDS_H
#define TESTS_GPU_CUDA_WORDS_H

#include <cstdint>
#include <cstring>

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads, blocks)

struct uint4 {
    uint32_t x, y, z, w;
};

struct place {
    uint32_t x;
};

inline thread_local place gridDim, blockIdx, threadIdx;

template <class To, class From> inline To same_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

inline float __uint_as_float(uint32_t bits)
{
    return same_bits<float>(bits);
}

inline uint32_t __float_as_uint(float value)
{
    return same_bits<uint32_t>(value);
}

inline double __longlong_as_double(int64_t bits)
{
    return same_bits<double>(bits);
}

inline int64_t __double_as_longlong(double value)
{
    return same_bits<int64_t>(value);
}

inline void __stwb(uint4 *to, uint4 value)
{
    *to = value;
}

using std::memcpy;

#endif
