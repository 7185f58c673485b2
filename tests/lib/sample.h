/*
 * sample.h - which of many like cases a test runs.
 */
#ifndef TESTS_SAMPLE_H
#define TESTS_SAMPLE_H

#include "check_main.h"

/* Whether all cases are wanted: DDPRUN_TEST_WHOLE=1 in the environment. */
bool sample_is_whole(void);

/* A test runs one case in so many: each if all are wanted, else every third, and every seventh in a
 * build with a sanitizer, which takes ten times as long. */
int sample_stride(void);

/* Whether number @place of @count belongs to a sample of one in @most; fewer are left out if @count
 * is small. A build with a sanitizer counts from the end, and so takes others for the most part. */
bool sample_takes(int place, int count, int most);

/* A loop test of a sample of the numbers from @from on, below @end: of many like cases. */
void add_sample(TCase *tcase, const TTest *test, int from, int end);

/* The same for cases of which each tests something else, as worlds do whose ranks run a sample: all
 * of them, and every third with a sanitizer. */
void add_worlds(TCase *tcase, const TTest *test, int from, int end);

#endif
