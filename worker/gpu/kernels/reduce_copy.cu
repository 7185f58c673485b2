/*
 * reduce_copy.cu - folds up to 16 buffers element by element and writes the result to up to 16: the
 * device's ddpi_reduce_many(); multiplies and casts a buffer: ddpi_scale(), ddpi_cast(). It gives
 * the same bits as
 * ../../reduce/reduce_cpu.c, in the same order, except inside a NaN. Kernels only; kernel_launch.c
 * picks and starts them.
 *
 * The number of inputs is read at run time. To keep the memory busy, each thread requests UNROLL
 * packs of up to GROUP inputs before it uses the first. Build with -fmad=false and without
 * fast-math: see the numeric rules in ddprun/comm_types.h.
 */
#include "kernels.h"

#include <cuda_fp16.h>

namespace ddpi
{

constexpr int UNROLL = 2;
constexpr uint32_t GROUP = 4;

/* ---- element types: in memory, and while they are folded and divided ---- */

struct folded_in_float {
    using wide = float;
    using key = int32_t;
    static __device__ float divide(float value, uint32_t by)
    {
        return value / float(by);
    }
};

struct f32 : folded_in_float {
    using stored = uint32_t;
    static constexpr uint32_t infinity = 0x7f800000U, magnitude = 0x7fffffffU;
    static __device__ int32_t as_signed(uint32_t bits)
    {
        return int32_t(bits);
    }
    static __device__ float widen(uint32_t bits)
    {
        return __uint_as_float(bits);
    }
    static __device__ uint32_t narrow(float value)
    {
        return __float_as_uint(value);
    }
};

struct of_16_bits : folded_in_float {
    using stored = uint16_t;
    static constexpr uint32_t magnitude = 0x7fffU;
    static __device__ int32_t as_signed(uint16_t bits)
    {
        return int16_t(bits);
    }
};

struct f16 : of_16_bits {
    static constexpr uint32_t infinity = 0x7c00U;
    static __device__ float widen(uint16_t bits)
    {
        return __half2float(__ushort_as_half(bits));
    }
    static __device__ uint16_t narrow(float value)
    {
        return __half_as_ushort(__float2half_rn(value));
    }
};

struct bf16 : of_16_bits {
    static constexpr uint32_t infinity = 0x7f80U;
    static __device__ float widen(uint16_t bits)
    {
        return __uint_as_float(uint32_t(bits) << 16);
    }
    /* The instruction exists from sm_80 on. To nearest even; NaN stays NaN. */
    static __device__ uint16_t narrow(float value)
    {
        uint32_t bits = __float_as_uint(value);
        uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
        return uint16_t((value != value ? bits | 0x400000U : rounded) >> 16);
    }
};

struct f64 {
    using stored = uint64_t;
    using wide = double;
    using key = int64_t;
    static constexpr uint64_t infinity = 0x7ff0000000000000U, magnitude = 0x7fffffffffffffffU;
    static __device__ int64_t as_signed(uint64_t bits)
    {
        return int64_t(bits);
    }
    static __device__ double widen(uint64_t bits)
    {
        return __longlong_as_double(int64_t(bits));
    }
    static __device__ uint64_t narrow(double value)
    {
        return uint64_t(__double_as_longlong(value));
    }
    static __device__ double divide(double value, uint32_t by)
    {
        return value / double(by);
    }
};

struct i32 {
    using stored = uint32_t;
    using wide = uint32_t;
    using key = int32_t;
    static __device__ uint32_t widen(uint32_t value)
    {
        return value;
    }
    static __device__ uint32_t narrow(uint32_t value)
    {
        return value;
    }
    /* Toward zero; in 32 bits, though the divisor may use all of them. */
    static __device__ uint32_t divide(uint32_t value, uint32_t by)
    {
        bool negative = int32_t(value) < 0;
        uint32_t quotient = (negative ? 0U - value : value) / by;
        return negative ? 0U - quotient : quotient;
    }
};

struct i64 {
    using stored = uint64_t;
    using wide = uint64_t;
    using key = int64_t;
    static __device__ uint64_t widen(uint64_t value)
    {
        return value;
    }
    static __device__ uint64_t narrow(uint64_t value)
    {
        return value;
    }
    static __device__ uint64_t divide(uint64_t value, uint32_t by)
    {
        return uint64_t(int64_t(value) / int64_t(by));
    }
};

/* Whether the bits in memory are inf or NaN; what is no float never is. */
template <class T> struct finite {
    static __device__ bool fails(typename T::stored bits)
    {
        return (bits & T::magnitude) >= T::infinity;
    }
};

template <class T> struct always_finite {
    static __device__ bool fails(typename T::stored)
    {
        return false;
    }
};

template <> struct finite<i32> : always_finite<i32> {
};
template <> struct finite<i64> : always_finite<i64> {
};

/* ---- operations: from elements to folded values and back ---- */

/* x + -0 is x for every x, also for -0; so is x * 1. */
template <class T> struct sum {
    using type = T;
    using wide = typename T::wide;
    static __device__ wide identity()
    {
        return -wide(0);
    }
    static __device__ wide lift(typename T::stored bits)
    {
        return T::widen(bits);
    }
    static __device__ wide fold(wide a, wide b)
    {
        return a + b;
    }
    static __device__ typename T::stored lower(wide value)
    {
        return T::narrow(value);
    }
    static __device__ wide divide(wide value, uint32_t by)
    {
        return T::divide(value, by);
    }
};

template <class T> struct product : sum<T> {
    using wide = typename T::wide;
    static __device__ wide identity()
    {
        return wide(1);
    }
    static __device__ wide fold(wide a, wide b)
    {
        return a * b;
    }
    static __device__ wide divide(wide value, uint32_t)
    {
        return value;
    }
};

/*
 * Minimum and maximum of floats compare integers in the order of the numbers, -0 before +0: the
 * magnitude bits of a negative number are flipped. A NaN is an integer that wins.
 */
template <class T> struct ordered {
    using key = typename T::key;
    static __device__ key flipped(key bits)
    {
        return bits ^ ((bits >> (8 * sizeof(key) - 1)) & key(T::magnitude));
    }
    static __device__ key lift(typename T::stored bits, key nan)
    {
        return (bits & T::magnitude) > T::infinity ? nan : flipped(T::as_signed(bits));
    }
    static __device__ typename T::stored lower(key value)
    {
        return typename T::stored(flipped(value));
    }
};

template <class Integer> struct ordered_integer {
    static __device__ typename Integer::key lift(typename Integer::stored bits,
                                                 typename Integer::key)
    {
        return typename Integer::key(bits);
    }
    static __device__ typename Integer::stored lower(typename Integer::key value)
    {
        return typename Integer::stored(value);
    }
};

template <> struct ordered<i32> : ordered_integer<i32> {
};
template <> struct ordered<i64> : ordered_integer<i64> {
};

template <class T> struct min {
    using type = T;
    using wide = typename T::key;
    static constexpr wide least = wide(uint64_t(1) << (8 * sizeof(wide) - 1));
    static __device__ wide identity()
    {
        return ~least;
    }
    static __device__ wide lift(typename T::stored bits)
    {
        return ordered<T>::lift(bits, least);
    }
    static __device__ wide fold(wide a, wide b)
    {
        return b < a ? b : a;
    }
    static __device__ typename T::stored lower(wide value)
    {
        return ordered<T>::lower(value);
    }
    static __device__ wide divide(wide value, uint32_t)
    {
        return value;
    }
};

template <class T> struct max : min<T> {
    using wide = typename T::key;
    static __device__ wide identity()
    {
        return min<T>::least;
    }
    static __device__ wide lift(typename T::stored bits)
    {
        return ordered<T>::lift(bits, ~min<T>::least);
    }
    static __device__ wide fold(wide a, wide b)
    {
        return b > a ? b : a;
    }
};

/* ---- access ---- */

/* @N elements that are read or written at once: a pack, or a single one. */
template <class Stored, int N> struct alignas(sizeof(Stored) * N) group_of {
    Stored element[N];
};

template <class Stored, int N>
__device__ inline group_of<Stored, N> load(const void *buffer, uint64_t at)
{
    const Stored *from = static_cast<const Stored *>(buffer) + at;
    group_of<Stored, N> values;
    if constexpr (N == 1) {
        values.element[0] = *from;
    } else {
        static_assert(sizeof values == sizeof(uint4), "a pack has 16 bytes");
        uint4 words = *reinterpret_cast<const uint4 *>(from);
        memcpy(&values, &words, sizeof values);
    }
    return values;
}

template <class Stored, int N>
__device__ inline void store(void *buffer, uint64_t at, const group_of<Stored, N> &values)
{
    Stored *to = static_cast<Stored *>(buffer) + at;
    if constexpr (N == 1) {
        *to = values.element[0];
    } else {
        uint4 words; /* otherwise the compiler stores it word by word */
        memcpy(&words, &values, sizeof words);
        __stwb(reinterpret_cast<uint4 *>(to), words);
    }
}

/* ---- the reduction ---- */

/* What one thread works on at once: U groups of N elements, a block's width apart. */
template <class Op, int N, int U> struct portion {
    using stored = typename Op::type::stored;
    static constexpr uint32_t apart = DDPI_KERNEL_THREADS * N;

    const ddpi_kernel_work &work;
    const uint64_t at;
    typename Op::wide folded[U][N];

    __device__ portion(const ddpi_kernel_work &work, uint64_t at) : work(work), at(at)
    {
        for (int u = 0; u < U; u++)
            for (int i = 0; i < N; i++)
                folded[u][i] = Op::identity();
    }

    /* step 0: COUNT inputs from @first on, all requested before any is used */
    template <uint32_t COUNT> __device__ void take(uint32_t first)
    {
        group_of<stored, N> values[COUNT][U];
#pragma unroll
        for (uint32_t k = 0; k < COUNT; k++)
#pragma unroll
            for (int u = 0; u < U; u++)
                values[k][u] = load<stored, N>(work.in[first + k], at + u * apart);
#pragma unroll
        for (uint32_t k = 0; k < COUNT; k++)
#pragma unroll
            for (int u = 0; u < U; u++)
#pragma unroll
                for (int i = 0; i < N; i++)
                    folded[u][i] = Op::fold(folded[u][i], Op::lift(values[k][u].element[i]));
    }

    __device__ void take_all()
    {
        uint32_t k = 0;
#pragma unroll 1
        for (; k + GROUP <= work.nin; k += GROUP)
            take<GROUP>(k);
        if (work.nin & 2) {
            take<2>(k);
            k += 2;
        }
        if (work.nin & 1)
            take<1>(k);
    }

    /* step 1: divide, if there is a divisor */
    __device__ void divide()
    {
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < N; i++)
                folded[u][i] = Op::divide(folded[u][i], work.divisor);
    }

    /* All threads that find one write the same. */
    __device__ void check(const group_of<stored, N> (&values)[U])
    {
        bool fails = false;
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < N; i++)
                fails |= finite<typename Op::type>::fails(values[u].element[i]);
        if (fails)
            *work.non_finite = true;
    }

    /* step 2: round, look for inf and NaN, and write to every output */
    __device__ void give()
    {
        group_of<stored, N> values[U];
#pragma unroll
        for (int u = 0; u < U; u++)
#pragma unroll
            for (int i = 0; i < N; i++)
                values[u].element[i] = Op::lower(folded[u][i]);
        if (work.non_finite != nullptr)
            check(values);
#pragma unroll 1
        for (uint32_t j = 0; j < work.nout; j++)
#pragma unroll
            for (int u = 0; u < U; u++)
                store<stored, N>(work.out[j], at + u * apart, values[u]);
    }

    __device__ void run()
    {
        take_all();
        if (work.divisor != 1)
            divide();
        give();
    }
};

/* The whole grid: the packs, UNROLL at a time while there are enough for all threads, then one at a
 * time; then the elements outside packs. */
template <class Op> __device__ void reduce_copy(const ddpi_kernel_work &work)
{
    constexpr uint32_t N = DDPI_KERNEL_PACK / sizeof(typename Op::type::stored);
    const uint64_t threads = uint64_t(gridDim.x) * DDPI_KERNEL_THREADS;
    const uint64_t block = uint64_t(blockIdx.x) * DDPI_KERNEL_THREADS;

    uint64_t done = 0;
#pragma unroll 1
    for (; done + UNROLL * threads <= work.packs; done += UNROLL * threads)
        portion<Op, N, UNROLL>(work, work.head + (done + UNROLL * block + threadIdx.x) * N).run();
#pragma unroll 1
    for (uint64_t pack = done + block + threadIdx.x; pack < work.packs; pack += threads)
        portion<Op, N, 1>(work, work.head + pack * N).run();

    const uint64_t packed = work.packs * N;
#pragma unroll 1
    for (uint64_t i = block + threadIdx.x; i < work.count - packed; i += threads)
        portion<Op, 1, 1>(work, i < work.head ? i : i + packed).run();
}

/* Copies of elements. */
template <class Unsigned> struct plain {
    using stored = Unsigned;
};

template <class Unsigned> struct finite<plain<Unsigned>> : always_finite<plain<Unsigned>> {
};

template <class Unsigned> struct copy {
    using type = plain<Unsigned>;
    using wide = Unsigned;
    static __device__ wide identity()
    {
        return 0;
    }
    static __device__ wide lift(Unsigned bits)
    {
        return bits;
    }
    static __device__ wide fold(wide, wide b)
    {
        return b;
    }
    static __device__ Unsigned lower(wide value)
    {
        return value;
    }
    static __device__ wide divide(wide value, uint32_t)
    {
        return value;
    }
};

/* ---- products ---- */

template <class T> __device__ void scale(const ddpi_kernel_scale &work)
{
    using wide = typename T::wide;
    typename T::stored *elements = static_cast<typename T::stored *>(work.elements);
    const wide factor = wide(work.factor);
    const uint64_t threads = uint64_t(gridDim.x) * DDPI_KERNEL_THREADS;
#pragma unroll 4
    for (uint64_t i = uint64_t(blockIdx.x) * DDPI_KERNEL_THREADS + threadIdx.x; i < work.count;
         i += threads)
        elements[i] = T::narrow(T::widen(elements[i]) * factor);
}

/* ---- casts ---- */

/* By way of float, as on the host. */
template <class From, class To> __device__ void cast_to(const ddpi_kernel_cast &work)
{
    const typename From::stored *in = static_cast<const typename From::stored *>(work.in);
    typename To::stored *out = static_cast<typename To::stored *>(work.out);
    const uint64_t threads = uint64_t(gridDim.x) * DDPI_KERNEL_THREADS;
#pragma unroll 4
    for (uint64_t i = uint64_t(blockIdx.x) * DDPI_KERNEL_THREADS + threadIdx.x; i < work.count;
         i += threads)
        out[i] = To::narrow(typename To::wide(float(From::widen(in[i]))));
}

template <class From> __device__ void cast(const ddpi_kernel_cast &work)
{
    switch (work.to) {
#define CAST_TO(symbol, type)        \
    case DDPI_KERNEL_CAST_TO_##type: \
        return cast_to<From, type>(work);
        DDPI_KERNEL_FLOATS(CAST_TO)
#undef CAST_TO
    }
}

} // namespace ddpi

#define DEFINE_KERNEL(name, ...)                                                          \
    extern "C" __global__ void __launch_bounds__(DDPI_KERNEL_THREADS, DDPI_KERNEL_BLOCKS) \
        name(const __grid_constant__ ddpi_kernel_work work)                               \
    {                                                                                     \
        ddpi::reduce_copy<__VA_ARGS__>(work);                                             \
    }
#define DEFINE_FOLD(type, op)      DEFINE_KERNEL(DDPI_KERNEL_NAME(type, op), ddpi::op<ddpi::type>)
#define DEFINE_FOLDS(symbol, type) DDPI_KERNEL_OPS(DEFINE_FOLD, type)
#define DEFINE_COPY(bytes, unsigned_type) \
    DEFINE_KERNEL(DDPI_KERNEL_COPY(bytes), ddpi::copy<unsigned_type>)
#define DEFINE_SCALE(symbol, type)                                                        \
    extern "C" __global__ void __launch_bounds__(DDPI_KERNEL_THREADS, DDPI_KERNEL_BLOCKS) \
        DDPI_KERNEL_SCALE(type)(const __grid_constant__ ddpi_kernel_scale work)           \
    {                                                                                     \
        ddpi::scale<ddpi::type>(work);                                                    \
    }
#define DEFINE_CAST(symbol, type)                                                         \
    extern "C" __global__ void __launch_bounds__(DDPI_KERNEL_THREADS, DDPI_KERNEL_BLOCKS) \
        DDPI_KERNEL_CAST(type)(const __grid_constant__ ddpi_kernel_cast work)             \
    {                                                                                     \
        ddpi::cast<ddpi::type>(work);                                                     \
    }
DDPI_KERNEL_TYPES(DEFINE_FOLDS)
DDPI_KERNEL_COPIES(DEFINE_COPY)
DDPI_KERNEL_FLOATS(DEFINE_SCALE)
DDPI_KERNEL_FLOATS(DEFINE_CAST)
