/*
 * blacklist.c - see blacklist.h.
 */
#include "blacklist.h"

void blacklist_fail(struct blacklist_entry *entry, const struct blacklist_range *range,
                    uint64_t now_ms)
{
    uint64_t wait_ms = range->min_ms;
    for (uint32_t i = 0; i < entry->failures && wait_ms < range->max_ms; i++)
        wait_ms *= 2;
    if (wait_ms > range->max_ms)
        wait_ms = range->max_ms;
    entry->until_ms = range->max_ms == 0 ? UINT64_MAX : now_ms + wait_ms;
    entry->failures++;
}

bool blacklist_has(const struct blacklist_entry *entry, uint64_t now_ms)
{
    return entry->failures > 0 && now_ms < entry->until_ms;
}
