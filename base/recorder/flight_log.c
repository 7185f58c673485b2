/*
 * flight_log.c - see flight_log.h. Owns the log that it makes.
 */
#include "flight_log.h"

#include "error.h"
#include "mem.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {
    [DDPI_FLIGHT_WRITING] = "writing", [DDPI_FLIGHT_SCHEDULED] = "scheduled",
    [DDPI_FLIGHT_STARTED] = "started", [DDPI_FLIGHT_COMPLETED] = "completed",
    [DDPI_FLIGHT_FAILED] = "failed",
};

const char *ddpi_flight_state_name(enum ddpi_flight_state state)
{
    return (unsigned)state < DDPI_FLIGHT_STATES ? state_names[state] : "unknown";
}

/* ---- reading ---- */

/* End @text, make it printable, and clear what is behind its end. */
static void clean_text(char *text, size_t size)
{
    text[size - 1] = '\0';
    size_t len = strlen(text);
    memset(text + len, 0, size - len);
    ddpi_text_mask(text);
    for (size_t at = 0, step; at < len; at += step) {
        bool control;
        step = ddpi_text_char(text + at, len - at, &control);
        if ((step == 1 && (unsigned char)text[at] >= 0x80) || text[at] == '\t')
            text[at] = '?'; /* no UTF-8, or no part of a name */
    }
}

static void clean_names(struct ddpi_flight_names *names)
{
    for (size_t i = 0; i < DDPI_FLIGHT_OPERATIONS; i++)
        clean_text(names->operations[i], DDPI_FLIGHT_NAME_SIZE);
    for (size_t i = 0; i < DDPI_FLIGHT_DTYPES; i++)
        clean_text(names->dtypes[i], DDPI_FLIGHT_NAME_SIZE);
    for (size_t i = 0; i < DDPI_FLIGHT_REDUCTIONS; i++)
        clean_text(names->reductions[i], DDPI_FLIGHT_NAME_SIZE);
}

static int compare_groups(const void *left, const void *right)
{
    const struct ddpi_flight_group *a = left, *b = right;
    return a->serial < b->serial ? -1 : a->serial > b->serial;
}

static void take_groups(struct ddpi_flight_log *log, const struct ddpi_flight_header *header)
{
    for (size_t i = 0; i < DDPI_FLIGHT_GROUPS; i++) {
        struct ddpi_flight_group *group = &log->groups[log->ngroups];
        memcpy(group, (const void *)header->group_words[i], sizeof *group);
        clean_text(group->name, sizeof group->name);
        bool valid = group->serial != 0 && group->rank < group->size && group->name[0] != '\0';
        log->ngroups += valid;
    }
    qsort(log->groups, log->ngroups, sizeof *log->groups, compare_groups);
}

static int compare_ops(const void *left, const void *right)
{
    const struct ddpi_flight_op *a = left, *b = right;
    return a->number < b->number ? -1 : a->number > b->number;
}

static void take_records(struct ddpi_flight_log *log, const uint8_t *at, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct ddpi_flight_record record;
        memcpy((void *)&record, at + i * sizeof record, sizeof record);
        log->count += ddpi_flight_get(&record, &log->ops[log->count]);
    }
    qsort(log->ops, log->count, sizeof *log->ops, compare_ops);
    for (size_t i = 0; i < log->count; i++)
        if (kept == 0 || log->ops[i].number != log->ops[kept - 1].number)
            log->ops[kept++] = log->ops[i];
    log->count = kept;
    if (kept > 0 && log->begun < log->ops[kept - 1].number)
        log->begun = log->ops[kept - 1].number;
}

static ddp_status check_copy(const struct ddpi_flight_header *header, size_t len,
                             struct ddp_error *err)
{
    if (memcmp(&header->magic, ddpi_flight_magic, sizeof header->magic) != 0 ||
        header->header_size != sizeof *header)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "these are no records of this version's flight recorder, or they "
                              "come from a machine with another byte order");
    if (header->records > DDPI_FLIGHT_RECORDS_MAX || len != ddpi_flight_size(header->records))
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "%zu bytes are not a copy of a flight recorder with %" PRIu32
                              " records",
                              len, header->records);
    const struct ddpi_flight_place *place = &header->place;
    if (place->rank >= place->world_size)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "a copy of a flight recorder is for rank %" PRIu32
                              " in a world of %" PRIu32,
                              place->rank, place->world_size);
    return DDP_OK;
}

ddp_status ddpi_flight_log_read(const void *copy, size_t len, struct ddpi_flight_log **ret_log,
                                struct ddp_error *err)
{
    struct ddpi_flight_header header;
    if (len < sizeof header)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "%zu bytes are too few for a copy of a flight recorder", len);
    memcpy((void *)&header, copy, sizeof header);
    ddp_status status = check_copy(&header, len, err);
    if (status != DDP_OK)
        return status;
    struct ddpi_flight_log *log = ddpi_calloc(1, sizeof *log);
    size_t bytes = (header.records + (size_t)1) * sizeof *log->ops;
    if (log != NULL)
        log->ops = ddpi_calloc(bytes, 1);
    if (log == NULL || log->ops == NULL) {
        ddpi_flight_log_destroy(log);
        return ddpi_error_nomem(err, bytes);
    }
    log->place = header.place;
    log->names = header.names;
    log->begun = header.begun;
    clean_text(log->place.host, sizeof log->place.host);
    clean_names(&log->names);
    take_groups(log, &header);
    take_records(log, (const uint8_t *)copy + sizeof header, header.records);
    *ret_log = log;
    return DDP_OK;
}

void ddpi_flight_log_destroy(struct ddpi_flight_log *log)
{
    if (log != NULL)
        ddpi_free(log->ops);
    ddpi_free(log);
}

const struct ddpi_flight_group *ddpi_flight_group_of(const struct ddpi_flight_log *log,
                                                     const struct ddpi_flight_op *op)
{
    for (size_t i = 0; i < log->ngroups; i++)
        if ((log->groups[i].serial & 0xffff) == op->group)
            return &log->groups[i];
    return NULL;
}

/* ---- texts ---- */

static const char *known(const char *name)
{
    return name[0] != '\0' ? name : "unknown";
}

const char *ddpi_flight_operation(const struct ddpi_flight_log *log,
                                  const struct ddpi_flight_op *op)
{
    return op->operation < DDPI_FLIGHT_OPERATIONS ? known(log->names.operations[op->operation])
                                                  : "unknown";
}

const char *ddpi_flight_dtype(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op)
{
    return op->dtype < DDPI_FLIGHT_DTYPES ? known(log->names.dtypes[op->dtype]) : "unknown";
}

const char *ddpi_flight_reduction(const struct ddpi_flight_log *log,
                                  const struct ddpi_flight_op *op)
{
    return op->reduction < DDPI_FLIGHT_REDUCTIONS ? known(log->names.reductions[op->reduction])
                                                  : "unknown";
}

void ddpi_flight_name(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                      char text[DDPI_FLIGHT_TEXT])
{
    const char *name = ddpi_flight_operation(log, op);
    if (op->is_message)
        snprintf(text, DDPI_FLIGHT_TEXT, "%s #%" PRIu64 " %s rank %" PRIu32, name, op->seq,
                 op->is_send ? "to" : "from", op->peer);
    else
        snprintf(text, DDPI_FLIGHT_TEXT, "%s #%" PRIu64, name, op->seq);
}

/* The elements of @op, without parentheses. */
static void describe_elements(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                              char text[DDPI_FLIGHT_TEXT])
{
    const char *dtype = ddpi_flight_dtype(log, op);
    if (op->in_pairs) /* no count is that of all ranks */
        snprintf(text, DDPI_FLIGHT_TEXT, "%s in uneven parts", dtype);
    else if (op->is_uneven)
        snprintf(text, DDPI_FLIGHT_TEXT, "%" PRIu64 " %s, digest of counts %04x", op->count, dtype,
                 op->parts);
    else
        snprintf(text, DDPI_FLIGHT_TEXT, "%" PRIu64 " %s", op->count, dtype);
}

void ddpi_flight_describe(const struct ddpi_flight_log *log, const struct ddpi_flight_op *op,
                          char text[DDPI_FLIGHT_TEXT])
{
    char elements[DDPI_FLIGHT_TEXT];
    ddpi_flight_name(log, op, text);
    size_t at = strlen(text);
    describe_elements(log, op, elements);
    if (op->has_elements)
        at += (size_t)snprintf(text + at, DDPI_FLIGHT_TEXT - at, " (%s%s%s",
                               op->reduces ? ddpi_flight_reduction(log, op) : "",
                               op->reduces ? " of " : "", elements);
    if (op->has_root && at < DDPI_FLIGHT_TEXT)
        at += (size_t)snprintf(text + at, DDPI_FLIGHT_TEXT - at, "%sroot %" PRIu32,
                               op->has_elements ? ", " : " (", op->peer);
    if ((op->has_elements || op->has_root) && at < DDPI_FLIGHT_TEXT)
        snprintf(text + at, DDPI_FLIGHT_TEXT - at, ")");
}
