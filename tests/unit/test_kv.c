/*
 * test_kv.c - the key-value core with fake time: every operation, waits, barriers, deadlines,
 * limits; then thousands of random steps against a naive model. KV_SEED repeats a run.
 */
#include "check_main.h"
#include "kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 4, REPLIES_MAX = 4096, TEXT_MAX = 600 };

struct got {
    int client;
    uint64_t id, version;
    ddp_status status;
    int64_t number;
    char value[64], text[TEXT_MAX];
    uint32_t count; /* of keys */
};

static struct ddpi_kv *kv;
static struct ddpi_kv_client clients[CLIENTS];
static struct got replies[REPLIES_MAX];
static size_t nreplies;
static uint64_t now;
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
    if (got->status != DDP_OK)
        ck_assert_str_ne(got->text, "");
}

static void make(const struct ddpi_kv_limits *limits)
{
    kv = ddpi_kv_create(limits, seed, record, &kv);
    ck_assert_ptr_nonnull(kv);
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_init(&clients[i]);
    nreplies = 0;
    now = 1000;
}

static void setup(void)
{
    make(&ddpi_kv_limits_default);
}

static void teardown(void)
{
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_gone(kv, &clients[i]);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 0);
    ddpi_kv_delete_prefix(kv, ddpi_bytes_of("", 0));
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 0);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0); /* whatever happened, the account is even */
    ddpi_kv_destroy(kv);
}

static struct ddpi_bytes bytes(const char *text)
{
    return ddpi_bytes_of(text, strlen(text));
}

static void ask(int client, struct ddpi_message request)
{
    ddpi_kv_apply(kv, &clients[client], &request, now);
}

static struct got *last(void)
{
    ck_assert_uint_gt(nreplies, 0);
    return &replies[nreplies - 1];
}

/* Ask, and expect one answer at once. */
static struct got *call(int client, struct ddpi_message request)
{
    size_t before = nreplies;
    ask(client, request);
    ck_assert_uint_eq(nreplies, before + 1);
    ck_assert_uint_eq(last()->id, request.id);
    return last();
}

static struct got *set(const char *key, const char *value)
{
    size_t before = nreplies;
    ask(0, (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes(key), .value = bytes(value)});
    ck_assert_uint_gt(nreplies, before); /* its own comes last, after those of who waited */
    return last();
}

static struct got *try_get(const char *key)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_TRY_GET, .key = bytes(key)});
}

static struct got *drop_key(const char *key)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_DELETE, .key = bytes(key)});
}

static void get(int client, uint64_t id, const char *key, uint32_t timeout_ms)
{
    ask(client, (struct ddpi_message){
                    .op = DDPI_OP_GET, .id = id, .key = bytes(key), .timeout_ms = timeout_ms});
}

static void barrier(int client, uint64_t id, const char *name, uint32_t count, uint32_t timeout_ms)
{
    ask(client, (struct ddpi_message){.op = DDPI_OP_BARRIER,
                                      .id = id,
                                      .key = bytes(name),
                                      .count = count,
                                      .timeout_ms = timeout_ms});
}

/* @names: one letter per key. */
static void wait_keys(int client, uint64_t id, const char *names, uint32_t timeout_ms)
{
    struct ddpi_buf packed;
    ddpi_buf_init(&packed, 1 << 20);
    for (const char *name = names; *name != '\0'; name++)
        ck_assert(ddpi_keys_put(&packed, ddpi_bytes_of(name, 1)));
    ask(client, (struct ddpi_message){.op = DDPI_OP_WAIT,
                                      .id = id,
                                      .keys = {ddpi_buf_head(&packed), ddpi_buf_len(&packed),
                                               (uint32_t)strlen(names)},
                                      .timeout_ms = timeout_ms});
    ddpi_buf_finish(&packed);
}

START_TEST(set_and_get)
{
    ck_assert_int_eq(try_get("a")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(set("a", "1")->version, 1);
    ck_assert_uint_eq(set("b", "2")->version, 2);
    ck_assert_uint_eq(set("a", "three")->version, 3);
    ck_assert_str_eq(try_get("a")->value, "three");
    ck_assert_uint_eq(last()->version, 3);
    get(0, 5, "b", 0);
    ck_assert_str_eq(last()->value, "2");
    ck_assert_int_eq(set("", "")->status, DDP_OK); /* empty key, empty value */
    ck_assert_int_eq(try_get("")->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 3);
}
END_TEST

START_TEST(delete_and_prefix)
{
    ck_assert_int_eq(drop_key("a")->status, DDP_E_NOT_FOUND);
    set("g1/a", "x");
    set("g1/b", "x");
    set("g2/a", "x");
    ck_assert_int_eq(drop_key("g1/a")->status, DDP_OK);
    ck_assert_int_eq(drop_key("g1/a")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("g1/")), 1);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("g1/")), 0);
    ck_assert_int_eq(try_get("g2/a")->status, DDP_OK);
    uint64_t before = ddpi_kv_stats(kv).version;
    ck_assert_uint_eq(set("new", "x")->version, before + 1);
}
END_TEST

static struct got *add(const char *key, int64_t delta)
{
    return call(0, (struct ddpi_message){.op = DDPI_OP_ADD, .key = bytes(key), .number = delta});
}

START_TEST(add_keeps_decimal_text)
{
    ck_assert_int_eq(add("n", 5)->number, 5);
    ck_assert_int_eq(add("n", -7)->number, -2);
    ck_assert_str_eq(try_get("n")->value, "-2");
    set("n", "9223372036854775806");
    ck_assert_int_eq(add("n", 1)->number, INT64_MAX);
    ck_assert_int_eq(add("n", 1)->status, DDP_E_TYPE);
    ck_assert_str_eq(try_get("n")->value, "9223372036854775807");
    ck_assert_int_eq(add("m", INT64_MIN)->number, INT64_MIN);
    ck_assert_int_eq(add("m", -1)->status, DDP_E_TYPE);
    static const char *const bad[] = {"", " 1", "1 ", "0x1", "1.5", "+1", "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set("t", bad[i]);
        ck_assert_int_eq(add("t", 1)->status, DDP_E_TYPE);
        ck_assert_str_eq(try_get("t")->value, bad[i]);
    }
    call(0, (struct ddpi_message){.op = DDPI_OP_SET, .key = bytes("t"), .value = {"1\0", 2}});
    ck_assert_int_eq(add("t", 1)->status, DDP_E_TYPE);
}
END_TEST

static struct got *cas(const char *key, uint64_t version, const char *value)
{
    return call(
        0, (struct ddpi_message){
               .op = DDPI_OP_CAS, .key = bytes(key), .version = version, .value = bytes(value)});
}

START_TEST(compare_and_swap)
{
    ck_assert_int_eq(cas("a", 9, "x")->status, DDP_E_CONFLICT);
    ck_assert_uint_eq(last()->version, 0);
    uint64_t first = cas("a", 0, "x")->version;
    ck_assert_uint_gt(first, 0);
    ck_assert_int_eq(cas("a", 0, "y")->status, DDP_E_CONFLICT);
    ck_assert_uint_eq(last()->version, first);
    ck_assert_int_eq(cas("a", first, "y")->status, DDP_OK);
    ck_assert_int_eq(cas("a", first, "z")->status, DDP_E_CONFLICT);
    ck_assert_str_eq(try_get("a")->value, "y");
    drop_key("a");
    ck_assert_int_eq(cas("a", 0, "again")->status, DDP_OK);
}
END_TEST

START_TEST(list_is_sorted_by_bytes)
{
    static const char *const names[] = {"b", "a10", "a9", "a", "\xff", "a/", "A"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        set(names[i], "x");
    struct ddpi_message list = {.op = DDPI_OP_LIST, .key = bytes("")};
    ck_assert_str_eq(call(0, list)->text, "A,a,a/,a10,a9,b,\xff");
    list.key = bytes("a");
    ck_assert_str_eq(call(0, list)->text, "a,a/,a10,a9");
    list.key = bytes("zz");
    ck_assert_uint_eq(call(0, list)->count, 0);
    get(1, 1, "awaited", 10); /* waited for is not there */
    list.key = bytes("aw");
    ck_assert_uint_eq(call(0, list)->count, 0);
}
END_TEST

START_TEST(a_get_waits)
{
    get(1, 11, "k", 100);
    get(2, 22, "k", 50);
    ck_assert_uint_eq(nreplies, 0);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 50);
    set("other", "x");
    ck_assert_uint_eq(nreplies, 1);
    set("k", "v");
    ck_assert_uint_eq(nreplies, 4);
    ck_assert(replies[1].client == 1 && replies[1].id == 11); /* in order of arrival */
    ck_assert(replies[2].client == 2 && replies[2].id == 22);
    ck_assert_str_eq(replies[2].value, "v");
    ck_assert_uint_eq(replies[2].version, 2);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), UINT64_MAX);
}
END_TEST

START_TEST(deadlines)
{
    get(1, 1, "k", 100);
    wait_keys(2, 2, "xyz", 30);
    get(3, 3, "k", 0); /* looks once */
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
    ck_assert_uint_eq(nreplies, 1);
    set("y", "1");
    ddpi_kv_expire(kv, now + 29);
    ck_assert_uint_eq(nreplies, 2);
    ddpi_kv_expire(kv, now + 30);
    ck_assert_uint_eq(nreplies, 3);
    ck_assert_uint_eq(last()->id, 2);
    ck_assert_ptr_nonnull(strstr(last()->text, "2 of 3 keys"));
    ck_assert_ptr_nonnull(strstr(last()->text, "'x'"));
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 100);
    ddpi_kv_expire(kv, now + 1000);
    ck_assert_uint_eq(last()->id, 1);
    set("k", "too late");
    ck_assert_uint_eq(nreplies, 5);
    get(1, 4, "never", UINT32_MAX);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + UINT32_MAX);
}
END_TEST

START_TEST(waits_for_all_at_the_same_time)
{
    set("a", "1");
    wait_keys(1, 1, "abb", 100); /* twice the same is fine */
    drop_key("a");
    set("b", "1");
    ck_assert_uint_eq(nreplies, 3); /* b is there, a no more */
    set("a", "1");
    ck_assert_uint_eq(nreplies, 5);
    ck_assert_uint_eq(replies[3].id, 1);
    wait_keys(1, 2, "ab", 0); /* there already */
    ck_assert_int_eq(last()->status, DDP_OK);
    call(1, (struct ddpi_message){.op = DDPI_OP_WAIT});
    ck_assert_int_eq(last()->status, DDP_E_INVALID);
}
END_TEST

START_TEST(barriers_open_and_can_be_used_again)
{
    for (int round = 0; round < 3; round++) {
        nreplies = 0;
        for (int i = 0; i < 3; i++) {
            ck_assert_uint_eq(nreplies, 0);
            barrier(i, (uint64_t)i, "b", 3, 100);
        }
        ck_assert_uint_eq(nreplies, 3);
        for (int i = 0; i < 3; i++)
            ck_assert_int_eq(replies[i].status, DDP_OK);
    }
    barrier(0, 9, "alone", 1, 0);
    ck_assert_int_eq(last()->status, DDP_OK);
    barrier(0, 9, "nobody", 0, 0);
    ck_assert_int_eq(last()->status, DDP_E_INVALID);
    ck_assert_uint_eq(ddpi_kv_stats(kv).bytes, 0);
}
END_TEST

START_TEST(barriers_lose_those_who_leave)
{
    barrier(0, 1, "b", 3, 50);
    barrier(1, 2, "b", 3, 500);
    ddpi_kv_expire(kv, now + 50);
    ck_assert_uint_eq(nreplies, 1);
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(last()->text, "2 of 3"));
    barrier(2, 3, "b", 3, 500);
    ck_assert_uint_eq(nreplies, 1); /* 1 and 2 are in, 0 has left */
    ddpi_kv_client_gone(kv, &clients[2]);
    barrier(3, 4, "b", 3, 500);
    ck_assert_uint_eq(nreplies, 1);
    barrier(0, 5, "b", 3, 0); /* the third, even though it would not have waited */
    ck_assert_uint_eq(nreplies, 4);
}
END_TEST

START_TEST(barrier_counts_must_match)
{
    barrier(0, 1, "b", 3, 50);
    barrier(1, 2, "b", 2, 50);
    ck_assert_int_eq(last()->status, DDP_E_MISMATCH);
    ck_assert_uint_eq(last()->id, 2);
    ddpi_kv_expire(kv, now + 50);
    barrier(1, 3, "b", 2, 50); /* with the first one gone, the name is free */
    barrier(2, 4, "b", 2, 50);
    ck_assert_int_eq(last()->status, DDP_OK);
}
END_TEST

START_TEST(a_client_takes_its_waits_along)
{
    get(1, 1, "k", 100);
    wait_keys(1, 2, "kl", 100);
    barrier(1, 3, "b", 2, 100);
    get(2, 4, "k", 100);
    ddpi_kv_client_gone(kv, &clients[1]);
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, 1);
    set("k", "v");
    ck_assert_uint_eq(nreplies, 2);
    ck_assert_uint_eq(replies[0].id, 4);
    barrier(3, 5, "b", 2, 0);
    ck_assert_int_eq(last()->status, DDP_E_TIMEOUT);
}
END_TEST

START_TEST(limits_hold)
{
    teardown();
    struct ddpi_kv_limits limits = {.keys = 2,
                                    .bytes = 4096,
                                    .key_len = 8,
                                    .value_len = 2000,
                                    .keys_per_wait = 3,
                                    .waits_per_client = 2};
    make(&limits);
    static char long_value[3000];
    memset(long_value, 'v', 2001);
    ck_assert_int_eq(set("12345678", "")->status, DDP_OK);
    ck_assert_int_eq(set("123456789", "")->status, DDP_E_LIMIT);
    ck_assert_int_eq(set("v", long_value)->status, DDP_E_LIMIT);
    long_value[2000] = '\0';
    ck_assert_int_eq(set("v", long_value)->status, DDP_OK);
    ck_assert_int_eq(set("third", "")->status, DDP_E_LIMIT);
    ck_assert_int_eq(set("v", "x")->status, DDP_OK); /* a change is no new key */
    ck_assert_int_eq(drop_key("v")->status, DDP_OK);
    ck_assert_int_eq(set("third", "")->status, DDP_OK);

    wait_keys(1, 1, "abcd", 10);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    get(1, 2, "a", 10);
    barrier(1, 3, "b", 2, 10);
    get(1, 4, "c", 10);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    barrier(1, 5, "c", 2, 10);
    ck_assert_int_eq(last()->status, DDP_E_LIMIT);
    get(2, 6, "c", 10); /* another client's are not counted */
    ck_assert_uint_eq(last()->id, 5);

    size_t before = ddpi_kv_stats(kv).bytes;
    while (before + 1000 < limits.bytes) { /* waiting is paid for too, and by everybody */
        size_t was = nreplies;
        wait_keys(3, 7, "xyz", 10);
        if (nreplies > was)
            break;
        before = ddpi_kv_stats(kv).bytes;
    }
    set("third", long_value);
    ck_assert_int_eq(set("12345678", long_value)->status, DDP_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(last()->text, "full"));
    ck_assert_uint_le(ddpi_kv_stats(kv).bytes, limits.bytes);
}
END_TEST

/* --- against a model --- */

enum { MODEL_KEYS = 6, MODEL_WAITS = 64, MODEL_STEPS = 20000 };

struct model_wait {
    bool used;
    int client;
    uint64_t id, deadline;
    unsigned keys; /* bit set; 0: a barrier */
    int barrier;   /* which name */
    uint32_t count;
    uint64_t arrived; /* order */
};

static struct {
    uint64_t versions[MODEL_KEYS]; /* 0: not there */
    uint64_t version;
    struct model_wait waits[MODEL_WAITS];
    uint64_t arrivals;
} model;

/* Answers that must come from this step: (client, id, status). */
static struct got expected[REPLIES_MAX];
static size_t nexpected;

static void expect(int client, uint64_t id, ddp_status status)
{
    expected[nexpected++] = (struct got){.client = client, .id = id, .status = status};
}

static struct model_wait *model_slot(void)
{
    for (int i = 0; i < MODEL_WAITS; i++)
        if (!model.waits[i].used)
            return &model.waits[i];
    return NULL;
}

static bool model_complete(const struct model_wait *wait)
{
    for (int k = 0; k < MODEL_KEYS; k++)
        if ((wait->keys & 1u << k) && model.versions[k] == 0)
            return false;
    return true;
}

static void model_set(int k)
{
    model.versions[k] = ++model.version;
    for (int i = 0; i < MODEL_WAITS; i++)
        if (model.waits[i].used && model.waits[i].keys != 0 && model_complete(&model.waits[i])) {
            expect(model.waits[i].client, model.waits[i].id, DDP_OK);
            model.waits[i].used = false;
        }
}

static uint32_t model_in_barrier(int name, uint32_t *ret_count)
{
    uint32_t arrived = 0;
    for (int i = 0; i < MODEL_WAITS; i++)
        if (model.waits[i].used && model.waits[i].keys == 0 && model.waits[i].barrier == name) {
            arrived++;
            *ret_count = model.waits[i].count;
        }
    return arrived;
}

static void model_park(struct model_wait wait, uint32_t timeout_ms)
{
    if (timeout_ms == 0) {
        expect(wait.client, wait.id, DDP_E_TIMEOUT);
        return;
    }
    wait.used = true;
    wait.deadline = now + timeout_ms;
    wait.arrived = model.arrivals++;
    struct model_wait *slot = model_slot();
    ck_assert_ptr_nonnull(slot);
    if (slot != NULL)
        *slot = wait;
}

static void model_barrier(int client, uint64_t id, int name, uint32_t count, uint32_t timeout_ms)
{
    uint32_t others = count;
    uint32_t arrived = model_in_barrier(name, &others);
    if (others != count) {
        expect(client, id, DDP_E_MISMATCH);
    } else if (arrived + 1 < count) {
        model_park((struct model_wait){.client = client, .id = id, .barrier = name, .count = count},
                   timeout_ms);
    } else {
        for (int i = 0; i < MODEL_WAITS; i++)
            if (model.waits[i].used && model.waits[i].keys == 0 && model.waits[i].barrier == name) {
                expect(model.waits[i].client, model.waits[i].id, DDP_OK);
                model.waits[i].used = false;
            }
        expect(client, id, DDP_OK);
    }
}

static int by_client_and_id(const void *left, const void *right)
{
    const struct got *a = left, *b = right;
    return a->client != b->client ? a->client - b->client : (a->id > b->id) - (a->id < b->id);
}

static void compare(int step)
{
    qsort(replies, nreplies, sizeof *replies, by_client_and_id);
    qsort(expected, nexpected, sizeof *expected, by_client_and_id);
    ck_assert_msg(nreplies == nexpected, "step %d: %zu replies, expected %zu", step, nreplies,
                  nexpected);
    for (size_t i = 0; i < nreplies; i++)
        ck_assert_msg(replies[i].client == expected[i].client && replies[i].id == expected[i].id &&
                          replies[i].status == expected[i].status,
                      "step %d: client %d id %llu: %s, expected client %d id %llu: %s", step,
                      replies[i].client, (unsigned long long)replies[i].id,
                      ddp_status_name(replies[i].status), expected[i].client,
                      (unsigned long long)expected[i].id, ddp_status_name(expected[i].status));
    uint64_t earliest = UINT64_MAX;
    size_t waits = 0, keys = 0;
    for (int i = 0; i < MODEL_WAITS; i++)
        if (model.waits[i].used) {
            waits++;
            if (model.waits[i].deadline < earliest)
                earliest = model.waits[i].deadline;
        }
    for (int k = 0; k < MODEL_KEYS; k++)
        keys += model.versions[k] != 0;
    ck_assert_uint_eq(ddpi_kv_stats(kv).waits, waits);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, keys);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), earliest);
}

static void step_wait(int client, uint64_t id)
{
    unsigned wanted = (unsigned)rand() % ((1u << MODEL_KEYS) - 1) + 1;
    uint32_t timeout_ms = (uint32_t)(rand() % 40);
    char names[MODEL_KEYS + 1];
    size_t count = 0;
    for (int k = 0; k < MODEL_KEYS; k++)
        if (wanted & 1u << k)
            names[count++] = (char)('a' + k);
    names[count] = '\0';
    struct model_wait wait = {.client = client, .id = id, .keys = wanted};
    if (model_complete(&wait))
        expect(client, id, DDP_OK);
    else
        model_park(wait, timeout_ms);
    if (count == 1 && rand() % 2)
        get(client, id, names, timeout_ms);
    else
        wait_keys(client, id, names, timeout_ms);
}

static void step_barrier(int client, uint64_t id)
{
    int name = rand() % 2;
    uint32_t count = rand() % 8 == 0 ? 4 : 3;
    uint32_t timeout_ms = (uint32_t)(rand() % 40);
    model_barrier(client, id, name, count, timeout_ms);
    barrier(client, id, name == 0 ? "p" : "q", count, timeout_ms);
}

static void step_key(int client, uint64_t id)
{
    int k = rand() % MODEL_KEYS;
    char name[2] = {(char)('a' + k), '\0'};
    struct ddpi_message request = {.id = id, .key = bytes(name), .value = bytes("1")};
    bool there = model.versions[k] != 0;
    switch (rand() % 5) {
    case 0:
        request.op = DDPI_OP_SET;
        model_set(k);
        expect(client, id, DDP_OK);
        break;
    case 1:
        request.op = DDPI_OP_CAS;
        request.version = rand() % 2 ? model.versions[k] : 0;
        expect(client, id, request.version == model.versions[k] ? DDP_OK : DDP_E_CONFLICT);
        if (request.version == model.versions[k])
            model_set(k);
        break;
    case 2:
        request.op = DDPI_OP_ADD;
        request.number = 1;
        model_set(k);
        expect(client, id, DDP_OK);
        break;
    case 3:
        request.op = DDPI_OP_TRY_GET;
        expect(client, id, there ? DDP_OK : DDP_E_NOT_FOUND);
        break;
    default:
        request.op = DDPI_OP_DELETE;
        expect(client, id, there ? DDP_OK : DDP_E_NOT_FOUND);
        model.version += there;
        model.versions[k] = 0;
    }
    ask(client, request);
}

static void step_time(void)
{
    now += (uint64_t)(rand() % 15);
    for (int i = 0; i < MODEL_WAITS; i++)
        if (model.waits[i].used && model.waits[i].deadline <= now) {
            expect(model.waits[i].client, model.waits[i].id, DDP_E_TIMEOUT);
            model.waits[i].used = false;
        }
    ddpi_kv_expire(kv, now);
}

static void step_gone(int client)
{
    for (int i = 0; i < MODEL_WAITS; i++)
        if (model.waits[i].client == client)
            model.waits[i].used = false;
    ddpi_kv_client_gone(kv, &clients[client]);
}

START_TEST(behaves_like_the_model)
{
    const char *given = getenv("KV_SEED");
    unsigned random_seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : 20240601u;
    printf("KV_SEED=%u\n", random_seed);
    srand(random_seed);
    for (int step = 0; step < MODEL_STEPS; step++) {
        nreplies = nexpected = 0;
        int client = rand() % CLIENTS;
        int kind = rand() % 20;
        if (kind < 4 && model_slot() != NULL)
            step_wait(client, (uint64_t)step);
        else if (kind < 8 && model_slot() != NULL)
            step_barrier(client, (uint64_t)step);
        else if (kind < 16)
            step_key(client, (uint64_t)step);
        else if (kind < 19)
            step_time();
        else
            step_gone(client);
        compare(step);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("kv");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, set_and_get);
    tcase_add_test(tcase, delete_and_prefix);
    tcase_add_test(tcase, add_keeps_decimal_text);
    tcase_add_test(tcase, compare_and_swap);
    tcase_add_test(tcase, list_is_sorted_by_bytes);
    tcase_add_test(tcase, a_get_waits);
    tcase_add_test(tcase, deadlines);
    tcase_add_test(tcase, waits_for_all_at_the_same_time);
    tcase_add_test(tcase, barriers_open_and_can_be_used_again);
    tcase_add_test(tcase, barriers_lose_those_who_leave);
    tcase_add_test(tcase, barrier_counts_must_match);
    tcase_add_test(tcase, a_client_takes_its_waits_along);
    tcase_add_test(tcase, limits_hold);
    tcase_add_test(tcase, behaves_like_the_model);
    suite_add_tcase(suite, tcase);
    return suite;
}
