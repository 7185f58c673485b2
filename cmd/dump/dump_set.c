/*
 * dump_set.c - see dump_set.h. Owns the logs and the report.
 */
#include "dump_set.h"

#include "error.h"
#include "mem.h"

#include <string.h>

static void drop_logs(struct dump_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        ddpi_flight_log_destroy(set->logs[i]);
    set->count = 0;
}

void dump_set_finish(struct dump_set *set)
{
    ddpi_flight_report_destroy(set->report);
    drop_logs(set);
    ddpi_free(set->logs);
    *set = (struct dump_set){0};
}

/* Where @rank is, or where to insert it. */
static size_t find_rank(const struct dump_set *set, uint32_t rank)
{
    size_t from = 0, to = set->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (set->logs[middle]->place.rank < rank)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static ddp_status insert_log(struct dump_set *set, size_t at, struct ddpi_flight_log *log,
                             struct ddp_error *err)
{
    if (set->count == set->room) {
        size_t room = set->room == 0 ? 16 : 2 * set->room;
        struct ddpi_flight_log **logs = ddpi_realloc(set->logs, room, sizeof *logs);
        if (logs == NULL)
            return ddpi_error_nomem(err, room * sizeof *logs);
        set->logs = logs;
        set->room = room;
    }
    memmove(set->logs + at + 1, set->logs + at, (set->count - at) * sizeof *set->logs);
    set->logs[at] = log;
    set->count++;
    return DDP_OK;
}

static bool is_later(const struct dump_set *set, const struct ddpi_flight_place *place)
{
    return set->count == 0 || place->generation > set->generation;
}

ddp_status dump_set_take(struct dump_set *set, const void *answer, size_t len,
                         struct ddp_error *err)
{
    struct ddpi_flight_log *log;
    ddp_status status = ddpi_flight_log_read(answer, len, &log, err);
    if (status != DDP_OK)
        return status;
    if (is_later(set, &log->place)) {
        drop_logs(set);
        set->generation = log->place.generation;
        set->world_size = log->place.world_size;
    }
    bool of_this =
        log->place.generation == set->generation && log->place.world_size == set->world_size;
    size_t at = find_rank(set, log->place.rank);
    if (of_this && at < set->count && set->logs[at]->place.rank == log->place.rank) {
        ddpi_flight_log_destroy(set->logs[at]);
        set->logs[at] = log;
        return DDP_OK;
    }
    if (of_this)
        status = insert_log(set, at, log, err);
    if (!of_this || status != DDP_OK)
        ddpi_flight_log_destroy(log);
    return status;
}

bool dump_set_complete(const struct dump_set *set)
{
    return set->count > 0 && set->count == set->world_size;
}

ddp_status dump_set_compare(struct dump_set *set, struct ddp_error *err)
{
    ddpi_flight_report_destroy(set->report);
    set->report = NULL;
    return ddpi_flight_compare((const struct ddpi_flight_log *const *)set->logs, set->count,
                               &set->report, err);
}
