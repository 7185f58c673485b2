/*
 * test_flight_memory.c - the memory of the workers' flight recorders: sealed, kept after the worker
 * has closed it, and forgotten with the next generation.
 */
#include "check_main.h"
#include "flight_log.h"
#include "flight_memory.h"
#include "mem.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static struct flight_memory memory;

static void teardown(void)
{
    flight_memory_close(&memory);
}

static size_t count_records(uint32_t local_rank)
{
    const struct ddpi_flight_place place = {.rank = local_rank, .world_size = 2};
    struct ddpi_flight_log *log;
    size_t len, count;
    struct ddpi_flight_header *copy = flight_memory_copy(&memory, local_rank, 100, &place, &len);
    ck_assert_ptr_nonnull(copy);
    ck_assert_int_eq(ddpi_flight_log_read(copy, len, &log, NULL), DDP_OK);
    ck_assert_uint_ne(log->place.read_ns, 0);
    count = log->count;
    ddpi_flight_log_destroy(log);
    ddpi_free(copy);
    return count;
}

START_TEST(records_stay_when_the_worker_is_gone)
{
    flight_memory_open(&memory, 2, 20);
    ck_assert_uint_eq(memory.records, 32);
    int fd = flight_memory_make(&memory, 1);
    struct stat file;
    ck_assert_int_gt(fd, 2);
    ck_assert_int_eq(fcntl(fd, F_GET_SEALS), DDPI_FLIGHT_SEALS);
    ck_assert_int_eq(fstat(fd, &file), 0);
    struct ddpi_flight_header *own =
        mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ck_assert(own != MAP_FAILED && ddpi_flight_is_live(own, (size_t)file.st_size));
    struct ddpi_flight_op op = {.state = DDPI_FLIGHT_STARTED};
    ddpi_flight_begin(own, own->records, &op);
    own->records = 1u << 31; /* not believed */
    munmap(own, (size_t)file.st_size);
    ck_assert_uint_eq(count_records(1), 1);
    ck_assert(flight_memory_has(&memory, 1) && !flight_memory_has(&memory, 0));
    flight_memory_renew(&memory);
    ck_assert(!flight_memory_has(&memory, 1));
}
END_TEST

START_TEST(no_recorder_is_no_failure)
{
    size_t len;
    const struct ddpi_flight_place place = {0};
    flight_memory_open(&memory, 2, 0);
    ck_assert_int_eq(flight_memory_make(&memory, 0), 0);
    ck_assert(!flight_memory_has(&memory, 0));
    struct ddpi_flight_header *copy = flight_memory_copy(&memory, 0, 1, &place, &len);
    ck_assert(copy != NULL && copy->place.no_recorder == 1 && copy->records == 0);
    ddpi_free(copy);
    flight_memory_close(&memory);
    flight_memory_open(&memory, 2, 16);
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit low = {4096, RLIM_INFINITY};
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    ck_assert_int_eq(flight_memory_make(&memory, 0), 0);
    ck_assert(!flight_memory_has(&memory, 0));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("flight_memory");
    TCase *tcase = tcase_create("flight_memory");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, records_stay_when_the_worker_is_gone);
    tcase_add_test(tcase, no_recorder_is_no_failure);
    suite_add_tcase(suite, tcase);
    return suite;
}
