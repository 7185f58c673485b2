/*
 * test_job_view.c - a job put together from its keys, in any order and from any stranger; how it is
 * shown to people and to programs.
 */
#include "check_main.h"
#include "failmem.h"
#include "job_json.h"
#include "job_show.h"
#include "mem.h"

#include <stdlib.h>
#include <string.h>

static struct job_view view;
static uint64_t version;

static void setup(void)
{
    version = 0;
    job_view_init(&view, "train");
}

static void teardown(void)
{
    job_view_finish(&view);
}

static ddp_status take(const char *key, const char *value)
{
    return job_view_take(&view, key, ++version, value, value != NULL ? strlen(value) : 0);
}

static void put(const char *key, const char *value)
{
    ck_assert_int_eq(take(key, value), DDP_OK);
}

static void put_record(const char *key, struct ddpi_buf *record)
{
    ck_assert_int_eq(
        job_view_take(&view, key, ++version, ddpi_buf_head(record), ddpi_buf_len(record)), DDP_OK);
    ddpi_buf_finish(record);
}

static void put_state(struct ddpi_rounds_summary summary)
{
    struct ddpi_buf record;
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    ck_assert_int_eq(ddpi_round_summary_put(&record, &summary, NULL), DDP_OK);
    put_record("round/train/state", &record);
}

static void put_node(uint64_t id, const char *name, enum ddp_round_phase phase,
                     const struct ddp_round_seat *seat)
{
    char key[64];
    struct ddpi_buf record;
    struct ddp_round_member says = {.address = "10.0.0.1",
                                    .nproc = 2,
                                    .node_rank = -1,
                                    .terms = {.min_nodes = 1, .max_nodes = 3},
                                    .phase = phase,
                                    .generation = seat->generation};
    snprintf(says.name, sizeof says.name, "%s", name);
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    ck_assert_int_eq(ddpi_round_member_put(&record, &says, NULL), DDP_OK);
    snprintf(key, sizeof key, "round/train/member/%u", (unsigned)id);
    put_record(key, &record);
    ddpi_buf_init(&record, DDPI_ROUND_RECORD_MAX);
    ck_assert_int_eq(ddpi_round_seat_put(&record, seat, NULL), DDP_OK);
    snprintf(key, sizeof key, "round/train/seat/%u", (unsigned)id);
    put_record(key, &record);
}

static const struct ddpi_rounds_summary running = {
    .state = ROUNDS_RUNNING,
    .generation = 5,
    .members = 3,
    .seated = 2,
    .world_size = 4,
    .restarts = 1,
    .terms = {.min_nodes = 1, .max_nodes = 3, .max_restarts = 2},
    .reason = "node c is lost",
    .idle_ms = 7,
    .seated_ms = 8};
static const struct ddp_round_seat first = {
    .order = DDP_ROUND_RUN, .generation = 5, .nodes = 2, .world_size = 4};
static const struct ddp_round_seat second = {.order = DDP_ROUND_RUN,
                                             .generation = 5,
                                             .nodes = 2,
                                             .world_size = 4,
                                             .node_rank = 1,
                                             .first_rank = 2};
static const struct ddp_round_seat spare = {
    .order = DDP_ROUND_WAIT, .spare = true, .text = "all seats are taken"};
static const struct ddp_round_seat waits = {.order = DDP_ROUND_WAIT, .text = "waiting for more"};

static void put_all(void)
{
    put_state(running);
    put_node(3, "s", DDP_ROUND_IDLE, &spare);
    put_node(4, "b", DDP_ROUND_RUNNING, &second);
    put_node(9, "a", DDP_ROUND_RUNNING, &first);
    put("round/train/node/4", "0 2 40 running\n1 3 41 killed SIGKILL\nstrange\n");
}

/* ---- keys ---- */

START_TEST(names_of_jobs)
{
    char name[DDPI_JOB_MAX + 1];
    static const char *const other[] = {"",
                                        "round/",
                                        "round//state",
                                        "round/a/states",
                                        "round/a/b/state",
                                        "round/.a/state",
                                        "round/a\x1b/state",
                                        "job/a/state",
                                        "round/a/member/1"};
    ck_assert(job_view_name("round/a.b-c_9/state", name));
    ck_assert_str_eq(name, "a.b-c_9");
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        ck_assert_msg(!job_view_name(other[i], name), "%s", other[i]);
}
END_TEST

START_TEST(a_job_from_its_keys)
{
    size_t count;
    ck_assert(!job_view_there(&view));
    put_all();
    ck_assert(job_view_there(&view));
    ck_assert(job_view_is(&view, ROUNDS_RUNNING));
    struct job_node **nodes = job_view_order(&view, &count);
    ck_assert_uint_eq(count, 3);
    static const uint64_t ids[] = {9, 4, 3};
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(nodes[i]->id, ids[i]);
    ck_assert(job_node_is(nodes[0], "a") && job_node_busy(nodes[0]) && !job_node_spare(nodes[0]));
    ck_assert(job_node_spare(nodes[2]) && !job_node_seated(&view, nodes[2]));
    ck_assert(job_view_up(&view));
    ck_assert_str_eq(job_view_waiting(&view), "");
    put_node(4, "b", DDP_ROUND_STARTING, &second);
    ck_assert(!job_view_up(&view));
    put_node(4, "b", DDP_ROUND_IDLE, &waits);
    ck_assert_str_eq(job_view_waiting(&view), "waiting for more");
    ddpi_free(nodes);
}
END_TEST

START_TEST(keys_of_others_tell_nothing)
{
    static const char *const keys[] = {
        "round/other/state",    "round/train",           "round/trainstate",
        "round/train/member/",  "round/train/member/x",  "round/train/member/01",
        "round/train/member/0", "round/train/member/-1", "round/train/member/9223372036854775808",
        "round/train/seat/1/2", "round/train/unknown",   "state"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        put(keys[i], "x");
    ck_assert(!job_view_there(&view));
    ck_assert_uint_eq(view.nnodes, 0);
    ck_assert_uint_eq(view.nwants, 0);
}
END_TEST

START_TEST(the_latest_value_counts)
{
    put_all();
    ck_assert_int_eq(job_view_take(&view, "round/train/state", 1, NULL, 0), DDP_OK);
    ck_assert(job_view_there(&view)); /* it was put again since */
    put("round/train/state", "nonsense");
    ck_assert(job_view_there(&view) && !job_view_is(&view, ROUNDS_RUNNING));
    put("round/train/state", NULL);
    ck_assert(!job_view_there(&view));
    put("round/train/member/9", NULL);
    put("round/train/member/4", "nonsense");
    size_t count;
    struct job_node **nodes = job_view_order(&view, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert(nodes[1]->member.bad || nodes[0]->member.bad);
    ddpi_free(nodes);
}
END_TEST

START_TEST(a_verdict_outlives_the_job)
{
    struct ddpi_rounds_summary closed = running;
    char text[128];
    closed.state = ROUNDS_CLOSED;
    closed.closing = true;
    closed.exit_code = 143;
    put_state(running);
    put("round/train/state", NULL);
    job_show_state(&view, text, sizeof text);
    ck_assert_str_eq(text, "no longer exists");
    put_state(closed);
    put("round/train/state", NULL);
    ck_assert(job_view_is(&view, ROUNDS_CLOSED) && !job_view_there(&view));
    job_show_state(&view, text, sizeof text);
    ck_assert_str_eq(text, "is over, exit code 143: node c is lost");
}
END_TEST

START_TEST(what_is_wanted)
{
    const char *value;
    uint32_t min, max;
    put_all();
    job_view_size(&view, &min, &max);
    ck_assert(min == 1 && max == 3);
    put("round/train/want/size", "2:4");
    put("round/train/want/stop", "");
    put("round/train/want/drain/a", "");
    job_view_size(&view, &min, &max);
    ck_assert(min == 2 && max == 4);
    ck_assert(job_view_wants(&view, "size", &value));
    ck_assert_str_eq(value, "2:4");
    ck_assert(job_view_wants(&view, "stop", NULL) && job_view_drains(&view, "a"));
    ck_assert(!job_view_drains(&view, "b") && !job_view_drains(&view, ""));
    put("round/train/want/size", "nonsense"); /* which the server passes over */
    put("round/train/want/drain/a", NULL);
    job_view_size(&view, &min, &max);
    ck_assert(min == 1 && max == 3);
    ck_assert(!job_view_drains(&view, "a"));
}
END_TEST

START_TEST(sizes)
{
    uint32_t min = 7, max = 7;
    static const char *const bad[] = {"",
                                      "1",
                                      ":",
                                      "1:",
                                      ":1",
                                      "2:1",
                                      "0:1",
                                      "1:x",
                                      "1:2 ",
                                      "-1:2",
                                      "1:2:3",
                                      "1:4294967296",
                                      "1:00000000000000000000000000000000"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(!job_parse_size(bad[i], &min, &max), "%s", bad[i]);
    ck_assert(min == 7 && max == 7);
    ck_assert(job_parse_size("1:4294967295", &min, &max));
    ck_assert(min == 1 && max == UINT32_MAX);
}
END_TEST

START_TEST(nodes_that_are_left)
{
    static const struct ddp_round_seat end = {.order = DDP_ROUND_END, .text = "drained"};
    put_all();
    ck_assert_uint_eq(job_view_count_without(&view, "x"), 3);
    ck_assert_uint_eq(job_view_count_without(&view, "a"), 2);
    put("round/train/want/drain/b", "");
    ck_assert_uint_eq(job_view_count_without(&view, "a"), 1);
    put_node(3, "s", DDP_ROUND_IDLE, &end);
    ck_assert_uint_eq(job_view_count_without(&view, "a"), 0);
    put("round/train/member/9", NULL);
    ck_assert_uint_eq(job_view_count_without(&view, "x"), 0);
}
END_TEST

START_TEST(many_nodes_in_any_order)
{
    char key[64];
    size_t count;
    for (unsigned i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "round/train/member/%u", (i * 337) % 500 + 1);
        put(key, "x");
    }
    struct job_node **nodes = job_view_order(&view, &count);
    ck_assert_uint_eq(count, 500);
    for (size_t i = 0; i < count; i++)
        ck_assert_uint_eq(nodes[i]->id, i + 1);
    ddpi_free(nodes);
}
END_TEST

START_TEST(without_memory)
{
    static const char *const keys[] = {"round/train/member/1", "round/train/node/1",
                                       "round/train/want/stop"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        unsigned successes = 0;
        ddp_status status;
        do {
            teardown();
            setup();
            failmem_start(successes++);
            status = take(keys[i], "x");
        } while (failmem_stop() && status == DDP_E_NOMEM);
        ck_assert_int_eq(status, DDP_OK);
        ck_assert_uint_gt(successes, 2);
    }
}
END_TEST

/* ---- shown ---- */

static char *shown_by(bool (*show)(const struct job_view *view, FILE *out))
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ck_assert_ptr_nonnull(out);
    ck_assert(show(&view, out));
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

static char *text_of(void)
{
    return shown_by(job_show_text);
}

/* Each number of workers is one that runs, except those of @exceptions. */
static void put_workers(unsigned node, unsigned count, const char *exceptions)
{
    char key[48], text[4096];
    int len = 0;
    snprintf(key, sizeof key, "round/train/node/%u", node);
    for (unsigned i = 0; i < count; i++)
        len += snprintf(text + len, sizeof text - (size_t)len, "%u %u %u running\n", i, i, 100 + i);
    snprintf(text + len, sizeof text - (size_t)len, "%s", exceptions);
    put(key, text);
}

START_TEST(shown_in_80_columns)
{
    put_all();
    put_workers(9, 64, "64 64 3364 exited 0\n");
    put_workers(4, 2, "2 2 40 stopping\n3 3 41 killed SIGKILL\n4 4 42 exited 3\n5 5 43 stopped\n");
    char *text = shown_by(job_show_brief);
    const char *table = strstr(text, "  NODE");
    ck_assert_ptr_nonnull(table);
    ck_assert_str_eq(table, "  NODE  NAME  PHASE      ORDER  RANKS  WORKERS\n"
                            "  0     a     running 5  run    0-1    64 running, 1 exited\n"
                            "  1     b     running 5  run    2-3    2 running, 1 stopping\n"
                            "        rank 3: 41 killed SIGKILL\n"
                            "        rank 4: 42 exited 3\n"
                            "        rank 5: 43 stopped\n"
                            "  -     s     idle       spare  -      -\n");
    free(text);
}
END_TEST

START_TEST(shown_to_people)
{
    put_all();
    put("round/train/want/size", "1:3");
    put("round/train/want/drain/s", "");
    char *text = text_of();
    ck_assert_str_eq(
        text, "job train is running generation 5\n"
              "  nodes       2 (1 to 3), 1 spare\n"
              "  world size  4\n"
              "  restarts    1 of 2\n"
              "  last stop   node c is lost\n"
              "  recovery    idle after 7 ms, seated after 8 ms\n"
              "  wanted      size 1:3, drain s\n"
              "  NODE  NAME  ADDRESS   PHASE      ORDER  RANKS  WORKERS\n"
              "  0     a     10.0.0.1  running 5  run    0-1    -\n"
              "  1     b     10.0.0.1  running 5  run    2-3    40 running, 41 killed SIGKILL\n"
              "  -     s     10.0.0.1  idle       spare  -      -\n");
    free(text);
}
END_TEST

/* "s" is sick, "q" in quarantine and gone; "b" has failed, but not too often. */
START_TEST(nodes_that_are_left_out)
{
    static const struct ddp_round_seat out = {.order = DDP_ROUND_WAIT,
                                              .spare = true,
                                              .left_out = true,
                                              .text = "left out: node check failed (exit code 3)"};
    char why[DDP_ROUND_TEXT_SIZE];
    put_all();
    put_node(3, "s", DDP_ROUND_IDLE, &out);
    put("round/train/blame/q", "failures 3\nleft_out yes\ntext rank 1 failed\n");
    put("round/train/blame/b", "failures 1\nleft_out no\ntext rank 2 failed\n");
    put("round/train/blame/r", "rubbish");
    put("round/train/blame/t", "failures 3\nleft_out yes\ntext rank 1 failed\n");
    put("round/train/blame/t", NULL);
    char *text = text_of();
    ck_assert_ptr_nonnull(
        strstr(text, "\n  left out    s: node check failed (exit code 3)\n"
                     "  left out    q (not here): first cause of 3 failures in a row: rank 1 "
                     "failed\n  NODE"));
    ck_assert_ptr_nonnull(strstr(text, "\n  nodes       2 (1 to 3)\n")); /* no spare */
    ck_assert_ptr_nonnull(strstr(text, "idle       left out  -      -\n"));
    free(text);
    ck_assert(job_view_left_out(&view, "q", why, sizeof why));
    ck_assert_str_eq(why, "first cause of 3 failures in a row: rank 1 failed");
    ck_assert(job_view_left_out(&view, "s", NULL, 0));
    ck_assert(!job_view_left_out(&view, "b", NULL, 0) && !job_view_left_out(&view, "t", NULL, 0));
    ck_assert_uint_eq(job_view_count_without(&view, "a"), 1);
    json_t *job = job_json(&view);
    ck_assert_uint_eq(json_array_size(json_object_get(job, "blamed")), 2);
    json_decref(job);
}
END_TEST

START_TEST(what_strangers_wrote_is_masked)
{
    struct ddpi_rounds_summary strange = running;
    snprintf(strange.reason, sizeof strange.reason,
             "\xc2\x9b"
             "2J \x9b \xe2\x82\xac \\");
    put_state(strange);
    put_node(1,
             "\xc2\x9b"
             "2J",
             DDP_ROUND_RUNNING, &first);
    put("round/train/want/drain/\x1b]0;x\a", "\r\n");
    put("round/train/member/2", "\x1b[2J");
    char *text = text_of();
    ck_assert_ptr_nonnull(strstr(text, "  last stop   \\xc2\\x9b2J \\x9b \xe2\x82\xac \\\\\n"));
    ck_assert_ptr_nonnull(strstr(text, "  wanted      drain \\x1b]0;x\\x07 \\x0d\\x0a\n"));
    ck_assert_ptr_nonnull(strstr(text, "  0     \\xc2\\x9b2J "));
    ck_assert_ptr_nonnull(strstr(text, "  -     (cannot be read)  -  "));
    for (const char *at = text; *at != '\0'; at++)
        ck_assert(*at == '\n' || (unsigned char)*at >= ' ');
    free(text);
}
END_TEST

START_TEST(shown_to_programs)
{
    put_all();
    json_t *json = job_json(&view), *nodes = json_object_get(json, "nodes");
    ck_assert_uint_eq(json_array_size(nodes), 3);
    const char *name, *state, *phase, *order, *signal;
    json_int_t pid, rank, idle_ms;
    ck_assert_int_eq(json_unpack(json, "{s:s,s:s,s:{s:I,s:n}}", "job", &name, "state", &state,
                                 "recovery", "idle_ms", &idle_ms, "running_ms"),
                     0);
    ck_assert_str_eq(name, "train");
    ck_assert_str_eq(state, "running");
    ck_assert_int_eq(idle_ms, 7);
    json_t *node = json_array_get(nodes, 1);
    ck_assert_int_eq(json_unpack(node, "{s:s,s:s,s:I,s:b}", "phase", &phase, "order", &order,
                                 "first_rank", &rank, "spare", &(int){0}),
                     0);
    ck_assert_int_eq(rank, 2);
    ck_assert_int_eq(json_unpack(json_array_get(json_object_get(node, "workers"), 1),
                                 "{s:I,s:s,s:n}", "pid", &pid, "signal", &signal, "exit_code"),
                     0);
    ck_assert_int_eq(pid, 41);
    ck_assert_str_eq(signal, "SIGKILL");
    json_decref(json);
}
END_TEST

START_TEST(shown_without_memory)
{
    put_all();
    failmem_start(0);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    ck_assert(!job_show_text(&view, out));
    ck_assert_ptr_null(job_json(&view));
    ck_assert(failmem_stop());
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("job_view");
    TCase *tcase = tcase_create("core");
    tcase_add_checked_fixture(tcase, setup, teardown);
    ADD_TESTS(tcase, names_of_jobs, a_job_from_its_keys, keys_of_others_tell_nothing,
              the_latest_value_counts, a_verdict_outlives_the_job, what_is_wanted, sizes,
              nodes_that_are_left, many_nodes_in_any_order, without_memory, shown_to_people,
              shown_in_80_columns, nodes_that_are_left_out, what_strangers_wrote_is_masked,
              shown_to_programs, shown_without_memory);
    suite_add_tcase(suite, tcase);
    return suite;
}
