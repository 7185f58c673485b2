/*
 * reload.c - reads all keys of all rounds: after the store has started again, and when a change
 * could not be noted. Members go to their machines in the order of their arrival, as if they came
 * now; after a restart the machine is first given the stored state of the job. Owns nothing.
 */
#include "mem.h"
#include "round_keys_impl.h"
#include "round_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ids {
    const struct round_key *prefix;
    uint64_t *at;
    size_t count;
    size_t size;
    bool failed; /* no memory */
};

static bool visit_id(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct ids *ids = ctx;
    uint64_t id;
    (void)value;
    if (!ddpi_round_take_prefix(&key, ids->prefix->text) || !ddpi_round_parse_id(key, &id))
        return true;
    if (ids->count == ids->size) {
        size_t size = ids->size != 0 ? 2 * ids->size : 16;
        uint64_t *at = ddpi_realloc(ids->at, size, sizeof *at);
        ids->failed = at == NULL;
        if (ids->failed)
            return false;
        ids->at = at;
        ids->size = size;
    }
    ids->at[ids->count++] = id;
    return true;
}

static int compare_ids(const void *a, const void *b)
{
    uint64_t first = *(const uint64_t *)a, second = *(const uint64_t *)b;
    return (first > second) - (first < second);
}

/* The numbers of the keys of this @kind, sorted, which is the order of the members' arrival. */
static struct ids list_ids(struct ddpi_round_keys *keys, const struct round_job *job,
                           const char *kind)
{
    struct round_key prefix;
    struct ids ids = {.prefix = &prefix};
    ddpi_round_key(&prefix, job, kind, 0);
    ddpi_kv_each(keys->kv, prefix.all, visit_id, &ids);
    keys->look_all = keys->look_all || ids.failed;
    if (ids.count > 0)
        qsort(ids.at, ids.count, sizeof *ids.at, compare_ids);
    ids.prefix = NULL;
    return ids;
}

/* Gives the machine the state that an earlier server stored. */
static void restore_state(struct round_job *job)
{
    struct round_key key;
    struct ddp_error err;
    ddpi_round_key(&key, job, "state", 0);
    struct ddpi_bytes record = ddpi_kv_peek(job->keys->kv, key.all);
    if (record.data == NULL)
        return;
    if (ddpi_round_summary_get(record, &job->told, &err) == DDP_OK)
        ddpi_rounds_restore(job->rounds, &job->told);
    else
        ddpi_round_trouble(job, &err);
}

static void restore_seats(struct round_job *job, const struct ids *members)
{
    struct ddp_round_seat seat, running = {0};
    struct round_key key;
    for (size_t i = 0; i < members->count; i++) {
        ddpi_round_key(&key, job, "seat/", members->at[i]);
        struct ddpi_bytes record = ddpi_kv_peek(job->keys->kv, key.all);
        if (record.data == NULL || ddpi_round_seat_get(record, &seat, NULL) != DDP_OK)
            continue;
        ddpi_rounds_restore_seat(job->rounds, members->at[i], &seat);
        if (seat.order == DDP_ROUND_RUN && seat.generation > running.generation)
            running = seat;
    }
    if (running.order == DDP_ROUND_RUN)
        job->keys->hooks.resume(job->keys->hooks.ctx, job->name, &running);
}

static bool visit_blame(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct round_job *job = ctx;
    struct round_key prefix;
    struct ddpi_rounds_blame blame;
    struct ddp_error err;
    char name[DDP_ROUND_NAME_SIZE] = {0};
    ddpi_round_key(&prefix, job, "blame/", 0);
    if (!ddpi_round_take_prefix(&key, prefix.text) || key.len == 0 || key.len >= sizeof name)
        return true;
    memcpy(name, key.data, key.len);
    ddp_status status = ddpi_round_blame_get(value, &blame, &err);
    if (status != DDP_OK)
        ddpi_round_trouble(job, &err);
    else if (ddpi_rounds_restore_blame(job->rounds, name, &blame) != DDP_OK)
        job->keys->hooks.trouble(job->keys->hooks.ctx, job->name,
                                 "no memory is left to know which nodes are left out");
    return true;
}

static void restore_blame(struct round_job *job)
{
    struct round_key prefix;
    ddpi_round_key(&prefix, job, "blame/", 0);
    ddpi_kv_each(job->keys->kv, prefix.all, visit_blame, job);
}

static void take_members(struct round_job *job, const struct ids *members)
{
    char text[ROUND_ID_CHARS + 1];
    for (size_t i = 0; i < members->count; i++) {
        struct round_key key;
        ddpi_round_key(&key, job, "member/", members->at[i]);
        int len = snprintf(text, sizeof text, "%" PRIu64, members->at[i]);
        ddpi_round_take_member(job->keys, ddpi_bytes_of(job->name, job->node.key_len),
                               ddpi_bytes_of(text, (size_t)len),
                               ddpi_kv_peek(job->keys->kv, key.all));
    }
}

/* Takes the members that have a seat but are gone. */
static void take_absent(struct round_job *job)
{
    struct ids seats = list_ids(job->keys, job, "seat/");
    take_members(job, &seats);
    ddpi_free(seats.at);
}

static void look_at_job(struct ddpi_round_keys *keys, struct ddpi_bytes name)
{
    struct round_job *job = ddpi_round_find_job(keys, name);
    bool fresh = job == NULL;
    if (fresh)
        job = ddpi_round_job_create(keys, name);
    if (job == NULL) {
        keys->look_all = true;
        return;
    }
    struct ids members = list_ids(keys, job, "member/");
    if (fresh && keys->restored)
        restore_state(job);
    take_members(job, &members);
    if (fresh && keys->restored) {
        restore_seats(job, &members);
        restore_blame(job);
    }
    take_absent(job);
    ddpi_round_take_epoch(job);
    ddpi_round_take_wants(job);
    ddpi_free(members.at);
}

static bool visit_name(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct ddpi_round_keys *keys = ctx;
    struct ddpi_bytes name, kind;
    (void)value;
    if (!ddpi_round_take_prefix(&key, DDPI_ROUND_PREFIX) || !ddpi_round_take_part(&key, &name) ||
        !ddpi_job_valid(name.data, name.len))
        return true;
    bool counts = ddpi_round_take_part(&key, &kind)
                      ? ddpi_bytes_equal(kind, ddpi_bytes_of("member", 6))
                      : ddpi_bytes_equal(key, ddpi_bytes_of("state", 5));
    if (counts && ddpi_keys_put(&keys->noted, name))
        keys->nnoted++;
    else if (counts)
        keys->look_all = true;
    return true;
}

/* Keys below want/ alone, without a member, make no job. */
void ddpi_round_look_at_all(struct ddpi_round_keys *keys)
{
    struct ddpi_bytes name, last = ddpi_bytes_of("", 0);
    ddpi_buf_consume(&keys->noted, ddpi_buf_len(&keys->noted));
    keys->nnoted = 0;
    keys->look_all = false;
    ddpi_kv_each(keys->kv, ddpi_bytes_of(DDPI_ROUND_PREFIX, strlen(DDPI_ROUND_PREFIX)), visit_name,
                 keys);
    struct ddpi_keys names = {.packed = ddpi_buf_head(&keys->noted),
                              .packed_len = ddpi_buf_len(&keys->noted),
                              .count = keys->nnoted};
    for (; ddpi_keys_next(&names, &name); last = name)
        if (!ddpi_bytes_equal(name, last))
            look_at_job(keys, name);
    ddpi_buf_consume(&keys->noted, ddpi_buf_len(&keys->noted));
    keys->nnoted = 0;
    keys->restored = keys->restored && keys->look_all;
}
