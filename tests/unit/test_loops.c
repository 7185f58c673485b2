/*
 * test_loops.c - the loops of every instruction set that this processor has against the plain ones:
 * the same bits, for all elements of 8 bits in all pairs, all of 16 bits, and others at random; at
 * odd addresses and for every count around the length of a vector.
 */
#include "check_main.h"
#include "elements.h"
#include "loops.h"
#include "sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALL = 65536, ROOM = ALL * DDPI_DTYPE_SIZE_MOST + 64 };

/* Two inputs, what the plain loops make of them, and what the others do. */
static uint8_t *a, *b, *expected, *found;
static uint64_t seed;

static void make_buffers(void)
{
    a = malloc(ROOM);
    b = malloc(ROOM);
    expected = malloc(ROOM);
    found = malloc(ROOM);
    ck_assert(a != NULL && b != NULL && expected != NULL && found != NULL);
    seed = 7;
}

static void free_buffers(void)
{
    free(a);
    free(b);
    free(expected);
    free(found);
}

/* Every element of 16 bits in @a; of 8 bits, all pairs of one in @a and one in @b. */
static void fill(uint8_t *first, uint8_t *second, ddp_dtype dtype)
{
    size_t size = ddp_dtype_size(dtype);
    elements_fill(first, ALL, dtype, &seed);
    elements_fill(second, ALL, dtype, &seed);
    for (uint32_t i = 0; i < ALL && size <= 2; i++) {
        uint16_t one = size == 1 ? (uint16_t)(i >> 8) : (uint16_t)i, other = (uint16_t)i;
        memcpy(first + i * size, &one, size);
        if (size == 1)
            memcpy(second + i * size, &other, size);
    }
}

static void compare(const struct ddpi_reduction *work, const char *name)
{
    size_t i = elements_differ(work->dtype, found, expected, work->count);
    ck_assert_msg(i == work->count, "%s: %s of %s, element %zu of %zu: %llx instead of %llx", name,
                  ddp_reduce_op_name(work->op), ddp_dtype_name(work->dtype), i, work->count,
                  (unsigned long long)elements_get(found, i, work->dtype),
                  (unsigned long long)elements_get(expected, i, work->dtype));
}

/* The same bits with a finite check, which says what is true of them. */
static void compare_checked(const struct ddpi_reduction *work)
{
    const struct ddpi_loops *loops;
    bool is_finite = elements_are_finite(expected, work->count, work->dtype);
    for (size_t variant = 0; (loops = ddpi_loops_variant(variant)) != NULL; variant++) {
        struct ddpi_reduction checked = *work;
        bool non_finite = false;
        if (loops->non_finite[work->dtype] == NULL)
            continue;
        checked.out[0] = found;
        checked.non_finite = &non_finite;
        ddpi_reduce_with(loops, &checked);
        compare(&checked, loops->name);
        ck_assert_msg(non_finite == !is_finite, "%s: %s of %zu %s is said to be %s", loops->name,
                      ddp_reduce_op_name(work->op), work->count, ddp_dtype_name(work->dtype),
                      non_finite ? "not finite" : "finite");
    }
}

/* @work, whose output is left open, by all loops; with the output in the place of the first input,
 * too. */
static void compare_loops(struct ddpi_reduction *work)
{
    const struct ddpi_loops *loops;
    size_t len = work->count * ddp_dtype_size(work->dtype);
    work->out[0] = expected;
    ddpi_reduce_with(&ddpi_loops_plain, work);
    for (size_t variant = 1; (loops = ddpi_loops_variant(variant)) != NULL; variant++) {
        struct ddpi_reduction in_place = *work;
        uint8_t beyond = found[len] = 0x5a;
        work->out[0] = found;
        ddpi_reduce_with(loops, work);
        compare(work, loops->name);
        ck_assert_uint_eq(found[len], beyond);
        memcpy(found, work->in[0], len);
        in_place.in[0] = in_place.out[0] = found;
        ddpi_reduce_with(loops, &in_place);
        compare(work, loops->name);
    }
    compare_checked(work);
}

static struct ddpi_reduction work_of(int combination)
{
    return (struct ddpi_reduction){.dtype = (ddp_dtype)(combination / DDPI_REDUCE_OPS),
                                   .op = (ddp_reduce_op)(combination % DDPI_REDUCE_OPS),
                                   .nin = 2,
                                   .nout = 1,
                                   .count = ALL,
                                   .divisor = 1};
}

START_TEST(two_inputs)
{
    struct ddpi_reduction work = work_of(_i);
    if (!elements_reduce(work.dtype, work.op))
        return;
    fill(a, b, work.dtype);
    work.in[0] = a;
    work.in[1] = b;
    compare_loops(&work);
    work.in[0] = b;
    work.in[1] = a;
    compare_loops(&work);
}
END_TEST

START_TEST(odd_counts_and_addresses)
{
    struct ddpi_reduction work = work_of(_i);
    if (!elements_reduce(work.dtype, work.op))
        return;
    for (size_t count = 0; count < 140; count++) {
        uint8_t *x = a + count % 7 + 1, *y = b + count % 5;
        elements_fill(x, count, work.dtype, &seed);
        elements_fill(y, count, work.dtype, &seed);
        work.in[0] = x;
        work.in[1] = y;
        work.count = count;
        compare_loops(&work);
    }
}
END_TEST

/* Folded in float32 where the type is narrow: three inputs, divided, and with factors. */
START_TEST(more_inputs)
{
    static const double factors[] = {0.3, 1, -1.7};
    struct ddpi_reduction work = work_of(_i);
    if (!elements_reduce(work.dtype, work.op))
        return;
    fill(a, b, work.dtype);
    work.in[0] = a;
    work.in[1] = b;
    work.in[2] = a + ddp_dtype_size(work.dtype);
    work.nin = 3;
    work.count = ALL - 1;
    work.divisor = work.op == DDP_AVERAGE ? 3 : 1;
    work.factor = elements_reduce(work.dtype, DDP_PREMUL_SUM) ? factors : NULL;
    compare_loops(&work);
    work.nin = 1;
    work.factor = NULL;
    compare_loops(&work);
}
END_TEST

/* Every 251st float32, and those around every power of two. */
START_TEST(rounding)
{
    enum { AROUND = 256 * 9 };
    ddp_dtype dtype = (ddp_dtype)_i;
    const struct ddpi_loops *loops;
    float *wide = (float *)(void *)a;
    if (!ddpi_dtype_is_narrow(dtype))
        return;
    for (uint64_t first = 0; first <= UINT32_MAX; first += (uint64_t)251 * ALL) {
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t bits = (uint32_t)(first + (uint64_t)i * 251);
            if (i < AROUND) /* with few bits set below */
                bits = (i / 9) << 23 | (uint32_t)(elements_scramble(&seed) >> 63) << 31 |
                       (i % 9 == 8   ? 0x7fffffU
                        : i % 9 == 0 ? 0
                                     : 1U << (i % 9 * 3 - 2));
            memcpy(&wide[i], &bits, sizeof bits);
        }
        ddpi_loops_plain.wide[dtype].narrow(expected, wide, ALL);
        for (size_t variant = 1; (loops = ddpi_loops_variant(variant)) != NULL; variant++) {
            loops->wide[dtype].narrow(found, wide, ALL);
            ck_assert_uint_eq(elements_differ(dtype, found, expected, ALL), ALL);
        }
    }
}
END_TEST

/* ---- inf and NaN ---- */

static bool is_checked(ddp_dtype dtype)
{
    return ddpi_dtype_has_non_finite(dtype);
}

static void put(uint8_t *buffer, size_t i, ddp_dtype dtype, element_bits bits)
{
    memcpy(buffer + i * ddp_dtype_size(dtype), &bits, ddp_dtype_size(dtype));
}

START_TEST(floats_and_complex_numbers_are_checked)
{
    ddp_dtype dtype = (ddp_dtype)_i;
    ck_assert_int_eq(is_checked(dtype), elements_reduce(dtype, DDP_PREMUL_SUM));
    for (size_t variant = 0; ddpi_loops_variant(variant) != NULL; variant++)
        ck_assert_int_eq(ddpi_loops_variant(variant)->non_finite[dtype] != NULL, is_checked(dtype));
    ck_assert(!ddpi_has_non_finite(NULL, 0, dtype));
    memset(a, 0xff, 64); /* of floats a NaN */
    ck_assert_int_eq(ddpi_has_non_finite(a, 3, dtype), is_checked(dtype));
}
END_TEST

/* Each element alone: of 8 and 16 bits all there are. */
START_TEST(an_element_is_finite_or_not)
{
    ddp_dtype dtype = (ddp_dtype)_i;
    const struct ddpi_loops *loops;
    size_t size = ddp_dtype_size(dtype);
    if (!is_checked(dtype))
        return;
    fill(a, b, dtype);
    for (size_t variant = 0; (loops = ddpi_loops_variant(variant)) != NULL; variant++)
        for (size_t i = 0; i < ALL; i++)
            if (loops->non_finite[dtype](a + i * size, 1) ==
                elements_is_finite(dtype, elements_get(a, i, dtype)))
                ck_abort_msg("%s: element %zu of %s", loops->name, i, ddp_dtype_name(dtype));
}
END_TEST

/* All @count elements are 1 but that at @at, or none is if @at is @count. */
static void check_one(const struct ddpi_loops *loops, struct ddpi_reduction work, size_t at)
{
    bool non_finite = false;
    work.non_finite = &non_finite;
    work.out[0] = found;
    ddpi_reduce_with(loops, &work);
    if (non_finite != (at < work.count) ||
        loops->non_finite[work.dtype](found, work.count) != non_finite)
        ck_abort_msg("%s: %s of %u times %zu %s, element %zu", loops->name,
                     ddp_reduce_op_name(work.op), work.nin, work.count, ddp_dtype_name(work.dtype),
                     at);
}

/* Two inputs, three, and three divided: the ways to the last pass. */
START_TEST(one_element_that_is_not_finite_is_found)
{
    ddp_dtype dtype = (ddp_dtype)_i;
    const struct ddpi_loops *loops;
    if (!is_checked(dtype))
        return;
    const element_bits one = elements_of_double(dtype, 1),
                       inf = elements_of_double(dtype, INFINITY);
    struct ddpi_reduction work = {
        .in = {a, b, b}, .nout = 1, .dtype = dtype, .op = DDP_SUM, .divisor = 1};
    for (size_t i = 0; i < ALL; i++) {
        put(a, i, dtype, one);
        put(b, i, dtype, one);
    }
    for (size_t count = 0; count < 4500; count = count < 140 ? count + 1 : count * 2 + 1) {
        for (size_t at = 0; at <= count; at = at < 140 || at == count ? at + 1 : count) {
            put(a, at, dtype, at < count ? inf : one);
            work.count = count;
            for (size_t variant = 0; (loops = ddpi_loops_variant(variant)) != NULL; variant++) {
                for (work.nin = 1; work.nin <= 3; work.nin++)
                    check_one(loops, work, at);
                work.nin = 3;
                work.divisor = 3;
                check_one(loops, work, at);
                work.divisor = 1;
            }
            put(a, at, dtype, one);
        }
    }
}
END_TEST

START_TEST(the_best_is_the_last)
{
    size_t count = 0;
    while (ddpi_loops_variant(count) != NULL)
        count++;
    ck_assert_ptr_eq(ddpi_loops_variant(0), &ddpi_loops_plain);
    ck_assert_ptr_eq(ddpi_loops_variant(count - 1), ddpi_loops_best());
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("loops");
    TCase *tcase = tcase_create("against the plain ones");
    tcase_add_checked_fixture(tcase, make_buffers, free_buffers);
    add_sample(tcase, two_inputs, 0, DDPI_DTYPES * DDPI_REDUCE_OPS);
    add_sample(tcase, odd_counts_and_addresses, 0, DDPI_DTYPES * DDPI_REDUCE_OPS);
    add_sample(tcase, more_inputs, 0, DDPI_DTYPES * DDPI_REDUCE_OPS);
    add_sample(tcase, rounding, 0, DDPI_DTYPES);
    tcase_add_loop_test(tcase, floats_and_complex_numbers_are_checked, 0, DDPI_DTYPES);
    tcase_add_loop_test(tcase, an_element_is_finite_or_not, 0, DDPI_DTYPES);
    tcase_add_loop_test(tcase, one_element_that_is_not_finite_is_found, 0, DDPI_DTYPES);
    tcase_add_test(tcase, the_best_is_the_last);
    suite_add_tcase(suite, tcase);
    return suite;
}
