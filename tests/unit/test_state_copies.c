/*
 * test_state_copies.c - a state in a world of one rank: options that are refused, commit and
 * restore, a function for copies that fails at each blob, each allocation that fails in turn.
 */
#include "check_main.h"
#include "failmem.h"

#include <ddprun/ddp.h>
#include <stdlib.h>
#include <string.h>

enum { BLOBS = 3, MOST_ALLOCATIONS = 200, COPY_ERROR = 7, NEVER = -1 };

struct rig {
    uint64_t step;
    float weights[5];
    char text[6];
    int copies_left; /* until one fails; negative: none fails */
    struct ddp_checkpoint_blob blobs[BLOBS + 1];
    struct ddp_state_options options;
    ddp_state *state;
};

static int copy_or_fail(void *to, const void *from, size_t bytes, void *arg)
{
    struct rig *rig = arg;
    ck_assert_uint_gt(bytes, 0);
    if (rig->copies_left == 0)
        return COPY_ERROR;
    rig->copies_left--;
    memcpy(to, from, bytes);
    return 0;
}

static void rig_fill(struct rig *rig, unsigned value)
{
    rig->step = value;
    for (size_t i = 0; i < sizeof rig->weights / sizeof *rig->weights; i++)
        rig->weights[i] = (float)value + (float)i;
    memset(rig->text, (int)value, sizeof rig->text);
}

static void check_filled(const struct rig *rig, unsigned value)
{
    struct rig expected;
    rig_fill(&expected, value);
    ck_assert_uint_eq(rig->step, expected.step);
    ck_assert_mem_eq(rig->weights, expected.weights, sizeof rig->weights);
    ck_assert_mem_eq(rig->text, expected.text, sizeof rig->text);
}

static void rig_set(struct rig *rig)
{
    *rig = (struct rig){.copies_left = NEVER};
    rig->blobs[0] = (struct ddp_checkpoint_blob){"step", &rig->step, sizeof rig->step};
    rig->blobs[1] = (struct ddp_checkpoint_blob){"weights", rig->weights, sizeof rig->weights};
    rig->blobs[2] = (struct ddp_checkpoint_blob){"empty", NULL, 0};
    rig->blobs[3] = (struct ddp_checkpoint_blob){"text", rig->text, sizeof rig->text};
    rig->options = (struct ddp_state_options){.size = sizeof rig->options,
                                              .blobs = rig->blobs,
                                              .count = BLOBS + 1,
                                              .copy = copy_or_fail,
                                              .copy_arg = rig};
}

static void rig_open(struct rig *rig)
{
    struct ddp_error err;
    char name[] = "weights";
    rig_set(rig);
    rig->blobs[1].name = name;
    ck_assert_msg(ddp_state_create(&rig->options, &rig->state, &err) == DDP_OK, "%s", err.msg);
    memset(name, 'x', sizeof name); /* the list and the names are the state's own */
    memset(rig->blobs, 0, sizeof rig->blobs);
}

static ddp_comm *world_of_one(void)
{
    ddp_comm *comm = NULL;
    struct ddp_error err;
    ck_assert_msg(ddp_comm_init(NULL, &comm, &err) == DDP_OK, "%s", err.msg);
    return comm;
}

START_TEST(restore_goes_back_to_the_last_commit)
{
    struct rig rig;
    rig_open(&rig);
    for (unsigned number = 1; number <= 4; number++) {
        rig_fill(&rig, number);
        ck_assert_int_eq(ddp_state_commit(rig.state, NULL), DDP_OK);
        ck_assert_uint_eq(ddp_state_commit_number(rig.state), number);
        rig_fill(&rig, 100 + number);
        ck_assert_int_eq(ddp_state_restore(rig.state, NULL), DDP_OK);
        check_filled(&rig, number);
    }
    rig_fill(&rig, 99);
    ck_assert_int_eq(ddp_state_restore(rig.state, NULL), DDP_OK); /* again */
    check_filled(&rig, 4);
    ddp_state_destroy(rig.state);
}
END_TEST

START_TEST(without_a_commit_there_is_nothing_to_restore)
{
    struct ddp_error err;
    struct rig rig;
    rig_open(&rig);
    rig_fill(&rig, 3);
    ck_assert_int_eq(ddp_state_restore(rig.state, &err), DDP_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "no commit to go back to: call ddp_state_sync()"));
    check_filled(&rig, 3);
    ddp_state_destroy(rig.state);
}
END_TEST

START_TEST(the_first_sync_makes_the_first_commit)
{
    ddp_comm *comm = world_of_one();
    struct rig rig;
    rig_open(&rig);
    rig_fill(&rig, 3);
    ck_assert_int_eq(ddp_state_sync(rig.state, comm, NULL), DDP_OK);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), 1);
    rig_fill(&rig, 4);
    ck_assert_int_eq(ddp_state_sync(rig.state, comm, NULL), DDP_OK); /* back to it */
    check_filled(&rig, 3);
    rig_fill(&rig, 4);
    ck_assert_int_eq(ddp_state_recover(rig.state, &comm, 0, NULL), DDP_OK);
    check_filled(&rig, 3);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), 1);
    ddp_state_destroy(rig.state);
    ddp_comm_destroy(comm);
}
END_TEST

/* The copy of blob _i fails; blob 2 is empty and not copied. */
START_TEST(a_commit_that_fails_leaves_the_one_before)
{
    static const char *const names[] = {"8 bytes of blob 'step' failed with 7",
                                        "20 bytes of blob 'weights' failed with 7",
                                        "6 bytes of blob 'text' failed with 7"};
    struct ddp_error err;
    struct rig rig;
    rig_open(&rig);
    rig_fill(&rig, 1);
    ck_assert_int_eq(ddp_state_commit(rig.state, NULL), DDP_OK);
    rig_fill(&rig, 2);
    rig.copies_left = _i;
    ck_assert_int_eq(ddp_state_commit(rig.state, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, names[_i]));
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), 1);
    rig.copies_left = _i;
    ck_assert_int_eq(ddp_state_restore(rig.state, &err), DDP_E_SYSTEM);
    ck_assert_ptr_nonnull(strstr(err.msg, names[_i]));
    rig.copies_left = NEVER;
    ck_assert_int_eq(ddp_state_restore(rig.state, &err), DDP_OK);
    check_filled(&rig, 1);
    ddp_state_destroy(rig.state);
}
END_TEST

/* In the first sync a copy of the blobs is made, then they are set to it. */
START_TEST(a_sync_whose_copy_fails_can_be_repeated)
{
    ddp_comm *comm = world_of_one();
    struct ddp_error err;
    struct rig rig;
    rig_open(&rig);
    rig_fill(&rig, 5);
    rig.copies_left = _i;
    ck_assert_int_eq(ddp_state_sync(rig.state, comm, &err), DDP_E_SYSTEM);
    ck_assert_uint_eq(ddp_state_commit_number(rig.state), _i < BLOBS ? 0 : 1);
    rig.copies_left = NEVER;
    ck_assert_int_eq(ddp_state_sync(rig.state, comm, &err), DDP_OK);
    check_filled(&rig, 5);
    ddp_state_destroy(rig.state);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(options_are_checked)
{
    char long_name[DDP_CHECKPOINT_NAME + 2];
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    struct rig rigs[8];
    static const char *const sentences[] = {"size of the options is not set",
                                            "the state has 0 blobs: it needs 1 to 65536",
                                            "the state has 0 blobs",
                                            "the state has 65537 blobs",
                                            "name of blob 1 of the state must have 1 to 255 bytes",
                                            "name of blob 1",
                                            "blob 'weights' of the state has 20 bytes, but its",
                                            "blob 'weights' makes the state larger than any"};
    for (size_t i = 0; i < sizeof rigs / sizeof *rigs; i++)
        rig_set(&rigs[i]);
    rigs[0].options.size = 0;
    rigs[1].options.count = 0;
    rigs[2].options.blobs = NULL;
    rigs[3].options.count = DDP_CHECKPOINT_BLOBS + 1;
    rigs[4].blobs[1].name = long_name;
    rigs[5].blobs[1].name = _i == 0 ? NULL : "";
    rigs[6].blobs[1].data = NULL;
    rigs[7].blobs[1].bytes = SIZE_MAX - 4;
    for (size_t i = 0; i < sizeof rigs / sizeof *rigs; i++) {
        struct ddp_error err = {.msg = ""};
        ck_assert_int_eq(ddp_state_create(&rigs[i].options, &rigs[i].state, &err), DDP_E_INVALID);
        ck_assert_ptr_null(rigs[i].state);
        ck_assert_msg(strstr(err.msg, sentences[i]) != NULL, "%s", err.msg);
    }
}
END_TEST

/* Options of a program that knows only what comes before @copy; and a state of empty blobs. */
START_TEST(short_options_and_empty_blobs)
{
    ddp_comm *comm = world_of_one();
    struct rig rig;
    rig_set(&rig);
    rig.options.size = offsetof(struct ddp_state_options, copy);
    rig.options.blobs = &rig.blobs[2];
    rig.options.count = _i == 0 ? 1 : 2;
    rig.copies_left = 0; /* nothing is to be called */
    ck_assert_int_eq(ddp_state_create(&rig.options, &rig.state, NULL), DDP_OK);
    ck_assert_int_eq(ddp_state_sync(rig.state, comm, NULL), DDP_OK);
    ck_assert_int_eq(ddp_state_commit(rig.state, NULL), DDP_OK);
    ck_assert_int_eq(ddp_state_restore(rig.state, NULL), DDP_OK);
    ddp_state_destroy(rig.state);
    ddp_comm_destroy(comm);
}
END_TEST

static ddp_status use_state(struct rig *rig, ddp_comm *comm, struct ddp_error *err)
{
    ddp_status status = ddp_state_create(&rig->options, &rig->state, err);
    if (status == DDP_OK)
        status = ddp_state_sync(rig->state, comm, err);
    return status;
}

START_TEST(every_allocation_may_fail)
{
    ddp_comm *comm = world_of_one();
    bool failed = true;
    unsigned allocations = 0;
    for (; failed; allocations++) {
        struct ddp_error err = {.msg = ""};
        struct rig rig;
        ck_assert_uint_lt(allocations, MOST_ALLOCATIONS);
        rig_set(&rig);
        rig_fill(&rig, 6);
        failmem_start_some(allocations, 1);
        ddp_status status = use_state(&rig, comm, &err);
        failed = failmem_stop();
        ck_assert(status == DDP_OK || (status == DDP_E_NOMEM && err.msg[0] != '\0'));
        ck_assert(status == DDP_OK || failed);
        check_filled(&rig, 6);
        ddp_state_destroy(rig.state);
    }
    ck_assert_uint_ge(allocations, 7);
    ddp_comm_destroy(comm);
}
END_TEST

START_TEST(commit_and_restore_allocate_nothing)
{
    struct rig rig;
    rig_open(&rig);
    failmem_start(0);
    rig_fill(&rig, 8);
    ddp_status status = ddp_state_commit(rig.state, NULL);
    rig_fill(&rig, 9);
    ddp_status restored = ddp_state_restore(rig.state, NULL);
    ck_assert(!failmem_stop());
    ck_assert(status == DDP_OK && restored == DDP_OK);
    check_filled(&rig, 8);
    ddp_state_destroy(rig.state);
    ddp_state_destroy(NULL);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("state_copies");
    TCase *tests = tcase_create("copies");
    tcase_add_test(tests, restore_goes_back_to_the_last_commit);
    tcase_add_test(tests, without_a_commit_there_is_nothing_to_restore);
    tcase_add_test(tests, the_first_sync_makes_the_first_commit);
    tcase_add_loop_test(tests, a_commit_that_fails_leaves_the_one_before, 0, BLOBS);
    tcase_add_loop_test(tests, a_sync_whose_copy_fails_can_be_repeated, 0, 2 * BLOBS);
    tcase_add_loop_test(tests, options_are_checked, 0, 2);
    tcase_add_loop_test(tests, short_options_and_empty_blobs, 0, 2);
    tcase_add_test(tests, every_allocation_may_fail);
    tcase_add_test(tests, commit_and_restore_allocate_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}
