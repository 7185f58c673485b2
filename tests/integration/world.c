/*
 * world.c - a store and ranks as processes. Owns them: whoever opens a world closes it, and each
 * child asks the kernel to be killed with its parent.
 */
#include "world.h"

#include "check_main.h"
#include "clock.h"
#include "torch_store.h"

#include <arpa/inet.h>
#include <ddprun/store.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LONG_MS = 60 * 1000 };

uint64_t now_us(void)
{
    return ddpi_monotonic_us();
}

static pid_t fork_child(void)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
    }
    return pid;
}

static void start_store(struct world *world)
{
    int pipe_fds[2];
    ck_assert_int_eq(pipe(pipe_fds), 0);
    world->store = fork_child();
    if (world->store == 0) {
        close(pipe_fds[0]);
        world_serve(pipe_fds[1]);
    }
    close(pipe_fds[1]);
    ssize_t len = read(pipe_fds[0], world->endpoint, sizeof world->endpoint - 1);
    close(pipe_fds[0]);
    ck_assert_int_gt(len, 0);
    world->endpoint[len] = '\0';
}

static void set_master(const char *port, bool hosted)
{
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    setenv("TORCHELASTIC_USE_AGENT_STORE", hosted ? "True" : "False", 1);
}

/* A port that no other program is given at any address, as rank 0 listens at all of them. A zero
 * address is all addresses, of both versions of IP where there are two. */
static int keep_port(char text[8])
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6}; /* starts as struct sockaddr_in does */
    socklen_t len = sizeof address;
    int one = 1, off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        ck_assert_int_eq(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off), 0);
    } else {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        address.sin6_family = AF_INET;
        len = sizeof(struct sockaddr_in);
    }
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, len), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &len), 0);
    snprintf(text, 8, "%u", ntohs(address.sin6_port));
    return fd;
}

static enum world_way find_way(void)
{
    static const char *const names[] = {"store", "kv", "torch", "master"};
    const char *wish = getenv("DDPRUN_TEST_WAY");
    unsigned way = 0;
    while (wish != NULL && strcmp(wish, names[way]) != 0)
        ck_assert_uint_lt(++way, sizeof names / sizeof *names);
    return (enum world_way)way;
}

static void open_way(struct world *world)
{
    char port[8];
    world->way = find_way();
    world->port = -1;
    if (world->way == WORLD_STORE || world->way == WORLD_TORCH)
        start_store(world);
    if (world->way == WORLD_TORCH)
        set_master(strrchr(world->endpoint, ':') + 1, true);
    if (world->way == WORLD_KV) {
        world->table = world_kv_open();
        world->kv = world_kv_functions(world->table, true);
    }
    if (world->way == WORLD_MASTER) {
        world->port = keep_port(port);
        set_master(port, false);
        snprintf(world->endpoint, sizeof world->endpoint, "127.0.0.1:%s", port);
    }
}

/* Whether rank 0 listens: the connection is a stranger's, whom it evicts. */
static bool host_listens(const struct world *world)
{
    uint16_t port = (uint16_t)strtoul(strrchr(world->endpoint, ':') + 1, NULL, 10);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool listens = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return listens;
}

static bool has_key(const struct ddp_kv *kv)
{
    char value[600];
    size_t len;
    struct ddp_error error = {0};
    ddp_status status = kv->get(kv->ctx, "comm/world/host", value, sizeof value, &len, &error);
    ck_assert_msg(status == DDP_OK || status == DDP_E_NOT_FOUND, "%s", error.msg);
    return status == DDP_OK;
}

static bool torch_has_key(const struct world *world)
{
    struct ddpi_endpoint endpoint;
    struct ddpi_torch_store *store;
    struct ddp_error error;
    ck_assert_int_eq(ddpi_parse_endpoint(world->endpoint, &endpoint, NULL), DDP_OK);
    ck_assert_msg(ddpi_torch_store_open(&endpoint, 10000, &store, &error) == DDP_OK, "%s",
                  error.msg);
    const struct ddp_kv kv = ddpi_torch_store_kv(store);
    bool has = has_key(&kv);
    ddpi_torch_store_close(store);
    return has;
}

static bool store_has_key(const struct world *world)
{
    const struct ddp_store_options options = {
        .size = sizeof options, .endpoint = world->endpoint, .prefix = "test/"};
    ddp_store *store;
    void *value;
    size_t len;
    ck_assert_int_eq(ddp_store_connect(&options, &store, NULL), DDP_OK);
    ddp_status status =
        ddp_store_try_get(store, "comm/world/host", 10000, &value, &len, NULL, NULL);
    ck_assert(status == DDP_OK || status == DDP_E_NOT_FOUND);
    if (status == DDP_OK)
        ddp_store_free(value);
    ddp_store_close(store);
    return status == DDP_OK;
}

bool world_has_host(const struct world *world)
{
    switch (world->way) {
    case WORLD_KV:
        return world_kv_count(world->table) > 0;
    case WORLD_TORCH:
        return torch_has_key(world);
    case WORLD_MASTER:
        return host_listens(world);
    default:
        return store_has_key(world);
    }
}

void world_open(struct world *world)
{
    open_way(world);
    size_t size = sizeof *world->reports * WORLD_MAX + sizeof *world->counter;
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    world->reports = shared;
    world->counter = (void *)(world->reports + WORLD_MAX);
}

static void end_process(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = 0;
}

void world_report(struct world *world, uint32_t rank, ddp_status status,
                  const struct ddp_error *error)
{
    struct report *place = &world->reports[rank];
    place->status = status;
    place->error = *error;
    atomic_store(&place->at_us, now_us());
}

void world_step(struct world *world, uint32_t rank)
{
    atomic_fetch_add(&world->reports[rank].steps, 1);
}

void world_kill_rank(struct world *world, uint32_t rank)
{
    end_process(&world->pids[rank]);
}

void world_close(struct world *world)
{
    for (uint32_t rank = 0; rank < WORLD_MAX; rank++)
        end_process(&world->pids[rank]);
    end_process(&world->store);
    world_kv_close(world->table);
    if (world->way == WORLD_MASTER)
        close(world->port);
    munmap(world->reports, sizeof *world->reports * WORLD_MAX + sizeof *world->counter);
}

struct ddp_comm_options world_options(const struct world *world, uint32_t rank)
{
    return (struct ddp_comm_options){
        .size = sizeof(struct ddp_comm_options),
        .store_endpoint = world->way == WORLD_STORE ? world->endpoint : NULL,
        .store_prefix = "test/",
        .kv = world->way == WORLD_KV ? &world->kv : NULL,
        .name = world->name,
        .world_size = world->nranks,
        .rank = rank,
        .init_timeout_ms = world->init_timeout_ms != 0 ? world->init_timeout_ms : LONG_MS,
        .timeout_ms = world->timeout_ms != 0 ? world->timeout_ms : LONG_MS,
        .force_tcp = world->tcp,
        .algorithm = world->algorithm,
    };
}

bool world_fork(struct world *world, uint32_t rank)
{
    world->pids[rank] = fork_child();
    if (world->pids[rank] == 0 && world->hosts != NULL)
        setenv("DDP_HOST_ID", (const char[]){world->hosts[rank], '\0'}, 1);
    return world->pids[rank] == 0;
}

void world_start_rank(struct world *world, uint32_t rank, rank_body *body)
{
    if (!world_fork(world, rank))
        return;
    struct ddp_comm_options options = world_options(world, rank);
    ddp_comm *comm = NULL;
    CHECK_OK(ddp_comm_init(&options, &comm, err));
    atomic_store(&world->reports[rank].joined, true);
    body(world, rank, comm);
    ddp_comm_destroy(comm);
    _exit(0);
}

void world_expect(ddp_status status, const struct ddp_error *error, ddp_status wanted,
                  const char *words)
{
    if (status == wanted && strstr(error->msg, words) != NULL)
        return;
    fprintf(stderr, "got %d (%s), expected %d with \"%s\"\n", (int)status, error->msg, (int)wanted,
            words);
    _Exit(1);
}

void world_start(struct world *world, rank_body *body)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        world_start_rank(world, rank, body);
}

/* false: it ended otherwise than by exit status 0. */
static bool join_rank(struct world *world, uint32_t rank)
{
    int status = 0;
    if (world->pids[rank] == 0)
        return true;
    waitpid(world->pids[rank], &status, 0);
    world->pids[rank] = 0;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void world_join_rank(struct world *world, uint32_t rank)
{
    ck_assert_msg(join_rank(world, rank), "rank %u failed; see above", rank);
}

void world_join(struct world *world)
{
    bool good = true;
    for (uint32_t rank = 0; rank < WORLD_MAX; rank++)
        good &= join_rank(world, rank);
    ck_assert_msg(good, "a rank failed; see above");
}

void world_run(struct world *world, rank_body *body)
{
    world_start(world, body);
    world_join(world);
}

/* Whether @rank has ended, if this process has started it. It can still be waited for. */
static bool has_ended(const struct world *world, uint32_t rank)
{
    siginfo_t end = {0};
    pid_t pid = world->pids[rank];
    return pid != 0 && waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           end.si_pid == pid;
}

/* What a rank does before it ends is seen, as the condition is looked at once more. */
#define AWAIT_RANK(condition, world, rank, lacks)                                       \
    for (bool ended = false; !(condition); ended = has_ended(world, rank)) {            \
        ck_assert_msg(!ended, "rank %u has ended, but has not " lacks, (unsigned)rank); \
        poll(NULL, 0, 5);                                                               \
    }

void world_await_joined(struct world *world)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        AWAIT_RANK(atomic_load(&world->reports[rank].joined), world, rank, "joined");
}

void world_await_steps(struct world *world, uint32_t rank, uint32_t steps)
{
    AWAIT_RANK(atomic_load(&world->reports[rank].steps) >= steps, world, rank, "got on");
}

void world_await_failures(struct world *world, uint32_t victim)
{
    for (uint32_t rank = 0; rank < world->nranks; rank++)
        AWAIT_RANK(rank == victim || atomic_load(&world->reports[rank].at_us) != 0, world, rank,
                   "failed");
}

int32_t *world_filled(size_t count, int32_t first)
{
    int32_t *values = malloc(count * sizeof *values);
    CHECK(values != NULL);
    for (size_t i = 0; i < count; i++)
        values[i] = first + (int32_t)i;
    return values;
}

void world_check_filled(const int32_t *values, size_t count, int32_t first)
{
    for (size_t i = 0; i < count; i++)
        CHECK(values[i] == first + (int32_t)i);
}
