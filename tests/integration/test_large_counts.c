/*
 * test_large_counts.c - buffers of more elements than fit into 31 bits, through shared memory and
 * through TCP: a reduce, which takes 2 GiB of memory, as what rank 1 sends repeats itself in memory
 * that is mapped again and again; and with all cases an all_reduce, which takes 5 GiB.
 */
#include "check_main.h"
#include "world.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_COUNT ((1U << 31) + 3)

/* No power of two, so that a place which is wrong by one has another byte. */
#define PERIOD (48U << 20)

enum { RANKS = 2 };

static size_t free_bytes(void)
{
    return (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Number @i of the period that begins at @at, which rank 1 repeats. All bits of a place of rank 0
 * count, so that bytes in a wrong place are seen. */
static uint8_t byte_of(uint32_t rank, uint32_t at, uint32_t i)
{
    if (rank == 0)
        i += at;
    return (uint8_t)((i ^ i >> 8 ^ i >> 16 ^ i >> 24) + rank);
}

static uint32_t length_of_period(uint32_t at)
{
    return LARGE_COUNT - at < PERIOD ? LARGE_COUNT - at : PERIOD;
}

static uint8_t *reserve(void)
{
    uint8_t *bytes = mmap(NULL, LARGE_COUNT + PERIOD, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(bytes != MAP_FAILED);
    return bytes;
}

static uint8_t *make_input(uint32_t rank)
{
    uint8_t *bytes = reserve();
    for (uint32_t at = 0; at < LARGE_COUNT; at += PERIOD)
        for (uint32_t i = 0, end = length_of_period(at); i < end; i++)
            bytes[at + i] = byte_of(rank, at, i);
    return bytes;
}

/* What rank 1 sends, in the memory of one period. */
static uint8_t *map_input(void)
{
    int fd = memfd_create("period", MFD_CLOEXEC);
    uint8_t *bytes = reserve();
    CHECK(fd >= 0 && ftruncate(fd, (off_t)PERIOD) == 0);
    for (uint32_t at = 0; at < LARGE_COUNT; at += PERIOD)
        CHECK(mmap(bytes + at, PERIOD, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
              bytes + at);
    for (uint32_t i = 0; i < PERIOD; i++)
        bytes[i] = byte_of(1, 0, i);
    close(fd);
    return bytes;
}

static void check_sum(const uint8_t *bytes)
{
    uint32_t wrong = 0;
    for (uint32_t at = 0; at < LARGE_COUNT; at += PERIOD)
        for (uint32_t i = 0, end = length_of_period(at); i < end; i++)
            wrong += bytes[at + i] != (uint8_t)(byte_of(0, at, i) + byte_of(1, at, i));
    CHECK(wrong == 0);
}

static void reduce_large(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t *bytes = rank == 0 ? make_input(0) : map_input();
    (void)world;
    CHECK_OK(ddp_reduce(comm, bytes, bytes, LARGE_COUNT, DDP_UINT8, DDP_SUM, 0, NULL, err));
    if (rank == 0)
        check_sum(bytes);
}

static void all_reduce_large(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t *bytes = make_input(rank);
    (void)world;
    CHECK_OK(ddp_all_reduce(comm, bytes, bytes, LARGE_COUNT, DDP_UINT8, DDP_SUM, NULL, err));
    check_sum(bytes);
}

static void run_large(rank_body *body, bool tcp, size_t gibibytes)
{
    struct world world = {.nranks = RANKS, .tcp = tcp, .timeout_ms = 3600 * 1000};
    if (free_bytes() < gibibytes << 30)
        SKIP("%zu GiB of free memory", gibibytes);
    world_open(&world);
    world_run(&world, body);
    world_close(&world);
}

START_TEST(a_reduce_of_more_elements_than_31_bits_count)
{
    run_large(reduce_large, _i != 0, 3);
}
END_TEST

START_TEST(an_all_reduce_of_more_elements_than_31_bits_count)
{
    run_large(all_reduce_large, _i != 0, 6);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("large counts");
    TCase *tcase = tcase_create("elements");
    tcase_add_loop_test(tcase, a_reduce_of_more_elements_than_31_bits_count, 0, 2);
    if (sample_is_whole())
        tcase_add_loop_test(tcase, an_all_reduce_of_more_elements_than_31_bits_count, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
