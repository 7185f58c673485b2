/*
 * etcd_times.c - see etcd_times.h.
 */
#include "etcd_times.h"

#include <inttypes.h>
#include <stdio.h>

static const uint32_t bounds_us[DDPI_ETCD_TIMES_BOUNDS] = {
    500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 2000000};

void ddpi_etcd_times_add(struct ddpi_etcd_times *times, uint64_t us)
{
    unsigned i = 0;
    while (i < DDPI_ETCD_TIMES_BOUNDS && us > bounds_us[i])
        i++;
    times->counts[i]++;
    times->sum_us += us;
}

static bool put_line(struct ddpi_buf *text, const char *name, uint64_t value)
{
    char line[64];
    int len = snprintf(line, sizeof line, "etcd_%s %" PRIu64 "\n", name, value);
    return ddpi_buf_append(text, line, (size_t)len);
}

bool ddpi_etcd_times_put(const struct ddpi_etcd_times *times, struct ddpi_buf *text)
{
    uint64_t answered = 0;
    for (unsigned i = 0; i < DDPI_ETCD_TIMES_BOUNDS; i++) {
        char name[32];
        answered += times->counts[i];
        snprintf(name, sizeof name, "request_us/%" PRIu32, bounds_us[i]);
        if (!put_line(text, name, answered))
            return false;
    }
    answered += times->counts[DDPI_ETCD_TIMES_BOUNDS];
    return put_line(text, "request_us/inf", answered) &&
           put_line(text, "request_us/sum", times->sum_us) &&
           put_line(text, "failures", times->failures);
}
