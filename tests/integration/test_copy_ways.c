/*
 * test_copy_ways.c - the ways that bytes take from one process to another on a machine: thousands
 * of operations of any kind and size on one communicator, long enough for each way to be tried and
 * chosen, or refused by the kernel halfway. What arrives is right in each of them. And a rank that
 * reads from one whose call has failed meanwhile does not take that for the result.
 */
#include "always_reads.h"
#include "check_main.h"
#include "copy_choice.h"
#include "world.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    OPERATIONS = 700,
    MOST_BYTES = 512 * 1024, /* of a part */
    RANKS = 3,
    /* Of a part too: more than 16 MiB of all, so copies of own parts pass the caches. */
    LARGE_BYTES = 4 * 1024 * 1024 + 4099,
};

/* ---- the kernel ---- */

static unsigned reads, refused_from; /* the number of a read; 0: none is refused */
static bool stops_in_read;           /* of another rank's bytes, once */

typedef ssize_t read_call(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                          unsigned long, unsigned long);

ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                         const struct iovec *remote, unsigned long nremote, unsigned long flags)
{
    read_call *next = (read_call *)(uintptr_t)dlsym(RTLD_NEXT, "process_vm_readv");
    if (stops_in_read && local->iov_len > sizeof(uint64_t)) {
        stops_in_read = false;
        raise(SIGSTOP);
    }
    if (++reads >= refused_from && refused_from != 0) {
        errno = EPERM;
        return -1;
    }
    return next(pid, local, nlocal, remote, nremote, flags);
}

/* ---- operations ---- */

static uint8_t send[RANKS * LARGE_BYTES], recv[RANKS * LARGE_BYTES];

/* What operation @n moves from one rank to another one, or to all. */
static void fill(uint8_t *part, size_t len, unsigned n, uint32_t from, uint32_t to)
{
    memset(part, (int)(n * 31 + from * 7 + to * 3 + 1), len);
    if (len >= sizeof n)
        memcpy(part + len - sizeof n, &n, sizeof n);
}

static void expect(const uint8_t *part, size_t len, unsigned n, uint32_t from, uint32_t to)
{
    static uint8_t want[LARGE_BYTES];
    fill(want, len, n, from, to);
    CHECK(memcmp(part, want, len) == 0);
}

static void broadcast(const struct world *world, uint32_t rank, ddp_comm *comm, unsigned n,
                      size_t len)
{
    uint32_t root = n % world->nranks;
    if (rank == root)
        fill(recv, len, n, root, 0);
    CHECK_OK(ddp_broadcast(comm, recv, len, DDP_UINT8, root, NULL, err));
    expect(recv, len, n, root, 0);
}

static void all_gather(const struct world *world, uint32_t rank, ddp_comm *comm, unsigned n,
                       size_t len)
{
    bool in_place = n % 2 == 0;
    uint8_t *own = in_place ? recv + rank * len : send;
    fill(own, len, n, rank, 0);
    CHECK_OK(ddp_all_gather(comm, own, recv, len, DDP_UINT8, NULL, err));
    memset(send, 0xee, len); /* it is the caller's again */
    for (uint32_t from = 0; from < world->nranks; from++)
        expect(recv + from * len, len, n, from, 0);
}

static void gather(const struct world *world, uint32_t rank, ddp_comm *comm, unsigned n, size_t len)
{
    uint32_t root = n % world->nranks;
    fill(send, len, n, rank, 0);
    CHECK_OK(ddp_gather(comm, send, recv, len, DDP_UINT8, root, NULL, err));
    memset(send, 0xee, len);
    for (uint32_t from = 0; rank == root && from < world->nranks; from++)
        expect(recv + from * len, len, n, from, 0);
}

static void scatter(const struct world *world, uint32_t rank, ddp_comm *comm, unsigned n,
                    size_t len)
{
    uint32_t root = n % world->nranks;
    for (uint32_t to = 0; rank == root && to < world->nranks; to++)
        fill(send + to * len, len, n, root, to);
    CHECK_OK(ddp_scatter(comm, send, recv, len, DDP_UINT8, root, NULL, err));
    memset(send, 0xee, world->nranks * len);
    expect(recv, len, n, root, rank);
}

static void all_to_all(const struct world *world, uint32_t rank, ddp_comm *comm, unsigned n,
                       size_t len)
{
    for (uint32_t to = 0; to < world->nranks; to++)
        fill(send + to * len, len, n, rank, to);
    CHECK_OK(ddp_all_to_all(comm, send, recv, len, DDP_UINT8, NULL, err));
    memset(send, 0xee, world->nranks * len);
    for (uint32_t from = 0; from < world->nranks; from++)
        expect(recv + from * len, len, n, from, rank);
}

static void all_reduce(const struct world *world, uint32_t rank, ddp_comm *comm, unsigned n,
                       size_t len)
{
    memset(send, (int)(n + rank) % 50, len);
    CHECK_OK(ddp_all_reduce(comm, send, recv, len, DDP_UINT8, DDP_MAX, NULL, err));
    uint8_t most = 0;
    for (uint32_t other = 0; other < world->nranks; other++)
        most = (n + other) % 50 > most ? (uint8_t)((n + other) % 50) : most;
    memset(send, most, len);
    CHECK(memcmp(send, recv, len) == 0);
}

static void (*const kinds[])(const struct world *, uint32_t, ddp_comm *, unsigned, size_t) = {
    broadcast, all_gather, gather, scatter, all_to_all, all_reduce};

/* ---- ranks ---- */

/* Each rank draws the same. Sizes are not round, so copies have odd ends. */
static void call_many(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint64_t state = 12345;
    reads = 0;
    refused_from = world->stage > 0 && rank + 1 == world->nranks ? world->stage : 0;
    for (unsigned n = 0; n < OPERATIONS; n++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        size_t len = ((size_t)DDPI_COPY_LEAST << (state >> 40) % 6) - (state >> 50) % 9;
        kinds[(state >> 33) % 6](world, rank, comm, n, len);
    }
    world->reports[rank].digest = reads;
}

static void run(uint32_t nranks, uint32_t stage)
{
    struct world world = {.nranks = nranks, .stage = stage};
    world_open(&world);
    world_run(&world, call_many);
    for (uint32_t rank = 0; rank < nranks; rank++)
        fprintf(stderr, "rank %u of %u has read others %llu times\n", rank, nranks,
                (unsigned long long)world.reports[rank].digest);
    if (stage > 0) /* it was refused, and did not ask again */
        ck_assert_uint_le(world.reports[nranks - 1].digest, stage);
    world_close(&world);
}

static void call_large(struct world *world, uint32_t rank, ddp_comm *comm)
{
    for (unsigned n = 0; n < 2 * sizeof kinds / sizeof *kinds; n++) {
        always_reads = n % 2 == 1;
        kinds[n / 2](world, rank, comm, n, LARGE_BYTES);
    }
}

START_TEST(large_parts_arrive_on_each_way)
{
    struct world world = {.nranks = (uint32_t)_i};
    world_open(&world);
    world_run(&world, call_large);
    world_close(&world);
}
END_TEST

START_TEST(what_arrives_is_right_on_each_way)
{
    run((uint32_t)_i, 0);
}
END_TEST

START_TEST(what_arrives_is_right_if_the_kernel_refuses)
{
    static const uint32_t stages[] = {1, 2, 3, 40, 200};
    run(2, stages[_i]);
}
END_TEST

/* Rank 1 stops before it reads. Rank 0 gives up, uses its buffer for something else, and lets the
 * other one go on. */
static void give_up(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error = {0};
    always_reads = true;
    stops_in_read = rank == 1;
    if (rank == 1)
        atomic_store(world->counter, (uint32_t)getpid());
    CHECK_OK(ddp_barrier(comm, NULL, err));
    if (rank == 0)
        CHECK_OK(ddp_comm_set_timeout(comm, 3000, err)); /* the other one has come by then */
    memset(recv, 'a' + (int)rank, MOST_BYTES);
    ddp_status status = ddp_broadcast(comm, recv, MOST_BYTES, DDP_UINT8, 0, NULL, &error);
    memset(recv, 'x', rank == 0 ? MOST_BYTES : 0);
    if (rank == 0)
        kill((pid_t)atomic_load(world->counter), SIGCONT);
    world->reports[rank].digest = reads;
    world_report(world, rank, status, &error);
}

START_TEST(what_is_read_after_a_failure_is_not_taken)
{
    struct world world = {.nranks = 2};
    world_open(&world);
    world_run(&world, give_up);
    bool has_read = world.reports[1].digest > 0; /* each rank has a processor, and may read */
    for (uint32_t rank = 0; rank < 2; rank++)
        ck_assert_msg(world.reports[rank].status == (has_read ? DDP_E_TIMEOUT : DDP_OK),
                      "rank %u: %s: %s", rank, ddp_status_name(world.reports[rank].status),
                      world.reports[rank].error.msg);
    if (has_read)
        ck_assert_ptr_nonnull(strstr(world.reports[1].error.msg, "rank 1 ("));
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("copy ways");
    TCase *tcase = tcase_create("ways");
    tcase_add_loop_test(tcase, large_parts_arrive_on_each_way, 2, RANKS + 1);
    tcase_add_loop_test(tcase, what_arrives_is_right_on_each_way, 2, RANKS + 1);
    tcase_add_loop_test(tcase, what_arrives_is_right_if_the_kernel_refuses, 0, 5);
    tcase_add_test(tcase, what_is_read_after_a_failure_is_not_taken);
    suite_add_tcase(suite, tcase);
    return suite;
}
