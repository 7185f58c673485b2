/*
 * test_reduce_many.c - reductions of many inputs into many outputs: every type, operation and
 * number of inputs against a reference that takes one element at a time; the 16-bit types
 * completely; the order of the fold, and that it is rounded once.
 */
#include "check_main.h"
#include "elements.h"
#include "sample.h"

#include <stdlib.h>
#include <string.h>

enum {
    DTYPES = DDPI_DTYPES,
    OPS = DDPI_REDUCE_OPS,
    MOST = DDPI_REDUCE_MOST,
    LONGEST = 2500, /* elements: more than two blocks */
    ROOM = LONGEST * DDPI_DTYPE_SIZE_MOST + 64,
};

static const size_t counts[] = {0, 1, 3, 17, 1023, 1024, 1025, LONGEST};

struct arena {
    unsigned char before[MOST][ROOM]; /* the inputs as they were */
    unsigned char in[MOST][ROOM];
    unsigned char out[MOST][ROOM];
    uint64_t seed;
};

static struct arena *arena;

static void make_arena(void)
{
    arena = malloc(sizeof *arena);
    ck_assert_ptr_nonnull(arena);
    arena->seed = 1;
}

static void free_arena(void)
{
    free(arena);
}

/* Where the buffer of number @k begins in its space: no two in a row lie alike. */
static size_t begin_of(uint32_t k, bool odd)
{
    return odd ? (k * 5 + 3) % 31 : k % 3 * 8;
}

static void fill(struct ddpi_reduction *work, bool odd)
{
    for (uint32_t k = 0; k < work->nin; k++) {
        elements_fill(arena->in[k] + begin_of(k, odd), LONGEST, work->dtype, &arena->seed);
        memcpy(arena->before[k], arena->in[k], ROOM);
        work->in[k] = arena->in[k] + begin_of(k, odd);
    }
    memset(arena->out, 0x5a, sizeof arena->out);
    for (uint32_t j = 0; j < work->nout; j++)
        work->out[j] = arena->out[j] + begin_of(j + 1, odd);
}

static element_bits expected_at(const struct ddpi_reduction *work, size_t i)
{
    element_bits in[MOST];
    for (uint32_t k = 0; k < work->nin; k++) {
        const unsigned char *space = work->in[k];
        in[k] = elements_get(arena->before[k] + (space - arena->in[k]), i, work->dtype);
    }
    return elements_folded(work, in);
}

/* Check writes a note for every assertion: one for all elements is enough. */
static void run_and_compare(const struct ddpi_reduction *work)
{
    element_bits expected = 0, found = 0;
    size_t i;
    ddpi_reduce_many(work);
    for (i = 0; i < work->count; i++) {
        expected = expected_at(work, i);
        found = elements_get(work->out[0], i, work->dtype);
        if (!elements_agree(work->dtype, found, expected))
            break;
    }
    ck_assert_msg(i == work->count, "%s %s of %u, element %zu of %zu: %llx instead of %llx",
                  ddp_dtype_name(work->dtype), ddp_reduce_op_name(work->op), work->nin, i,
                  work->count, (unsigned long long)found, (unsigned long long)expected);
    for (uint32_t j = 1; j < work->nout; j++)
        ck_assert_mem_eq(work->out[j], work->out[0], work->count * ddp_dtype_size(work->dtype));
}

/* Whether what is beside the outputs is as it was. */
static bool untouched(const struct ddpi_reduction *work, bool odd)
{
    size_t len = work->count * ddp_dtype_size(work->dtype), wrong = 0;
    for (uint32_t j = 0; j < MOST; j++) {
        size_t begin = j < work->nout ? begin_of(j + 1, odd) : ROOM;
        for (size_t i = 0; i < ROOM; i++)
            wrong += arena->out[j][i] != 0x5a && (i < begin || i >= begin + len);
    }
    return wrong == 0;
}

/* Of premul_sum; some inputs have none. */
static const double factors[MOST] = {0.3, 1, -2, 1e-3, 1,   7,   0.5, 1,
                                     0.1, 3, 1,  -0.7, 1.5, 0.9, 1,   2};

static struct ddpi_reduction work_of(int combination)
{
    ddp_reduce_op op = (ddp_reduce_op)(combination % OPS);
    bool scales = op == DDP_PREMUL_SUM || op == DDP_AVERAGE_BEFORE;
    return (struct ddpi_reduction){.dtype = (ddp_dtype)(combination / OPS),
                                   .op = op,
                                   .divisor = op == DDP_AVERAGE ? 3 : 1,
                                   .factor = scales ? factors : NULL};
}

START_TEST(outputs_of_any_number_of_inputs)
{
    struct ddpi_reduction work = work_of(_i);
    if (!elements_reduce(work.dtype, work.op))
        return;
    for (work.nin = 1; work.nin <= MOST; work.nin++) {
        work.nout = 1 + work.nin % 3;
        work.count = counts[(work.nin + (uint32_t)_i) % (sizeof counts / sizeof *counts)];
        bool odd = work.nin % 2 == 0;
        fill(&work, odd);
        run_and_compare(&work);
        ck_assert(untouched(&work, odd));
    }
}
END_TEST

START_TEST(outputs_that_are_inputs)
{
    struct ddpi_reduction work = work_of(_i);
    if (!elements_reduce(work.dtype, work.op))
        return;
    for (work.nin = 1; work.nin <= MOST; work.nin += 3)
        for (uint32_t first = 0; first < work.nin; first++) {
            work.nout = work.nin - first < 3 ? 1 : 3;
            work.count = 1100;
            fill(&work, first % 2 == 1);
            for (uint32_t j = 0; j < work.nout; j++)
                work.out[j] = arena->in[first + j] + begin_of(first + j, first % 2 == 1);
            run_and_compare(&work);
        }
}
END_TEST

START_TEST(a_single_input_is_copied_as_it_is)
{
    struct ddpi_reduction work = {.dtype = (ddp_dtype)_i, .op = DDP_SUM, .divisor = 1};
    work.nin = 1;
    work.nout = 2;
    work.count = LONGEST;
    fill(&work, true);
    ddpi_reduce_many(&work);
    ck_assert_mem_eq(work.out[0], work.in[0], work.count * ddp_dtype_size(work.dtype));
    ck_assert_mem_eq(work.out[1], work.in[0], work.count * ddp_dtype_size(work.dtype));
}
END_TEST

/* All 65,536 values of a format in one input. */
START_TEST(every_value_of_the_16_bit_types)
{
    enum { ALL = 65536 };
    static uint16_t in[3][ALL], out[ALL];
    struct ddpi_reduction work = work_of(DDP_FLOAT16 * OPS + _i); /* then bfloat16 */
    if (!elements_reduce(work.dtype, work.op))
        return;
    for (uint32_t run = 0; run < 12; run++) {
        uint32_t varied = run % 3;
        for (size_t i = 0; i < ALL; i++)
            for (uint32_t k = 0; k < 3; k++)
                in[k][i] = k == varied ? (uint16_t)i : (uint16_t)elements_scramble(&arena->seed);
        work.nin = 1 + run / 4;
        work.nout = 1;
        work.count = ALL;
        work.out[0] = out;
        for (uint32_t k = 0; k < 3; k++)
            work.in[k] = in[(k + varied) % 3];
        ddpi_reduce_many(&work);
        size_t wrong = 0;
        for (size_t i = 0; i < ALL; i++) {
            element_bits of[3];
            for (uint32_t k = 0; k < 3; k++)
                of[k] = in[(k + varied) % 3][i];
            wrong += !elements_agree(work.dtype, out[i], elements_folded(&work, of));
        }
        ck_assert_uint_eq(wrong, 0);
    }
}
END_TEST

static uint64_t of_four(ddp_dtype dtype, uint32_t divisor, const double *values)
{
    uint64_t elements[4], result = 0;
    struct ddpi_reduction work = {.nin = 4, .nout = 1, .count = 1, .out = {&result}};
    work.dtype = dtype;
    work.op = divisor == 1 ? DDP_SUM : DDP_AVERAGE;
    work.divisor = divisor;
    for (size_t k = 0; k < 4; k++) {
        elements[k] = (uint64_t)elements_of_double(dtype, values[k]);
        work.in[k] = &elements[k];
    }
    ddpi_reduce_many(&work);
    return result;
}

static void check_four(ddp_dtype dtype, uint32_t divisor, const double *values, double expected)
{
    ck_assert_uint_eq(of_four(dtype, divisor, values),
                      (uint64_t)elements_of_double(dtype, expected));
}

START_TEST(sixteen_bit_sums_are_rounded_once)
{
    check_four(DDP_FLOAT16, 1, (const double[]){2048, 1, 1, 1}, 2052); /* 2051, ties to even */
    check_four(DDP_BFLOAT16, 1, (const double[]){256, 1, 1, 1}, 260);
    check_four(DDP_FLOAT16, 4, (const double[]){65504, 65504, 65504, 65504}, 65504);
    /* Rounded before the division it would be 2052 / 3 = 684. */
    check_four(DDP_FLOAT16, 3, (const double[]){2048, 1, 1, 1}, 683.5);
}
END_TEST

/* The 24 orders of these four give 1, 0 and 2: so often each, if the fold goes from left to right
 * in float32. */
START_TEST(the_first_input_is_folded_first)
{
    static const double values[] = {1e8, 1, -1e8, 1};
    int seen[3] = {0};
    for (size_t a = 0; a < 4; a++)
        for (size_t b = 0; b < 4; b++)
            for (size_t c = 0; c < 4; c++) {
                size_t d = 6 - a - b - c;
                if (a == b || a == c || b == c)
                    continue;
                uint64_t sum = of_four(
                    DDP_FLOAT32, 1, (const double[]){values[a], values[b], values[c], values[d]});
                for (size_t i = 0; i < 3; i++)
                    seen[i] += sum == elements_of_double(DDP_FLOAT32, (double)i);
            }
    ck_assert_int_eq(seen[1], 8);
    ck_assert_int_eq(seen[0], 12);
    ck_assert_int_eq(seen[2], 4);
}
END_TEST

/* Around every place where the quotient changes, and at the ends. */
START_TEST(integers_are_divided_toward_zero)
{
    static const uint32_t divisors[] = {2, 3, 7, 16, 1000003, INT32_MAX, 1U << 31, UINT32_MAX};
    enum { STEPS = 64 };
    int32_t in[STEPS], out[STEPS];
    for (size_t d = 0; d < sizeof divisors / sizeof *divisors; d++) {
        int64_t divisor = divisors[d], most = INT32_MAX / divisor;
        for (int64_t i = 0; i < STEPS; i++) {
            int64_t near = (i % 3 - 1) + divisor * (most - i / 6);
            in[i] = (int32_t)(i % 2 == 0 ? near : -near);
        }
        in[0] = INT32_MIN;
        in[1] = INT32_MAX;
        struct ddpi_reduction work = {.in = {in},
                                      .out = {out},
                                      .nin = 1,
                                      .nout = 1,
                                      .count = STEPS,
                                      .dtype = DDP_INT32,
                                      .op = DDP_AVERAGE,
                                      .divisor = divisors[d]};
        ddpi_reduce_many(&work);
        for (size_t i = 0; i < STEPS; i++)
            ck_assert_int_eq(out[i], in[i] / divisor);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("reduce_many");
    TCase *tcase = tcase_create("arithmetic");
    tcase_add_checked_fixture(tcase, make_arena, free_arena);
    add_sample(tcase, outputs_of_any_number_of_inputs, 0, DTYPES * OPS);
    add_sample(tcase, outputs_that_are_inputs, 0, DTYPES * OPS);
    tcase_add_loop_test(tcase, a_single_input_is_copied_as_it_is, 0, DTYPES);
    add_sample(tcase, every_value_of_the_16_bit_types, 0, 2 * OPS);
    tcase_add_test(tcase, sixteen_bit_sums_are_rounded_once);
    tcase_add_test(tcase, the_first_input_is_folded_first);
    tcase_add_test(tcase, integers_are_divided_toward_zero);
    suite_add_tcase(suite, tcase);
    return suite;
}
