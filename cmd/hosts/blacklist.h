/*
 * blacklist.h - when a host that has failed may be tried again: not before a time that doubles with
 * each failure, or never. Pure.
 */
#ifndef CMD_BLACKLIST_H
#define CMD_BLACKLIST_H

#include <stdbool.h>
#include <stdint.h>

/* From @min_ms after the first failure to @max_ms; 0 and 0: a host that has failed is never tried
 * again. */
struct blacklist_range {
    uint64_t min_ms, max_ms;
};

/* A zeroed struct is a host that has not failed. */
struct blacklist_entry {
    uint32_t failures;
    uint64_t until_ms; /* UINT64_MAX: for ever */
};

void blacklist_fail(struct blacklist_entry *entry, const struct blacklist_range *range,
                    uint64_t now_ms);
bool blacklist_has(const struct blacklist_entry *entry, uint64_t now_ms);

#endif
