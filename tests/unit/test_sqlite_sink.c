/*
 * test_sqlite_sink.c - what a core tells its sink, SQLite keeps and another core is given back is
 * the same store; and what is no state is refused with a sentence.
 */
#include "check_main.h"
#include "kv_fixture.h"
#include "sqlite_sink.h"

#include <ddprun/store.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEYS = 6, SESSIONS = 64, STEPS = 300, ROUNDS = 20, PICTURE = 64 * 1024 };

static char folder[PATH_MAX], path[PATH_MAX + 8];
static struct ddpi_sqlite_sink *state;
static struct ddpi_sink sink;
static struct ddp_error why;
static struct ddpi_mark restored;

struct token {
    char bytes[DDPI_SESSION_SIZE];
};
static struct token tokens[SESSIONS];
static size_t ntokens;

static void state_setup(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/test_state.XXXXXX", tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    state = NULL;
    ntokens = 0;
}

static void state_teardown(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    ddpi_sqlite_sink_close(state);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char file[sizeof path + 16];
        snprintf(file, sizeof file, "%s%s", path, suffixes[i]);
        unlink(file);
    }
    ck_assert_int_eq(rmdir(folder), 0); /* it leaves nothing else */
}

/* --- a core and its state --- */

static ddp_status give_back(void *ctx, const struct ddpi_mutation *mutation, struct ddp_error *err)
{
    (void)ctx;
    return ddpi_kv_restore(kv, mutation, now, err);
}

static void begin(const struct ddpi_kv_limits *limits)
{
    kv_make(limits);
    ck_assert_msg(ddpi_sqlite_sink_open(path, &state, &why) == DDP_OK, "%s", why.msg);
    ck_assert_msg(ddpi_sqlite_sink_load(state, give_back, NULL, &restored, &why) == DDP_OK, "%s",
                  why.msg);
    ddpi_kv_restore_mark(kv, &restored, now);
    sink = ddpi_sqlite_sink_hooks(state);
    ddpi_kv_set_sink(kv, sink.change, sink.ctx);
}

static void on_committed(void *ctx, const struct ddp_error *failure)
{
    ck_assert_msg(failure == NULL, "%s", failure != NULL ? failure->msg : "");
    *(bool *)ctx = true;
}

static void commit(void)
{
    const struct ddpi_mark mark = ddpi_kv_mark(kv);
    bool committed = false;
    sink.commit(sink.ctx, &mark, (struct ddpi_committed){on_committed, &committed});
    ck_assert(committed);
}

/* As a kill would: nothing more is committed. */
static void end(void)
{
    ddpi_sqlite_sink_close(state);
    state = NULL;
    for (int i = 0; i < CLIENTS; i++)
        ddpi_kv_client_gone(kv, &clients[i]);
    ddpi_kv_destroy(kv);
}

/* --- everything that can be seen of a core, as text; its queues are empty afterwards --- */

static char *put_replies(char *at, const char *end_of_text, const char *what)
{
    for (size_t i = 0; i < nreplies; i++)
        at +=
            snprintf(at, (size_t)(end_of_text - at), "%s: %d v%" PRIu64 " n%" PRId64 " '%s' '%s'\n",
                     what, replies[i].status, replies[i].version, replies[i].number,
                     replies[i].value, replies[i].status == DDP_OK ? replies[i].text : "");
    return at;
}

static void turn(void)
{
    ddpi_kv_grant_work(kv);
    ddpi_kv_work(kv, now);
}

static void ask_until_answered(struct ddpi_message request)
{
    nreplies = 0;
    for (ask(1, request); nreplies == 0;)
        turn();
}

static void take_picture(char picture[PICTURE])
{
    char *at = picture;
    const char *end_of_text = picture + PICTURE;
    ddpi_kv_set_sink(kv, NULL, NULL);
    ddpi_kv_client_gone(kv, &clients[2]); /* watches would be notified in between */
    for (int key = 0; key < KEYS; key++) {
        ask_key(DDPI_OP_TRY_GET, key, "", 0);
        at = put_replies(at, end_of_text, "key");
        do {
            ask_key(DDPI_OP_POP, key, "", 0);
            at = put_replies(at, end_of_text, "queue");
        } while (last()->number > 0);
    }
    for (size_t i = 0; i < ntokens; i++) {
        ask_session(DDPI_OP_SESSION_KEEP, tokens[i].bytes, 0, "");
        at = put_replies(at, end_of_text, "session");
    }
    struct ddpi_mark mark = ddpi_kv_mark(kv);
    at += snprintf(at, (size_t)(end_of_text - at), "version %" PRIu64 " floor %" PRIu64 "\n",
                   mark.version, mark.floor);
    ask_until_answered((struct ddpi_message){
        .op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX, .version = mark.floor + 1});
    at = put_replies(at, end_of_text, "past");
    ddpi_kv_client_gone(kv, &clients[1]);
    for (size_t i = 0; i < ntokens; i++) { /* what vanishes with each */
        ask_session(DDPI_OP_SESSION_CLOSE, tokens[i].bytes, 0, "");
        ask_until_answered((struct ddpi_message){.op = DDPI_OP_LIST, .key = bytes("")});
        at = put_replies(at, end_of_text, "left");
    }
    ck_assert_int_gt(end_of_text - at, 1);
}

static void open_session(void)
{
    if (ntokens == SESSIONS)
        return;
    struct got *got = call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 1000000});
    ck_assert_int_eq(got->status, DDP_OK);
    memcpy(tokens[ntokens++].bytes, got->value, DDPI_SESSION_SIZE);
}

static void detach(int key)
{
    char prefix[8] = "k";
    if (key > 0) /* else all */
        snprintf(prefix, sizeof prefix, "k%d", key);
    ddpi_kv_detach(kv, bytes(prefix));
}

static void random_step(unsigned *seed)
{
    char value[16];
    int key = rand_r(seed) % KEYS;
    snprintf(value, sizeof value, "%d", rand_r(seed) % 1000);
    switch (rand_r(seed) % 14) {
    case 0:
    case 1:
    case 2:
        ask_key(DDPI_OP_SET, key, value, 0);
        break;
    case 3:
        ask_key(DDPI_OP_ADD, key, "", 3);
        break;
    case 4:
        ask_key(DDPI_OP_APPEND, key, value, 0);
        break;
    case 5:
        ask_key(DDPI_OP_DELETE, key, "", 0);
        break;
    case 6:
    case 7:
        ask_key(DDPI_OP_PUSH, key, value, 0);
        break;
    case 8:
        ask_key(DDPI_OP_POP, key, "", 0);
        break;
    case 9:
        if (rand_r(seed) % 4 == 0)
            detach(key);
        break;
    case 10:
        turn();
        break;
    case 11:
        if (rand_r(seed) % 4 == 0)
            open_session();
        break;
    case 12:
        if (ntokens > 0)
            ask_session(DDPI_OP_SET_EPHEMERAL, tokens[(size_t)rand_r(seed) % ntokens].bytes, key,
                        value);
        break;
    default:
        if (ntokens > 0 && rand_r(seed) % 4 == 0)
            ask_session(DDPI_OP_SESSION_CLOSE, tokens[(size_t)rand_r(seed) % ntokens].bytes, key,
                        "");
        break;
    }
}

/* Kill and restore again and again, and let the last life be seen before and after. */
static void live(unsigned seed, bool watched, const struct ddpi_kv_limits *limits)
{
    static char before[PICTURE], after[PICTURE];
    for (int life = 0; life < 3; life++) {
        begin(limits);
        if (watched)
            ask(2, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX});
        for (int i = 0; i < STEPS; i++) {
            random_step(&seed);
            if (rand_r(&seed) % 5 == 0)
                commit();
        }
        commit();
        if (life == 2)
            take_picture(before);
        end();
    }
    begin(limits);
    take_picture(after);
    end();
    size_t at = 0, line = 0;
    for (; before[at] != '\0' && before[at] == after[at]; at++)
        line = before[at] == '\n' ? at + 1 : line;
    ck_assert_msg(before[at] == after[at], "before: %.80s, after: %.80s", before + line,
                  after + line);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(what_is_restored_is_the_same)
{
    for (unsigned seed = 1; seed <= ROUNDS; seed++) {
        live(seed, seed % 2, &ddpi_kv_limits_default);
        ntokens = 0;
    }
}
END_TEST

/* Lives end while deletions and ends of sessions are under way. */
START_TEST(what_was_gone_stays_gone)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    for (unsigned seed = 100; seed < 100 + ROUNDS; seed++) {
        limits.turn_work = 1 + seed % 3;
        live(seed, seed % 2, &limits);
        ntokens = 0;
    }
}
END_TEST

/* Values that came behind a deletion which is still under way are not taken for earlier ones. */
START_TEST(what_comes_behind_a_deletion_stays)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.turn_work = 1;
    begin(&limits);
    ask_key(DDPI_OP_SET, 0, "old", 0);
    ask_key(DDPI_OP_PUSH, 1, "old", 0);
    detach(0);
    ask_key(DDPI_OP_PUSH, 1, "new", 0);
    ask_key(DDPI_OP_SET, 2, "new", 0);
    ck_assert(ddpi_kv_has_work(kv));
    commit();
    end();
    begin(&limits);
    ask_key(DDPI_OP_TRY_GET, 0, "", 0);
    ck_assert_int_eq(last()->status, DDP_E_NOT_FOUND);
    ask_key(DDPI_OP_POP, 1, "", 0);
    ck_assert_str_eq(last()->value, "new");
    ask_key(DDPI_OP_TRY_GET, 2, "", 0);
    ck_assert_str_eq(last()->value, "new");
    end();
}
END_TEST

START_TEST(a_history_that_forgets_is_restored_as_it_is)
{
    struct ddpi_kv_limits limits = ddpi_kv_limits_default;
    limits.history_changes = 10;
    live(4711, true, &limits);
    ntokens = 0;
    limits.history_bytes = 5; /* some changes are larger: gaps */
    live(4712, true, &limits);
}
END_TEST

START_TEST(what_was_not_committed_has_not_happened)
{
    begin(&ddpi_kv_limits_default);
    set("a", "1");
    commit();
    set("a", "2");
    set("b", "2");
    end();
    begin(&ddpi_kv_limits_default);
    ck_assert_str_eq(try_get("a")->value, "1");
    ck_assert_int_eq(try_get("b")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_stats(kv).version, 1);
    end();
}
END_TEST

START_TEST(the_owner_s_deletions_are_kept_too)
{
    begin(&ddpi_kv_limits_default);
    set("g0/a", "1");
    set("g1/a", "1");
    ask(0, (struct ddpi_message){.op = DDPI_OP_PUSH, .key = bytes("g0/q"), .value = bytes("1")});
    ck_assert_uint_eq(ddpi_kv_delete_prefix(kv, bytes("g0/")), 1);
    commit();
    end();
    begin(&ddpi_kv_limits_default);
    ck_assert_uint_eq(ddpi_kv_stats(kv).keys, 1);
    ck_assert_int_eq(
        (int)call(0, (struct ddpi_message){.op = DDPI_OP_QUEUE_LEN, .key = bytes("g0/q")})->number,
        0);
    end();
}
END_TEST

START_TEST(sessions_end_when_their_new_lease_is_over)
{
    begin(&ddpi_kv_limits_default);
    struct got *got = call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 50});
    memcpy(tokens[0].bytes, got->value, DDPI_SESSION_SIZE);
    ask_session(DDPI_OP_SET_EPHEMERAL, tokens[0].bytes, 1, "x");
    commit();
    end();
    begin(&ddpi_kv_limits_default);
    ck_assert_int_eq(try_get("k1")->status, DDP_OK);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 50);
    ddpi_kv_expire(kv, now + 50);
    ck_assert_int_eq(try_get("k1")->status, DDP_E_NOT_FOUND);
    commit();
    end();
    begin(&ddpi_kv_limits_default);
    ck_assert_int_eq(try_get("k1")->status, DDP_E_NOT_FOUND);
    ck_assert_uint_eq(ddpi_kv_stats(kv).sessions, 0);
    end();
}
END_TEST

START_TEST(leases_begin_when_all_is_loaded)
{
    begin(&ddpi_kv_limits_default);
    call(0, (struct ddpi_message){.op = DDPI_OP_SESSION_OPEN, .count = 50});
    commit();
    end();
    begin(&ddpi_kv_limits_default);
    now += 1000; /* it took that long */
    ddpi_kv_restore_mark(kv, &restored, now);
    ck_assert_uint_eq(ddpi_kv_next_deadline(kv), now + 50);
    end();
}
END_TEST

START_TEST(a_watch_of_what_does_not_change_goes_on)
{
    begin(&ddpi_kv_limits_default);
    set("a", "1");
    commit();
    ask(1, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX});
    commit();
    end();
    begin(&ddpi_kv_limits_default);
    set("a", "2"); /* before the watcher is back */
    nreplies = 0;
    ask(1, (struct ddpi_message){.op = DDPI_OP_WATCH, .count = DDPI_WATCH_PREFIX, .version = 2});
    ck_assert_uint_eq(nreplies, 2);
    ck_assert_int_eq(replies[0].status, DDP_OK);
    ck_assert_str_eq(replies[1].value, "2");
    ddpi_kv_client_gone(kv, &clients[1]);
    end();
}
END_TEST

START_TEST(an_incarnation_belongs_to_the_file)
{
    begin(&ddpi_kv_limits_default);
    uint64_t first = restored.incarnation;
    end();
    begin(&ddpi_kv_limits_default);
    ck_assert_uint_eq(restored.incarnation, first);
    end();
    ck_assert_int_eq(unlink(path), 0);
    begin(&ddpi_kv_limits_default);
    ck_assert_uint_ne(restored.incarnation, first);
    end();
}
END_TEST

/* --- what is refused --- */

static void assert_refused(ddp_status status, const char *text)
{
    ck_assert_int_eq(ddpi_sqlite_sink_open(path, &state, &why), status);
    ck_assert_ptr_null(state);
    ck_assert_msg(strstr(why.msg, path) != NULL && strstr(why.msg, text) != NULL, "%s", why.msg);
}

static void write_file(const char *text, size_t len)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, len), (int)len);
    close(fd);
}

static void execute(const char *text)
{
    sqlite3 *db;
    char *message = NULL;
    ck_assert_int_eq(sqlite3_open(path, &db), SQLITE_OK);
    ck_assert_msg(sqlite3_exec(db, text, NULL, NULL, &message) == SQLITE_OK, "%s", message);
    ck_assert_int_eq(sqlite3_close(db), SQLITE_OK);
}

START_TEST(what_is_no_state_is_refused)
{
    char garbage[4096];
    memset(garbage, 'x', sizeof garbage);
    write_file(garbage, sizeof garbage);
    assert_refused(DDP_E_PROTOCOL, "is damaged, or something else");
    unlink(path);
    execute("CREATE TABLE t (a)");
    assert_refused(DDP_E_PROTOCOL, "no state of a ddprun store");
    unlink(path);
    begin(&ddpi_kv_limits_default);
    end();
    execute("PRAGMA user_version = 99");
    assert_refused(DDP_E_PROTOCOL, "has the format 99");
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    assert_refused(DDP_E_SYSTEM, "directory");
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    assert_refused(DDP_E_INVALID, "not a regular file");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("/dev/null", path), 0);
    assert_refused(DDP_E_SYSTEM, "cannot open");
}
END_TEST

START_TEST(one_process_at_a_time)
{
    begin(&ddpi_kv_limits_default);
    struct ddpi_sqlite_sink *second = NULL;
    ck_assert_int_eq(ddpi_sqlite_sink_open(path, &second, &why), DDP_E_DENIED);
    ck_assert_msg(strstr(why.msg, "another process") != NULL, "%s", why.msg);
    end();
}
END_TEST

START_TEST(only_its_owner_may_read_it)
{
    struct stat status;
    mode_t old = umask(0);
    begin(&ddpi_kv_limits_default);
    set("a", "1");
    commit();
    umask(old);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0777, 0600);
    end();
}
END_TEST

START_TEST(damaged_rows_are_refused)
{
    static const char *const damages[] = {
        "DELETE FROM meta WHERE name = 'version'",
        "UPDATE keys SET version = 0",
        "INSERT INTO sessions VALUES (5, x'00', 10)",
        "INSERT INTO sessions VALUES (5, zeroblob(24), 10)",
        "INSERT INTO changes VALUES (3, 99, x'61', x'61')",
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct ddpi_mark mark;
        begin(&ddpi_kv_limits_default);
        set("a", "1");
        commit();
        end();
        execute(damages[i]);
        kv_make(&ddpi_kv_limits_default);
        ddp_status status = ddpi_sqlite_sink_open(path, &state, &why);
        if (status == DDP_OK)
            status = ddpi_sqlite_sink_load(state, give_back, NULL, &mark, &why);
        ck_assert_msg(status == DDP_E_PROTOCOL, "%s: %d", damages[i], status);
        ck_assert_msg(strstr(why.msg, path) != NULL, "%s", why.msg);
        end();
        ck_assert_int_eq(unlink(path), 0);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("state");
    TCase *tcase = tcase_create("state");
    tcase_add_checked_fixture(tcase, state_setup, state_teardown);
    ADD_TESTS(tcase, what_is_restored_is_the_same, what_was_gone_stays_gone,
              what_comes_behind_a_deletion_stays, a_history_that_forgets_is_restored_as_it_is,
              what_was_not_committed_has_not_happened, the_owner_s_deletions_are_kept_too,
              sessions_end_when_their_new_lease_is_over, leases_begin_when_all_is_loaded,
              a_watch_of_what_does_not_change_goes_on, an_incarnation_belongs_to_the_file,
              what_is_no_state_is_refused, one_process_at_a_time, only_its_owner_may_read_it,
              damaged_rows_are_refused);
    suite_add_tcase(suite, tcase);
    return suite;
}
