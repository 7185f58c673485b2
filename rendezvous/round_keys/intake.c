/*
 * intake.c - keys that members and users write, passed to the machine of their job. Owns nothing.
 */
#include "exit_codes.h"
#include "mem.h"
#include "parse.h"
#include "round_keys_impl.h"
#include "round_record.h"

#include <stdio.h>
#include <string.h>

void ddpi_round_take_epoch(struct round_job *job)
{
    ddpi_rounds_epoch(job->rounds, job->keys->hooks.epoch(job->keys->hooks.ctx, job->name));
}

/* ---- what users want ---- */

/* "MIN:MAX". */
static bool parse_nodes(struct ddpi_bytes value, struct ddpi_rounds_wish *ret)
{
    char text[32];
    int64_t min, max;
    if (value.len >= sizeof text || memchr(value.data, '\0', value.len) != NULL)
        return false;
    memcpy(text, value.data, value.len);
    text[value.len] = '\0';
    char *colon = strchr(text, ':');
    if (colon == NULL)
        return false;
    *colon = '\0';
    if (ddpi_parse_int(text, 1, UINT32_MAX, &min, NULL) != DDP_OK ||
        ddpi_parse_int(colon + 1, min, UINT32_MAX, &max, NULL) != DDP_OK)
        return false;
    ret->min_nodes = (uint32_t)min;
    ret->max_nodes = (uint32_t)max;
    return true;
}

void ddpi_round_take_wish(struct round_job *job)
{
    struct ddpi_rounds_wish wish = {0};
    struct round_key key;
    ddpi_round_key(&key, job, "want/stop", 0);
    wish.stop = ddpi_kv_peek(job->keys->kv, key.all).data != NULL;
    ddpi_round_key(&key, job, "want/size", 0);
    struct ddpi_bytes size = ddpi_kv_peek(job->keys->kv, key.all);
    if (size.data != NULL && !parse_nodes(size, &wish))
        job->keys->hooks.trouble(job->keys->hooks.ctx, job->name,
                                 "its want/size is not MIN:MAX, and is ignored");
    ddpi_rounds_wish(job->rounds, &wish);
    job->fed = true;
}

void ddpi_round_take_drain(struct round_job *job, struct ddpi_bytes name, bool drain)
{
    char text[DDP_ROUND_NAME_SIZE] = {0};
    if (name.len == 0 || name.len >= sizeof text)
        return; /* no member has such a name */
    memcpy(text, name.data, name.len);
    if (ddpi_rounds_drain(job->rounds, text, drain) != DDP_OK)
        job->keys->look_all = true;
    job->fed = true;
}

static bool visit_want(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct round_job *job = ctx;
    (void)value;
    struct ddpi_bytes part;
    if (ddpi_round_take_prefix(&key, DDPI_ROUND_PREFIX) && ddpi_round_take_part(&key, &part) &&
        ddpi_round_take_prefix(&key, "want/drain/"))
        ddpi_round_take_drain(job, key, true);
    return true;
}

void ddpi_round_take_admit(struct round_job *job, struct ddpi_bytes name)
{
    char text[DDP_ROUND_NAME_SIZE] = {0};
    struct round_key key;
    if (name.len == 0 || name.len >= sizeof text)
        return;
    memcpy(text, name.data, name.len);
    ddpi_rounds_admit(job->rounds, text);
    job->fed = true;
    ddpi_round_key(&key, job, "want/admit/", 0);
    memcpy(key.text + key.all.len, text, name.len);
    ddpi_kv_remove(job->keys->kv, ddpi_bytes_of(key.text, key.all.len + name.len));
}

/* One that is older than the job has no effect; one that could not be noted has. */
static bool visit_admit(void *ctx, struct ddpi_bytes key, struct ddpi_bytes value)
{
    struct round_job *job = ctx;
    struct round_key prefix;
    char name[DDP_ROUND_NAME_SIZE] = {0};
    (void)value;
    ddpi_round_key(&prefix, job, "want/admit/", 0);
    if (!ddpi_round_take_prefix(&key, prefix.text) || key.len >= sizeof name)
        return true;
    memcpy(name, key.data, key.len);
    ddpi_rounds_admit(job->rounds, name);
    return true;
}

void ddpi_round_take_wants(struct round_job *job)
{
    struct round_key prefix;
    ddpi_round_take_wish(job);
    ddpi_round_key(&prefix, job, "want/admit/", 0);
    ddpi_kv_each(job->keys->kv, prefix.all, visit_admit, job);
    ddpi_kv_detach(job->keys->kv, prefix.all);
    ddpi_round_key(&prefix, job, "want/drain/", 0);
    ddpi_kv_each(job->keys->kv, prefix.all, visit_want, job);
}

/* ---- members ---- */

/* NULL: no memory. The caller frees it. */
static char *seat_key(struct ddpi_bytes job, struct ddpi_bytes id)
{
    return ddpi_asprintf(DDPI_ROUND_PREFIX "%.*s/seat/%.*s", (int)job.len, (const char *)job.data,
                         (int)id.len, (const char *)id.data);
}

/* Tells the member @id, through its seat, that it cannot have one. */
static void refuse_member(struct ddpi_round_keys *keys, struct ddpi_bytes job, struct ddpi_bytes id,
                          int32_t exit_code, const char *why)
{
    struct ddp_round_seat seat = {.order = DDP_ROUND_END, .exit_code = exit_code};
    struct ddp_error err;
    char *key = seat_key(job, id);
    if (key == NULL)
        return;
    snprintf(seat.text, sizeof seat.text, "%s", why);
    ddp_status status = ddpi_round_seat_put(&keys->record, &seat, &err);
    (void)ddpi_round_poke_record(keys, ddpi_bytes_of(key, strlen(key)), status, &err);
    ddpi_free(key);
}

static void refuse_unreadable(struct ddpi_round_keys *keys, struct ddpi_bytes job,
                              struct ddpi_bytes id, const char *why)
{
    char text[DDP_ROUND_TEXT_SIZE];
    snprintf(text, sizeof text, "the server cannot read what this member says: %.200s", why);
    refuse_member(keys, job, id, EXIT_CONFIG, text);
}

static bool is_unnamed(struct ddpi_bytes job)
{
    return ddpi_bytes_equal(job, ddpi_bytes_of(DDPI_JOB_UNNAMED, strlen(DDPI_JOB_UNNAMED)));
}

/* The member is gone. */
static void forget_member(struct ddpi_round_keys *keys, struct ddpi_bytes name,
                          struct ddpi_bytes id_text)
{
    struct round_job *job = ddpi_round_find_job(keys, name);
    uint64_t id;
    char *key = seat_key(name, id_text);
    if (key != NULL)
        ddpi_kv_remove(keys->kv, ddpi_bytes_of(key, strlen(key)));
    ddpi_free(key);
    if (job == NULL || !ddpi_round_parse_id(id_text, &id))
        return;
    ddpi_rounds_gone(job->rounds, id);
    job->fed = true;
}

/* A want/stop that is older than the job was not meant for it. */
static void drop_stale_stop(struct round_job *job)
{
    struct round_key key;
    ddpi_round_key(&key, job, "want/stop", 0);
    ddpi_kv_remove(job->keys->kv, key.all);
}

static struct round_job *need_job(struct ddpi_round_keys *keys, struct ddpi_bytes name)
{
    struct round_job *job = ddpi_round_find_job(keys, name);
    if (job != NULL)
        return job;
    job = ddpi_round_job_create(keys, name);
    if (job == NULL)
        return NULL;
    drop_stale_stop(job);
    ddpi_round_take_wants(job);
    return job;
}

/* Feeds the machine with what @member says. */
static void feed_member(struct ddpi_round_keys *keys, struct round_job *job, uint64_t id,
                        const struct ddp_round_member *member)
{
    if (job == NULL || ddpi_rounds_member(job->rounds, id, member) != DDP_OK) {
        keys->look_all = true;
        return;
    }
    job->store_is_master = job->store_is_master || member->master_port == 0;
    job->fed = true;
}

void ddpi_round_take_member(struct ddpi_round_keys *keys, struct ddpi_bytes name,
                            struct ddpi_bytes id_text, struct ddpi_bytes value)
{
    uint64_t id = 0;
    struct ddp_round_member member;
    struct ddp_error err;
    if (value.data == NULL)
        forget_member(keys, name, id_text);
    else if (keys->hooks.named_only && is_unnamed(name))
        refuse_member(keys, name, id_text, EXIT_USAGE,
                      "a ddprund serves any number of jobs, and this one has no name: give it one "
                      "by --rdzv-id=NAME, the same on all of its nodes");
    else if (!ddpi_round_parse_id(id_text, &id))
        refuse_unreadable(keys, name, id_text, "its key does not end with a number");
    else if (ddpi_round_member_get(value, &member, &err) != DDP_OK)
        refuse_unreadable(keys, name, id_text, err.msg);
    else
        feed_member(keys, need_job(keys, name), id, &member);
}
