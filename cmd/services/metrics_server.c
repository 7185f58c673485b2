/*
 * metrics_server.c - see metrics_server.h. Owns the listener, the HTTP server and the watch of the
 * job. Its answers never wait for the store longer than STORE_MS; a scraper that does not read
 * costs a connection of CONNECTIONS for CLIENT_MS.
 */
#include "metrics_server.h"

#include "agent.h"
#include "error.h"
#include "job_json.h"
#include "listen.h"
#include "mem.h"
#include "metrics_page.h"
#include "metrics_text.h"
#include "parse.h"
#include "proof.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    LATER_MS = 1000,
    STORE_MS = 1000,
    CONNECTIONS = 64,
    CLIENT_MS = 10000,
    BODY_MAX = 1024,
    BODY_TOTAL = 64 * 1024,
    TEXT_MAX = 16 << 20,
    LAST_RECORDS = 4, /* of a rank, of which one tells when it last got on */
};

enum { HTTP_OK = 200, NOT_ALLOWED = 401, NOT_THERE = 404, BAD_METHOD = 405, NO_MEMORY = 503 };

static const char text_type[] = "text/plain; charset=utf-8";
static const char metrics_type[] = "text/plain; version=0.0.4; charset=utf-8";

/* ---- what is shown ---- */

static uint64_t latest_ns(const struct ddpi_flight_header *copy)
{
    uint64_t latest = 0;
    const struct ddpi_flight_record *records = ddpi_flight_records(copy);
    for (uint32_t i = 0; i < copy->records; i++) {
        struct ddpi_flight_op op;
        if (!ddpi_flight_get(&records[i], &op))
            continue;
        const uint64_t times[] = {op.created_ns, op.started_ns, op.ended_ns};
        for (unsigned k = 0; k < 3; k++)
            latest = times[k] > latest ? times[k] : latest;
    }
    return latest;
}

/* False: it has called no operation. A worker may write anything: even times of the future. */
static bool read_rank(const struct agent *agent, uint32_t local_rank, struct metrics_rank *ret)
{
    size_t len;
    struct ddpi_flight_header *copy = agent_flight_copy(agent, local_rank, LAST_RECORDS, &len);
    if (copy == NULL)
        return false;
    uint64_t latest = latest_ns(copy), now = copy->place.read_ns;
    *ret = (struct metrics_rank){.rank = copy->place.rank,
                                 .operations = copy->begun,
                                 .all_reduced = ddpi_flight_all_reduced(copy),
                                 .idle_ns = latest < now ? now - latest : 0};
    ddpi_free(copy);
    return latest != 0;
}

static size_t read_ranks(const struct agent *agent, struct metrics_rank *ranks)
{
    size_t count = 0;
    for (uint32_t i = 0; ranks != NULL && i < agent->config->nproc; i++)
        count += read_rank(agent, i, &ranks[count]);
    return count;
}

static bool put_metrics(const struct metrics_server *server, struct ddpi_buf *text,
                        const void *stats, size_t stats_len)
{
    const struct agent *agent = &server->membership->agent;
    struct metrics_rank *ranks = ddpi_calloc(agent->config->nproc, sizeof *ranks);
    const struct metrics_facts facts = {.view = &server->watch.view,
                                        .history = &server->watch.history,
                                        .ranks = ranks,
                                        .nranks = read_ranks(agent, ranks),
                                        .stats = stats,
                                        .stats_len = stats_len,
                                        .kept = server->kept->current ? &server->kept->now : NULL};
    bool done = metrics_put(text, &facts);
    ddpi_free(ranks);
    return done;
}

/* What the node does, in a word. */
static const char *phase_of(const struct metrics_server *server)
{
    static const char *const names[] = {
        [MEMBER_WAITING] = "waiting",   [MEMBER_RUNNING] = "running",
        [MEMBER_FINISHED] = "finished", [MEMBER_ENDING] = "ending",
        [MEMBER_CHECKING] = "checking", [MEMBER_OVER] = "over"};
    return names[server->membership->member.sm.state];
}

static json_t *event_json(const struct history_event *event)
{
    return json_pack("{s:I,s:I,s:o,s:I,s:I,s:I}", "generation", (json_int_t)event->generation,
                     "began_ms", (json_int_t)event->began_ms, "reason",
                     json_bytes(event->reason, strlen(event->reason)), "idle_ms",
                     (json_int_t)event->recovery_ms[HISTORY_IDLE], "seated_ms",
                     (json_int_t)event->recovery_ms[HISTORY_SEATED], "running_ms",
                     (json_int_t)event->recovery_ms[HISTORY_RUNNING]);
}

static json_t *timeline_json(const struct job_history *history)
{
    json_t *array = json_array();
    const struct history_event *event;
    for (uint64_t i = 0; array != NULL && (event = job_history_back(history, i)) != NULL; i++)
        if (json_array_append_new(array, event_json(event)) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static char *status_text(const struct metrics_server *server)
{
    const struct agent *agent = &server->membership->agent;
    const char *name = server->membership->member.says.name;
    json_t *object =
        json_pack("{s:i,s:o,s:s,s:I,s:o,s:o}", "schema", JOB_JSON_SCHEMA, "node",
                  json_bytes(name, strlen(name)), "phase", phase_of(server), "local_ranks",
                  (json_int_t)agent->config->nproc, "job", job_json(&server->watch.view),
                  "timeline", timeline_json(&server->watch.history));
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(object);
    return text;
}

/* ---- who may see what ---- */

static bool has_token(const struct metrics_server *server, const struct http_request *request)
{
    static const char bearer[] = "Bearer "; /* a scheme may be written in any case */
    const char *given = request->authorization;
    size_t len = strlen(server->config->token);
    if (len == 0 || given == NULL || strncasecmp(given, bearer, sizeof bearer - 1) != 0)
        return false;
    given += sizeof bearer - 1;
    return strlen(given) == len && sodium_memcmp(given, server->config->token, len) == 0;
}

/* The ends of a connection; false: the client has closed it. */
static bool find_ends(int fd, struct ddpi_end *ret_here, struct ddpi_end *ret_there)
{
    struct sockaddr_storage own = {.ss_family = AF_UNSPEC}, peer = {.ss_family = AF_UNSPEC};
    socklen_t own_len = sizeof own, peer_len = sizeof peer;
    if (getsockname(fd, (struct sockaddr *)&own, &own_len) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_len) != 0)
        return false;
    *ret_here = ddpi_end_of((const struct sockaddr *)&own);
    *ret_there = ddpi_end_of((const struct sockaddr *)&peer);
    return true;
}

enum audience { ANYBODY, THIS_MACHINE, THE_USER };

/* Without a token it matters which user is at the other end. With a Host of another name it may be
 * the user's browser that shows a page of another site. */
static bool may_see(struct metrics_server *server, const struct http_request *request,
                    enum audience audience)
{
    struct ddpi_end here, there;
    uint32_t owner;
    bool known;
    if (audience == ANYBODY || has_token(server, request))
        return true;
    if (!request->names_loopback || !find_ends(request->fd, &here, &there) ||
        !ddpi_address_is_loopback(&there.address))
        return false;
    if (audience == THIS_MACHINE)
        return true;
    if (server->config->token_named) /* a proxy of this user may be at the other end */
        return false;
    return server->config->trust_local_users ||
           ddpi_owners_ours(&server->owners, &there, &here, &owner, &known);
}

/* ---- requests ---- */

/* A scrape while the store is asked. */
struct scrape {
    struct metrics_server *server;
    struct http_request *http;
};

static void answer_scrape(struct metrics_server *server, struct http_request *http,
                          const void *stats, size_t stats_len)
{
    struct ddpi_buf text;
    ddpi_buf_init(&text, TEXT_MAX);
    if (put_metrics(server, &text, stats, stats_len))
        http_answer(http, HTTP_OK, metrics_type, ddpi_buf_head(&text), ddpi_buf_len(&text));
    else
        http_answer(http, NO_MEMORY, NULL, NULL, 0);
    ddpi_buf_finish(&text);
}

static void on_stats(void *data, const struct ddp_store_result *result)
{
    struct scrape *scrape = data;
    bool known = result->status == DDP_OK;
    answer_scrape(scrape->server, scrape->http, known ? result->value : NULL,
                  known ? result->value_len : 0);
    ddpi_free(scrape);
}

static const struct ddp_store_request ask_stats = {
    .size = sizeof ask_stats, .op = DDP_STORE_OP_STATS, .timeout_ms = STORE_MS};

static unsigned show_metrics(struct metrics_server *server, struct http_request *http)
{
    struct scrape *scrape = server->watching ? ddpi_calloc(1, sizeof *scrape) : NULL;
    if (scrape != NULL)
        *scrape = (struct scrape){server, http};
    if (scrape == NULL || ddp_store_uv_submit(server->watch.store, &ask_stats, on_stats, scrape,
                                              NULL, NULL) != DDP_OK) {
        ddpi_free(scrape);
        answer_scrape(server, http, NULL, 0);
    }
    return 0;
}

static unsigned show_page(struct metrics_server *server, struct http_request *http)
{
    (void)server;
    http_answer(http, HTTP_OK, "text/html; charset=utf-8", metrics_page, metrics_page_len);
    return 0;
}

static unsigned show_health(struct metrics_server *server, struct http_request *http)
{
    char text[32];
    int len = snprintf(text, sizeof text, "ok %s\n", phase_of(server));
    http_answer(http, HTTP_OK, text_type, text, (size_t)len);
    return 0;
}

static unsigned show_status(struct metrics_server *server, struct http_request *http)
{
    char *text = status_text(server);
    if (text == NULL)
        return NO_MEMORY;
    http_answer(http, HTTP_OK, "application/json", text, strlen(text));
    free(text);
    return 0;
}

/* Bytes of a worker: a browser shows what is no UTF-8 as it likes, and runs nothing of it. */
static unsigned show_tail(struct metrics_server *server, struct http_request *http)
{
    const struct agent *agent = &server->membership->agent;
    int64_t local_rank;
    const char *number = http->path + strlen("/tail/");
    if (ddpi_parse_int(number, 0, (int64_t)agent->config->nproc - 1, &local_rank, NULL) != DDP_OK)
        return NOT_THERE;
    char text[TAIL_SIZE];
    const struct worker_proc *worker = &agent->workers[local_rank];
    const char *const *files = (const char *const *)worker->log_files;
    size_t len = tail_copy(&worker->output, text);
    if (len == 0 && (files[0] != NULL || files[1] != NULL))
        len = (size_t)snprintf(text, sizeof text, "(its output goes to %s)\n",
                               files[0] != NULL ? files[0] : files[1]);
    http_answer(http, HTTP_OK, text_type, text, len);
    return 0;
}

static const struct route {
    const char *path; /* ending with '/': what begins with it */
    enum audience audience;
    unsigned (*show)(struct metrics_server *server, struct http_request *http);
} routes[] = {
    {"/tail/", THE_USER, show_tail},         {"/", ANYBODY, show_page},
    {"/healthz", ANYBODY, show_health},      {"/metrics", THIS_MACHINE, show_metrics},
    {"/status.json", THE_USER, show_status},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t len = strlen(routes[i].path);
        bool longer = len > 1 && routes[i].path[len - 1] == '/';
        if (longer ? strncmp(path, routes[i].path, len) == 0 : strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    return NULL;
}

static unsigned on_request(void *ctx, struct http_request *http)
{
    struct metrics_server *server = ctx;
    const struct route *route = find_route(http->path);
    if (strcmp(http->method, "GET") != 0 && strcmp(http->method, "HEAD") != 0)
        return BAD_METHOD;
    if (route == NULL)
        return NOT_THERE;
    return may_see(server, http, route->audience) ? route->show(server, http) : NOT_ALLOWED;
}

/* ---- the file ---- */

/* False, with errno, if not all bytes could be written. */
static bool write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, bytes, len);
        if (written < 0 && errno != EINTR)
            return false;
        bytes += written > 0 ? written : 0;
        len -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

/* Replace it as a whole: its reader sees the old one or the new one. */
static ddp_status replace_file(const char *path, const struct ddpi_buf *text, struct ddp_error *err)
{
    char *other = ddpi_asprintf("%s.%08" PRIx32 ".tmp", path, randombytes_random());
    if (other == NULL)
        return ddpi_error_nomem(err, strlen(path));
    int fd = open(other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); /* nobody else's */
    bool written = fd >= 0 && write_all(fd, ddpi_buf_head(text), ddpi_buf_len(text));
    int sys_errno = written ? 0 : errno;
    if (fd >= 0)
        close(fd);
    if (written && rename(other, path) != 0)
        sys_errno = errno;
    if (sys_errno != 0 && fd >= 0)
        unlink(other);
    ddpi_free(other);
    return sys_errno == 0 ? DDP_OK : ddpi_error_sys(err, sys_errno, "cannot write '%s'", path);
}

static void write_file(struct metrics_server *server, const void *stats, size_t stats_len)
{
    struct ddpi_buf text;
    struct ddp_error err;
    ddpi_buf_init(&text, TEXT_MAX);
    ddp_status status = put_metrics(server, &text, stats, stats_len)
                            ? replace_file(server->config->textfile, &text, &err)
                            : ddpi_error_nomem(&err, 1);
    ddpi_buf_finish(&text);
    if (status != DDP_OK && !server->told_file)
        membership_say(server->membership, "--metrics-textfile: %s; trying again", err.msg);
    server->told_file = status != DDP_OK;
}

static void on_file_stats(void *data, const struct ddp_store_result *result)
{
    struct metrics_server *server = data;
    if (result->status == DDP_E_CANCELED) /* the server closes, and has written the file */
        return;
    bool known = result->status == DDP_OK;
    write_file(server, known ? result->value : NULL, known ? result->value_len : 0);
}

/* ---- life ---- */

static void on_file_due(uv_timer_t *timer)
{
    struct metrics_server *server = timer->data;
    if (!server->watching || ddp_store_uv_submit(server->watch.store, &ask_stats, on_file_stats,
                                                 server, NULL, NULL) != DDP_OK)
        write_file(server, NULL, 0);
    uv_timer_start(timer, on_file_due, METRICS_FILE_MS, 0);
}

static void watch_job(struct metrics_server *server)
{
    struct ddp_error err;
    if (server->watching)
        return;
    server->watching = job_watch_open(&server->watch, server->env.loop, &server->options,
                                      server->job, &err) == DDP_OK;
    if (!server->watching)
        membership_say(server->membership, "the metrics have nothing of the job: %s", err.msg);
}

static void on_later(uv_timer_t *timer)
{
    struct metrics_server *server = timer->data;
    watch_job(server);
    if (server->config->textfile != NULL)
        on_file_due(timer);
}

static bool is_ready(struct metrics_server *server)
{
    const struct http_options options = {.ctx = server,
                                         .request = on_request,
                                         .max_connections = CONNECTIONS,
                                         .limit_ms = CLIENT_MS,
                                         .max_body = BODY_MAX,
                                         .max_body_total = BODY_TOTAL,
                                         .methods = "GET, HEAD",
                                         .any_host = server->config->beyond};
    struct ddp_error err;
    if (server->http != NULL || server->broken)
        return !server->broken;
    server->broken = http_server_create(server->env.loop, &options, &server->http, &err) != DDP_OK;
    if (server->broken)
        membership_say(server->membership, "--metrics-listen: %s", err.msg);
    return !server->broken;
}

static void on_metrics_connected(void *ctx, const struct ddpi_listener *listener, int fd,
                                 const struct sockaddr *peer)
{
    struct metrics_server *server = ctx;
    (void)listener;
    if (!is_ready(server)) {
        close(fd);
        return;
    }
    watch_job(server);
    http_server_take(server->http, fd, peer);
}

static void on_shed(void *ctx)
{
    (void)ctx; /* a scraper comes again */
}

static void on_metrics_listener_closed(void *ctx)
{
    (void)ctx;
}

/* Only here a port that was given as 0 is known. */
static void listen_for_requests(struct metrics_server *server)
{
    char address[DDPI_HOST_MAX + 8];
    uint16_t port;
    if (ddpi_listener_create(&server->env, server->config->fd, &server->listener, NULL) != DDP_OK) {
        membership_say(server->membership, "--metrics-listen: no memory to listen");
        return;
    }
    ddpi_listen_name(server->config->fd, address, sizeof address, &port);
    membership_say(server->membership, "the job is shown at http://%s/", address);
}

void metrics_server_open(struct metrics_server *server, uv_loop_t *loop,
                         const struct metrics_config *config,
                         const struct ddp_store_options *options, const char *job,
                         const struct store_kept *kept, struct membership *membership)
{
    *server = (struct metrics_server){.config = config,
                                      .membership = membership,
                                      .options = *options,
                                      .job = job,
                                      .kept = kept,
                                      .env = {.loop = loop,
                                              .owner = server,
                                              .connected = on_metrics_connected,
                                              .shed = on_shed,
                                              .closed = on_metrics_listener_closed}};
    if (config->fd < 0 && config->textfile == NULL)
        return;
    server->options.prefix = NULL;
    server->options.job = NULL;
    ddpi_owners_init(&server->owners);
    job_view_init(&server->watch.view, job);
    if (config->fd >= 0)
        listen_for_requests(server);
    server->timer_open = uv_timer_init(loop, &server->later) == 0;
    server->later.data = server;
    if (server->timer_open)
        uv_timer_start(&server->later, on_later, LATER_MS, 0);
}

/* The store's client answers all requests before it is closed, as the HTTP server needs it. */
static void on_unwatched(void *ctx)
{
    struct metrics_server *server = ctx;
    http_server_destroy(server->http);
    server->http = NULL;
    ddpi_owners_finish(&server->owners);
}

void metrics_server_close(struct metrics_server *server)
{
    if (!server->timer_open)
        return;
    if (server->config->textfile != NULL)
        write_file(server, NULL, 0);
    uv_close((uv_handle_t *)&server->later, NULL);
    server->timer_open = server->watching = false;
    if (server->listener != NULL)
        ddpi_listener_close(server->listener);
    server->listener = NULL;
    job_watch_close(&server->watch, on_unwatched, server);
}
