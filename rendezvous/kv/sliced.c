/*
 * sliced.c - requests whose cost is not bounded by their length: lists, counts, and watches that
 * begin in the past. Owns those that are not answered at once.
 *
 * A turn of the loop has so much work for them, counted in entries that are looked at; a request
 * that finds not enough of it left waits in a line. Whoever stands at its head gets all the work
 * that there is, so that one of them has memory for what it gathers, and no more. What is small is
 * tried before it has to stand in line.
 *
 * So a list that takes several turns is no snapshot: it has each key that was there all the time
 * from the request to its answer, none that was there at no time in between, and each once, in
 * order. One that is answered at once, as any short one is in a server that is not busy with long
 * ones, is exact. A count is exact in any case: changes behind the place that it has reached are
 * added to it.
 */
#include "error.h"
#include "kv_impl.h"
#include "mem.h"

#include <ddprun/store.h>

enum {
    CHANGES_PER_ENTRY = 4, /* of the history, which cost as much to look at as one entry */
};

struct kv_work {
    struct ddpi_list of_client; /* ddpi_kv_client::works */
    struct ddpi_list of_line;   /* ddpi_kv::line */
    struct ddpi_kv_client *client;
    struct ddpi_message request;
    struct ddpi_buf names; /* LIST: what it has found */
    uint32_t count;
    struct kv_cursor cursor;
    size_t key_len;
    char key[]; /* with the scope */
};

static struct kv_work *work_in(struct ddpi_list *node)
{
    return ddpi_container_of(node, struct kv_work, of_line);
}

static void forget_names(struct kv_work *work)
{
    ddpi_buf_finish(&work->names);
    ddpi_kv_cursor_finish(&work->cursor);
    work->count = 0;
}

static void stand_in_line(struct ddpi_kv *kv, struct kv_work *work)
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

/* --- what a turn has --- */

static bool is_bounded(const struct ddpi_kv *kv)
{
    return kv->limits.turn_work > 0;
}

void ddpi_kv_grant_work(struct ddpi_kv *kv)
{
    kv->work_left = kv->limits.turn_work;
}

bool ddpi_kv_take_work(struct ddpi_kv *kv)
{
    if (!is_bounded(kv))
        return true;
    if (kv->work_left == 0)
        return false;
    kv->work_left--;
    return true;
}

bool ddpi_kv_take_small(struct ddpi_kv *kv, size_t *taken)
{
    return !is_bounded(kv) || ((*taken)++ < KV_SMALL && ddpi_kv_take_work(kv));
}

void ddpi_kv_spend_work(struct ddpi_kv *kv, size_t entries)
{
    kv->work_left -= entries < kv->work_left ? entries : kv->work_left;
}

bool ddpi_kv_has_work(const struct ddpi_kv *kv)
{
    return !ddpi_list_empty(&kv->line) || ddpi_kv_has_gone(kv);
}

/* --- lists --- */

static ddp_status put_name(struct kv_work *work, const struct kv_entry *entry,
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

/* *@ret_done: it has all names. */
static ddp_status list_some(struct ddpi_kv *kv, struct kv_work *work, bool *ret_done,
                            struct ddp_error *err)
{
    struct ddpi_bytes prefix = ddpi_bytes_of(work->key, work->key_len);
    const struct kv_entry *last = NULL, *entry = ddpi_kv_cursor_next(kv, &work->cursor, prefix);
    ddp_status status = DDP_OK;
    for (; status == DDP_OK && entry != NULL && ddpi_kv_take_work(kv);
         entry = ddpi_kv_order_next(kv, entry, prefix)) {
        if (ddpi_kv_has_value(entry))
            status = put_name(work, entry, err);
        last = entry;
    }
    *ret_done = entry == NULL;
    if (status == DDP_OK && !*ret_done && last != NULL)
        status = ddpi_kv_cursor_set(&work->cursor, ddpi_kv_name(last), err);
    return status;
}

static ddp_status list(struct ddpi_kv *kv, struct kv_work *work, struct ddpi_message *reply,
                       bool *ret_done, struct ddp_error *err)
{
    ddp_status status = list_some(kv, work, ret_done, err);
    reply->keys = (struct ddpi_keys){.packed = ddpi_buf_head(&work->names),
                                     .packed_len = ddpi_buf_len(&work->names),
                                     .count = work->count};
    return status;
}

static ddp_status count(struct ddpi_kv *kv, struct kv_work *work, struct ddpi_message *reply,
                        bool *ret_done, struct ddp_error *err)
{
    size_t nkeys = 0;
    ddp_status status = ddpi_kv_scope_nkeys(kv, work->client->scope, &nkeys, ret_done, err);
    reply->number = (int64_t)nkeys;
    return status;
}

/* --- the line --- */

/* The request is answered, and gone, or there is no work left. */
static bool go_on(struct ddpi_kv *kv, struct kv_work *work)
{
    struct ddpi_message reply = {0};
    struct ddp_error err;
    bool done = false;
    ddp_status status = work->request.op == DDPI_OP_LIST ? list(kv, work, &reply, &done, &err)
                                                         : count(kv, work, &reply, &done, &err);
    if (status == DDP_OK && !done)
        return false;
    if (status != DDP_OK)
        reply = (struct ddpi_message){.status = status,
                                      .text = ddpi_bytes_of(err.msg, strlen(err.msg))};
    ddpi_kv_answer(kv, work->client, &reply, work->request.op, work->request.id);
    work_destroy(kv, work);
    return true;
}

/* As far as what is small goes; true: it was. */
static bool try_small(struct ddpi_kv *kv, struct kv_work *work)
{
    size_t left = kv->work_left, most = left < KV_SMALL ? left : KV_SMALL;
    kv->work_left = most;
    bool answered = go_on(kv, work);
    kv->work_left += left - most;
    return answered;
}

static ddp_status begin(struct ddpi_kv *kv, struct kv_call *call)
{
    struct kv_work *work = work_create(call);
    if (work == NULL)
        return ddpi_error_nomem(&call->err, sizeof(*work) + call->key.len);
    call->parked = true;
    bool first = ddpi_list_empty(&kv->line);
    if (first ? go_on(kv, work) : try_small(kv, work))
        return DDP_OK;
    if (!first)
        forget_names(work);
    stand_in_line(kv, work);
    return DDP_OK;
}

ddp_status ddpi_kv_list(struct ddpi_kv *kv, struct kv_call *call)
{
    return begin(kv, call);
}

ddp_status ddpi_kv_count_keys(struct ddpi_kv *kv, struct kv_call *call)
{
    return begin(kv, call);
}

/* --- what cannot be cut, but put off --- */

bool ddpi_kv_put_off(struct ddpi_kv *kv, struct kv_call *call, uint64_t changes)
{
    uint64_t cost = changes / CHANGES_PER_ENTRY + 1;
    bool affordable = !is_bounded(kv) || (kv->work_left > 0 && ddpi_list_empty(&kv->line)) ||
                      cost <= (kv->work_left < KV_SMALL ? kv->work_left : KV_SMALL);
    struct kv_work *work = affordable || call->again ? NULL : work_create(call);
    if (work != NULL) {
        stand_in_line(kv, work);
        call->parked = true;
        return true;
    }
    ddpi_kv_spend_work(kv, (size_t)cost);
    return false;
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
    ddpi_kv_drop_some(kv);
    while (!ddpi_list_empty(&kv->line) && kv->work_left > 0) {
        struct kv_work *work = work_in(kv->line.next);
        if (work->request.op == DDPI_OP_WATCH)
            apply_again(kv, work, now_ms);
        else if (!go_on(kv, work))
            return;
    }
}

void ddpi_kv_drop_works(struct ddpi_kv *kv, struct ddpi_kv_client *client)
{
    while (!ddpi_list_empty(&client->works))
        work_destroy(kv, ddpi_container_of(client->works.next, struct kv_work, of_client));
}
