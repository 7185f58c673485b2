/*
 * kv_fixture.c - the core under test, its clients, and the replies they got.
 */
#include "kv_fixture.h"

#include "check_main.h"

#include <stdio.h>
#include <string.h>

struct ddpi_kv *kv;
struct ddpi_kv_client clients[CLIENTS];
struct got replies[REPLIES_MAX];
size_t nreplies;
uint64_t now;
static const uint8_t seed[DDPI_SEED_SIZE] = {1};

static void copy_text(char *to, size_t size, struct ddpi_bytes from)
{
    size_t len = from.len < size - 1 ? from.len : size - 1;
    if (len > 0)
        memcpy(to, from.data, len);
    to[len] = '\0';
}

static void record(void *ctx, struct ddpi_kv_client *client, const struct ddpi_message *reply)
{
    ck_assert_ptr_eq(ctx, &kv);
    ck_assert_uint_lt(nreplies, REPLIES_MAX);
    struct got *got = &replies[nreplies++];
    *got = (struct got){.client = (int)(client - clients),
                        .id = reply->id,
                        .version = reply->version,
                        .status = reply->status,
                        .number = reply->number,
                        .count = reply->keys.count};
    copy_text(got->value, sizeof got->value, reply->value);
    copy_text(got->text, sizeof got->text, reply->text);
    if (reply->op == DDPI_OP_LIST) { /* as "a,b,c" */
        struct ddpi_keys keys = reply->keys;
        struct ddpi_bytes key;
        size_t used = 0;
        while (ddpi_keys_next(&keys, &key) && used + key.len + 2 < sizeof got->text)
            used += (size_t)snprintf(got->text + used, sizeof got->text - used, "%s%.*s",
                                     used > 0 ? "," : "", (int)key.len, (const char *)key.data);
    }
    if (reply->op == DDPI_OP_SESSION_OPEN)
        copy_text(got->value, sizeof got->value, reply->session);
    if (reply->op == DDPI_OP_WATCH && reply->status == DDP_OK)
        copy_text(got->text, sizeof got->text, reply->key);
    if (got->status != DDP_OK)
        ck_assert_str_ne(got->text, "");
}

void kv_make(const struct ddpi_kv_limits *limits)
{
    kv = ddpi_kv_create(limits, seed, record, &kv);
    ck_assert_ptr_nonnull(kv);
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_init(&clients[i]);
    nreplies = 0;
    now = 1000;
}

void kv_setup(void)
{
    kv_make(&ddpi_kv_limits_default);
}

static bool no_job(void *ctx, const struct ddpi_kv_use *use)
{
    (void)ctx;
    ck_abort_msg("'%.*s' still has an account", (int)use->job.len, (const char *)use->job.data);
    return false;
}

void kv_teardown(void)
{
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_gone(kv, &clients[i]);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).watches, 0);
    do {
        ddpi_kv_grant_work(kv);
        ddpi_kv_expire(kv, UINT64_MAX); /* all leases */
        ddpi_kv_work(kv, now);
    } while (ddpi_kv_has_work(kv) || ddpi_kv_stats(kv).sessions > 0);
    ddpi_kv_delete_prefix(kv, ddpi_bytes_of("", 0));
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0); /* whatever happened, all accounts are even */
    ddpi_kv_each_job(kv, no_job, NULL);
    ddpi_kv_destroy(kv);
}

struct ddpi_bytes bytes(const char *text)
{
    return ddpi_bytes_of(text, strlen(text));
}

void ask(int client, struct ddpi_message request)
{
    ddpi_kv_apply(kv, &clients[client], &request, now);
}

struct got *last(void)
{
    ck_assert_uint_gt(nreplies, 0);
    return &replies[nreplies - 1];
}

/* Ask, and expect one answer at once. */
struct got *call(int client, struct ddpi_message request)
{
    size_t before = nreplies;
    ask(client, request);
    ck_assert_uint_eq(nreplies, before + 1);
    ck_assert_uint_eq(last()->id, request.id);
    return last();
}

struct got *set(const char *key, const char *value)
{
    size_t before = nreplies;
    ask(0, (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes(key), .value = bytes(value)});
    ck_assert_uint_gt(nreplies,
                      before); /* its own comes last, after those of the waiting requests */
    return last();
}

struct got *try_get(const char *key)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_TRY_GET, .key = bytes(key)});
}

struct got *drop_key(const char *key)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_DELETE, .key = bytes(key)});
}

struct got *transact(const struct ddpi_clause *clauses, uint32_t count)
{
    struct ddpi_buf packed;
    ddpi_buf_init(&packed, 1 << 20);
    for (uint32_t i = 0; i < count; i++)
        ck_assert(ddpi_clauses_put(&packed, &clauses[i]));
    size_t before = nreplies;
    ask(0,
        (struct ddpi_message){.op = DDPI_OP_TRANSACT,
                              .clauses = {ddpi_buf_head(&packed), ddpi_buf_len(&packed), count}});
    ck_assert_uint_gt(nreplies, before);
    ddpi_buf_finish(&packed);
    return last();
}

void get(int client, uint64_t id, const char *key, uint32_t timeout_ms)
{
    ask(client, (struct ddpi_message){
                    .op = DDPI_OP_GET, .id = id, .key = bytes(key), .timeout_ms = timeout_ms});
}

void barrier(int client, uint64_t id, const char *name, uint32_t count, uint32_t timeout_ms)
{
    ask(client, (struct ddpi_message){.op = DDPI_OP_BARRIER,
                                      .id = id,
                                      .key = bytes(name),
                                      .count = count,
                                      .timeout_ms = timeout_ms});
}

/* @names: one letter per key. */
void wait_keys(int client, uint64_t id, const char *names, uint32_t timeout_ms)
{
    struct ddpi_buf packed;
    ddpi_buf_init(&packed, 1 << 20);
    for (const char *name = names; *name != '\0'; name++)
        ck_assert(ddpi_keys_put(&packed, ddpi_bytes_of(name, 1)));
    ask(client, (struct ddpi_message){.op = DDPI_OP_WAIT,
                                      .id = id,
                                      .keys = {ddpi_buf_head(&packed), ddpi_buf_len(&packed),
                                               (uint32_t)strlen(names), false},
                                      .timeout_ms = timeout_ms});
    ddpi_buf_finish(&packed);
}

/* About key number @key, whose name is put into @name. */
static struct ddpi_message about_key(enum ddpi_op op, int key, const char *value, char name[8])
{
    int len = snprintf(name, 8, "k%d", key);
    return (struct ddpi_message){
        .op = op, .id = 7, .key = ddpi_bytes_of(name, (size_t)len), .value = bytes(value)};
}

void ask_key(enum ddpi_op op, int key, const char *value, int64_t number)
{
    char name[8];
    struct ddpi_message message = about_key(op, key, value, name);
    message.number = number;
    nreplies = 0;
    ask(0, message);
}

void ask_session(enum ddpi_op op, const char *token, int key, const char *value)
{
    char name[8];
    struct ddpi_message message = about_key(op, key, value, name);
    message.session = ddpi_bytes_of(token, DDPI_SESSION_SIZE);
    nreplies = 0;
    ask(0, message);
}
