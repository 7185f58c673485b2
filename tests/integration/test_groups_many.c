/*
 * test_groups_many.c - a hundred communicators in one process: what each costs in descriptors and
 * memory before its first operation, after it, and when it is gone.
 */
#include "check_main.h"
#include "descriptors.h"
#include "world.h"

#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { RANKS = 4, GROUPS = 100, IDLE_BYTES = 16 * 1024 };

/* Descriptors at most of the two edges of a ring: of each its control socket, its data, the bell
 * and the process of the peer. And two of the arena, or of a connection that another one has
 * replaced. */
enum { USED = 2 * 4 + 2 };

/* Descriptors of one communicator at one rank. */
struct cost {
    uint32_t size;     /* ranks in each communicator */
    unsigned idle;     /* when it is made */
    unsigned idle_tcp; /* over TCP alone */
};

/* Its bell. With other ranks, two epoll descriptors and a listener for each transport more. */
static const struct cost costs[] = {{1, 1, 1}, {2, 5, 4}, {RANKS, 5, 4}};
enum { COSTS = sizeof costs / sizeof *costs };

/* Of the heap; 0 where a sanitizer replaces it. */
static size_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void allow_descriptors(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

/* Communicators of @size consecutive ranks. */
static void make_groups(ddp_comm *parent, uint32_t size, ddp_comm *groups[GROUPS])
{
    uint32_t rank = ddp_comm_rank(parent);
    for (unsigned i = 0; i < GROUPS; i++) {
        CHECK_OK(ddp_comm_split(parent, (int32_t)(rank / size), 0, &groups[i], err));
        CHECK(ddp_comm_world_size(groups[i]) == size && ddp_comm_rank(groups[i]) == rank % size);
    }
}

static void use_group(ddp_comm *group, uint32_t first)
{
    uint32_t size = ddp_comm_world_size(group);
    int32_t sum = (int32_t)(first + ddp_comm_rank(group));
    CHECK_OK(ddp_all_reduce(group, &sum, &sum, 1, DDP_INT32, DDP_SUM, NULL, err));
    CHECK(sum == (int32_t)(size * first + size * (size - 1) / 2));
}

static void many_body(struct world *world, uint32_t rank, ddp_comm *comm)
{
    const struct cost *cost = &costs[world->stage];
    static ddp_comm *groups[GROUPS];
    allow_descriptors();
    ddp_comm *first; /* so that what the process has only once is there */
    CHECK_OK(ddp_comm_split(comm, 0, 0, &first, err));
    ddp_comm_destroy(first);
    unsigned before = open_descriptors();
    size_t heap = heap_bytes();
    make_groups(comm, cost->size, groups);
    CHECK(open_descriptors() == before + GROUPS * (world->tcp ? cost->idle_tcp : cost->idle));
    CHECK(heap_bytes() <= heap + (size_t)GROUPS * IDLE_BYTES);
    unsigned idle = open_descriptors();
    use_group(groups[0], rank / cost->size * cost->size);
    unsigned used = cost->size > 1 ? USED : 0;
    CHECK(open_descriptors() <= idle + used); /* the others have not grown */
    for (unsigned i = 1; i < GROUPS; i++)
        use_group(groups[i], rank / cost->size * cost->size);
    CHECK(open_descriptors() <= idle + GROUPS * used);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    for (unsigned i = 0; i < GROUPS; i++)
        ddp_comm_destroy(groups[i]);
    CHECK(open_descriptors() == before);
}

START_TEST(a_communicator_costs_what_it_uses)
{
    struct world world = {.nranks = RANKS, .stage = (uint32_t)_i % COSTS, .tcp = _i >= COSTS};
    world_open(&world);
    world_run(&world, many_body);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("groups_many");
    TCase *tcase = tcase_create("costs");
    add_sample(tcase, a_communicator_costs_what_it_uses, 0, 2 * COSTS);
    suite_add_tcase(suite, tcase);
    return suite;
}
