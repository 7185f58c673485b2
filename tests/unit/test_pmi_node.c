/*
 * test_pmi_node.c - a node's answers to its MPI ranks: each command in each state; barriers over
 * one to three nodes in every order of arrival; ranks that leave; invalid texts of other nodes.
 */
#include "check_main.h"
#include "error.h"
#include "pmi_kvs.h"
#include "pmi_node.h"
#include "pmi_node_exchange.h"
#include "pmi_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, NODES = 3, TEXT = 4096 };

/* Output of a node: unread answers to each rank, and texts for other nodes. */
struct world;
struct node {
    struct world *world;
    struct pmi_node *node;
    uint32_t number;
    char answers[RANKS][TEXT];
    bool hung_up[RANKS];
    int aborted[RANKS];
    char said[TEXT];
    uint32_t exchange; /* of @text */
    char text[TEXT];
    bool has_text;
};

struct world {
    struct node nodes[NODES];
    uint32_t count;
    bool unreachable;
};

static void on_reply(void *ctx, uint32_t local, const char *text, size_t len)
{
    struct node *node = ctx;
    ck_assert_uint_lt(strlen(node->answers[local]) + len, TEXT);
    ck_assert_int_eq(text[len - 1], '\n');
    strncat(node->answers[local], text, len);
}

static void on_hang_up(void *ctx, uint32_t local)
{
    struct node *node = ctx;
    ck_assert(!node->hung_up[local]);
    node->hung_up[local] = true;
}

static void on_aborted(void *ctx, uint32_t local, int exit_code)
{
    struct node *node = ctx;
    node->aborted[local] = exit_code;
}

static ddp_status on_exchange(void *ctx, uint32_t number, const char *text, size_t len,
                              struct ddp_error *err)
{
    struct node *node = ctx;
    ck_assert(!node->has_text);
    ck_assert_uint_gt(node->world->count, 1);
    if (node->world->unreachable)
        return ddpi_error_set(err, DDP_E_LIMIT, "no way to the others");
    node->exchange = number;
    node->has_text = true;
    memcpy(node->text, text, len);
    node->text[len] = '\0';
    return DDP_OK;
}

static void on_say(void *ctx, const char *line)
{
    struct node *node = ctx;
    snprintf(node->said, sizeof node->said, "%s", line);
}

/* @nprocs: ranks of each node. */
static struct world *make_world(uint32_t count, const uint32_t *nprocs)
{
    struct world *world = calloc(1, sizeof *world);
    uint32_t size = 0, first = 0;
    world->count = count;
    for (uint32_t i = 0; i < count; i++)
        size += nprocs[i];
    for (uint32_t i = 0; i < count; first += nprocs[i], i++) {
        struct node *node = &world->nodes[i];
        const struct pmi_node_hooks hooks = {node,       on_reply,    on_hang_up,
                                             on_aborted, on_exchange, on_say};
        const struct pmi_place place = {.job = "job-3",
                                        .generation = 3,
                                        .nproc = nprocs[i],
                                        .first_rank = first,
                                        .world_size = size,
                                        .node_rank = i,
                                        .nodes = count};
        node->world = world;
        node->number = i;
        node->node = pmi_node_create(&place, &hooks);
        ck_assert_ptr_nonnull(node->node);
    }
    return world;
}

static void free_world(struct world *world)
{
    for (uint32_t i = 0; i < world->count; i++)
        pmi_node_destroy(world->nodes[i].node);
    free(world);
}

static void tell(struct node *node, uint32_t local, const char *line)
{
    pmi_node_line(node->node, local, line, strlen(line));
}

static void expect(struct node *node, uint32_t local, const char *answer)
{
    ck_assert_str_eq(node->answers[local], answer);
    node->answers[local][0] = '\0';
}

static void ask(struct node *node, uint32_t local, const char *line, const char *answer)
{
    tell(node, local, line);
    expect(node, local, answer);
}

#define INIT      "cmd=init pmi_version=1 pmi_subversion=1"
#define INIT_DONE "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"

static void open_rank(struct node *node, uint32_t local)
{
    ask(node, local, INIT, INIT_DONE);
}

/* When all nodes have sent their texts, deliver each to all others, as the store would; the last
 * node's first if @backward. */
static void deliver(struct world *world, bool backward)
{
    struct node copies[NODES];
    for (uint32_t i = 0; i < world->count; i++)
        if (!world->nodes[i].has_text)
            return;
    memcpy(copies, world->nodes, sizeof copies);
    for (uint32_t i = 0; i < world->count; i++)
        world->nodes[i].has_text = false;
    for (uint32_t n = 0; n < world->count; n++) {
        uint32_t from = backward ? world->count - 1 - n : n;
        for (uint32_t to = 0; to < world->count; to++)
            if (to != from)
                pmi_node_exchange_text(world->nodes[to].node, from, copies[from].text,
                                       strlen(copies[from].text));
    }
}

static void check_state(const struct node *node, uint32_t local, unsigned state)
{
    ck_assert_uint_eq(pmi_node_state(node->node, local), state);
}

START_TEST(the_table_is_sound)
{
    ck_assert(ddpi_sm_table_valid(&pmi_rank_sm));
}
END_TEST

/* A name would have to travel without a barrier. */
START_TEST(names_are_not_published_across_nodes)
{
    struct world *world = make_world(2, (const uint32_t[]){1, 1});
    struct node *node = &world->nodes[0];
    open_rank(node, 0);
    ask(node, 0, "cmd=publish_name service=s port=p",
        "cmd=publish_result rc=-1 msg=not_served_by_ddprun\n");
    ask(node, 0, "cmd=unpublish_name service=s",
        "cmd=unpublish_result rc=-1 msg=not_served_by_ddprun\n");
    ask(node, 0, "cmd=lookup_name service=s", "cmd=lookup_result rc=-1 msg=not_served_by_ddprun\n");
    free_world(world);
}
END_TEST

START_TEST(a_world_of_one)
{
    struct world *world = make_world(1, (const uint32_t[]){1});
    struct node *node = &world->nodes[0];
    open_rank(node, 0);
    ask(node, 0, "cmd=get_maxes", "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=1024\n");
    ask(node, 0, "cmd=get_appnum", "cmd=appnum appnum=0\n");
    ask(node, 0, "cmd=get_my_kvsname", "cmd=my_kvsname kvsname=job-3\n");
    ask(node, 0, "cmd=get_universe_size", "cmd=universe_size size=1\n");
    ask(node, 0, "cmd=get kvsname=x key=PMI_process_mapping",
        "cmd=get_result rc=0 msg=success value=(vector,(0,1,1))\n");
    ask(node, 0, "cmd=put kvsname=x key=a value=1,2;3", "cmd=put_result rc=0 msg=success\n");
    ask(node, 0, "cmd=barrier_in", "cmd=barrier_out\n");
    ask(node, 0, "cmd=get kvsname=x key=a", "cmd=get_result rc=0 msg=success value=1,2;3\n");
    ask(node, 0, "cmd=get kvsname=x key=b",
        "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    ask(node, 0, "cmd=lookup_name service=s", "cmd=lookup_result rc=-1 msg=service_not_found\n");
    ask(node, 0, "cmd=publish_name service=s port=p", "cmd=publish_result rc=0 msg=success\n");
    ask(node, 0, "cmd=lookup_name service=s", "cmd=lookup_result rc=0 port=p\n");
    ask(node, 0, "cmd=unpublish_name service=s", "cmd=unpublish_result rc=0 msg=success\n");
    ask(node, 0, "cmd=lookup_name service=s", "cmd=lookup_result rc=-1 msg=service_not_found\n");
    ask(node, 0, "cmd=publish_name port=p", "cmd=publish_result rc=-1 msg=not_served_by_ddprun\n");
    ask(node, 0, "mcmd=spawn", "");
    ask(node, 0, "nprocs=2", "");
    ask(node, 0, "endcmd", "cmd=spawn_result rc=-1 msg=not_served_by_ddprun\n");
    for (int program = 1; program <= 2; program++) { /* MPI_Comm_spawn_multiple */
        ask(node, 0, "mcmd=spawn", "");
        ask(node, 0, "totspawns=2", "");
        ask(node, 0, program == 1 ? "spawnssofar=1" : "spawnssofar=2", "");
        ask(node, 0, "arg1=x totspawns=5", "");
        ask(node, 0, "endcmd",
            program == 1 ? "" : "cmd=spawn_result rc=-1 msg=not_served_by_ddprun\n");
    }
    ck_assert_ptr_nonnull(
        strstr(node->said, "rank 0 has called MPI_Comm_spawn, which ddprun does"));
    ask(node, 0, "cmd=finalize", "cmd=finalize_ack\n");
    pmi_node_gone(node->node, 0);
    ck_assert_ptr_null(strstr(node->said, "left MPI"));
    free_world(world);
}
END_TEST

START_TEST(keys_and_values_have_their_longest)
{
    struct world *world = make_world(1, (const uint32_t[]){1});
    struct node *node = &world->nodes[0];
    char text[PMI_VALUE_MAX + 1], line[PMI_LINE_MAX];
    open_rank(node, 0);
    for (int excess = 0; excess < 2; excess++) {
        memset(text, 'k', sizeof text);
        text[PMI_KEY_MAX - 1 + excess] = '\0';
        snprintf(line, sizeof line, "cmd=put key=%s value=v", text);
        ask(node, 0, line,
            excess ? "cmd=put_result rc=-1 msg=bad_key\n" : "cmd=put_result rc=0 msg=success\n");
        memset(text, 'v', sizeof text);
        text[PMI_VALUE_MAX - 1 + excess] = '\0';
        snprintf(line, sizeof line, "cmd=put key=k value=%s", text);
        ask(node, 0, line,
            excess ? "cmd=put_result rc=-1 msg=bad_value\n" : "cmd=put_result rc=0 msg=success\n");
    }
    ask(node, 0, "cmd=put key= value=v", "cmd=put_result rc=-1 msg=bad_key\n");
    ask(node, 0, "cmd=put key=k value=", "cmd=put_result rc=-1 msg=bad_value\n");
    ask(node, 0, "cmd=put value=v", "cmd=put_result rc=-1 msg=bad_key\n");
    ask(node, 0, "cmd=put key=a\tb value=v", "cmd=put_result rc=-1 msg=bad_key\n");
    free_world(world);
}
END_TEST

START_TEST(what_is_put_is_bounded)
{
    struct world *world = make_world(1, (const uint32_t[]){1});
    struct node *node = &world->nodes[0];
    char line[PMI_LINE_MAX], value[1001];
    unsigned taken = 0;
    memset(value, 'v', 1000);
    value[1000] = '\0';
    open_rank(node, 0);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(line, sizeof line, "cmd=put key=k%u value=%s", i, value);
        tell(node, 0, line);
        taken += strstr(node->answers[0], "rc=0") != NULL;
        node->answers[0][0] = '\0';
    }
    ck_assert_uint_gt(taken, 200);
    ck_assert_uint_lt(taken, 300);
    free_world(world);
}
END_TEST

START_TEST(words_before_init_and_wrong_ones)
{
    static const char *const wrong[] = {"cmd=get_maxes", "",        "cmd=", "hello", "cmd=init_x",
                                        "cmd=finalize",  "\x01\x02"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct world *world = make_world(1, (const uint32_t[]){2});
        tell(&world->nodes[0], 1, wrong[i]);
        ck_assert(world->nodes[0].hung_up[1]);
        ck_assert_ptr_nonnull(strstr(world->nodes[0].said, "rank 1"));
        check_state(&world->nodes[0], 1, PMI_RANK_GONE);
        tell(&world->nodes[0], 1, INIT); /* no rank listens any more */
        expect(&world->nodes[0], 1, "");
        free_world(world);
    }
}
END_TEST

START_TEST(another_version)
{
    struct world *world = make_world(1, (const uint32_t[]){1});
    ask(&world->nodes[0], 0, "cmd=init pmi_version=2 pmi_subversion=0",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n");
    free_world(world);
}
END_TEST

START_TEST(a_rank_aborts)
{
    struct world *world = make_world(1, (const uint32_t[]){2});
    open_rank(&world->nodes[0], 1);
    ask(&world->nodes[0], 1, "cmd=abort exitcode=7", "");
    ck_assert_int_eq(world->nodes[0].aborted[1], 7);
    ask(&world->nodes[0], 1, "cmd=abort exitcode=many", "");
    ck_assert_int_eq(world->nodes[0].aborted[1], 1);
    free_world(world);
}
END_TEST

/* Nodes of 2, 1 and 2 ranks: all ranks see all keys, in every order of arrival. */
START_TEST(barriers_over_nodes)
{
    static const uint32_t nprocs[NODES] = {2, 1, 2};
    bool backward = _i % 2 != 0;
    uint32_t count = 1 + (uint32_t)_i / 2;
    struct world *world = make_world(count, nprocs);
    char line[128], answer[128];
    for (uint32_t n = 0; n < count; n++)
        for (uint32_t r = 0; r < nprocs[n]; r++)
            open_rank(&world->nodes[n], r);
    tell(&world->nodes[0], 0, "cmd=get key=PMI_process_mapping");
    if (count > 1)
        expect(&world->nodes[0], 0, "");
    deliver(world, backward);
    static const char *const mappings[] = {"(vector,(0,1,2))", "(vector,(0,1,2),(1,1,1))",
                                           "(vector,(0,1,2),(1,1,1),(2,1,2))"};
    snprintf(answer, sizeof answer, "cmd=get_result rc=0 msg=success value=%s\n",
             mappings[count - 1]);
    expect(&world->nodes[0], 0, answer);
    for (unsigned round = 0; round < 3; round++) {
        for (uint32_t n = 0; n < count; n++)
            for (uint32_t r = 0; r < nprocs[n]; r++) {
                snprintf(line, sizeof line, "cmd=put key=%u-%u value=%u", n, r, round);
                ask(&world->nodes[n], r, line, "cmd=put_result rc=0 msg=success\n");
                bool last = n + 1 == count && r + 1 == nprocs[n];
                tell(&world->nodes[n], r, "cmd=barrier_in");
                if (!last || count > 1)
                    expect(&world->nodes[n], r, "");
            }
        deliver(world, backward);
        for (uint32_t n = 0; n < count; n++)
            for (uint32_t r = 0; r < nprocs[n]; r++) {
                expect(&world->nodes[n], r, "cmd=barrier_out\n");
                for (uint32_t other = 0; other < count; other++) {
                    snprintf(line, sizeof line, "cmd=get key=%u-0", other);
                    snprintf(answer, sizeof answer, "cmd=get_result rc=0 msg=success value=%u\n",
                             round);
                    ask(&world->nodes[n], r, line, answer);
                }
            }
    }
    free_world(world);
}
END_TEST

/* One rank exits with 0 and without MPI_Finalize, in each state: all waiting ranks, on every node,
 * lose their connections, and a message is shown. */
START_TEST(a_rank_leaves)
{
    struct world *world = make_world(2, (const uint32_t[]){2, 2});
    struct node *here = &world->nodes[0], *there = &world->nodes[1];
    unsigned how = (unsigned)_i; /* it is silent, open, waiting, or has finalized */
    for (uint32_t i = 0; i < 4; i++)
        if (i > 0 || how > 0)
            open_rank(&world->nodes[i / 2], i % 2);
    deliver(world, false);
    for (uint32_t i = 1; i < 4; i++)
        tell(&world->nodes[i / 2], i % 2, "cmd=barrier_in");
    deliver(world, false);
    if (how == 3) {
        tell(here, 0, "cmd=finalize");
    } else if (how == 2) {
        tell(here, 0, "cmd=barrier_in");
        ck_assert(here->has_text);
        pmi_node_gone(here->node, 0); /* too late to matter: all nodes have sent their text */
    } else {
        pmi_node_gone(here->node, 0);
    }
    deliver(world, false);
    if (how == 2) {
        ck_assert(!here->hung_up[1] && !there->hung_up[0] && !there->hung_up[1]);
        for (uint32_t i = 1; i < 4; i++)
            expect(&world->nodes[i / 2], i % 2, "cmd=barrier_out\n");
        tell(there, 0, "cmd=barrier_in"); /* it misses the next barrier */
        tell(there, 1, "cmd=barrier_in");
        tell(here, 1, "cmd=barrier_in");
        deliver(world, false);
    }
    ck_assert(here->hung_up[1] && there->hung_up[0] && there->hung_up[1]);
    ck_assert_ptr_nonnull(strstr(here->said, "rank 0"));
    ck_assert_ptr_nonnull(strstr(there->said, "rank 0"));
    free_world(world);
}
END_TEST

/* One rank violates the protocol, before or after the other has reached the barrier. */
START_TEST(a_rank_is_refused)
{
    struct world *world = make_world(1, (const uint32_t[]){2});
    struct node *node = &world->nodes[0];
    open_rank(node, 0);
    open_rank(node, 1);
    if (_i == 0)
        tell(node, 1, "cmd=barrier_in");
    tell(node, 0, "cmd=spawn nprocs=1");
    ck_assert(node->hung_up[0]);
    if (_i == 1)
        tell(node, 1, "cmd=barrier_in");
    ck_assert(node->hung_up[1]);
    pmi_node_gone(node->node, 0);
    free_world(world);
}
END_TEST

/* It reaches no further barrier, whether its connection has ended or not. */
START_TEST(a_rank_that_has_finalized_closes)
{
    struct world *world = make_world(1, (const uint32_t[]){2});
    struct node *node = &world->nodes[0];
    open_rank(node, 0);
    open_rank(node, 1);
    tell(node, 0, "cmd=finalize");
    pmi_node_gone(node->node, 0);
    ck_assert_str_eq(node->said, "");
    ask(node, 1, "cmd=get_appnum", "cmd=appnum appnum=0\n");
    tell(node, 1, "cmd=barrier_in");
    ck_assert(node->hung_up[1]);
    ck_assert_ptr_nonnull(strstr(node->said, "rank 0"));
    free_world(world);
}
END_TEST

START_TEST(a_job_without_mpi)
{
    struct world *world = make_world(2, (const uint32_t[]){2, 2});
    for (uint32_t i = 0; i < 4; i++)
        pmi_node_gone(world->nodes[i / 2].node, i % 2);
    ck_assert(!world->nodes[0].has_text && !world->nodes[1].has_text);
    ck_assert_str_eq(world->nodes[0].said, "");
    free_world(world);
}
END_TEST

START_TEST(texts_that_are_wrong)
{
    static const char *const wrong[] = {"",
                                        "nproc 2",
                                        "nproc 0\n",
                                        "nproc 5\n",
                                        "nproc x\n",
                                        "nproc 2 2\n",
                                        "nproc 2\nnproc 2\n",
                                        "put a b\n",
                                        "gone 1\n",
                                        "nproc 2\nput a\n",
                                        "nproc 2\nput a b c\n",
                                        "nproc 2\nput  b\n",
                                        "nproc 2\ngone 4\n",
                                        "hello\n",
                                        "nproc 2\nabcdefghij 1\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct world *world = make_world(2, (const uint32_t[]){2, 2});
        struct node *node = &world->nodes[0];
        open_rank(node, 0);
        tell(node, 0, "cmd=get key=PMI_process_mapping");
        pmi_node_exchange_text(node->node, 7, "nproc 2\n", 8); /* no such node */
        pmi_node_exchange_text(node->node, 0, "nproc 2\n", 8); /* this node itself */
        pmi_node_exchange_text(node->node, 1, wrong[i], strlen(wrong[i]));
        ck_assert_ptr_nonnull(strstr(node->said, "node 1"));
        ck_assert(node->hung_up[0]);
        free_world(world);
    }
}
END_TEST

START_TEST(the_others_cannot_be_reached)
{
    struct world *world = make_world(2, (const uint32_t[]){1, 1});
    world->unreachable = _i == 0;
    open_rank(&world->nodes[0], 0);
    if (_i != 0)
        pmi_node_exchange_cut_off(world->nodes[0].node, "the store is gone");
    tell(&world->nodes[0], 0, "cmd=barrier_in");
    ck_assert(world->nodes[0].hung_up[0]);
    ck_assert_str_eq(world->nodes[0].said, _i == 0 ? "no way to the others" : "the store is gone");
    free_world(world);
}
END_TEST

START_TEST(a_long_mapping_is_not_told)
{
    struct world *world = make_world(1, (const uint32_t[]){1});
    const struct pmi_node_hooks hooks = {&world->nodes[0], on_reply,    on_hang_up,
                                         on_aborted,       on_exchange, on_say};
    enum { MANY = 400 };
    const struct pmi_place place = {
        .nproc = 1, .world_size = MANY * 3 / 2, .nodes = MANY, .generation = 1};
    struct pmi_node *node = pmi_node_create(&place, &hooks);
    world->count = MANY; /* so that exchanges are expected */
    pmi_node_line(node, 0, INIT, strlen(INIT));
    world->nodes[0].answers[0][0] = '\0';
    const char *line = "cmd=get key=PMI_process_mapping";
    pmi_node_line(node, 0, line, strlen(line));
    for (uint32_t i = 1; i < MANY; i++)
        pmi_node_exchange_text(node, i, i % 2 != 0 ? "nproc 2\n" : "nproc 1\n", 8);
    expect(&world->nodes[0], 0, "cmd=get_result rc=-1 msg=key_not_found value=unknown\n");
    pmi_node_destroy(node);
    world->count = 1;
    free_world(world);
}
END_TEST

START_TEST(words_of_a_line)
{
    static const char line[] = "cmd=get  key=k=v x= keys=9 n=-12 big=99999999999";
    char value[4];
    int number = 5;
    ck_assert(pmi_words_get(line, sizeof line - 1, "cmd", value, sizeof value));
    ck_assert_str_eq(value, "get");
    ck_assert(pmi_words_get(line, sizeof line - 1, "key", value, sizeof value));
    ck_assert_str_eq(value, "k=v");
    ck_assert(pmi_words_get(line, sizeof line - 1, "x", value, sizeof value));
    ck_assert_str_eq(value, "");
    ck_assert(!pmi_words_get(line, sizeof line - 1, "ey", value, sizeof value));
    ck_assert(!pmi_words_get(line, sizeof line - 1, "cmd", value, 3));
    ck_assert(!pmi_words_get("key=abc", 2, "key", value, sizeof value));
    ck_assert(pmi_words_number(line, sizeof line - 1, "n", &number));
    ck_assert_int_eq(number, -12);
    ck_assert(!pmi_words_number(line, sizeof line - 1, "big", &number));
    ck_assert(!pmi_words_number(line, sizeof line - 1, "cmd", &number));
    ck_assert_int_eq(number, -12);
}
END_TEST

START_TEST(keys_are_replaced_and_counted)
{
    struct pmi_kvs kvs;
    pmi_kvs_init(&kvs, 12);
    ck_assert_ptr_null(pmi_kvs_get(&kvs, "a"));
    ck_assert_int_eq(pmi_kvs_put(&kvs, "a", "1234"), DDP_OK); /* with both NULs, 7 bytes */
    ck_assert_int_eq(pmi_kvs_put(&kvs, "b", "123"), DDP_E_LIMIT);
    ck_assert_int_eq(pmi_kvs_put(&kvs, "b", "12"), DDP_OK);
    ck_assert_int_eq(pmi_kvs_put(&kvs, "a", "12345"), DDP_E_LIMIT);
    ck_assert_str_eq(pmi_kvs_get(&kvs, "a"), "1234");
    ck_assert_int_eq(pmi_kvs_put(&kvs, "a", "1"), DDP_OK);
    ck_assert_int_eq(pmi_kvs_put(&kvs, "c", ""), DDP_OK);
    ck_assert_str_eq(pmi_kvs_get(&kvs, "a"), "1");
    ck_assert_str_eq(pmi_kvs_get(&kvs, "c"), "");
    pmi_kvs_finish(&kvs);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pmi_node");
    TCase *tcase = tcase_create("pmi_node");
    ADD_TESTS(tcase, the_table_is_sound, a_world_of_one, names_are_not_published_across_nodes,
              keys_and_values_have_their_longest, what_is_put_is_bounded,
              words_before_init_and_wrong_ones, another_version, a_rank_aborts);
    tcase_add_loop_test(tcase, barriers_over_nodes, 0, 2 * NODES);
    tcase_add_loop_test(tcase, a_rank_leaves, 0, 4);
    tcase_add_loop_test(tcase, a_rank_is_refused, 0, 2);
    ADD_TESTS(tcase, a_rank_that_has_finalized_closes, a_job_without_mpi, texts_that_are_wrong);
    tcase_add_loop_test(tcase, the_others_cannot_be_reached, 0, 2);
    ADD_TESTS(tcase, a_long_mapping_is_not_told, words_of_a_line, keys_are_replaced_and_counted);
    suite_add_tcase(suite, tcase);
    return suite;
}
