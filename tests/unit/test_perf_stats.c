/*
 * test_perf_stats.c - percentiles by nearest rank, of samples and of histograms, and samples that
 * memory runs out for.
 */
#include "check_main.h"
#include "failmem.h"
#include "perf_stats.h"

START_TEST(percentiles)
{
    struct perf_samples samples = {0};
    ck_assert_double_eq(perf_percentile(&samples, 50), 0);
    for (int i = 100; i >= 1; i--)
        ck_assert(perf_add(&samples, i));
    ck_assert_double_eq(perf_percentile(&samples, 0), 1);
    ck_assert_double_eq(perf_percentile(&samples, 1), 1);
    ck_assert_double_eq(perf_percentile(&samples, 50), 50);
    ck_assert_double_eq(perf_percentile(&samples, 90), 90);
    ck_assert_double_eq(perf_percentile(&samples, 99.5), 100);
    ck_assert_double_eq(perf_percentile(&samples, 100), 100);
    perf_samples_finish(&samples);
    ck_assert_uint_eq(samples.count, 0);
}
END_TEST

START_TEST(the_median_of_few)
{
    struct perf_samples samples = {0};
    ck_assert(perf_add(&samples, 7));
    ck_assert_double_eq(perf_percentile(&samples, 50), 7);
    ck_assert(perf_add(&samples, 3) && perf_add(&samples, 5));
    ck_assert_double_eq(perf_percentile(&samples, 50), 5);
    ck_assert_double_eq(perf_percentile(&samples, 90), 7);
    perf_samples_finish(&samples);
}
END_TEST

START_TEST(without_memory)
{
    struct perf_samples samples = {0};
    failmem_start(0);
    ck_assert(!perf_add(&samples, 1));
    ck_assert(failmem_stop());
    ck_assert_uint_eq(samples.count, 0);
    perf_samples_finish(&samples);
}
END_TEST

START_TEST(small_values_are_exact)
{
    struct perf_histogram histogram = {0};
    ck_assert_double_eq(perf_histogram_percentile(&histogram, 50), 0);
    for (uint64_t i = 100; i >= 1; i--)
        perf_histogram_add(&histogram, i);
    ck_assert_uint_eq(histogram.total, 100);
    ck_assert_double_eq(perf_histogram_percentile(&histogram, 0), 1);
    ck_assert_double_eq(perf_histogram_percentile(&histogram, 50), 50);
    ck_assert_double_eq(perf_histogram_percentile(&histogram, 99), 99);
    ck_assert_double_eq(perf_histogram_percentile(&histogram, 100), 100);
}
END_TEST

/* Around each power of two, up to the largest value. */
START_TEST(large_values_are_near)
{
    for (unsigned bit = 0; bit < 64; bit++)
        for (int offset = -1; offset <= 1; offset++) {
            struct perf_histogram histogram = {0};
            uint64_t value = ((uint64_t)1 << bit) + (uint64_t)offset;
            perf_histogram_add(&histogram, value);
            double seen = perf_histogram_percentile(&histogram, 50);
            ck_assert_double_le(seen, (double)value * (1 + 1.0 / 64));
            ck_assert_double_ge(seen, (double)value * (1 - 1.0 / 64));
        }
    struct perf_histogram histogram = {0};
    perf_histogram_add(&histogram, UINT64_MAX);
    ck_assert_double_ge(perf_histogram_percentile(&histogram, 100), 0.98 * (double)UINT64_MAX);
}
END_TEST

START_TEST(merged_histograms)
{
    struct perf_histogram whole = {0}, part = {0}, rest = {0};
    for (uint64_t i = 1; i <= 100; i++) {
        perf_histogram_add(&whole, i * i);
        perf_histogram_add(i % 3 == 0 ? &part : &rest, i * i);
    }
    perf_histogram_merge(&rest, &part);
    ck_assert_uint_eq(rest.total, 100);
    for (int percent = 1; percent <= 100; percent++)
        ck_assert_double_eq(perf_histogram_percentile(&rest, percent),
                            perf_histogram_percentile(&whole, percent));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("perf_stats");
    TCase *tcase = tcase_create("samples");
    ADD_TESTS(tcase, percentiles, the_median_of_few, without_memory, small_values_are_exact,
              large_values_are_near, merged_histograms);
    suite_add_tcase(suite, tcase);
    return suite;
}
