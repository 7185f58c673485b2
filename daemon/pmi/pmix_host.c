/*
 * pmix_host.c - see pmix_host.h. Owns the socket that listens, the server's process and the channel
 * to it. Does not wait for the process: the agent does, and calls pmix_host_exited().
 */
#include "pmix_host.h"

#include "error.h"
#include "mem.h"
#include "parse.h"
#include "signames.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

DDPI_SM_DEFINE(pmix_host, PMIX_HOST_STATES);

enum { RANKS_WAITING = 1024, SILENT_S = 60, HOST_LINE = 1024, NO_LIBRARY = 127 };

/* The socket to the server: lines of it arrive here. */
struct pmix_channel {
    uv_pipe_t pipe;
    struct pmix_host *host; /* NULL: closed */
    char line[HOST_LINE];
    size_t used;
};

/* Watches the socket that listens. */
struct pmix_knock {
    uv_poll_t poll;
    struct pmix_host *host;
};

static void close_host_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void free_host_handle(uv_handle_t *handle)
{
    ddpi_free(handle->data);
}

static void stop_knocking(struct pmix_host *host)
{
    if (host->knock != NULL)
        uv_close((uv_handle_t *)&host->knock->poll, free_host_handle);
    host->knock = NULL;
}

static void close_host_channel(struct pmix_host *host)
{
    if (host->channel == NULL)
        return;
    host->channel->host = NULL;
    uv_close((uv_handle_t *)&host->channel->pipe, free_host_handle);
    host->channel = NULL;
}

/* What is needed only until the server runs. */
static void drop_host_start(struct pmix_host *host)
{
    if (host->start.envp != NULL)
        host->hooks.release(host->hooks.ctx, &host->start);
    host->start = (struct pmix_host_start){.envp = NULL};
    close_host_fd(&host->its_end);
    close_host_fd(&host->first);
}

/* Ranks that have not connected wait at the socket, which stays open until the generation ends: a
 * rank that were refused would take itself for the only one. */
static void fail_host(struct pmix_host *host, const char *why)
{
    char text[DDP_ERROR_TEXT + 128];
    snprintf(text, sizeof text, "MPI programs of Open MPI cannot be served: %s", why);
    host->hooks.failed(host->hooks.ctx, text);
}

/* ---- lines of the server ---- */

static void take_abort(struct pmix_host *host, char *text)
{
    int64_t local_rank, exit_code;
    char *blank = strchr(text, ' ');
    if (blank == NULL)
        return;
    *blank = '\0';
    if (ddpi_parse_int(text, 0, host->nproc - 1, &local_rank, NULL) == DDP_OK &&
        ddpi_parse_int(blank + 1, INT32_MIN, INT32_MAX, &exit_code, NULL) == DDP_OK)
        host->hooks.aborted(host->hooks.ctx, (uint32_t)local_rank, (int)exit_code);
}

static void take_server_line(struct pmix_host *host, char *line)
{
    if (strncmp(line, "say ", 4) == 0) {
        host->hooks.say(host->hooks.ctx, line + 4);
    } else if (strncmp(line, "abort ", 6) == 0) {
        take_abort(host, line + 6);
    } else if (strncmp(line, "fail ", 5) == 0) {
        host->has_failed = true;
        host->hooks.failed(host->hooks.ctx, line + 5);
    }
}

static void on_server_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct pmix_channel *channel = handle->data;
    (void)suggested;
    *buf = uv_buf_init(channel->line + channel->used,
                       (unsigned)(sizeof channel->line - channel->used));
}

static void take_server_bytes(struct pmix_channel *channel, size_t count)
{
    char *end;
    channel->used += count;
    while (channel->host != NULL && (end = memchr(channel->line, '\n', channel->used)) != NULL) {
        size_t len = (size_t)(end - channel->line) + 1;
        *end = '\0';
        take_server_line(channel->host, channel->line);
        channel->used -= len;
        memmove(channel->line, channel->line + len, channel->used);
    }
    if (channel->used == sizeof channel->line)
        channel->used = 0; /* no line of ours */
}

static void on_server_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    (void)buf;
    if (count < 0)
        uv_read_stop(stream); /* why it has ended follows when it is reaped */
    else
        take_server_bytes(stream->data, (size_t)count);
}

/* The server has ended: take what it has said last. */
static void read_rest(struct pmix_host *host)
{
    uv_os_fd_t fd;
    while (host->channel != NULL && uv_fileno((uv_handle_t *)&host->channel->pipe, &fd) == 0) {
        struct pmix_channel *channel = host->channel;
        ssize_t count =
            read(fd, channel->line + channel->used, sizeof channel->line - channel->used);
        if (count <= 0)
            return;
        take_server_bytes(channel, (size_t)count);
    }
}

/* ---- start ---- */

static ddp_status open_host_channel(struct pmix_host *host, struct ddp_error *err)
{
    int fds[2];
    struct pmix_channel *channel = ddpi_calloc(1, sizeof *channel);
    if (channel == NULL)
        return ddpi_error_nomem(err, sizeof *channel);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        ddpi_free(channel);
        return ddpi_error_sys(err, errno, "cannot make a socket for the PMIx server");
    }
    channel->host = host;
    channel->pipe.data = channel;
    host->channel = channel;
    host->its_end = fds[1];
    uv_pipe_init(host->loop, &channel->pipe, 0);
    int uv_status = uv_pipe_open(&channel->pipe, fds[0]);
    if (uv_status != 0)
        close(fds[0]);
    else
        uv_status = uv_read_start((uv_stream_t *)&channel->pipe, on_server_alloc, on_server_read);
    return uv_status == 0 ? DDP_OK
                          : ddpi_error_sys(err, -uv_status, "cannot watch the PMIx server");
}

struct pmix_gone {
    uv_write_t write;
    char line[32];
};

static void on_gone_told(uv_write_t *write, int uv_status)
{
    (void)uv_status;
    ddpi_free(ddpi_container_of(write, struct pmix_gone, write));
}

/* The server may be stopped, or slow. */
static void tell_gone(struct pmix_host *host, uint32_t local_rank)
{
    struct pmix_gone *gone = ddpi_calloc(1, sizeof *gone);
    if (gone == NULL)
        return;
    int len = snprintf(gone->line, sizeof gone->line, "gone %" PRIu32 "\n", local_rank);
    const uv_buf_t buf = uv_buf_init(gone->line, (unsigned)len);
    if (uv_write(&gone->write, (uv_stream_t *)&host->channel->pipe, &buf, 1, on_gone_told) != 0)
        ddpi_free(gone);
}

static void on_server_spawned(void *ctx, struct spawner_task *task)
{
    struct pmix_host *host = ctx;
    drop_host_start(host);
    if (task->status == DDP_OK) {
        close(task->child.pidfd);
        host->pid = task->child.pid;
    }
    if (host->sm.state == PMIX_HOST_ENDING) {
        close_host_fd(&host->fd);
        if (host->pid == 0)
            ddpi_sm_move(&host->sm, PMIX_HOST_IDLE);
    } else if (task->status == DDP_OK) {
        ddpi_sm_move(&host->sm, PMIX_HOST_SERVING);
        for (uint32_t i = 0; i < host->nproc; i++)
            if (host->gone[i])
                tell_gone(host, i);
    } else {
        close_host_channel(host);
        ddpi_sm_move(&host->sm, PMIX_HOST_IDLE);
        fail_host(host, task->error.msg);
    }
    host->hooks.settled(host->hooks.ctx);
}

static ddp_status prepare_server(struct pmix_host *host, struct ddp_error *err)
{
    ddp_status status = DDP_OK;
    if (host->program == NULL)
        return ddpi_error_set(err, DDP_E_UNSUPPORTED,
                              "they need PMIx, and this ddprun was built without libpmix (Debian "
                              "package libpmix-dev), or was not installed as a whole");
    if (!host->has_spawner)
        status = spawner_open(&host->spawner, host->loop, 1, on_server_spawned, host, err);
    host->has_spawner = host->has_spawner || status == DDP_OK;
    if (status == DDP_OK)
        status = open_host_channel(host, err);
    if (status == DDP_OK)
        status = host->hooks.prepare(host->hooks.ctx, &host->start, err);
    return status;
}

static void start_server(struct pmix_host *host)
{
    static char name[] = "ddprun-pmix";
    static char *const argv[] = {name, NULL};
    struct ddp_error err;
    ddp_status status = prepare_server(host, &err);
    if (status != DDP_OK) {
        drop_host_start(host);
        close_host_channel(host);
        ddpi_sm_move(&host->sm, PMIX_HOST_IDLE);
        fail_host(host, err.msg);
        return;
    }
    host->task = (struct spawner_task){.request = {.path = host->program,
                                                   .argv = argv,
                                                   .envp = host->start.envp,
                                                   .stdio = {host->fd, host->its_end, 2},
                                                   .key_fd = host->start.key_fd,
                                                   .life_fd = host->first}};
    spawner_start(&host->spawner, &host->task);
}

/* A rank sends first, so the kernel hands over a connection only when something was sent on it. A
 * scan of ports closes the connection without that, and must start nothing. */
static bool has_spoken(int fd)
{
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void on_knock(uv_poll_t *knock, int uv_status, int events)
{
    struct pmix_host *host = ((struct pmix_knock *)knock->data)->host;
    (void)uv_status;
    (void)events;
    host->first = accept4(host->fd, NULL, NULL, SOCK_CLOEXEC);
    if (host->first >= 0 &&
        (!has_spoken(host->first) || !host->hooks.is_ours(host->hooks.ctx, host->first)))
        close_host_fd(&host->first);
    if (host->first < 0)
        return;
    stop_knocking(host);
    ddpi_sm_move(&host->sm, PMIX_HOST_STARTING);
    start_server(host);
}

/* ---- a generation ---- */

static ddp_status listen_for_ranks(struct pmix_host *host, struct ddp_error *err)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof here;
    int silent_s = SILENT_S;
    host->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (host->fd < 0 || bind(host->fd, (struct sockaddr *)&here, sizeof here) != 0 ||
        listen(host->fd, RANKS_WAITING) != 0 ||
        getsockname(host->fd, (struct sockaddr *)&here, &len) != 0)
        return ddpi_error_sys(err, errno, "cannot listen for MPI programs on 127.0.0.1");
    (void)setsockopt(host->fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &silent_s, sizeof silent_s);
    host->port = ntohs(here.sin_port);
    return DDP_OK;
}

static ddp_status watch_for_ranks(struct pmix_host *host, struct ddp_error *err)
{
    struct pmix_knock *knock = ddpi_calloc(1, sizeof *knock);
    if (knock == NULL)
        return ddpi_error_nomem(err, sizeof *knock);
    int uv_status = uv_poll_init(host->loop, &knock->poll, host->fd);
    if (uv_status != 0) {
        ddpi_free(knock);
        return ddpi_error_sys(err, -uv_status, "cannot watch for MPI programs");
    }
    knock->host = host;
    knock->poll.data = knock;
    host->knock = knock;
    uv_poll_start(&knock->poll, UV_READABLE, on_knock);
    return DDP_OK;
}

ddp_status pmix_host_begin(struct pmix_host *host, struct ddp_error *err)
{
    memset(host->gone, 0, host->nproc * sizeof *host->gone);
    host->has_failed = false;
    ddp_status status = listen_for_ranks(host, err);
    if (status == DDP_OK)
        status = watch_for_ranks(host, err);
    if (status == DDP_OK)
        ddpi_sm_move(&host->sm, PMIX_HOST_LISTENING);
    else
        close_host_fd(&host->fd);
    return status;
}

void pmix_host_end(struct pmix_host *host)
{
    stop_knocking(host);
    close_host_channel(host);
    if (host->sm.state != PMIX_HOST_STARTING) /* else a thread passes it on */
        close_host_fd(&host->fd);
    if (host->sm.state == PMIX_HOST_LISTENING) {
        ddpi_sm_move(&host->sm, PMIX_HOST_IDLE);
    } else if (host->sm.state == PMIX_HOST_STARTING || host->sm.state == PMIX_HOST_SERVING) {
        ddpi_sm_move(&host->sm, PMIX_HOST_ENDING);
    }
}

void pmix_host_rank_gone(struct pmix_host *host, uint32_t local_rank)
{
    host->gone[local_rank] = true;
    if (host->sm.state == PMIX_HOST_SERVING)
        tell_gone(host, local_rank);
}

bool pmix_host_busy(const struct pmix_host *host)
{
    return host->pid == 0 &&
           (host->sm.state == PMIX_HOST_STARTING || host->sm.state == PMIX_HOST_ENDING);
}

static void say_server_end(struct pmix_host *host, int wait_status)
{
    char name[SIGNAME_MAX], how[128];
    if (WIFSIGNALED(wait_status))
        snprintf(how, sizeof how, "their PMIx server was killed by %s",
                 signame_of(WTERMSIG(wait_status), name));
    else if (WEXITSTATUS(wait_status) == NO_LIBRARY)
        snprintf(how, sizeof how,
                 "their PMIx server lacks a library; install libpmix (Debian package libpmix2)");
    else
        snprintf(how, sizeof how, "their PMIx server has ended with exit code %d",
                 WEXITSTATUS(wait_status));
    fail_host(host, how);
}

bool pmix_host_exited(struct pmix_host *host, pid_t pid, int wait_status)
{
    if (pid != host->pid || pid == 0)
        return false;
    host->pid = 0;
    read_rest(host);
    bool unasked = host->sm.state == PMIX_HOST_SERVING && !host->has_failed;
    close_host_channel(host);
    ddpi_sm_move(&host->sm, PMIX_HOST_IDLE);
    if (unasked)
        say_server_end(host, wait_status);
    return true;
}

ddp_status pmix_host_open(struct pmix_host *host, uv_loop_t *loop, const char *program,
                          uint32_t nproc, const struct pmix_host_hooks *hooks,
                          struct ddp_error *err)
{
    *host = (struct pmix_host){.loop = loop,
                               .hooks = *hooks,
                               .program = program,
                               .nproc = nproc,
                               .fd = -1,
                               .its_end = -1,
                               .first = -1};
    ddpi_sm_init(&host->sm, &pmix_host_sm);
    host->gone = ddpi_calloc(nproc, sizeof *host->gone);
    return host->gone != NULL ? DDP_OK : ddpi_error_nomem(err, nproc * sizeof *host->gone);
}

void pmix_host_close(struct pmix_host *host)
{
    if (host->sm.table == NULL)
        return; /* never opened */
    pmix_host_end(host);
    if (host->has_spawner)
        spawner_close(&host->spawner);
}

void pmix_host_finish(struct pmix_host *host)
{
    ddpi_free(host->gone);
    host->gone = NULL;
}
