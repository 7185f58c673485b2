/*
 * test_etcd_sink.c - what is written to etcd is what SQLite would keep: random requests to a core
 * go to both, and both give back the same. A turn of several transactions is one, wherever it is
 * interrupted. etcd is a list of keys here, with etcd's rules.
 */
#include "check_main.h"
#include "etcd_load.h"
#include "kv_fixture.h"
#include "sqlite_sink.h"

#include <ddprun/store.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 6, SESSIONS = 64, STEPS = 300, ROUNDS = 5, PICTURE = 1024 * 1024, RECORDS = 4096 };

#define ROOT "/test/v1/"

/* --- a model of etcd --- */

static struct model_key {
    char *key, *value;
    size_t key_len, value_len;
} model[RECORDS];
static size_t nmodel;
static uint64_t revision;

static size_t model_find(const uint8_t *key, size_t len)
{
    size_t i = 0;
    while (i < nmodel && (model[i].key_len != len || memcmp(model[i].key, key, len) != 0))
        i++;
    return i;
}

static void model_remove(size_t i)
{
    free(model[i].key);
    free(model[i].value);
    model[i] = model[--nmodel];
}

static char *copy_of(const void *bytes, size_t len)
{
    char *copy = malloc(len + 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, bytes, len);
    return copy;
}

static void model_put(const uint8_t *key, size_t key_len, const uint8_t *value, size_t value_len)
{
    size_t i = model_find(key, key_len);
    if (i < nmodel)
        model_remove(i);
    ck_assert_uint_lt(nmodel, RECORDS);
    model[nmodel++] =
        (struct model_key){copy_of(key, key_len), copy_of(value, value_len), key_len, value_len};
}

static void model_put_meta(const struct ddpi_etcd_meta *meta)
{
    struct ddpi_buf buf;
    ddpi_buf_init(&buf, 1024);
    ck_assert(ddpi_etcd_put_meta(&buf, meta));
    model_put((const uint8_t *)ROOT "meta", strlen(ROOT "meta"), ddpi_buf_head(&buf),
              ddpi_buf_len(&buf));
    ddpi_buf_finish(&buf);
}

static void model_clear(void)
{
    while (nmodel > 0)
        model_remove(nmodel - 1);
}

static void model_forget(uint64_t version)
{
    struct ddpi_etcd_record record;
    for (size_t i = nmodel; i-- > 0;)
        if (model[i].key[strlen(ROOT)] == 'h' &&
            ddpi_etcd_get_record(
                ddpi_bytes_of(model[i].key + strlen(ROOT), model[i].key_len - strlen(ROOT)),
                ddpi_bytes_of(model[i].value, model[i].value_len), &record, NULL) == DDP_OK &&
            record.mutation.version <= version)
            model_remove(i);
}

/* One transaction, and etcd's limits on it. */
static void model_apply(const struct ddpi_etcd_chunk *chunk)
{
    ck_assert_uint_le(chunk->count + 1 + (chunk->forget > 0), 128);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct ddpi_etcd_chunk_op *op = &chunk->ops[i];
        for (size_t k = 0; k < i; k++)
            ck_assert(chunk->ops[k].key_len != op->key_len ||
                      memcmp(chunk->ops[k].bytes, op->bytes, op->key_len) != 0);
        size_t at = model_find(op->bytes, op->key_len);
        if (!op->deletes)
            model_put(op->bytes, op->key_len, op->bytes + op->key_len, op->value_len);
        else if (at < nmodel)
            model_remove(at);
    }
    model_forget(chunk->forget);
    model_put_meta(&chunk->meta);
    revision++;
}

static int compare_model(const void *a, const void *b)
{
    const struct model_key *left = a, *right = b;
    return ddpi_bytes_compare(ddpi_bytes_of(left->key, left->key_len),
                              ddpi_bytes_of(right->key, right->key_len));
}

/* The answer of etcd to the request for a page of @limit keys from @cursor. */
static void model_answer(struct ddpi_bytes cursor, uint32_t limit, struct ddpi_buf *ret)
{
    uint32_t count = 0;
    char header[80];
    snprintf(header, sizeof header, "{\"header\":{\"revision\":\"%" PRIu64 "\"},\"kvs\":[",
             revision);
    ck_assert(ddpi_etcd_put_text(ret, header));
    qsort(model, nmodel, sizeof *model, compare_model);
    for (size_t i = 0; i < nmodel && count < limit; i++) {
        const struct ddpi_bytes key = ddpi_bytes_of(model[i].key, model[i].key_len);
        if (ddpi_bytes_compare(key, cursor) < 0)
            continue;
        ck_assert(
            ddpi_etcd_put_text(ret, count++ > 0 ? ",{" : "{") &&
            ddpi_etcd_put_bytes(ret, "key", key) && ddpi_etcd_put_text(ret, ",") &&
            ddpi_etcd_put_bytes(ret, "value", ddpi_bytes_of(model[i].value, model[i].value_len)) &&
            ddpi_etcd_put_text(ret, "}"));
    }
    ck_assert(ddpi_etcd_put_text(ret, "]}\n"));
}

/* --- both sinks --- */

static char folder[PATH_MAX], path[PATH_MAX + 8];
static struct ddpi_sqlite_sink *state;
static struct ddpi_etcd_batch batch;
static struct ddp_error why;
static struct ddpi_sink sink;
static const uint8_t seed_of_tables[DDPI_SEED_SIZE] = {42};

#define OK(call) ck_assert_msg((call) == DDP_OK, "%s", why.msg)

static void on_both(void *ctx, const struct ddpi_mutation *mutation)
{
    (void)ctx;
    sink.change(sink.ctx, mutation);
    OK(ddpi_etcd_batch_change(&batch, mutation, &why));
}

static void on_committed(void *ctx, const struct ddp_error *failure)
{
    (void)ctx;
    ck_assert_msg(failure == NULL, "%s", failure != NULL ? failure->msg : "");
}

static void write_mutation(char **at, const char *end, const struct ddpi_mutation *mutation)
{
    *at += snprintf(*at, (size_t)(end - *at),
                    "%d '%.*s' '%.*s' v%" PRIu64 " s%" PRIu64 " n%" PRIu64 " l%" PRIu32 "\n",
                    (int)mutation->kind, (int)mutation->key.len, (const char *)mutation->key.data,
                    mutation->kind == DDPI_MUTATION_SESSION_OPEN ? 0 : (int)mutation->value.len,
                    mutation->value.len > 0 ? (const char *)mutation->value.data : "",
                    mutation->version, mutation->session, mutation->number, mutation->lease_ms);
    ck_assert(*at < end - 1);
}

struct picture {
    char *at;
    bool restores;
    char text[PICTURE];
};

static ddp_status take(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    struct picture *picture = ctx;
    write_mutation(&picture->at, picture->text + PICTURE, mutation);
    return picture->restores ? ddpi_kv_restore(kv, mutation, now, err) : DDP_OK;
}

static void load_pages(struct ddpi_etcd_load *load)
{
    struct ddpi_etcd_reply reply;
    struct ddpi_buf text, request;
    bool more = true;
    ddpi_etcd_load_init(load, ROOT);
    load->limit = 3; /* several pages */
    while (more) {
        ddpi_buf_init(&text, 64 << 20);
        ddpi_buf_init(&request, 1 << 20);
        ck_assert(ddpi_etcd_load_put_request(load, &request));
        model_answer(ddpi_bytes_of(ddpi_buf_head(&load->cursor), ddpi_buf_len(&load->cursor)),
                     load->limit, &text);
        OK(ddpi_etcd_reply_parse(ddpi_bytes_of(ddpi_buf_head(&text), ddpi_buf_len(&text)), &reply,
                                 &why));
        OK(ddpi_etcd_load_take_page(load, &reply, &more, &why));
        ddpi_etcd_reply_finish(&reply);
        ddpi_buf_finish(&text);
        ddpi_buf_finish(&request);
    }
}

/* At most @most of them; the others are forgotten, as by a leader that dies. */
static size_t apply_chunks(struct ddpi_list *chunks, size_t most)
{
    size_t count = 0;
    while (!ddpi_list_empty(chunks)) {
        struct ddpi_etcd_chunk *chunk =
            ddpi_container_of(chunks->next, struct ddpi_etcd_chunk, of_batch);
        if (count++ < most)
            model_apply(chunk);
        ddpi_etcd_chunk_free(chunk);
    }
    return count;
}

static struct ddpi_mark load_etcd(struct picture *picture, struct ddpi_etcd_batch *ret)
{
    struct ddpi_etcd_load load;
    struct ddpi_list chunks;
    load_pages(&load);
    if (load.meta.journal > 0) {
        ddpi_list_init(&chunks);
        OK(ddpi_etcd_load_journal(&load, &chunks, &why));
        ddpi_etcd_load_finish(&load);
        apply_chunks(&chunks, SIZE_MAX);
        load_pages(&load);
        ck_assert_uint_eq(load.meta.journal, 0);
    }
    OK(ddpi_etcd_load_give(&load, ret, seed_of_tables, take, picture, &why));
    struct ddpi_mark mark = load.meta.mark;
    ddpi_etcd_load_finish(&load);
    return mark;
}

/* SQLite's file is opened anew, since opening deletes what deletions in progress cover. */
static void assert_same(void)
{
    static struct picture ours, theirs;
    struct ddpi_etcd_batch other;
    struct ddpi_mark mark;
    ours = (struct picture){.at = ours.text};
    theirs = (struct picture){.at = theirs.text};
    ddpi_sqlite_sink_close(state);
    OK(ddpi_sqlite_sink_open(path, &state, &why));
    sink = ddpi_sqlite_sink_hooks(state);
    OK(ddpi_sqlite_sink_load(state, take, &theirs, &mark, &why));
    const struct ddpi_mark got = load_etcd(&ours, &other);
    ddpi_etcd_batch_finish(&other);
    ck_assert_str_eq(ours.text, theirs.text);
    ck_assert_uint_eq(got.version, mark.version);
    ck_assert_int_eq(got.remembers, mark.remembers);
    if (mark.remembers)
        ck_assert_uint_eq(got.floor, mark.floor);
}

/* What the last commit left. */
static struct ddpi_etcd_meta committed;

static size_t commit_some(size_t most)
{
    const struct ddpi_mark mark = ddpi_kv_mark(kv);
    struct ddpi_list chunks;
    sink.commit(sink.ctx, &mark, (struct ddpi_committed){on_committed, NULL});
    ddpi_list_init(&chunks);
    OK(ddpi_etcd_batch_take(&batch, &mark, &chunks, &why));
    OK(ddpi_etcd_journal_wrap(ROOT, &committed, &chunks, &why));
    committed = batch.meta;
    return apply_chunks(&chunks, most);
}

static void commit(void)
{
    commit_some(SIZE_MAX);
}

/* --- lives --- */

struct token {
    char bytes[DDPI_SESSION_SIZE];
};
static struct token tokens[SESSIONS];
static size_t ntokens;

static void both_setup(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_etcd.XXXXXX", tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    state = NULL;
    ntokens = 0;
    revision = 1;
    model_put_meta(&(struct ddpi_etcd_meta){.mark.incarnation = 7});
}

static void both_teardown(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    model_clear();
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char file[sizeof path + 16];
        snprintf(file, sizeof file, "%s%s", path, suffixes[i]);
        unlink(file);
    }
    ck_assert_int_eq(rmdir(folder), 0);
}

static void begin(const struct ddpi_kv_limits *limits)
{
    static struct picture picture;
    picture = (struct picture){.at = picture.text, .restores = true};
    kv_make(limits);
    OK(ddpi_sqlite_sink_open(path, &state, &why));
    sink = ddpi_sqlite_sink_hooks(state);
    const struct ddpi_mark mark = load_etcd(&picture, &batch);
    committed = batch.meta;
    ddpi_kv_restore_mark(kv, &mark, now);
    ddpi_kv_set_sink(kv, on_both, NULL);
}

static void end(void)
{
    ddpi_kv_set_sink(kv, NULL, NULL);
    ddpi_etcd_batch_finish(&batch);
    ddpi_sqlite_sink_close(state);
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_gone(kv, &clients[i]);
    ddpi_kv_destroy(kv);
}

static void open_session(void)
{
    if (ntokens == SESSIONS)
        return;
    struct got *got = call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 1000000});
    ck_assert_int_eq(got->status, DDP_OK);
    memcpy(tokens[ntokens++].bytes, got->value, DDPI_SESSION_SIZE);
}

static void detach(int key)
{
    char prefix[8] = "k";
    if (key > 0) /* else all */
        snprintf(prefix, sizeof prefix, "k%d", key);
    ddpi_kv_detach(kv, bytes(prefix));
}

static void random_step(unsigned *seed)
{
    static const enum ddpi_op ops[] = {DDPI_OP_SET,    DDPI_OP_SET,  DDPI_OP_APPEND, DDPI_OP_ADD,
                                       DDPI_OP_DELETE, DDPI_OP_PUSH, DDPI_OP_PUSH,   DDPI_OP_POP};
    char value[16];
    int key = rand_r(seed) % KEYS, which = rand_r(seed) % 14;
    size_t token = ntokens > 0 ? (size_t)rand_r(seed) % ntokens : 0;
    bool seldom = rand_r(seed) % 4 == 0;
    snprintf(value, sizeof value, "%d", rand_r(seed) % 1000);
    if (which < 8)
        ask_key(ops[which], key, ops[which] == DDPI_OP_ADD ? "" : value, 3);
    else if (which == 8 && seldom)
        detach(key);
    else if (which == 9) {
        ddpi_kv_grant_work(kv);
        ddpi_kv_work(kv, now);
    } else if (which == 10 && seldom)
        open_session();
    else if (which < 13 && ntokens > 0)
        ask_session(DDPI_OP_SET_EPHEMERAL, tokens[token].bytes, key, value);
    else if (which == 13 && ntokens > 0 && seldom)
        ask_session(DDPI_OP_SESSION_CLOSE, tokens[token].bytes, key, "");
}

static void live(unsigned seed, const struct ddpi_kv_limits *limits, unsigned turn)
{
    for (int life = 0; life < 3; life++) {
        begin(limits);
        if (seed % 2 == 1)
            ask(2, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX});
        for (int i = 0; i < STEPS; i++) {
            random_step(&seed);
            if ((unsigned)rand_r(&seed) % turn == 0)
                commit();
        }
        commit();
        assert_same();
        end();
    }
}

static void live_with(unsigned seed, const struct ddpi_kv_limits *limits, unsigned turn)
{
    both_setup();
    live(seed, limits, turn);
    both_teardown();
}

START_TEST(both_keep_the_same)
{
    for (unsigned seed = 1; seed <= ROUNDS; seed++)
        live_with(seed, &ddpi_kv_limits_default, 5);
}
END_TEST

/* Turns with more changes than one transaction takes. */
START_TEST(long_turns)
{
    for (unsigned seed = 50; seed < 50 + ROUNDS; seed++)
        live_with(seed, &ddpi_kv_limits_default, 400);
}
END_TEST

START_TEST(deletions_in_progress)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    for (unsigned seed = 100; seed < 100 + ROUNDS; seed++) {
        limits.turn_work = 1 + seed % 3;
        live_with(seed, &limits, 5);
    }
}
END_TEST

START_TEST(a_history_that_forgets)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.history_changes = 10;
    live_with(4711, &limits, 5);
    limits.history_bytes = 5;
    live_with(4713, &limits, 50);
}
END_TEST

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text != '\0'; text++)
        lines += *text == '\n';
    return lines;
}

/* Die after @steps transactions of a long turn; how many keys the next leader has, and how many
 * transactions the turn had. */
static size_t keys_after(size_t steps, size_t *ret_steps)
{
    enum { SETS = 400 };
    static struct picture picture;
    struct ddpi_etcd_batch other;
    both_setup();
    begin(&ddpi_kv_limits_default);
    set("before", "x");
    commit();
    for (int i = 0; i < SETS; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        set(name, "x");
    }
    *ret_steps = commit_some(steps);
    picture = (struct picture){.at = picture.text};
    const struct ddpi_mark mark = load_etcd(&picture, &other);
    ddpi_etcd_batch_finish(&other);
    size_t keys = count_lines(picture.text);
    ck_assert_uint_eq(mark.version, keys); /* one for each key */
    ck_assert(keys == 1 || keys == 1 + SETS);
    end();
    both_teardown();
    return keys;
}

START_TEST(a_long_turn_is_one)
{
    size_t steps = 0, count = 0, whole = 0;
    for (; steps == 0 || steps <= count; steps++) {
        size_t keys = keys_after(steps, &count);
        ck_assert(keys > 1 || whole == 0); /* once it is complete it stays */
        whole += keys > 1;
    }
    ck_assert_uint_eq(count, 4 + 1 + 4); /* written, complete, applied */
    ck_assert_uint_eq(whole, 4 + 1);
}
END_TEST

START_TEST(what_is_too_long_is_refused)
{
    static char large[DDPI_ETCD_VALUE_MAX + 1];
    const struct ddpi_mutation mutation = {
        .kind = DDPI_MUTATION_SET, .key = {"k", 1}, .value = {large, sizeof large}, .version = 1};
    ddpi_etcd_batch_init(&batch, ROOT, &(struct ddpi_etcd_meta){0}, seed_of_tables);
    ck_assert_int_eq(ddpi_etcd_batch_change(&batch, &mutation, &why), DDP_E_LIMIT);
    ddpi_etcd_batch_finish(&batch);
}
END_TEST

static ddp_status get_record(const char *rest, const char *value, size_t len)
{
    struct ddpi_etcd_record record;
    return ddpi_etcd_get_record(bytes(rest), ddpi_bytes_of(value, len), &record, &why);
}

START_TEST(damaged_records_are_named)
{
    ck_assert_int_eq(get_record("k/a", "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17), DDP_OK);
    ck_assert_int_eq(get_record("k/a", "\1\0\0", 3), DDP_E_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(why.msg, "'k/a'"));
    ck_assert_int_eq(get_record("k/a", "\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 17), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("s/12", "\1\0\0\0\0", 5), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("z/0000000000000001", "\1", 1), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("q/000000000000000G", "\1\0\0\0\0", 5), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("q/0000000000000001", "\1\5\0\0\0a", 6), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("h/0000000000000001", "\1\3\0\0\0\0", 6), DDP_E_PROTOCOL);
    ck_assert_int_eq(get_record("", "", 0), DDP_E_PROTOCOL);
    struct ddpi_etcd_meta meta;
    ck_assert_int_eq(ddpi_etcd_get_meta(bytes("\2"), &meta, &why), DDP_E_PROTOCOL);
    ck_assert_int_eq(ddpi_etcd_get_meta(bytes(""), &meta, &why), DDP_E_PROTOCOL);
}
END_TEST

START_TEST(pages_fit)
{
    struct ddpi_etcd_load load = {.limit = ddpi_etcd_load_next_limit(9000, 9000)};
    const size_t longest = DDPI_ETCD_VALUE_MAX / 3 * 4;
    ck_assert_uint_eq(load.limit, 128);
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(1, DDPI_ETCD_VALUE_MAX), 4);
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(1, 1 << 30), 1);
    ck_assert_uint_eq(ddpi_etcd_load_next_limit(64, 64 * 30000), 104); /* of 40000 bytes each */
    /* Only the longest values, after only short ones. */
    ck_assert(ddpi_etcd_load_shorten(&load));
    ck_assert_uint_lt(load.limit * longest, DDPI_ETCD_PAGE_MAX);
    while (load.limit > 1)
        ck_assert(ddpi_etcd_load_shorten(&load));
    ck_assert(!ddpi_etcd_load_shorten(&load));
    ck_assert_uint_eq(load.limit, 1);
}
END_TEST

static void change(const char *key, const char *value, size_t len)
{
    const struct ddpi_mutation mutation = {.kind = DDPI_MUTATION_SET,
                                           .key = bytes(key),
                                           .value = ddpi_bytes_of(value, len),
                                           .version = 1};
    OK(ddpi_etcd_batch_change(&batch, &mutation, &why));
}

START_TEST(what_waits_is_counted)
{
    static char large[DDPI_ETCD_VALUE_MAX];
    const struct ddpi_mark mark = {.version = 1};
    struct ddpi_list chunks;
    size_t taken = 0;
    char key[8];
    ddpi_etcd_batch_init(&batch, ROOT, &(struct ddpi_etcd_meta){0}, seed_of_tables);
    ck_assert_uint_eq(ddpi_etcd_batch_size(&batch), 0);
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "k%d", i);
        change(key, large, sizeof large);
        ck_assert_uint_gt(ddpi_etcd_batch_size(&batch), (size_t)(i + 1) * sizeof large);
    }
    change("s", "1", 1);
    size_t size = ddpi_etcd_batch_size(&batch);
    change("s", "2", 1); /* in its place */
    ck_assert_uint_eq(ddpi_etcd_batch_size(&batch), size);
    ddpi_list_init(&chunks);
    OK(ddpi_etcd_batch_take(&batch, &mark, &chunks, &why));
    ck_assert_uint_eq(ddpi_etcd_batch_size(&batch), 0);
    while (!ddpi_list_empty(&chunks)) {
        struct ddpi_etcd_chunk *chunk =
            ddpi_container_of(chunks.next, struct ddpi_etcd_chunk, of_batch);
        taken += ddpi_etcd_chunk_size(chunk);
        ddpi_etcd_chunk_free(chunk);
    }
    ck_assert_uint_eq(taken, size);
    ddpi_etcd_batch_finish(&batch);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("etcd_sink");
    TCase *group = tcase_create("both");
    ADD_TESTS(group, both_keep_the_same, long_turns, deletions_in_progress, a_history_that_forgets,
              a_long_turn_is_one, what_is_too_long_is_refused, damaged_records_are_named, pages_fit,
              what_waits_is_counted);
    suite_add_tcase(suite, group);
    return suite;
}
