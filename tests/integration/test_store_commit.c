/*
 * test_store_commit.c - a server whose sink commits when the test says so: which replies wait for
 * which commit, which do not wait, and what a failed commit leaves.
 */
#include "store_fixture.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Lives on the server's thread. */
static struct {
    struct ddpi_committed done; /* call NULL: no commit is under way */
    unsigned changes, commits;
    size_t gathered, sent; /* bytes of values: for the next commit, and of the one under way */
    bool mute;
    bool failed;
} slow;

static void on_change(void *ctx, const struct ddpi_mutation *mutation)
{
    (void)ctx;
    slow.changes++;
    slow.gathered += mutation->value.len;
}

static void on_commit(void *ctx, const struct ddpi_mark *mark, struct ddpi_committed done)
{
    (void)ctx;
    (void)mark;
    ck_assert(slow.done.call == NULL); /* one at a time */
    slow.done = done;
    slow.commits++;
    slow.sent = slow.gathered;
    slow.gathered = 0;
}

static size_t backlog(void *ctx)
{
    (void)ctx;
    return slow.gathered + slow.sent;
}

static bool may_answer(void *ctx)
{
    (void)ctx;
    return !slow.mute;
}

static void on_failed(void *ctx, const struct ddp_error *failure)
{
    (void)ctx;
    ck_assert_str_eq(failure->msg, "the disk is full");
    slow.failed = true;
}

static void give_sink(struct ddpi_server *at, void *ctx)
{
    static const struct ddpi_sink sink = {
        .change = on_change, .commit = on_commit, .may_answer = may_answer, .backlog = backlog};
    (void)ctx;
    memset(&slow, 0, sizeof slow);
    ddpi_server_set_sink(at, &sink, on_failed, NULL);
}

static void finish_commit(struct ddpi_server *at, void *ctx)
{
    (void)at;
    const struct ddpi_committed done = slow.done;
    ck_assert(done.call != NULL);
    slow.done.call = NULL;
    slow.sent = 0;
    done.call(done.ctx, ctx);
}

static void finish_if_any(struct ddpi_server *at, void *ctx)
{
    if (slow.done.call != NULL)
        finish_commit(at, ctx);
}

static void copy_backlog(struct ddpi_server *at, void *ctx)
{
    (void)at;
    *(size_t *)ctx = backlog(NULL);
}

static void set_mute(struct ddpi_server *at, void *ctx)
{
    (void)at;
    slow.mute = *(bool *)ctx;
}

static void copy_commits(struct ddpi_server *at, void *ctx)
{
    (void)at;
    *(unsigned *)ctx = slow.commits;
}

static void await_commits(unsigned wanted)
{
    unsigned commits = 0;
    while (commits != wanted)
        store_thread_call(server, copy_commits, &commits);
}

static void commit_setup(void)
{
    store_setup();
    store_thread_call(server, give_sink, NULL);
}

static int greeted(void)
{
    int fd = raw_connect(store_thread_port(server));
    raw_greet(fd);
    return fd;
}

static void send_set(int fd, uint64_t id, const char *value)
{
    raw_request(fd,
                &(struct ddpi_message){
                    .op = DDPI_OP_SET, .id = id, .key = {"k", 1}, .value = {value, strlen(value)}});
}

static void send_get(int fd, uint64_t id)
{
    raw_request(fd, &(struct ddpi_message){.op = DDPI_OP_TRY_GET, .id = id, .key = {"k", 1}});
}

static void assert_answer(int fd, uint64_t id)
{
    char payload[1024];
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    ck_assert_uint_eq(frame.id, id);
    ck_assert_int_eq(frame.status, DDP_OK);
}

/* The server has read all that was sent before, and answered nothing. */
static void assert_silent(int fd)
{
    char byte;
    int other = greeted(); /* a handshake does not wait, and takes a turn of the loop or more */
    close(other);
    ck_assert_int_eq(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
}

START_TEST(a_change_waits_for_its_commit)
{
    int fd = greeted();
    send_set(fd, 1, "a");
    await_commits(1);
    assert_silent(fd);
    store_thread_call(server, finish_commit, NULL);
    assert_answer(fd, 1);
    close(fd);
}
END_TEST

/* What it reads may be undone. */
START_TEST(a_reader_waits_too)
{
    int writer = greeted(), reader = greeted();
    send_set(writer, 1, "a");
    await_commits(1);
    send_get(reader, 2);
    assert_silent(reader);
    store_thread_call(server, finish_commit, NULL);
    assert_answer(writer, 1);
    assert_answer(reader, 2);
    close(writer);
    close(reader);
}
END_TEST

START_TEST(later_changes_belong_to_the_next_commit)
{
    int fd = greeted(), other = greeted();
    send_set(fd, 1, "a");
    await_commits(1);
    send_set(fd, 2, "b");
    send_set(other, 3, "c");
    assert_silent(fd);
    store_thread_call(server, finish_commit, NULL);
    assert_answer(fd, 1);
    await_commits(2);
    assert_silent(fd);
    assert_silent(other);
    store_thread_call(server, finish_commit, NULL);
    assert_answer(fd, 2);
    assert_answer(other, 3);
    close(fd);
    close(other);
}
END_TEST

/* The first commit of a test; @token has 1024 bytes. */
static struct ddpi_bytes open_session(int fd, char *token)
{
    char payload[1024];
    raw_request(fd, &(struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .id = 1, .count = 60000});
    await_commits(1);
    store_thread_call(server, finish_commit, NULL);
    struct ddpi_frame frame = raw_frame(fd, payload, sizeof payload);
    memcpy(token, payload + 4, frame.payload_len - 4);
    return ddpi_bytes_of(token, frame.payload_len - 4);
}

START_TEST(a_renewal_does_not_wait)
{
    ddp_store *store = open_store();
    int fd = greeted(), writer = greeted();
    char token[1024];
    const struct ddpi_message keep = {
        .op = DDPI_OP_SESSION_KEEP, .id = 2, .session = open_session(fd, token)};
    send_set(writer, 3, "a");
    await_commits(2);
    raw_request(fd, &keep);
    assert_answer(fd, 2);
    send_get(fd, 4);
    raw_request(fd, &keep); /* replies of one connection stay in order */
    assert_silent(fd);
    store_thread_call(server, finish_commit, NULL);
    assert_answer(writer, 3);
    assert_answer(fd, 4);
    assert_answer(fd, 2);
    close(fd);
    close(writer);
    ddp_store_close(store);
}
END_TEST

enum { LARGE = 512 * 1024, LARGE_SETS = 300, BACKLOG = 64 * 1024 * 1024 };

static void *send_large_sets(void *ctx)
{
    static char value[LARGE];
    for (uint64_t id = 1; id <= LARGE_SETS; id++)
        raw_request(*(int *)ctx, &(struct ddpi_message){.op = DDPI_OP_SET,
                                                        .id = id,
                                                        .key = {"large", 5},
                                                        .value = {value, sizeof value}});
    return NULL;
}

static size_t backlog_now(void)
{
    size_t bytes = 0;
    store_thread_call(server, copy_backlog, &bytes);
    return bytes;
}

/* Finish commits until it can be read. */
static void await_answer(int fd, uint64_t id)
{
    char byte;
    while (recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0)
        store_thread_call(server, finish_if_any, NULL);
    assert_answer(fd, id);
}

/* Its replies are withheld, and too small to slow it down. */
START_TEST(who_sends_much_waits_for_commits)
{
    int writer = greeted(), fd = greeted();
    char token[1024];
    pthread_t thread;
    const struct ddpi_message keep = {
        .op = DDPI_OP_SESSION_KEEP, .id = 2, .session = open_session(fd, token)};
    ck_assert_int_eq(pthread_create(&thread, NULL, send_large_sets, &writer), 0);
    while (backlog_now() <= BACKLOG)
        ;
    for (int i = 0; i < 10; i++) {
        raw_request(fd, &keep);
        assert_answer(fd, 2);
        assert_silent(writer);
    }
    ck_assert_uint_le(backlog_now(), BACKLOG + LARGE);
    uint64_t served = store_thread_stats(server).requests;
    send_set(fd, 3, "small"); /* it may still send more */
    send_get(fd, 4);
    while (store_thread_stats(server).requests < served + 2)
        ;
    for (uint64_t id = 1; id <= LARGE_SETS; id++)
        await_answer(writer, id);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    await_answer(fd, 3);
    await_answer(fd, 4);
    close(writer);
    close(fd);
}
END_TEST

START_TEST(a_sink_that_has_lost_its_right_is_silent)
{
    bool mute = true;
    int fd = greeted();
    store_thread_call(server, set_mute, &mute);
    send_get(fd, 1);
    raw_request(fd, &(struct ddpi_message){.op = DDPI_OP_STATS, .id = 2});
    char byte;
    ck_assert_int_eq(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    while (store_thread_stats(server).requests < 2)
        ;
    ck_assert_int_eq(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    mute = false;
    store_thread_call(server, set_mute, &mute);
    char payload[65536];
    ck_assert_uint_eq(raw_frame(fd, payload, sizeof payload).id, 1);
    ck_assert_uint_eq(raw_frame(fd, payload, sizeof payload).id, 2);
    close(fd);
}
END_TEST

START_TEST(a_failed_commit_answers_nothing)
{
    struct ddp_error failure = {.status = DDP_E_SYSTEM, .msg = "the disk is full"};
    int fd = greeted();
    char byte;
    send_set(fd, 1, "a");
    await_commits(1);
    send_set(fd, 2, "b");
    assert_silent(fd);
    store_thread_call(server, finish_commit, &failure);
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    ck_assert(slow.failed);
    close(fd);
}
END_TEST

/* What waits is never answered, since no commit ends any more. */
START_TEST(closing_during_a_commit)
{
    int fd = greeted();
    send_set(fd, 1, "a");
    await_commits(1);
    restart(NULL);
    char byte;
    ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
    close(fd);
}
END_TEST

static void count(void *ctx)
{
    (*(unsigned *)ctx)++;
}

/* As when the last node of the job has left. */
static void end_job(struct ddpi_server *at, void *ctx)
{
    OK(ddpi_server_show(at, "closed/j", "1", 1, &why));
    ddpi_server_end_with(at, "j", count, ctx);
}

static void copy(struct ddpi_server *at, void *ctx)
{
    unsigned *const *numbers = ctx;
    (void)at;
    *numbers[1] = *numbers[0];
}

/* Another leader may undo what is not durable, and change what this one no longer leads. */
START_TEST(a_job_is_over_when_that_is_durable)
{
    unsigned overs = 0, seen = 0, *numbers[] = {&overs, &seen};
    bool mute = true;
    store_thread_call(server, end_job, &overs);
    await_commits(1);
    close(greeted()); /* some turns of the loop */
    store_thread_call(server, copy, numbers);
    ck_assert_uint_eq(seen, 0);
    store_thread_call(server, set_mute, &mute);
    store_thread_call(server, finish_commit, NULL);
    for (int i = 0; i < 20; i++)
        store_thread_call(server, copy, numbers);
    ck_assert_uint_eq(seen, 0);
    mute = false;
    store_thread_call(server, set_mute, &mute);
    while (seen == 0)
        store_thread_call(server, copy, numbers);
    ck_assert_uint_eq(seen, 1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_commit");
    TCase *group = tcase_create("real");
    tcase_add_checked_fixture(group, commit_setup, store_teardown);
    ADD_TESTS(group, a_change_waits_for_its_commit, a_reader_waits_too,
              later_changes_belong_to_the_next_commit, a_renewal_does_not_wait,
              who_sends_much_waits_for_commits, a_sink_that_has_lost_its_right_is_silent,
              a_failed_commit_answers_nothing, closing_during_a_commit,
              a_job_is_over_when_that_is_durable);
    suite_add_tcase(suite, group);
    return suite;
}
