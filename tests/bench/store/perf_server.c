/*
 * perf_server.c - starts and stops the servers that are measured. Owns their processes, each until
 * perf_server_stop().
 */
#include "perf_server.h"

#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { START_LIMIT_MS = 60000 };

/* Runs in the child. @out_fd becomes its standard output. */
static _Noreturn void become_server(const char *const *words, int out_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null_fd = open("/dev/null", O_RDWR);
    if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
        dup2(out_fd >= 0 ? out_fd : null_fd, STDOUT_FILENO) >= 0)
        execvp(words[0], (char *const *)(uintptr_t)words); /* execvp does not write to argv */
    _exit(127);
}

static bool fork_server(const char *const *words, int out_fd, pid_t *ret, struct ddp_error *err)
{
    pid_t pid = fork();
    if (pid < 0)
        return !ddpi_error_sys(err, errno, "cannot start '%s'", words[0]);
    if (pid == 0)
        become_server(words, out_fd);
    *ret = pid;
    return true;
}

void perf_server_stop(struct perf_server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    while (waitpid(server->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *server = (struct perf_server){0};
}

/* ---- ours ---- */

/* Read the port from "listening on HOST:PORT"; 0: the line did not come in time. */
static uint16_t read_port(int fd)
{
    char text[256];
    size_t len = 0;
    unsigned port = 0;
    double limit = perf_now_us() + START_LIMIT_MS * 1e3;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    while (perf_now_us() < limit && len < sizeof text - 1) {
        if (poll(&ready, 1, START_LIMIT_MS) <= 0)
            continue;
        ssize_t got = read(fd, text + len, sizeof text - 1 - len);
        if (got <= 0)
            break;
        len += (size_t)got;
        text[len] = '\0';
        char *end = strchr(text, '\n');
        if (end == NULL)
            continue;
        *end = '\0';
        for (const char *c = strrchr(text, ':'); c != NULL && *++c >= '0' && *c <= '9';)
            port = port * 10 + (unsigned)(*c - '0');
        break;
    }
    return port <= UINT16_MAX ? (uint16_t)port : 0;
}

bool perf_server_spawn(const char *const *words, pid_t *ret_pid, int *ret_fd, struct ddp_error *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return !ddpi_error_sys(err, errno, "cannot make a pipe");
    bool started = fork_server(words, ends[1], ret_pid, err);
    close(ends[1]);
    if (started)
        *ret_fd = ends[0];
    else
        close(ends[0]);
    return started;
}

bool perf_server_start_ours(const struct perf *perf, struct perf_server *ret, struct ddp_error *err)
{
    static const char max_keys[] = "--max-keys=2000000", job_keys[] = "--max-job-keys=2000000";
    const char *const words[] = {perf->ddprund,
                                 "--listen=127.0.0.1:0",
                                 "--log-level=warning",
                                 max_keys,
                                 job_keys,
                                 "--max-job-bytes=1G",
                                 "--max-sessions=262144",
                                 "--max-job-sessions=262144",
                                 "--reserve=1G",
                                 NULL};
    struct perf_server server = {0};
    int fd;
    if (!perf_server_spawn(words, &server.pid, &fd, err))
        return false;
    server.port = read_port(fd);
    close(fd);
    if (server.port == 0) {
        perf_server_stop(&server);
        return !ddpi_error_set(err, DDP_E_SYSTEM, "'%s' did not print its address", words[0]);
    }
    *ret = server;
    return true;
}

/* ---- Redis ---- */

static int bind_free(uint16_t *ret_port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        return fd;
    *ret_port = ntohs(address.sin_port);
    return fd;
}

static bool runs(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

/* The server does not listen at once when it starts, so try repeatedly. */
static bool accepts(const struct perf_server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(server->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    double limit = perf_now_us() + START_LIMIT_MS * 1e3;
    bool connected = false;
    while (!connected && perf_now_us() < limit && runs(server->pid)) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        connected = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
        if (!connected)
            poll(NULL, 0, 1);
    }
    return connected;
}

bool perf_server_start_redis(const struct perf *perf, struct perf_server *ret,
                             struct ddp_error *err)
{
    (void)perf;
    struct perf_server server = {0};
    int reserved = bind_free(&server.port);
    close(reserved); /* Redis can neither take over a socket nor choose a free port */
    char port[8];
    snprintf(port, sizeof port, "%u", server.port);
    const char *const words[] = {"redis-server", "--port",       port,    "--bind",
                                 "127.0.0.1",    "--save",       "",      "--appendonly",
                                 "no",           "--maxclients", "15000", NULL};
    if (!fork_server(words, -1, &server.pid, err))
        return false;
    if (accepts(&server)) {
        *ret = server;
        return true;
    }
    perf_server_stop(&server);
    return !ddpi_error_set(err, DDP_E_SYSTEM, "redis-server did not listen on port %s", port);
}
