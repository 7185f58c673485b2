/*
 * sample.c - see sample.h.
 */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true, USUAL_STRIDE = 7, FEW = 8 };
#else
enum { SANITIZED = false, USUAL_STRIDE = 3, FEW = 12 };
#endif

/* Of few numbers all are taken, and of not so many every third, so that no residue of what they
 * stand for is left out. */
enum { MANY = 64 };

bool sample_is_whole(void)
{
    const char *whole = getenv("DDPRUN_TEST_WHOLE");
    return whole != NULL && strcmp(whole, "1") == 0;
}

int sample_stride(void)
{
    return sample_is_whole() ? 1 : USUAL_STRIDE;
}

/* Another place in each row of so many, so that what repeats itself is not left out: 0, 5, 7, 9,
 * 14, 16, 18, 23, ... */
bool sample_takes(int place, int count, int most)
{
    int stride = count < FEW ? 1 : count < MANY && most > 3 ? 3 : most;
    place = SANITIZED ? count - 1 - place : place; /* residues stay as many */
    return place % stride == place / stride * ((stride + 1) / 2) % stride;
}

static void add_some(TCase *tcase, const TTest *test, int from, int end, int most)
{
    for (int i = from; i < end; i++)
        if (sample_takes(i - from, end - from, most))
            tcase_add_loop_test(tcase, test, i, i + 1);
}

void add_sample(TCase *tcase, const TTest *test, int from, int end)
{
    add_some(tcase, test, from, end, sample_stride());
}

void add_worlds(TCase *tcase, const TTest *test, int from, int end)
{
    add_some(tcase, test, from, end, SANITIZED && !sample_is_whole() ? 3 : 1);
}
