/*
 * test_metrics_text.c - the history of a job, and its metrics as text: what is counted and when,
 * and that nothing that a store or a worker says can break the format.
 */
#include "check_main.h"
#include "metrics_text.h"
#include "round_record.h"

#include <stdio.h>
#include <string.h>

static struct job_history history;
static struct job_view view;
static struct ddpi_buf text;
static uint64_t version;

static void prepare(void)
{
    history = (struct job_history){0};
    job_view_init(&view, "train");
    ddpi_buf_init(&text, 1 << 20);
    version = 0;
}

static void clean_up(void)
{
    job_view_finish(&view);
    ddpi_buf_finish(&text);
}

static void take_summary(const struct ddpi_rounds_summary *summary)
{
    struct ddpi_buf record;
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    ck_assert_int_eq(ddpi_round_summary_put(&record, summary, NULL), DDP_OK);
    ck_assert_int_eq(job_view_take(&view, "round/train/state", ++version, ddpi_buf_head(&record),
                                   ddpi_buf_len(&record)),
                     DDP_OK);
    ddpi_buf_finish(&record);
    job_history_take(&history, &view.summary, 1000 * version);
}

static const char *put_text(const struct metrics_facts *facts)
{
    ddpi_buf_consume(&text, ddpi_buf_len(&text));
    ck_assert(metrics_put(&text, facts));
    ck_assert(ddpi_buf_put_u8(&text, '\0'));
    return (const char *)ddpi_buf_head(&text);
}

static const char *metrics_with_stats(const char *stats)
{
    const struct metrics_facts facts = {.view = &view,
                                        .history = &history,
                                        .stats = stats,
                                        .stats_len = stats != NULL ? strlen(stats) : 0};
    return put_text(&facts);
}

static void has_line(const char *metrics, const char *line)
{
    char whole[256];
    snprintf(whole, sizeof whole, "\n%s\n", line);
    ck_assert_msg(strstr(metrics, whole) != NULL, "no line '%s' in:\n%s", line, metrics);
}

START_TEST(generations_and_recoveries)
{
    struct ddpi_rounds_summary job = {.state = ROUNDS_FORMING};
    take_summary(&job);
    ck_assert_uint_eq(history.count, 0);
    job = (struct ddpi_rounds_summary){.state = ROUNDS_RUNNING, .generation = 1, .world_size = 4};
    take_summary(&job);
    take_summary(&job);
    ck_assert_uint_eq(history.count, 1);
    job.state = ROUNDS_STOPPING; /* what it says of idle_ms is of the next generation */
    job.idle_ms = 20;
    snprintf(job.reason, sizeof job.reason, "rank 1 failed");
    take_summary(&job);
    ck_assert_uint_eq(history.histograms[HISTORY_IDLE].count, 0);
    job.state = ROUNDS_RUNNING;
    job.generation = 2;
    job.seated_ms = 25;
    job.restarts = 1;
    take_summary(&job);
    job.running_ms = 70000;
    take_summary(&job);
    take_summary(&job); /* counted once */
    const struct history_event *event = job_history_back(&history, 0);
    ck_assert_uint_eq(event->generation, 2);
    ck_assert_str_eq(event->reason, "rank 1 failed");
    ck_assert_uint_eq(event->recovery_ms[HISTORY_RUNNING], 70000);
    ck_assert_uint_eq(job_history_back(&history, 1)->generation, 1);
    ck_assert_ptr_null(job_history_back(&history, 2));
    const char *metrics = metrics_with_stats(NULL);
    has_line(metrics, "ddprun_generation 2");
    has_line(metrics, "ddprun_restarts_total{reason=\"failure\"} 1");
    has_line(metrics, "ddprun_restarts_total{reason=\"membership\"} 0");
    has_line(metrics, "ddprun_recovery_seconds_bucket{phase=\"idle\",le=\"0.01\"} 0");
    has_line(metrics, "ddprun_recovery_seconds_bucket{phase=\"idle\",le=\"0.025\"} 1");
    has_line(metrics, "ddprun_recovery_seconds_bucket{phase=\"running\",le=\"60\"} 0");
    has_line(metrics, "ddprun_recovery_seconds_bucket{phase=\"running\",le=\"+Inf\"} 1");
    has_line(metrics, "ddprun_recovery_seconds_sum{phase=\"running\"} 70.000");
    has_line(metrics, "ddprun_job_state{job=\"train\",state=\"running\"} 1");
    has_line(metrics, "ddprun_store_up 0");
}
END_TEST

START_TEST(only_the_latest_generations_are_kept)
{
    struct ddpi_rounds_summary job = {.state = ROUNDS_RUNNING};
    for (job.generation = 1; job.generation <= 3 * HISTORY_EVENTS; job.generation++)
        take_summary(&job);
    ck_assert_uint_eq(job_history_back(&history, 0)->generation, 3 * HISTORY_EVENTS);
    ck_assert_uint_eq(job_history_back(&history, HISTORY_EVENTS - 1)->generation,
                      2 * HISTORY_EVENTS + 1);
    ck_assert_ptr_null(job_history_back(&history, HISTORY_EVENTS));
}
END_TEST

START_TEST(ranks_of_this_node)
{
    const struct metrics_rank ranks[] = {{4, 100, 1 << 20, 1500000000}, {5, 93, 0, 0}};
    const struct metrics_facts facts = {
        .view = &view, .history = &history, .ranks = ranks, .nranks = 2};
    const char *metrics = put_text(&facts);
    has_line(metrics, "ddprun_rank_operations_total{rank=\"4\"} 100");
    has_line(metrics, "ddprun_allreduce_bytes_total{rank=\"4\"} 1048576");
    has_line(metrics, "ddprun_rank_last_progress_seconds{rank=\"4\"} 1.500");
    has_line(metrics, "ddprun_straggler_score{rank=\"4\"} 0");
    has_line(metrics, "ddprun_straggler_score{rank=\"5\"} 7");
}
END_TEST

START_TEST(workers_by_state)
{
    static const char workers[] = "0 0 11 running\n1 1 12 exited 3\n2 2 13 killed KILL\nnonsense\n";
    ck_assert_int_eq(
        job_view_take(&view, "round/train/node/1", ++version, workers, strlen(workers)), DDP_OK);
    const char *metrics = metrics_with_stats("");
    has_line(metrics, "ddprun_workers{state=\"running\"} 1");
    has_line(metrics, "ddprun_workers{state=\"exited\"} 1");
    has_line(metrics, "ddprun_workers{state=\"killed\"} 1");
    has_line(metrics, "ddprun_workers{state=\"stopping\"} 0");
}
END_TEST

START_TEST(counters_of_the_store)
{
    const char *metrics = metrics_with_stats("connections 3\nrequests 17\nop/set 9\n"
                                             "op/compare-and-swap 2\njob/train/keys 5\n");
    has_line(metrics, "ddprun_store_up 1");
    has_line(metrics, "ddprun_store_clients 3");
    has_line(metrics, "ddprun_store_requests_total 17");
    has_line(metrics, "ddprun_store_ops_total{op=\"set\"} 9");
    has_line(metrics, "ddprun_store_ops_total{op=\"compare-and-swap\"} 2");
}
END_TEST

START_TEST(requests_to_etcd)
{
    ck_assert_ptr_null(strstr(metrics_with_stats("keys 1\n"), "etcd"));
    const char *metrics = metrics_with_stats("etcd_request_us/500 7\netcd_request_us/2000000 9\n"
                                             "etcd_request_us/inf 10\netcd_request_us/sum 2500000\n"
                                             "etcd_request_us/evil\"} 1\netcd_failures 3\n");
    has_line(metrics, "# TYPE ddprun_etcd_request_seconds histogram");
    has_line(metrics, "ddprun_etcd_request_seconds_bucket{le=\"0.0005\"} 7");
    has_line(metrics, "ddprun_etcd_request_seconds_bucket{le=\"2\"} 9");
    has_line(metrics, "ddprun_etcd_request_seconds_bucket{le=\"+Inf\"} 10");
    has_line(metrics, "ddprun_etcd_request_seconds_count 10");
    has_line(metrics, "ddprun_etcd_request_seconds_sum 2.500000");
    has_line(metrics, "ddprun_etcd_failures_total 3");
    ck_assert_ptr_null(strstr(metrics, "evil"));
}
END_TEST

static const char *const hostile_stats[] = {
    "keys",        "keys 1",
    "keys \n",     " 5\n",
    "keys -1\n",   "keys 99999999999999999999\n",
    "keys 1 2\n",  "op/x\"} 1\nevil 5\n",
    "op/a\\n 1\n", "op/\xff 1\n",
    "\n\n\n",      "a_name_that_is_much_longer_than_any_name_of_a_counter_that_the_store_has 1\n",
};

/* No line is let through but those of the format. */
START_TEST(hostile_counters)
{
    const char *metrics = metrics_with_stats(hostile_stats[_i]);
    ck_assert_ptr_null(strstr(metrics, "ddprun_store_keys "));
    ck_assert_ptr_null(strstr(metrics, "ops_total{"));
    ck_assert_ptr_null(strstr(metrics, "evil"));
}
END_TEST

START_TEST(too_little_room)
{
    const struct metrics_facts facts = {.view = &view, .history = &history};
    struct ddpi_buf small;
    for (size_t size = 0; size < 4000; size += 37) {
        ddpi_buf_init(&small, size);
        ck_assert(!metrics_put(&small, &facts));
        ddpi_buf_finish(&small);
    }
}
END_TEST

START_TEST(machines_that_keep_the_store)
{
    struct ddpi_cluster_summary kept;
    static const char json[] =
        "{\"leader\":\"n2:1\",\"machines\":[{\"endpoint\":\"n1:1\",\"state\":\"missing\","
        "\"life\":1},{\"endpoint\":\"n2:1\",\"state\":\"member\",\"life\":2},"
        "{\"endpoint\":\"[fe80::1]:1\",\"state\":\"member\",\"life\":3}]}";
    ck_assert_int_eq(ddpi_cluster_summary_get(json, strlen(json), &kept, NULL), DDP_OK);
    const struct metrics_facts facts = {.view = &view, .history = &history, .kept = &kept};
    const char *metrics = put_text(&facts);
    has_line(metrics, "ddprun_store_members 2");
    has_line(metrics, "ddprun_store_leader{endpoint=\"n1:1\"} 0");
    has_line(metrics, "ddprun_store_leader{endpoint=\"n2:1\"} 1");
    has_line(metrics, "ddprun_store_leader{endpoint=\"[fe80::1]:1\"} 0");
    ck_assert_ptr_null(strstr(metrics_with_stats(""), "store_members"));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("metrics text");
    TCase *tcase = tcase_create("text");
    tcase_add_checked_fixture(tcase, prepare, clean_up);
    ADD_TESTS(tcase, generations_and_recoveries, only_the_latest_generations_are_kept,
              ranks_of_this_node, workers_by_state, counters_of_the_store, requests_to_etcd,
              machines_that_keep_the_store);
    tcase_add_loop_test(tcase, hostile_counters, 0,
                        (int)(sizeof hostile_stats / sizeof *hostile_stats));
    tcase_add_test(tcase, too_little_room);
    suite_add_tcase(suite, tcase);
    return suite;
}
