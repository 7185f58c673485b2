/*
 * test_round_keys.c - rounds as keys, on a core with fake time: which keys make and end a job, what
 * members find at their seats, and a second start on the same keys.
 */
#include "check_main.h"
#include "error.h"
#include "kv_fixture.h"
#include "round_keys.h"
#include "round_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct ddpi_round_keys *keys;
static struct ddp_error why;
static uint64_t epoch;
static unsigned begins, resumes, changes, troubles, overs, closes;
static bool store_is_master, begin_fails;
static uint32_t quarantine; /* of the terms */
static const char *own_job; /* of the members */

static uint64_t on_epoch(void *ctx, const char *job)
{
    (void)ctx;
    ck_assert_str_eq(job, own_job);
    return epoch;
}

static ddp_status on_begin(void *ctx, const char *job, uint64_t generation, bool master,
                           struct ddp_round_seat *seat, struct ddp_error *err)
{
    (void)ctx;
    ck_assert_str_eq(job, own_job);
    if (begin_fails)
        return ddpi_error_set(err, DDP_E_LIMIT, "no ports");
    ck_assert_uint_gt(generation, epoch);
    epoch = generation;
    store_is_master = master;
    seat->master_port = 4711;
    begins++;
    return DDP_OK;
}

static void on_resume(void *ctx, const char *job, const struct ddp_round_seat *seat)
{
    (void)ctx;
    (void)job;
    ck_assert_int_eq(seat->order, DDP_ROUND_RUN);
    ck_assert_uint_eq(seat->master_port, 29500);
    resumes++;
}

static void on_changed(void *ctx, const char *job, const struct ddpi_rounds_summary *before,
                       const struct ddpi_rounds_summary *after)
{
    (void)ctx;
    (void)job;
    ck_assert_mem_ne(before, after, sizeof *before);
    changes++;
}

static void on_trouble(void *ctx, const char *job, const char *what)
{
    (void)ctx;
    (void)job;
    ck_assert_uint_gt(strlen(what), 0);
    troubles++;
}

static void on_over(void *ctx, const char *job, bool closed)
{
    (void)ctx;
    ck_assert_str_eq(job, own_job);
    overs++;
    closes += closed;
}

static void note(void *ctx, const struct ddpi_mutation *mutation)
{
    (void)ctx;
    ddpi_round_keys_note(keys, mutation);
}

static bool named_only;

static void make_keys(void)
{
    static const uint8_t seed[DDPI_SEED_SIZE] = {1};
    const struct ddpi_round_keys_hooks hooks = {.named_only = named_only,
                                                .epoch = on_epoch,
                                                .begin = on_begin,
                                                .resume = on_resume,
                                                .changed = on_changed,
                                                .trouble = on_trouble,
                                                .over = on_over};
    keys = ddpi_round_keys_create(kv, seed, &hooks);
    ck_assert_ptr_nonnull(keys);
}

static void setup(void)
{
    kv_setup();
    epoch = begins = resumes = changes = troubles = overs = closes = 0;
    begin_fails = named_only = false;
    quarantine = 0;
    own_job = "j";
    make_keys();
    ddpi_kv_set_sink(kv, note, NULL);
}

static void teardown(void)
{
    ddpi_kv_set_sink(kv, NULL, NULL);
    ddpi_round_keys_destroy(keys);
    kv_teardown();
}

/* ---- the scene ---- */

static void act(void)
{
    ddpi_round_keys_act(keys, now);
}

static void put(const char *key, const char *value)
{
    ck_assert_int_eq(ddpi_kv_poke(kv, bytes(key), bytes(value), &why), DDP_OK);
}

static void drop(const char *key)
{
    ddpi_kv_remove(kv, bytes(key));
}

static const char *value_of(const char *key)
{
    return ddpi_kv_peek(kv, bytes(key)).data;
}

static struct ddp_round_member member(uint64_t id)
{
    struct ddp_round_member says = {.nproc = 2,
                                    .node_rank = -1,
                                    .master_port = 29500,
                                    .terms = {.min_nodes = 1, .max_nodes = 3, .settle_ms = 100}};
    says.terms.quarantine = quarantine;
    snprintf(says.name, sizeof says.name, "n%" PRIu64, id);
    snprintf(says.address, sizeof says.address, "10.0.0.%" PRIu64, id);
    return says;
}

static void publish_in(const char *job, uint64_t id, const struct ddp_round_member *says)
{
    struct ddpi_buf record;
    char key[64];
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    ck_assert_int_eq(ddpi_round_member_put(&record, says, &why), DDP_OK);
    snprintf(key, sizeof key, "round/%s/member/%" PRIu64, job, id);
    ck_assert_int_eq(ddpi_kv_poke(kv, bytes(key),
                                  ddpi_bytes_of(ddpi_buf_head(&record), ddpi_buf_len(&record)),
                                  &why),
                     DDP_OK);
    ddpi_buf_finish(&record);
}

static void publish(uint64_t id, const struct ddp_round_member *says)
{
    publish_in("j", id, says);
}

static void join(uint64_t id)
{
    struct ddp_round_member says = member(id);
    publish(id, &says);
}

static void say(uint64_t id, enum ddp_round_phase phase, uint64_t generation)
{
    struct ddp_round_member says = member(id);
    says.phase = phase;
    says.generation = generation;
    publish(id, &says);
}

static struct ddp_round_seat seat_in(const char *job, uint64_t id)
{
    struct ddp_round_seat seat = {.order = (enum ddp_round_order) - 1};
    char key[64];
    snprintf(key, sizeof key, "round/%s/seat/%" PRIu64, job, id);
    struct ddpi_bytes record = ddpi_kv_peek(kv, bytes(key));
    if (record.data != NULL)
        ck_assert_msg(ddpi_round_seat_get(record, &seat, &why) == DDP_OK, "%s", why.msg);
    return seat;
}

static struct ddp_round_seat seat_of(uint64_t id)
{
    return seat_in("j", id);
}

static void assert_state(const char *words)
{
    const char *state = value_of("round/j/state");
    ck_assert_ptr_nonnull(state);
    ck_assert_msg(strstr(state, words) != NULL, "no '%s' in %s", words, state);
}

/* Two nodes in generation 1. */
static void form(void)
{
    join(2);
    join(10);
    act();
    now += 100;
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
    say(2, DDP_ROUND_RUNNING, 1);
    say(10, DDP_ROUND_RUNNING, 1);
    act();
}

/* ---- tests ---- */

START_TEST(a_job_from_its_first_member_to_its_last)
{
    uint64_t jobs, members;
    ck_assert_uint_eq(ddpi_round_keys_deadline(keys), UINT64_MAX);
    join(2);
    ck_assert_ptr_null(value_of("round/j/state")); /* nothing before the end of the turn */
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_WAIT);
    assert_state("state forming\n");
    ck_assert_uint_eq(ddpi_round_keys_deadline(keys), now + 100);
    join(10);
    act();
    now += 99;
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_WAIT);
    now++;
    act();
    struct ddp_round_seat seat = seat_of(10);
    ck_assert(seat.order == DDP_ROUND_RUN && seat.generation == 1 && seat.nodes == 2);
    ck_assert(seat.node_rank == 1 && seat.first_rank == 2 && seat.world_size == 4);
    ck_assert(begins == 1 && !store_is_master);
    assert_state("state running\ngeneration 1\nmembers 2\nseated 2\n");
    ddpi_round_keys_count(keys, &jobs, &members);
    ck_assert(jobs == 1 && members == 2);
    put("round/j/want/drain/x", "");
    drop("round/j/member/2");
    act();
    ck_assert_ptr_null(value_of("round/j/seat/2"));
    ck_assert_int_eq(seat_of(10).order, DDP_ROUND_STOP);
    drop("round/j/member/10");
    act();
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("round/")), 0);
    ddpi_round_keys_count(keys, &jobs, &members);
    ck_assert(jobs == 0 && members == 0 && overs == 1);
    ck_assert_uint_eq(closes, 0); /* they were lost */
    ck_assert_uint_eq(ddpi_round_keys_deadline(keys), UINT64_MAX);
    form(); /* under the same name, but not the same number */
}
END_TEST

START_TEST(the_store_as_the_master)
{
    struct ddp_round_member says = member(2);
    says.master_port = 0;
    epoch = 6;
    join(3); /* it has a port of its own, which does not matter here */
    publish(2, &says);
    act();
    now += 100;
    act();
    ck_assert(begins == 1 && store_is_master);
    struct ddp_round_seat seat = seat_of(3);
    ck_assert(seat.generation == 7 && seat.master_port == 4711);
    ck_assert_str_eq(seat.master_address, "");
}
END_TEST

START_TEST(nothing_is_done_twice)
{
    form();
    uint64_t version = ddpi_kv_stats(kv).version;
    act();
    now += 100000;
    act();
    say(2, DDP_ROUND_RUNNING, 1);
    act();
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, version + 1); /* what the member has set */
}
END_TEST

START_TEST(what_cannot_be_read_is_told_so)
{
    form();
    put("round/j/member/11", "name n11\n");
    put("round/j/member/012", "name n12\n");
    put("round/j/member/-1", "");
    put("round/j/member/9223372036854775808", "");
    act();
    struct ddp_round_seat seat = seat_of(11);
    ck_assert(seat.order == DDP_ROUND_END && seat.exit_code == 78);
    ck_assert_ptr_nonnull(strstr(seat.text, "it has no 'address'"));
    ck_assert_ptr_nonnull(strstr(value_of("round/j/seat/012"), "does not end with a number"));
    ck_assert_ptr_nonnull(value_of("round/j/seat/-1"));
    ck_assert_ptr_nonnull(value_of("round/j/seat/9223372036854775808"));
    drop("round/j/member/11");
    drop("round/j/member/012");
    act();
    ck_assert_ptr_null(value_of("round/j/seat/11"));
    ck_assert_ptr_null(value_of("round/j/seat/012"));
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
    static const char *const odd[] = {
        "round/",          "round/j",        "round/j/",       "round/.j/member/1",
        "round//member/1", "round/j/member", "round/j/colour", "job/j/ddprun/checkpoint/"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        put(odd[i], "x");
    act();
    uint64_t jobs, members;
    ddpi_round_keys_count(keys, &jobs, &members);
    ck_assert(jobs == 1 && members == 2);
}
END_TEST

START_TEST(people_may_want_things_before)
{
    put("round/j/want/size", "2:2");
    put("round/j/want/drain/n3", "");
    act();
    ck_assert_ptr_null(value_of("round/j/state"));
    join(2);
    join(3);
    act();
    now += 1000;
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_WAIT); /* 3 is not to be */
    drop("round/j/want/drain/n3");
    act();
    join(4);
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
    ck_assert_int_eq(seat_of(4).order, DDP_ROUND_RUN);
    static const char *const bad[] = {"",    "1",   ":",    "2:1",
                                      "0:1", "1:x", "1:2 ", "1:99999999999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put("round/j/want/size", bad[i]);
        act();
        ck_assert_uint_eq(troubles, i + 1);
    }
    put("round/j/want/stop", "");
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_STOP);
}
END_TEST

/* By mistake, or too late for the job that was meant. */
START_TEST(a_stop_before_the_job_is_no_stop)
{
    put("round/j/want/stop", "");
    act();
    form();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
    ck_assert_ptr_null(value_of("round/j/want/stop"));
    put("round/j/want/stop", "");
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_STOP);
}
END_TEST

/* With the job go the wishes for it. */
START_TEST(the_next_job_of_a_name_is_not_stopped)
{
    form();
    put("round/j/want/stop", "");
    put("round/j/want/size", "2:2");
    put("round/j/want/drain/n2", "");
    act();
    drop("round/j/member/2");
    drop("round/j/member/10");
    act();
    ck_assert(overs == 1 && closes == 1);
    form();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
}
END_TEST

/* Nor is one that has waited for the end of it. */
START_TEST(the_job_that_waits_is_not_stopped)
{
    form();
    put("round/j/want/stop", "");
    put("round/j/want/size", "2:2");
    put("round/j/want/drain/n11", "");
    act();
    say(2, DDP_ROUND_IDLE, 1);
    say(10, DDP_ROUND_IDLE, 1);
    act();
    assert_state("state closed\n");
    join(11);
    act();
    ck_assert_int_eq(seat_of(11).order, DDP_ROUND_WAIT);
    drop("round/j/member/2");
    act();
    now += 1000;
    act();
    if (_i == 1) {
        ddpi_round_keys_destroy(keys);
        make_keys();
        ddpi_round_keys_restore(keys);
        act();
    }
    assert_state("state closed\n");
    ck_assert_ptr_nonnull(strstr(seat_of(11).text, "the last 1 node of"));
    drop("round/j/member/10");
    act();
    assert_state("state forming\n");
    ck_assert_ptr_null(value_of("round/j/want/stop"));
    ck_assert_ptr_null(value_of("round/j/want/size"));
    ck_assert_ptr_null(value_of("round/j/want/drain/n11"));
    if (_i == 2) {
        ddpi_round_keys_destroy(keys);
        make_keys();
        ddpi_round_keys_restore(keys);
        act();
    }
    now += 100;
    act();
    ck_assert(seat_of(11).order == DDP_ROUND_RUN && seat_of(11).generation == 2);
    ck_assert_uint_eq(overs, 0);
}
END_TEST

/* A server that was told to stop a job, and starts again, still knows. */
START_TEST(a_stop_outlives_the_server)
{
    form();
    ddpi_round_keys_destroy(keys);
    ddpi_kv_set_sink(kv, NULL, NULL);
    put("round/j/want/stop", "");
    make_keys();
    ddpi_kv_set_sink(kv, note, NULL);
    ddpi_round_keys_restore(keys);
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_STOP);
}
END_TEST

/* The job is fenced while it runs; a member sends a record that makes no sense. */
START_TEST(a_generation_comes_after_the_epoch)
{
    form();
    epoch = _i == 3 ? UINT64_C(1) << 53 : 9;
    if (_i == 1)
        ddpi_round_keys_restore(keys); /* nothing of it was noted */
    else
        put("epoch/j", "9");
    put("epoch/", "1");
    put("epoch/k", "1");
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
    if (_i == 2)
        say(2, DDP_ROUND_IDLE, UINT64_C(1) << 53);
    act();
    drop("round/j/member/2");
    say(10, DDP_ROUND_IDLE, 1);
    act();
    struct ddp_round_seat seat = seat_of(10);
    if (_i == 3) {
        ck_assert_int_eq(seat.order, DDP_ROUND_END);
        ck_assert_ptr_nonnull(strstr(seat.text, "no generation can follow"));
        return;
    }
    ck_assert(seat.order == DDP_ROUND_RUN && seat.generation == 10);
}
END_TEST

/* So near the end of all numbers that nothing could come after it. */
START_TEST(an_absurd_generation_is_no_record)
{
    form();
    const char *record = value_of("round/j/member/2"), *at = strstr(record, "\ngeneration 1\n");
    char absurd[4096];
    ck_assert_ptr_nonnull(at);
    snprintf(absurd, sizeof absurd, "%.*s\ngeneration 9223372036854775807\n%s", (int)(at - record),
             record, at + strlen("\ngeneration 1\n"));
    put("round/j/member/11", absurd);
    act();
    struct ddp_round_seat seat = seat_of(11);
    ck_assert(seat.order == DDP_ROUND_END && seat.exit_code == 78);
    drop("round/j/member/2");
    say(10, DDP_ROUND_IDLE, 1);
    act();
    ck_assert(seat_of(10).order == DDP_ROUND_RUN && seat_of(10).generation == 2);
}
END_TEST

START_TEST(a_checkpoint_in_any_keyspace)
{
    static const char *const saved[] = {"job/j/ddprun/checkpoint", "job/j/g1/ddprun/checkpoint",
                                        "job/j/tcp/ddprun/checkpoint"};
    static const char *const other[] = {"job/k/ddprun/checkpoint", "ddprun/checkpoint",
                                        "job/j/ddprun/checkpoints", "job/j/xddprun/checkpoint"};
    struct ddp_round_member says = member(2);
    says.terms.join = DDP_ROUND_JOIN_CHECKPOINT;
    publish(2, &says);
    act();
    now += 100;
    act();
    says.phase = DDP_ROUND_RUNNING;
    says.generation = 1;
    publish(2, &says);
    struct ddp_round_member late = member(3);
    late.terms.join = DDP_ROUND_JOIN_CHECKPOINT;
    publish(3, &late);
    act();
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        put(other[i], "");
    drop("job/k/ddprun/checkpoint");
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_RUN);
    put(saved[_i], "");
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_STOP);
}
END_TEST

START_TEST(a_job_without_a_name)
{
    struct ddp_round_member says = member(2);
    struct ddp_round_seat seat;
    ddpi_kv_set_sink(kv, NULL, NULL);
    ddpi_round_keys_destroy(keys);
    named_only = _i == 1;
    make_keys();
    ddpi_kv_set_sink(kv, note, NULL);
    own_job = "none";
    publish_in(own_job, 2, &says);
    act();
    seat = seat_in("none", 2);
    ck_assert_int_eq(seat.order, named_only ? DDP_ROUND_END : DDP_ROUND_WAIT);
    ck_assert_int_eq(seat.exit_code, named_only ? 2 : 0);
    ck_assert(!named_only || strstr(seat.text, "--rdzv-id=NAME") != NULL);
    ck_assert((ddpi_round_keys_other(keys, "") == NULL) == named_only);
    drop("round/none/member/2");
    act();
    ck_assert_ptr_null(value_of("round/none/seat/2"));
}
END_TEST

START_TEST(the_other_job)
{
    struct ddp_round_member says = member(2);
    ck_assert_ptr_null(ddpi_round_keys_other(keys, "j"));
    join(2);
    act();
    ck_assert_ptr_null(ddpi_round_keys_other(keys, "j"));
    ck_assert_str_eq(ddpi_round_keys_other(keys, "k"), "j");
    own_job = "k";
    publish_in(own_job, 3, &says);
    act();
    ck_assert_str_eq(ddpi_round_keys_other(keys, "j"), "k");
}
END_TEST

START_TEST(a_generation_that_cannot_begin)
{
    begin_fails = true;
    join(2);
    act();
    now += 100;
    act();
    ck_assert_int_eq(seat_of(2).order, DDP_ROUND_END);
    assert_state("no ports");
}
END_TEST

/* Whatever it was doing, another server finds it so. */
START_TEST(a_second_start_goes_on)
{
    form();
    if (_i == 1) {
        drop("round/j/member/2");
        act();
    }
    uint64_t version = ddpi_kv_stats(kv).version;
    ddpi_round_keys_destroy(keys);
    unsigned before = changes;
    make_keys();
    ddpi_round_keys_restore(keys);
    act();
    ck_assert_uint_eq(resumes, _i == 0 ? 1 : 0);
    ck_assert_uint_eq(changes, before);
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, version); /* there is nothing to tell */
    ck_assert_int_eq(seat_of(10).order, _i == 0 ? DDP_ROUND_RUN : DDP_ROUND_STOP);
    if (_i == 0) {
        drop("round/j/member/2");
        act();
    }
    say(10, DDP_ROUND_IDLE, 1);
    act();
    ck_assert(seat_of(10).order == DDP_ROUND_RUN && seat_of(10).generation == 2);
}
END_TEST

/* The member's key has gone with its session while no server looked. */
START_TEST(who_went_meanwhile_is_missed)
{
    form();
    ddpi_round_keys_destroy(keys);
    ddpi_kv_set_sink(kv, NULL, NULL);
    drop("round/j/member/2");
    make_keys();
    ddpi_kv_set_sink(kv, note, NULL);
    ddpi_round_keys_restore(keys);
    act();
    ck_assert_int_eq(seat_of(10).order, DDP_ROUND_STOP);
    ck_assert_ptr_null(value_of("round/j/seat/2"));
}
END_TEST

START_TEST(leftovers_are_cleared)
{
    form();
    ddpi_round_keys_destroy(keys);
    ddpi_kv_set_sink(kv, NULL, NULL);
    drop("round/j/member/2");
    drop("round/j/member/10");
    put("round/k/want/stop", "");
    make_keys();
    ddpi_kv_set_sink(kv, note, NULL);
    ddpi_round_keys_restore(keys);
    act();
    ck_assert_uint_eq(overs, 1);
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("round/j/")), 0);
    ck_assert_ptr_nonnull(value_of("round/k/want/stop"));
}
END_TEST

static void start_again(void)
{
    ddpi_round_keys_destroy(keys);
    make_keys();
    ddpi_round_keys_restore(keys);
    act();
}

/* Node n2 fails, and that is once too often. */
static void form_and_fail(void)
{
    quarantine = 1;
    for (uint64_t id = 2; id <= 4; id++)
        join(id);
    act();
    struct ddp_round_member fails = member(2);
    fails.generation = fails.failure.generation = 1;
    fails.failure.exit_code = 7;
    snprintf(fails.failure.text, sizeof fails.failure.text, "rank 0 failed");
    publish(2, &fails);
    say(3, DDP_ROUND_IDLE, 1);
    say(4, DDP_ROUND_IDLE, 1);
    act();
}

/* Kept in a key, it outlives the server; a user takes it away. */
START_TEST(quarantine_is_a_key)
{
    form_and_fail();
    ck_assert_str_eq(value_of("round/j/blame/n2"),
                     "failures 1\nleft_out yes\ntext rank 0 failed\n");
    ck_assert(seat_of(2).left_out && seat_of(2).order == DDP_ROUND_WAIT);
    ck_assert(seat_of(3).order == DDP_ROUND_RUN && seat_of(3).nodes == 2);
    assert_state("left_out 1\n");
    if (_i == 1)
        start_again();
    drop("round/j/member/3");
    say(4, DDP_ROUND_IDLE, 2);
    act();
    ck_assert(seat_of(4).order == DDP_ROUND_RUN && seat_of(4).nodes == 1);
    put("round/j/want/admit/n2", "");
    act();
    ck_assert_ptr_null(value_of("round/j/blame/n2"));
    ck_assert_ptr_null(value_of("round/j/want/admit/n2"));
    ck_assert_int_eq(seat_of(4).order, DDP_ROUND_STOP); /* "node n2 joins" */
}
END_TEST

static void wait_in(const char *job, uint64_t id)
{
    struct ddp_round_member says = member(id);
    says.terms.min_nodes = 2;
    own_job = job;
    publish_in(job, id, &says);
    act();
    ck_assert_int_eq(seat_in(job, id).order, DDP_ROUND_WAIT);
}

static void has_heard(const char *job, uint64_t id, const char *notice)
{
    now += 1000; /* texts are told anew once a second */
    act();
    ck_assert_str_eq(seat_in(job, id).notice, notice);
}

START_TEST(jobs_that_wait_beside_each_other)
{
    wait_in("j", 2);
    has_heard("j", 2, "");
    wait_in("k", 3);
    has_heard("k", 3, "node n2 waits at this store for job 'j', and not for this one");
    has_heard("j", 2, "node n3 waits at this store for job 'k', and not for this one");
    wait_in("l", 4); /* there may be many jobs: it hears of the last one, as that of it */
    has_heard("l", 4, "node n3 waits at this store for job 'k', and not for this one");
    has_heard("k", 3, "node n4 waits at this store for job 'l', and not for this one");
    has_heard("j", 2, "node n3 waits at this store for job 'k', and not for this one");
}
END_TEST

/* A key that is no record, or for no possible name, is no obstacle. */
START_TEST(what_is_held_against_nobody_is_skipped)
{
    form_and_fail();
    put("round/j/blame/n2", "rubbish");
    put("round/j/blame/", "rubbish");
    put("round/j/want/admit/", "");
    put("round/j/want/admit/0123456789012345678901234567890123456789012345678901234567890123", "");
    start_again();
    ck_assert_uint_eq(troubles, 1);
    ck_assert(!seat_of(2).left_out);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("round_keys");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, a_job_from_its_first_member_to_its_last, the_store_as_the_master,
              nothing_is_done_twice, what_cannot_be_read_is_told_so, people_may_want_things_before,
              a_stop_before_the_job_is_no_stop, the_next_job_of_a_name_is_not_stopped);
    tcase_add_loop_test(tcase, the_job_that_waits_is_not_stopped, 0, 3);
    tcase_add_test(tcase, a_stop_outlives_the_server);
    tcase_add_loop_test(tcase, a_generation_comes_after_the_epoch, 0, 4);
    tcase_add_test(tcase, an_absurd_generation_is_no_record);
    tcase_add_loop_test(tcase, a_checkpoint_in_any_keyspace, 0, 3);
    ADD_TESTS(tcase, a_generation_that_cannot_begin, the_other_job,
              jobs_that_wait_beside_each_other);
    tcase_add_loop_test(tcase, a_job_without_a_name, 0, 2);
    tcase_add_loop_test(tcase, a_second_start_goes_on, 0, 2);
    tcase_add_test(tcase, who_went_meanwhile_is_missed);
    tcase_add_test(tcase, leftovers_are_cleared);
    tcase_add_loop_test(tcase, quarantine_is_a_key, 0, 2);
    tcase_add_test(tcase, what_is_held_against_nobody_is_skipped);
    suite_add_tcase(suite, tcase);
    return suite;
}
