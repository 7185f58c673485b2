/*
 * test_large_counts.c - buffers of more elements than fit into 31 bits, through shared memory and
 * through TCP. It needs 6 GiB; with less, and in builds with a sanitizer, nothing is tested.
 */
#include "check_main.h"
#include "world.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_COUNT (((size_t)1 << 31) + 3)

enum { RANKS = 2 };

static size_t free_bytes(void)
{
    return (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* All bits of @i count, so that bytes in a wrong place are seen. */
static uint8_t byte_of(uint32_t rank, size_t i)
{
    return (uint8_t)((i ^ i >> 8 ^ i >> 16 ^ i >> 24) + rank);
}

static void reduce_large(struct world *world, uint32_t rank, ddp_comm *comm)
{
    uint8_t *bytes = mmap(NULL, LARGE_COUNT, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t wrong = 0;
    (void)world;
    CHECK(bytes != MAP_FAILED);
    for (size_t i = 0; i < LARGE_COUNT; i++)
        bytes[i] = byte_of(rank, i);
    CHECK_OK(ddp_all_reduce(comm, bytes, bytes, LARGE_COUNT, DDP_UINT8, DDP_SUM, NULL, err));
    for (size_t i = 0; i < LARGE_COUNT; i++)
        wrong += bytes[i] != (uint8_t)(byte_of(0, i) + byte_of(1, i));
    CHECK(wrong == 0);
    munmap(bytes, LARGE_COUNT);
}

START_TEST(more_elements_than_31_bits_count)
{
    struct world world = {.nranks = RANKS, .tcp = _i != 0, .timeout_ms = 120 * 1000};
    if (free_bytes() < (size_t)6 << 30)
        SKIP("6 GiB of free memory");
    world_open(&world);
    world_run(&world, reduce_large);
    world_close(&world);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("large counts");
    TCase *tcase = tcase_create("elements");
    tcase_add_loop_test(tcase, more_elements_than_31_bits_count, 0, 2);
    suite_add_tcase(suite, tcase);
    return suite;
}
