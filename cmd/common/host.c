/*
 * host.c - queries this machine. Owns nothing; the reserved port belongs to the caller.
 */
#include "host.h"

#include "error.h"
#include "gpu_count.h"
#include "parse.h"
#include "processors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GPU_TIMEOUT_MS = 30000 }; /* an idle driver takes seconds to initialize each GPU */

/* Count CUDA's devices. If there are none, count CPUs if @or_cpus. */
static ddp_status count_gpus(bool or_cpus, uint32_t *ret_nproc, struct ddp_error *err)
{
    struct ddp_error local;
    struct ddp_error *why = err != NULL ? err : &local;
    uint32_t gpus;
    ddp_status status = gpu_count(getenv("CUDA_VISIBLE_DEVICES"), GPU_TIMEOUT_MS, &gpus, why);
    if (status != DDP_OK)
        return ddpi_error_wrap(err, DDP_E_SYSTEM, "cannot count the GPUs");
    if (gpus == 0 && !or_cpus) {
        ddpi_error_wrap(why, DDP_E_SYSTEM,
                        "'gpu' needs an NVIDIA GPU that this process may use, but found none");
        return ddpi_error_advise(err, DDP_E_SYSTEM, "'cpu' starts one worker per CPU (%u)",
                                 ddpi_processors_usable());
    }
    *ret_nproc = gpus > 0 ? gpus : ddpi_processors_usable();
    return DDP_OK;
}

static ddp_status parse_worker_count(const char *text, uint32_t *ret_nproc, struct ddp_error *err)
{
    int64_t value;
    ddp_status status = ddpi_parse_int(text, 1, HOST_NPROC_MAX, &value, err);
    if (status != DDP_OK)
        return ddpi_error_set(err, status,
                              "'%s' is neither a whole number from 1 to %d nor cpu, gpu or auto",
                              text, HOST_NPROC_MAX);
    *ret_nproc = (uint32_t)value;
    return DDP_OK;
}

ddp_status host_check_workers(const char *text, struct ddp_error *err)
{
    static const char *const names[] = {"cpu", "gpu", "auto"};
    uint32_t number;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0)
            return DDP_OK;
    return parse_worker_count(text, &number, err);
}

ddp_status host_count_workers(const char *text, uint32_t *ret_nproc, struct ddp_error *err)
{
    bool or_cpus = strcmp(text, "auto") == 0;
    if (or_cpus || strcmp(text, "gpu") == 0)
        return count_gpus(or_cpus, ret_nproc, err);
    if (strcmp(text, "cpu") != 0)
        return parse_worker_count(text, ret_nproc, err);
    *ret_nproc = ddpi_processors_usable();
    return DDP_OK;
}

/* Bind to all addresses of @family; IPv6 covers IPv4, as the workers' server may use either. */
static int bind_port(int family, uint16_t port)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    const int on = 1, off = 0;
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is_v6 = family == AF_INET6;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        (is_v6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) != 0) ||
        bind(fd, is_v6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4,
             is_v6 ? sizeof v6 : sizeof v4) != 0) {
        int bind_errno = errno;
        close(fd);
        errno = bind_errno;
        return -1;
    }
    return fd;
}

/* bind() fails if another socket listens on the port, but not if one has merely bound it. */
ddp_status host_reserve_port(uint16_t port, int *ret_fd, uint16_t *ret_port, struct ddp_error *err)
{
    int fd = bind_port(AF_INET6, port);
    if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
        fd = bind_port(AF_INET, port);
    if (fd < 0)
        return ddpi_error_advise(
            err,
            ddpi_error_sys(err, errno, "cannot bind port %u for the workers (MASTER_PORT)", port),
            "choose another --master-port, or leave it out for a free one");
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    getsockname(fd, (struct sockaddr *)&bound, &len);
    *ret_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
    *ret_fd = fd;
    return DDP_OK;
}

void host_name(char *name, size_t size)
{
    if (gethostname(name, size) != 0 || *name == '\0')
        snprintf(name, size, "localhost");
    name[size - 1] = '\0';
    name[strcspn(name, ".")] = '\0';
}

void host_full_name(char *name, size_t size)
{
    const struct addrinfo hints = {.ai_flags = AI_CANONNAME};
    struct addrinfo *infos;
    if (gethostname(name, size) != 0 || *name == '\0')
        snprintf(name, size, "localhost");
    name[size - 1] = '\0';
    if (getaddrinfo(name, NULL, &hints, &infos) != 0)
        return;
    if (infos->ai_canonname != NULL)
        snprintf(name, size, "%s", infos->ai_canonname);
    freeaddrinfo(infos);
}

void host_random_uuid(char text[HOST_UUID_SIZE])
{
    uint8_t b[16];
    if (getrandom(b, sizeof b, 0) != sizeof b)
        memset(b, 0, sizeof b); /* cannot fail for this size after system start */
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    snprintf(text, HOST_UUID_SIZE,
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

ddp_status host_need_files(uint32_t needed, struct rlimit *ret_before, struct ddp_error *err)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (ret_before != NULL)
        *ret_before = limit;
    const struct rlimit raised = {limit.rlim_max, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        limit = raised;
    uint32_t can_be = 0;
    for (rlim_t fd = 0; fd < limit.rlim_cur && fd < INT_MAX && can_be < needed; fd++)
        can_be += fcntl((int)fd, F_GETFD) < 0;
    if (can_be == needed)
        return DDP_OK;
    return ddpi_error_set(err, DDP_E_LIMIT,
                          "%u files must be opened, but the limit on open files, %" PRIu64
                          ", leaves room for only %u",
                          needed, (uint64_t)limit.rlim_cur, can_be);
}

void host_make_room_for_files(uint32_t count)
{
    int fd = count <= INT_MAX ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, (int)count) : -1;
    if (fd >= 0)
        close(fd);
}

int host_ensure_stdio(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return errno;
    return 0;
}
