/*
 * turn.c - what the keys of rounds do in a turn of the loop: note() collects the names of keys that
 * have changed; act() looks each of them up, feeds the machines, lets those that were fed or whose
 * time has come take a step, and writes what they say. What it writes itself is not noted.
 *
 * Possible failure modes are:
 *   - a record cannot be read: that member is told to end, with the reason;
 *   - there is no memory to note something: all keys are looked at instead (reload.c);
 *   - there is no memory to write a seat: that is reported as trouble, and the member goes without.
 */
#include "mem.h"
#include "round_keys_impl.h"
#include "round_record.h"

#include <stdio.h>
#include <string.h>

enum { NOTED_MAX = 64 * 1024 * 1024 };

/* A worker sets a key that ends like this, in any keyspace of its job, when its state is saved. */
static const char checkpoint_key[] = "/ddprun/checkpoint";
static const char job_prefix[] = "job/";
static const char epoch_prefix[] = "epoch/"; /* of the job whose name follows */

static bool is_checkpoint(struct ddpi_bytes key)
{
    size_t len = strlen(checkpoint_key);
    return ddpi_round_take_prefix(&key, job_prefix) && key.len > len &&
           memcmp((const char *)key.data + key.len - len, checkpoint_key, len) == 0;
}

void ddpi_round_keys_note(struct ddpi_round_keys *keys, const struct ddpi_mutation *mutation)
{
    struct ddpi_bytes key = mutation->key;
    bool set = mutation->kind == DDPI_MUTATION_SET;
    if (keys->acting || keys->look_all || (!set && mutation->kind != DDPI_MUTATION_DELETE))
        return;
    if (!ddpi_round_take_prefix(&key, DDPI_ROUND_PREFIX) &&
        !ddpi_round_take_prefix(&key, epoch_prefix) && !(set && is_checkpoint(key)))
        return;
    if (ddpi_keys_put(&keys->noted, mutation->key))
        keys->nnoted++;
    else
        keys->look_all = true;
}

/* ---- what was noted ---- */

static void take_key(struct ddpi_round_keys *keys, struct ddpi_bytes key)
{
    struct ddpi_bytes rest = key, name;
    if (ddpi_round_take_prefix(&rest, epoch_prefix)) {
        struct round_job *fenced = ddpi_round_find_job(keys, rest);
        if (fenced != NULL)
            ddpi_round_take_epoch(fenced);
        return;
    }
    bool checkpoint = ddpi_round_take_prefix(&rest, job_prefix);
    if ((!checkpoint && !ddpi_round_take_prefix(&rest, DDPI_ROUND_PREFIX)) ||
        !ddpi_round_take_part(&rest, &name) || !ddpi_job_valid(name.data, name.len))
        return;
    struct ddpi_bytes value = ddpi_kv_peek(keys->kv, key);
    if (!checkpoint && ddpi_round_take_prefix(&rest, "member/")) {
        ddpi_round_take_member(keys, name, rest, value);
        return;
    }
    struct round_job *job = ddpi_round_find_job(keys, name);
    if (job == NULL)
        return;
    if (checkpoint) {
        ddpi_rounds_checkpoint(job->rounds);
        job->fed = true;
    } else if (ddpi_round_take_prefix(&rest, "want/drain/")) {
        ddpi_round_take_drain(job, rest, value.data != NULL);
    } else if (ddpi_round_take_prefix(&rest, "want/admit/")) {
        if (value.data != NULL)
            ddpi_round_take_admit(job, rest);
    } else if (ddpi_round_take_prefix(&rest, "want/")) {
        ddpi_round_take_wish(job);
    }
}

static void take_noted(struct ddpi_round_keys *keys)
{
    struct ddpi_keys noted = {.packed = ddpi_buf_head(&keys->noted),
                              .packed_len = ddpi_buf_len(&keys->noted),
                              .count = keys->nnoted};
    for (struct ddpi_bytes key; ddpi_keys_next(&noted, &key);)
        take_key(keys, key);
    ddpi_buf_consume(&keys->noted, ddpi_buf_len(&keys->noted));
    keys->nnoted = 0;
}

/* ---- steps ---- */

static void job_over(struct round_job *job, bool closed)
{
    struct round_key prefix;
    ddpi_round_key(&prefix, job, "", 0);
    ddpi_kv_detach(job->keys->kv, prefix.all);
    job->keys->hooks.over(job->keys->hooks.ctx, job->name, closed);
    ddpi_round_job_destroy(job);
}

/* The wishes for the job that is over are not for the next one. */
static void drop_wants(struct round_job *job)
{
    struct round_key prefix;
    ddpi_round_key(&prefix, job, "want/", 0);
    ddpi_kv_detach(job->keys->kv, prefix.all);
}

static void tell_change(struct round_job *job, const struct ddpi_rounds_summary *summary)
{
    struct ddpi_round_keys *keys = job->keys;
    struct ddpi_rounds_summary before = job->told;
    struct ddp_error err;
    struct round_key key;
    ddpi_round_key(&key, job, "state", 0);
    ddp_status status = ddpi_round_summary_put(&keys->record, summary, &err);
    struct ddpi_bytes record =
        ddpi_bytes_of(ddpi_buf_head(&keys->record), ddpi_buf_len(&keys->record));
    if (status == DDP_OK && ddpi_bytes_equal(record, ddpi_kv_peek(keys->kv, key.all))) {
        ddpi_buf_consume(&keys->record, record.len); /* an earlier server has written it */
        return;
    }
    if (ddpi_round_poke_record(keys, key.all, status, &err) != DDP_OK)
        ddpi_round_trouble(job, &err);
    job->told = *summary;
    keys->hooks.changed(keys->hooks.ctx, job->name, &before, summary);
}

static void job_step(struct round_job *job, uint64_t now_ms)
{
    struct ddpi_rounds_summary summary;
    job->fed = job->changed = false;
    ddpi_rounds_step(job->rounds, now_ms);
    job->deadline_ms = ddpi_rounds_deadline(job->rounds);
    ddpi_rounds_summary(job->rounds, &summary);
    if (job->told.state == ROUNDS_CLOSED && summary.state != ROUNDS_CLOSED)
        drop_wants(job);
    if (job->changed)
        tell_change(job, &summary);
    if (summary.members == 0)
        job_over(job, summary.state == ROUNDS_CLOSED);
}

/* ---- jobs that wait beside each other ---- */

static void tell_of_job(struct round_job *job, const struct round_job *other, uint64_t now_ms)
{
    char text[DDP_ROUND_TEXT_SIZE];
    snprintf(text, sizeof text, "node %s waits at this store for job '%s', and not for this one",
             ddpi_rounds_waiting_node(other->rounds), other->name);
    ddpi_rounds_hear(job->rounds, text);
    job_step(job, now_ms);
}

/* Nodes that wait in vain may have got different names of one job. Each job is compared once, with
 * the one that came last before it: nodes of one job come at about the same time. */
static void introduce(struct ddpi_round_keys *keys, uint64_t now_ms)
{
    struct round_job *before = NULL;
    ddpi_list_for_each (node, &keys->all) {
        struct round_job *job = ddpi_round_job_of(node);
        if (ddpi_rounds_waiting_node(job->rounds) == NULL)
            continue;
        if (!job->introduced && before != NULL) {
            tell_of_job(job, before, now_ms);
            tell_of_job(before, job, now_ms);
        }
        job->introduced = true;
        before = job;
    }
}

void ddpi_round_keys_act(struct ddpi_round_keys *keys, uint64_t now_ms)
{
    if (!keys->look_all && keys->nnoted == 0 && now_ms < keys->deadline_ms)
        return;
    keys->acting = true;
    if (keys->look_all)
        ddpi_round_look_at_all(keys);
    else
        take_noted(keys);
    ddpi_list_for_each_safe (node, &keys->all)
        if (ddpi_round_job_of(node)->fed || ddpi_round_job_of(node)->deadline_ms <= now_ms)
            job_step(ddpi_round_job_of(node), now_ms);
    introduce(keys, now_ms);
    keys->deadline_ms = UINT64_MAX;
    ddpi_list_for_each (node, &keys->all)
        if (ddpi_round_job_of(node)->deadline_ms < keys->deadline_ms)
            keys->deadline_ms = ddpi_round_job_of(node)->deadline_ms;
    keys->acting = false;
}

uint64_t ddpi_round_keys_deadline(const struct ddpi_round_keys *keys)
{
    return keys->deadline_ms;
}

void ddpi_round_keys_restore(struct ddpi_round_keys *keys)
{
    keys->look_all = keys->restored = true;
}

/* ---- life ---- */

bool ddpi_round_keys_has(const struct ddpi_round_keys *keys, struct ddpi_bytes job)
{
    return ddpi_round_find_job(keys, job) != NULL;
}

const char *ddpi_round_keys_other(const struct ddpi_round_keys *keys, const char *job)
{
    ddpi_list_for_each (node, &keys->all)
        if (strcmp(ddpi_round_job_of(node)->name, job) != 0)
            return ddpi_round_job_of(node)->name;
    return NULL;
}

void ddpi_round_keys_count(const struct ddpi_round_keys *keys, uint64_t *ret_jobs,
                           uint64_t *ret_members)
{
    *ret_jobs = keys->jobs.count;
    *ret_members = 0;
    ddpi_list_for_each (node, &keys->all)
        *ret_members += ddpi_round_job_of(node)->told.members;
}

struct ddpi_round_keys *ddpi_round_keys_create(struct ddpi_kv *kv,
                                               const uint8_t seed[DDPI_SEED_SIZE],
                                               const struct ddpi_round_keys_hooks *hooks)
{
    struct ddpi_round_keys *keys = ddpi_calloc(1, sizeof(*keys));
    if (keys == NULL)
        return NULL;
    keys->kv = kv;
    keys->hooks = *hooks;
    keys->deadline_ms = UINT64_MAX;
    ddpi_table_init(&keys->jobs, seed);
    ddpi_list_init(&keys->all);
    ddpi_buf_init(&keys->noted, NOTED_MAX);
    ddpi_buf_init(&keys->record, DDPI_ROUND_RECORD_MAX);
    return keys;
}

void ddpi_round_keys_destroy(struct ddpi_round_keys *keys)
{
    if (keys == NULL)
        return;
    while (!ddpi_list_empty(&keys->all))
        ddpi_round_job_destroy(ddpi_round_job_of(keys->all.next));
    ddpi_table_finish(&keys->jobs);
    ddpi_buf_finish(&keys->noted);
    ddpi_buf_finish(&keys->record);
    ddpi_free(keys);
}
