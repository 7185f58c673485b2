/*
 * test_kv_model.c - thousands of random steps of the key-value core against a naive model, which
 * looks at everything each time. KV_SEED repeats a run.
 */
#include "check_main.h"
#include "kv_fixture.h"

#include <stdio.h>
#include <stdlib.h>

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

/* A condition on one key, and a change to each of two. */
static void step_transaction(void)
{
    int keys[] = {rand() % MODEL_KEYS, rand() % MODEL_KEYS, rand() % MODEL_KEYS};
    char names[] = {(char)('a' + keys[0]), (char)('a' + keys[1]), (char)('a' + keys[2])};
    struct ddpi_clause clauses[] = {
        {.kind = DDPI_IF_VERSION, .version = rand() % 4 ? model.versions[keys[0]] : 0},
        {.kind = rand() % 2 ? DDPI_THEN_SET : DDPI_THEN_DELETE, .value = bytes("1")},
        {.kind = rand() % 2 ? DDPI_THEN_SET : DDPI_THEN_DELETE, .value = bytes("1")},
    };
    for (int i = 0; i < 3; i++)
        clauses[i].key = ddpi_bytes_of(&names[i], 1);
    ddp_status wanted = keys[1] == keys[2]                              ? DDP_E_INVALID
                        : clauses[0].version != model.versions[keys[0]] ? DDP_E_CONFLICT
                                                                        : DDP_OK;
    for (int i = 1; i < 3 && wanted == DDP_OK; i++)
        if (clauses[i].kind == DDPI_THEN_DELETE) {
            model.version += model.versions[keys[i]] != 0;
            model.versions[keys[i]] = 0;
        }
    for (int i = 1; i < 3 && wanted == DDP_OK; i++)
        if (clauses[i].kind == DDPI_THEN_SET)
            model_set(keys[i]);
    expect(0, 0, wanted);
    transact(clauses, 3);
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
        else if (kind < 9)
            step_transaction();
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
    Suite *suite = suite_create("kv_model");
    TCase *tcase = tcase_create("model");
    tcase_add_checked_fixture(tcase, kv_setup, kv_teardown);
    tcase_add_test(tcase, behaves_like_the_model);
    suite_add_tcase(suite, tcase);
    return suite;
}
