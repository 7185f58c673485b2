/*
 * test_store_history.c - eight clients at random, connections cut, ddprund killed and started again
 * with its state: all that they have seen must be one history (history.h), and all that watches
 * have told must be the whole of it, in order.
 *
 * DDPRUN_HISTORY_RUNS is the number of runs, DDPRUN_HISTORY_SEED the first of their seeds. A run
 * that fails names its seed; which threads run when is not the seed's, so it may take some runs to
 * fail again.
 */
#include "check_main.h"
#include "cutter.h"
#include "history.h"

#include <ddprun/store.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    CLIENTS = 8,
    NAME = 24,
    CALLS = 24, /* of each client in a run */
    KEYS = 6,   /* of them, the last two count */
    COUNTERS = 2,
    RUNS = 40,
    LINES = CLIENTS * CALLS + 8,
    LONG_MS = 60000,
};

extern char **environ;

struct server {
    char folder[512], state[512 + 8];
    pid_t pid;
    unsigned port;
};

struct run {
    struct server server;
    struct cutter *cutter;
    atomic_uint calls; /* that have ended */
    struct client {
        struct run *run;
        unsigned index, seed;
        uint64_t seen[KEYS]; /* the last version of each key */
        struct history_call calls[CALLS];
        size_t ncalls;
        char why[DDP_ERROR_TEXT]; /* of what must not happen */
    } clients[CLIENTS];
    struct watcher {
        struct run *run;
        ddp_store *store;
        const char *prefix;
        struct history_line lines[LINES];
        size_t nlines;
        uint64_t until; /* the version of the last line */
        char why[DDP_ERROR_TEXT];
    } all, some;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- the server ---- */

static void server_start(struct server *server)
{
    char listen[64], state[512 + 32], line[256] = "";
    const char *program = getenv("DDPRUND");
    ck_assert_ptr_nonnull(program);
    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%u", server->port);
    snprintf(state, sizeof state, "--state=%s", server->state);
    char *argv[] = {(char *)program, listen, state, (char *)"--log-level=error", NULL};
    int out[2];
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    ck_assert_int_eq(posix_spawn(&server->pid, program, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    FILE *lines = fdopen(out[0], "r");
    ck_assert_ptr_nonnull(lines);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, lines));
    static const char said[] = "listening on 127.0.0.1:";
    ck_assert_int_eq(strncmp(line, said, sizeof said - 1), 0);
    server->port = (unsigned)strtoul(line + sizeof said - 1, NULL, 10);
    fclose(lines);
}

/* A server that is killed leaves a mark that the endpoint is its own. */
static void forget_mark(const struct server *server)
{
    char path[sizeof server->folder + 64];
    snprintf(path, sizeof path, "%s/ddprun/store-127.0.0.1:%u", server->folder, server->port);
    (void)!unlink(path);
    snprintf(path, sizeof path, "%s/ddprun", server->folder);
    (void)!rmdir(path);
}

static void server_kill(struct server *server)
{
    int status;
    ck_assert_int_eq(kill(server->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(server->pid, &status, 0), server->pid);
    ck_assert(WIFSIGNALED(status)); /* it had not ended by itself */
}

static void remove_files(const struct server *server)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        char file[512 + 32];
        snprintf(file, sizeof file, "%s%s", server->state, suffixes[i]);
        unlink(file);
    }
    forget_mark(server);
    ck_assert_int_eq(rmdir(server->folder), 0);
}

/* ---- clients ---- */

static ddp_store *open_store(const struct run *run, struct ddp_error *err)
{
    char endpoint[32];
    ddp_store *store = NULL;
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%u", cutter_port(run->cutter));
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = endpoint, .connect_timeout_ms = LONG_MS};
    return ddp_store_connect(&options, &store, err) == DDP_OK ? store : NULL;
}

static const char *name_of(unsigned key, char name[NAME])
{
    snprintf(name, NAME, key >= KEYS - COUNTERS ? "count/%u" : "key/%u", key);
    return name;
}

/* What became of a call that changes something. */
static enum history_outcome outcome_of(ddp_status status)
{
    if (status == DDP_OK)
        return HISTORY_DONE;
    return status == DDP_E_UNREACHABLE ? HISTORY_NOTHING : HISTORY_UNKNOWN;
}

static bool expected(ddp_status status)
{
    return status == DDP_OK || status == DDP_E_CLOSED || status == DDP_E_UNREACHABLE ||
           status == DDP_E_CONFLICT || status == DDP_E_NOT_FOUND;
}

static ddp_status write_key(struct client *client, ddp_store *store, struct history_call *call,
                            bool swap, struct ddp_error *err)
{
    char name[NAME], value[24];
    int len = snprintf(value, sizeof value, "%" PRIu64, call->value);
    call->expected = swap ? client->seen[call->key] : UINT64_MAX;
    name_of(call->key, name);
    ddp_status status =
        swap ? ddp_store_compare_and_swap(store, name, call->expected, value, (size_t)len, LONG_MS,
                                          &call->version, err)
             : ddp_store_set(store, name, value, (size_t)len, LONG_MS, &call->version, err);
    call->outcome = outcome_of(status);
    if (status == DDP_E_CONFLICT) {
        call->kind = HISTORY_READ;
        call->outcome = HISTORY_DONE;
    }
    return status;
}

static ddp_status read_key(ddp_store *store, struct history_call *call, struct ddp_error *err)
{
    char name[NAME];
    void *value;
    size_t len;
    ddp_status status = ddp_store_try_get(store, name_of(call->key, name), LONG_MS, &value, &len,
                                          &call->version, err);
    if (status == DDP_OK)
        ddp_store_free(value);
    if (status == DDP_E_NOT_FOUND)
        call->version = 0;
    call->outcome = status == DDP_OK || status == DDP_E_NOT_FOUND ? HISTORY_DONE : HISTORY_NOTHING;
    return status;
}

static ddp_status count(ddp_store *store, struct history_call *call, struct ddp_error *err)
{
    char name[NAME];
    int64_t sum = 0;
    ddp_status status = ddp_store_add(store, name_of(call->key, name), 1, LONG_MS, &sum, err);
    call->value = (uint64_t)sum;
    call->outcome = outcome_of(status);
    return status;
}

static ddp_status delete_key(ddp_store *store, struct history_call *call, struct ddp_error *err)
{
    char name[NAME];
    ddp_status status = ddp_store_delete(store, name_of(call->key, name), LONG_MS, err);
    call->outcome = outcome_of(status);
    if (status == DDP_E_NOT_FOUND) {
        call->kind = HISTORY_READ;
        call->outcome = HISTORY_DONE;
    }
    return status;
}

static void do_call(struct client *client, ddp_store *store, struct history_call *call)
{
    struct ddp_error err = {0};
    ddp_status status;
    int dice = rand_r(&client->seed) % 10;
    call->key = (unsigned)rand_r(&client->seed) % KEYS;
    call->value = client->index * 1000 + client->ncalls + 1000;
    call->expected = UINT64_MAX;
    call->begin_ns = now_ns();
    if (call->key >= KEYS - COUNTERS) {
        call->kind = dice < 6 ? HISTORY_ADD : HISTORY_READ;
        status = dice < 6 ? count(store, call, &err) : read_key(store, call, &err);
    } else if (dice < 6) {
        call->kind = HISTORY_SET;
        status = write_key(client, store, call, dice < 3, &err);
    } else if (dice == 6 && call->key == client->index) { /* one client for each: see history.h */
        call->kind = HISTORY_DELETE;
        status = delete_key(store, call, &err);
    } else {
        call->kind = HISTORY_READ;
        status = read_key(store, call, &err);
    }
    call->end_ns = now_ns();
    if (call->outcome == HISTORY_DONE && call->kind != HISTORY_ADD)
        client->seen[call->key] = call->kind == HISTORY_DELETE ? 0 : call->version;
    if (!expected(status))
        snprintf(client->why, sizeof client->why, "%d: %.900s", status, err.msg);
}

static void *run_client(void *arg)
{
    struct client *client = arg;
    struct ddp_error err;
    ddp_store *store = open_store(client->run, &err);
    if (store == NULL)
        snprintf(client->why, sizeof client->why, "%s", err.msg);
    while (store != NULL && client->ncalls < CALLS && client->why[0] == '\0') {
        do_call(client, store, &client->calls[client->ncalls]);
        client->ncalls++;
        atomic_fetch_add(&client->run->calls, 1);
    }
    atomic_fetch_add(&client->run->calls, CALLS - (unsigned)client->ncalls); /* it has given up */
    ddp_store_close(store);
    return NULL;
}

/* ---- watchers ---- */

static void take_event(struct watcher *watcher, const struct ddp_store_event *event)
{
    struct history_line *line = &watcher->lines[watcher->nlines];
    unsigned key = KEYS; /* the one that ends the run */
    const char *slash = strchr(event->key, '/');
    if (event->kind == DDP_STORE_EVENT_LOST || watcher->nlines == LINES) {
        snprintf(watcher->why, sizeof watcher->why, "lost changes, or far too many");
        return;
    }
    if (slash != NULL)
        key = (unsigned)strtoul(slash + 1, NULL, 10);
    *line = (struct history_line){.version = event->version,
                                  .key = key,
                                  .deleted = event->kind == DDP_STORE_EVENT_DELETED,
                                  .value = strtoull(event->value, NULL, 10)};
    watcher->nlines++;
}

static void watcher_open(struct watcher *watcher, struct run *run, const char *prefix)
{
    struct ddp_error err;
    watcher->run = run;
    watcher->prefix = prefix;
    watcher->store = open_store(run, &err);
    ck_assert_msg(watcher->store != NULL, "%s", err.msg);
    ck_assert_msg(ddp_store_watch(watcher->store, prefix, DDP_STORE_WATCH_PREFIX, 0, LONG_MS, NULL,
                                  NULL, &err) == DDP_OK,
                  "%s", err.msg);
}

/* Until the change that ends the run, which every watcher sees. */
static void *run_watcher(void *arg)
{
    struct watcher *watcher = arg;
    struct ddp_error err;
    while (watcher->why[0] == '\0') {
        struct ddp_store_event *event;
        ddp_status status = ddp_store_next_event(watcher->store, LONG_MS, &event, &err);
        if (status == DDP_E_CLOSED || status == DDP_E_UNREACHABLE)
            continue;
        if (status != DDP_OK) {
            snprintf(watcher->why, sizeof watcher->why, "%s", err.msg);
            break;
        }
        bool last = strstr(event->key, "end") != NULL;
        take_event(watcher, event);
        ddp_store_free(event);
        if (last)
            break;
    }
    return NULL;
}

/* ---- a run ---- */

static void end_run(const struct run *run)
{
    struct ddp_error err;
    ddp_store *store = open_store(run, &err);
    ck_assert_msg(store != NULL, "%s", err.msg);
    ck_assert_msg(ddp_store_set(store, "key-end", "0", 1, LONG_MS, NULL, &err) == DDP_OK, "%s",
                  err.msg);
    ddp_store_close(store);
}

/* For a person, when it is wrong: by beginning, as history_check() has left it. */
static void print_history(const struct history_call *calls, size_t ncalls,
                          const struct watcher *watcher)
{
    for (size_t i = 0; i < watcher->nlines; i++)
        fprintf(stderr, "log %" PRIu64 " key %u %s %" PRIu64 "\n", watcher->lines[i].version,
                watcher->lines[i].key, watcher->lines[i].deleted ? "deleted" : "is",
                watcher->lines[i].value);
    for (size_t i = 0; i < ncalls; i++)
        fprintf(stderr,
                "call %" PRIu64 "-%" PRIu64 " kind %d key %u outcome %d value %" PRIu64
                " version %" PRIu64 "\n",
                calls[i].begin_ns, calls[i].end_ns, calls[i].kind, calls[i].key, calls[i].outcome,
                calls[i].value, calls[i].version);
}

static void check_run(struct run *run, unsigned seed)
{
    static struct history_call calls[CLIENTS * CALLS];
    char why[HISTORY_WHY] = "";
    size_t ncalls = 0;
    for (unsigned i = 0; i < CLIENTS; i++) {
        const struct client *client = &run->clients[i];
        ck_assert_msg(client->why[0] == '\0', "seed %u, client %u: %s", seed, i, client->why);
        memcpy(calls + ncalls, client->calls, client->ncalls * sizeof *calls);
        ncalls += client->ncalls;
    }
    const struct watcher *all = &run->all, *some = &run->some;
    ck_assert_msg(all->why[0] == '\0', "seed %u, watcher: %s", seed, all->why);
    ck_assert_msg(some->why[0] == '\0', "seed %u, watcher: %s", seed, some->why);
    bool good = history_check(calls, ncalls, all->lines, all->nlines, why);
    if (!good)
        print_history(calls, ncalls, all);
    ck_assert_msg(good, "seed %u: %s", seed, why);
    size_t next = 0;
    for (size_t i = 0; i < all->nlines; i++) { /* the other watch sees keys, not counters */
        if (all->lines[i].key >= KEYS - COUNTERS && all->lines[i].key < KEYS)
            continue;
        ck_assert_msg(next < some->nlines && some->lines[next].version == all->lines[i].version,
                      "seed %u: the watch of a prefix does not tell version %" PRIu64, seed,
                      all->lines[i].version);
        next++;
    }
    ck_assert_msg(next == some->nlines, "seed %u: the watch of a prefix tells too much", seed);
}

static void history_run(unsigned seed)
{
    static struct run run;
    pthread_t clients[CLIENTS], watchers[2];
    memset(&run, 0, sizeof run);
    const char *tmp = getenv("TMPDIR");
    snprintf(run.server.folder, sizeof run.server.folder, "%s/history.XXXXXX",
             tmp != NULL ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(run.server.folder));
    setenv("XDG_RUNTIME_DIR", run.server.folder, 1); /* marks of servers that were killed */
    snprintf(run.server.state, sizeof run.server.state, "%s/state", run.server.folder);
    server_start(&run.server);
    run.cutter = cutter_start((uint16_t)run.server.port, seed);
    watcher_open(&run.all, &run, "");
    watcher_open(&run.some, &run, "key");
    pthread_create(&watchers[0], NULL, run_watcher, &run.all);
    pthread_create(&watchers[1], NULL, run_watcher, &run.some);
    for (unsigned i = 0; i < CLIENTS; i++) {
        run.clients[i].run = &run;
        run.clients[i].index = i;
        run.clients[i].seed = seed * CLIENTS + i + 1;
        pthread_create(&clients[i], NULL, run_client, &run.clients[i]);
    }
    unsigned kills = 1 + seed % 2, total = CLIENTS * CALLS;
    for (unsigned i = 1; i <= kills; i++) {
        unsigned at = total * i / (kills + 1) - (seed * 2654435761u >> 24) % (total / 8);
        while (atomic_load(&run.calls) < at)
            sched_yield();
        server_kill(&run.server);
        server_start(&run.server);
    }
    for (unsigned i = 0; i < CLIENTS; i++)
        pthread_join(clients[i], NULL);
    cutter_rest(run.cutter);
    end_run(&run);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(watchers[i], NULL);
    ddp_store_close(run.all.store);
    ddp_store_close(run.some.store);
    cutter_stop(run.cutter);
    server_kill(&run.server);
    remove_files(&run.server);
    check_run(&run, seed);
}

static unsigned number_from(const char *name, unsigned standard)
{
    const char *text = getenv(name);
    return text != NULL ? (unsigned)strtoul(text, NULL, 10) : standard;
}

START_TEST(histories_are_linearizable)
{
    unsigned runs = number_from("DDPRUN_HISTORY_RUNS", RUNS);
    unsigned first = number_from("DDPRUN_HISTORY_SEED", 1);
    for (unsigned i = 0; i < runs; i++)
        history_run(first + i);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("store_history");
    TCase *tcase = tcase_create("runs");
    tcase_add_test(tcase, histories_are_linearizable);
    suite_add_tcase(suite, tcase);
    return suite;
}
