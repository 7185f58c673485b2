/*
 * test_metrics.c - figures of real ranks: with uneven weights, none, NaN, other names; and sections
 * that ranks run one after the other, in which one of them may die.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/ddp_metrics.h>
#include <ddprun/ddp_ordered.h>
#include <math.h>
#include <signal.h>
#include <string.h>

enum { RANKS = 4, METRICS = 5 };

/* ---- metrics ---- */

static void metrics_init(struct ddp_metric metrics[METRICS])
{
    static const char *const names[METRICS] = {"loss", "images", "least", "largest", "never"};
    static const ddp_metric_kind kinds[METRICS] = {DDP_METRIC_MEAN, DDP_METRIC_SUM, DDP_METRIC_MIN,
                                                   DDP_METRIC_MAX, DDP_METRIC_MEAN};
    for (size_t i = 0; i < METRICS; i++)
        metrics[i] = (struct ddp_metric){.name = names[i], .kind = kinds[i]};
}

/* Rank r has r batches, of 1 to r items: the mean is that of all items. */
static void measure(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_metric metrics[METRICS];
    double sum = 0, items = 0;
    metrics_init(metrics);
    for (uint32_t r = 0; r < RANKS; r++)
        for (uint32_t batch = 1; batch <= r; batch++) {
            double value = 0.1 * r - 0.01 * batch;
            sum += value * batch;
            items += batch;
            for (size_t i = 0; i < METRICS - 1 && r == rank; i++)
                ddp_metric_add(&metrics[i], value, batch);
        }
    ddp_metric_add(&metrics[2], -100, 0);
    for (int again = 0; again < 2; again++) {
        CHECK_OK(ddp_metrics_reduce(comm, metrics, METRICS, err));
        CHECK(fabs(metrics[0].result - sum / items) < 1e-14 && metrics[0].total == items);
        CHECK(fabs(metrics[1].result - sum) < 1e-13);
        CHECK(metrics[2].result == 0.1 * 1 - 0.01 * 1 && metrics[3].result == 0.1 * 3 - 0.01 * 1);
        CHECK(isnan(metrics[4].result) && metrics[4].total == 0);
    }
    uint64_t bits;
    memcpy(&bits, &metrics[0].result, sizeof bits);
    world->reports[rank].digest = bits;
    ddp_metrics_reset(metrics, METRICS);
    ddp_metric_add(&metrics[3], rank == 2 ? (double)NAN : rank, 1);
    CHECK_OK(ddp_metrics_reduce(comm, metrics, METRICS, err));
    CHECK(isnan(metrics[0].result) && metrics[1].result == 0 && isnan(metrics[3].result));
}

START_TEST(figures_are_those_of_all_items)
{
    struct world world = {.nranks = RANKS, .name = "metrics", .tcp = _i == 1};
    world_open(&world);
    world_run(&world, measure);
    for (uint32_t rank = 1; rank < RANKS; rank++)
        ck_assert_uint_eq(world.reports[rank].digest, world.reports[0].digest);
    world_close(&world);
}
END_TEST

static void differ(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_metric metrics[METRICS];
    struct ddp_error error;
    (void)world;
    metrics_init(metrics);
    CHECK(ddp_metrics_reduce(comm, metrics, 0, &error) == DDP_E_INVALID);
    metrics[1].weight = -1;
    CHECK(ddp_metrics_reduce(comm, metrics, METRICS, &error) == DDP_E_INVALID);
    CHECK(strstr(error.msg, "images") != NULL);
    metrics[1].weight = 0;
    metrics[1].name = NULL;
    CHECK(ddp_metrics_reduce(comm, metrics, METRICS, &error) == DDP_E_INVALID);
    metrics[1].name = rank == 2 ? "imags" : "images";
    CHECK(ddp_metrics_reduce(comm, metrics, METRICS, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "metric 1 of rank 2") != NULL);
    metrics[1].name = "images";
    metrics[3].kind = rank == 1 ? DDP_METRIC_MIN : DDP_METRIC_MAX;
    CHECK(ddp_metrics_reduce(comm, metrics, METRICS, &error) == DDP_E_MISMATCH);
    CHECK(strstr(error.msg, "metric 3 of rank 1") != NULL);
    metrics[3].kind = DDP_METRIC_MAX;
    CHECK_OK(ddp_metrics_reduce(comm, metrics, METRICS, err));
    CHECK(ddp_metrics_reduce(comm, metrics, rank == 0 ? 1 : 2, &error) == DDP_E_MISMATCH);
}

START_TEST(other_metrics_are_named)
{
    struct world world = {.nranks = RANKS, .name = "differ"};
    world_open(&world);
    world_run(&world, differ);
    world_close(&world);
}
END_TEST

/* ---- ordered sections ---- */

static void take_turns(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (uint32_t round = 0; round < 20; round++) {
        CHECK_OK(ddp_ordered_begin(comm, 0, err));
        uint32_t before = atomic_load(world->counter);
        CHECK(before == round * world->nranks + rank);
        atomic_store(world->counter, before + 1);
        CHECK_OK(ddp_ordered_end(comm, err));
        CHECK_OK(ddp_barrier(comm, NULL, err));
    }
}

START_TEST(ranks_run_a_section_one_after_the_other)
{
    struct world world = {.nranks = _i < 2 ? RANKS : 1, .name = "turns", .tcp = _i == 1};
    world_open(&world);
    world_run(&world, take_turns);
    world_close(&world);
}
END_TEST

enum { VICTIM = 1 };

static void die_in_turn(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    ddp_status status = ddp_ordered_begin(comm, 0, &error);
    if (rank == VICTIM) {
        world_await_joined(world);
        raise(SIGKILL);
    }
    if (status == DDP_OK)
        status = ddp_ordered_end(comm, &error);
    world_report(world, rank, status, &error);
}

/* The rank before it has had its turn; those behind hear of it. */
START_TEST(a_death_in_a_section_ends_the_wait)
{
    struct world world = {.nranks = RANKS, .name = "die", .tcp = _i == 1};
    world_open(&world);
    world_start(&world, die_in_turn);
    world_await_failures(&world, VICTIM);
    world_kill_rank(&world, VICTIM);
    world_join(&world);
    for (uint32_t rank = VICTIM + 1; rank < RANKS; rank++) {
        const struct report *report = &world.reports[rank];
        ck_assert_msg(report->status == DDP_E_PEER_DEAD || report->status == DDP_E_CLOSED,
                      "rank %u: %s", rank, report->error.msg);
        ck_assert_msg(strstr(report->error.msg, "rank ") != NULL, "%s", report->error.msg);
    }
    world_close(&world);
}
END_TEST

static void be_late(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    if (rank == 0) {
        CHECK_OK(ddp_ordered_begin(comm, 0, err));
        world_await_steps(world, 1, 1); /* its end never comes */
        return;
    }
    CHECK(ddp_ordered_begin(comm, 50, &error) == DDP_E_TIMEOUT);
    CHECK(strstr(error.msg, "rank 0") != NULL);
    world_step(world, rank);
}

START_TEST(a_turn_that_does_not_come_is_a_timeout)
{
    struct world world = {.nranks = 2, .name = "late"};
    world_open(&world);
    world_run(&world, be_late);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tests = tcase_create("metrics");
    tcase_add_loop_test(tests, figures_are_those_of_all_items, 0, 2);
    tcase_add_test(tests, other_metrics_are_named);
    tcase_add_loop_test(tests, ranks_run_a_section_one_after_the_other, 0, 3);
    tcase_add_loop_test(tests, a_death_in_a_section_ends_the_wait, 0, 2);
    tcase_add_test(tests, a_turn_that_does_not_come_is_a_timeout);
    suite_add_tcase(suite, tests);
    return suite;
}
