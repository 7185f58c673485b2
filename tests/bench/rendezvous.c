/*
 * rendezvous.c - a hundred to ten thousand nodes meet: the time from the first that joins until the
 * last has its seat, the same after one of them is lost, and what that takes of the server.
 *
 * Each node is a member with a connection of its own (ddprun/round.h), all of them in this process;
 * the server is a child. A node does what it is told in no time, as no worker is started.
 */
#include "error.h"
#include "perf_server.h"
#include "scale.h"

#include <ddprun/round.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <uv.h>

enum {
    FEWEST_NODES = 100, /* then ten times as many, until there are NODES */
    NODES = 10000,
    OTHER_FILES = 64,
    MAX_RUNS = 5,
    LIMIT_MS = 120000,
    LEASE_MS = 60000,
    AT_A_TIME = 1000 /* nodes that are still connecting: all at once would overflow the backlog */
};

enum measure { FORM, AGAIN, MEMORY, MEASURES };

static const struct {
    const char *name;
    const char *json;
    const char *goal;
} measures[] = {
    [FORM] = {"first join to last seat, ms", "form_ms", "2000"},
    [AGAIN] = {"one lost to last new seat, ms", "again_ms", ""},
    [MEMORY] = {"most memory of the server, MiB", "server_mib", "150"},
};

struct meeting;

struct node {
    struct meeting *meeting;
    ddp_round *round;
    uint64_t generation; /* in which it has a seat */
};

struct meeting {
    uv_loop_t loop;
    uv_timer_t limit;
    uv_idle_t more; /* there are nodes to join */
    struct node *nodes;
    uint32_t count;
    uint32_t joined;
    uint32_t connected;
    uint32_t seated; /* in the generation that is waited for */
    uint32_t open;
    uint64_t generation;
    char endpoint[32];
    struct ddp_error why; /* it has failed */
    struct perf_server server;
    struct perf_samples samples[MEASURES];
};

static void fail(struct meeting *meeting, const char *why)
{
    if (meeting->why.status == DDP_OK)
        ddpi_error_set(&meeting->why, DDP_E_SYSTEM, "%s", why);
}

static bool failed(const struct meeting *meeting)
{
    return meeting->why.status != DDP_OK;
}

static void say(struct node *node, enum ddp_round_phase phase, uint64_t generation)
{
    const struct meeting *meeting = node->meeting;
    struct ddp_round_member member = {
        .nproc = 8, .node_rank = -1, .phase = phase, .generation = generation};
    member.terms = (struct ddp_round_terms){
        .min_nodes = meeting->count - 1, .max_nodes = meeting->count, .settle_ms = LIMIT_MS};
    snprintf(member.name, sizeof member.name, "node%u", (unsigned)(node - meeting->nodes));
    if (ddp_round_publish(node->round, &member, &node->meeting->why) != DDP_OK)
        fail(node->meeting, "cannot publish");
}

static struct node *node_to_lose(const struct meeting *meeting)
{
    return &meeting->nodes[meeting->count / 2];
}

static void on_seat(void *data, const struct ddp_round_seat *seat)
{
    struct node *node = data;
    struct meeting *meeting = node->meeting;
    if (seat->order == DDP_ROUND_END)
        fail(meeting, seat->text);
    if (seat->order == DDP_ROUND_STOP)
        say(node, DDP_ROUND_IDLE, seat->generation);
    if (seat->order != DDP_ROUND_RUN || seat->generation == node->generation)
        return;
    node->generation = seat->generation;
    meeting->seated += seat->generation == meeting->generation;
    /* If the kernel closes a socket on which an answer is unread, it sends RST, and then the server
     * waits for the lease. So no answer is on its way to the node that is lost. */
    if (node != node_to_lose(meeting))
        say(node, DDP_ROUND_RUNNING, seat->generation);
}

static void on_contact(void *data, uint64_t sent_ms)
{
    (void)data;
    (void)sent_ms;
}

static void on_lost(void *data, const char *why)
{
    const struct node *node = data;
    fail(node->meeting, why);
}

static void on_state(void *data, enum ddp_store_uv_state state, const char *why)
{
    const struct node *node = data;
    (void)why;
    node->meeting->connected += state == DDP_STORE_UV_CONNECTED;
}

static void join(struct meeting *meeting, struct node *node)
{
    const struct ddp_store_options options = {.size = sizeof options,
                                              .endpoint = meeting->endpoint};
    const struct ddp_round_hooks hooks = {.size = sizeof hooks,
                                          .data = node,
                                          .seat = on_seat,
                                          .contact = on_contact,
                                          .lost = on_lost,
                                          .state = on_state};
    node->meeting = meeting;
    if (ddp_round_join(&meeting->loop, &options, "perf", LEASE_MS, &hooks, &node->round,
                       &meeting->why) != DDP_OK)
        return;
    meeting->open++;
    say(node, DDP_ROUND_IDLE, 0);
}

static void on_more(uv_idle_t *more)
{
    struct meeting *meeting = more->data;
    while (!failed(meeting) && meeting->joined < meeting->count &&
           meeting->joined < meeting->connected + AT_A_TIME)
        join(meeting, &meeting->nodes[meeting->joined++]);
    if (failed(meeting) || meeting->joined == meeting->count)
        uv_idle_stop(more);
}

static void on_limit(uv_timer_t *limit)
{
    struct meeting *meeting = limit->data;
    char why[128];
    snprintf(why, sizeof why, "%u of %u nodes had a seat after %d s", meeting->seated,
             meeting->count, LIMIT_MS / 1000);
    fail(meeting, why);
}

static void on_closed(void *data)
{
    struct node *node = data;
    node->meeting->open--;
}

static void close_node(struct node *node)
{
    if (node->round != NULL)
        ddp_round_close(node->round, on_closed, node);
    node->round = NULL;
}

/* Until @count nodes have a seat in @generation; the time since @begin_us is a sample. */
static bool await(struct meeting *meeting, uint32_t count, enum measure measure, double begin_us)
{
    while (!failed(meeting) && meeting->seated < count)
        uv_run(&meeting->loop, UV_RUN_ONCE);
    if (!failed(meeting) && !perf_add(&meeting->samples[measure], (perf_now_us() - begin_us) / 1e3))
        ddpi_error_nomem(&meeting->why, sizeof(double));
    return !failed(meeting);
}

static bool note_memory(struct meeting *meeting)
{
    double mib = (double)perf_memory_kib(meeting->server.pid, "VmHWM:") / 1024;
    return perf_add(&meeting->samples[MEMORY], mib) || !ddpi_error_nomem(&meeting->why, sizeof mib);
}

static bool meet(struct meeting *meeting)
{
    meeting->generation = 1;
    double begin_us = perf_now_us();
    uv_idle_start(&meeting->more, on_more);
    if (!await(meeting, meeting->count, FORM, begin_us))
        return false;
    meeting->generation = 2;
    meeting->seated = 0;
    begin_us = perf_now_us();
    close_node(node_to_lose(meeting));
    return await(meeting, meeting->count - 1, AGAIN, begin_us) && note_memory(meeting);
}

static void begin(struct meeting *meeting)
{
    meeting->joined = meeting->connected = meeting->seated = 0;
    uv_timer_init(&meeting->loop, &meeting->limit);
    uv_idle_init(&meeting->loop, &meeting->more);
    meeting->limit.data = meeting->more.data = meeting;
    uv_timer_start(&meeting->limit, on_limit, LIMIT_MS, 0);
}

static void end(struct meeting *meeting)
{
    for (uint32_t i = 0; i < meeting->joined; i++)
        close_node(&meeting->nodes[i]);
    uv_close((uv_handle_t *)&meeting->limit, NULL);
    uv_close((uv_handle_t *)&meeting->more, NULL);
    uv_run(&meeting->loop, UV_RUN_DEFAULT);
    perf_server_stop(&meeting->server);
}

static bool run(struct perf *perf, struct meeting *meeting)
{
    if (uv_loop_init(&meeting->loop) != 0)
        return !ddpi_error_set(&meeting->why, DDP_E_SYSTEM, "cannot make an event loop");
    bool done = perf_server_start_ours(perf, &meeting->server, &meeting->why);
    snprintf(meeting->endpoint, sizeof meeting->endpoint, "127.0.0.1:%u", meeting->server.port);
    meeting->nodes = calloc(meeting->count, sizeof *meeting->nodes);
    if (done && meeting->nodes == NULL)
        done = !ddpi_error_nomem(&meeting->why, meeting->count);
    if (done) {
        begin(meeting);
        done = meet(meeting);
        end(meeting);
    }
    uv_loop_close(&meeting->loop);
    free(meeting->nodes);
    return done;
}

static void print(struct perf *perf, struct meeting *meeting)
{
    for (int m = 0; m < MEASURES; m++) {
        struct perf_samples *samples = &meeting->samples[m];
        double median = perf_percentile(samples, 50), max = perf_percentile(samples, 100);
        printf("| %s | %u | %.1f | %.1f | %s |\n", measures[m].name, meeting->count, median, max,
               meeting->count == NODES ? measures[m].goal : "");
        if (perf->json != NULL)
            fprintf(perf->json,
                    "{\"benchmark\":\"rendezvous\",\"contender\":\"ddprun\",\"nodes\":%u,"
                    "\"runs\":%zu,\"%s\":%.3f,\"max\":%.3f}\n",
                    meeting->count, samples->count, measures[m].json, median, max);
    }
}

/* As many as the limit of open files allows: each process holds one end of each connection. */
static uint32_t node_count(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= NODES + OTHER_FILES)
        return NODES;
    printf("Only %lu files may be open at once (ulimit -n).\n\n", (unsigned long)files.rlim_cur);
    return files.rlim_cur > 2 * OTHER_FILES ? (uint32_t)files.rlim_cur - OTHER_FILES : OTHER_FILES;
}

static bool measure(struct perf *perf, uint32_t count, struct ddp_error *err)
{
    struct meeting meeting = {.count = count};
    uint32_t runs = perf->options.runs < MAX_RUNS ? perf->options.runs : MAX_RUNS;
    bool done = true;
    for (uint32_t i = 0; done && i < runs; i++)
        done = run(perf, &meeting);
    if (done)
        print(perf, &meeting);
    else
        ddpi_error_set(err, meeting.why.status, "%u nodes: %s", meeting.count, meeting.why.msg);
    for (int m = 0; m < MEASURES; m++)
        perf_samples_finish(&meeting.samples[m]);
    return done;
}

bool scale_rendezvous(struct perf *perf, struct ddp_error *err)
{
    uint32_t most = node_count();
    bool done = true;
    signal(SIGPIPE, SIG_IGN);
    printf("| measure | nodes | median | max | goal |\n|---|---|---|---|---|\n");
    for (uint32_t count = FEWEST_NODES; done && count < most; count *= 10)
        done = measure(perf, count, err);
    return done && measure(perf, most, err);
}
