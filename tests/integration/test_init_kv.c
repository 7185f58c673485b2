/*
 * test_init_kv.c - ranks that meet through functions of the caller: what is left in such a store,
 * what happens when a function fails or the store loses the key, several worlds at once. That
 * ranks die meanwhile is in test_init_failure.c, which runs on such a store, too.
 */
#include "check_main.h"
#include "world.h"
#include "world_kv.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, WORLDS = 3, LONG_MS = 60000 };

struct seat {
    struct ddp_kv kv;
    uint32_t rank;
    uint32_t init_timeout_ms;
    const char *name;
    pthread_t thread;
    ddp_status status;
    struct ddp_error error;
};

/* Join, and sum the ranks once, in this process. */
static ddp_status meet(struct seat *seat)
{
    const struct ddp_comm_options options = {
        .size = sizeof options,
        .name = seat->name,
        .world_size = RANKS,
        .rank = seat->rank,
        .kv = &seat->kv,
        .timeout_ms = LONG_MS,
        .init_timeout_ms = seat->init_timeout_ms > 0 ? seat->init_timeout_ms : LONG_MS};
    ddp_comm *comm;
    uint32_t sum = seat->rank;
    ddp_status status = ddp_comm_init(&options, &comm, &seat->error);
    if (status != DDP_OK)
        return status;
    status = ddp_all_reduce(comm, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL, &seat->error);
    CHECK(status != DDP_OK || sum == RANKS * (RANKS - 1) / 2);
    ddp_comm_destroy(comm);
    return status;
}

static void *sit(void *arg)
{
    struct seat *seat = arg;
    seat->status = meet(seat);
    return NULL;
}

static void start_seat(struct seat *seat)
{
    ck_assert_int_eq(pthread_create(&seat->thread, NULL, sit, seat), 0);
}

static void expect_met(struct seat *seats, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        pthread_join(seats[i].thread, NULL);
        ck_assert_msg(seats[i].status == DDP_OK, "rank %u of '%s': %s", seats[i].rank,
                      seats[i].name, seats[i].error.msg);
    }
}

/* With a store that can delete keys, and one that cannot: which keeps an empty value, and the next
 * generation meets all the same. */
START_TEST(no_key_is_left)
{
    struct world_kv *table = world_kv_open();
    bool can_remove = _i == 0;
    for (int generation = 0; generation < 3; generation++) {
        struct seat seats[RANKS];
        for (uint32_t i = 0; i < RANKS; i++) {
            seats[i] = (struct seat){.kv = world_kv_functions(table, can_remove), .rank = i};
            start_seat(&seats[i]);
        }
        expect_met(seats, RANKS);
        ck_assert_uint_eq(world_kv_count(table), can_remove ? 0 : 1);
        ck_assert(!world_kv_has(table, "comm/world/host"));
    }
    world_kv_close(table);
}
END_TEST

START_TEST(worlds_with_names_meet_at_once)
{
    static const char *const names[WORLDS] = {"data", "tensor", "pipeline"};
    struct world_kv *table = world_kv_open();
    struct seat seats[WORLDS * RANKS];
    for (uint32_t i = 0; i < WORLDS * RANKS; i++) {
        seats[i] = (struct seat){
            .kv = world_kv_functions(table, true), .rank = i / WORLDS, .name = names[i % WORLDS]};
        start_seat(&seats[i]);
    }
    expect_met(seats, WORLDS * RANKS);
    ck_assert_uint_eq(world_kv_count(table), 0);
    world_kv_close(table);
}
END_TEST

static void await_key(struct world_kv *table)
{
    while (!world_kv_has(table, "comm/world/host"))
        poll(NULL, 0, 10);
}

/* As by a rank that meant the key of a dead rank 0: rank 0 makes it again. */
START_TEST(a_lost_key_comes_back)
{
    struct world_kv *table = world_kv_open();
    struct seat seats[RANKS];
    for (uint32_t i = 0; i < RANKS; i++)
        seats[i] = (struct seat){.kv = world_kv_functions(table, true), .rank = i};
    start_seat(&seats[0]);
    await_key(table);
    world_kv_remove(table, "comm/world/host");
    start_seat(&seats[1]);
    start_seat(&seats[2]);
    expect_met(seats, RANKS);
    ck_assert_uint_eq(world_kv_count(table), 0);
    world_kv_close(table);
}
END_TEST

/* In a store that cannot delete, too: a rank 0 that is killed, and one that gives up. */
START_TEST(a_retry_on_the_same_store_works)
{
    struct world_kv *table = world_kv_open();
    bool can_remove = _i % 2 == 0, killed = _i / 2 == 0;
    struct seat seats[RANKS];
    for (uint32_t i = 0; i < RANKS; i++)
        seats[i] = (struct seat){.kv = world_kv_functions(table, can_remove), .rank = i};
    for (int generation = 0; generation < 2; generation++) {
        pid_t pid = fork();
        if (pid == 0) {
            seats[0].init_timeout_ms = killed ? LONG_MS : 100;
            _exit(meet(&seats[0]) == DDP_E_TIMEOUT ? 0 : 1);
        }
        int status = 0;
        if (killed) {
            await_key(table);
            kill(pid, SIGKILL);
        }
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        ck_assert(world_kv_has(table, "comm/world/host") == killed);
        for (uint32_t i = RANKS; i-- > 0;)
            start_seat(&seats[i]);
        expect_met(seats, RANKS);
        ck_assert(!world_kv_has(table, "comm/world/host"));
    }
    world_kv_close(table);
}
END_TEST

/* ---- functions that fail ---- */

static ddp_status bad_set(void *ctx, const char *key, const void *value, size_t len,
                          struct ddp_error *err)
{
    (void)ctx, (void)key, (void)value, (void)len;
    snprintf(err->msg, sizeof err->msg, "the disk is full");
    return DDP_E_SYSTEM;
}

static ddp_status bad_get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                          struct ddp_error *err)
{
    (void)ctx, (void)key, (void)buffer, (void)size, (void)ret_len, (void)err;
    return DDP_E_DENIED; /* without a sentence */
}

static ddp_status bad_wait(void *ctx, const char *key, uint32_t timeout_ms, struct ddp_error *err)
{
    (void)ctx, (void)key, (void)timeout_ms;
    snprintf(err->msg, sizeof err->msg, "the store has gone");
    return DDP_E_UNREACHABLE;
}

static ddp_status long_get(void *ctx, const char *key, void *buffer, size_t size, size_t *ret_len,
                           struct ddp_error *err)
{
    (void)ctx, (void)key, (void)err;
    memset(buffer, 'x', size);
    *ret_len = (size_t)1 << 40;
    return DDP_OK;
}

static const struct {
    uint32_t rank;
    struct ddp_kv kv; /* what is not NULL takes the place of the table's */
    ddp_status status;
    const char *says;
} failing[] = {
    {0, {.set = bad_set}, DDP_E_SYSTEM, "set 'comm/world/host': the disk is full"},
    {0, {.get = bad_get}, DDP_E_DENIED, "get 'comm/world/host': "},
    {1, {.get = bad_get}, DDP_E_DENIED, "get 'comm/world/host': "},
    {1, {.wait = bad_wait}, DDP_E_UNREACHABLE, "wait for 'comm/world/host': the store has gone"},
    {1, {.get = long_get}, DDP_E_PROTOCOL, "rank 0 has sent an invalid card"},
};

START_TEST(what_fails_is_named)
{
    struct world_kv *table = world_kv_open();
    struct seat seat = {.kv = world_kv_functions(table, true), .rank = failing[_i].rank};
    if (failing[_i].kv.set != NULL)
        seat.kv.set = failing[_i].kv.set;
    if (failing[_i].kv.get != NULL)
        seat.kv.get = failing[_i].kv.get;
    if (failing[_i].kv.wait != NULL)
        seat.kv.wait = failing[_i].kv.wait;
    ck_assert_int_eq(meet(&seat), failing[_i].status);
    ck_assert_msg(strstr(seat.error.msg, failing[_i].says) != NULL, "%s", seat.error.msg);
    world_kv_close(table);
}
END_TEST

START_TEST(who_waits_in_vain_says_for_whom)
{
    struct world_kv *table = world_kv_open();
    struct seat seat = {
        .kv = world_kv_functions(table, _i == 0), .rank = 1, .init_timeout_ms = 200};
    if (_i != 0) /* an empty value counts as none */
        CHECK(seat.kv.set(seat.kv.ctx, "comm/world/host", "", 0, &seat.error) == DDP_OK);
    ck_assert_int_eq(meet(&seat), DDP_E_TIMEOUT);
    ck_assert_msg(strstr(seat.error.msg, "missing: rank 0") != NULL, "%s", seat.error.msg);
    world_kv_close(table);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("init through a caller's store");
    TCase *tcase = tcase_create("kv");
    tcase_add_loop_test(tcase, no_key_is_left, 0, 2);
    tcase_add_test(tcase, worlds_with_names_meet_at_once);
    tcase_add_test(tcase, a_lost_key_comes_back);
    tcase_add_loop_test(tcase, a_retry_on_the_same_store_works, 0, 4);
    tcase_add_loop_test(tcase, what_fails_is_named, 0, sizeof failing / sizeof *failing);
    tcase_add_loop_test(tcase, who_waits_in_vain_says_for_whom, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
