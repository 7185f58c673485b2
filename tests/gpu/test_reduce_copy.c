/*
 * test_reduce_copy.c - the kernels against the host's arithmetic: every type, operation and number
 * of inputs gives the same bits. Runs on the driver that the process finds, so on a GPU where there
 * is one. Inputs differ in every run; DDP_TEST_SEED repeats one.
 *
 * All buffers of a case are in one arena. The arena is uploaded, reduced there and here, and must
 * then be the same in every byte, the poison around the outputs included; a NaN may be any NaN.
 */
#include "device.h"
#include "elements.h"
#include "kernel_launch.h"
#include "sample.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DTYPES = DDPI_DTYPES,
    OPS = DDPI_REDUCE_OPS,
    MOST = DDPI_REDUCE_MOST,
    LONGEST = 2500,
    ROOM = LONGEST * DDPI_DTYPE_SIZE_MOST + 32, /* a multiple of 32: spaces begin alike */
    POISON = 0x5a,
};

/* How the buffers lie within 16 bytes. */
enum placing { ALIGNED, SHIFTED_ALIKE, SHIFTED, PLACINGS };

struct arena {
    unsigned char in[MOST][ROOM];
    unsigned char out[MOST][ROOM];
};

static struct device device;
static struct ddpi_kernels kernels;
static uint64_t seed, first_seed;
static struct arena *here, *there; /* there: what came back */
static ddpi_cu_deviceptr arena_at;

static uint32_t pick(uint32_t below)
{
    return (uint32_t)(elements_scramble(&seed) >> 33) % below;
}

static size_t pick_shift(ddp_dtype dtype)
{
    size_t size = ddp_dtype_size(dtype);
    return size * pick((uint32_t)(DDPI_KERNEL_PACK / size));
}

static void fill_arena(struct ddpi_reduction *work, enum placing placing)
{
    size_t alike = pick_shift(work->dtype);
    memset(here->out, POISON, sizeof here->out);
    for (uint32_t k = 0; k < MOST; k++) {
        elements_fill(here->in[k], ROOM / ddp_dtype_size(work->dtype), work->dtype, &seed);
        size_t in = placing == SHIFTED ? pick_shift(work->dtype) : alike;
        size_t out = placing == SHIFTED ? pick_shift(work->dtype) : alike;
        work->in[k] = here->in[k] + (placing == ALIGNED ? 0 : in);
        work->out[k] = here->out[k] + (placing == ALIGNED ? 0 : out);
    }
}

/* The same work where the arena is on the device. */
static struct ddpi_reduction moved(const struct ddpi_reduction *work)
{
    struct ddpi_reduction over_there = *work;
    for (uint32_t k = 0; k < MOST; k++) {
        size_t in = (size_t)((const unsigned char *)work->in[k] - (unsigned char *)here);
        size_t out = (size_t)((unsigned char *)work->out[k] - (unsigned char *)here);
        over_there.in[k] = (const void *)(uintptr_t)(arena_at + in);
        over_there.out[k] = (void *)(uintptr_t)(arena_at + out);
    }
    return over_there;
}

static void launch(const struct ddpi_reduction *work)
{
    struct ddp_error err = {0};
    ck_assert_msg(ddpi_kernels_launch(&kernels, work, device.stream, &err) == DDP_OK, "%s",
                  err.msg);
    device_wait(&device);
}

static void compare_output(const struct ddpi_reduction *work, uint32_t j)
{
    size_t offset = (size_t)((unsigned char *)work->out[j] - (unsigned char *)here);
    unsigned char *found = (unsigned char *)there + offset;
    size_t i = elements_differ(work->dtype, found, work->out[j], work->count);
    if (i < work->count)
        ck_abort_msg("%s %s of %" PRIu32 ", output %" PRIu32 ", element %zu of %zu: %" PRIx64
                     " instead of %" PRIx64 "; DDP_TEST_SEED=%" PRIu64,
                     ddp_dtype_name(work->dtype), ddp_reduce_op_name(work->op), work->nin, j, i,
                     work->count, (uint64_t)elements_get(found, i, work->dtype),
                     (uint64_t)elements_get(work->out[j], i, work->dtype), first_seed);
    memcpy(found, work->out[j], work->count * ddp_dtype_size(work->dtype)); /* equalises NaN */
}

static void run_and_compare(const struct ddpi_reduction *work)
{
    struct ddpi_reduction over_there = moved(work);
    device_upload(&device, arena_at, here, sizeof *here);
    launch(&over_there);
    device_download(&device, there, arena_at, sizeof *there);
    ddpi_reduce_many(work);
    for (uint32_t j = 0; j < work->nout; j++)
        compare_output(work, j);
    ck_assert_msg(memcmp(there, here, sizeof *here) == 0,
                  "something was written beside the outputs; DDP_TEST_SEED=%" PRIu64, first_seed);
}

static uint32_t pick_count(void)
{
    static const uint32_t edges[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 255, 1023, 2047, LONGEST};
    uint32_t edge = pick(2 * sizeof edges / sizeof *edges);
    return edge < sizeof edges / sizeof *edges ? edges[edge] : 1 + pick(LONGEST);
}

static struct ddpi_reduction work_of(int combination)
{
    return (struct ddpi_reduction){.dtype = (ddp_dtype)(combination / OPS),
                                   .op = (ddp_reduce_op)(combination % OPS),
                                   .divisor = 1};
}

/* The most inputs that there is a kernel for: one, which is copied, or all. */
static uint32_t most_inputs(const struct ddpi_reduction *work)
{
    return ddpi_kernels_check(work->dtype, work->op, NULL) == DDP_OK ? MOST : 1;
}

START_TEST(the_same_bits_as_on_the_host)
{
    struct ddpi_reduction work = work_of(_i);
    uint32_t most = most_inputs(&work);
    for (work.nin = 1; work.nin <= most; work.nin++)
        for (int placing = 0; placing < PLACINGS; placing++) {
            work.count = pick_count();
            work.nout = 1 + pick(MOST);
            work.divisor = work.op == DDP_AVERAGE && most > 1 ? 1 + pick(16) : 1;
            fill_arena(&work, (enum placing)placing);
            run_and_compare(&work);
        }
}
END_TEST

START_TEST(outputs_that_are_inputs)
{
    struct ddpi_reduction work = work_of(_i);
    uint32_t most = most_inputs(&work);
    for (work.nin = 1; work.nin <= most; work.nin++) {
        work.count = pick_count();
        work.nout = work.nin;
        work.divisor = work.op == DDP_AVERAGE ? work.nin : 1;
        fill_arena(&work, (enum placing)pick(PLACINGS));
        for (uint32_t j = 0; j < work.nout; j++)
            work.out[j] = here->in[j] + ((const unsigned char *)work.in[j] - here->in[j]);
        run_and_compare(&work);
    }
}
END_TEST

/* Every value of one input, against others that vary. */
START_TEST(every_value_of_the_16_bit_types)
{
    enum { ALL = 65536 };
    static uint16_t in[2][ALL], expected[ALL], found[ALL];
    struct ddpi_reduction work = work_of(DDP_FLOAT16 * OPS + _i); /* then bfloat16 */
    if (most_inputs(&work) == 1)
        return;
    ddpi_cu_deviceptr at = device_alloc(&device, sizeof in + sizeof found);
    for (size_t i = 0; i < ALL; i++) {
        in[0][i] = (uint16_t)i;
        in[1][i] = (uint16_t)elements_scramble(&seed);
    }
    device_upload(&device, at, in, sizeof in);
    for (uint32_t run = 0; run < 6; run++) {
        struct ddpi_reduction over_there;
        work.nin = 1 + run % 2;
        work.nout = 1;
        work.count = ALL;
        work.divisor = work.op == DDP_AVERAGE ? 1 + run : 1;
        over_there = work;
        for (uint32_t k = 0; k < 2; k++) {
            work.in[k] = in[(k + run / 2) % 2];
            over_there.in[k] = (const void *)(uintptr_t)(at + (k + run / 2) % 2 * sizeof in[0]);
        }
        work.out[0] = expected;
        over_there.out[0] = (void *)(uintptr_t)(at + sizeof in);
        launch(&over_there);
        device_download(&device, found, at + sizeof in, sizeof found);
        ddpi_reduce_many(&work);
        ck_assert_uint_eq(elements_differ(work.dtype, found, expected, ALL), ALL);
    }
    device_free(&device, at);
}
END_TEST

/* More than one round of all blocks that a device has room for, with a rest that fills no round. */
START_TEST(more_than_the_device_holds_at_once)
{
    enum { BUFFERS = 3 };
    struct ddpi_reduction work = work_of(_i * OPS), over_there;
    if (most_inputs(&work) == 1)
        return;
    size_t size = ddp_dtype_size(work.dtype);
    work.count = (24 * 1024 * 1024 + 4096) / size + 1;
    size_t room = (work.count * size / 256 + 1) * 256;
    unsigned char *host = malloc(room * (BUFFERS + 1));
    ck_assert_ptr_nonnull(host);
    ddpi_cu_deviceptr at = device_alloc(&device, room * (BUFFERS + 1));
    elements_fill(host, room * BUFFERS / size, work.dtype, &seed);
    memset(host + room * BUFFERS, POISON, room);
    device_upload(&device, at, host, room * (BUFFERS + 1));
    work.nin = BUFFERS;
    work.nout = 1;
    over_there = work;
    for (uint32_t k = 0; k < BUFFERS; k++) {
        work.in[k] = host + k * room;
        over_there.in[k] = (const void *)(uintptr_t)(at + k * room);
    }
    over_there.out[0] = (void *)(uintptr_t)(at + BUFFERS * room);
    launch(&over_there);
    device_download(&device, host + BUFFERS * room, at + BUFFERS * room, room);
    work.out[0] = host; /* what is left of the inputs is not needed any more */
    ddpi_reduce_many(&work);
    ck_assert_uint_eq(elements_differ(work.dtype, host + BUFFERS * room, host, work.count),
                      work.count);
    device_free(&device, at);
    free(host);
}
END_TEST

START_TEST(an_element_that_straddles_is_refused)
{
    struct ddp_error err = {0};
    struct ddpi_reduction work = work_of(DDP_FLOAT32 * OPS);
    work.nin = work.nout = 1;
    work.count = 1;
    work.in[0] = (const void *)(uintptr_t)arena_at;
    work.out[0] = (void *)(uintptr_t)(arena_at + 2);
    ck_assert_int_eq(ddpi_kernels_launch(&kernels, &work, device.stream, &err), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "multiple of 4 bytes"));
    work.out[0] = (void *)(uintptr_t)(arena_at + 4);
    work.count = 0;
    ck_assert_int_eq(ddpi_kernels_launch(&kernels, &work, device.stream, &err), DDP_OK);
}
END_TEST

static Suite *suite(void)
{
    Suite *made = suite_create("reduce_copy");
    TCase *tcase = tcase_create("kernels");
    add_sample(tcase, the_same_bits_as_on_the_host, 0, DTYPES * OPS);
    add_sample(tcase, outputs_that_are_inputs, 0, DTYPES * OPS);
    add_sample(tcase, every_value_of_the_16_bit_types, 0, 2 * OPS);
    tcase_add_loop_test(tcase, more_than_the_device_holds_at_once, 0, DTYPES);
    tcase_add_test(tcase, an_element_that_straddles_is_refused);
    suite_add_tcase(made, tcase);
    return made;
}

int main(void)
{
    const char *given = getenv("DDP_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    seed = given != NULL ? strtoull(given, NULL, 10)
                         : (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
    first_seed = seed;

    device_open(&device);
    ddpi_kernels_init(&kernels, &device.cuda);
    here = malloc(sizeof *here);
    there = malloc(sizeof *there);
    if (here == NULL || there == NULL)
        return EXIT_FAILURE;
    arena_at = device_alloc(&device, sizeof *here);
    printf("on %s, DDP_TEST_SEED=%" PRIu64 "\n", device.name, first_seed);

    SRunner *runner = srunner_create(suite());
    srunner_set_fork_status(runner, CK_NOFORK); /* a context does not survive fork() */
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);

    device_free(&device, arena_at);
    free(here);
    free(there);
    ddpi_kernels_finish(&kernels);
    device_close(&device);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
