/*
 * round_keys.c - rounds as keys. Owns the jobs and their machines.
 *
 * The happy path: note() collects the names of keys that have changed; act() looks each of them up,
 * feeds the machines, lets those that were fed or whose time has come take a step, and writes what
 * they say. What it writes itself is not noted.
 *
 * Possible failure modes are:
 *   - a record cannot be read: that member is told to end, with the reason;
 *   - there is no memory to note something: all keys are looked at instead;
 *   - there is none to write a seat: that is told as trouble, and the member goes without.
 */
#include "error.h"
#include "mem.h"
#include "parse.h"
#include "round_keys_impl.h"
#include "round_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    NOTED_MAX = 64 * 1024 * 1024,
    EXIT_CONFIG = 78, /* of a member that cannot be understood */
};

/* A key that a worker sets when it has saved its state, whatever keyspace of the job it is in. */
static const char checkpoint_key[] = "/ddprun/checkpoint";
static const char job_prefix[] = "job/";
static const char epoch_prefix[] = "epoch/"; /* of the job whose name follows */

void ddpi_round_key(struct round_key *key, const struct round_job *job, const char *kind,
                    uint64_t id)
{
    int len = snprintf(key->text, sizeof key->text, DDPI_ROUND_PREFIX "%s/%s", job->name, kind);
    if (id != 0)
        len += snprintf(key->text + len, sizeof key->text - (size_t)len, "%" PRIu64, id);
    key->all = ddpi_bytes_of(key->text, (size_t)len);
}

static struct round_job *job_of(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct round_job, of_keys);
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

/* --- the machine's hooks --- */

void ddpi_round_trouble(const struct round_job *job, const struct ddp_error *err)
{
    job->keys->hooks.trouble(job->keys->hooks.ctx, job->name, err->msg);
}

static ddp_status on_begin(void *ctx, uint64_t generation, struct ddp_round_seat *seat,
                           struct ddp_error *err)
{
    struct round_job *job = ctx;
    return job->keys->hooks.begin(job->keys->hooks.ctx, job->name, generation, job->store_is_master,
                                  seat, err);
}

static ddp_status poke_record(struct ddpi_round_keys *keys, struct ddpi_bytes key,
                              ddp_status status, struct ddp_error *err)
{
    if (status == DDP_OK)
        status = ddpi_kv_poke(
            keys->kv, key, ddpi_bytes_of(ddpi_buf_head(&keys->record), ddpi_buf_len(&keys->record)),
            err);
    ddpi_buf_consume(&keys->record, ddpi_buf_len(&keys->record));
    return status;
}

static void on_seat(void *ctx, uint64_t member, const struct ddp_round_seat *seat)
{
    struct round_job *job = ctx;
    struct round_key key;
    struct ddp_error err;
    ddpi_round_key(&key, job, "seat/", member);
    ddp_status status = ddpi_round_seat_put(&job->keys->record, seat, &err);
    if (poke_record(job->keys, key.all, status, &err) != DDP_OK)
        ddpi_round_trouble(job, &err);
}

static void on_changed(void *ctx)
{
    struct round_job *job = ctx;
    job->changed = true;
}

/* --- jobs --- */

struct round_job *ddpi_round_find_job(const struct ddpi_round_keys *keys, struct ddpi_bytes name)
{
    struct ddpi_table_node *node = ddpi_table_find(&keys->jobs, name.data, name.len);
    return node != NULL ? ddpi_container_of(node, struct round_job, node) : NULL;
}

static void job_destroy(struct round_job *job)
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
    const struct ddpi_rounds_hooks hooks = {
        .ctx = job, .begin = on_begin, .seat = on_seat, .changed = on_changed};
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

/* --- what people want --- */

/* "MIN:MAX". */
static bool parse_size(struct ddpi_bytes value, struct ddpi_rounds_wish *ret)
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

static void take_wish(struct round_job *job)
{
    struct ddpi_rounds_wish wish = {0};
    struct round_key key;
    ddpi_round_key(&key, job, "want/stop", 0);
    wish.stop = ddpi_kv_peek(job->keys->kv, key.all).data != NULL;
    ddpi_round_key(&key, job, "want/size", 0);
    struct ddpi_bytes size = ddpi_kv_peek(job->keys->kv, key.all);
    if (size.data != NULL && !parse_size(size, &wish))
        job->keys->hooks.trouble(job->keys->hooks.ctx, job->name,
                                 "its want/size is not MIN:MAX, and is ignored");
    ddpi_rounds_wish(job->rounds, &wish);
    job->fed = true;
}

static void take_drain(struct round_job *job, struct ddpi_bytes name, bool drain)
{
    char text[DDP_ROUND_NAME_SIZE] = {0};
    if (name.len == 0 || name.len >= sizeof text)
        return; /* nobody has such a name */
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
        take_drain(job, key, true);
    return true;
}

void ddpi_round_take_wants(struct round_job *job)
{
    struct round_key prefix;
    take_wish(job);
    ddpi_round_key(&prefix, job, "want/drain/", 0);
    ddpi_kv_each(job->keys->kv, prefix.all, visit_want, job);
}

/* --- members --- */

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

/* NULL: no memory. The caller frees it. */
static char *seat_key(struct ddpi_bytes job, struct ddpi_bytes id)
{
    return ddpi_asprintf(DDPI_ROUND_PREFIX "%.*s/seat/%.*s", (int)job.len, (const char *)job.data,
                         (int)id.len, (const char *)id.data);
}

/* Tell whoever watches the seat of @id that it cannot have one. */
static void refuse(struct ddpi_round_keys *keys, struct ddpi_bytes job, struct ddpi_bytes id,
                   const struct ddp_error *why)
{
    struct ddp_round_seat seat = {.order = DDP_ROUND_END, .exit_code = EXIT_CONFIG};
    struct ddp_error err;
    char *key = seat_key(job, id);
    if (key == NULL)
        return;
    snprintf(seat.text, sizeof seat.text, "the server cannot read what this member says: %.200s",
             why->msg);
    ddp_status status = ddpi_round_seat_put(&keys->record, &seat, &err);
    (void)poke_record(keys, ddpi_bytes_of(key, strlen(key)), status, &err);
    ddpi_free(key);
}

/* The member @id is gone, whatever it was. */
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

/* Nobody can have meant a job that has not begun. */
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

/* Feed the machine with what @member says. */
static void feed(struct ddpi_round_keys *keys, struct round_job *job, uint64_t id,
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
    else if (!ddpi_round_parse_id(id_text, &id)) {
        ddpi_error_set(&err, DDP_E_PROTOCOL, "its key does not end with a number");
        refuse(keys, name, id_text, &err);
    } else if (ddpi_round_member_get(value, &member, &err) != DDP_OK)
        refuse(keys, name, id_text, &err);
    else
        feed(keys, need_job(keys, name), id, &member);
}

/* --- what was noted --- */

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

void ddpi_round_take_epoch(struct round_job *job)
{
    ddpi_rounds_epoch(job->rounds, job->keys->hooks.epoch(job->keys->hooks.ctx, job->name));
}

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
        take_drain(job, rest, value.data != NULL);
    } else if (ddpi_round_take_prefix(&rest, "want/")) {
        take_wish(job);
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

/* --- steps --- */

static void job_over(struct round_job *job)
{
    struct round_key prefix;
    ddpi_round_key(&prefix, job, "", 0);
    ddpi_kv_detach(job->keys->kv, prefix.all);
    job->keys->hooks.over(job->keys->hooks.ctx, job->name);
    job_destroy(job);
}

/* What was wanted of the job that is over is not wanted of the one that comes after it. */
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
        ddpi_buf_consume(&keys->record, record.len); /* an earlier server has told it */
        return;
    }
    if (poke_record(keys, key.all, status, &err) != DDP_OK)
        ddpi_round_trouble(job, &err);
    job->told = *summary;
    keys->hooks.changed(keys->hooks.ctx, job->name, &before, summary);
}

static void step(struct round_job *job, uint64_t now_ms)
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
        job_over(job);
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
        if (job_of(node)->fed || job_of(node)->deadline_ms <= now_ms)
            step(job_of(node), now_ms);
    keys->deadline_ms = UINT64_MAX;
    ddpi_list_for_each (node, &keys->all)
        if (job_of(node)->deadline_ms < keys->deadline_ms)
            keys->deadline_ms = job_of(node)->deadline_ms;
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

bool ddpi_round_keys_has(const struct ddpi_round_keys *keys, struct ddpi_bytes job)
{
    return ddpi_round_find_job(keys, job) != NULL;
}

void ddpi_round_keys_count(const struct ddpi_round_keys *keys, uint64_t *ret_jobs,
                           uint64_t *ret_members)
{
    *ret_jobs = keys->jobs.count;
    *ret_members = 0;
    ddpi_list_for_each (node, &keys->all)
        *ret_members += job_of(node)->told.members;
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
        job_destroy(job_of(keys->all.next));
    ddpi_table_finish(&keys->jobs);
    ddpi_buf_finish(&keys->noted);
    ddpi_buf_finish(&keys->record);
    ddpi_free(keys);
}
