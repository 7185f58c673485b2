/*
 * test_alloc.c - ddp_alloc(): blocks of all sizes on ranks that share memory and on ranks that do
 * not, how they end, and what is refused.
 */
#include "check_main.h"
#include "world.h"

#include <ddprun/comm_requests.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 5, PAGE = 4096, TIMEOUT_MS = 700 };

static bool is_filled(const uint8_t *block, size_t size, uint8_t with)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != with)
            return false;
    return true;
}

/* ---- life ---- */

/* What rank @rank asks for as block @k: nothing, less than a page, more than one. */
static size_t size_of(uint32_t rank, uint32_t k)
{
    static const size_t sizes[] = {0, 1, PAGE - 1, 3 * PAGE, 1000003};
    return sizes[(rank + k) % 5];
}

static void use_blocks(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t *blocks[BLOCKS];
    (void)world;
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t k = 0; k < BLOCKS; k++) {
            CHECK_OK(ddp_alloc(comm, size_of(rank, k), (void **)&blocks[k], err));
            CHECK(blocks[k] != NULL && (uintptr_t)blocks[k] % PAGE == 0);
            CHECK(is_filled(blocks[k], size_of(rank, k), 0));
            memset(blocks[k], (int)(rank + k + 1), size_of(rank, k));
        }
        for (uint32_t k = BLOCKS; k-- > round;) {
            CHECK(is_filled(blocks[k], size_of(rank, k), (uint8_t)(rank + k + 1)));
            CHECK_OK(ddp_free(comm, blocks[k], err));
            CHECK(ddp_free(comm, blocks[k], NULL) == DDP_E_INVALID);
        }
    }
    CHECK(ddp_free(comm, NULL, NULL) == DDP_E_INVALID);
    CHECK_OK(ddp_comm_check(comm, err));
}

/* Every number of ranks, by shared memory, TCP and the ring. */
START_TEST(blocks_are_made_and_freed)
{
    static const uint32_t sizes[] = {1, 2, 5, 8};
    struct world world = {.nranks = sizes[_i % 4],
                          .tcp = _i / 4 == 1,
                          .algorithm = _i / 4 == 2 ? DDP_ALGORITHM_RING : DDP_ALGORITHM_AUTO};
    world_open(&world);
    world_run(&world, use_blocks);
    world_close(&world);
}
END_TEST

/* Whether a descriptor or a mapping of this process keeps the ranks' memory in use. */
static bool holds_memory(void)
{
    char line[512], path[32];
    bool holds = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL)
        return true;
    while (fgets(line, sizeof line, maps) != NULL)
        holds = holds || strstr(line, "ddprun-arena") != NULL;
    fclose(maps);
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, line, sizeof line - 1);
        line[len > 0 ? len : 0] = '\0';
        holds = holds || strstr(line, "ddprun-arena") != NULL;
    }
    return holds;
}

/* A child has neither the memory nor the communicator, and the parent keeps both. */
static void fork_with_block(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t *block;
    int status;
    CHECK_OK(ddp_alloc(comm, PAGE, (void **)&block, err));
    memset(block, 7, PAGE);
    CHECK(holds_memory() == !world->tcp);
    pid_t child = fork();
    if (child == 0) {
        bool refused = !holds_memory() && ddp_free(comm, block, NULL) == DDP_E_INVALID &&
                       ddp_alloc(comm, PAGE, (void **)&block, NULL) == DDP_E_INVALID;
        ddp_comm_destroy(comm);
        if (!refused)
            _exit(1);
        struct rlimit none = {0};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)signal(SIGSEGV, SIG_DFL);
        *(volatile uint8_t *)block = 1;
        _exit(2);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) > 2); /* a sanitizer exits instead */
    CHECK(is_filled(block, PAGE, 7));
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK_OK(ddp_free(comm, block, err));
    world_report(world, rank, DDP_OK, &(struct ddp_error){0});
}

START_TEST(children_do_not_have_them)
{
    struct world world = {.nranks = 2, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, fork_with_block);
    world_close(&world);
}
END_TEST

/* ---- threads ---- */

enum { THREADS = 4, INTS = 50000 };

static void start_sum(ddp_comm *comm, int32_t *block, ddp_request **ret_request)
{
    const struct ddp_operation operation = {.size = sizeof operation,
                                            .kind = DDP_KIND_ALL_REDUCE,
                                            .send = block,
                                            .recv = block,
                                            .count = INTS,
                                            .dtype = DDP_INT32};
    CHECK_OK(ddp_start(comm, &operation, ret_request, err));
}

/* Blocks come and go while requests use others, which the communicator's thread drives. */
static void *use_requests(void *arg)
{
    ddp_comm *comm = arg;
    int32_t rank = (int32_t)ddp_comm_rank(comm), *blocks[2], *more;
    ddp_request *requests[2];
    CHECK_OK(ddp_comm_start_progress(comm, err));
    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 2; k++) {
            CHECK_OK(ddp_alloc(comm, INTS * sizeof *more, (void **)&blocks[k], err));
            for (int i = 0; i < INTS; i++)
                blocks[k][i] = (k + 1) * i + rank;
            start_sum(comm, blocks[k], &requests[k]);
        }
        CHECK_OK(ddp_alloc(comm, 1, (void **)&more, err));
        CHECK_OK(ddp_free(comm, more, err));
        for (int k = 0; k < 2; k++) {
            CHECK_OK(ddp_request_wait(requests[k], 0, NULL, err));
            ddp_request_free(requests[k]);
            for (int i = 0; i < INTS; i++)
                CHECK(blocks[k][i] == THREADS * (k + 1) * i + THREADS * (THREADS - 1) / 2);
            CHECK_OK(ddp_free(comm, blocks[k], err));
        }
    }
    return NULL;
}

/* What is taken out of the communicator is copied as any memory, and outlives it. */
static void *detach_and_destroy(void *arg)
{
    ddp_comm *comm = arg;
    uint8_t *block;
    size_t room;
    uint8_t sum = THREADS * (THREADS - 1) / 2;
    CHECK_OK(ddp_alloc(comm, INTS, (void **)&block, err));
    for (int round = 0; round < 2; round++) {
        memset(block, (int)ddp_comm_rank(comm), INTS);
        CHECK_OK(ddp_all_reduce(comm, block, block, INTS, DDP_UINT8, DDP_SUM, NULL, err));
        CHECK(is_filled(block, INTS, sum));
        CHECK(ddp_alloc_detach(comm, block + 1, &room, NULL) == DDP_E_INVALID);
        ddp_status status = ddp_alloc_detach(comm, block, &room, NULL);
        CHECK(status == (round == 0 ? DDP_OK : DDP_E_INVALID));
    }
    CHECK(ddp_free(comm, block, NULL) == DDP_E_INVALID);
    ddp_comm_destroy(comm);
    CHECK(room >= INTS && is_filled(block, INTS, sum));
    memset(block, 1, room);
    CHECK(munmap(block, room) == 0);
    return NULL;
}

static pthread_barrier_t all_started;

/* Rank 0 aborts in the middle, and frees what others are still working on. */
static void *abort_and_free(void *arg)
{
    ddp_comm *comm = arg;
    int32_t *block;
    ddp_request *request;
    CHECK_OK(ddp_comm_start_progress(comm, err));
    CHECK_OK(ddp_alloc(comm, INTS * sizeof *block, (void **)&block, err));
    start_sum(comm, block, &request);
    pthread_barrier_wait(&all_started);
    if (ddp_comm_rank(comm) == 0)
        ddp_comm_abort(comm);
    else
        while (ddp_all_reduce(comm, block, block, INTS, DDP_INT32, DDP_SUM, NULL, NULL) == DDP_OK)
            continue;
    CHECK_OK(ddp_free(comm, block, err));
    CHECK(ddp_alloc(comm, 1, (void **)&block, NULL) == DDP_E_ABORTED);
    ddp_request_free(request);
    return NULL;
}

START_TEST(ranks_may_be_threads)
{
    void *(*const bodies[])(void *) = {use_requests, abort_and_free, detach_and_destroy};
    ddp_comm *comms[THREADS];
    pthread_t threads[THREADS];
    CHECK_OK(ddp_comm_init_local(THREADS, NULL, comms, err));
    pthread_barrier_init(&all_started, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, bodies[_i], comms[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS && bodies[_i] != detach_and_destroy; i++)
        ddp_comm_destroy(comms[i]);
}
END_TEST

/* ---- what is refused ---- */

/* A rank may not have so large a file: it gets no memory, and goes on. */
static void limit_files(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct rlimit limit;
    struct ddp_error error;
    void *block;
    (void)world;
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = 8 << 20;
    if (rank == 1) {
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CHECK(ddp_alloc(comm, 6 << 20, &block, &error) == DDP_E_SYSTEM);
        CHECK(strstr(error.msg, "rank 1: ") != NULL && strstr(error.msg, "ulimit -f") != NULL);
        limit.rlim_cur = 128 << 20;
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        CHECK(ddp_alloc(comm, (size_t)1 << 32, &block, &error) == DDP_E_SYSTEM);
        CHECK_OK(ddp_alloc(comm, 6 << 20, &block, err)); /* what was refused takes no room */
    } else {
        CHECK_OK(ddp_alloc(comm, 6 << 20, &block, err));
        CHECK_OK(ddp_free(comm, block, err));
    }
    CHECK_OK(ddp_barrier(comm, NULL, err));
}

START_TEST(limits_are_an_error_of_their_rank)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, limit_files);
    world_close(&world);
}
END_TEST

static void ask_for_too_much(struct world *world, uint32_t rank, ddp_comm *comm)
{
    struct ddp_error error;
    void *block;
    (void)world;
    CHECK_OK(ddp_barrier(comm, NULL, err));
    if (rank != 1)
        return;
    CHECK(ddp_alloc(comm, SIZE_MAX, &block, &error) == DDP_E_NOMEM);
    CHECK(strstr(error.msg, "rank 1: ") != NULL);
    ddp_status status = ddp_alloc(comm, SIZE_MAX / 16, &block, &error);
    CHECK(status == DDP_E_NOMEM || status == DDP_E_SYSTEM);
    CHECK_OK(ddp_alloc(comm, PAGE, &block, err));
}

START_TEST(sizes_beyond_any_memory_are_refused)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    world_run(&world, ask_for_too_much);
    world_close(&world);
}
END_TEST

/* Before any other operation ranks meet, in whatever they call. */
static void call_different(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t *block, byte = 1;
    ddp_request *request;
    const struct ddp_operation recv = {.size = sizeof recv,
                                       .kind = DDP_KIND_RECV,
                                       .recv = &byte,
                                       .count = 1,
                                       .dtype = DDP_UINT8,
                                       .peer = (rank + 1) % world->nranks};
    CHECK_OK(ddp_start(comm, &recv, &request, err)); /* alloc does not wait for it */
    if (rank % 2 == 0)
        CHECK_OK(ddp_alloc(comm, PAGE, (void **)&block, err));
    else
        CHECK_OK(ddp_all_reduce(comm, &byte, &byte, 0, DDP_UINT8, DDP_SUM, NULL, err));
    if (rank % 2 == 0)
        CHECK_OK(ddp_all_reduce(comm, &byte, &byte, 0, DDP_UINT8, DDP_SUM, NULL, err));
    else
        CHECK_OK(ddp_alloc(comm, PAGE, (void **)&block, err));
    uint8_t sent = (uint8_t)rank;
    CHECK_OK(
        ddp_send(comm, &sent, 1, DDP_UINT8, (rank + world->nranks - 1) % world->nranks, NULL, err));
    CHECK_OK(ddp_request_wait(request, 0, NULL, err));
    CHECK(byte == (rank + 1) % world->nranks);
    ddp_request_free(request);
}

/* A rank waits for those before it. */
static void call_alone(struct world *world, uint32_t rank, ddp_comm *comm)
{
    void *block;
    struct ddp_error error = {0};
    if (rank == 0)
        world_await_steps(world, 1, 1);
    else
        CHECK(ddp_alloc(comm, PAGE, &block, &error) == DDP_E_TIMEOUT);
    if (rank == 1)
        world_step(world, 1);
    CHECK(rank != 1 || strstr(error.msg, "rank 0") != NULL);
}

static void *alloc_in_thread(void *arg)
{
    void *block;
    CHECK_OK(ddp_alloc(arg, 100000, &block, err));
    memset(block, 1, 100000);
    CHECK_OK(ddp_free(arg, block, err));
    return NULL;
}

/* On each rank another number of them. */
static void call_in_threads(struct world *world, uint32_t rank, ddp_comm *comm)
{
    pthread_t threads[WORLD_MAX];
    (void)world;
    for (uint32_t i = 0; i <= rank; i++)
        CHECK(pthread_create(&threads[i], NULL, alloc_in_thread, comm) == 0);
    CHECK_OK(ddp_barrier(comm, NULL, err));
    for (uint32_t i = 0; i <= rank; i++)
        pthread_join(threads[i], NULL);
    CHECK_OK(ddp_comm_check(comm, err));
}

START_TEST(the_first_call_meets_the_other_ranks)
{
    rank_body *const bodies[] = {call_different, call_in_threads, call_alone};
    bool alone = bodies[_i] == call_alone;
    struct world world = {.nranks = alone ? 2 : 5, .timeout_ms = alone ? TIMEOUT_MS : 0};
    world_open(&world);
    world_run(&world, bodies[_i]);
    world_close(&world);
}
END_TEST

/* ---- ranks do not wait for each other ---- */

enum { FLOATS = 30000, TURNS = 12 };

static void fill_floats(float *block, uint32_t rank, uint32_t turn)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        block[i] = (float)(i % 100 + rank + turn);
}

static void check_floats(const float *block, uint32_t nranks, uint32_t turn)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        CHECK(block[i] == (float)(nranks * (i % 100 + turn) + nranks * (nranks - 1) / 2));
}

/* In each turn some ranks change their block, in any order, and some have one of their own. */
static void come_and_go(struct world *world, uint32_t rank, ddp_comm *comm)
{
    static float plain[FLOATS];
    float *blocks[2] = {NULL, NULL};
    CHECK_OK(ddp_barrier(comm, NULL, err));
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        float **block = &blocks[turn % 2];
        bool changes = (turn + rank) % 3 != 1, has_none = turn > 6 && (turn + rank) % 4 == 0;
        if (*block != NULL && changes) {
            CHECK_OK(ddp_free(comm, *block, err));
            *block = NULL;
        }
        if (*block == NULL)
            CHECK_OK(ddp_alloc(comm, (FLOATS << (turn % 5)) * sizeof **block, (void **)block, err));
        float *used = has_none ? plain : *block;
        fill_floats(used, rank, turn);
        CHECK_OK(ddp_all_reduce(comm, used, used, FLOATS, DDP_FLOAT32, DDP_SUM, NULL, err));
        check_floats(used, world->nranks, turn);
    }
}

static const struct way {
    bool tcp;
    const char *hosts;
    ddp_algorithm algorithm;
} ways[] = {
    {.algorithm = DDP_ALGORITHM_AUTO},
    {.algorithm = DDP_ALGORITHM_AUTO, .tcp = true},
    {.algorithm = DDP_ALGORITHM_RING},
    {.algorithm = DDP_ALGORITHM_HIERARCHICAL, .hosts = "aabb"},
};

START_TEST(ranks_change_their_blocks_alone)
{
    const struct way *way = &ways[_i];
    struct world world = {
        .nranks = 4, .tcp = way->tcp, .hosts = way->hosts, .algorithm = way->algorithm};
    world_open(&world);
    world_run(&world, come_and_go);
    world_close(&world);
}
END_TEST

/* Bytes of addresses that this process uses. */
static rlim_t addresses(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%lu", &pages) == 1);
    fclose(file);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* A rank that has no addresses left for the memory of others: all go on as without windows. It has
 * some for small things, without which a sanitizer ends the process. */
static void limit_addresses(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { BLOCK = 16 << 20, SPARE = BLOCK / 4 };
    struct rlimit limit;
    float *block;
    CHECK_OK(ddp_barrier(comm, NULL, err));
    CHECK_OK(ddp_alloc(comm, BLOCK, (void **)&block, err));
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
    const rlim_t before = limit.rlim_cur;
    for (uint32_t turn = 0; turn < 4; turn++) {
        limit.rlim_cur = rank == 1 && turn < 2 ? addresses() + SPARE : before;
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        fill_floats(block, rank, turn);
        CHECK_OK(ddp_all_reduce(comm, block, block, FLOATS, DDP_FLOAT32, DDP_SUM, NULL, err));
        check_floats(block, world->nranks, turn);
    }
}

START_TEST(a_rank_may_be_unable_to_see_others)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_run(&world, limit_addresses);
    world_close(&world);
}
END_TEST

/* ---- death ---- */

static ddp_status sum_bytes(ddp_comm *comm, uint8_t *block, size_t size)
{
    return ddp_all_reduce(comm, block, block, size, DDP_UINT8, DDP_SUM, NULL, NULL);
}

/* Rank 1 dies; what it had is still there, and each survivor frees its blocks alone. */
static void outlive(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { SIZE = 1 << 20 };
    uint8_t *block;
    CHECK_OK(ddp_alloc(comm, SIZE, (void **)&block, err));
    memset(block, 1, SIZE);
    CHECK_OK(ddp_all_reduce(comm, block, block, SIZE, DDP_UINT8, DDP_SUM, NULL, err));
    CHECK(is_filled(block, SIZE, (uint8_t)world->nranks));
    world_step(world, WORLD_MAX - 1);
    world_await_steps(world, WORLD_MAX - 1, world->nranks);
    if (rank == 1)
        kill(getpid(), SIGKILL);
    while (sum_bytes(comm, block, SIZE) == DDP_OK)
        continue;
    memset(block, 2, SIZE);
    CHECK_OK(ddp_free(comm, block, err));
    CHECK(ddp_free(comm, block, NULL) == DDP_E_INVALID);
}

START_TEST(memory_outlives_a_rank)
{
    struct world world = {.nranks = 3, .tcp = _i != 0};
    world_open(&world);
    world_start(&world, outlive);
    world_join_rank(&world, 0);
    world_join_rank(&world, 2);
    world_close(&world);
}
END_TEST

/* Until one of them is killed in the middle of it. */
static void work_on(struct world *world, uint32_t rank, ddp_comm *comm)
{
    enum { SIZE = 4 << 20 };
    uint8_t *block;
    struct ddp_error error;
    CHECK_OK(ddp_alloc(comm, SIZE, (void **)&block, err));
    while (sum_bytes(comm, block, SIZE) == DDP_OK)
        world_step(world, rank);
    CHECK(ddp_comm_check(comm, &error) == DDP_E_PEER_DEAD);
    CHECK(strstr(error.msg, "rank 1") != NULL);
    memset(block, 2, SIZE);
    CHECK_OK(ddp_free(comm, block, err));
}

START_TEST(a_rank_is_killed_at_work)
{
    struct world world = {.nranks = 3};
    world_open(&world);
    world_start(&world, work_on);
    world_await_steps(&world, 1, 1 + (uint32_t)_i);
    world_kill_rank(&world, 1);
    world_join_rank(&world, 0);
    world_join_rank(&world, 2);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("alloc");
    TCase *tcase = tcase_create("alloc");
    tcase_add_loop_test(tcase, blocks_are_made_and_freed, 0, 12);
    tcase_add_loop_test(tcase, children_do_not_have_them, 0, 2);
    tcase_add_loop_test(tcase, ranks_may_be_threads, 0, 3);
    tcase_add_test(tcase, limits_are_an_error_of_their_rank);
    tcase_add_loop_test(tcase, sizes_beyond_any_memory_are_refused, 0, 2);
    tcase_add_loop_test(tcase, the_first_call_meets_the_other_ranks, 0, 3);
    tcase_add_loop_test(tcase, ranks_change_their_blocks_alone, 0, 4);
    tcase_add_test(tcase, a_rank_may_be_unable_to_see_others);
    tcase_add_loop_test(tcase, memory_outlives_a_rank, 0, 2);
    tcase_add_loop_test(tcase, a_rank_is_killed_at_work, 0, 10);
    suite_add_tcase(suite, tcase);
    return suite;
}
