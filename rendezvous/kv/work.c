/*
 * work.c - how much work a turn of the loop has left for requests whose cost is not bounded by
 * their length. One unit is one entry that is looked at. Owns the number only.
 */
#include "kv_impl.h"

bool ddpi_kv_work_is_bounded(const struct ddpi_kv *kv)
{
    return kv->limits.turn_work > 0;
}

void ddpi_kv_grant_work(struct ddpi_kv *kv)
{
    kv->work_left = kv->limits.turn_work;
}

bool ddpi_kv_take_work(struct ddpi_kv *kv)
{
    if (!ddpi_kv_work_is_bounded(kv))
        return true;
    if (kv->work_left == 0)
        return false;
    kv->work_left--;
    return true;
}

bool ddpi_kv_take_small(struct ddpi_kv *kv, size_t *taken)
{
    return !ddpi_kv_work_is_bounded(kv) || ((*taken)++ < KV_SMALL && ddpi_kv_take_work(kv));
}

void ddpi_kv_spend_work(struct ddpi_kv *kv, size_t entries)
{
    kv->work_left -= entries < kv->work_left ? entries : kv->work_left;
}
