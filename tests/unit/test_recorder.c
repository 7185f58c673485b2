/*
 * test_recorder.c - the flight recorder of a communicator: what it notes of each call, that several
 * threads and communicators share one memory, and what is no such memory.
 */
#include "check_main.h"
#include "flight_log.h"
#include "recorder.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U /* Linux 6.3 */
#endif

enum { RECORDS = 64, THREADS = 4, CALLS = 5000 };

static const struct ddpi_recorder_group world = {.name = "world", .id = 9, .rank = 1, .size = 4};

static int fd;
static struct ddpi_flight_header *memory;
static struct ddpi_flight_log *flight;

static void seal_file(int made, int seals)
{
    ck_assert_int_ge(made, 0);
    ck_assert_int_eq(ftruncate(made, (off_t)ddpi_flight_size(RECORDS)), 0);
    ck_assert_int_eq(fcntl(made, F_ADD_SEALS, seals), 0);
}

static int make_file(int seals)
{
    int made = memfd_create("flight", MFD_ALLOW_SEALING | MFD_CLOEXEC);
    seal_file(made, seals);
    return made;
}

static void setup(void)
{
    fd = make_file(DDPI_FLIGHT_SEALS);
    memory = mmap(NULL, ddpi_flight_size(RECORDS), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(memory != MAP_FAILED);
    ddpi_flight_format(memory, RECORDS);
}

static void teardown(void)
{
    ddpi_flight_log_destroy(flight);
    flight = NULL;
    munmap(memory, ddpi_flight_size(RECORDS));
    close(fd);
}

static void read_memory(void)
{
    const struct ddpi_flight_place place = {.rank = 1, .world_size = 4};
    struct ddpi_flight_header *copy = calloc(1, ddpi_flight_size(RECORDS));
    size_t len = ddpi_flight_copy(memory, RECORDS, RECORDS, &place, copy);
    ddpi_flight_log_destroy(flight);
    ck_assert_int_eq(ddpi_flight_log_read(copy, len, &flight, NULL), DDP_OK);
    free(copy);
}

static void ck_described(size_t index, const char *expected, enum ddpi_flight_state state)
{
    char text[DDPI_FLIGHT_TEXT];
    ck_assert_uint_lt(index, flight->count);
    ddpi_flight_describe(flight, &flight->ops[index], text);
    ck_assert_str_eq(text, expected);
    ck_assert_int_eq(flight->ops[index].state, state);
}

START_TEST(calls_are_noted)
{
    struct ddpi_recorder *recorder = ddpi_recorder_open(fd, &world);
    ck_assert_ptr_nonnull(recorder);
    struct ddpi_task tasks[] = {
        {.call = {.operation = DDPI_ALL_REDUCE,
                  .seq = 1,
                  .count = 100,
                  .dtype = DDP_BFLOAT16,
                  .op = DDP_MAX},
         .timeout_ms = 1000},
        {.call =
             {.operation = DDPI_BROADCAST, .seq = 2, .count = 3, .dtype = DDP_INT64, .root = 2}},
        {.call = {.operation = DDPI_SEND, .seq = 0, .count = 5, .dtype = DDP_FLOAT32, .root = 3}},
        {.call = {.operation = DDPI_BARRIER, .seq = 3}},
    };
    for (int i = 0; i < 4; i++)
        tasks[i].record = ddpi_recorder_begin(recorder, &tasks[i], i != 3);
    ddpi_recorder_end(recorder, &tasks[0], DDP_OK);
    ddpi_recorder_end(recorder, &tasks[1], DDP_E_PEER_DEAD);
    read_memory();
    ck_described(0, "all_reduce #1 (max of 100 bfloat16)", DDPI_FLIGHT_COMPLETED);
    ck_described(1, "broadcast #2 (3 int64, root 2)", DDPI_FLIGHT_FAILED);
    ck_described(2, "send #0 to rank 3 (5 float32)", DDPI_FLIGHT_STARTED);
    ck_described(3, "barrier #3", DDPI_FLIGHT_SCHEDULED);
    ck_assert_int_eq(flight->ops[1].status, DDP_E_PEER_DEAD);
    ck_assert_uint_eq(flight->ops[0].timeout_ms, 1000);
    ck_assert_uint_ge(flight->ops[0].ended_ns, flight->ops[0].created_ns);
    ck_assert_uint_ne(flight->ops[0].created_ns, 0);
    ddpi_recorder_start(recorder, tasks[3].record);
    const struct ddpi_recorder_group few = {.name = "group", .id = 10, .rank = 0, .size = 2};
    struct ddpi_recorder *child = ddpi_recorder_open_child(recorder, &few);
    ck_assert_ptr_nonnull(child);
    ck_assert_ptr_null(ddpi_recorder_open_child(NULL, &few));
    ddpi_recorder_close(recorder);
    (void)ddpi_recorder_begin(child, &tasks[3], true);
    ddpi_recorder_close(child);
    read_memory();
    ck_described(3, "barrier #3", DDPI_FLIGHT_STARTED);
    ck_assert_uint_eq(flight->ngroups, 2);
    ck_assert_ptr_eq(ddpi_flight_group_of(flight, &flight->ops[4]), &flight->groups[1]);
    ck_assert_str_eq(flight->groups[0].name, "world");
    ck_assert_uint_eq(flight->groups[0].id, 9);
    ck_assert_uint_eq(flight->groups[0].pid, (unsigned)getpid());
}
END_TEST

/* What three ranks record of a call with a count for each rank; if not @agree, one of them sends
 * another count than is expected. Returns the sum. */
static uint16_t record_counts(enum ddpi_operation operation, bool agree)
{
    static float send[64], recv[64];
    static const size_t counts[3][3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
    uint16_t sum = 0;
    for (uint32_t rank = 0; rank < 3; rank++) {
        size_t to[3] = {counts[rank][0], counts[rank][1], counts[rank][2]};
        const size_t from[3] = {counts[0][rank], counts[1][rank], counts[2][rank]};
        const struct ddpi_recorder_group group = {.name = "uneven", .rank = rank, .size = 3};
        struct ddpi_task task = {
            .call = {.operation = operation, .dtype = DDP_FLOAT32, .root = 1},
            .send = (const uint8_t *)send,
            .recv = (uint8_t *)recv,
            .uneven = true,
            .send_parts.counts = to,
            .recv_parts.counts = from,
        };
        task.call.count = operation == DDPI_GATHER ? to[1] : from[1];
        if (!agree && rank == 1) /* which sends only as the root, or one of all */
            to[2]++;
        if (!agree && rank == 2 && operation == DDPI_GATHER)
            task.call.count++;
        ck_assert_int_eq(ddpi_task_prepare(&task, rank, 3, NULL), DDP_OK);
        struct ddpi_recorder *recorder = ddpi_recorder_open(fd, &group);
        (void)ddpi_recorder_begin(recorder, &task, true);
        ddpi_recorder_close(recorder);
        read_memory();
        const struct ddpi_flight_op *op = &flight->ops[flight->count - 1];
        ck_assert(op->is_uneven && op->in_pairs);
        sum = (uint16_t)(sum + op->parts);
    }
    return sum;
}

START_TEST(counts_of_all_ranks_add_up)
{
    static const enum ddpi_operation operations[] = {DDPI_GATHER, DDPI_SCATTER, DDPI_ALL_TO_ALL};
    ck_assert_uint_eq(record_counts(operations[_i], true), 0);
    ck_assert_uint_ne(record_counts(operations[_i], false), 0);
}
END_TEST

static void *call_often(void *arg)
{
    struct ddpi_recorder *recorder = arg;
    struct ddpi_task task = {.call = {.operation = DDPI_BARRIER}, .timeout_ms = 1};
    for (; task.call.seq < CALLS; task.call.seq++) {
        task.record = ddpi_recorder_begin(recorder, &task, true);
        ddpi_recorder_end(recorder, &task, DDP_OK);
    }
    return NULL;
}

static uint64_t all_reduced(void)
{
    const struct ddpi_flight_place place = {.rank = 1, .world_size = 4};
    struct ddpi_flight_header *copy = calloc(1, ddpi_flight_size(0));
    ck_assert_uint_eq(ddpi_flight_copy(memory, RECORDS, 0, &place, copy), ddpi_flight_size(0));
    uint64_t bytes = ddpi_flight_all_reduced(copy);
    free(copy);
    return bytes;
}

/* More communicators than there are words for. */
START_TEST(bytes_of_all_reduce_are_counted)
{
    enum { COMMUNICATORS = 2 * DDPI_FLIGHT_COUNTERS };
    struct ddpi_recorder *recorders[COMMUNICATORS];
    struct ddpi_task task = {.call.operation = DDPI_ALL_REDUCE, .count = 100, .element_size = 4};
    for (int i = 0; i < COMMUNICATORS; i++)
        recorders[i] = ddpi_recorder_open(fd, &world);
    for (int i = 0; i < 3 * COMMUNICATORS; i++) {
        struct ddpi_recorder *recorder = recorders[i % COMMUNICATORS];
        task.record = ddpi_recorder_begin(recorder, &task, true);
        ck_assert_uint_eq(all_reduced(), 400 * (uint64_t)i); /* not before its end */
        ddpi_recorder_end(recorder, &task, DDP_OK);
    }
    ddpi_recorder_end(recorders[0], &task, DDP_E_PEER_DEAD);
    task.call.operation = DDPI_BROADCAST;
    ddpi_recorder_end(recorders[0], &task, DDP_OK);
    for (int i = 0; i < COMMUNICATORS; i++)
        ddpi_recorder_close(recorders[i]);
    ck_assert_uint_eq(all_reduced(), 400 * 3 * COMMUNICATORS);
}
END_TEST

/* A reader meanwhile sees whole records only. */
START_TEST(threads_share_the_memory)
{
    pthread_t threads[THREADS];
    struct ddpi_recorder *recorders[THREADS];
    for (int i = 0; i < THREADS; i++) {
        recorders[i] = ddpi_recorder_open(fd, &world);
        ck_assert_int_eq(pthread_create(&threads[i], NULL, call_often, recorders[i]), 0);
    }
    for (int i = 0; i < 200; i++) {
        read_memory();
        for (size_t k = 0; k < flight->count; k++)
            ck_assert(flight->ops[k].operation == DDPI_BARRIER && flight->ops[k].seq < CALLS &&
                      flight->ops[k].timeout_ms == 1);
    }
    for (int i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ddpi_recorder_close(recorders[i]);
    }
    read_memory();
    ck_assert_uint_eq(flight->begun, THREADS * CALLS);
    ck_assert_uint_eq(flight->count, RECORDS);
    ck_assert_uint_eq(flight->ngroups, THREADS);
    ck_assert_uint_eq(flight->groups[3].instance, 4);
}
END_TEST

START_TEST(the_records_of_a_dead_process_stay)
{
    pid_t pid = fork();
    if (pid == 0) {
        const struct ddpi_task task = {.call = {.operation = DDPI_BARRIER, .seq = 8}};
        (void)ddpi_recorder_begin(ddpi_recorder_open(fd, &world), &task, true);
        kill(getpid(), SIGKILL);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    read_memory();
    ck_described(0, "barrier #8", DDPI_FLIGHT_STARTED);
}
END_TEST

/* With vm.memfd_noexec the kernel makes all files in memory so. */
START_TEST(the_memory_may_have_more_seals)
{
    const size_t size = ddpi_flight_size(RECORDS);
    int sealed = memfd_create("flight", MFD_NOEXEC_SEAL | MFD_CLOEXEC);
    if (sealed < 0)
        SKIP("files in memory that cannot be executed");
    seal_file(sealed, DDPI_FLIGHT_SEALS);
    struct ddpi_flight_header *map =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, sealed, 0);
    ck_assert(map != MAP_FAILED);
    ddpi_flight_format(map, RECORDS);
    struct ddpi_recorder *recorder = ddpi_recorder_open(sealed, &world);
    ck_assert_ptr_nonnull(recorder);
    ddpi_recorder_close(recorder);
    munmap(map, size);
    close(sealed);
}
END_TEST

START_TEST(what_is_no_memory_is_left_alone)
{
    int unsealed = make_file(F_SEAL_SHRINK), unformatted = make_file(DDPI_FLIGHT_SEALS);
    ck_assert_ptr_null(ddpi_recorder_open(-1, &world));
    ck_assert_ptr_null(ddpi_recorder_open(1000, &world));
    ck_assert_ptr_null(ddpi_recorder_open(2, &world));
    ck_assert_ptr_null(ddpi_recorder_open(unsealed, &world));
    ck_assert_ptr_null(ddpi_recorder_open(unformatted, &world));
    const struct ddpi_task task = {.call = {.operation = DDPI_BARRIER}, .record = 1};
    ck_assert_uint_eq(ddpi_recorder_begin(NULL, &task, true), 0);
    ddpi_recorder_start(NULL, 1);
    ddpi_recorder_end(NULL, &task, DDP_OK);
    ddpi_recorder_close(NULL);
    close(unsealed);
    close(unformatted);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("recorder");
    TCase *tcase = tcase_create("recorder");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, calls_are_noted);
    tcase_add_loop_test(tcase, counts_of_all_ranks_add_up, 0, 3);
    ADD_TESTS(tcase, bytes_of_all_reduce_are_counted, threads_share_the_memory,
              the_records_of_a_dead_process_stay, the_memory_may_have_more_seals,
              what_is_no_memory_is_left_alone);
    suite_add_tcase(suite, tcase);
    return suite;
}
