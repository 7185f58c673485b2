/*
 * sliced.c - what a turn of the loop may spend on requests whose cost is not bounded by their
 * length: lists, counts, and watches that begin in the past. Owns those that are not answered at
 * once.
 *
 * A turn has a limited amount of work for them, counted in entries that are looked at; a request
 * that needs more waits in a line. The first in the line gets all the work that there is, so that
 * only one request at a time has memory for what it gathers. A small request is tried before it has
 * to join the line.
 *
 * So a list that takes several turns is no snapshot: it has each key that existed all the time from
 * the request to its answer, no key that existed at no time in between, and each key once, in
 * order. A list that is answered at once is exact; all short ones are, unless the server is busy
 * with long ones. A count is always exact: changes to keys that it has counted already are added to
 * it.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <ddprun/store.h>

/* ---- what a turn may spend ---- */

static bool work_is_bounded(const struct ddpi_kv *kv)
{
    return kv->limits.turn_work > 0;
}

void ddpi_kv_grant_work(struct ddpi_kv *kv)
{
    kv->work_left = kv->limits.turn_work;
}

bool ddpi_kv_take_work(struct ddpi_kv *kv)
{
    if (!work_is_bounded(kv))
        return true;
    if (kv->work_left == 0)
        return false;
    kv->work_left--;
    return true;
}

bool ddpi_kv_take_small(struct ddpi_kv *kv, size_t *taken)
{
    return !work_is_bounded(kv) || ((*taken)++ < KV_SMALL && ddpi_kv_take_work(kv));
}

void ddpi_kv_spend_work(struct ddpi_kv *kv, size_t entries)
{
    kv->work_left -= entries < kv->work_left ? entries : kv->work_left;
}

/* ---- a request that is not answered at once ---- */

enum {
    CHANGES_PER_ENTRY = 4, /* past changes that cost as much to look at as one entry */
};

struct kv_work {
    struct ddpi_list of_client; /* ddpi_kv_client::works */
    struct ddpi_list of_line;   /* ddpi_kv::line */
    struct ddpi_kv_client *client;
    struct ddpi_message request;
    struct ddpi_buf names; /* LIST: the names found so far */
    uint32_t count;
    struct kv_cursor cursor;
    size_t key_len;
    char key[]; /* with the scope */
};

static void forget_names(struct kv_work *work)
{
    ddpi_buf_finish(&work->names);
    ddpi_kv_cursor_finish(&work->cursor);
    work->count = 0;
}

static void join_line(struct ddpi_kv *kv, struct kv_work *work)
{
    ddpi_list_append(&kv->line, &work->of_line);
    kv->nworks++;
}

static void leave_line(struct ddpi_kv *kv, struct kv_work *work)
{
    kv->nworks -= !ddpi_list_empty(&work->of_line);
    ddpi_list_remove(&work->of_line);
}

static void work_destroy(struct ddpi_kv *kv, struct kv_work *work)
{
    leave_line(kv, work);
    ddpi_list_remove(&work->of_client);
    work->client->nworks--;
    forget_names(work);
    ddpi_free(work);
}

static struct kv_work *work_create(const struct kv_call *call)
{
    struct kv_work *work = ddpi_calloc(1, sizeof(*work) + call->key.len);
    if (work == NULL)
        return NULL;
    work->client = call->client;
    work->request = *call->request;
    work->key_len = call->key.len;
    if (call->key.len > 0)
        memcpy(work->key, call->key.data, call->key.len);
    work->request.key = ddpi_kv_seen_key(call->client, ddpi_bytes_of(work->key, work->key_len));
    ddpi_buf_init(&work->names, DDP_STORE_VALUE_MAX);
    ddpi_list_init(&work->of_line);
    ddpi_list_append(&call->client->works, &work->of_client);
    call->client->nworks++;
    return work;
}

/* ---- lists and counts ---- */

static ddp_status list_put_name(struct kv_work *work, const struct kv_entry *entry,
                                struct ddp_error *err)
{
    struct ddpi_bytes name = ddpi_kv_seen_key(work->client, ddpi_kv_name(entry));
    if (ddpi_buf_len(&work->names) + sizeof(uint32_t) + name.len > DDP_STORE_VALUE_MAX)
        return ddpi_error_set(err, DDP_E_LIMIT,
                              "the names of all keys that begin with '%.*s' are more than %d "
                              "bytes; ask for a longer prefix",
                              KV_QUOTE(work->request.key), DDP_STORE_VALUE_MAX);
    work->count++;
    return ddpi_keys_put(&work->names, name) ? DDP_OK : ddpi_error_nomem(err, name.len);
}

/* Adds names as far as there is work left; *@ret_done: all of them are there. */
static ddp_status list_some(struct ddpi_kv *kv, struct kv_work *work, bool *ret_done,
                            struct ddp_error *err)
{
    struct ddpi_bytes prefix = ddpi_bytes_of(work->key, work->key_len);
    const struct kv_entry *last = NULL, *entry = ddpi_kv_cursor_next(kv, &work->cursor, prefix);
    ddp_status status = DDP_OK;
    for (; status == DDP_OK && entry != NULL && ddpi_kv_take_work(kv);
         entry = ddpi_kv_order_next(kv, entry, prefix)) {
        if (ddpi_kv_has_value(entry))
            status = list_put_name(work, entry, err);
        last = entry;
    }
    *ret_done = entry == NULL;
    if (status == DDP_OK && !*ret_done && last != NULL)
        status = ddpi_kv_cursor_set(&work->cursor, ddpi_kv_name(last), err);
    return status;
}

static ddp_status list_keys(struct ddpi_kv *kv, struct kv_work *work, struct ddpi_message *reply,
                            bool *ret_done, struct ddp_error *err)
{
    ddp_status status = list_some(kv, work, ret_done, err);
    reply->keys = (struct ddpi_keys){.packed = ddpi_buf_head(&work->names),
                                     .packed_len = ddpi_buf_len(&work->names),
                                     .count = work->count};
    return status;
}

static ddp_status count_keys(struct ddpi_kv *kv, struct kv_work *work, struct ddpi_message *reply,
                             bool *ret_done, struct ddp_error *err)
{
    size_t nkeys = 0;
    ddp_status status = ddpi_kv_scope_nkeys(kv, work->client->scope, &nkeys, ret_done, err);
    reply->number = (int64_t)nkeys;
    return status;
}

/* ---- the line ---- */

/* Continues a list or a count: true if it is answered, and freed; else there is no work left. */
static bool work_continue(struct ddpi_kv *kv, struct kv_work *work)
{
    struct ddpi_message reply = {0};
    struct ddp_error err;
    bool done = false;
    ddp_status status = work->request.op == DDPI_OP_LIST
                            ? list_keys(kv, work, &reply, &done, &err)
                            : count_keys(kv, work, &reply, &done, &err);
    if (status == DDP_OK && !done)
        return false;
    if (status != DDP_OK)
        reply = (struct ddpi_message){.status = status,
                                      .text = ddpi_bytes_of(err.msg, strlen(err.msg))};
    ddpi_kv_answer(kv, work->client, &reply, work->request.op, work->request.id);
    work_destroy(kv, work);
    return true;
}

/* Spends a small amount of work; true: @work is answered, and freed. */
static bool try_small(struct ddpi_kv *kv, struct kv_work *work)
{
    size_t left = kv->work_left, most = left < KV_SMALL ? left : KV_SMALL;
    kv->work_left = most;
    bool answered = work_continue(kv, work);
    kv->work_left += left - most;
    return answered;
}

ddp_status ddpi_kv_list_or_count(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_work *work = work_create(call);
    if (work == NULL)
        return ddpi_error_nomem(&call->err, sizeof(*work) + call->key.len);
    call->parked = true;
    bool first = ddpi_list_empty(&kv->line);
    if (first ? work_continue(kv, work) : try_small(kv, work))
        return DDP_OK;
    if (!first)
        forget_names(work);
    join_line(kv, work);
    return DDP_OK;
}

/* ---- requests that are put off as a whole ---- */

bool ddpi_kv_put_off(struct ddpi_kv *kv, struct kv_call *call, uint64_t changes)
{
    uint64_t cost = changes / CHANGES_PER_ENTRY + 1;
    bool affordable = !work_is_bounded(kv) || (kv->work_left > 0 && ddpi_list_empty(&kv->line)) ||
                      cost <= (kv->work_left < KV_SMALL ? kv->work_left : KV_SMALL);
    struct kv_work *work = affordable || call->again ? NULL : work_create(call);
    if (work != NULL) {
        join_line(kv, work);
        call->parked = true;
        return true;
    }
    ddpi_kv_spend_work(kv, (size_t)cost);
    return false;
}

void ddpi_kv_drop_works(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    while (!ddpi_list_empty(&client->works))
        work_destroy(kv, ddpi_container_of(client->works.next, struct kv_work, of_client));
}

/* ---- turns of the loop ---- */

bool ddpi_kv_has_work(const struct ddpi_kv *kv)
{
    return !ddpi_list_empty(&kv->line) || ddpi_kv_has_gone(kv);
}

/* Dropping leaves half of the work to the requests that wait in the line. */
static void drop_some(struct ddpi_kv *kv)
{
    size_t kept = ddpi_list_empty(&kv->line) ? 0 : kv->work_left / 2;
    kv->work_left -= kept;
    ddpi_kv_session_drop(kv);
    ddpi_kv_drop_detached(kv);
    kv->work_left += kept;
}

static void apply_again(struct ddpi_kv *kv, struct kv_work *work, uint64_t now_ms)
{
    struct kv_call call = {.client = work->client,
                           .request = &work->request,
                           .key = ddpi_bytes_of(work->key, work->key_len),
                           .now_ms = now_ms,
                           .again = true};
    leave_line(kv, work);
    ddpi_kv_serve(kv, &call);
    work_destroy(kv, work);
}

void ddpi_kv_work(struct ddpi_kv *kv, uint64_t now_ms)
{
    drop_some(kv);
    while (kv->work_left > 0 && !ddpi_list_empty(&kv->line)) {
        struct kv_work *work = ddpi_container_of(kv->line.next, struct kv_work, of_line);
        if (work->request.op == DDPI_OP_WATCH)
            apply_again(kv, work, now_ms);
        else if (!work_continue(kv, work))
            return;
    }
}
