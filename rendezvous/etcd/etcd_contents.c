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
#include "etcd_parts.h"
#include "token_file.h"

enum {
    LOAD_TRY_MS = 10000,
    LOAD_TOTAL_MS = 11000, /* a try at a second member; then for a shorter page */
    WRITE_TRY_MS = 1000,
    FOREVER_MS = 3600 * 1000, /* the lease ends earlier */
    MOST_FAILURES = 8,
};

/* ---- writing ---- */

static struct ddpi_etcd_chunk *first_chunk(const struct ddpi_etcd_contents *contents)
{
    return ddpi_container_of(contents->sending.next, struct ddpi_etcd_chunk, of_batch);
}

static void finish_commit(struct ddpi_etcd_contents *contents, const struct ddp_error *why)
{
    const struct ddpi_committed done = contents->done;
    contents->done.call = NULL;
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
static bool put_forget(const struct ddpi_etcd_contents *contents, struct ddpi_buf *body,
                       uint64_t version)
{
    struct ddpi_buf begin, end;
    ddpi_buf_init(&begin, 2 * DDPI_ETCD_ROOT_MAX);
    ddpi_buf_init(&end, 2 * DDPI_ETCD_ROOT_MAX);
    bool good =
        ddpi_etcd_put_numbered(&begin, contents->common->root, DDPI_ETCD_SECTION_PAST, 0) &&
        ddpi_etcd_put_numbered(&end, contents->common->root, DDPI_ETCD_SECTION_PAST, version + 1);
    const struct ddpi_etcd_op op = {
        .kind = DDPI_ETCD_DELETE_RANGE,
        .key = ddpi_bytes_of(ddpi_buf_head(&begin), ddpi_buf_len(&begin)),
        .value = ddpi_bytes_of(ddpi_buf_head(&end), ddpi_buf_len(&end))};
    good = good && ddpi_etcd_put_text(body, ",") && ddpi_etcd_put_op(body, &op);
    ddpi_buf_finish(&begin);
    ddpi_buf_finish(&end);
    return good;
}

static bool put_failure(const struct ddpi_etcd_contents *contents, struct ddpi_buf *body)
{
    const struct ddpi_etcd_range leader = {.key = ddpi_etcd_text(contents->common->leader_key)};
    const struct ddpi_etcd_range meta = {.key = ddpi_etcd_text(contents->common->meta_key)};
    return ddpi_etcd_put_text(body, "],\"failure\":[{\"request_range\":") &&
           ddpi_etcd_put_range(body, &leader) &&
           ddpi_etcd_put_text(body, "},{\"request_range\":") && ddpi_etcd_put_range(body, &meta) &&
           ddpi_etcd_put_text(body, "}]}");
}

static struct ddpi_bytes bytes_in(const struct ddpi_buf *buf)
{
    return ddpi_bytes_of(ddpi_buf_head(buf), ddpi_buf_len(buf));
}

static bool put_chunk(struct ddpi_etcd_contents *contents, struct ddpi_buf *body)
{
    const struct ddpi_etcd_chunk *chunk = first_chunk(contents);
    const struct ddpi_bytes meta_key = ddpi_etcd_text(contents->common->meta_key);
    const struct ddpi_etcd_op meta = {
        .kind = DDPI_ETCD_PUT, .key = meta_key, .value = bytes_in(&contents->next_meta)};
    bool good = ddpi_etcd_put_text(body, "{\"compare\":[") &&
                ddpi_etcd_put_compare_mod(body, ddpi_etcd_text(contents->common->leader_key),
                                          contents->leader_revision) &&
                ddpi_etcd_put_text(body, ",") &&
                ddpi_etcd_put_compare_value(body, meta_key, bytes_in(&contents->meta)) &&
                ddpi_etcd_put_text(body, "],\"success\":[") && ddpi_etcd_put_op(body, &meta);
    for (size_t i = 0; good && i < chunk->count; i++)
        good = put_chunk_op(body, &chunk->ops[i]);
    if (good && chunk->forget > 0)
        good = put_forget(contents, body, chunk->forget);
    return good && put_failure(contents, body);
}

static ddp_status take_value(void *ctx, const struct ddpi_etcd_kv *kv, struct ddp_error *err)
{
    struct ddpi_buf *buf = ctx;
    return ddpi_buf_append(buf, kv->value.data, kv->value.len)
               ? DDP_OK
               : ddpi_error_nomem(err, kv->value.len);
}

/* The comparison failed: DDP_OK if an earlier try of the same transaction was applied. */
static ddp_status judge_refusal(const struct ddpi_etcd_contents *contents,
                                const struct ddpi_etcd_reply *reply, struct ddp_error *err)
{
    struct ddpi_etcd_leader leader;
    struct ddpi_buf meta;
    ddp_status status = ddpi_etcd_read_leader(ddpi_etcd_range_at(reply, 0), &leader, err);
    if (status != DDP_OK)
        return status;
    if (!leader.exists || leader.mod_revision != contents->leader_revision)
        return ddpi_error_set(err, DDP_E_CLOSED,
                              "another ddprund has taken over (%s), and etcd refused a change of "
                              "this one; it stops serving",
                              leader.exists ? leader.endpoint : "and is gone again");
    ddpi_buf_init(&meta, DDPI_ETCD_VALUE_MAX);
    status = ddpi_etcd_each_kv(ddpi_etcd_range_at(reply, 1), take_value, &meta, err);
    bool applied =
        status == DDP_OK && ddpi_bytes_equal(bytes_in(&meta), bytes_in(&contents->next_meta));
    ddpi_buf_finish(&meta);
    if (status == DDP_OK && !applied)
        return ddpi_error_set(err, DDP_E_PROTOCOL,
                              "the contents below %s in etcd were changed by another program",
                              contents->common->root);
    return status;
}

static void send_chunk(struct ddpi_etcd_contents *contents);
static void load_anew(struct ddpi_etcd_contents *contents);

static void chunk_is_written(struct ddpi_etcd_contents *contents)
{
    struct ddpi_buf old = contents->meta;
    contents->meta = contents->next_meta;
    contents->next_meta = old;
    contents->sending_size -= ddpi_etcd_chunk_size(first_chunk(contents));
    ddpi_etcd_chunk_free(first_chunk(contents));
    if (!ddpi_list_empty(&contents->sending)) {
        send_chunk(contents);
    } else if (!contents->loaded) { /* that was the rest of a journal */
        load_anew(contents);
    } else {
        finish_commit(contents, NULL);
    }
}

static void write_failed(struct ddpi_etcd_contents *contents, const struct ddp_error *why)
{
    if (contents->loaded)
        finish_commit(contents, why);
    else
        contents->common->give_up(contents->common, why);
}

static void on_written(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_contents *contents = call->ctx;
    struct ddp_error why;
    ddp_status status = ddpi_etcd_judge(outcome, &why);
    if (status == DDP_OK && !ddpi_etcd_succeeded(outcome->reply))
        status = judge_refusal(contents, outcome->reply, &why);
    if (status == DDP_OK)
        chunk_is_written(contents);
    else
        write_failed(contents, &why);
}

static void send_chunk(struct ddpi_etcd_contents *contents)
{
    struct ddpi_etcd_call *call = &contents->call;
    struct ddpi_etcd_chunk *chunk = first_chunk(contents);
    struct ddp_error why;
    ddpi_etcd_fresh_call(call, "/v3/kv/txn", on_written, contents);
    call->try_ms = WRITE_TRY_MS;
    call->total_ms = FOREVER_MS;
    call->exchange.most = 0;
    call->exchange.instead = NULL;
    chunk->meta.transaction = ++contents->transaction;
    ddpi_buf_consume(&contents->next_meta, ddpi_buf_len(&contents->next_meta));
    if (ddpi_etcd_put_meta(&contents->next_meta, &chunk->meta) &&
        put_chunk(contents, &call->body)) {
        ddpi_etcd_call_begin(contents->common->client, call);
        return;
    }
    ddpi_error_nomem(&why, chunk->bytes);
    write_failed(contents, &why);
}

void ddpi_etcd_contents_change(struct ddpi_etcd_contents *contents,
                               const struct ddpi_mutation *mutation)
{
    if (contents->failure.status == DDP_OK)
        (void)ddpi_etcd_batch_change(&contents->batch, mutation, &contents->failure);
}

static void measure_sending(struct ddpi_etcd_contents *contents)
{
    contents->sending_size = 0;
    ddpi_list_for_each (node, &contents->sending)
        contents->sending_size +=
            ddpi_etcd_chunk_size(ddpi_container_of(node, struct ddpi_etcd_chunk, of_batch));
}

size_t ddpi_etcd_contents_backlog(const struct ddpi_etcd_contents *contents)
{
    return contents->sending_size + ddpi_etcd_batch_size(&contents->batch);
}

void ddpi_etcd_contents_commit(struct ddpi_etcd_contents *contents, const struct ddpi_mark *mark,
                               struct ddpi_committed done)
{
    struct ddp_error why = contents->failure;
    if (why.status == DDP_OK)
        (void)ddpi_etcd_batch_take(&contents->batch, mark, &contents->sending, &why);
    if (why.status == DDP_OK)
        (void)ddpi_etcd_journal_wrap(contents->common->root, &contents->last, &contents->sending,
                                     &why);
    measure_sending(contents);
    contents->last = contents->batch.meta;
    contents->done = done;
    if (why.status == DDP_OK)
        send_chunk(contents);
    else
        finish_commit(contents, &why);
}

/* ---- reading ---- */

static void unusable(struct ddpi_etcd_contents *contents, struct ddp_error *why)
{
    ddpi_error_wrap(why, why->status, "the contents below %s in etcd", contents->common->root);
    contents->common->give_up(contents->common, why);
}

/* A leader died while it applied a long turn: go on with that. */
static void apply_journal(struct ddpi_etcd_contents *contents)
{
    struct ddp_error why;
    contents->transaction = contents->load.meta.transaction;
    if (ddpi_etcd_load_journal(&contents->load, &contents->sending, &why) != DDP_OK) {
        unusable(contents, &why);
    } else {
        measure_sending(contents);
        send_chunk(contents);
    }
}

static void give_contents(struct ddpi_etcd_contents *contents)
{
    const struct ddpi_etcd_store_options *options = contents->common->options;
    uint8_t seed[DDPI_SEED_SIZE];
    struct ddp_error why;
    ddpi_token_random(seed, sizeof seed);
    ddpi_buf_consume(&contents->meta, ddpi_buf_len(&contents->meta));
    if (!ddpi_etcd_put_meta(&contents->meta, &contents->load.meta)) {
        ddpi_error_nomem(&why, sizeof contents->load.meta);
        contents->common->give_up(contents->common, &why);
        return;
    }
    if (contents->load.meta.journal > 0) {
        apply_journal(contents);
        return;
    }
    contents->has_batch = true;
    ddp_status status = ddpi_etcd_load_give(&contents->load, &contents->batch, seed,
                                            options->restore, options->ctx, &why);
    ddpi_etcd_load_finish(&contents->load);
    if (status != DDP_OK) {
        unusable(contents, &why);
        return;
    }
    contents->loaded = true;
    contents->last = contents->batch.meta;
    contents->transaction = contents->last.transaction;
    contents->common->event(contents->common, ETCD_LOADED);
}

static void load_page(struct ddpi_etcd_contents *contents);

/* Most failures take a while, and the lease decides for how long. What fails otherwise, as when
 * memory is short, may have failed within load_page(), so it is not tried for ever. */
static void page_failed(struct ddpi_etcd_contents *contents,
                        const struct ddpi_etcd_outcome *outcome)
{
    ddpi_etcd_complain(contents->common, outcome->err);
    if (outcome->status == DDP_E_TIMEOUT) {
        contents->failures = 0;
    } else if (++contents->failures >= MOST_FAILURES) {
        contents->common->give_up(contents->common, outcome->err);
        return;
    }
    (void)ddpi_etcd_load_shorten(&contents->load);
    load_page(contents);
}

/* No failure of a member: the next one would send as much. */
static void page_is_too_long(struct ddpi_etcd_contents *contents)
{
    struct ddp_error why;
    if (ddpi_etcd_load_shorten(&contents->load)) {
        load_page(contents);
        return;
    }
    ddpi_error_set(&why, DDP_E_PROTOCOL, "a record is too long");
    unusable(contents, &why);
}

static void on_page(struct ddpi_etcd_call *call, const struct ddpi_etcd_outcome *outcome)
{
    struct ddpi_etcd_contents *contents = call->ctx;
    struct ddp_error why;
    bool more = false;
    if (outcome->status != DDP_OK) {
        page_failed(contents, outcome);
        return;
    }
    contents->failures = 0;
    if (outcome->reply->code == DDPI_ETCD_EXHAUSTED) { /* ours, or that of a member */
        page_is_too_long(contents);
        return;
    }
    if (outcome->reply->code == DDPI_ETCD_RANGE) { /* compacted: begin anew */
        load_anew(contents);
        return;
    }
    ddp_status status = outcome->reply->code == DDPI_ETCD_OK
                            ? ddpi_etcd_load_take_page(&contents->load, outcome->reply, &more, &why)
                            : ddpi_etcd_judge(outcome, &why);
    if (status != DDP_OK) {
        unusable(contents, &why);
    } else if (more) {
        load_page(contents);
    } else {
        give_contents(contents);
    }
}

static void load_page(struct ddpi_etcd_contents *contents)
{
    /* What gRPC says of a message that is too long. */
    static const char too_long[] = "{\"code\":8,\"message\":\"the page is too long\"}";
    struct ddpi_etcd_call *call = &contents->call;
    struct ddp_error why;
    ddpi_etcd_fresh_call(call, "/v3/kv/range", on_page, contents);
    call->try_ms = LOAD_TRY_MS;
    call->total_ms = LOAD_TOTAL_MS;
    call->exchange.most = DDPI_ETCD_PAGE_MAX;
    call->exchange.instead = too_long;
    if (ddpi_etcd_load_put_request(&contents->load, &call->body)) {
        ddpi_etcd_call_begin(contents->common->client, call);
        return;
    }
    ddpi_error_nomem(&why, sizeof contents->common->root);
    contents->common->give_up(contents->common, &why);
}

static void load_anew(struct ddpi_etcd_contents *contents)
{
    ddpi_etcd_load_finish(&contents->load);
    ddpi_etcd_load_init(&contents->load, contents->common->root);
    load_page(contents);
}

void ddpi_etcd_contents_load(struct ddpi_etcd_contents *contents, uint64_t leader_revision)
{
    contents->leader_revision = leader_revision;
    load_anew(contents);
}

/* ---- opening and closing ---- */

void ddpi_etcd_contents_init(struct ddpi_etcd_contents *contents, struct ddpi_etcd_common *common)
{
    *contents = (struct ddpi_etcd_contents){.common = common};
    ddpi_list_init(&contents->sending);
    ddpi_buf_init(&contents->meta, DDPI_ETCD_VALUE_MAX);
    ddpi_buf_init(&contents->next_meta, DDPI_ETCD_VALUE_MAX);
    ddpi_etcd_call_init(&contents->call);
}

void ddpi_etcd_contents_finish(struct ddpi_etcd_contents *contents)
{
    ddpi_etcd_end_call(contents->common, &contents->call);
    contents->done.call = NULL;
    ddpi_etcd_load_finish(&contents->load);
    while (!ddpi_list_empty(&contents->sending))
        ddpi_etcd_chunk_free(first_chunk(contents));
    if (contents->has_batch)
        ddpi_etcd_batch_finish(&contents->batch);
    contents->has_batch = false;
    ddpi_buf_finish(&contents->meta);
    ddpi_buf_finish(&contents->next_meta);
}
