/*
 * sample.c - see sample.h.
 */
#include "sample.h"

#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true, USUAL_STRIDE = 7 };
#else
enum { SANITIZED = false, USUAL_STRIDE = 3 };
#endif

bool sample_is_whole(void)
{
    const char *whole = getenv("DDPRUN_TEST_WHOLE");
    return whole != NULL && strcmp(whole, "1") == 0;
}

int sample_stride(void)
{
    return sample_is_whole() ? 1 : USUAL_STRIDE;
}

/* Another place in each row of so many, so that nothing which repeats is left out: 0, 4, 8, 9, 13,
 * 17, 18, ... */
void add_sample(TCase *tcase, const TTest *test, int from, int end)
{
    int stride = sample_stride(), i = from;
    for (int row = 0; i < end; row++) {
        tcase_add_loop_test(tcase, test, i, i + 1);
        i = from + (row + 1) * stride + (row + 1) % stride;
    }
}

void add_worlds(TCase *tcase, const TTest *test, int from, int end)
{
    if (SANITIZED)
        add_sample(tcase, test, from, end);
    else
        tcase_add_loop_test(tcase, test, from, end);
}
