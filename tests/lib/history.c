/*
 * history.c - the judge. It places the calls in the order of their beginnings, each as early as its
 * answer allows but not before any call that had ended when it began. What is placed as early as
 * it can be never keeps another from its place, so whatever does not fit has no place at all.
 */
#include "history.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct trial {
    const struct history_call *calls; /* by beginning */
    size_t ncalls;
    const struct history_line *lines;
    size_t nlines;
    uint64_t *places;     /* of each call: the version of the last line before it, or of its own */
    const size_t *by_end; /* indices of calls */
    bool *taken;          /* deletions that a call has claimed */
    char *why;
};

static bool wrong(const struct trial *trial, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool wrong(const struct trial *trial, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(trial->why, HISTORY_WHY, format, args);
    va_end(args);
    return false;
}

static const struct history_line *line_at(const struct trial *trial, uint64_t version)
{
    return version >= 1 && version <= trial->nlines ? &trial->lines[version - 1] : NULL;
}

/* What @key is at @place: the version of its value, 0 if it has none. */
static uint64_t version_at(const struct trial *trial, unsigned key, uint64_t place)
{
    for (uint64_t version = place; version > 0; version--)
        if (trial->lines[version - 1].key == key)
            return trial->lines[version - 1].deleted ? 0 : version;
    return 0;
}

static bool check_log(const struct trial *trial)
{
    for (size_t i = 0; i < trial->nlines; i++)
        if (trial->lines[i].version != i + 1)
            return wrong(trial, "line %zu of the log has version %" PRIu64, i + 1,
                         trial->lines[i].version);
    return true;
}

/* The line that a call without an answer may have written, or an add; NULL: there is none. */
static const struct history_line *find_value(const struct trial *trial,
                                             const struct history_call *call)
{
    for (size_t i = 0; i < trial->nlines; i++)
        if (trial->lines[i].key == call->key && !trial->lines[i].deleted &&
            trial->lines[i].value == call->value)
            return &trial->lines[i];
    return NULL;
}

static bool place_write(const struct trial *trial, const struct history_call *call,
                        const struct history_line *line, uint64_t bound, uint64_t *ret_place)
{
    if (line == NULL || line->key != call->key || line->deleted || line->value != call->value)
        return wrong(trial, "the write of %" PRIu64 " to key %u is not in the log at %" PRIu64,
                     call->value, call->key, call->version);
    if (line->version <= bound)
        return wrong(trial,
                     "the write of %" PRIu64 " to key %u has version %" PRIu64 ", but %" PRIu64
                     " had been seen when it was asked for",
                     call->value, call->key, line->version, bound);
    if (call->expected != UINT64_MAX &&
        version_at(trial, call->key, line->version - 1) != call->expected)
        return wrong(trial, "the swap of key %u replaced %" PRIu64 ", not %" PRIu64, call->key,
                     version_at(trial, call->key, line->version - 1), call->expected);
    *ret_place = line->version;
    return true;
}

static bool place_delete(const struct trial *trial, const struct history_call *call, uint64_t bound,
                         uint64_t *ret_place)
{
    for (uint64_t version = bound + 1; version <= trial->nlines; version++) {
        const struct history_line *line = &trial->lines[version - 1];
        if (line->key != call->key || !line->deleted || trial->taken[version - 1])
            continue;
        trial->taken[version - 1] = true;
        *ret_place = version;
        return true;
    }
    return wrong(trial, "the deletion of key %u behind %" PRIu64 " is not in the log", call->key,
                 bound);
}

static bool place_read(const struct trial *trial, const struct history_call *call, uint64_t bound,
                       uint64_t *ret_place)
{
    for (uint64_t place = bound; place <= trial->nlines; place++)
        if (version_at(trial, call->key, place) == call->version) {
            *ret_place = place;
            return true;
        }
    return wrong(trial,
                 "a read of key %u saw version %" PRIu64 ", which it never had from %" PRIu64 " on",
                 call->key, call->version, bound);
}

static bool place_unknown(const struct trial *trial, const struct history_call *call,
                          uint64_t bound)
{
    uint64_t place;
    if (call->kind != HISTORY_SET)
        return true; /* nothing tells its line from another's */
    const struct history_line *line = find_value(trial, call);
    if (line == NULL)
        return true;
    if (call->outcome == HISTORY_NOTHING)
        return wrong(trial, "the write of %" PRIu64 " to key %u, which was not done, is there",
                     call->value, call->key);
    return place_write(trial, call, line, bound, &place);
}

static bool place(const struct trial *trial, const struct history_call *call, uint64_t bound,
                  uint64_t *ret_place)
{
    if (call->outcome != HISTORY_DONE)
        return place_unknown(trial, call, bound);
    switch (call->kind) {
    case HISTORY_SET:
        return place_write(trial, call, line_at(trial, call->version), bound, ret_place);
    case HISTORY_ADD:
        return place_write(trial, call, find_value(trial, call), bound, ret_place);
    case HISTORY_DELETE:
        return place_delete(trial, call, bound, ret_place);
    case HISTORY_READ:
        break;
    }
    return place_read(trial, call, bound, ret_place);
}

static bool place_all(const struct trial *trial)
{
    uint64_t bound = 0;
    size_t ended = 0;
    for (size_t i = 0; i < trial->ncalls; i++) {
        const struct history_call *call = &trial->calls[i];
        for (; ended < trial->ncalls; ended++) {
            size_t other = trial->by_end[ended];
            if (trial->calls[other].end_ns >= call->begin_ns)
                break;
            if (trial->places[other] > bound)
                bound = trial->places[other];
        }
        if (!place(trial, call, bound, &trial->places[i]))
            return false;
    }
    return true;
}

static int by_begin(const void *left, const void *right)
{
    const struct history_call *a = left, *b = right;
    return (a->begin_ns > b->begin_ns) - (a->begin_ns < b->begin_ns);
}

static int by_end(const void *left, const void *right, void *calls)
{
    const struct history_call *a = (const struct history_call *)calls + *(const size_t *)left;
    const struct history_call *b = (const struct history_call *)calls + *(const size_t *)right;
    return (a->end_ns > b->end_ns) - (a->end_ns < b->end_ns);
}

bool history_check(struct history_call *calls, size_t ncalls, const struct history_line *lines,
                   size_t nlines, char why[HISTORY_WHY])
{
    uint64_t *places = calloc(ncalls + 1, sizeof *places);
    size_t *order = calloc(ncalls + 1, sizeof *order);
    bool *taken = calloc(nlines + 1, sizeof *taken);
    struct trial trial = {.calls = calls,
                          .ncalls = ncalls,
                          .lines = lines,
                          .nlines = nlines,
                          .places = places,
                          .by_end = order,
                          .taken = taken,
                          .why = why};
    bool good = places != NULL && order != NULL && taken != NULL;
    if (good) {
        if (ncalls > 0) /* of which the caller may have no array */
            qsort(calls, ncalls, sizeof *calls, by_begin);
        for (size_t i = 0; i < ncalls; i++)
            order[i] = i;
        qsort_r(order, ncalls, sizeof *order, by_end, calls);
        good = check_log(&trial) && place_all(&trial);
    } else {
        snprintf(why, HISTORY_WHY, "no memory");
    }
    free(places);
    free(order);
    free(taken);
    return good;
}
