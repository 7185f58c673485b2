/*
 * round_jobs.c - the jobs, each with its machine, and the names of their keys. Owns the jobs.
 */
#include "mem.h"
#include "parse.h"
#include "round_keys_impl.h"
#include "round_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- names of keys ---- */

void ddpi_round_key(struct round_key *key, const struct round_job *job, const char *kind,
                    uint64_t id)
{
    int len = snprintf(key->text, sizeof key->text, DDPI_ROUND_PREFIX "%s/%s", job->name, kind);
    if (id != 0)
        len += snprintf(key->text + len, sizeof key->text - (size_t)len, "%" PRIu64, id);
    key->all = ddpi_bytes_of(key->text, (size_t)len);
}

bool ddpi_round_take_prefix(struct ddpi_bytes *text, const char *prefix)
{
    size_t len = strlen(prefix);
    if (text->len < len || memcmp(text->data, prefix, len) != 0)
        return false;
    *text = ddpi_bytes_of((const char *)text->data + len, text->len - len);
    return true;
}

bool ddpi_round_take_part(struct ddpi_bytes *path, struct ddpi_bytes *ret)
{
    const char *slash = path->len > 0 ? memchr(path->data, '/', path->len) : NULL;
    if (slash == NULL)
        return false;
    size_t len = (size_t)(slash - (const char *)path->data);
    *ret = ddpi_bytes_of(path->data, len);
    *path = ddpi_bytes_of(slash + 1, path->len - len - 1);
    return true;
}

bool ddpi_round_parse_id(struct ddpi_bytes text, uint64_t *ret)
{
    char digits[ROUND_ID_CHARS + 1];
    int64_t id;
    if (text.len == 0 || text.len >= sizeof digits || *(const char *)text.data == '0' ||
        memchr(text.data, '\0', text.len) != NULL)
        return false;
    memcpy(digits, text.data, text.len);
    digits[text.len] = '\0';
    if (ddpi_parse_int(digits, 1, INT64_MAX, &id, NULL) != DDP_OK)
        return false;
    *ret = (uint64_t)id;
    return true;
}

/* ---- the hooks of the machines ---- */

void ddpi_round_trouble(const struct round_job *job, const struct ddp_error *err)
{
    job->keys->hooks.trouble(job->keys->hooks.ctx, job->name, err->msg);
}

static ddp_status job_on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                               struct ddp_error *err)
{
    struct round_job *job = ctx;
    return job->keys->hooks.begin(job->keys->hooks.ctx, job->name, generation, job->store_is_master,
                                  seat, err);
}

ddp_status ddpi_round_poke_record(struct ddpi_round_keys *keys, struct ddpi_bytes key,
                                  ddp_status status, struct ddp_error *err)
{
    if (status == DDP_OK)
        status = ddpi_kv_poke(
            keys->kv, key, ddpi_bytes_of(ddpi_buf_head(&keys->record), ddpi_buf_len(&keys->record)),
            err);
    ddpi_buf_consume(&keys->record, ddpi_buf_len(&keys->record));
    return status;
}

static void job_on_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    struct round_job *job = ctx;
    struct round_key key;
    struct ddp_error err;
    ddpi_round_key(&key, job, "seat/", member);
    ddp_status status = ddpi_round_seat_put(&job->keys->record, seat, &err);
    if (ddpi_round_poke_record(job->keys, key.all, status, &err) != DDP_OK)
        ddpi_round_trouble(job, &err);
}

static void job_on_changed(void *ctx)
{
    struct round_job *job = ctx;
    job->changed = true;
}

static void job_on_blame(void *ctx, const char *name, const struct ddpi_rounds_blame *blame)
{
    struct round_job *job = ctx;
    char kind[sizeof "blame/" + DDP_ROUND_NAME_SIZE];
    struct round_key key;
    struct ddp_error err;
    snprintf(kind, sizeof kind, "blame/%s", name);
    ddpi_round_key(&key, job, kind, 0);
    if (blame == NULL) {
        ddpi_kv_remove(job->keys->kv, key.all);
        return;
    }
    ddp_status status = ddpi_round_blame_put(&job->keys->record, blame, &err);
    if (ddpi_round_poke_record(job->keys, key.all, status, &err) != DDP_OK)
        ddpi_round_trouble(job, &err);
}

/* ---- jobs ---- */

struct round_job *ddpi_round_find_job(const struct ddpi_round_keys *keys, struct ddpi_bytes name)
{
    struct ddpi_table_node *node = ddpi_table_find(&keys->jobs, name.data, name.len);
    return node != NULL ? ddpi_container_of(node, struct round_job, node) : NULL;
}

void ddpi_round_job_destroy(struct round_job *job)
{
    ddpi_list_remove(&job->of_keys);
    ddpi_table_remove(&job->keys->jobs, &job->node);
    ddpi_rounds_destroy(job->rounds);
    ddpi_free(job);
}

struct round_job *ddpi_round_job_create(struct ddpi_round_keys *keys, struct ddpi_bytes name)
{
    struct round_job *job = ddpi_calloc(1, sizeof(*job));
    if (job == NULL)
        return NULL;
    memcpy(job->name, name.data, name.len);
    job->keys = keys;
    job->node.key = job->name;
    job->node.key_len = name.len;
    const struct ddpi_rounds_hooks hooks = {.ctx = job,
                                            .begin = job_on_begin,
                                            .seat = job_on_seat,
                                            .changed = job_on_changed,
                                            .blame = job_on_blame};
    job->rounds = ddpi_rounds_create(&hooks, keys->hooks.epoch(keys->hooks.ctx, job->name));
    if (job->rounds == NULL || !ddpi_table_insert(&keys->jobs, &job->node)) {
        ddpi_rounds_destroy(job->rounds);
        ddpi_free(job);
        return NULL;
    }
    ddpi_list_append(&keys->all, &job->of_keys);
    ddpi_rounds_summary(job->rounds, &job->told);
    job->fed = true;
    return job;
}
