/*
 * test_kernel_source.cc - the source of the kernels, compiled for the host and run one thread after
 * the other: that they go through every element once, whatever its place, and fold, divide and
 * round as ddpi_reduce_many() does. What only a GPU can show is in test_reduce_copy.c.
 */
#include "cuda_words.h"

#include "reduce_copy.cu"

extern "C" {
#include "check_main.h"
#include "elements.h"
#include "kernel_launch.h"
}

#include <vector>

namespace
{

constexpr uint32_t DTYPES = DDPI_DTYPES, OPS = DDPI_REDUCE_OPS, MOST = DDPI_REDUCE_MOST;
constexpr size_t LONGEST = 20000; /* elements: several rounds of a small grid */
constexpr unsigned char POISON = 0x5a;

using kernel = void(ddpi_kernel_work);

ddp_dtype real_of(ddp_dtype dtype)
{
    return dtype == DDP_COMPLEX64 ? DDP_FLOAT32 : dtype == DDP_COMPLEX128 ? DDP_FLOAT64 : dtype;
}

kernel *kernel_for(const ddpi_reduction &work)
{
    static kernel *const table[][DDP_PRODUCT + 1] = {
#define ROW(symbol, type)                                                                   \
    {DDPI_KERNEL_NAME(type, sum), DDPI_KERNEL_NAME(type, sum), DDPI_KERNEL_NAME(type, min), \
     DDPI_KERNEL_NAME(type, max), DDPI_KERNEL_NAME(type, product)},
        DDPI_KERNEL_TYPES(ROW)
#undef ROW
    };
    if (work.nin > 1 || work.divisor > 1 || work.non_finite != nullptr)
        return table[real_of(work.dtype)][work.op];
    switch (ddp_dtype_size(real_of(work.dtype))) {
#define COPY(bytes, type) \
    case bytes:           \
        return DDPI_KERNEL_COPY(bytes);
        DDPI_KERNEL_COPIES(COPY)
#undef COPY
    }
    return nullptr;
}

void run_grid(const ddpi_reduction &work, uint32_t multiprocessors)
{
    struct ddpi_kernel_plan plan = ddpi_kernel_plan(&work, multiprocessors);
    ck_assert_uint_le(plan.blocks, multiprocessors * DDPI_KERNEL_BLOCKS);
    gridDim.x = plan.blocks;
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < DDPI_KERNEL_THREADS; threadIdx.x++)
            kernel_for(work)(plan.work);
}

/* The buffers of a case, each in a space of its own that begins at a multiple of 16. */
struct spaces {
    static constexpr size_t room = LONGEST + 2; /* of 16 bytes: for the largest elements */
    std::vector<uint4> bytes = std::vector<uint4>(2 * MOST * room);

    unsigned char *at(uint32_t k)
    {
        return reinterpret_cast<unsigned char *>(bytes.data() + k * room);
    }
};

struct kernels_case {
    uint64_t seed;
    spaces device, host;

    uint32_t pick(uint32_t below)
    {
        return uint32_t(elements_scramble(&seed) >> 33) % below;
    }

    /* Both sides of the same case; @placing as in test_reduce_copy.c. */
    void fill(ddpi_reduction &there, ddpi_reduction &here, int placing)
    {
        const size_t size = ddp_dtype_size(there.dtype);
        const uint32_t shifts = uint32_t(DDPI_KERNEL_PACK / size), alike = pick(shifts);
        memset(device.bytes.data(), POISON, device.bytes.size() * sizeof(uint4));
        for (uint32_t k = 0; k < 2 * MOST; k++) {
            size_t shift = size * (placing == 0 ? 0 : placing == 1 ? alike : pick(shifts));
            if (k < MOST) {
                elements_fill(device.at(k) + shift, there.count, there.dtype, &seed);
                there.in[k] = device.at(k) + shift;
                here.in[k] = host.at(k) + shift;
            } else {
                there.out[k - MOST] = device.at(k) + shift;
                here.out[k - MOST] = host.at(k) + shift;
            }
        }
        host.bytes = device.bytes;
    }

    void compare(const ddpi_reduction &there, const ddpi_reduction &here)
    {
        const size_t bytes = there.count * ddp_dtype_size(there.dtype);
        for (uint32_t j = 0; j < there.nout; j++) {
            ck_assert_uint_eq(elements_differ(there.dtype, there.out[j], here.out[j], there.count),
                              there.count);
            memcpy(there.out[j], here.out[j], bytes); /* equalises NaN */
        }
        ck_assert(
            memcmp(device.bytes.data(), host.bytes.data(), host.bytes.size() * sizeof(uint4)) == 0);
    }
};

} // namespace

START_TEST(the_same_bits_as_the_twin)
{
    static const uint32_t counts[] = {1, 3, 16, 17, 255, 1025, 4099, LONGEST};
    kernels_case of{uint64_t(_i), {}, {}};
    ddpi_reduction work{};
    work.dtype = ddp_dtype(uint32_t(_i) / OPS);
    work.op = ddp_reduce_op(uint32_t(_i) % OPS);
    const bool folds = ddpi_kernels_check(work.dtype, work.op, nullptr) == DDP_OK;
    for (work.nin = 1; work.nin <= (folds ? MOST : 1); work.nin++) {
        work.count = counts[of.pick(sizeof counts / sizeof *counts)];
        work.nout = 1 + of.pick(MOST);
        work.divisor = folds && work.op == DDP_AVERAGE ? 1 + of.pick(16) : 1;
        work.non_finite = nullptr;
        ddpi_reduction twin = work;
        bool found = false, expected = false;
        if (folds && ddpi_dtype_has_non_finite(work.dtype) && of.pick(2) == 0) {
            work.non_finite = &found;
            twin.non_finite = &expected;
        }
        of.fill(work, twin, int(work.nin % 3));
        run_grid(work, 1 + of.pick(3));
        ddpi_reduce_many(&twin);
        of.compare(work, twin);
        ck_assert(found == expected);
    }
}
END_TEST

/* ---- products ---- */

struct product {
    ddp_dtype dtype;
    void (*kernel)(ddpi_kernel_scale);
};

START_TEST(products_have_the_bits_of_the_twin)
{
    static const product products[] = {
#define PRODUCT(symbol, type) {symbol, DDPI_KERNEL_SCALE(type)},
        DDPI_KERNEL_FLOATS(PRODUCT)
#undef PRODUCT
    };
    static const double factors[] = {1.0 / 3, 7, 1e-30, 1e300};
    const product &of = products[_i];
    kernels_case space{uint64_t(_i), {}, {}};
    for (const double factor : factors) {
        const size_t count = 1 + space.pick(LONGEST);
        elements_fill(space.device.at(0), count, of.dtype, &space.seed);
        space.host.bytes = space.device.bytes;
        gridDim.x = 1 + space.pick(5);
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < DDPI_KERNEL_THREADS; threadIdx.x++)
                of.kernel(ddpi_kernel_scale{space.device.at(0), count, factor});
        ddpi_scale(space.host.at(0), space.host.at(0), count, of.dtype, factor);
        ck_assert_uint_eq(elements_differ(of.dtype, space.device.at(0), space.host.at(0), count),
                          count);
        const size_t end = count * ddp_dtype_size(of.dtype);
        ck_assert(memcmp(space.device.at(0) + end, space.host.at(0) + end,
                         spaces::room * sizeof(uint4) - end) == 0);
    }
}
END_TEST

/* ---- casts ---- */

struct cast_kernel {
    ddp_dtype dtype;
    uint32_t number;
    void (*kernel)(ddpi_kernel_cast);
};

START_TEST(casts_have_the_bits_of_the_twin)
{
    static const cast_kernel kernels[] = {
#define CAST(symbol, type) {symbol, DDPI_KERNEL_CAST_TO_##type, DDPI_KERNEL_CAST(type)},
        DDPI_KERNEL_FLOATS(CAST)
#undef CAST
    };
    const cast_kernel &from = kernels[_i / 4], &to = kernels[_i % 4];
    kernels_case space{uint64_t(_i), {}, {}};
    const size_t count = 1 + space.pick(LONGEST);
    elements_fill(space.device.at(0), count, from.dtype, &space.seed);
    memset(space.device.at(1), POISON, spaces::room * sizeof(uint4));
    space.host.bytes = space.device.bytes;
    gridDim.x = 1 + space.pick(5);
    for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < DDPI_KERNEL_THREADS; threadIdx.x++)
            from.kernel(ddpi_kernel_cast{space.device.at(0), space.device.at(1), count, to.number});
    ddpi_cast(space.host.at(1), to.dtype, space.host.at(0), from.dtype, count);
    ck_assert_uint_eq(elements_differ(to.dtype, space.device.at(1), space.host.at(1), count),
                      count);
    const size_t end = count * ddp_dtype_size(to.dtype);
    ck_assert(memcmp(space.device.at(1) + end, space.host.at(1) + end,
                     spaces::room * sizeof(uint4) - end) == 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kernel_source");
    TCase *tcase = tcase_create("on the host");
    tcase_add_loop_test(tcase, the_same_bits_as_the_twin, 0, DTYPES * OPS);
    tcase_add_loop_test(tcase, products_have_the_bits_of_the_twin, 0, 4);
    tcase_add_loop_test(tcase, casts_have_the_bits_of_the_twin, 0, 16);
    suite_add_tcase(suite, tcase);
    return suite;
}
