/*
 * test_state_sync.c - sync and recovery against other ranks that follow a script: this file stands
 * in for the communicator, so that a rank dies when half of a commit has arrived, or in each round
 * of a recovery. tests/integration has real ranks.
 */
#include "check_main.h"
#include "state_choice.h"

#include <ddprun/ddp_state.h>
#include <string.h>

enum { BYTES = 1000, RANKS = 4, LIVE = 9, OWN = 1, SENT = 2, SENT_NUMBER = 12 };

/* One of the communicators that a test goes through. */
struct ddp_comm {
    uint32_t rank, world_size;
    uint64_t others[RANKS]; /* the number of each other rank's commit */
    ddp_status gather, broadcast;
    size_t arrives;          /* bytes of a broadcast, before its status is known */
    ddp_status shrink;       /* of this one */
    struct ddp_comm *shrunk; /* what then comes out */
    unsigned broadcasts;
    uint32_t root;   /* of the broadcast */
    uint8_t sent[2]; /* by this rank: the first byte and the last */
    bool destroyed;
};

uint32_t ddp_comm_rank(const ddp_comm *comm)
{
    return comm->rank;
}

uint32_t ddp_comm_world_size(const ddp_comm *comm)
{
    return comm->world_size;
}

void ddp_comm_destroy(ddp_comm *comm)
{
    ck_assert(!comm->destroyed);
    comm->destroyed = true;
}

ddp_status ddp_all_gather(ddp_comm *comm, const void *send, void *recv, size_t count,
                          ddp_dtype dtype, void *stream, struct ddp_error *err)
{
    struct ddpi_state_record own, *all = recv;
    ck_assert(count * sizeof(uint64_t) == sizeof own && dtype == DDP_UINT64 && stream == NULL);
    ck_assert(!comm->destroyed && err != NULL);
    memcpy(&own, send, sizeof own);
    for (uint32_t rank = 0; rank < comm->world_size && comm->gather == DDP_OK; rank++) {
        all[rank] = own;
        if (rank != comm->rank) {
            all[rank].number = comm->others[rank];
            all[rank].sum = comm->others[rank] == own.number ? own.sum : ~own.sum;
        }
    }
    return comm->gather;
}

ddp_status ddp_broadcast(ddp_comm *comm, void *buffer, size_t count, ddp_dtype dtype, uint32_t root,
                         void *stream, struct ddp_error *err)
{
    const uint8_t *bytes = buffer;
    ck_assert(count == BYTES && dtype == DDP_UINT8 && stream == NULL && err != NULL);
    comm->broadcasts++;
    comm->root = root;
    if (root != comm->rank)
        memset(buffer, SENT, comm->arrives);
    comm->sent[0] = bytes[0];
    comm->sent[1] = bytes[BYTES - 1];
    return comm->broadcast;
}

ddp_status ddp_comm_shrink(ddp_comm *comm, const uint32_t *excluded, uint32_t count, uint32_t flags,
                           uint32_t timeout_ms, ddp_comm **ret_comm, struct ddp_error *err)
{
    ck_assert(excluded == NULL && count == 0 && flags == 0 && timeout_ms == 77 && err != NULL);
    ck_assert(!comm->destroyed);
    if (comm->shrink == DDP_OK)
        *ret_comm = comm->shrunk;
    return comm->shrink;
}

/* ---- a state with one commit, and other values since ---- */

struct rig {
    uint8_t data[BYTES];
    ddp_state *state;
};

static void check_data(const struct rig *rig, uint8_t fill)
{
    uint8_t expected[BYTES];
    memset(expected, fill, BYTES);
    ck_assert_mem_eq(rig->data, expected, BYTES);
}

static void rig_open(struct rig *rig)
{
    const struct ddp_checkpoint_blob blob = {"data", rig->data, BYTES};
    const struct ddp_state_options options = {.size = sizeof options, .blobs = &blob, .count = 1};
    ck_assert_int_eq(ddp_state_create(&options, &rig->state, NULL), DDP_OK);
    memset(rig->data, OWN, BYTES);
    ck_assert_int_eq(ddp_state_commit(rig->state, NULL), DDP_OK);
    memset(rig->data, LIVE, BYTES);
}

/* ---- sync ---- */

START_TEST(what_all_have_is_not_sent)
{
    struct ddp_comm comm = {.world_size = 3, .rank = 1, .others = {1, 0, 1}};
    struct ddp_error err;
    struct rig rig;
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_sync(rig.state, &comm, &err), DDP_OK);
    ck_assert_uint_eq(comm.broadcasts, 0);
    check_data(&rig, OWN);
    ddp_state_destroy(rig.state);
}
END_TEST

START_TEST(the_commit_is_sent_not_what_came_after)
{
    struct ddp_comm comm = {.world_size = 3, .rank = 1, .others = {0, 0, 1}};
    struct ddp_error err;
    struct rig rig;
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_sync(rig.state, &comm, &err), DDP_OK);
    ck_assert(comm.broadcasts == 1 && comm.root == 1);
    ck_assert(comm.sent[0] == OWN && comm.sent[1] == OWN);
    check_data(&rig, OWN);
    ddp_state_destroy(rig.state);
}
END_TEST

/* The only rank with the newest commit dies while it sends: what arrived is not a commit. */
START_TEST(a_commit_that_arrives_in_part_costs_none)
{
    struct ddp_comm broken = {.world_size = 2,
                              .rank = 1,
                              .others = {SENT_NUMBER},
                              .broadcast = DDP_E_PEER_DEAD,
                              .arrives = (size_t)_i * BYTES / 2};
    struct ddp_comm alone = {.world_size = 1};
    struct ddp_error err;
    struct rig rig;
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_sync(rig.state, &broken, &err), DDP_E_PEER_DEAD);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), 1);
    check_data(&rig, LIVE);
    ck_assert_int_eq(ddp_state_sync(rig.state, &alone, &err), DDP_OK);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), 1);
    check_data(&rig, OWN);
    ddp_state_destroy(rig.state);
}
END_TEST

/* ---- recovery ---- */

/* @comms, each of which shrinks to the next one, by one rank. */
static void chain(struct ddp_comm *comms, size_t count)
{
    for (size_t i = 0; i < count; i++)
        comms[i] = (struct ddp_comm){.world_size = RANKS - (uint32_t)i,
                                     .rank = RANKS - (uint32_t)i - 1,
                                     .others = {SENT_NUMBER, 1, 1},
                                     .arrives = BYTES,
                                     .shrunk = i + 1 < count ? &comms[i + 1] : NULL};
}

/* Ranks die in the first syncs: while records are gathered, then while the commit is sent. */
START_TEST(deaths_in_a_recovery_lead_to_another_round)
{
    struct ddp_comm comms[RANKS], *comm = comms;
    struct ddp_error err;
    struct rig rig;
    chain(comms, RANKS);
    comms[1].gather = DDP_E_PEER_DEAD;
    comms[2].broadcast = DDP_E_CLOSED;
    comms[2].arrives = BYTES / 2;
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_recover(rig.state, &comm, 77, &err), DDP_OK);
    ck_assert_ptr_eq(comm, &comms[3]);
    for (size_t i = 0; i < RANKS; i++)
        ck_assert(comms[i].destroyed == (i < 3));
    ck_assert_uint_eq(comms[2].broadcasts, 1);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), 1);
    check_data(&rig, OWN);
    ddp_state_destroy(rig.state);
}
END_TEST

START_TEST(the_newest_commit_is_received_in_a_recovery)
{
    struct ddp_comm comms[2], *comm = comms;
    struct ddp_error err;
    struct rig rig;
    chain(comms, 2);
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_recover(rig.state, &comm, 77, &err), DDP_OK);
    ck_assert(comm == &comms[1] && comms[0].destroyed && !comms[1].destroyed);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), SENT_NUMBER);
    check_data(&rig, SENT);
    ddp_state_destroy(rig.state);
}
END_TEST

/* Connections that break although no rank dies. */
START_TEST(a_recovery_ends)
{
    struct ddp_comm comms[RANKS + 3], *comm = comms;
    struct ddp_error err;
    struct rig rig;
    for (size_t i = 0; i < RANKS + 3; i++)
        comms[i] = (struct ddp_comm){
            .world_size = RANKS, .gather = DDP_E_CLOSED, .shrunk = &comms[(i + 1) % (RANKS + 3)]};
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_recover(rig.state, &comm, 77, &err), DDP_E_CLOSED);
    ck_assert_ptr_eq(comm, &comms[RANKS]);
    ck_assert(comms[RANKS - 1].destroyed && !comms[RANKS].destroyed);
    check_data(&rig, LIVE);
    ddp_state_destroy(rig.state);
}
END_TEST

/* Of the second shrink, or of the second sync. */
START_TEST(other_errors_end_a_recovery)
{
    struct ddp_comm comms[RANKS], *comm = comms;
    struct ddp_error err;
    struct rig rig;
    chain(comms, RANKS);
    comms[1].gather = DDP_E_PEER_DEAD;
    comms[1].shrink = _i == 0 ? DDP_E_TIMEOUT : DDP_OK;
    comms[2].gather = DDP_E_NOMEM;
    rig_open(&rig);
    ck_assert_int_eq(ddp_state_recover(rig.state, &comm, 77, &err),
                     _i == 0 ? DDP_E_TIMEOUT : DDP_E_NOMEM);
    ck_assert_ptr_eq(comm, &comms[1 + _i]);
    ck_assert(comms[_i].destroyed && !comms[1 + _i].destroyed);
    check_data(&rig, LIVE);
    ddp_state_destroy(rig.state);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("state_sync");
    TCase *tests = tcase_create("sync");
    tcase_add_test(tests, what_all_have_is_not_sent);
    tcase_add_test(tests, the_commit_is_sent_not_what_came_after);
    tcase_add_loop_test(tests, a_commit_that_arrives_in_part_costs_none, 0, 3);
    suite_add_tcase(suite, tests);
    tests = tcase_create("recovery");
    tcase_add_test(tests, deaths_in_a_recovery_lead_to_another_round);
    tcase_add_test(tests, the_newest_commit_is_received_in_a_recovery);
    tcase_add_test(tests, a_recovery_ends);
    tcase_add_loop_test(tests, other_errors_end_a_recovery, 0, 2);
    suite_add_tcase(suite, tests);
    return suite;
}
