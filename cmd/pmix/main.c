/*
 * main.c - ddprun-pmix: the PMIx server of one node in one generation, for programs of Open MPI.
 * ddprun starts it when the first rank connects, so only MPI programs pay for loading libpmix.
 *
 * Descriptor 4 is the connection of the first rank, 0 the socket at which the others connect, 1 the
 * socket to ddprun: lines to it are "say TEXT", "fail WHY" and "abort LOCAL_RANK EXIT_CODE", from
 * it "gone LOCAL_RANK". Its end ends this process.
 */
#include "error.h"
#include "exit_codes.h"
#include "folder.h"
#include "mem.h"
#include "parse.h"
#include "pmix_job.h"
#include "pmix_names.h"
#include "pmix_relay.h"
#include "pmix_upcalls.h"
#include "pmix_waiting.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_FD = 0, AGENT_FD = 1, FIRST_RANK_FD = 4, LINE_SIZE = 1024 };

static struct {
    uv_loop_t loop;
    uv_pipe_t agent;
    char line[LINE_SIZE];
    size_t used;
    struct pmix_place place;
    struct pmix_node *nodes;
    struct pmix_gathering gathering;
    struct pmix_tasks tasks;
    struct pmix_relay relay;
    struct pmix_waiting waiting;
} server;

__attribute__((noreturn)) static void end_server(int exit_code)
{
    if (server.place.folder[0] != '\0')
        ddpi_folder_remove(server.place.folder);
    _exit(exit_code);
}

DDP_PRINTF(1, 2) static void tell_agent(const char *format, ...)
{
    char line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (len >= (int)sizeof line - 1)
        len = (int)sizeof line - 2;
    line[len++] = '\n';
    for (int sent = 0; sent < len;) {
        ssize_t now = write(AGENT_FD, line + sent, (size_t)(len - sent));
        struct pollfd room = {.fd = AGENT_FD, .events = POLLOUT};
        if (now < 0 && (errno == EAGAIN || errno == EINTR))
            (void)poll(&room, 1, -1);
        else if (now < 0)
            end_server(EXIT_CONFIG); /* the agent is gone */
        else
            sent += (int)now;
    }
}

__attribute__((noreturn)) static void give_up(const struct ddp_error *err)
{
    tell_agent("fail MPI programs of Open MPI cannot be served: %s", err->msg);
    end_server(EXIT_CONFIG);
}

/* ---- lines of the agent ---- */

static void take_agent_line(const char *line)
{
    int64_t local_rank;
    if (strncmp(line, "gone ", 5) == 0 &&
        ddpi_parse_int(line + 5, 0, server.place.own.nproc - 1, &local_rank, NULL) == DDP_OK)
        pmix_upcalls_rank_gone((uint32_t)local_rank);
}

static void take_agent_lines(void)
{
    for (char *end; (end = memchr(server.line, '\n', server.used)) != NULL;) {
        size_t len = (size_t)(end - server.line) + 1;
        *end = '\0';
        take_agent_line(server.line);
        server.used -= len;
        memmove(server.line, server.line + len, server.used);
    }
}

static void on_agent_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(server.line + server.used, (unsigned)(sizeof server.line - server.used));
}

static void end_well(void)
{
    pmix_job_end(&server.place);
    end_server(EXIT_SUCCESS);
}

static void on_agent_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    (void)buf;
    server.used += count > 0 ? (size_t)count : 0;
    take_agent_lines();
    if (count >= 0 && server.used < sizeof server.line)
        return;
    uv_read_stop(stream); /* the agent is gone, or writes what is no line */
    if (!pmix_waiting_holds(&server.waiting, end_well))
        end_well();
}

/* ---- start ---- */

static void serve(void)
{
    struct ddp_error err;
    char address[PMIX_JOB_ADDRESS_SIZE];
    if (pmix_job_register(&server.place, server.nodes, address, &err) != DDP_OK ||
        pmix_relay_open(&server.relay, &server.loop, RANKS_FD, address, &err) != DDP_OK ||
        pmix_relay_adopt(&server.relay, FIRST_RANK_FD, &err) != DDP_OK ||
        pmix_waiting_serve(&server.waiting, &err) != DDP_OK)
        give_up(&err);
}

/* The word at *@at, which is moved behind it; NULL: there is none. */
static const char *next_word(char **at)
{
    char *word = *at;
    size_t len = strcspn(word, " ");
    *at = word[len] == ' ' ? word + len + 1 : word + len;
    word[len] = '\0';
    return len > 0 ? word : NULL;
}

/* "HOST FIRST_RANK NPROC" of each node. */
static bool take_node(struct pmix_node *node, const struct pmix_text *text)
{
    char line[PLACE_NAME_SIZE + 32], *at = line;
    int64_t numbers[2];
    if (text->len >= sizeof line)
        return false;
    memcpy(line, text->bytes, text->len);
    line[text->len] = '\0';
    const char *host = next_word(&at);
    if (host == NULL || strlen(host) >= sizeof node->host)
        return false;
    snprintf(node->host, sizeof node->host, "%s", host);
    for (int i = 0; i < 2; i++) {
        const char *number = next_word(&at);
        if (number == NULL || ddpi_parse_int(number, 0, INT32_MAX, &numbers[i], NULL) != DDP_OK)
            return false;
    }
    node->first_rank = (uint32_t)numbers[0];
    node->nproc = (uint32_t)numbers[1];
    return *at == '\0';
}

/* The first rank of each node follows the last one of the node before it, and the job has no other
 * ranks. */
static bool take_nodes(const struct pmix_text *texts)
{
    const struct pmix_place *place = &server.place;
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < place->node_count; i++) {
        struct pmix_node *node = &server.nodes[i];
        if (!take_node(node, &texts[i]) || node->first_rank != ranks || node->nproc == 0 ||
            node->nproc > place->world_size - ranks)
            return false;
        ranks += node->nproc;
    }
    const struct pmix_node *own = &server.nodes[place->node_rank];
    return ranks == place->world_size && own->first_rank == place->own.first_rank &&
           own->nproc == place->own.nproc;
}

static void on_nodes_known(void *ctx, ddp_status status, const struct pmix_text *texts,
                           const char *why)
{
    struct ddp_error err;
    (void)ctx;
    if (status != DDP_OK) {
        ddpi_error_set(&err, status, "the MPI ranks of this node do not find the other nodes: %s",
                       why);
        give_up(&err);
    }
    if (!take_nodes(texts)) {
        ddpi_error_set(&err, DDP_E_PROTOCOL, "what the nodes say of their ranks does not fit");
        give_up(&err);
    }
    serve();
}

static void meet_nodes(void)
{
    const struct pmix_place *place = &server.place;
    char text[PLACE_NAME_SIZE + 32];
    struct ddp_error err;
    uint32_t *nodes = ddpi_calloc(place->node_count, sizeof *nodes);
    if (nodes == NULL) {
        ddpi_error_nomem(&err, place->node_count * sizeof *nodes);
        give_up(&err);
    }
    for (uint32_t i = 0; i < place->node_count; i++)
        nodes[i] = i;
    int len = snprintf(text, sizeof text, "%s %" PRIu32 " %" PRIu32, place->own.host,
                       place->own.first_rank, place->own.nproc);
    const struct pmix_gather gather = {.name = "nodes",
                                       .nodes = nodes,
                                       .count = place->node_count,
                                       .own = {text, (size_t)len},
                                       .done = on_nodes_known};
    pmix_gather_begin(&server.gathering, &gather);
}

/* Of the variables for ranks, which would make a client of this server. It shares no memory with
 * its ranks, which would be left behind when it is killed. */
static void clean_environment(void)
{
    extern char **environ;
    char name[LINE_SIZE];
    for (char **entry = environ; *entry != NULL;) {
        size_t len = strcspn(*entry, "=");
        bool drop = (*entry)[len] == '=' && strncmp(*entry, "PMIX_", 5) == 0 &&
                    strncmp(*entry, "PMIX_MCA_", 9) != 0 && len < sizeof name;
        snprintf(name, sizeof name, "%.*s", (int)len, *entry);
        if (!drop || unsetenv(name) != 0)
            entry++;
    }
    setenv("PMIX_MCA_gds", "hash", 1);
}

static ddp_status start_server(struct ddp_error *err)
{
    server.nodes = ddpi_calloc(server.place.node_count, sizeof *server.nodes);
    if (server.nodes == NULL)
        return ddpi_error_nomem(err, server.place.node_count * sizeof *server.nodes);
    const struct pmix_upcalls upcalls = {.place = &server.place,
                                         .nodes = server.nodes,
                                         .gathering = &server.gathering,
                                         .tasks = &server.tasks,
                                         .waiting = &server.waiting,
                                         .tell = tell_agent};
    ddp_status status = pmix_upcalls_open(&upcalls, err);
    if (status != DDP_OK)
        return status;
    int uv_status = pmix_tasks_open(&server.tasks, &server.loop);
    if (uv_status != 0)
        return ddpi_error_sys(err, -uv_status, "cannot watch libpmix");
    server.waiting = (struct pmix_waiting){.place = &server.place,
                                           .gathering = &server.gathering,
                                           .tasks = &server.tasks,
                                           .tell = tell_agent};
    pmix_names_open(&server.gathering, &server.tasks);
    pmix_status_t pmix_status = PMIx_server_init(&pmix_upcalls_module, NULL, 0);
    return pmix_status == PMIX_SUCCESS
               ? DDP_OK
               : ddpi_error_set(err, DDP_E_UNSUPPORTED, "libpmix cannot start a server: %s",
                                PMIx_Error_string(pmix_status));
}

static ddp_status watch_agent(struct ddp_error *err)
{
    uv_pipe_init(&server.loop, &server.agent, 0);
    int uv_status = uv_pipe_open(&server.agent, AGENT_FD);
    if (uv_status == 0)
        uv_status = uv_read_start((uv_stream_t *)&server.agent, on_agent_alloc, on_agent_read);
    return uv_status == 0 ? DDP_OK : ddpi_error_sys(err, -uv_status, "cannot watch ddprun");
}

int main(void)
{
    struct ddp_error err;
    signal(SIGPIPE, SIG_IGN);
    ddp_status status = pmix_place_read(&server.place, &err);
    if (status == DDP_OK && uv_loop_init(&server.loop) != 0)
        status = ddpi_error_nomem(&err, sizeof server.loop);
    if (status != DDP_OK) {
        fprintf(stderr, "ddprun-pmix: ddprun starts this program: %s\n", err.msg);
        return EXIT_USAGE;
    }
    server.gathering = (struct pmix_gathering){
        .loop = &server.loop, .options = &server.place.store, .node_rank = server.place.node_rank};
    clean_environment();
    if (pmix_folder_make(server.place.own.nproc, server.place.folder, &err) != DDP_OK ||
        start_server(&err) != DDP_OK || watch_agent(&err) != DDP_OK)
        give_up(&err);
    pmix_waiting_open(&server.waiting, &server.loop);
    meet_nodes();
    uv_run(&server.loop, UV_RUN_DEFAULT);
    return EXIT_CONFIG;
}
