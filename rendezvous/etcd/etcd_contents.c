/*
 * etcd_contents.c - reads the contents when this process has won, and writes each turn's changes
 * while it leads.
 *
 * The happy path: changes gather in the batch; a commit sends its chunks one by one, each a
 * transaction that compares that the leader's key is still ours and that `meta` is what the last
 * transaction left; when the last has succeeded, the commit is done.
 *
 * Possible failure modes are:
 *   - the answer is lost: the transaction is sent again. If the first try was applied, `meta` is
 *     already what it should become, which the other branch of the transaction reports;
 *   - another process leads: the leader's key is not ours, and nothing is written;
 *   - etcd refuses, for lack of room say: the commit fails, and no change of it is acknowledged.
 */
#include "error.h"
#include "etcd_store_state.h"
#include "token_file.h"

enum {
    LOAD_TRY_MS = 10000,
    LOAD_TOTAL_MS = 11000, /* a try at a second member; then for a shorter page */
    WRITE_TRY_MS = 1000,
    FOREVER_MS = 3600 * 1000, /* the lease ends earlier */
    MOST_FAILURES = 8,
};

/* ---- writing ---- */

static struct ddpi_etcd_chunk *first_chunk(const struct ddpi_etcd_store *store)
{
    return ddpi_container_of(store->contents.sending.next, struct ddpi_etcd_chunk, of_batch);
}

static void finish_commit(struct ddpi_etcd_store *store, const struct ddp_error *why)
{
    const struct ddpi_committed done = store->contents.done;
    store->contents.done.call = NULL;
    if (done.call != NULL)
        done.call(done.ctx, why);
}

static bool put_chunk_op(struct ddpi_buf *body, const struct ddpi_etcd_chunk_op *chunk_op)
{
    const struct ddpi_etcd_op op = {
        .kind = chunk_op->deletes ? DDPI_ETCD_DELETE : DDPI_ETCD_PUT,
        .key = ddpi_bytes_of(chunk_op->bytes, chunk_op->key_len),
        .value = ddpi_bytes_of(chunk_op->bytes + chunk_op->key_len, chunk_op->value_len)};
    return ddpi_etcd_put_text(body, ",") && ddpi_etcd_put_op(body, &op);
}

/* Delete the changes to which no watch goes back any more. */
static bool put_forget(const struct ddpi_etcd_store *store, struct ddpi_buf *body, uint64_t version)
{
    struct ddpi_buf begin, end;
    ddpi_buf_init(&begin, 2 * DDPI_ETCD_ROOT_MAX);
    ddpi_buf_init(&end, 2 * DDPI_ETCD_ROOT_MAX);
    bool good = ddpi_etcd_put_numbered(&begin, store->root, DDPI_ETCD_SECTION_PAST, 0) &&
                ddpi_etcd_put_numbered(&end, store->root, DDPI_ETCD_SECTION_PAST, version + 1);
    const struct ddpi_etcd_op op = {
        .kind = DDPI_ETCD_DELETE_RANGE,
        .key = ddpi_bytes_of(ddpi_buf_head(&begin), ddpi_buf_len(&begin)),
        .value = ddpi_bytes_of(ddpi_buf_head(&end), ddpi_buf_len(&end))};
    good = good && ddpi_etcd_put_text(body, ",") && ddpi_etcd_put_op(body, &op);
    ddpi_buf_finish(&begin);
    ddpi_buf_finish(&end);
    return good;
}

static bool put_failure(const struct ddpi_etcd_store *store, struct ddpi_buf *body)
{
    const struct ddpi_etcd_range leader = {.key = ddpi_etcd_text(store->leader_key)};
    const struct ddpi_etcd_range meta = {.key = ddpi_etcd_text(store->meta_key)};
    return ddpi_etcd_put_text(body, "],\"failure\":[{\"request_range\":") &&
           ddpi_etcd_put_range(body, &leader) &&
           ddpi_etcd_put_text(body, "},{\"request_range\":") && ddpi_etcd_put_range(body, &meta) &&
           ddpi_etcd_put_text(body, "}]}");
}

static struct ddpi_bytes bytes_in(const struct ddpi_buf *buf)
{
    return ddpi_bytes_of(ddpi_buf_head(buf), ddpi_buf_len(buf));
}

static bool put_chunk(struct ddpi_etcd_store *store, struct ddpi_buf *body)
{
    const struct ddpi_etcd_chunk *chunk = first_chunk(store);
    const struct ddpi_bytes meta_key = ddpi_etcd_text(store->meta_key);
    const struct ddpi_etcd_op meta = {
        .kind = DDPI_ETCD_PUT, .key = meta_key, .value = bytes_in(&store->contents.next_meta)};
    bool good = ddpi_etcd_put_text(body, "{\"compare\":[") &&
                ddpi_etcd_put_compare_mod(body, ddpi_etcd_text(store->leader_key),
                                          store->self.mod_revision) &&
                ddpi_etcd_put_text(body, ",") &&
                ddpi_etcd_put_compare_value(body, meta_key, bytes_in(&store->contents.meta)) &&
                ddpi_etcd_put_text(body, "],\"success\":[") && ddpi_etcd_put_op(body, &meta);
    for (size_t i = 0; good && i < chunk->count; i++)
        good = put_chunk_op(body, &chunk->ops[i]);
    if (good && chunk->forget > 0)
        good = put_forget(store, body, chunk->forget);
    return good && put_failure(store, body);
}

static ddp_status take_value(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct ddpi_buf *buf = ctx;
    return ddpi_buf_append(buf, kv->value.data, kv->value.len)
               ? DDP_OK
               : ddpi_error_nomem(err, kv->value.len);
}

/* The comparison failed: DDP_OK if an earlier try of the same transaction was applied. */
static ddp_status judge_refusal(const struct ddpi_etcd_store *store,
                                const struct ddpi_etcd_reply *reply, struct ddp_error *err)
{
    struct ddpi_etcd_leader leader;
    struct ddpi_buf meta;
    ddp_status status = ddpi_etcd_read_leader(ddpi_etcd_range_at(reply, 0), &leader, err);
    if (status != DDP_OK)
        return status;
    if (!leader.exists || leader.mod_revision != store->self.mod_revision)
        return ddpi_error_set(err, DDP_E_CLOSED,
                              "another ddprund has taken over (%s), and etcd refused a change of "
                              "this one; it stops serving",
                              leader.exists ? leader.endpoint : "and is gone again");
    ddpi_buf_init(&meta, DDPI_ETCD_VALUE_MAX);
    status = ddpi_etcd_each_kv(ddpi_etcd_range_at(reply, 1), take_value, &meta, err);
    bool applied =
        status == DDP_OK && ddpi_bytes_equal(bytes_in(&meta), bytes_in(&store->contents.next_meta));
    ddpi_buf_finish(&meta);
    if (status == DDP_OK && !applied)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the contents below %s in etcd were changed by another program",
                              store->root);
    return status;
}

static void send_chunk(struct ddpi_etcd_store *store);

static void chunk_is_written(struct ddpi_etcd_store *store)
{
    struct ddpi_buf old = store->contents.meta;
    store->contents.meta = store->contents.next_meta;
    store->contents.next_meta = old;
    store->contents.sending_size -= ddpi_etcd_chunk_size(first_chunk(store));
    ddpi_etcd_chunk_free(first_chunk(store));
    if (!ddpi_list_empty(&store->contents.sending)) {
        send_chunk(store);
    } else if (store->sm.state == ETCD_LOADING) { /* that was the rest of a journal */
        ddpi_etcd_load_finish(&store->contents.load);
        ddpi_etcd_contents_load(store);
    } else {
        finish_commit(store, NULL);
    }
}

static void on_written(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    struct ddp_error why;
    ddp_status status = DDP_OK;
    if (outcome->status != DDP_OK) {
        why = *outcome->err;
        status = outcome->status;
    } else if (outcome->reply->code != DDPI_ETCD_OK) {
        status = ddpi_etcd_explain(store, outcome->reply, &why);
    } else if (!ddpi_etcd_succeeded(outcome->reply)) {
        status = judge_refusal(store, outcome->reply, &why);
    }
    if (status == DDP_OK)
        chunk_is_written(store);
    else if (store->sm.state == ETCD_LOADING)
        ddpi_etcd_give_up(store, &why);
    else
        finish_commit(store, &why);
}

static void send_chunk(struct ddpi_etcd_store *store)
{
    struct ddpi_etcd_call *call = &store->contents.call;
    struct ddpi_etcd_chunk *chunk = first_chunk(store);
    struct ddp_error why;
    ddpi_etcd_fresh_call(call, "/v3/kv/txn", on_written, store);
    call->try_ms = WRITE_TRY_MS;
    call->total_ms = FOREVER_MS;
    call->exchange.most = 0;
    call->exchange.instead = NULL;
    chunk->meta.transaction = ++store->election.meta.transaction;
    ddpi_buf_consume(&store->contents.next_meta, ddpi_buf_len(&store->contents.next_meta));
    if (ddpi_etcd_put_meta(&store->contents.next_meta, &chunk->meta) &&
        put_chunk(store, &call->body)) {
        ddpi_etcd_call_begin(store->client, call);
        return;
    }
    ddpi_error_nomem(&why, chunk->bytes);
    finish_commit(store, &why);
}

/* ---- the sink ---- */

static void on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    struct ddpi_etcd_store *store = ctx;
    if (store->contents.failure.status == DDP_OK)
        (void)ddpi_etcd_batch_change(&store->contents.batch, mutation, &store->contents.failure);
}

static void measure_sending(struct ddpi_etcd_store *store)
{
    store->contents.sending_size = 0;
    ddpi_list_for_each (node, &store->contents.sending)
        store->contents.sending_size +=
            ddpi_etcd_chunk_size(ddpi_container_of(node, struct ddpi_etcd_chunk, of_batch));
}

static size_t backlog(void *ctx)
{
    const struct ddpi_etcd_store *store = ctx;
    return store->contents.sending_size + ddpi_etcd_batch_size(&store->contents.batch);
}

static void on_commit(void *ctx, const struct ddpi_mark *mark, struct ddpi_committed done)
{
    struct ddpi_etcd_store *store = ctx;
    struct ddp_error why = store->contents.failure;
    if (store->sm.state != ETCD_LEADING || store->closed)
        return; /* the owner knows, or will, that it is over */
    if (why.status == DDP_OK)
        (void)ddpi_etcd_batch_take(&store->contents.batch, mark, &store->contents.sending, &why);
    if (why.status == DDP_OK)
        (void)ddpi_etcd_journal_wrap(store->root, &store->contents.last, &store->contents.sending,
                                     &why);
    measure_sending(store);
    store->contents.last = store->contents.batch.meta;
    store->contents.done = done;
    if (why.status == DDP_OK)
        send_chunk(store);
    else
        finish_commit(store, &why);
}

static bool may_answer(void *ctx)
{
    const struct ddpi_etcd_store *store = ctx;
    return store->sm.state == ETCD_LEADING && !store->closed && ddpi_etcd_lease_is_valid(store);
}

static void put_counters(void *ctx, struct ddpi_buf *text)
{
    const struct ddpi_etcd_store *store = ctx;
    (void)ddpi_etcd_times_put(ddpi_etcd_client_times(store->client), text);
}

/* ---- reading ---- */

static void begin_to_lead(struct ddpi_etcd_store *store)
{
    const struct ddpi_sink sink = {.ctx = store,
                                   .change = on_change,
                                   .commit = on_commit,
                                   .may_answer = may_answer,
                                   .backlog = backlog,
                                   .put_counters = put_counters};
    const struct ddpi_etcd_meta *meta = &store->contents.batch.meta;
    store->election.meta = store->contents.last = *meta;
    ddpi_sm_move(&store->sm, ETCD_LEADING);
    store->options.leads(store->options.ctx, &meta->mark, &sink);
}

static void unusable(struct ddpi_etcd_store *store, struct ddp_error *why)
{
    ddpi_error_wrap(why, why->status, "the contents below %s in etcd", store->root);
    ddpi_etcd_give_up(store, why);
}

/* A leader died while it applied a long turn: go on with that. */
static void apply_journal(struct ddpi_etcd_store *store)
{
    struct ddp_error why;
    store->election.meta = store->contents.load.meta;
    if (ddpi_etcd_load_journal(&store->contents.load, &store->contents.sending, &why) != DDP_OK) {
        unusable(store, &why);
    } else {
        measure_sending(store);
        send_chunk(store);
    }
}

static void give_contents(struct ddpi_etcd_store *store)
{
    uint8_t seed[DDPI_SEED_SIZE];
    struct ddp_error why;
    ddpi_token_random(seed, sizeof seed);
    ddpi_buf_consume(&store->contents.meta, ddpi_buf_len(&store->contents.meta));
    if (!ddpi_etcd_put_meta(&store->contents.meta, &store->contents.load.meta)) {
        ddpi_error_nomem(&why, sizeof store->contents.load.meta);
        ddpi_etcd_give_up(store, &why);
        return;
    }
    if (store->contents.load.meta.journal > 0) {
        apply_journal(store);
        return;
    }
    store->contents.has_batch = true;
    ddp_status status = ddpi_etcd_load_give(&store->contents.load, &store->contents.batch, seed,
                                            store->options.restore, store->options.ctx, &why);
    ddpi_etcd_load_finish(&store->contents.load);
    if (status == DDP_OK) {
        begin_to_lead(store);
        return;
    }
    unusable(store, &why);
}

static void load_page(struct ddpi_etcd_store *store);

/* Most failures take a while, and the lease decides for how long. What fails otherwise, as when
 * memory is short, may have failed within load_page(), so it is not tried for ever. */
static void page_failed(struct ddpi_etcd_store *store, const struct ddpi_etcd_outcome *outcome)
{
    ddpi_etcd_complain(store, outcome->err);
    if (outcome->status == DDP_E_TIMEOUT) {
        store->contents.failures = 0;
    } else if (++store->contents.failures >= MOST_FAILURES) {
        ddpi_etcd_give_up(store, outcome->err);
        return;
    }
    (void)ddpi_etcd_load_shorten(&store->contents.load);
    load_page(store);
}

/* No failure of a member: the next one would send as much. */
static void page_is_too_long(struct ddpi_etcd_store *store)
{
    struct ddp_error why;
    if (ddpi_etcd_load_shorten(&store->contents.load)) {
        load_page(store);
        return;
    }
    ddpi_error_set(&why, DDP_E_PROTOCOL, "a record is too long");
    unusable(store, &why);
}

static void on_page(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_store *store = call->ctx;
    struct ddp_error why;
    bool more = false;
    if (outcome->status != DDP_OK) {
        page_failed(store, outcome);
        return;
    }
    store->contents.failures = 0;
    if (outcome->reply->code == DDPI_ETCD_EXHAUSTED) { /* ours, or that of a member */
        page_is_too_long(store);
        return;
    }
    if (outcome->reply->code == DDPI_ETCD_RANGE) { /* compacted: begin anew */
        ddpi_etcd_load_finish(&store->contents.load);
        ddpi_etcd_contents_load(store);
        return;
    }
    ddp_status status =
        outcome->reply->code == DDPI_ETCD_OK
            ? ddpi_etcd_load_take_page(&store->contents.load, outcome->reply, &more, &why)
            : ddpi_etcd_explain(store, outcome->reply, &why);
    if (status != DDP_OK) {
        unusable(store, &why);
    } else if (more) {
        load_page(store);
    } else {
        give_contents(store);
    }
}

static void load_page(struct ddpi_etcd_store *store)
{
    /* What gRPC says of a message that is too long. */
    static const char too_long[] = "{\"code\":8,\"message\":\"the page is too long\"}";
    struct ddpi_etcd_call *call = &store->contents.call;
    struct ddp_error why;
    ddpi_etcd_fresh_call(call, "/v3/kv/range", on_page, store);
    call->try_ms = LOAD_TRY_MS;
    call->total_ms = LOAD_TOTAL_MS;
    call->exchange.most = DDPI_ETCD_PAGE_MAX;
    call->exchange.instead = too_long;
    if (ddpi_etcd_load_put_request(&store->contents.load, &call->body)) {
        ddpi_etcd_call_begin(store->client, call);
        return;
    }
    ddpi_error_nomem(&why, sizeof store->root);
    ddpi_etcd_give_up(store, &why);
}

void ddpi_etcd_contents_load(struct ddpi_etcd_store *store)
{
    ddpi_etcd_load_init(&store->contents.load, store->root);
    load_page(store);
}

void ddpi_etcd_contents_finish(struct ddpi_etcd_store *store)
{
    store->contents.done.call = NULL;
    ddpi_etcd_load_finish(&store->contents.load);
    while (!ddpi_list_empty(&store->contents.sending))
        ddpi_etcd_chunk_free(first_chunk(store));
    if (store->contents.has_batch)
        ddpi_etcd_batch_finish(&store->contents.batch);
    store->contents.has_batch = false;
    ddpi_buf_finish(&store->contents.meta);
    ddpi_buf_finish(&store->contents.next_meta);
}
